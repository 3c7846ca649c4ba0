/* SPDX-License-Identifier: MIT */
#include "vqp/marker.h"

#include <errno.h>

#include "vqp/ready_list.h"

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
