/* SPDX-License-Identifier: MIT */
/*
 * DQPLB: every fragment of a WRITE_IMM carries a sequence number, so that the
 * receiver can put messages in order without waiting for acknowledgements.
 *
 *	bit 31     last fragment of a message
 *	bit 30     the next receive on this lane is the sender's raw immediate
 *	bits 23-0  sequence number, modulo 2^24
 *
 * The receiver keeps its own empty receives on all data lanes. Fragments that
 * arrive ahead wait in a window; what lies outside of it, comes twice, or makes
 * no sense is the peer's fault and breaks the QP, never the process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "vqp/qp.h"

#define LAST	      (1u << 31)
#define FOLLOWED      (1u << 30)
#define SEQUENCE_MASK 0xffffffu

enum {
	ARRIVED = 1,
	ENDS = 2,
};

struct arrival {
	uint32_t length;
	uint32_t imm;
	uint8_t state;
};

struct snt__reorder {
	uint32_t window; /* a power of two */
	uint32_t expected;
	uint64_t length; /* of the message under way */
	bool blocked;	 /* a complete message waits for a receive */
	struct arrival arrival[];
};

size_t snt__dqplb_size(uint32_t window)
{
	return sizeof(struct snt__reorder) + (size_t)window * sizeof(struct arrival);
}

void snt__dqplb_init(struct snt__reorder *reorder, uint32_t window)
{
	memset(reorder, 0, snt__dqplb_size(window));
	reorder->window = window;
}

/*
 * Sending: never further ahead of the oldest fragment under way than the window.
 */

/* Of a run that has been retired in part the first counts still. */
static uint32_t find_oldest(const struct snt_qp *qp)
{
	uint32_t oldest = qp->sequence_next;

	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		const struct snt__lane *lane = &qp->lane[i];

		for (uint32_t at = lane->run_head; at != lane->run_tail; at++) {
			struct snt__run run = lane->run[at & lane->run_mask];
			const struct snt__slot *slot = &qp->slot[run.slot & qp->mask];

			if (slot->opcode != SNT_WRITE_IMM)
				continue;
			if (snt__before(run.sequence, oldest))
				oldest = run.sequence;
			break;
		}
	}
	return oldest;
}

bool snt__dqplb_window_open(struct snt_qp *qp, uint32_t count)
{
	if (qp->sequence_next - qp->sequence_oldest + count <= qp->peer_window)
		return true;
	qp->sequence_oldest = find_oldest(qp);
	return qp->sequence_next - qp->sequence_oldest + count <= qp->peer_window;
}

/*
 * Receiving
 */

/* As many empty receives as the lane may have, in chains. */
int snt__dqplb_fill(struct snt_qp *qp, struct snt__lane *lane)
{
	while (lane->recv_posted - lane->recv_retired < qp->lane_depth) {
		struct ibv_recv_wr wr[SNT__CHAIN_MAX], *bad;
		uint32_t room =
			qp->lane_depth - (lane->recv_posted - lane->recv_retired);
		uint32_t count = room < SNT__CHAIN_MAX ? room : SNT__CHAIN_MAX;
		int ret;

		for (uint32_t i = 0; i < count; i++) {
			wr[i].wr_id = (uint64_t)(lane->tag | SNT__TAG_RECV) << 32 |
				      (lane->recv_posted + i);
			wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
			wr[i].sg_list = NULL;
			wr[i].num_sge = 0;
		}
		/* Also after a failure the device may have any of them. */
		lane->recv_posted += count;
		ret = ibv_post_recv(lane->qp, wr, &bad);
		if (ret)
			return -ret;
	}
	return 0;
}

/* In batches, since a doorbell costs more than a WR. */
static void replenish(struct snt_qp *qp, struct snt__lane *lane)
{
	uint32_t missing = qp->lane_depth - (lane->recv_posted - lane->recv_retired);
	uint32_t batch = qp->lane_depth < 4 * SNT__CHAIN_MAX ? (qp->lane_depth + 3) / 4
							     : SNT__CHAIN_MAX;

	if (missing >= batch && lane->alive && snt__dqplb_fill(qp, lane))
		snt__qp_break(qp);
}

/* Gives complete messages to receives, in order, while there are both. */
static void match(struct snt_qp *qp)
{
	struct snt__reorder *reorder = qp->reorder;

	reorder->blocked = false;
	for (;;) {
		struct arrival *arrival =
			&reorder->arrival[reorder->expected & (reorder->window - 1)];
		struct snt__recv *recv;

		if (!(arrival->state & ARRIVED))
			return;
		/* A complete message without a receive stays where it is. */
		if (arrival->state & ENDS && qp->notify.done == qp->notify.tail) {
			reorder->blocked = true;
			return;
		}
		reorder->length += arrival->length;
		reorder->expected++;
		if (arrival->state & ENDS) {
			recv = &qp->notify.recv[qp->notify.done++ & qp->notify.mask];
			recv->length = reorder->length;
			recv->imm = arrival->imm;
			recv->flags = SNT_WC_WITH_IMM;
			recv->pending = 0;
			reorder->length = 0;
			snt__cq_ready(qp->recv_cq, &qp->recv_ready);
		}
		arrival->state = 0;
	}
}

/* While a message waits for a receive lanes are not replenished, so that a
 * sender who is too fast is held back by the receives that are left. */
void snt__dqplb_match(struct snt_qp *qp)
{
	bool was_blocked = qp->reorder->blocked;

	match(qp);
	if (!was_blocked || qp->reorder->blocked)
		return;
	for (uint32_t i = 0; i < qp->data_lanes; i++)
		replenish(qp, &qp->lane[i]);
}

static void arrive(struct snt_qp *qp, struct snt__lane *lane, uint32_t imm,
		   uint32_t length)
{
	struct snt__reorder *reorder = qp->reorder;
	uint32_t ahead = ((imm & SEQUENCE_MASK) - reorder->expected) & SEQUENCE_MASK;
	uint32_t sequence = reorder->expected + ahead;
	struct arrival *arrival = &reorder->arrival[sequence & (reorder->window - 1)];

	if (ahead >= reorder->window || arrival->state ||
	    (imm & (LAST | FOLLOWED)) == FOLLOWED) {
		snt__qp_break(qp);
		return;
	}
	arrival->length = length;
	arrival->imm = 0;
	if (imm & FOLLOWED) {
		lane->awaits_imm = true;
		lane->imm_sequence = sequence;
		return;
	}
	arrival->state = ARRIVED | (imm & LAST ? ENDS : 0);
}

static void take_raw(struct snt_qp *qp, struct snt__lane *lane, uint32_t imm)
{
	struct snt__reorder *reorder = qp->reorder;
	struct arrival *arrival =
		&reorder->arrival[lane->imm_sequence & (reorder->window - 1)];

	lane->awaits_imm = false;
	if (arrival->state) { /* the same number came by another lane meanwhile */
		snt__qp_break(qp);
		return;
	}
	arrival->imm = imm;
	arrival->state = ARRIVED | ENDS;
}

void snt__dqplb_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);

	if (qp->broken)
		return;
	/* Only writes with immediates are legal on these lanes. */
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) ||
	    wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
		snt__qp_break(qp);
		return;
	}
	if (lane->awaits_imm)
		take_raw(qp, lane, imm);
	else
		arrive(qp, lane, imm, wc->byte_len);
	if (qp->broken)
		return;
	match(qp);
	if (!qp->reorder->blocked)
		replenish(qp, lane);
}
