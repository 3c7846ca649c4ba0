/* SPDX-License-Identifier: MIT */
#ifndef BENCH_THREADS_KINDS_H
#define BENCH_THREADS_KINDS_H

#include <sennit/sennit.h>

#include "threads/crew.h"

/* What threads can do: one row of each for every number of threads. */
struct kind {
	const char *name;
	struct work work;
	uint64_t duration_ns;
	unsigned busy;	 /* threads that work for one: itself, and a peer's */
	double at_least; /* of the rate of one thread; 0: whatever it is */
	void *load[CREW_MAX];
};

#define KINDS_MAX 16

/* What each file adds; returns how many. */
unsigned add_cpu(struct kind *kind, unsigned threads);
unsigned add_null(struct kind *kind, unsigned threads);
unsigned add_soft(struct kind *kind, unsigned threads);

/* Before any context is open: starts the processes that are written to, which leave the CPUs of
 * so many threads alone. */
void start_peers(unsigned threads);

/* Memory that shares no cache line with that of another thread. */
void *take_memory(size_t size);

_Noreturn void die(const char *what);

#endif
