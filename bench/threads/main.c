/* SPDX-License-Identifier: MIT */
/*
 * What threads cost each other: 1, 2, 4 of them (and as many as --threads says), each with a QP
 * of its own, all on one device or each on its own. A value is what one thread gets done in a
 * second. Its ratio is that to what a thread gets done alone, in the first row; in the others it
 * is divided by that of the first row, whose threads share nothing but the host: cores that slow
 * down when others work are not the library's. The numbers of threads take turns within a pass,
 * and a ratio is the median of those of the passes.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bench.h"
#include "threads/cpus.h"
#include "threads/kinds.h"

#define PASSES	    101
#define PASSES_MAX  9999
#define COUNTS_MAX  4
#define LINE_PAIR   128
#define NAME_LENGTH 40
#define NOTE_LENGTH 96

/* Threads that had less than this of the CPUs that they ran on say nothing. */
#define SHARE_LIMIT 0.97

static struct kind kind[KINDS_MAX];
static unsigned kinds;
static unsigned count[COUNTS_MAX] = { 1, 2, 4 }; /* of threads */
static unsigned counts = 3;
static double rate[KINDS_MAX][COUNTS_MAX][PASSES_MAX];
static double share[KINDS_MAX][COUNTS_MAX][PASSES_MAX];
static double median_ratio[KINDS_MAX][COUNTS_MAX];
static double median_share[KINDS_MAX][COUNTS_MAX];

_Noreturn void die(const char *what)
{
	fprintf(stderr, "threads: %s: %s\n", what, snt_err_text());
	exit(1);
}

void *take_memory(size_t size)
{
	void *memory;

	size = (size + LINE_PAIR - 1) / LINE_PAIR * LINE_PAIR;
	memory = aligned_alloc(LINE_PAIR, size);
	if (!memory)
		die("no memory");
	return memset(memory, 0, size);
}

/* What is left of the arguments is for bench_begin(). */
static void take_threads(int *argc, char **argv)
{
	int kept = 1;

	for (int i = 1; i < *argc; i++) {
		if (strcmp(argv[i], "--threads") || i + 1 == *argc) {
			argv[kept++] = argv[i];
			continue;
		}
		count[3] = strtoul(argv[++i], NULL, 10);
		if (!count[3] || count[3] > CREW_MAX) {
			fprintf(stderr, "threads: --threads must be 1 to %d\n",
				CREW_MAX);
			exit(2);
		}
		counts = 4;
	}
	*argc = kept;
	argv[kept] = NULL;
	if (counts == 4 && (count[3] < 3 || count[3] == 4))
		counts = 3;
}

static unsigned most_threads(void)
{
	return counts == 4 && count[3] > count[2] ? count[3] : count[2];
}

static void add_wanted_kinds(const struct bench *bench, const char *const *prefixes,
			     unsigned (*add_kinds)(struct kind *, unsigned))
{
	bool wanted = false;

	for (; *prefixes; prefixes++)
		wanted |= bench_wants(bench, *prefixes);
	if (wanted)
		kinds += add_kinds(&kind[kinds], most_threads());
}

/* The first pass warms up, and the second one overwrites it. */
static void measure_kinds(unsigned passes)
{
	for (unsigned pass = 0; pass <= passes; pass++)
		for (unsigned i = 0; i < kinds; i++)
			for (unsigned j = 0; j < counts; j++) {
				unsigned at = pass ? pass - 1 : 0;
				struct crew_result result =
					crew_run(count[j], &kind[i].work, kind[i].load,
						 kind[i].duration_ns);

				rate[i][j][at] = result.rate;
				share[i][j][at] = result.share;
			}
}

static double scale_of(unsigned row, unsigned column, unsigned pass)
{
	return rate[row][column][pass] / rate[row][0][pass];
}

static void find_ratios(unsigned passes)
{
	static double ratio[PASSES_MAX];

	for (unsigned i = 0; i < kinds; i++)
		for (unsigned j = 0; j < counts; j++) {
			for (unsigned pass = 0; pass < passes; pass++)
				ratio[pass] = scale_of(i, j, pass) /
					      (i ? scale_of(0, j, pass) : 1);
			median_ratio[i][j] = bench_median(ratio, passes);
			median_share[i][j] = bench_median(share[i][j], passes);
		}
}

/* Of those that are compared. */
static double least_share(unsigned row, unsigned column)
{
	double one = median_share[row][0], all = median_share[row][column];

	return one < all ? one : all;
}

/* Why a ratio says nothing about the library; false: it does. */
static bool has_no_limit(unsigned row, unsigned column, char *note)
{
	unsigned busy = kind[row].busy * count[column];

	if (busy > cpus_count())
		snprintf(note, NOTE_LENGTH, "%u busy threads on %u CPUs", busy,
			 cpus_count());
	else if (count[column] > cpus_cores())
		snprintf(note, NOTE_LENGTH, "%u threads on %u cores", count[column],
			 cpus_cores());
	else if (kind[row].at_least > 0 && least_share(row, column) < SHARE_LIMIT)
		snprintf(note, NOTE_LENGTH,
			 "a busy host left %.2f of a CPU to a thread",
			 least_share(row, column));
	else
		return false;
	return true;
}

static void report_kinds(struct bench *bench, unsigned passes)
{
	static char name[KINDS_MAX][COUNTS_MAX][NAME_LENGTH];
	static char note[KINDS_MAX][COUNTS_MAX][NOTE_LENGTH];

	for (unsigned i = 0; i < kinds; i++)
		for (unsigned j = 0; j < counts; j++) {
			bool unlimited = has_no_limit(i, j, note[i][j]);

			snprintf(name[i][j], NAME_LENGTH, "%s-%ut", kind[i].name,
				 count[j]);
			bench_scaled(bench, name[i][j],
				     bench_median(rate[i][j], passes) / 1e3,
				     "k/s per thread",
				     j ? &(struct bench_scale){
						 .baseline = name[i][0],
						 .ratio = median_ratio[i][j],
						 .at_least = kind[i].at_least,
						 .note = unlimited ? note[i][j] : NULL,
					 }
				       : NULL);
		}
}

int main(int argc, char **argv)
{
	static const char *const of_null[] = { "raw-", "null-", "ops-", NULL };
	static const char *const of_soft[] = { "udp-", "shm-", NULL };
	struct bench *bench;
	unsigned passes;

	take_threads(&argc, argv);
	cpus_find();
	bench = bench_begin("threads", argc, argv);
	passes = bench_passes(bench, PASSES);
	start_peers(most_threads());
	/* The devices' own threads inherit this. */
	cpus_leave(most_threads());
	kinds = add_cpu(kind, most_threads());
	add_wanted_kinds(bench, of_null, add_null);
	add_wanted_kinds(bench, of_soft, add_soft);
	crew_start(most_threads());
	measure_kinds(passes);
	find_ratios(passes);
	report_kinds(bench, passes);
	return bench_end(bench);
}
