/* SPDX-License-Identifier: MIT */
/*
 * Posting, and handling refusals by a device. A post that fails may have taken none,
 * some or all of its chain, and bad_wr may be wrong.
 */
#include "vqp/lane.h"

#include <errno.h>
#include <string.h>

#include "vqp/qp.h"
#include "vqp/ready_list.h"

void snt__lane_update(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	lane->limit = lane->alive ? lane->depth : 0;
	qp->lane_limit = UINT32_MAX;
	for (uint32_t i = 0; i < qp->data_lanes; i++)
		if (qp->lane[i].limit < qp->lane_limit)
			qp->lane_limit = qp->lane[i].limit;
}

int snt__lane_to_error(struct snt__lane *lane)
{
	const struct snt_device *device = lane->owner->ctx->device[lane->device];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (!device->has_control || !device->control.modify_qp)
		return -EOPNOTSUPP;
	return device->control.modify_qp(lane->qp, &attr, IBV_QP_STATE);
}

void snt__lane_mark(struct snt__lane *lane, enum snt__marker marker)
{
	struct ibv_send_wr wr = {
		.wr_id = snt__wr_id(lane->tag | SNT__TAG_MARKER, marker),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	lane->owner->lanes_ended = true;
	lane->wants_marker = ibv_post_send(lane->qp, &wr, &bad) != 0;
	/* Only polling can retry, so it must visit this QP. */
	if (lane->wants_marker)
		snt__cq_ready(lane->owner->cq, &lane->owner->send_ready);
}

int snt__lane_mark_recv(struct snt__lane *lane, enum snt__marker marker)
{
	uint32_t tag = lane->tag | SNT__TAG_MARKER | SNT__TAG_RECV;
	struct ibv_recv_wr wr = { .wr_id = snt__wr_id(tag, marker) };
	struct ibv_recv_wr *bad;

	return -ibv_post_recv(lane->qp, &wr, &bad);
}

static void end_dead_lane(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;

	if (!lane->alive)
		return;
	lane->alive = false;
	lane->chained = 0; /* still in the FIFO; the marker retires them */
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

	if (!lane->alive)
		return;
	if (!qp->broken)
		snt__cause_log_lane(lane);
	end_dead_lane(lane);
	/* Only all notify lanes together complete a notification, so that they end
	 * together, and notifications with them. */
	for (unsigned i = 0; !lane->is_data && i < qp->notify_count; i++)
		end_dead_lane(&qp->extra[i]);
	/* A gap in a sequence cannot be repaired, and a QP without lanes is broken. */
	if (qp->broken || (qp->scheme != SNT_SCHEME_DQPLB && qp->lanes_alive))
		return;
	snt__cause_log_qp(qp);
	snt__qp_break(qp);
}

/* Moves the rest of a chain to its front, each with its SGEs. */
static void drop_front(struct snt__lane *lane, uint32_t count)
{
	for (uint32_t i = count; i < lane->chained; i++) {
		struct ibv_send_wr *to = &lane->chain[i - count],
				   *from = &lane->chain[i];
		struct ibv_send_wr *next = to->next;
		struct ibv_sge *sge = to->sg_list;

		memcpy(sge, from->sg_list, from->num_sge * sizeof(*sge));
		*to = *from;
		to->next = next;
		to->sg_list = sge;
	}
	lane->chained -= count;
}

/* How many of the chain the device took, as far as bad_wr can be trusted. */
static uint32_t taken_by_device(const struct snt__lane *lane,
				const struct ibv_send_wr *bad)
{
	if (bad < lane->chain || bad >= lane->chain + lane->chained)
		return 0;
	return bad - lane->chain;
}

/*
 * Part of a chain was taken: the rest follows, beginning with a signalled WR, so
 * that those which went unsignalled are reported. Nothing was taken, or so it
 * seems: queues are never full by our own count, so something is wrong, and some
 * devices say this after having queued all of it. Posting again could send twice;
 * the lane is given up.
 */
void snt__lane_refused(struct snt__lane *lane, struct ibv_send_wr *bad)
{
	uint32_t count;

	while ((count = taken_by_device(lane, bad))) {
		drop_front(lane, count);
		lane->chain[0].send_flags |= IBV_SEND_SIGNALED;
		if (!snt__lane_post(lane, snt__lane_last(lane), &bad)) {
			lane->chained = 0;
			return;
		}
	}
	snt__cause_refused(lane, 0);
	snt__lane_kill(lane);
}
