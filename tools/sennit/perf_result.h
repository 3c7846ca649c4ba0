/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_RESULT_H
#define TOOL_PERF_RESULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sennit/device.h>

#include "histogram.h"
#include "perf_case.h"
#include "perf_move.h"
#include "perf_wire.h"
#include "spread.h"

/* The result of a case, for the code that shows it. */

#define PERF_RUNS_MAX	   100
#define PERF_LANE_ROWS_MAX 160

struct perf_lane_row {
	char device[32];
	enum snt_path path; /* of what this end sends */
	uint32_t remote_device;
	bool data; /* else of notifications or messages */
	bool alive;
	uint64_t fragments, bytes, doorbells, completions, errors;
	/* Since it was connected; of soft devices only. */
	uint64_t resends, timeouts, round_trip_ns;
	uint32_t window;
};

struct perf_run {
	uint64_t messages;
	uint64_t elapsed_ns;
	uint64_t back_messages, back_elapsed_ns; /* the server's, in both directions */
	struct perf_use client, server;
	uint64_t p50_ns; /* of latency */
};

struct perf_result {
	struct perf_case c;
	char failure[512]; /* "" if it was measured */
	unsigned run_count;
	struct perf_run run[PERF_RUNS_MAX];
	struct histogram *latency;     /* of all runs; NULL where it is not measured */
	struct perf_timeline timeline; /* of the last run */
	unsigned lane_count;
	uint64_t fragment_size; /* agreed on */
	uint32_t mtu;
	struct perf_lane_row lane[PERF_LANE_ROWS_MAX];
};

void perf_result_free(struct perf_result *result);

/* Over its runs. */
struct spread perf_result_rate(const struct perf_result *result);     /* bytes/s */
struct spread perf_result_messages(const struct perf_result *result); /* messages/s */
struct spread perf_result_p50(const struct perf_result *result);      /* ns */
/* Of all runs together. */
unsigned perf_result_paths(
	const struct perf_result *result); /* of both ends, as path.h */
/* What an end has lost. */
struct loss perf_result_loss(const struct perf_result *result, bool server);
double perf_result_cpu(const struct perf_result *result, bool server); /* processors */
double perf_result_wakeups(const struct perf_result *result,
			   bool server);			/* a message */
uint64_t perf_result_checked(const struct perf_result *result); /* bytes */
uint64_t perf_result_wrong(const struct perf_result *result);

#endif
