/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_ASSERT_H
#define SNT_UTIL_ASSERT_H

/*
 * Invariants of the library's own code, which neither a program nor a peer can break.
 * They are checked in builds with -Dassertions=full, as the sanitizer steps of
 * scripts/check.py are; in all others they are compiled, but not evaluated.
 */
#ifdef SNT_ASSERTIONS_FULL
#include <assert.h>
#define snt__assert(invariant) assert(invariant)
#else
#define snt__assert(invariant) ((void)(0 && (invariant)))
#endif

#endif
