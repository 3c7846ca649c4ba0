/* SPDX-License-Identifier: MIT */
#include "lib/fault.h"

#include <stddef.h>

static unsigned calls_left;
static const char *hit;

void fault_arm(unsigned nth)
{
	calls_left = nth;
	hit = NULL;
}

int fault_was_hit(void)
{
	return hit != NULL;
}

const char *fault_name(void)
{
	return hit;
}

int fault_now(const char *call)
{
	if (!calls_left || --calls_left)
		return 0;
	hit = call;
	return 1;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
	return fault_now("calloc") ? NULL : __real_calloc(count, size);
}

void *fault_exempt_alloc(unsigned long size)
{
	return __real_calloc(1, size);
}
