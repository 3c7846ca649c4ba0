/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_OPTS_H
#define SNT_UTIL_OPTS_H

#include <stddef.h>

/*
 * Public structures begin with their size (api.h has the rules). Only these two
 * functions look at that size.
 *
 * snt__opts_import copies the caller's structure into ours, with zeros where the
 * caller's is shorter. `user` may be NULL: all defaults. `what` names it in errors.
 * snt__info_export copies ours to the caller's, as far as the caller's reaches.
 */
int snt__opts_import(void *ours, size_t size, const void *user, const char *what);
int snt__info_export(void *user, const void *ours, size_t size, const char *what);

#endif
