/* SPDX-License-Identifier: MIT */
#include "vqp/lane_qp.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/cq.h"
#include "vqp/lane_set.h"
#include "vqp/options.h"
#include "vqp/srq.h"

static uint32_t lane_recv_depth(const struct snt_qp *qp, uint32_t lane)
{
	if (qp->pass_through)
		return qp->recv_depth;
	if (qp->scheme == SNT_SCHEME_DQPLB && lane < qp->data_lanes)
		return qp->lane_depth;
	/* With failover any data lane may be the one that takes messages. */
	if (lane == qp->message_lane || lane >= qp->data_lanes ||
	    qp->opts.flags & SNT_QP_FAILOVER)
		return qp->recv_depth;
	return 0;
}

uint32_t snt__lane_recv_room(const struct snt_qp *qp, uint32_t lane)
{
	return qp->srq ? 0 : lane_recv_depth(qp, lane) + SNT__MARKERS;
}

int snt__lane_create_qp(struct snt_qp *qp, struct snt__lane *lane)
{
	struct snt_device *device = qp->ctx->device[lane->device];
	uint32_t recv_depth = snt__lane_recv_room(qp, lane->index);
	struct ibv_qp_init_attr attr = {
		.send_cq = qp->cq->physical[lane->send_cq_index].cq,
		.recv_cq = qp->recv_cq->physical[lane->recv_cq_index].cq,
		.cap = { .max_send_wr = qp->lane_depth + SNT__MARKERS,
			 .max_recv_wr = recv_depth,
			 .max_send_sge = qp->send_sge_max,
			 .max_recv_sge = qp->srq ? 0 : qp->recv_sge_max,
			 .max_inline_data = qp->inline_max },
		.srq = qp->srq ? qp->srq->srq : NULL,
		.qp_type = IBV_QPT_RC,
	};
	int ret;

	if (!device->control.create_qp || !device->control.modify_qp)
		return snt__fail(EOPNOTSUPP,
				 "%s has no control table to create QPs with; adopt "
				 "them",
				 device->name);
	ret = device->control.create_qp(device->pd, &attr, &lane->qp);
	if (ret)
		return snt__fail(-ret,
				 "%s: no QP for lane %u, of %u sends and %u receives, "
				 "%u and %u SGEs, %u bytes inline: %s%s",
				 device->name, lane->index,
				 qp->lane_depth + SNT__MARKERS, recv_depth,
				 qp->send_sge_max, qp->recv_sge_max, qp->inline_max,
				 strerror(-ret),
				 /* The only limit that cannot be queried. */
				 ret == -EINVAL && qp->inline_max
					 ? "; try a smaller inline_max"
					 : "");
	return snt__qp_to_init(qp, lane);
}

int snt__lane_join_cqs(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret = snt__route_add(&qp->cq->route, lane->device, lane->qp->qp_num, lane);

	if (ret || qp->recv_cq == qp->cq)
		return ret;
	ret = snt__route_add(&qp->recv_cq->route, lane->device, lane->qp->qp_num, lane);
	if (ret)
		snt__route_remove(&qp->cq->route, lane->device, lane->qp->qp_num);
	return ret;
}

int snt__lane_make_qp(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret = snt__lane_create_qp(qp, lane);

	return ret ? ret : snt__lane_join_cqs(qp, lane);
}

void snt__lane_leave_routes(struct snt_qp *qp, const struct snt__lane *lane,
			    uint32_t qp_num)
{
	snt__route_remove(&qp->cq->route, lane->device, qp_num);
	if (qp->recv_cq != qp->cq)
		snt__route_remove(&qp->recv_cq->route, lane->device, qp_num);
}
