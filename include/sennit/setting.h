/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_SETTING_H
#define SENNIT_SETTING_H

#include <stddef.h>
#include <sennit/api.h>

/*
 * A setting is one SENNIT_* environment variable. Settings are read once, by
 * snt_ctx_create(); an option given in code wins over the environment, which wins
 * over the default. An empty variable counts as unset. Programs with raised
 * privileges (set-user-ID and the like) ignore the environment. An unknown SENNIT_*
 * name causes a warning in the log, since it is most often a typing error.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_setting {
	const char *name;	   /* "SENNIT_DEVICES" */
	const char *default_value; /* as typed by a user; "" if none */
	const char *help;	   /* one human-readable line */
};

/**
 * snt_setting_list - list all settings known to this library
 * @count_out: receives how many there are; may be NULL
 *
 * Ownership: static data of the library.
 * Thread: any.
 * Returns: the first of *count_out entries.
 */
SNT_API const struct snt_setting *snt_setting_list(size_t *count_out);

#ifdef __cplusplus
}
#endif

#endif
