/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COMMAND_H
#define SENNIT_TOOL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "output.h"

/*
 * The tool is a table of subcommands. Everything about one, for parsing, for --help and
 * for its manual page, is in its struct command; to add one, define it in a file of its
 * own and list it in main.c.
 */

/* Exit statuses of every subcommand; `sennit help` and sennit(1) show this list. */
enum status {
	STATUS_OK = 0,
	STATUS_FAILED = 1, /* with a message that says why */
	STATUS_USAGE = 2,  /* wrong options or arguments: nothing was done */
	STATUS_PARTLY = 3, /* partial success: lanes that do not work, files not
			    * copied */
	STATUS_DATA = 4,   /* bytes did not arrive as they were sent */
};

struct example {
	const char *line; /* as typed */
	const char *what;
};

struct command {
	const char *name;
	const char *summary;   /* one line without a full stop */
	const char *arguments; /* as in usage: "[HOST]"; "": none */
	/* Paragraphs, separated by empty lines; lines that begin with a blank are shown
	 * as they are. */
	const char *description;
	const struct option_entry *options; /* ended by an empty one; NULL: none */
	const struct example *examples;	    /* ended by an empty one */
	const struct option_hint *hints;    /* the same; NULL: none */
	int argument_min, argument_max;	    /* -1: any number */
	bool ignores_signs;	/* arguments may be numbers such as -110, for 110 */
	bool stops_at_argument; /* arguments after the first are another program's */
	size_t opts_size;	/* of the structure that options are stored in */
	/* Gets that structure, filled with defaults and the options given, and the
	 * arguments that are not options. Returns an enum status. */
	int (*run)(const void *opts, int count, char **argument);
};

/* Options of every subcommand: --json, --help. */
extern const struct option_entry common_options[];

/* All of them, ended by NULL. */
extern const struct command *const commands[];

const struct command *command_find(const char *name);

/* Prints the help, as in `sennit ping --help`, and the manual page. */
void command_help(const struct command *command);
void command_manual(const struct command *command);
/* The same for the tool as a whole. */
void tool_help(void);
void tool_manual(void);

#endif
