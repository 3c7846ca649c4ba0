/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COMPLETION_H
#define SENNIT_TOOL_COMPLETION_H

/* Prints a script by which a shell completes command lines of the tool. */
void completion_bash(void);
void completion_zsh(void);

#endif
