/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_FILES_H
#define SNT_PRELOAD_FILES_H

#include <infiniband/verbs.h>

/*
 * The C library's functions that this library stands before. They are looked up when it is
 * loaded: later another thread may be inside dlopen(), so that dlsym() would wait for it, or
 * for ever in the child of a fork. Libraries whose constructors run earlier trigger the lookup
 * themselves.
 */
#define SNT__PRELOAD_NEXT(function, name) \
	((__typeof__(function))snt__preload_next((void **)&(function), name))

void *snt__preload_next(void **function, const char *name);

/* The part of a path after a prefix and the name of a soft device; NULL: another path. */
const char *snt__preload_behind_name(const char *path, const char *prefix,
				     const struct ibv_device **device_out);

#endif
