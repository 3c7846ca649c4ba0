/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_MOVE_H
#define TOOL_PERF_MOVE_H

#include <stdint.h>

#include "histogram.h"
#include "perf_end.h"

/*
 * One run of a case. The client moves messages until its goal is reached: as many as
 * the depth at a time (perf_flow.c), or one after the other (perf_echo.c). The server, if
 * it takes part at all, does so until it is told how many there were. In both directions
 * it sends by the same rules as the client, and each end goes on taking messages until the
 * other one has sent its last.
 */

#define PERF_SAMPLES	  64
#define PERF_SAMPLE_LANES 16

/* How far lanes were at times during a run. When all samples are taken, every second is
 * dropped and the interval doubled, so that any run has between 32 and 64. */
struct perf_timeline {
	uint64_t begin_ns, next_ns, interval_ns;
	unsigned count, lanes;
	struct perf_sample {
		uint64_t at_ns; /* since the run began */
		uint64_t bytes[PERF_SAMPLE_LANES];
	} sample[PERF_SAMPLES];
};

struct perf_goal {
	uint64_t messages; /* 0: as many as there is time for */
	uint64_t duration_ns;
	struct histogram *latency;	/* of each message; NULL: not of interest */
	struct perf_timeline *timeline; /* NULL: the same */
	/* Now and then. NULL: nobody looks. */
	void (*progress)(void *arg, uint64_t messages, uint64_t elapsed_ns);
	void *arg;
};

/* What a run has come to, as the client sees it. */
struct perf_clock {
	uint64_t begin_ns, end_ns, next_progress_ns;
	uint64_t first; /* message of this run */
};

void perf_clock_start(struct perf_clock *clock, struct perf_end *end,
		      const struct perf_goal *goal);
/* May another message be begun? */
bool perf_clock_open(const struct perf_clock *clock, const struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns);
/* To be called often: samples and progress. */
void perf_clock_tick(struct perf_clock *clock, struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns);

/* WR number @message of the client, or of the server's answer. */
struct snt_send_wr perf_wr(struct perf_end *end, struct snt_sge *sge, uint64_t message);
/* Writes what it is to carry, if bytes are verified. */
void perf_fill(struct perf_end *end, uint64_t message);
/* It is complete: what it brought back is as it should be? */
void perf_landed(struct perf_end *end, uint64_t message);

/* In the immediate of a credit; the rest is a number of messages, which wraps. */
#define PERF_CREDIT (UINT32_C(1) << 31)

/* Where the receiver takes part (perf_flow.c): tells it of plain writes that it has not been
 * told of, if there are enough of them or @all; and takes its word for how many messages
 * it has taken. */
int perf_announce(struct perf_end *end, bool all);
int perf_credit(struct perf_end *end, uint32_t taken);

/* The runs of an end that sends. */
int perf_flow_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock);
int perf_echo_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock);

/* Of one that takes: whatever there is now. Returns how much that was. */
int perf_take_some(struct perf_end *end);
/* The same of one completion. */
int perf_flow_take(struct perf_end *end, const struct snt_wc *wc);
int perf_echo_take(struct perf_end *end, const struct snt_wc *wc);

#endif
