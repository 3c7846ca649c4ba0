/* SPDX-License-Identifier: MIT */
/*
 * Closing: a marker at the end of each queue tells when the device has released
 * everything in it. Receive markers are posted first, because rxe does not flush what
 * is posted to a QP that is in ERR already.
 */
#include "vqp/close.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/cq.h"
#include "vqp/fence.h"
#include "vqp/lane_set.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv_class.h"
#include "vqp/refusal.h"
#include "vqp/reorder.h"
#include "vqp/send.h"

/*
 * The receives of a pass-through lane are not listed, so that there only the marker
 * tells when the last has come back: if the marker is refused, polling tries again,
 * once what is in its way has been flushed. Receives of other lanes end with their
 * sends. Those of an SRQ do not end with this QP.
 */
static void end_receives(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret;

	if (lane->marked)
		return;
	ret = qp->srq ? 0 : snt__lane_mark_recv(lane, SNT__MARKER_CLOSE);
	if (ret && !qp->pass_through)
		return;
	lane->wants_recv_marker = ret != 0;
	lane->marked = true;
	lane->recv_marker_due = true;
	qp->markers++;
}

static int end_connected_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret;

	if (lane->ended || !lane->used)
		return 0;
	if (snt__qp_is_between_lives(qp))
		return snt__fence_close(lane);
	end_receives(qp, lane);
	ret = snt__lane_to_error(lane);
	if (ret && ret != -EOPNOTSUPP)
		return snt__fail(-ret, "%s: lane %u cannot go to ERR: %s",
				 snt__lane_device(qp, lane)->name, lane->index,
				 strerror(-ret));
	lane->ended = true;
	lane->alive = false;
	lane->chained = 0;
	snt__lane_update(lane);
	lane->send_marker_due = true;
	qp->markers++;
	snt__lane_mark(lane, SNT__MARKER_CLOSE);
	return 0;
}

bool snt__qp_has_lost(const struct snt_qp *qp, enum snt__queue queue)
{
	const struct snt_cq *cq = queue == SNT__QUEUE_SEND ? qp->cq : qp->recv_cq;

	return qp->closing && cq->unpollable;
}

bool snt__qp_is_lost(const struct snt_qp *qp)
{
	return qp->closing &&
	       (!qp->all_ended || snt__qp_has_lost(qp, SNT__QUEUE_SEND) ||
		snt__qp_has_lost(qp, SNT__QUEUE_RECV));
}

static void leave_passing(const struct snt__passing *passing, uint32_t num)
{
	if (!passing)
		return;
	for (const struct snt_wc *wc = passing->next; wc < passing->end; wc++)
		if (wc->qp_num == num)
			passing->forget_qp(wc);
}

void snt__qp_leave_passing(const struct snt_qp *qp)
{
	leave_passing(qp->cq->notify.passing, qp->num);
	leave_passing(qp->recv_cq->notify.passing, qp->num);
}

int snt_qp_close(struct snt_qp *qp, uint64_t wr_id)
{
	return qp->send_served ? snt__qp_wants_ops(qp) : snt__qp_close(qp, wr_id);
}

int snt__qp_close(struct snt_qp *qp, uint64_t wr_id)
{
	int first = 0;

	if (!qp->connected)
		return snt__fail(ENOTCONN, "QP %u is not connected; destroy it",
				 qp->num);
	if (qp->all_ended)
		return snt__fail(EALREADY, "QP %u is being closed already", qp->num);
	qp->closing = true;
	qp->lane[0].passes = false;
	snt__qp_refuse(qp, -ESHUTDOWN);
	qp->close_wr_id = wr_id;
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		int ret = end_connected_lane(qp, &qp->lane[i]);

		if (ret && !first)
			first = ret;
	}
	qp->all_ended = !first;
	qp->lanes_alive = 0;
	qp->data.refusal = qp->notify.refusal = -ESHUTDOWN;
	if (!qp->pass_through) {
		qp->broken = true;
		if (qp->reorder)
			snt__dqplb_break(qp);
		snt__recv_flush(qp);
		snt__qp_dispatch(qp);
		snt__failover_end(qp);
		snt__cq_ready(qp->recv_cq, &qp->recv_ready);
	}
	snt__cq_ready(qp->cq, &qp->send_ready);
	return first;
}
