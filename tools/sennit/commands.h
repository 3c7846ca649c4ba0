/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COMMANDS_H
#define SENNIT_TOOL_COMMANDS_H

/* Each is defined in the file of its name. main.c has them in the order of the help. */
struct command;

extern const struct command cp_command;
extern const struct command help_command;
extern const struct command info_command;
extern const struct command perf_command;
extern const struct command ping_command;
extern const struct command run_command;
extern const struct command serve_command;
extern const struct command sim_command;
extern const struct command strerror_command;

#endif
