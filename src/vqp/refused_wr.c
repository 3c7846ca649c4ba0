/* SPDX-License-Identifier: MIT */
#include "vqp/refused_wr.h"

#include "vqp/cause.h"
#include "vqp/failure.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/ring.h"

static void give_up_passthrough(struct snt_qp *qp, int err)
{
	snt__cause_refused(qp->lane, err);
	snt__passthrough_fail(qp);
	qp->lane->passes = false; /* each completion is handled alone */
	qp->lanes_ended = true;
}

void snt__refused_wr_sends(struct snt_qp *qp, uint32_t first, int err)
{
	qp->doubt.first = first;
	qp->doubt.sends = true;
	give_up_passthrough(qp, err);
	snt__lane_to_error(qp->lane);
	snt__lane_mark(qp->lane, SNT__MARKER_KILL);
}

void snt__refused_wr_recv(struct snt_qp *qp, int err)
{
	give_up_passthrough(qp, err);
	snt__lane_mark_recv(qp->lane, SNT__MARKER_KILL);
	snt__lane_to_error(qp->lane);
}

void snt__refused_wr_end(struct snt_qp *qp, enum snt__queue queue)
{
	struct snt__lane *lane = qp->lane;

	if (queue == SNT__QUEUE_RECV) {
		qp->doubt.recvs_ended = true;
		snt__cq_ready(qp->recv_cq, &qp->recv_ready);
		return;
	}
	qp->doubt.sends_ended = true;
	if (qp->doubt.sends && snt__before(lane->retired, qp->doubt.first))
		lane->retired = qp->doubt.first;
	snt__cq_ready(qp->cq, &qp->send_ready);
}

static bool has_sends(const struct snt_qp *qp)
{
	return qp->doubt.sends && qp->lane->retired != qp->lane->built;
}

static bool has_recvs(const struct snt_qp *qp)
{
	return qp->pass_through && qp->lane->recv_retired != qp->lane->recv_posted;
}

bool snt__refused_wr_is_due(const struct snt_qp *qp, enum snt__queue queue)
{
	return queue == SNT__QUEUE_RECV ? qp->doubt.recvs_ended && has_recvs(qp)
					: qp->doubt.sends_ended && has_sends(qp);
}

bool snt__refused_wr_is_settled(const struct snt_qp *qp)
{
	return !has_sends(qp) && !has_recvs(qp);
}

int snt__refused_wr_report(struct snt_qp *qp, enum snt__queue queue, struct snt_wc *wc,
			   int max)
{
	struct snt__lane *lane = qp->lane;
	uint32_t *oldest =
		queue == SNT__QUEUE_RECV ? &lane->recv_retired : &lane->retired;
	int count;

	for (count = 0; count < max && snt__refused_wr_is_due(qp, queue); count++) {
		uint64_t wr_id = snt__qp_id(qp, queue, (*oldest)++);

		wc[count] = (struct snt_wc){ .wr_id = wr_id,
					     .qp_num = qp->num,
					     .status = SNT_WC_FLUSHED,
					     .device = lane->device };
		snt__qp_tell_cause(qp, &wc[count]);
	}
	return count;
}
