/* SPDX-License-Identifier: MIT */
/* sennit help: the texts of --help and the manual pages, from the tables of
 * subcommands. */
#include <stdio.h>
#include <string.h>
#include <sennit/setting.h>

#include "command.h"
#include "commands.h"
#include "completion.h"

static const struct {
	enum status status;
	const char *meaning;
} statuses[] = {
	{ STATUS_OK, "success" },
	{ STATUS_FAILED, "failure; a message says why, and what to do" },
	{ STATUS_USAGE, "wrong options or arguments; nothing was done" },
	{ STATUS_PARTLY,
	  "partial success: some lanes do not work, some files were not copied" },
	{ STATUS_DATA, "data arrived damaged" },
};
#define STATUS_COUNT (sizeof(statuses) / sizeof(*statuses))

static const char tool_about[] =
	"Uses many RDMA queue pairs, on one NIC or several, as one: shows "
	"the devices of a host, tests and measures the paths between two "
	"hosts, and copies files over them.\n\n"
	"SENNIT_DEVICES and other settings select the devices; `sennit info` "
	"lists them. On a host without RDMA devices, soft devices on UDP "
	"sockets are used instead.";

static const struct example tool_examples[] = {
	{ "sennit info", "which devices does this host have?" },
	{ "sennit perf --local", "how fast is it, within this host?" },
	{ "sennit ping --serve",
	  "which paths work between two hosts? run this on one of them, then" },
	{ "sennit ping 10.0.0.1", "this on the other, with an address of the first" },
	{ "sennit strerror -110", "what does -110, or RETRY_EXC_ERR, mean?" },
	{ 0 },
};

const struct option_entry common_options[] = {
	{ .kind = OPTION_FLAG,
	  .name = "json",
	  .help = "results as JSON, one object per line; messages stay on stderr" },
	{ .kind = OPTION_FLAG,
	  .letter = 'h',
	  .name = "help",
	  .help = "show this help" },
	{ 0 },
};

/*
 * As text
 */

static void print_paragraphs(const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		char line[2048];

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		if (*line == ' ' || !*line)
			puts(line);
		else
			output_fill(line, 0);
		text += length;
		text += *text == '\n';
	}
}

static void option_line(void *arg, const struct option_entry *entry, size_t base)
{
	enum {
		COLUMN = 28
	};
	char left[128], right[1024];
	int length;

	(void)arg, (void)base;
	if (entry->kind == OPTION_GROUP) {
		printf("\n%s:\n", entry->help);
		return;
	}
	length =
		snprintf(left, sizeof(left), "  %c%c%s --%s%s%s",
			 entry->letter ? '-' : ' ', entry->letter ? entry->letter : ' ',
			 entry->letter ? "," : " ", entry->name,
			 entry->argument ? " " : "",
			 entry->argument ? entry->argument : "");
	snprintf(right, sizeof(right), "%s%s%s%s", entry->help,
		 entry->standard ? " (default: " : "",
		 entry->standard ? entry->standard : "", entry->standard ? ")" : "");
	printf("%-*s", COLUMN, left);
	if (length >= COLUMN)
		printf("\n%*s", COLUMN, "");
	output_fill(right, COLUMN);
}

static void show_examples(const struct example *example)
{
	puts("\nExamples:");
	for (; example && example->line; example++) {
		printf("  %s\n      ", example->line);
		output_fill(example->what, 6);
	}
}

void command_help(const struct command *command)
{
	printf("usage: sennit %s [OPTION]...%s%s\n\n", command->name,
	       *command->arguments ? " " : "", command->arguments);
	print_paragraphs(command->description);
	if (command->options && command->options->kind != OPTION_GROUP)
		puts("\nOptions:");
	options_each(command->options, option_line, NULL);
	puts(command->options ? "\nCommon options:" : "\nOptions:");
	options_each(common_options, option_line, NULL);
	show_examples(command->examples);
}

void tool_help(void)
{
	puts("usage: sennit COMMAND [OPTION]... [ARGUMENT]...\n");
	print_paragraphs(tool_about);
	puts("\nCommands:");
	for (size_t i = 0; commands[i]; i++) {
		printf("  %-12s", commands[i]->name);
		output_fill(commands[i]->summary, 14);
	}
	puts("\nSee `sennit COMMAND --help` or `man sennit-COMMAND` for each "
	     "command.");
	show_examples(tool_examples);
	puts("\nExit status:");
	for (size_t i = 0; i < STATUS_COUNT; i++)
		printf("  %d  %s\n", statuses[i].status, statuses[i].meaning);
}

/*
 * As manual pages
 */

/* Text in which roff finds neither requests nor escapes. */
static void print_roff(const char *text)
{
	for (const char *c = text; *c; c++) {
		if ((*c == '.' || *c == '\'') && (c == text || c[-1] == '\n'))
			fputs("\\&", stdout);
		if (*c == '\\')
			fputs("\\e", stdout);
		else if (*c == '-')
			fputs("\\-", stdout);
		else
			putchar(*c);
	}
}

static void roff_paragraphs(const char *text)
{
	bool verbatim = false;

	while (*text) {
		size_t length = strcspn(text, "\n");
		char line[2048];

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		if (verbatim != (*line == ' '))
			puts(verbatim ? ".EE\n.PP" : ".PP\n.EX");
		else if (!*line)
			puts(".PP");
		verbatim = *line == ' ';
		if (*line) {
			print_roff(line);
			putchar('\n');
		}
		text += length;
		text += *text == '\n';
	}
	if (verbatim)
		puts(".EE");
}

static void roff_option(void *arg, const struct option_entry *entry, size_t base)
{
	(void)arg, (void)base;
	if (entry->kind == OPTION_GROUP) {
		printf(".SS ");
		print_roff(entry->help);
		putchar('\n');
		return;
	}
	puts(".TP");
	if (entry->letter)
		printf("\\fB\\-%c\\fR, ", entry->letter);
	printf("\\fB\\-\\-");
	print_roff(entry->name);
	printf("\\fR");
	if (entry->argument) {
		printf(" \\fI");
		print_roff(entry->argument);
		printf("\\fR");
	}
	putchar('\n');
	print_roff(entry->help);
	if (entry->standard) {
		printf(" (default: ");
		print_roff(entry->standard);
		putchar(')');
	}
	putchar('\n');
}

static void roff_statuses(void)
{
	puts(".SH EXIT STATUS");
	for (size_t i = 0; i < STATUS_COUNT; i++) {
		printf(".TP\n.B %d\n", statuses[i].status);
		print_roff(statuses[i].meaning);
		putchar('\n');
	}
}

static void roff_examples(const struct example *example)
{
	puts(".SH EXAMPLES");
	for (; example && example->line; example++) {
		printf(".TP\n.B ");
		print_roff(example->line);
		putchar('\n');
		print_roff(example->what);
		putchar('\n');
	}
}

/* Settings of the library, which are the same for every program. */
static void roff_settings(void)
{
	size_t count;
	const struct snt_setting *setting = snt_setting_list(&count);

	puts(".SH ENVIRONMENT");
	for (size_t i = 0; i < count; i++) {
		printf(".TP\n.B %s\n", setting[i].name);
		print_roff(setting[i].help);
		if (*setting[i].default_value) {
			printf(" (default: ");
			print_roff(setting[i].default_value);
			putchar(')');
		}
		putchar('\n');
	}
}

void command_manual(const struct command *command)
{
	printf(".TH SENNIT\\-%s 1 \"\" \"sennit %s\" \"sennit\"\n.SH NAME\nsennit\\-%s \\- ",
	       command->name, TOOL_VERSION, command->name);
	print_roff(command->summary);
	printf("\n.SH SYNOPSIS\n.B sennit %s\n[\\fIOPTION\\fR]... ", command->name);
	print_roff(command->arguments);
	puts("\n.SH DESCRIPTION");
	roff_paragraphs(command->description);
	puts(".SH OPTIONS");
	options_each(command->options, roff_option, NULL);
	if (command->options)
		puts(".SS Common options");
	options_each(common_options, roff_option, NULL);
	roff_examples(command->examples);
	roff_statuses();
	puts(".SH SEE ALSO\n.BR sennit (1)");
}

void tool_manual(void)
{
	printf(".TH SENNIT 1 \"\" \"sennit %s\" \"sennit\"\n.SH NAME\nsennit \\- "
	       "see, try, measure and use RDMA between hosts\n.SH SYNOPSIS\n"
	       ".B sennit\n\\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
	       ".SH DESCRIPTION\n",
	       TOOL_VERSION);
	roff_paragraphs(tool_about);
	puts(".SH COMMANDS");
	for (size_t i = 0; commands[i]; i++) {
		printf(".TP\n.BR sennit\\-%s (1)\n", commands[i]->name);
		print_roff(commands[i]->summary);
		putchar('\n');
	}
	roff_examples(tool_examples);
	roff_settings();
	roff_statuses();
	puts(".SH SEE ALSO\n.BR sennit (3)");
}

/*
 * The subcommand
 */

struct help_opts {
	bool man, bash, zsh;
};

static void json_option(void *arg, const struct option_entry *entry, size_t base)
{
	json_t *option;
	char letter[2] = { entry->letter };

	(void)base;
	if (entry->kind == OPTION_GROUP)
		return;
	option = json_pack("{s:s, s:s}", "name", entry->name, "help", entry->help);
	if (entry->letter)
		json_object_set_new(option, "letter", json_string(letter));
	if (entry->argument)
		json_object_set_new(option, "argument", json_string(entry->argument));
	if (entry->standard)
		json_object_set_new(option, "default", json_string(entry->standard));
	json_array_append_new(arg, option);
}

static void command_json(const struct command *command)
{
	json_t *object = output_object(), *options = json_array();

	options_each(command->options, json_option, options);
	options_each(common_options, json_option, options);
	json_object_update_new(object,
			       json_pack("{s:s, s:s, s:s, s:s, s:o}", "name",
					 command->name, "summary", command->summary,
					 "arguments", command->arguments, "description",
					 command->description, "options", options));
	output_json(object);
}

static int help_run(const void *opts_in, int count, char **argument)
{
	const struct help_opts *opts = opts_in;
	const struct command *command = count ? command_find(argument[0]) : NULL;

	if (count && !command)
		return output_usage("unknown command \"%s\"", argument[0]);
	if (opts->man + opts->bash + opts->zsh + output.json > 1)
		return output_usage(
			"--man, --bash, --zsh and --json exclude each other");
	if ((opts->bash || opts->zsh) && command)
		return output_usage(
			"a completion script is for all commands; leave out the command's "
			"name");
	if (output.json) {
		for (size_t i = 0; commands[i]; i++)
			if (!command || commands[i] == command)
				command_json(commands[i]);
	} else if (opts->bash) {
		completion_bash();
	} else if (opts->zsh) {
		completion_zsh();
	} else if (command) {
		(opts->man ? command_manual : command_help)(command);
	} else {
		(opts->man ? tool_manual : tool_help)();
	}
	return STATUS_OK;
}

const struct command help_command = {
	.name = "help",
	.summary = "show the list of commands, or the help of one",
	.arguments = "[COMMAND]",
	.description = "Shows the list of commands, or the help of one command.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .name = "man",
			  .offset = offsetof(struct help_opts, man),
			  .help = "print the source of a manual page" },
			{ .kind = OPTION_FLAG,
			  .name = "bash",
			  .offset = offsetof(struct help_opts, bash),
			  .help = "print the completion script for bash; it is installed where "
				  "bash-completion finds it" },
			{ .kind = OPTION_FLAG,
			  .name = "zsh",
			  .offset = offsetof(struct help_opts, zsh),
			  .help = "print the completion script for zsh" },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit help ping", "the same as sennit ping --help" },
			{ "sennit help --man ping | man -l -", "as a manual page" },
			{ "source <(sennit help --bash)",
			  "in a bash without bash-completion" },
			{ 0 },
		},
	.argument_max = 1,
	.opts_size = sizeof(struct help_opts),
	.run = help_run,
};
