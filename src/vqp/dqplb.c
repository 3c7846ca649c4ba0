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
 * arrive ahead wait in a window. The sender never gets further ahead of its oldest
 * unacknowledged fragment than the window. But a fragment can be acknowledged and
 * not yet polled: until one lane's CQ is polled, other lanes may run ahead of it, by
 * less than a window for each receive of that lane. A fragment that is early in this
 * way waits in its lane's stash, and keeps its receive from being replaced. One that
 * is further ahead, comes twice, or is invalid is the peer's fault and breaks the
 * QP, never the process.
 */
#include "vqp/dqplb.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "vqp/cause.h"
#include "vqp/failure.h"
#include "vqp/ready_list.h"
#include "vqp/reorder.h"
#include "vqp/ring.h"
#include "vqp/route.h"

/* Half of the number space, so that ahead can be told from behind. */
#define FAR_MAX (1u << 23)

static uint64_t far_of(const struct snt_qp *qp, uint32_t window)
{
	return ((uint64_t)qp->lane_depth + 1) * (window + qp->data_lanes);
}

uint32_t snt__dqplb_window(const struct snt_qp *qp)
{
	uint32_t window = FAR_MAX;

	/* A window of more than twice what can be in flight is of no use. */
	while (window > 2 &&
	       (window / 2 >= 2 * (uint64_t)qp->data_lanes * qp->lane_depth ||
		far_of(qp, window) > FAR_MAX))
		window /= 2;
	return window;
}

size_t snt__dqplb_size(uint32_t window)
{
	return sizeof(struct snt__reorder) +
	       (size_t)window * sizeof(struct snt__arrival);
}

void snt__dqplb_init(struct snt_qp *qp, uint32_t first)
{
	memset(qp->reorder, 0, snt__dqplb_size(qp->window));
	qp->reorder->window = qp->window;
	qp->reorder->far = far_of(qp, qp->window);
	qp->reorder->expected = first & SNT__IMM_SEQUENCE;
	qp->sequence_next = first;
	qp->sequence_oldest = first;
}

/*
 * Sending: never further ahead of the oldest fragment in flight than the window.
 */

/* A run that has been retired in part still counts from its first fragment. */
static uint32_t find_oldest(const struct snt_qp *qp)
{
	uint32_t oldest = qp->sequence_next;

	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		const struct snt__lane *lane = &qp->lane[i];

		for (uint32_t at = lane->run_head; at != lane->run_tail; at++) {
			struct snt__run run = lane->run[at & lane->run_mask];
			const struct snt__slot *slot = &qp->slot[run.slot & qp->mask];

			if (slot->opcode != SNT_OP_WRITE_IMM)
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

static inline uint32_t stashed_on(const struct snt__lane *lane)
{
	return lane->stash_tail - lane->stash_head;
}

/* Receives that the lane lacks. */
static inline uint32_t missing_on(const struct snt_qp *qp, const struct snt__lane *lane)
{
	return qp->lane_depth - (lane->recv_posted - lane->recv_retired) -
	       stashed_on(lane);
}

int snt__dqplb_fill(struct snt_qp *qp, struct snt__lane *lane)
{
	uint32_t missing;

	while ((missing = missing_on(qp, lane))) {
		struct ibv_recv_wr wr[SNT__CHAIN_MAX], *bad;
		uint32_t count = missing < SNT__CHAIN_MAX ? missing : SNT__CHAIN_MAX;
		int ret;

		for (uint32_t i = 0; i < count; i++) {
			wr[i].wr_id = snt__wr_id(lane->tag | SNT__TAG_RECV,
						 lane->recv_posted + i);
			wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
			wr[i].sg_list = NULL;
			wr[i].num_sge = 0;
		}
		/* Even after a failure the device may have any of them. */
		lane->recv_posted += count;
		lane->refill_at = lane->recv_posted - qp->lane_depth + qp->recv_batch;
		ret = ibv_post_recv(lane->qp, wr, &bad);
		if (ret)
			return -ret;
	}
	return 0;
}

/* In batches, since a doorbell costs more than a WR. */
static __attribute__((noinline)) void refill_lane(struct snt_qp *qp,
						  struct snt__lane *lane)
{
	int ret = lane->alive ? snt__dqplb_fill(qp, lane) : 0;

	if (!ret)
		return;
	snt__cause_refused(lane, -ret);
	snt__lane_kill(lane);
}

static inline void replenish_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	if (__builtin_expect(missing_on(qp, lane) >= qp->recv_batch, 0))
		refill_lane(qp, lane);
}

/* The current message is complete, and goes to the next receive. */
static inline void deliver_message(struct snt_qp *qp, uint32_t imm)
{
	struct snt__recv *recv = &qp->notify.recv[qp->notify.done++ & qp->notify.mask];

	recv->length = qp->reorder->length;
	recv->imm = imm;
	recv->flags = SNT_WC_WITH_IMM;
	recv->pending = 0;
	qp->reorder->length = 0;
}

/* Gives complete messages to receives, in order, while there are both. */
static __attribute__((noinline)) void match_messages(struct snt_qp *qp)
{
	struct snt__reorder *reorder = qp->reorder;
	struct snt__arrival *arrival;

	reorder->blocked = false;
	for (;;) {
		arrival = &reorder->arrival[reorder->expected & (reorder->window - 1)];
		if (!(arrival->state & SNT__ARRIVED))
			return;
		/* A complete message without a receive stays where it is. */
		if (arrival->state & SNT__ENDS && qp->notify.done == qp->notify.tail) {
			reorder->blocked = true;
			return;
		}
		reorder->length += arrival->length;
		if (arrival->state & SNT__ENDS) {
			deliver_message(qp, arrival->imm);
			snt__cq_ready(qp->recv_cq, &qp->recv_ready);
		}
		arrival->state = 0;
		reorder->irregular--;
		reorder->expected = (reorder->expected + 1) & SNT__IMM_SEQUENCE;
	}
}

enum verdict {
	GOOD,
	EARLY,
	BAD,
};

static enum verdict take_raw(struct snt_qp *qp, struct snt__lane *lane, uint32_t imm)
{
	struct snt__reorder *reorder = qp->reorder;
	struct snt__arrival *arrival =
		&reorder->arrival[lane->imm_sequence & (reorder->window - 1)];

	lane->awaits_imm = false;
	if (arrival->state) /* the same number has come on another lane meanwhile */
		return BAD;
	arrival->imm = imm;
	arrival->state = SNT__ARRIVED | SNT__ENDS;
	return GOOD;
}

static inline enum verdict take_in_order(struct snt_qp *qp, struct snt__lane *lane,
					 uint32_t imm, uint32_t length)
{
	struct snt__reorder *reorder = qp->reorder;
	uint32_t ahead = (imm - reorder->expected) & SNT__IMM_SEQUENCE;
	uint32_t sequence = reorder->expected + ahead;
	struct snt__arrival *arrival =
		&reorder->arrival[sequence & (reorder->window - 1)];

	if (__builtin_expect(lane->awaits_imm, 0))
		return take_raw(qp, lane, imm);
	if (__builtin_expect(ahead >= reorder->window, 0))
		return ahead < reorder->far ? EARLY : BAD;
	if (arrival->state ||
	    (imm & (SNT__IMM_LAST | SNT__IMM_FOLLOWED)) == SNT__IMM_FOLLOWED)
		return BAD;
	reorder->irregular++;
	arrival->length = length;
	arrival->imm = 0;
	if (imm & SNT__IMM_FOLLOWED) {
		lane->awaits_imm = true;
		lane->imm_sequence = sequence;
		return GOOD;
	}
	arrival->state = SNT__ARRIVED | (imm & SNT__IMM_LAST ? SNT__ENDS : 0);
	return GOOD;
}

/* There is room: every stashed arrival has kept its receive from being replaced. */
static void stash_arrival(struct snt_qp *qp, struct snt__lane *lane, uint32_t imm,
			  uint32_t length)
{
	lane->stash[lane->stash_tail++ & lane->run_mask] =
		(struct snt__early_arrival){ imm, length };
	qp->reorder->stashed++;
	qp->reorder->irregular++;
}

/* Handles arrivals in one lane's stash that are no longer early. True if there were
 * any. */
static bool unstash_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	uint32_t before = lane->stash_head;

	while (lane->stash_head != lane->stash_tail) {
		struct snt__early_arrival early =
			lane->stash[lane->stash_head & lane->run_mask];
		enum verdict verdict = take_in_order(qp, lane, early.imm, early.length);

		if (verdict == EARLY)
			break;
		lane->stash_head++;
		qp->reorder->stashed--;
		qp->reorder->irregular--;
		if (verdict == BAD) {
			snt__qp_break_for_peer(lane);
			return false;
		}
	}
	return lane->stash_head != before;
}

/* Can nothing more arrive, while what has arrived is not in order? */
static bool is_stuck(const struct snt_qp *qp)
{
	if (qp->reorder->blocked)
		return false;
	for (uint32_t i = 0; i < qp->data_lanes; i++)
		if (qp->lane[i].recv_posted != qp->lane[i].recv_retired)
			return false;
	return true;
}

/* After an arrival on this lane. */
static __attribute__((noinline)) void match_stashed(struct snt_qp *qp,
						    struct snt__lane *lane)
{
	bool again = true;

	while (again && qp->reorder->stashed) {
		again = false;
		for (uint32_t i = 0; i < qp->data_lanes && !qp->broken; i++) {
			if (!unstash_lane(qp, &qp->lane[i]))
				continue;
			again = true;
			match_messages(qp);
			if (!qp->reorder->blocked)
				replenish_lane(qp, &qp->lane[i]);
		}
	}
	if (!qp->broken && qp->reorder->stashed && is_stuck(qp))
		snt__qp_break_for_peer(lane);
}

/* While a message waits for a receive, lanes are not replenished: a sender that is too
 * fast is held back once the remaining receives are used up. */
void snt__dqplb_match(struct snt_qp *qp)
{
	if (!qp->reorder->blocked)
		return;
	match_messages(qp);
	if (qp->reorder->stashed)
		match_stashed(qp, qp->lane);
	for (uint32_t i = 0; i < qp->data_lanes && !qp->reorder->blocked; i++)
		replenish_lane(qp, &qp->lane[i]);
}

static void take_early(struct snt_qp *qp, struct snt__lane *lane, uint32_t imm,
		       uint32_t length)
{
	stash_arrival(qp, lane, imm, length);
	match_stashed(qp, lane);
}

void snt__dqplb_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);
	enum verdict verdict;

	if (qp->broken)
		return;
	/* Only writes with immediates are legal on these lanes. */
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) ||
	    wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
		snt__qp_break_for_peer(lane);
		return;
	}
	verdict = stashed_on(lane) ? EARLY : take_in_order(qp, lane, imm, wc->byte_len);
	if (__builtin_expect(verdict != GOOD, 0)) {
		if (verdict == EARLY)
			take_early(qp, lane, imm, wc->byte_len);
		else
			snt__qp_break_for_peer(lane);
		return;
	}
	match_messages(qp);
	if (__builtin_expect(qp->reorder->stashed, 0))
		match_stashed(qp, lane);
	if (!qp->reorder->blocked)
		replenish_lane(qp, lane);
}

/*
 * Mostly everything is in order, and every message has its receive: then fragments
 * bypass both the window and the ring.
 */

/* Is it the CQE of the lane's next receive, with the next fragment? */
static inline bool is_next(const struct snt__lane *lane, const struct ibv_wc *wc,
			   uint32_t imm, uint32_t expected)
{
	uint64_t wr_id = snt__wr_id(lane->tag | SNT__TAG_RECV, lane->recv_retired);

	return lane->sequenced && wc->wr_id == wr_id && wc->status == IBV_WC_SUCCESS &&
	       wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
	       (imm & ~SNT__IMM_LAST) == expected &&
	       lane->recv_retired != lane->recv_posted;
}

static inline void report_message(const struct snt_qp *qp, uint64_t wr_id,
				  uint64_t length, struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = wr_id,
			       .length = length,
			       .qp_num = qp->num,
			       .flags = SNT_WC_WITH_IMM,
			       .opcode = SNT_OP_RECV_NOTIFY };
}

int snt__dqplb_take_run(struct snt__lane *lane, const struct snt__route *route,
			const struct ibv_wc *physical, int count, struct snt_wc *wc,
			int *reported)
{
	struct snt_qp *qp = lane->owner;
	struct snt__reorder *reorder = qp->reorder;
	struct snt__recv_ring *ring = &qp->notify;
	const unsigned device = lane->device;
	const uint32_t tail = ring->tail, mask = ring->mask;
	uint32_t expected = reorder->expected, done = ring->done;
	uint64_t length = reorder->length;
	bool refills = false;
	int left = count;

	if (reorder->irregular || ring->head != done || qp->lanes_ended)
		return 0;
	for (;;) {
		uint32_t imm = ntohl(physical->imm_data);

		if (!is_next(lane, physical, imm, expected))
			break;
		if (imm & SNT__IMM_LAST) {
			if (done == tail)
				break;
			report_message(qp, ring->recv[done++ & mask].wr_id,
				       length + physical->byte_len, wc++);
			length = 0;
		} else {
			length += physical->byte_len;
		}
		expected = (expected + 1) & SNT__IMM_SEQUENCE;
		lane->completions++;
		lane->recv_retired++;
		left--;
		refills = (int32_t)(lane->recv_retired - lane->refill_at) >= 0;
		if (refills || !left)
			break;
		physical++;
		lane = snt__route_next(route, lane, device, physical->qp_num);
		if (!lane)
			break;
	}
	*reported += done - ring->done;
	reorder->expected = expected;
	reorder->length = length;
	ring->head = ring->done = done;
	if (refills)
		refill_lane(qp, lane);
	return count - left;
}
