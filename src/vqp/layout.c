/* SPDX-License-Identifier: MIT */
#include "vqp/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"
#include "vqp/dqplb.h"
#include "vqp/ring.h"

#define LINE 64

/* In a first pass it counts, with no memory; in a second it hands memory out. */
struct block {
	char *memory;
	size_t used;
};

static void *take_block(struct block *block, size_t count, size_t size)
{
	void *at = block->memory ? block->memory + block->used : NULL;

	block->used += (count * size + LINE - 1) & ~(size_t)(LINE - 1);
	return at;
}

static uint32_t power_of_two(uint32_t value)
{
	return value <= 1 ? 1 : 1u << (32 - __builtin_clz(value - 1));
}

static void lay_ring(struct snt_qp *qp, struct block *block,
		     struct snt__recv_ring *ring, uint32_t sges)
{
	uint32_t size = power_of_two(qp->recv_depth);

	ring->mask = size - 1;
	ring->depth = qp->recv_depth;
	ring->recv = take_block(block, size, sizeof(*ring->recv));
	ring->sge = take_block(block, (size_t)size * sges, sizeof(*ring->sge));
}

static void lay_sends(struct snt_qp *qp, struct block *block)
{
	uint32_t size = power_of_two(qp->opts.send_depth);

	qp->mask = size - 1;
	qp->slot = take_block(block, size, sizeof(*qp->slot));
	qp->atomic = take_block(block, size, sizeof(*qp->atomic));
	qp->sges = take_block(block, size, sizeof(*qp->sges));
	qp->sge = take_block(block, (size_t)size * qp->send_sge_max, sizeof(*qp->sge));
	qp->inline_buffer = take_block(block, size, qp->inline_max);
}

static void lay_chain(struct snt_qp *qp, struct block *block, struct snt__lane *lane)
{
	uint32_t links = SNT__CHAIN_MAX;
	struct ibv_send_wr *chain = take_block(block, links, sizeof(*chain));
	struct ibv_sge *sge =
		take_block(block, (size_t)links * qp->send_sge_max, sizeof(*sge));

	if (!block->memory)
		return;
	lane->chain = chain;
	for (uint32_t i = 0; i < links; i++) {
		chain[i].sg_list = &sge[i * qp->send_sge_max];
		chain[i].next = &chain[i + 1];
	}
}

static void lay_ids(struct block *block, struct snt__ids *ids, uint32_t depth)
{
	uint32_t size = power_of_two(depth);
	uint64_t *id = take_block(block, size, sizeof(*id));

	if (block->memory)
		*ids = (struct snt__ids){ id, size - 1 };
}

/* A pass-through lane needs only these. */
static void lay_single(struct snt_qp *qp, struct block *block)
{
	lay_ids(block, &qp->ids[SNT__QUEUE_SEND], qp->lane_depth);
	lay_ids(block, &qp->ids[SNT__QUEUE_RECV], qp->srq ? 0 : qp->recv_depth);
}

static void lay_runs(struct snt_qp *qp, struct block *block, struct snt__lane *lane)
{
	uint32_t size = power_of_two(qp->lane_depth);
	struct snt__run *run = take_block(block, size, sizeof(*run));
	struct snt__early_arrival *early =
		take_block(block, qp->scheme == SNT_SCHEME_DQPLB ? size : 0,
			   sizeof(*early));

	if (!block->memory)
		return;
	lane->run_mask = size - 1;
	lane->run = run;
	lane->stash = early;
}

static void lay_out(struct snt_qp *qp, struct block *block)
{
	qp->lane = take_block(block, qp->lane_count, sizeof(*qp->lane));
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		struct snt__lane *lane = block->memory ? &qp->lane[i] : NULL;

		lay_chain(qp, block, lane);
		if (!qp->pass_through)
			lay_runs(qp, block, lane);
	}
	if (qp->pass_through) {
		lay_single(qp, block);
		return;
	}
	lay_sends(qp, block);
	lay_ring(qp, block, &qp->data, qp->recv_sge_max);
	lay_ring(qp, block, &qp->notify, 0);
	if (qp->scheme == SNT_SCHEME_DQPLB)
		qp->reorder = take_block(block, 1, snt__dqplb_size(qp->window));
}

int snt__layout_allocate(struct snt_qp *qp)
{
	struct block block = { 0 };

	if (qp->scheme == SNT_SCHEME_DQPLB)
		qp->window = snt__dqplb_window(qp);
	lay_out(qp, &block);
	qp->memory = snt__lines_alloc(1, block.used);
	if (!qp->memory)
		return snt__fail(ENOMEM,
				 "no memory for the rings of a virtual QP (%zu bytes)",
				 block.used);
	block = (struct block){ .memory = qp->memory };
	lay_out(qp, &block);
	if (qp->scheme == SNT_SCHEME_DQPLB)
		snt__dqplb_init(qp, 0);
	return 0;
}
