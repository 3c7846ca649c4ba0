/* SPDX-License-Identifier: MIT */
#ifndef TOOL_REPORT_VARY_H
#define TOOL_REPORT_VARY_H

#include <stddef.h>

#include "report.h"

/*
 * The parameter that varies in a sweep, on the x axis of a plot: the one with the most
 * values. Results that differ in nothing else are a series.
 */
enum vary {
	VARY_SIZE,
	VARY_LANES,
	VARY_DEPTH,
	VARY_FRAGMENT,
	VARY_OP,
	VARY_SCHEME,
	VARY_COUNT,
};

/* Most values in a plot. */
#define VARY_VALUES 128

struct vary_values {
	unsigned count;
	uint64_t value[VARY_VALUES]; /* in the order of the results */
};

/* Is it to be shown in plots of this kind? */
bool vary_is_shown(const struct perf_result *result, unsigned kind);

/* Of the results of one kind. Where there is but one value of everything, lanes if
 * @lanes_first, else size. */
enum vary vary_choose(const struct report *report, unsigned kind, bool lanes_first);
struct vary_values vary_values_of(const struct report *report, unsigned kind,
				  enum vary vary);

uint64_t vary_value(const struct perf_case *c, enum vary vary);
bool vary_same_series(const struct perf_case *a, const struct perf_case *b,
		      enum vary vary);
bool vary_is_word(enum vary vary); /* else a number */

/* "message size, bytes", "Bandwidth against message size", "4k" */
const char *vary_axis(enum vary vary);
const char *vary_noun(enum vary vary);
void vary_text(char *buffer, size_t size, enum vary vary, uint64_t value);

/* What a series has in common: "write, 1m, spray, depth 128". */
#define VARY_LABEL 160
const char *vary_label(char *buffer, const struct perf_case *c, enum vary vary);

#endif
