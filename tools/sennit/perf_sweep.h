/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_SWEEP_H
#define TOOL_PERF_SWEEP_H

#include <stdint.h>

#include "perf_case.h"

/*
 * Lists of values, and all cases that are combinations of several lists. A list is
 * values and ranges, separated by commas: 64,4k,1m; 1-8 in powers of two; 64-1m*4 in
 * steps of that factor; 10-50+10 in steps of that size.
 */
#define PERF_LIST_MAX  64
#define PERF_CASES_MAX 4096

struct perf_list {
	unsigned count;
	uint64_t value[PERF_LIST_MAX];
};

/* Returns 0, or -EINVAL. */
int perf_list_parse(const char *text, struct perf_list *list_out);
/* The same for words: "bw,lat", "all"; values are those from 1 to @last, which `name`
 * names. */
int perf_list_words(const char *text, const char *(*name)(unsigned), unsigned last,
		    struct perf_list *list_out);

struct perf_sweep {
	struct perf_list kind, op, scheme, lanes, depth, fragment, size;
	bool sizes_given;	 /* else sizes that suit the kind */
	struct perf_case common; /* what all cases share */
};

/* In the order of the members above, sizes last. Returns how many, or -E2BIG. */
int perf_sweep_cases(const struct perf_sweep *sweep, struct perf_case *cases_out);

#endif
