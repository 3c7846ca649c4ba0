/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_OPTS_H
#define SNT_UTIL_OPTS_H

#include <stddef.h>

/*
 * Structures that cross the library's border begin with their size (api.h has
 * the rules). These two are the only places where that size is looked at.
 *
 * snt__opts_import copies the caller's structure into ours, zero where theirs
 * is shorter. `user` may be NULL: all defaults. `what` names it in errors.
 * snt__info_export copies ours to the caller's, as far as theirs reaches.
 */
int snt__opts_import(void *ours, size_t size, const void *user, const char *what);
int snt__info_export(void *user, const void *ours, size_t size, const char *what);

#endif
