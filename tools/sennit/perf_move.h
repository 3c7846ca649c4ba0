/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_MOVE_H
#define TOOL_PERF_MOVE_H

#include <stdint.h>

#include "histogram.h"
#include "perf_end.h"

/*
 * One run of a case. The client moves messages until its goal is reached: as many as
 * the depth at a time (perf_flow.c), or one after the other (perf_echo.c). The server,
 * if it takes part at all, does so until it is told how many there were. If both ends
 * send, the server follows the same rules as the client, and each end goes on receiving
 * until the other one has sent its last message.
 */

#define PERF_SAMPLES	  64
#define PERF_SAMPLE_LANES 16

/* Samples of each lane's progress during a run. When all samples are taken, every
 * second is dropped and the interval doubled, so that a run has between 32 and 64. */
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
	struct histogram *latency;	/* of each message; NULL: not measured */
	struct perf_timeline *timeline; /* NULL: not recorded */
	/* Called now and then. NULL: progress is not shown. */
	void (*progress)(void *arg, uint64_t messages, uint64_t elapsed_ns);
	void *arg;
};

/* The progress of a run, as the client sees it. */
struct perf_clock {
	uint64_t begin_ns, end_ns, next_progress_ns, next_sign_ns;
	uint64_t first; /* message of this run */
};

void perf_clock_start(struct perf_clock *clock, struct perf_end *end,
		      const struct perf_goal *goal);
/* May another message be begun? */
bool perf_clock_open(const struct perf_clock *clock, const struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns);
/* To be called often: samples, progress, and signs of life for a server that only looks
 * on. */
void perf_clock_tick(struct perf_clock *clock, struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns);

/* WR number @message of the client, or of the server's answer. */
struct snt_send_wr perf_wr(struct perf_end *end, struct snt_sge *sge, uint64_t message);
/* Writes the message's contents, if bytes are verified. */
void perf_fill(struct perf_end *end, uint64_t message);
/* The message is complete: verifies the bytes that it brought back. */
void perf_landed(struct perf_end *end, uint64_t message);

/* In the immediate of a credit; the rest is a number of messages, which wraps. */
#define PERF_CREDIT (UINT32_C(1) << 31)

/* If the receiver takes part (perf_flow.c): announces plain writes not yet announced,
 * if there are enough of them or @all; and takes a credit, the number of messages
 * received. */
int perf_announce(struct perf_end *end, bool all);
int perf_credit(struct perf_end *end, uint32_t taken);

/* The runs of an end that sends. */
int perf_flow_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock);
int perf_echo_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock);

/* Takes whatever messages have arrived. Returns how many. */
int perf_take_some(struct perf_end *end);
/* The same of one completion. */
int perf_flow_take(struct perf_end *end, const struct snt_wc *wc);
int perf_echo_take(struct perf_end *end, const struct snt_wc *wc);

#endif
