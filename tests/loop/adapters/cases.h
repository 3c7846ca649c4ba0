/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_CASES_H
#define SENNIT_TESTS_LOOP_CASES_H

#include "loop/adapters/world.h"

/* What a case needs beyond a device. */
enum {
	CASE_THREADS = 1 << 0, /* it has several, and is of use to ThreadSanitizer */
	CASE_LONG = 1 << 1,    /* only if asked for */
	CASE_SEEDS = 1 << 2,   /* is tried with many seeds */
};

/* Comes with a driver, a kind of device and a random number. A case opens the world and
 * closes it, or ends the program. */
struct loop_case {
	const char *name; /* as in docs/use/event-loops.md */
	unsigned kinds;	  /* of devices, enum device_kind */
	unsigned flags;
	void (*run)(struct world *world);
};

#define ON_ALL	 (ON_SCRIPTED | ON_SIM | ON_SOFT | ON_VERBS)
#define ON_CLOCK (ON_SCRIPTED | ON_SOFT | ON_VERBS) /* where time is the real one */

/* Each ends with a case without a name. */
extern const struct loop_case cases_talk[], cases_wake[], cases_burst[], cases_life[],
	cases_stream[], cases_thread[], cases_time[];

/* How many completions a long case has. */
extern unsigned long case_completions;

#endif
