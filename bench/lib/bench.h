/* SPDX-License-Identifier: MIT */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>

/*
 * What benchmarks share: measuring, and printing a table for people or, with
 * --json, one object per line with at least bench, case, value and unit, and a
 * ratio where something is compared.
 *
 * Machines are noisy. A case runs in many short passes; the median pass is its
 * value, and cases that are compared take turns, pass by pass, so that they see
 * the same noise.
 */

struct bench;

/* Reads the command line: --json, --case PREFIX, --passes N, --instructions (which
 * runs each case once more under callgrind), --limits (the program fails if a limit is
 * missed). Ends the program with a usage message if it makes no sense. */
struct bench *bench_begin(const char *name, int argc, char **argv);

/* Runs `count` operations. */
typedef void (*bench_fn)(void *arg, unsigned count);

/*
 * A case: fn(arg, count) per pass; its value is in ns per operation. `baseline`
 * names an earlier case to be compared with, or is NULL.
 */
void bench_case(struct bench *bench, const char *name, bench_fn fn, void *arg,
		unsigned count, const char *baseline);

/* The same, with something to be done before each pass that is not measured. */
void bench_prepared_case(struct bench *bench, const char *name,
			 void (*prepare)(void *arg), bench_fn fn, void *arg,
			 unsigned count, const char *baseline);

/* Something that was measured by other means. */
void bench_value(struct bench *bench, const char *name, double value, const char *unit,
		 const char *baseline);

/* The same where more is known than the values of two cases. */
struct bench_scale {
	const char *baseline;
	double ratio;	  /* to the baseline, such as a median of ratios */
	double at_least;  /* what the ratio must be; 0: there is no limit */
	const char *note; /* why it is not comparable on this host; NULL: it is */
};

/* `scale` may be NULL. */
void bench_scaled(struct bench *bench, const char *name, double value, const char *unit,
		  const struct bench_scale *scale);

/* The number of --passes, for programs that measure by themselves. */
unsigned bench_passes(struct bench *bench, unsigned unless_given);

/* Puts them in order, too. */
double bench_median(double *values, unsigned count);

/* The calling process, a child of the one that measures, and all that it starts from now
 * on leave the core of that one to it, if there is another. */
void bench_other_core(void);

/* Is there a use for cases that begin like this? Preparing some takes long. */
bool bench_wants(const struct bench *bench, const char *prefix);

/* Measures all cases, prints, and frees. Returns the program's exit status. */
int bench_end(struct bench *bench);

/* Keeps a value alive, so that the compiler cannot leave out its computation. */
static inline void bench_use(const void *value)
{
	__asm__ volatile("" : : "r"(value) : "memory");
}

#endif
