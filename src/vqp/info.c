/* SPDX-License-Identifier: MIT */
/* Queries of a virtual QP. */
#include <errno.h>

#include "util/err.h"
#include "util/opts.h"
#include "vqp/failover_state.h"
#include "vqp/failure.h"
#include "vqp/qp.h"

uint32_t snt_qp_num(const struct snt_qp *qp)
{
	return qp->num;
}

unsigned snt_qp_lane_count(const struct snt_qp *qp)
{
	return qp->data_lanes;
}

enum snt_scheme snt_qp_scheme(const struct snt_qp *qp)
{
	return qp->scheme;
}

static void add_life(const struct snt__lane *lane, struct snt_lane_info *info)
{
	const struct snt__lane_life *life;

	if (!lane->owner->failover)
		return;
	life = snt__lane_life(lane);
	info->lives = life->lives;
	info->last_cause = life->cause.what;
	info->last_status = life->cause.status;
	info->left_out = life->failed;
}

int snt_qp_query_lane(const struct snt_qp *qp, unsigned index,
		      struct snt_lane_info *info_out)
{
	const struct snt__lane *lane;
	struct snt__lane_stats stats = { 0 };
	struct snt_lane_info info;

	if (index >= qp->lane_count)
		return snt__fail(ENOENT, "QP %u has %u lanes, so none with number %u",
				 qp->num, qp->lane_count, index);
	lane = &qp->lane[index];
	if (lane->qp)
		snt__device_lane_stats(qp->ctx->device[lane->device], lane->qp, &stats);
	info = (struct snt_lane_info){
		.qp = lane->qp,
		.device = lane->device,
		.remote_device = lane->remote_device,
		.depth = lane->depth,
		.under_way = snt__lane_under_way(lane),
		.alive = lane->alive,
		.fragments = lane->fragments,
		.bytes = lane->bytes,
		.doorbells = lane->doorbells,
		.completions = lane->completions,
		.errors = lane->errors,
		.cause = lane->cause.what,
		.cause_status = lane->cause.status,
		.cause_vendor_err = lane->cause.vendor_err,
		.path = qp->connected && lane->used && lane->qp
				? snt__device_path(qp->ctx->device[lane->device],
						   lane->qp)
				: SNT_PATH_UNKNOWN,
		.resends = stats.resends,
		.timeouts = stats.timeouts,
		.duplicates = stats.duplicates,
		.out_of_order = stats.out_of_order,
		.round_trip_ns = stats.round_trip_ns,
		.window = stats.window,
	};
	add_life(lane, &info);
	return snt__info_export(info_out, &info, sizeof(info), "struct snt_lane_info");
}

static enum snt_qp_state qp_state(const struct snt_qp *qp)
{
	if (qp->closed_reported)
		return SNT_QP_CLOSED;
	if (qp->closing)
		return SNT_QP_CLOSING;
	if (!qp->connected)
		return SNT_QP_UNCONNECTED;
	if (snt__qp_is_broken(qp))
		return SNT_QP_BROKEN;
	return snt__qp_is_suspended(qp) ? SNT_QP_SUSPENDED : SNT_QP_CONNECTED;
}

static void add_up(const struct snt__lane *lane, struct snt_qp_info *info)
{
	info->under_way += snt__lane_under_way(lane);
	info->fragments += lane->fragments;
	info->bytes += lane->bytes;
	info->doorbells += lane->doorbells;
	info->completions += lane->completions;
	info->errors += lane->errors;
}

static void add_failover(const struct snt_qp *qp, struct snt_qp_info *info)
{
	const struct snt__failover *failover = qp->failover;

	if (!failover)
		return;
	info->failover = qp->phase != SNT__PHASE_NONE;
	info->life = failover->life;
	info->suspends = failover->suspends;
	info->resent_fragments = failover->resent_fragments;
	info->resent_bytes = failover->resent_bytes;
	info->indeterminate = failover->indeterminate;
	info->suspended_ns = failover->suspended_ns;
	if (snt__qp_is_suspended(qp) && !snt__qp_is_broken(qp))
		info->suspended_ns += snt__ctx_now_ns(qp->ctx) - failover->stopped_ns;
}

int snt_qp_query(const struct snt_qp *qp, struct snt_qp_info *info_out)
{
	struct snt_qp_info info = {
		.num = qp->num,
		.state = qp_state(qp),
		.scheme = qp->scheme,
		.balance = qp->opts.balance,
		.pass_through = qp->pass_through,
		.lanes = qp->data_lanes,
		.lanes_alive = qp->lanes_alive,
		.lane_count = qp->lane_count,
		.fragment_size = qp->fragment_size,
		.message_max = qp->message_max,
		.mtu = qp->mtu,
		.window = qp->peer_window,
		.generation = qp->generation,
		.sends = qp->tail - qp->head,
		.sends_waiting = qp->tail - qp->next + qp->notifies_due,
		.recvs = qp->data.tail - qp->data.head,
		.recv_notifies = qp->notify.tail - qp->notify.head,
		.express_max = qp->connected ? qp->express_max : 0,
		.cause = qp->cause.what,
		.cause_status = qp->cause.status,
		.cause_vendor_err = qp->cause.vendor_err,
		.cause_lane = qp->cause.lane,
		.cause_device = qp->cause.what ? qp->lane[qp->cause.lane].device : 0,
	};

	for (uint32_t i = 0; i < qp->lane_count; i++)
		add_up(&qp->lane[i], &info);
	add_failover(qp, &info);
	if (qp->pass_through)
		info.recvs = qp->lane[0].recv_posted - qp->lane[0].recv_retired;
	return snt__info_export(info_out, &info, sizeof(info), "struct snt_qp_info");
}
