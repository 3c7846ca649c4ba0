/* SPDX-License-Identifier: MIT */
#include "vqp/failure.h"

#include <errno.h>

#include "vqp/cause.h"
#include "vqp/fence.h"
#include "vqp/lane_set.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv_class.h"
#include "vqp/refusal.h"
#include "vqp/reorder.h"

static void end_dead_lane(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	if (!lane->alive)
		return;
	lane->alive = false;
	lane->chained = 0; /* still in the FIFO; the marker retires them */
	/* When the QP breaks, a loop that posts to all lanes goes through all of them. */
	if (lane->is_data && !qp->broken)
		snt__lane_leave_turns(lane);
	snt__lane_update(lane);
	qp->lanes_alive -= lane->is_data;
	snt__recv_update(qp);
	snt__lane_mark_recv(lane, SNT__MARKER_KILL);
	snt__lane_to_error(lane);
	snt__lane_mark(lane, SNT__MARKER_KILL);
}

void snt__lane_kill(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	if (qp->phase && !qp->broken) {
		snt__failover_lane_failed(lane);
		return;
	}
	if (!lane->alive)
		return;
	if (!qp->broken)
		snt__cause_log_lane(lane);
	end_dead_lane(lane);
	/* Only all notify lanes together complete a notification, so that they end
	 * together, and notifications with them. */
	for (unsigned i = 0; !lane->is_data && i < qp->notify_count; i++)
		end_dead_lane(qp->notifier[i]);
	/* A gap in a sequence cannot be repaired, and a QP without lanes is broken. */
	if (qp->broken || (qp->scheme != SNT_SCHEME_DQPLB && qp->lanes_alive))
		return;
	snt__cause_log_qp(qp);
	snt__qp_break(qp);
}

void snt__qp_break(struct snt_qp *qp)
{
	if (qp->broken)
		return;
	qp->broken = true;
	snt__qp_refuse(qp, -ESHUTDOWN);
	snt__recv_update(qp);
	if (qp->reorder)
		snt__dqplb_break(qp);
	for (uint32_t i = 0; i < qp->lane_count; i++)
		snt__lane_kill(&qp->lane[i]);
	snt__recv_flush(qp);
	snt__failover_end(qp);
	snt__cq_ready(qp->cq, &qp->send_ready);
	snt__cq_ready(qp->recv_cq, &qp->recv_ready);
	snt__qp_tell_broken(qp);
}

void snt__qp_break_for_peer(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	if (qp->broken)
		return;
	snt__cause_peer(lane);
	snt__cause_log_qp(qp);
	snt__qp_break(qp);
}

/* A QP with an error cannot be used any more; everything else that was posted is
 * flushed. */
void snt__passthrough_fail(struct snt_qp *qp)
{
	if (qp->lane->alive)
		snt__cause_log_lane(qp->lane);
	snt__passthrough_end(qp);
}

void snt__passthrough_end(struct snt_qp *qp)
{
	qp->lane->alive = false;
	qp->lanes_alive = 0;
	snt__qp_refuse(qp, -ESHUTDOWN);
	qp->data.refusal = -ESHUTDOWN;
	snt__qp_tell_broken(qp);
}
