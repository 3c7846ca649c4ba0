/* SPDX-License-Identifier: MIT */
#ifndef FAULT_H
#define FAULT_H

/*
 * Makes the n-th fallible call fail. Fallible are calloc() in everything that
 * is linked statically with --wrap=calloc, and each call of the fake
 * libibverbs. A test of a constructor runs it with n = 1, 2, ... until a run
 * comes through without having met the fault.
 */

/* From now on the nth call fails; 0 disarms. */
void fault_arm(unsigned nth);

/* Has the armed call been reached? */
int fault_was_hit(void);

/* What was made to fail, for assertions on messages; NULL if nothing yet. */
const char *fault_name(void);

/* Zeroed memory that is never made to fail, for the fakes themselves. */
void *fault_exempt_alloc(unsigned long size);

/* For the calls themselves: non-zero means fail now. */
int fault_now(const char *call);

#endif
