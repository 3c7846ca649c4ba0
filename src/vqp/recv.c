/* SPDX-License-Identifier: MIT */
/*
 * Receives, by class. Data receives go to the message lane as they are. In SPRAY a
 * notification receive is an empty one on every notify lane and is complete when
 * all have fired; in DQPLB it exists in the ring only, and dqplb.c matches it.
 *
 * On a lane of its own class the sequence number of a receive is its position in
 * the ring, because both count from 0 and in the same order.
 */
#include "vqp/recv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "vqp/cause.h"
#include "vqp/check.h"
#include "vqp/dqplb.h"
#include "vqp/failure.h"
#include "vqp/fence.h"
#include "vqp/passthrough.h"
#include "vqp/ready_list.h"
#include "vqp/recv_class.h"
#include "vqp/refusal.h"

/*
 * A device may queue a receive and still report failure. The only safe answer is to
 * keep the receive's place and to give up the lane: whether it was queued or not, it
 * comes back flushed. While connecting, the lane is only marked, because all of it is
 * about to be undone.
 */
static void post_physical(struct snt__lane *lane, struct ibv_sge *sge, int sge_count)
{
	struct ibv_recv_wr wr = {
		.wr_id = snt__wr_id(lane->tag | SNT__TAG_RECV, lane->recv_posted++),
		.sg_list = sge,
		.num_sge = sge_count,
	};
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(lane->qp, &wr, &bad);

	if (!err)
		return;
	if (!lane->owner->connected) {
		lane->alive = false;
		return;
	}
	snt__cause_refused(lane, err);
	snt__lane_kill(lane);
}

static void post_notify(struct snt_qp *qp)
{
	for (unsigned i = 0; i < qp->notify_count; i++)
		post_physical(qp->notifier[i], NULL, 0);
}

static int check_recv_sges(const struct snt_qp *qp, const struct snt_recv_wr *wr)
{
	if (wr->sge_count > qp->recv_sge_max)
		return snt__recv_count_fault(wr->sge_count, qp->recv_sge_max);
	for (unsigned i = 0; i < wr->sge_count; i++) {
		int ret = snt__check_recv_sge(qp->ctx, &wr->sge[i]);

		if (ret)
			return ret;
	}
	return 0;
}

/* Posts to the device, once there are connected lanes. */
static void post_recv_at(struct snt_qp *qp, struct snt__recv_ring *ring,
			 uint32_t position)
{
	uint32_t at = position & ring->mask;

	if (ring == &qp->data) {
		post_physical(&qp->lane[qp->message_lane],
			      &ring->sge[at * qp->recv_sge_max],
			      ring->recv[at].sge_count);
	} else if (qp->scheme == SNT_SCHEME_SPRAY) {
		ring->recv[at].pending = qp->notify_count;
		post_notify(qp);
	}
}

static inline void take_recv_slot(struct snt__recv_ring *ring,
				  const struct snt_recv_wr *wr, uint32_t pending)
{
	ring->recv[ring->tail++ & ring->mask] = (struct snt__recv){
		.wr_id = wr->wr_id, .pending = pending, .sge_count = wr->sge_count
	};
}

static int admit_data(struct snt_qp *qp, const struct snt_recv_wr *wr)
{
	uint8_t device = qp->lane[qp->message_lane].device;
	struct ibv_sge *to =
		&qp->data.sge[(qp->data.tail & qp->data.mask) * qp->recv_sge_max];
	int ret = check_recv_sges(qp, wr);

	if (ret)
		return ret;
	for (unsigned i = 0; qp->failover && i < wr->sge_count; i++)
		qp->failover->recv_mem[to - qp->data.sge + i] = wr->sge[i].mem;
	for (unsigned i = 0; i < wr->sge_count; i++)
		to[i] = (struct ibv_sge){ .addr = (uintptr_t)wr->sge[i].addr,
					  .length = wr->sge[i].length,
					  .lkey = wr->sge[i].mem->local_key[device] };
	take_recv_slot(&qp->data, wr, 1);
	return 0;
}

static inline int admit_recv(struct snt_qp *qp, const struct snt_recv_wr *wr)
{
	struct snt__recv_ring *ring = wr->sge_count ? &qp->data : &qp->notify;
	int ret;

	if (ring->refusal)
		return snt__qp_refusal(qp, ring->refusal);
	if (ring->tail - ring->head >= ring->depth)
		return snt__qp_recv_full(qp);
	if (wr->sge_count) {
		ret = admit_data(qp, wr);
		if (ret)
			return ret;
	} else {
		take_recv_slot(ring, wr, 1);
	}
	if (qp->connected && (wr->sge_count || qp->notify_count) &&
	    !snt__qp_is_between_lives(qp))
		post_recv_at(qp, ring, ring->tail - 1);
	return 0;
}

int snt_qp_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count)
{
	if (__builtin_expect(qp->recv_served, 0))
		return snt__qp_wants_ops(qp);
	return snt__qp_post_recv(qp, wr, count);
}

int snt__qp_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count)
{
	unsigned taken;
	int ret = 0;

	if (qp->pass_through)
		return snt__passthrough_post_recv(qp, wr, count);
	for (taken = 0; taken < count; taken++) {
		ret = admit_recv(qp, &wr[taken]);
		if (ret)
			break;
	}
	if (!taken)
		return ret ? ret : snt__qp_no_wrs(qp);
	if (qp->scheme == SNT_SCHEME_DQPLB)
		snt__dqplb_match(qp);
	return taken;
}

/* The keys of data receives on the device of the lane that takes them now. */
static void rekey_data(struct snt_qp *qp, uint32_t position)
{
	uint32_t at = position & qp->data.mask;
	struct ibv_sge *sge = &qp->data.sge[at * qp->recv_sge_max];
	const struct snt_mem **mem = &qp->failover->recv_mem[at * qp->recv_sge_max];

	for (unsigned i = 0; i < qp->data.recv[at].sge_count; i++)
		sge[i].lkey = mem[i]->local_key[qp->lane[qp->message_lane].device];
}

void snt__recv_repost(struct snt_qp *qp)
{
	for (uint32_t at = snt__recv_ring_taken(&qp->data);
	     qp->phase == SNT__PHASE_ARMED && at != qp->data.tail; at++) {
		rekey_data(qp, at);
		post_recv_at(qp, &qp->data, at);
	}
	for (uint32_t at = snt__recv_ring_taken(&qp->notify);
	     qp->phase == SNT__PHASE_ARMED && at != qp->notify.tail; at++)
		post_recv_at(qp, &qp->notify, at);
}

int snt__recv_post_all(struct snt_qp *qp)
{
	struct snt__recv_ring *rings[] = { &qp->data, &qp->notify };

	for (int i = 0; i < 2; i++)
		for (uint32_t at = rings[i]->head; at != rings[i]->tail; at++)
			post_recv_at(qp, rings[i], at);
	for (uint32_t i = 0; qp->scheme == SNT_SCHEME_DQPLB && i < qp->data_lanes;
	     i++) {
		int ret = snt__dqplb_fill(qp, &qp->lane[i]);

		if (ret)
			return ret;
	}
	for (uint32_t i = 0; i < qp->lane_count; i++)
		if (qp->lane[i].used && !qp->lane[i].alive)
			return -EIO;
	return 0;
}

/* Reads the length that a notification wrote to the mailbox, if there is one: then the
 * peer has agreed to tell it. */
static void take_length(const struct snt_qp *qp, struct snt__recv *recv,
			uint32_t position)
{
	const uint64_t *word = qp->mailbox.in.word;

	if (!word) {
		recv->flags |= SNT_WC_LENGTH_UNKNOWN;
		return;
	}
	/* A hostile peer may have it written at any time. */
	word += position & qp->mailbox.in_mask;
	recv->length = be64toh(__atomic_load_n(word, __ATOMIC_RELAXED));
}

/* Has a SEND been taken by a data receive that failed so? Then its sender fails as well. */
static bool is_of_send(unsigned status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
		return true;
	default:
		return false;
	}
}

/* With failover: a receive that nothing has taken is posted again in the next life. So is that
 * of a notification which failed: its sender fails by itself, or sends it again. */
static __attribute__((cold)) bool is_untaken(const struct snt_qp *qp,
					     const struct snt__recv_ring *ring,
					     unsigned status)
{
	if (!snt__qp_survives(qp))
		return false;
	return status == IBV_WC_WR_FLUSH_ERR || ring != &qp->data ||
	       !is_of_send(status);
}

static void finish_recv(struct snt__recv_ring *ring, uint32_t position,
			struct snt__lane *lane, const struct ibv_wc *wc)
{
	struct snt_qp *qp = lane->owner;
	struct snt__recv *recv = &ring->recv[position & ring->mask];

	/* Reported before, when the lane came to its end. */
	if (position - ring->head >= ring->tail - ring->head || !recv->pending)
		return;
	if (wc->status != IBV_WC_SUCCESS && is_untaken(qp, ring, wc->status))
		return;
	recv->pending--;
	if (wc->status != IBV_WC_SUCCESS) {
		snt__recv_fail(recv, snt__status_of(wc), wc->vendor_err, lane->index);
		if (qp->phase)
			snt__failover_recv_failed(qp, ring, position);
		return;
	}
	/* A peer may send a kind of message that this lane is not for. */
	if (wc->opcode != (recv->sge_count ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM)) {
		snt__recv_fail(recv, SNT_WC_GENERAL_ERR, 0, lane->index);
		snt__qp_break_for_peer(lane);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		recv->imm = ntohl(wc->imm_data);
		recv->flags |= SNT_WC_WITH_IMM;
	}
	if (recv->sge_count)
		recv->length = wc->byte_len;
	else if (lane == qp->notifier[0])
		take_length(qp, recv, position);
}

static __attribute__((noinline, cold)) void take_error(struct snt_qp *qp,
						       struct snt__lane *lane,
						       const struct ibv_wc *wc)
{
	lane->errors += wc->status != IBV_WC_WR_FLUSH_ERR;
	snt__cause_completion(lane, snt__status_of(wc), wc->vendor_err);
	snt__lane_kill(lane);
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
}

/* Of a class that has a queue of its own. */
static __attribute__((noinline)) void take_posted(struct snt_qp *qp,
						  struct snt__lane *lane,
						  uint32_t position,
						  const struct ibv_wc *wc)
{
	finish_recv(lane->index == qp->message_lane ? &qp->data : &qp->notify, position,
		    lane, wc);
	if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0)) {
		take_error(qp, lane, wc);
		return;
	}
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
	/* Only a peer that is up sends. */
	if (__builtin_expect(qp->phase == SNT__PHASE_ARMED, 0))
		snt__failover_go_up(qp);
}

void snt__recv_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc)
{
	uint32_t position = lane->recv_retired++;

	lane->completions++;
	if (!lane->sequenced)
		take_posted(qp, lane, position, wc);
	else if (__builtin_expect(wc->status == IBV_WC_SUCCESS, 1))
		snt__dqplb_take(qp, lane, wc);
	else
		take_error(qp, lane, wc);
}

void snt__recv_end(struct snt_qp *qp, struct snt__lane *lane)
{
	const struct ibv_wc flushed = { .status = IBV_WC_WR_FLUSH_ERR };

	while (lane->recv_retired != lane->recv_posted)
		snt__recv_take(qp, lane, &flushed);
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
}
