/* SPDX-License-Identifier: MIT */
#ifndef VQP_PAIR_H
#define VQP_PAIR_H

#include <stdbool.h>
#include <sennit/sennit.h>

#include "lib/devices/scripted.h"

/*
 * Two ends on one scripted fabric, each with its own context, devices, memory,
 * virtual CQ and a virtual QP, connected with each other by card. For cmocka
 * tests: whatever goes wrong fails the test.
 */

#define VQP_DEVICES_MAX 4
#define VQP_BUFFER	(1 << 20)
#define VQP_STASH	4096

struct vqp_end {
	struct scripted_device *device[VQP_DEVICES_MAX];
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char *buffer;
	/* Completions that came while the other end was waited for. */
	struct snt_wc stash[VQP_STASH];
	unsigned stashed, taken;
};

struct vqp_pair {
	struct scripted_fabric *fabric;
	struct vqp_end end[2];
};

/* Makes and connects both; opts' cq is filled in. NULL: all defaults. */
struct vqp_pair *vqp_pair_open(unsigned devices, const struct snt_qp_opts *opts);

/* The same in two steps, for ends that are not alike. */
struct vqp_pair *vqp_pair_make(const unsigned devices[2],
			       const struct snt_qp_opts *const opts[2]);
void vqp_pair_connect(struct vqp_pair *pair);

/* The clock of all pairs that are made from now on; NULL: the real one. */
void vqp_pair_clock(snt_clock_fn clock);

/* What the contexts of all pairs that are made from now on log to; NULL: nothing. */
void vqp_pair_log(snt_log_fn log);

/* The control table of end 0 of all pairs that are made from now on, to come before
 * the devices' own; NULL: none. */
void vqp_pair_control(const struct snt_control *control);

/* The CQs of all pairs that are made from now on; NULL: all defaults. */
void vqp_pair_cq(const struct snt_cq_opts *opts);

/* Closes what is connected, polls until the end, and expects nothing left. */
void vqp_pair_close(struct vqp_pair *pair);

/* Lets everything that can move do so, in an order that the seed decides. */
void vqp_pair_run(struct vqp_pair *pair, uint64_t seed);

/* Polls until there is one completion; fails the test if none comes. */
struct snt_wc vqp_poll(struct vqp_pair *pair, unsigned end);

/* Fails the test if there is one. */
void vqp_expect_none(struct vqp_pair *pair, unsigned end);

/* A WR from this end's buffer to the same offset of the other's. */
struct snt_send_wr vqp_wr(struct vqp_pair *pair, unsigned end, struct snt_sge *sge,
			  unsigned opcode, uint64_t offset, uint64_t length);

#endif
