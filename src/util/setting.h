/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_SETTING_H
#define SNT_UTIL_SETTING_H

#include <sennit/setting.h>

/* Indices into the table of setting.c; keep both in one order. */
enum snt__setting_id {
	SNT__SETTING_DEVICES,
	SNT__SETTING_GID,
	SNT__SETTING_LOG,
	SNT__SETTING_NCCL_ADDRESS, /* the plugin reads these two itself */
	SNT__SETTING_NCCL_FUSE,
	SNT__SETTING_SOFT,
	SNT__SETTING_SOFT_ADDRESSES,
	SNT__SETTING_SOFT_SHM,
	SNT__SETTING_SPIN,
	SNT__SETTING_COUNT,
};

/* The value in force, and its origin as messages name it. */
struct snt__value {
	const char *text;
	const char *origin; /* the variable's name, or that of the option */
};

/* The option if not NULL, else the environment, else the default. */
struct snt__value snt__setting_get(enum snt__setting_id id, const char *option,
				   const char *option_name);

/* NULL if the environment does not set it. */
const char *snt__setting_env(enum snt__setting_id id);

/* The position in a list of words, ended by NULL; -EINVAL, with a sentence that
 * lists them, if the value is none of these. */
int snt__setting_word(struct snt__value value, const char *const *words);

/* Calls back for each SENNIT_* variable that is not in the table. */
void snt__setting_unknown(void (*unknown)(void *arg, const char *name), void *arg);

#endif
