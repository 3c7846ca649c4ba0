/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_ALLOC_H
#define SNT_DEV_SOFT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory that begins a cache line, or NULL. A size of 0 returns memory, too. */
void *snt__soft_alloc(size_t count, size_t size);
void snt__soft_free(void *memory);

/* The slots of a ring of that many entries: a power of two, at least 1. */
static inline uint32_t snt__soft_ring_size(uint32_t entries)
{
	return entries < 2 ? 1 : UINT32_C(1) << (32 - __builtin_clz(entries - 1));
}

#endif
