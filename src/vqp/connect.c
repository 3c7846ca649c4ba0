/* SPDX-License-Identifier: MIT */
/*
 * Cards and connections. All lanes go through INIT, RTR and RTS; if one fails, all are
 * put back to where they were.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"
#include "util/minmax.h"
#include "vqp/card.h"
#include "vqp/connect.h"
#include "vqp/failover_state.h"
#include "vqp/lane_set.h"
#include "vqp/notify_length.h"
#include "vqp/qp.h"
#include "vqp/recv.h"
#include "vqp/refusal.h"
#include "vqp/spray.h"

#define READ_DEPTH_DEFAULT 16

static uint32_t own_mtu(const struct snt_qp *qp)
{
	uint32_t mtu = qp->opts.mtu ? qp->opts.mtu : 4096;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		uint32_t port = snt__port(snt__lane_device(qp, &qp->lane[i]))->info.mtu;

		if (port)
			mtu = snt__min(mtu, port);
	}
	return mtu;
}

/* READs that every lane's device can both answer and issue. */
static uint32_t own_read_depth(const struct snt_qp *qp)
{
	uint32_t depth = qp->opts.read_depth ? qp->opts.read_depth : READ_DEPTH_DEFAULT;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_device_info *info =
			&snt__port(snt__lane_device(qp, &qp->lane[i]))->info;

		if (info->read_in_max)
			depth = snt__min(depth, info->read_in_max);
		if (info->read_out_max)
			depth = snt__min(depth, info->read_out_max);
	}
	return depth;
}

static void describe_card_device(const struct snt_device *device,
				 struct snt_card_device *out)
{
	const struct snt__port *port = snt__port(device);

	out->lid = port->info.link == SNT_LINK_INFINIBAND ? port->info.lid : 0;
	out->link = port->info.link;
	if (port->gid_best < 0)
		return;
	out->gid_type = port->gid[port->gid_best].type;
	memcpy(out->gid, port->gid[port->gid_best].raw, sizeof(out->gid));
}

int snt_qp_card(const struct snt_qp *qp, struct snt_card *card_out)
{
	struct snt_card card = {
		.version = qp->failover ? SNT_CARD_VERSION_FAILOVER : SNT_CARD_VERSION,
		.qp_num = qp->num,
		.generation = qp->generation,
		.epoch = qp->epoch,
		.scheme = qp->scheme,
		.flags = qp->opts.flags & ~SNT_QP_STRICT,
		.read_depth = own_read_depth(qp),
		.mtu = own_mtu(qp),
		.lane_depth = qp->lane_depth,
		.recv_depth = qp->recv_depth,
		.window = qp->window,
		.fragment_size = qp->opts.fragment_size,
		.device_count = qp->ctx->device_count,
		.data_lanes = qp->extra - qp->lane, /* as created, whatever a peer
						     * has */
		.lane_count = qp->lane_count,
	};

	if (qp->connected && qp->failover)
		return snt__fail(EISCONN,
				 "QP %u is connected, and its lanes may have changed",
				 qp->num);
	for (unsigned i = 0; i < qp->ctx->device_count; i++) {
		if (!qp->ctx->device[i]->has_control)
			return snt__fail(EOPNOTSUPP,
					 "%s has no control table, so its address "
					 "is not known",
					 qp->ctx->device[i]->name);
		describe_card_device(qp->ctx->device[i], &card.device[i]);
	}
	for (uint32_t i = 0; i < qp->lane_count; i++)
		card.lane[i] = (struct snt_card_lane){ .qp_num = qp->lane[i].qp->qp_num,
						       .psn = qp->lane[i].psn,
						       .device = qp->lane[i].device };
	snt__mailbox_describe(qp, &card);
	*card_out = card;
	return 0;
}

/* Data lanes in order, then the lanes behind them in order. The end that has more leaves
 * some unused. */
const struct snt_card_lane *snt__lane_counterpart(const struct snt_qp *qp,
						  const struct snt__lane *lane,
						  const struct snt_card *peer)
{
	uint32_t extra = lane - qp->extra;

	if (lane->is_data)
		return lane->index < peer->data_lanes ? &peer->lane[lane->index] : NULL;
	return extra < peer->lane_count - peer->data_lanes
		       ? &peer->lane[peer->data_lanes + extra]
		       : NULL;
}

/* A notification on one NIC does not imply that another NIC's writes have arrived. */
static uint32_t count_unnotified(const struct snt_qp *qp, const struct snt_card *peer)
{
	uint32_t written = 0, notified = 0;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_card_lane *to =
			snt__lane_counterpart(qp, &qp->lane[i], peer);

		if (to)
			*(qp->lane[i].is_data ? &written : &notified) |= 1u
									 << to->device;
	}
	return __builtin_popcount(written & ~notified);
}

static int check_notifies(const struct snt_qp *qp, const struct snt_card *peer)
{
	uint32_t unnotified = count_unnotified(qp, peer);

	if (!unnotified)
		return 0;
	return snt__fail(EINVAL,
			 "%u of the peer's devices have data lanes but no notify lane, "
			 "whose completion would say nothing of them; set notify_lanes "
			 "to %u or more at both ends",
			 unnotified, peer->device_count);
}

static int check_peer(const struct snt_qp *qp, const struct snt_card *peer)
{
	const char *fault = snt__card_fault(peer);
	bool passes_on;

	if (fault)
		return snt__fail(EINVAL, "the peer's card is refused: %s", fault);
	if (peer->scheme != qp->scheme)
		return snt__fail(EINVAL, "the peer's scheme is %s, ours is %s",
				 peer->scheme == SNT_SCHEME_SPRAY ? "SPRAY" : "DQPLB",
				 qp->scheme == SNT_SCHEME_SPRAY ? "SPRAY" : "DQPLB");
	passes_on = peer->flags & SNT_QP_PASS_THROUGH;
	if (passes_on != qp->pass_through)
		return snt__fail(EINVAL,
				 "%s SNT_QP_PASS_THROUGH, and %s not; set it at both "
				 "ends, or at none",
				 passes_on ? "the peer has" : "we have",
				 passes_on ? "we have" : "the peer has");
	if (!qp->pass_through && qp->scheme == SNT_SCHEME_SPRAY)
		return check_notifies(qp, peer);
	if (peer->scheme == SNT_SCHEME_DQPLB && peer->lane_depth < 2)
		return snt__fail(EINVAL, "the peer's lane_depth is %u; DQPLB needs 2",
				 peer->lane_depth);
	return 0;
}

/* Lanes whose packets the peer could not decode. */
static int check_link(const struct snt_device *device, const struct snt_card *peer,
		      unsigned index)
{
	static const char *const links[] = { "nothing known", "InfiniBand",
					     "Ethernet" };
	static const char *const types[] = { "InfiniBand", "RoCE v1", "RoCE v2" };
	const struct snt_card_device *remote = &peer->device[index];
	struct snt_card_device ours = { 0 };

	describe_card_device(device, &ours);
	if (!ours.link || !remote->link)
		return 0;
	if (ours.link != remote->link)
		return snt__fail(EINVAL, "%s is on %s, and the peer's device %u on %s",
				 device->name, links[ours.link], index,
				 links[remote->link]);
	if (ours.link == SNT_LINK_ETHERNET && ours.gid_type != remote->gid_type)
		return snt__fail(EINVAL,
				 "%s has a %s address, and the peer's device %u one of "
				 "%s; choose GIDs with SENNIT_GID or snt_ctx_opts.gid",
				 device->name, types[ours.gid_type], index,
				 types[remote->gid_type]);
	return 0;
}

static int check_links(const struct snt_qp *qp, const struct snt_card *peer)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_card_lane *to =
			snt__lane_counterpart(qp, &qp->lane[i], peer);
		int ret = to ? check_link(snt__lane_device(qp, &qp->lane[i]), peer,
					  to->device)
			     : 0;

		if (ret)
			return ret;
	}
	return 0;
}

static void fill_address(const struct snt_qp *qp, const struct snt__lane *lane,
			 const struct snt_card_device *remote, struct ibv_ah_attr *ah)
{
	const struct snt_device *device = snt__lane_device(qp, lane);

	ah->port_num = device->number;
	ah->sl = qp->opts.service_level;
	ah->dlid = remote->lid;
	ah->is_global =
		snt__port(device)->gid_best >= 0 && remote->link != SNT_LINK_INFINIBAND;
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid.raw, remote->gid, sizeof(remote->gid));
	ah->grh.sgid_index = snt__port(device)->info.gid_index;
	ah->grh.hop_limit = qp->opts.hop_limit;
	ah->grh.traffic_class = qp->opts.traffic_class;
	ah->grh.flow_label = lane->flow_label;
}

int snt__lane_connect(struct snt_qp *qp, struct snt__lane *lane,
		      const struct snt_card *peer)
{
	const struct snt_control *control = &snt__lane_device(qp, lane)->control;
	const struct snt_card_lane *remote = snt__lane_counterpart(qp, lane, peer);
	uint32_t reads = snt__min(own_read_depth(qp), peer->read_depth);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = __builtin_ctz(qp->mtu) - 7, /* 256 is 1, 4096 is 5 */
		.dest_qp_num = remote->qp_num,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = qp->opts.rnr_timer,
	};
	int ret;

	fill_address(qp, lane, &peer->device[remote->device], &attr.ah_attr);
	ret = control->modify_qp(lane->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC |
					 IBV_QP_MIN_RNR_TIMER);
	if (ret)
		return snt__lane_fail_transition(qp, lane, "RTR", ret);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = lane->psn,
		.timeout = qp->opts.timeout,
		.retry_cnt = qp->opts.retry_count,
		.rnr_retry = qp->opts.rnr_retry_count,
		.max_rd_atomic = reads,
	};
	ret = control->modify_qp(lane->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC);
	if (ret)
		return snt__lane_fail_transition(qp, lane, "RTS", ret);
	return 0;
}

static void disconnect_lanes(struct snt_qp *qp)
{
	struct snt__err_kept kept;

	snt__err_keep(&kept);
	snt__qp_reset_lanes(qp);
	snt__err_restore(&kept);
}

static void use_common(struct snt_qp *qp, const struct snt_card *peer)
{
	snt__qp_use_lanes(qp, snt__min(qp->data_lanes, peer->data_lanes));
	qp->notify_count =
		snt__min(qp->notify_count, peer->lane_count - peer->data_lanes);
	snt__qp_use_notifiers(qp);
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		struct snt__lane *lane = &qp->lane[i];
		const struct snt_card_lane *remote =
			snt__lane_counterpart(qp, lane, peer);

		lane->used = lane->alive = remote != NULL;
		if (!remote)
			continue;
		/* DQPLB: no more in flight than the receiver has receives for. */
		lane->depth = snt__min(qp->lane_depth, peer->lane_depth);
		lane->remote_device = remote->device;
	}
	for (uint32_t i = 0; i < peer->device_count; i++)
		memcpy(qp->remote_gid[i], peer->device[i].gid,
		       sizeof(qp->remote_gid[i]));
}

/* Slots that keep keys copy four at once. */
static uint32_t key_stride_for(const struct snt_qp *qp, const struct snt_card *peer)
{
	uint32_t count = peer->device_count;

	return qp->failover ? (count + 3) / 4 * 4 : count;
}

/* Where values are negotiable, both ends take the smaller one. */
static int agree_with_peer(struct snt_qp *qp, const struct snt_card *peer)
{
	uint64_t ours = qp->opts.fragment_size;
	uint32_t stride = key_stride_for(qp, peer);
	uint32_t *rkey;
	int ret = snt__mailbox_agree(qp, peer);

	if (ret)
		return ret;
	if (!qp->pass_through) {
		rkey = snt__lines_alloc((size_t)(qp->mask + 1) * stride, sizeof(*rkey));
		if (!rkey)
			return snt__fail(ENOMEM,
					 "no memory for the keys of %u remote devices",
					 peer->device_count);
		free(qp->rkey);
		qp->rkey = rkey;
	}
	qp->remote_count = peer->device_count;
	qp->key_stride = stride;
	qp->fragment_size = peer->fragment_size < ours ? peer->fragment_size : ours;
	qp->peer_window = peer->window;
	qp->mtu = snt__min(own_mtu(qp), peer->mtu);
	use_common(qp, peer);
	return 0;
}

static int check_connect(const struct snt_qp *qp, const struct snt_card *peer)
{
	int ret = check_peer(qp, peer);

	if (ret)
		return ret;
	if (qp->connected)
		return snt__fail(EISCONN, "QP %u is connected already", qp->num);
	return 0;
}

/* Receives are posted first, before the peer can send anything. */
static int post_early_receives(struct snt_qp *qp)
{
	int ret = qp->pass_through ? 0 : snt__recv_post_all(qp);

	if (ret)
		return snt__fail(-ret, "QP %u: receives cannot be posted: %s", qp->num,
				 strerror(-ret));
	return 0;
}

static void start_lanes(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++)
		snt__lane_update(&qp->lane[i]);
	qp->lanes_alive = qp->data_lanes;
	snt__spray_update(qp);
	qp->connected = true;
	snt__qp_refuse(qp, 0);
}

static const char *path_text(enum snt_path path)
{
	return path == SNT_PATH_SHM    ? "shared memory"
	       : path == SNT_PATH_UDP  ? "UDP"
	       : path == SNT_PATH_PORT ? "its port"
				       : "an unknown path";
}

/* Data lanes of one device that have the same path. */
static uint32_t count_lanes(const struct snt_qp *qp, unsigned device,
			    enum snt_path path)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < qp->data_lanes; i++)
		count += qp->lane[i].device == device &&
			 snt__device_path(qp->ctx->device[device], qp->lane[i].qp) ==
				 path;
	return count;
}

/* "QP 7: connected: soft0 by shared memory (2 lanes), soft1 by UDP (1 lane)" */
static void log_paths(const struct snt_qp *qp)
{
	const struct snt__log *log = &qp->ctx->log;
	char text[384] = "";
	size_t used = 0;

	if (!log->fn || log->level < SNT_LOG_INFO)
		return;
	for (unsigned device = 0; device < qp->ctx->device_count; device++) {
		for (enum snt_path path = SNT_PATH_UNKNOWN; path <= SNT_PATH_SHM;
		     path++) {
			uint32_t count = count_lanes(qp, device, path);

			if (count && used < sizeof(text))
				used += snprintf(text + used, sizeof(text) - used,
						 "%s%s by %s (%u lane%s)",
						 used ? ", " : "",
						 qp->ctx->device[device]->name,
						 path_text(path), count,
						 count == 1 ? "" : "s");
		}
	}
	snt__log(log, SNT_LOG_INFO, "QP %u: connected: %s", qp->num, text);
}

int snt_qp_connect(struct snt_qp *qp, const struct snt_card *peer)
{
	int ret = check_connect(qp, peer);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		if (!snt__lane_device(qp, &qp->lane[i])->control.modify_qp)
			return snt__fail(
				EOPNOTSUPP,
				"%s has no control table to connect with; connect its "
				"lanes yourself and use snt_qp_connect_adopted()",
				snt__lane_device(qp, &qp->lane[i])->name);
	ret = check_links(qp, peer);
	if (ret)
		return ret;
	ret = qp->untidy ? snt__qp_reset_lanes(qp) : 0;
	if (!ret)
		ret = agree_with_peer(qp, peer);
	if (ret)
		return ret;
	ret = post_early_receives(qp);
	for (uint32_t i = 0; !ret && i < qp->lane_count; i++)
		if (qp->lane[i].used)
			ret = snt__lane_connect(qp, &qp->lane[i], peer);
	if (ret) {
		disconnect_lanes(qp);
		return ret;
	}
	start_lanes(qp);
	snt__failover_agree(qp, peer);
	log_paths(qp);
	return 0;
}

int snt_qp_connect_adopted(struct snt_qp *qp, const struct snt_card *peer)
{
	int ret = check_connect(qp, peer);

	if (!ret)
		ret = agree_with_peer(qp, peer);
	if (ret)
		return ret;
	ret = post_early_receives(qp);
	if (ret)
		snt__qp_forget_receives(qp);
	else
		start_lanes(qp);
	return ret;
}
