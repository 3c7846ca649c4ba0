/* SPDX-License-Identifier: MIT */
/*
 * Physical completions become virtual ones. A CQE retires everything on its lane
 * up to its sequence number; a WR is done when its last physical WR has retired,
 * and is reported when all before it have been. Nothing here looks at an opcode
 * before the status, and nothing is routed by it.
 */
#include "vqp/complete.h"

#include <string.h>

#include "util/assert.h"
#include "vqp/balance.h"
#include "vqp/cause.h"
#include "vqp/cq.h"
#include "vqp/failure.h"
#include "vqp/fence.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv.h"
#include "vqp/recv_class.h"
#include "vqp/refused_wr.h"
#include "vqp/ring.h"
#include "vqp/route.h"

/* The first error wins, except that a flush is only the consequence of another
 * error. */
void snt__qp_fail_slot(struct snt_qp *qp, uint32_t position, unsigned status,
		       uint32_t vendor_err, unsigned lane)
{
	struct snt__slot *slot = snt__qp_slot(qp, position);

	if (slot->status &&
	    (slot->status != SNT_WC_FLUSHED || status == SNT_WC_FLUSHED))
		return;
	if (!slot->status &&
	    (!qp->failed_count++ || snt__before(position, qp->failed_first)))
		qp->failed_first = position;
	slot->status = status;
	slot->vendor_err = vendor_err;
	slot->lane = lane;
}

/* Retires fragments of one WR. Returns how many of them have a sequence number of
 * DQPLB's. */
static inline uint32_t retire_part(struct snt_qp *qp, uint32_t position, uint32_t count)
{
	struct snt__slot *slot = snt__qp_slot(qp, position);

	slot->pending -= count;
	return qp->scheme == SNT_SCHEME_DQPLB && slot->opcode == SNT_OP_WRITE_IMM
		       ? count
		       : 0;
}

static inline const struct snt__run *oldest_run(const struct snt__lane *lane)
{
	return &lane->run[lane->run_head & lane->run_mask];
}

static inline void end_run(struct snt__lane *lane, const struct snt__run *run)
{
	lane->bytes_done += run->bytes;
	lane->run_head++;
}

/* Retires everything up to a sequence number. Returns how many of the fragments have
 * one of DQPLB's. */
static __attribute__((noinline)) uint32_t retire_runs(struct snt_qp *qp,
						      struct snt__lane *lane,
						      uint32_t end)
{
	uint32_t at = lane->retired, sequenced = 0;

	lane->retired = end;
	while (at != end) {
		const struct snt__run *run = oldest_run(lane);

		if (run->end - at > end - at)
			return sequenced + retire_part(qp, run->slot, end - at);
		sequenced += retire_part(qp, run->slot, run->end - at);
		at = run->end;
		end_run(lane, run);
	}
	return sequenced;
}

/* The same; mostly it is a single run. */
static inline uint32_t retire_some(struct snt_qp *qp, struct snt__lane *lane,
				   uint32_t end)
{
	const struct snt__run *run = oldest_run(lane);
	uint32_t at = lane->retired;

	if (run->end != end)
		return retire_runs(qp, lane, end);
	lane->retired = end;
	end_run(lane, run);
	return retire_part(qp, run->slot, end - at);
}

static void retire_wrs(struct snt_qp *qp, struct snt__lane *lane, uint32_t end)
{
	uint32_t count = end - lane->retired;

	qp->under_way -= count;
	qp->sequenced_under_way -= retire_runs(qp, lane, end);
}

/* Retires the oldest fragment, which failed. */
static void retire_failed(struct snt_qp *qp, struct snt__lane *lane, unsigned status,
			  uint32_t vendor_err)
{
	uint32_t position = oldest_run(lane)->slot;

	snt__qp_fail_slot(qp, position, status, vendor_err, lane->index);
	retire_wrs(qp, lane, lane->retired + 1);
}

static void flush_sends(struct snt__lane *lane)
{
	while (lane->retired != lane->built)
		retire_failed(lane->owner, lane, SNT_WC_FLUSHED, 0);
}

/* The end of a lane: the device has released everything that it was given. */
static __attribute__((noinline)) bool take_send_marker(struct snt_qp *qp,
						       struct snt__lane *lane,
						       uint32_t marker)
{
	if (marker == SNT__MARKER_FENCE) {
		snt__fence_take(lane, SNT__QUEUE_SEND);
		return true;
	}
	flush_sends(lane);
	snt__cq_ready(qp->cq, &qp->send_ready);
	if (marker != SNT__MARKER_CLOSE)
		return true;
	snt__qp_count_marker(qp, &lane->send_marker_due);
	/* Without a marker of their own, receives end with the sends. */
	if (!lane->marked)
		snt__recv_end(qp, lane);
	return true;
}

/* A completion of a WR in flight. */
static inline void count_completion(struct snt_qp *qp, struct snt__lane *lane)
{
	lane->completions++;
	/* The lane was full and has room now: waiting WRs start with it. */
	if (__builtin_expect(snt__lane_under_way(lane) == lane->limit, 0) &&
	    lane->is_data && qp->next != qp->tail)
		qp->turn = lane;
}

/* Is it the WR itself, which would fail again? */
static bool is_at_fault(unsigned status)
{
	switch (status) {
	case SNT_WC_LOC_LEN_ERR:
	case SNT_WC_LOC_QP_OP_ERR:
	case SNT_WC_LOC_PROT_ERR:
	case SNT_WC_MW_BIND_ERR:
	case SNT_WC_LOC_ACCESS_ERR:
	case SNT_WC_REM_INV_REQ_ERR:
	case SNT_WC_REM_ACCESS_ERR:
	case SNT_WC_REM_OP_ERR:
	case SNT_WC_RNR_RETRY_EXC_ERR:
		return true;
	default:
		return false;
	}
}

/* With failover: everything before the first error has succeeded, and the rest stays in the
 * FIFO until it is settled (settle.h). */
static __attribute__((noinline, cold)) void freeze_lane(struct snt_qp *qp,
							struct snt__lane *lane,
							const struct ibv_wc *wc)
{
	struct snt__lane_life *life = snt__lane_life(lane);
	unsigned status = snt__status_of(wc);

	if (life->frozen)
		return;
	life->frozen = true;
	retire_wrs(qp, lane, snt__wr_id_sequence(wc->wr_id));
	lane->errors++;
	snt__cause_completion(lane, status, wc->vendor_err);
	life->cause = lane->cause;
	if (is_at_fault(status))
		snt__qp_fail_slot(qp, oldest_run(lane)->slot, status, wc->vendor_err,
				  lane->index);
	else
		life->failed |= status != SNT_WC_FLUSHED;
	snt__failover_lane_failed(lane);
}

static bool take_send_cqe(struct snt_qp *qp, struct snt__lane *lane,
			  const struct ibv_wc *wc)
{
	uint32_t sequence = snt__wr_id_sequence(wc->wr_id);
	uint64_t before = lane->bytes_done;

	if (!snt__lane_has(lane, sequence))
		return false; /* long retired */
	count_completion(qp, lane);
	if (wc->status == IBV_WC_SUCCESS) {
		retire_wrs(qp, lane, sequence + 1);
	} else if (snt__qp_survives(qp)) {
		freeze_lane(qp, lane, wc);
	} else {
		retire_wrs(qp, lane, sequence);
		retire_failed(qp, lane, snt__status_of(wc), wc->vendor_err);
		lane->errors++;
		snt__cause_completion(lane, snt__status_of(wc), wc->vendor_err);
		snt__lane_kill(lane);
	}
	if (qp->by_time && lane->is_data)
		snt__balance_learn(qp, lane, lane->bytes_done - before);
	snt__cq_ready(qp->cq, &qp->send_ready);
	return true;
}

static inline int take_sends(struct snt__lane *lane, const struct snt__route *route,
			     unsigned device, const struct ibv_wc *wc, int count)
{
	struct snt_qp *qp = lane->owner;
	uint32_t retired = 0, sequenced = 0;
	int taken = 0;

	if (qp->by_time)
		return 0;
	do {
		uint32_t sequence = snt__wr_id_sequence(wc->wr_id);

		if (snt__wr_id_tag(wc->wr_id) != lane->tag ||
		    wc->status != IBV_WC_SUCCESS || !snt__lane_has(lane, sequence))
			break;
		count_completion(qp, lane);
		retired += sequence + 1 - lane->retired;
		sequenced += retire_some(qp, lane, sequence + 1);
		wc++;
		if (++taken == count)
			break;
		lane = snt__route_next(route, lane, device, wc->qp_num);
	} while (lane);
	qp->under_way -= retired;
	qp->sequenced_under_way -= sequenced;
	return taken;
}

int snt__qp_take_sends(struct snt__lane *lane, const struct snt__route *route,
		       unsigned device, const struct ibv_wc *wc, int count)
{
	int taken = take_sends(lane, route, device, wc, count);

	if (taken)
		snt__cq_ready(lane->owner->cq, &lane->owner->send_ready);
	return taken;
}

static bool take_recv_cqe(struct snt_qp *qp, struct snt__lane *lane,
			  const struct ibv_wc *wc)
{
	if (snt__wr_id_sequence(wc->wr_id) != lane->recv_retired ||
	    lane->recv_retired == lane->recv_posted)
		return false;
	snt__recv_take(qp, lane, wc);
	return true;
}

static __attribute__((noinline)) bool take_recv_marker(struct snt_qp *qp,
						       struct snt__lane *lane,
						       uint32_t marker)
{
	if (marker == SNT__MARKER_FENCE) {
		snt__fence_take(lane, SNT__QUEUE_RECV);
		return true;
	}
	snt__recv_end(qp, lane);
	if (marker == SNT__MARKER_CLOSE)
		snt__qp_count_marker(qp, &lane->recv_marker_due);
	snt__cq_ready(qp->cq, &qp->send_ready);
	return true;
}

bool snt__qp_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc)
{
	/* The remaining bits are the kind if the tag is this lane's. */
	uint32_t kind = snt__wr_id_tag(wc->wr_id) ^ lane->tag;

	switch (kind) {
	case 0:
		return take_send_cqe(qp, lane, wc);
	case SNT__TAG_RECV:
		return take_recv_cqe(qp, lane, wc);
	case SNT__TAG_MARKER:
		return take_send_marker(qp, lane, snt__wr_id_sequence(wc->wr_id));
	case SNT__TAG_MARKER | SNT__TAG_RECV:
		return take_recv_marker(qp, lane, snt__wr_id_sequence(wc->wr_id));
	default:
		return false;
	}
}

/* After a failure has been reported, the next one in the ring counts. */
static void forget_failure(struct snt_qp *qp)
{
	qp->poison = qp->tail;
	qp->poisoned = true;
	if (!--qp->failed_count)
		return;
	do
		qp->failed_first++;
	while (!snt__qp_slot(qp, qp->failed_first)->status);
}

static inline void report_send(const struct snt_qp *qp, const struct snt__slot *slot,
			       struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = slot->wr_id,
			       .length = slot->length,
			       .qp_num = qp->num,
			       .opcode = slot->opcode };
	if (__builtin_expect(!slot->status, 1))
		return;
	wc->status = slot->status;
	wc->vendor_err = slot->vendor_err;
	wc->lane = slot->lane;
	wc->device = qp->lane[slot->lane].device;
	if (wc->status == SNT_WC_FLUSHED)
		snt__qp_tell_cause(qp, wc);
}

static int report_closed(struct snt_qp *qp, struct snt_wc *wc)
{
	if (!qp->all_ended || qp->closed_reported || qp->markers ||
	    snt__fence_is_due(qp) || !snt__refused_wr_is_settled(qp) ||
	    qp->head != qp->tail || qp->data.head != qp->data.tail ||
	    qp->notify.head != qp->notify.tail)
		return 0;
	qp->closed_reported = true;
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = qp->close_wr_id;
	wc->qp_num = qp->num;
	wc->opcode = SNT_OP_CLOSED;
	return 1;
}

/* Reported last, once lanes have ended. */
static __attribute__((noinline)) int report_end(struct snt_qp *qp, struct snt_wc *wc,
						int max)
{
	int count = qp->phase ? snt__failover_report(qp, wc, max)
			      : snt__refused_wr_report(qp, SNT__QUEUE_SEND, wc, max);

	return count < max && qp->closing ? count + report_closed(qp, &wc[count])
					  : count;
}

/* Reports, in order, the oldest WRs that are done. */
static inline int report_done(struct snt_qp *qp, struct snt_wc *wc, int max)
{
	uint32_t head = qp->head;
	int left = max;

	for (; left > 0 && head != qp->next; head++) {
		const struct snt__slot *slot = snt__qp_slot(qp, head);

		if (slot->pending)
			break;
		if (slot->flags & SNT_SEND_SIGNALED || slot->status) {
			report_send(qp, slot, wc++);
			left--;
		}
		if (__builtin_expect(slot->status, 0))
			forget_failure(qp);
	}
	qp->head = head;
	if (snt__before(qp->ordered, head))
		qp->ordered = head;
	snt__assert(snt__qp_ring_is_sound(qp));
	if (__builtin_expect(qp->poisoned, 0))
		qp->poisoned = snt__before(head, qp->poison);
	return max - left;
}

static void flush_receives(struct snt__recv_ring *ring)
{
	for (uint32_t at = ring->head; at != ring->tail; at++) {
		struct snt__recv *recv = &ring->recv[at & ring->mask];

		if (!recv->pending)
			continue;
		recv->pending = 0;
		snt__recv_fail(recv, SNT_WC_FLUSHED, 0, 0);
	}
}

/* Broken or closed between two lives of its lanes. */
static __attribute__((noinline, cold)) void flush_between_lives(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++)
		flush_sends(&qp->lane[i]);
	flush_receives(&qp->data);
	flush_receives(&qp->notify);
	qp->phase = SNT__PHASE_ENDED;
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
}

int snt__qp_report_sends(struct snt_qp *qp, struct snt_wc *wc, int max)
{
	int count;

	if (__builtin_expect(qp->lanes_ended, 0) && qp->phase && snt__fence_is_over(qp))
		flush_between_lives(qp);
	count = report_done(qp, wc, max);

	if (__builtin_expect(qp->lanes_ended, 0))
		count += report_end(qp, &wc[count], max - count);
	return count;
}

static inline bool is_head_done(const struct snt_qp *qp)
{
	return qp->head != qp->next && !qp->slot[qp->head & qp->mask].pending;
}

/* A QP that is being closed may always have its end left to report. */
bool snt__qp_has_sends(const struct snt_qp *qp)
{
	return qp->closing || (qp->phase && snt__failover_has_notice(qp)) ||
	       snt__refused_wr_is_due(qp, SNT__QUEUE_SEND) || is_head_done(qp);
}

int snt__qp_complete_sends(struct snt_cq *cq, struct snt__lane *lane, int count,
			   struct snt_wc *wc, int max, int *reported)
{
	struct snt_qp *qp = lane->owner;
	int taken =
		take_sends(lane, &cq->route, cq->physical->device, cq->batch, count);

	if (__builtin_expect(taken != count || qp->lanes_ended, 0)) {
		if (taken)
			snt__cq_ready(cq, &qp->send_ready);
		return taken;
	}
	*reported = report_done(qp, wc, max);
	if (*reported == max && is_head_done(qp))
		snt__cq_ready(cq, &qp->send_ready);
	return taken;
}

static bool has_done(const struct snt__recv_ring *ring)
{
	return ring->head != ring->tail && !ring->recv[ring->head & ring->mask].pending;
}

bool snt__qp_has_recvs(const struct snt_qp *qp)
{
	return has_done(&qp->notify) || has_done(&qp->data) ||
	       snt__refused_wr_is_due(qp, SNT__QUEUE_RECV);
}

static void report_recv(const struct snt_qp *qp, const struct snt__recv *recv,
			unsigned opcode, struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = recv->wr_id,
			       .length = recv->length,
			       .qp_num = qp->num,
			       .imm = recv->imm,
			       .flags = recv->flags,
			       .opcode = opcode,
			       .status = recv->status };
	if (__builtin_expect(!recv->status, 1))
		return;
	wc->vendor_err = recv->vendor_err;
	wc->lane = recv->lane;
	wc->device = qp->lane[recv->lane].device;
	if (wc->status == SNT_WC_FLUSHED)
		snt__qp_tell_cause(qp, wc);
}

static int report_ring(const struct snt_qp *qp, struct snt__recv_ring *ring,
		       unsigned opcode, struct snt_wc *wc, int max)
{
	uint32_t head = ring->head;
	int count;

	for (count = 0; count < max && head != ring->tail; count++, head++) {
		const struct snt__recv *recv = &ring->recv[head & ring->mask];

		if (recv->pending)
			break;
		report_recv(qp, recv, opcode, &wc[count]);
	}
	ring->head = head;
	return count;
}

int snt__qp_report_recvs(struct snt_qp *qp, struct snt_wc *wc, int max)
{
	int count = report_ring(qp, &qp->notify, SNT_OP_RECV_NOTIFY, wc, max);

	count += report_ring(qp, &qp->data, SNT_OP_RECV, wc + count, max - count);
	if (__builtin_expect(!qp->lanes_ended, 1))
		return count;
	count += snt__refused_wr_report(qp, SNT__QUEUE_RECV, wc + count, max - count);
	/* The last receive may have been what held up the end. */
	if (qp->closing)
		snt__cq_ready(qp->cq, &qp->send_ready);
	return count;
}
