/* SPDX-License-Identifier: MIT */
#ifndef BENCH_THREADS_CREW_H
#define BENCH_THREADS_CREW_H

#include <stdint.h>

/* Threads that do the same at the same time, each with a load of its own. */

#define CREW_MAX 32

/* Does some of the work, some microseconds of it, and returns how many operations these were. */
typedef unsigned (*work_fn)(void *load);

struct work {
	work_fn run;
	void (*finish)(
		void *load); /* after the clock has stopped; NULL: nothing to do */
};

void crew_start(unsigned threads);

struct crew_result {
	double rate;  /* operations per second of a thread, the mean of all */
	double share; /* of its CPU's time that a thread had, the least of all */
};

/* The first so many threads work for so long, from the moment when all are there; the others
 * sleep. Each thread is on a CPU of its own if there are enough. */
struct crew_result crew_run(unsigned threads, const struct work *work,
			    void *const *load, uint64_t duration_ns);

#endif
