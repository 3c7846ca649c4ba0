/* SPDX-License-Identifier: MIT */
#include "vqp/doubt.h"

#include "vqp/pass.h"

/* From now on each completion is looked at alone. */
static void begin(struct snt_qp *qp, uint32_t queue, uint32_t before)
{
	snt__pass_fail(qp);
	qp->lane->passes = false;
	qp->lanes_ended = true;
	qp->doubt.queue = queue;
	qp->doubt.before = before;
}

void snt__doubt_sends(struct snt_qp *qp, const struct ibv_send_wr *wr, unsigned count)
{
	struct snt__doubt *doubt = &qp->doubt;
	struct snt__lane *lane = qp->lane;
	uint32_t before = lane->run_tail - lane->run_head;

	for (unsigned i = 0; i < count; i++) {
		doubt->wr_id[doubt->count++] = wr[i].wr_id;
		before -= (wr[i].send_flags & IBV_SEND_SIGNALED) != 0;
	}
	begin(qp, 0, before);
	snt__lane_to_error(lane);
	snt__lane_mark(lane, SNT__MARKER_KILL);
}

void snt__doubt_recv(struct snt_qp *qp, uint64_t wr_id)
{
	struct snt__lane *lane = qp->lane;

	qp->doubt.wr_id[qp->doubt.count++] = wr_id;
	begin(qp, SNT__TAG_RECV, lane->recv_posted - lane->recv_retired - 1);
	snt__lane_mark_recv(lane, SNT__MARKER_KILL);
	snt__lane_to_error(lane);
}

/* Those before it that have not come were not signalled, and succeeded. */
void snt__doubt_see(struct snt__doubt *doubt, const struct ibv_wc *physical)
{
	uint32_t queue = physical->opcode & IBV_WC_RECV ? SNT__TAG_RECV : 0;

	if (physical->status == IBV_WC_SUCCESS && queue != doubt->queue)
		return;
	if (doubt->before) {
		doubt->before--;
		return;
	}
	for (unsigned i = doubt->settled; i < doubt->count; i++) {
		if (doubt->wr_id[i] != physical->wr_id)
			continue;
		doubt->settled = i + 1;
		return;
	}
}

void snt__doubt_end(struct snt_qp *qp, uint32_t queue)
{
	if (!qp->doubt.count || queue != qp->doubt.queue)
		return;
	qp->doubt.over = true;
	if (queue)
		snt__cq_ready(qp->recv_cq, &qp->recv_ready);
	else
		snt__cq_ready(qp->cq, &qp->send_ready);
}

int snt__doubt_report(struct snt_qp *qp, uint32_t queue, struct snt_wc *wc, int max)
{
	struct snt__doubt *doubt = &qp->doubt;
	int count = 0;

	while (count < max && snt__doubt_is_due(doubt, queue))
		wc[count++] = (struct snt_wc){ .wr_id = doubt->wr_id[doubt->settled++],
					       .qp_num = qp->num,
					       .status = SNT_FLUSHED,
					       .device = qp->lane->device };
	return count;
}
