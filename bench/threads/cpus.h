/* SPDX-License-Identifier: MIT */
#ifndef BENCH_THREADS_CPUS_H
#define BENCH_THREADS_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* The CPUs that the process may use. Finds them; before anything changes the affinity. */
void cpus_find(void);

unsigned cpus_count(void);
unsigned cpus_cores(void);

/* The calling thread runs on one CPU: thread number 0, 1, ... Different cores come first. */
void cpus_pin(unsigned number);
/* It runs on any of them. */
void cpus_unpin(void);
/* It, and what it starts, leaves the CPUs of so many pinned threads alone, if any are left. */
void cpus_leave(unsigned threads);

#endif
