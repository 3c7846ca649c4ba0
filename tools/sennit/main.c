/* SPDX-License-Identifier: MIT */
/* sennit: the library's tool. Finds the subcommand, reads its options, runs it. */
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"

const struct command *const commands[] = {
	&info_command, &ping_command, &perf_command,	 &serve_command, &cp_command,
	&run_command,  &sim_command,  &strerror_command, &help_command,	 NULL,
};

const struct command *command_find(const char *name)
{
	for (size_t i = 0; commands[i]; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static const char *command_name(const void *arg, size_t i)
{
	(void)arg;
	return commands[i] ? commands[i]->name : NULL;
}

static int refuse_command(const char *typed)
{
	const char *nearest = options_nearest(typed, command_name, NULL);

	if (nearest)
		return output_usage(
			"unknown command \"%s\"; did you mean \"sennit %s\"?", typed,
			nearest);
	return output_usage("unknown command \"%s\"", typed);
}

static int parse_and_run(const struct command *command, int argc, char **argv)
{
	void *opts = calloc(1, command->opts_size + 1);
	int first, status;

	output.command = command->name;
	if (!opts)
		return output_failed(NULL, "out of memory");
	first = options_parse(command, argc, argv, opts);
	status =
		first < 0 ? -1 - first : command->run(opts, argc - first, argv + first);
	free(opts);
	return status;
}

/* If stdin, stdout or stderr is closed, the next file opened would get its number, and
 * results would be written into it. The placeholders can neither be read nor written,
 * and are not inherited by programs. */
static void hold_standard_files(void)
{
	int fd;

	do
		fd = open("/", O_PATH | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static int print_version(void)
{
	json_t *object;

	output_text("sennit %s\n", TOOL_VERSION);
	if (output.json) {
		object = output_object();
		json_object_set_new(object, "version", json_string(TOOL_VERSION));
		output_json(object);
	}
	return STATUS_OK;
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	const struct command *command;

	hold_standard_files();
	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		output_usage("missing command");
		return STATUS_USAGE;
	}
	if (!strcmp(word, "--help") || !strcmp(word, "-h"))
		word = "help";
	command = command_find(word);
	/* After a subcommand, --json may be meant for another program. */
	for (int i = 1; !command && i < argc; i++)
		output.json |= !strcmp(argv[i], "--json");
	if (!strcmp(word, "--version"))
		return output_end(print_version());
	if (!command)
		return output_end(refuse_command(word));
	return output_end(parse_and_run(command, argc - 1, argv + 1));
}
