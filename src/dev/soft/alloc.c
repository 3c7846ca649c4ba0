/* SPDX-License-Identifier: MIT */
#include "dev/soft/alloc.h"

#include <stdlib.h>

#define LINE 64

/* The line before the memory holds what calloc() returned. */
void *snt__soft_alloc(size_t count, size_t size)
{
	char *base, *memory;

	if (count && size > (SIZE_MAX - 2 * LINE) / count)
		return NULL;
	base = calloc(1, count * size + 2 * LINE);
	if (!base)
		return NULL;
	memory = base + LINE + (-(uintptr_t)base & (LINE - 1));
	((void **)(void *)memory)[-1] = base;
	return memory;
}

void snt__soft_free(void *memory)
{
	if (memory)
		free(((void **)memory)[-1]);
}
