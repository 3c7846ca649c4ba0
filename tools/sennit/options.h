/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_OPTIONS_H
#define SENNIT_TOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct command;

enum option_kind {
	OPTION_GROUP = 0, /* not an option but a heading, which is its help */
	OPTION_FLAG,	  /* bool */
	OPTION_TEXT,	  /* const char *; NULL where there is no default */
	OPTION_NUMBER,	  /* uint64_t; "64k", "2M", "1G" are powers of 1024 */
	OPTION_TIME,	  /* uint64_t in ns; "2", "2s", "150ms", "20us", "3m" */
	OPTION_CHOICE,	  /* int: the position in its argument, "auto|never|only" */
	OPTION_CALL,	  /* handled by its function; may be given several times */
	OPTION_TABLE,	  /* other entries, which store from offset on */
};

/* One option: where it is stored, what it means, and what it is by default. */
struct option_entry {
	enum option_kind kind;
	char letter;	      /* 0: none */
	const char *name;     /* the long one */
	const char *argument; /* what its argument is called in the help */
	size_t offset;	      /* of where it is stored */
	/* Parsed as if it had been typed; NULL: 0. */
	const char *standard;
	uint64_t min, max; /* for numbers and times; max 0: no limit */
	/* Returns 0, or a status after having reported the error. */
	int (*call)(void *opts, const char *value);
	const char *help;
	const struct option_entry *table; /* of OPTION_TABLE */
	/* What shells offer besides what follows from the kind: "256|512", or "@net"
	 * for the names in /sys/class/net. For OPTION_TEXT it is a list, separated by
	 * commas. */
	const char *values;
};

/* An option of another program that users may try here, and a sentence about it, which
 * begins with the option as it was typed: "is not needed: ..." */
struct option_hint {
	char letter;	  /* 0: none */
	const char *name; /* the long one; NULL ends a table */
	const char *sentence;
};

/* Calls back for each option and heading of a table, including nested tables, with the
 * offset that its own is relative to. */
void options_each(const struct option_entry *table,
		  void (*each)(void *arg, const struct option_entry *entry,
			       size_t base),
		  void *arg);

/*
 * Parses options of a subcommand into *opts, which has command->opts_size bytes:
 * defaults, then the command line. Every subcommand also has --help and --json, which
 * are handled here.
 *
 * Returns: the position in argv of the first argument; -1 - STATUS_USAGE after having
 * reported an error; -1 - STATUS_OK if there is nothing left to do, after --help.
 */
int options_parse(const struct command *command, int argc, char **argv, void *opts);

/* Parses as the option kinds describe. Returns 0, or -EINVAL. */
int options_number(const char *text, uint64_t *value_out);
int options_time(const char *text, uint64_t *ns_out);

/* The word closest to what was typed, or NULL if none is close. `word` gives the i-th,
 * and NULL after the last one. */
const char *options_nearest(const char *typed,
			    const char *(*word)(const void *arg, size_t i),
			    const void *arg);

#endif
