/* SPDX-License-Identifier: MIT */
#ifndef LOOP_KIT_H
#define LOOP_KIT_H

#include <stdbool.h>
#include <sennit/sennit.h>

#include "lib/devices/scripted.h"

/*
 * Two ends on one scripted fabric, with CQs that have events or ops, connected with each
 * other; and words for what tests of the loop do all the time. For cmocka tests: whatever
 * goes wrong fails the test.
 */

#define LOOP_DEVICES_MAX 2
#define LOOP_BUFFER	 (64 << 10)

struct loop_opts {
	unsigned devices;      /* 0: 1 */
	uint32_t events, ops;  /* neither: the CQs are in no loop */
	struct snt_qp_opts qp; /* on one device, with lanes 0: pass-through */
	snt_clock_fn clock;
	bool unconnected;
	/* What to use instead of the first end's control table. */
	const struct snt_control *(*instrument)(const struct snt_adopted *adopted);
};

struct loop_end {
	struct scripted_device *device[LOOP_DEVICES_MAX];
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char *buffer;
};

struct loop_pair {
	struct scripted_fabric *fabric;
	struct loop_opts opts;
	struct loop_end end[2];
};

struct loop_pair *loop_pair_open(const struct loop_opts *opts);

/* A pass-through lane, with ops. */
struct loop_pair *loop_pair_simple(void);

/* Four lanes on two devices. */
struct loop_pair *loop_pair_lanes(enum snt_scheme scheme, uint32_t ops);

/* Another QP on an end's CQ, and one at the other end to talk to. */
void loop_pair_add(struct loop_pair *pair, const struct snt_qp_opts *opts,
		   struct snt_qp *qp_out[2]);

/* Closes what is still there, and expects nothing left. What a test has destroyed by
 * itself must be NULL. */
void loop_pair_close(struct loop_pair *pair);

/* Lets everything that can move do so. */
void loop_pair_run(struct loop_pair *pair);

/* Runs devices and dispatches at both ends until nothing happens any more. */
void loop_pair_settle(struct loop_pair *pair);

/* Is the fd readable now? */
bool loop_readable(struct snt_loop *loop);

struct snt_sge loop_sge(struct loop_pair *pair, unsigned end, uint64_t offset,
			uint64_t length);

/* Posts an op from this end's buffer to the same offset of the other's. */
int loop_write(struct loop_pair *pair, unsigned end, struct snt_op *op, uint64_t offset,
	       uint64_t length);

/* What ops whose `done` is this have come to: how many, and in which order. */
#define LOOP_LOG 4096
extern unsigned loop_done_count;
extern struct snt_op *loop_done_log[LOOP_LOG];
void loop_done(struct snt_op *op);
void loop_done_reset(void);

#endif
