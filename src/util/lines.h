/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_LINES_H
#define SNT_UTIL_LINES_H

#include <stddef.h>

/* A cache line, or the pair of lines that some processors fetch together. */
#define SNT__LINES 128

/*
 * Zeroed memory on cache lines of its own, to be released with free(). It is for data
 * that one thread writes on the data path, and for data that many threads read there:
 * either would slow down if another thread wrote to the same line. NULL: out of memory.
 */
void *snt__lines_alloc(size_t count, size_t size);

#endif
