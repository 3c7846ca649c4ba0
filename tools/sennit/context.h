/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_CONTEXT_H
#define SENNIT_TOOL_CONTEXT_H

#include <stddef.h>
#include <sennit/loop.h>

#include "options.h"

/* Options that choose devices, for all subcommands that open some. */
struct context_opts {
	const char *devices;
	int soft; /* 0: as the environment says, else enum snt_soft */
	const char *soft_addresses;
	const char *gid;
};

/* For the table of a subcommand, as an OPTION_TABLE. */
extern const struct option_entry context_options[];

/* Opens a context whose log goes to stderr, warnings and worse unless SENNIT_LOG says
 * otherwise. Returns an enum status, having reported any error. */
int context_open(const struct context_opts *opts, struct snt_ctx **ctx_out);

/* The same with a loop in it. context_close_loop() closes both. */
int context_open_loop(const struct context_opts *opts, struct snt_loop **loop_out);
void context_close_loop(struct snt_loop *loop);

/* As context_open_loop(), but prints nothing: the reason is in @why. Returns 0 or a negative
 * errno. */
#define CONTEXT_TEXT 1024
int context_try(const struct context_opts *opts, struct snt_loop **loop_out,
		char why[CONTEXT_TEXT]);

/* From now on only errors are reported: another process, with the same settings,
 * reports the rest. */
void context_hush(void);

/* What to do about a call that returned this error, as a sentence; NULL: not known. */
const char *context_remedy(int error);

#endif
