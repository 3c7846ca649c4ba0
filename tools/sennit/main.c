/* SPDX-License-Identifier: MIT */
/* sennit: the library's tool. Finds the subcommand, reads its options, runs it. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int unknown(const char *typed)
{
	const char *nearest = options_nearest(typed, command_name, NULL);

	if (nearest)
		return output_usage("there is no \"%s\"; did you mean \"sennit %s\"?",
				    typed, nearest);
	return output_usage("there is no \"%s\"", typed);
}

static int run(const struct command *command, int argc, char **argv)
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

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	const struct command *command;

	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		output_usage("say what to do");
		return STATUS_USAGE;
	}
	if (!strcmp(word, "--help") || !strcmp(word, "-h"))
		word = "help";
	if (!strcmp(word, "--version")) {
		printf("sennit %s\n", TOOL_VERSION);
		return output_end(STATUS_OK);
	}
	command = command_find(word);
	if (!command)
		return unknown(word);
	return output_end(run(command, argc - 1, argv + 1));
}
