/* SPDX-License-Identifier: MIT */
#ifndef COUNT_CALLS_H
#define COUNT_CALLS_H

#include <stdbool.h>

/*
 * Counts calls by everything that is linked statically, the library and the devices.
 * Functions are replaced by the linker, with --wrap=NAME for each; for those of the
 * allocator the dependency count_calls has that.
 */

extern bool counting;
extern unsigned allocations; /* by any of the allocator's functions, free() included */

/* Defines the replacement of a function. */
#define COUNT_CALLS(counter, type, name, params, args) \
	type __real_##name params;                     \
	type __wrap_##name params;                     \
	type __wrap_##name params                      \
	{                                              \
		counter += counting;                   \
		return __real_##name args;             \
	}

#endif
