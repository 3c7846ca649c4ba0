/* SPDX-License-Identifier: MIT */
#include "util/lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *snt__lines_alloc(size_t count, size_t size)
{
	size_t length;
	void *memory;

	if (__builtin_mul_overflow(count, size, &length) ||
	    __builtin_add_overflow(length, SNT__LINES - 1, &length) ||
	    length > PTRDIFF_MAX)
		return NULL;
	length &= ~(size_t)(SNT__LINES - 1);
	if (posix_memalign(&memory, SNT__LINES, length))
		return NULL;
	return memset(memory, 0, length);
}
