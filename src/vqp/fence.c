/* SPDX-License-Identifier: MIT */
#include "vqp/fence.h"

#include <errno.h>

#include "util/assert.h"
#include "util/err.h"
#include "vqp/cause.h"
#include "vqp/check.h"
#include "vqp/lane_set.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv_class.h"

/* As many steps as work. False: one was refused. */
static bool push_fence(struct snt__lane *lane)
{
	struct snt__lane_life *life = snt__lane_life(lane);

	if (life->step == SNT__FENCE_NONE &&
	    !snt__lane_mark_recv(lane, SNT__MARKER_FENCE))
		life->step = SNT__FENCE_RECV_MARKED;
	if (life->step == SNT__FENCE_RECV_MARKED && !snt__lane_to_error(lane))
		life->step = SNT__FENCE_IN_ERROR;
	if (life->step == SNT__FENCE_IN_ERROR) {
		snt__lane_mark(lane, SNT__MARKER_FENCE);
		if (!lane->wants_marker)
			life->step = SNT__FENCE_MARKED;
		lane->wants_marker = false;
	}
	return life->step == SNT__FENCE_MARKED;
}

void snt__fence_stop(struct snt_qp *qp)
{
	struct snt__failover *failover = qp->failover;

	snt__assert(qp->phase == SNT__PHASE_UP || qp->phase == SNT__PHASE_ARMED);
	snt__assert(!failover->due);
	if (qp->phase == SNT__PHASE_UP)
		failover->stopped_ns = snt__ctx_now_ns(qp->ctx);
	qp->phase = SNT__PHASE_DRAIN;
	qp->lanes_alive = 0;
	qp->lanes_ended = true;
	failover->suspends++;
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		struct snt__lane *lane = &qp->lane[i];
		struct snt__lane_life *life = snt__lane_life(lane);

		if (!lane->used)
			continue;
		lane->alive = false;
		lane->chained = 0; /* still in the FIFO, to be settled */
		life->cause = lane->cause;
		life->step = SNT__FENCE_NONE;
		life->send_due = life->recv_due = true;
		failover->due += 2;
	}
	for (uint32_t i = 0; i < qp->lane_count; i++)
		snt__lane_update(&qp->lane[i]);
	for (uint32_t i = 0; i < qp->lane_count; i++)
		if (qp->lane[i].used)
			push_fence(&qp->lane[i]);
	snt__check_update(qp);
	snt__recv_update(qp);
	snt__failover_notice(qp);
}

bool snt__fence_retry(struct snt_qp *qp)
{
	bool again = false;

	if (!snt__fence_is_due(qp))
		return false;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		if (qp->lane[i].used && snt__lane_life(&qp->lane[i])->send_due)
			again |= !push_fence(&qp->lane[i]);
	return again;
}

int snt__fence_close(struct snt__lane *lane)
{
	struct snt__lane_life *life = snt__lane_life(lane);

	if (!snt__fence_is_due(lane->owner) || !life->send_due || push_fence(lane) ||
	    life->step >= SNT__FENCE_IN_ERROR)
		return 0;
	return snt__fail(EIO, "%s: lane %u cannot go to ERR",
			 snt__lane_device(lane->owner, lane)->name, lane->index);
}

void snt__fence_take(struct snt__lane *lane, enum snt__queue queue)
{
	struct snt_qp *qp = lane->owner;
	struct snt__lane_life *life = snt__lane_life(lane);
	bool *due = queue == SNT__QUEUE_SEND ? &life->send_due : &life->recv_due;

	/* A device may complete a marker that it had refused as well. */
	if (!*due)
		return;
	*due = false;
	if (--qp->failover->due)
		return;
	qp->phase = SNT__PHASE_DRAINED;
	snt__failover_notice(qp);
}

void snt__failover_notice(struct snt_qp *qp)
{
	qp->failover->notice = true;
	qp->lanes_ended = true;
	snt__cq_ready(qp->cq, &qp->send_ready);
}

int snt__failover_report(struct snt_qp *qp, struct snt_wc *wc, int max)
{
	if (!max || !qp->failover->notice)
		return 0;
	qp->failover->notice = false;
	*wc = (struct snt_wc){ .qp_num = qp->num, .opcode = SNT_OP_RECEIPT };
	return 1;
}

void snt__failover_lane_failed(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	if (lane->cause.what == SNT_CAUSE_REFUSED)
		snt__lane_life(lane)->failed = true;
	if (qp->phase == SNT__PHASE_UP || qp->phase == SNT__PHASE_ARMED) {
		snt__cause_log_lane(lane);
		snt__fence_stop(qp);
	}
}

void snt__failover_recv_failed(struct snt_qp *qp, const struct snt__recv_ring *ring,
			       uint32_t position)
{
	const struct snt__recv *recv = &ring->recv[position & ring->mask];

	if (ring != &qp->data || recv->status == SNT_WC_FLUSHED)
		return;
	qp->failover->has_failed_send = true;
	qp->failover->failed_send = position;
}

void snt__failover_go_up(struct snt_qp *qp)
{
	struct snt__failover *failover = qp->failover;

	snt__assert(qp->phase == SNT__PHASE_ARMED);
	qp->phase = SNT__PHASE_UP;
	failover->suspended_ns += snt__ctx_now_ns(qp->ctx) - failover->stopped_ns;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		snt__lane_update(&qp->lane[i]);
	snt__check_update(qp);
	snt__cq_ready(qp->cq, &qp->send_ready);
}

void snt__failover_end(struct snt_qp *qp)
{
	if (qp->phase)
		snt__failover_notice(qp);
}
