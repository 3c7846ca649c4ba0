/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_CLIENT_H
#define TOOL_PERF_CLIENT_H

#include <sennit/ctx.h>

#include "perf_move.h"
#include "perf_result.h"

/* What the user wants of every case. */
struct perf_plan {
	uint64_t messages;    /* 0: by time */
	uint64_t duration_ns; /* of a run */
	uint64_t warmup_ns;
	unsigned runs;
};

struct perf_client {
	struct perf_end end;
	struct perf_plan plan;
	struct perf_hello here, there;
	bool under_way;
	/* "run 2 of 3", and how far it is. NULL: progress is not shown. */
	void (*progress)(const struct perf_case *c, unsigned run, unsigned runs,
			 uint64_t messages, uint64_t elapsed_ns);
};

/* All return 0 or a negative errno with a text (perf_error.h). */
int perf_client_greet(struct perf_client *client);
/* After a failure another case can be measured, unless the server is left in the middle of
 * this one (under_way). */
int perf_client_measure(struct perf_client *client, const struct perf_case *c,
			struct perf_result *result);

#endif
