/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_MINMAX_H
#define SNT_UTIL_MINMAX_H

#include <stdint.h>

/* The smaller and the larger of two numbers. */

static inline uint64_t snt__min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t snt__max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
