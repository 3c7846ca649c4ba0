/* SPDX-License-Identifier: MIT */
#include "lib/count_calls.h"

#include <stddef.h>

bool counting;
unsigned allocations;

COUNT_CALLS(allocations, void *, malloc, (size_t size), (size))
COUNT_CALLS(allocations, void *, calloc, (size_t count, size_t size), (count, size))
COUNT_CALLS(allocations, void *, realloc, (void *old, size_t size), (old, size))
COUNT_CALLS(allocations, int, posix_memalign, (void **out, size_t align, size_t size),
	    (out, align, size))

void __real_free(void *old);
void __wrap_free(void *old);
void __wrap_free(void *old)
{
	allocations += counting;
	__real_free(old);
}
