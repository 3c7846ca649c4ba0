/* SPDX-License-Identifier: MIT */
/*
 * Creating and destroying virtual QPs: options are checked against what the devices can
 * do, all rings come from one block, lanes are created, put into INIT and registered
 * with the virtual CQs. Any failure undoes all of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"
#include "util/opts.h"
#include "vqp/balance.h"
#include "vqp/close.h"
#include "vqp/cq.h"
#include "vqp/cq_create.h"
#include "vqp/cq_physical.h"
#include "vqp/failover_state.h"
#include "vqp/lane_qp.h"
#include "vqp/lane_set.h"
#include "vqp/layout.h"
#include "vqp/life.h"
#include "vqp/notify_length.h"
#include "vqp/options.h"
#include "vqp/qp.h"
#include "vqp/qp_num.h"
#include "vqp/ready_list.h"
#include "vqp/reset.h"
#include "vqp/srq.h"

/*
 * Lanes
 */

/* Which of the context's devices take part, in order. */
static unsigned list_wanted_devices(const struct snt_ctx *ctx, uint32_t wanted,
				    uint8_t *list)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ctx->device_count; i++)
		if (!wanted || wanted & (1u << i))
			list[count++] = i;
	return count;
}

static void deal_lanes(struct snt_qp *qp, const uint8_t *list, unsigned count)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		struct snt__lane *lane = &qp->lane[i];
		uint32_t turn = i < qp->data_lanes ? i : i - qp->data_lanes;

		lane->index = i;
		lane->owner = qp;
		lane->device = list[turn % count];
		if (qp->opts.lane_devices)
			lane->device = qp->opts.lane_devices[i];
		if (qp->adopted)
			lane->device = qp->opts.adopted_devices[i];
		lane->depth = qp->lane_depth;
		lane->flow_label = qp->opts.flow_labels
					   ? qp->opts.flow_labels[turn % qp->data_lanes]
					   : (qp->num * 64 + i) & SNT__FLOW_LABEL_MAX;
	}
}

static void unreserve_lane(struct snt_qp *qp, const struct snt__lane *lane)
{
	snt__cq_unreserve(qp->recv_cq, lane->recv_cq_index,
			  snt__lane_recv_room(qp, lane->index));
	snt__cq_unreserve(qp->cq, lane->send_cq_index, qp->lane_depth + SNT__MARKERS);
}

/* Completions of this QP number are strays from now on. */
static void leave_cqs(struct snt_qp *qp, const struct snt__lane *lane, uint32_t qp_num)
{
	snt__lane_leave_routes(qp, lane, qp_num);
	unreserve_lane(qp, lane);
}

/* Is a QP of the program's own on that device, and deep enough as far as can be
 * told? */
static int check_own(const struct snt_qp *qp, const struct snt__lane *lane,
		     struct ibv_qp *own)
{
	const struct snt_device *device = qp->ctx->device[lane->device];
	uint32_t sends = qp->lane_depth + SNT__MARKERS;
	uint32_t receives = snt__lane_recv_room(qp, lane->index);
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr attr;
	int ret;

	if (own->context != device->context)
		return snt__fail(EINVAL, "adopted lane %u is not of %s", lane->index,
				 device->name);
	if (!device->control.query_qp)
		return 0;
	ret = device->control.query_qp(own, &attr, IBV_QP_CAP, &init);
	if (ret)
		return snt__fail(-ret, "%s: adopted lane %u cannot be queried: %s",
				 device->name, lane->index, strerror(-ret));
	if (init.cap.max_send_wr < sends || init.cap.max_recv_wr < receives)
		return snt__fail(EINVAL,
				 "%s: adopted lane %u has room for %u sends and %u "
				 "receives, and needs %u and %u",
				 device->name, lane->index, init.cap.max_send_wr,
				 init.cap.max_recv_wr, sends, receives);
	return 0;
}

/* CQEs for sends that this lane and the later ones still need on its device: it goes
 * where all of them fit, so that physical CQs have whole QPs, which share their turns
 * alike. */
static uint32_t room_ahead(const struct snt_qp *qp, const struct snt__lane *lane)
{
	uint32_t room = 0;

	for (uint32_t i = lane->index; i < qp->lane_count; i++) {
		if (qp->lane[i].device != lane->device)
			continue;
		room += qp->lane_depth + SNT__MARKERS;
		if (qp->recv_cq == qp->cq && !qp->srq)
			room += snt__lane_recv_room(qp, i);
	}
	return room;
}

/* Where the previous lane on the same device is. */
static uint32_t neighbour_of(const struct snt_qp *qp, const struct snt__lane *lane)
{
	for (uint32_t i = lane->index; i-- > 0;)
		if (qp->lane[i].device == lane->device)
			return qp->lane[i].send_cq_index;
	return 0;
}

/* In a physical CQ that the virtual CQ chooses; in the QP's own if the QP is
 * adopted. */
static int reserve_in(struct snt_cq *cq, const struct snt__lane *lane,
		      const struct ibv_cq *own, uint32_t count, uint32_t room,
		      uint32_t hint, uint32_t *index_out)
{
	if (!own)
		return snt__cq_reserve(cq, lane->device, count, room, hint, index_out);
	if (snt__cq_find(cq, own, index_out))
		return snt__fail(EINVAL,
				 "adopted lane %u reports to a CQ that does not belong "
				 "to its virtual CQ",
				 lane->index);
	return snt__cq_reserve_at(cq, *index_out, count);
}

static int reserve_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	const uint32_t sends = qp->lane_depth + SNT__MARKERS;
	const uint32_t receives = snt__lane_recv_room(qp, lane->index);
	struct ibv_qp *own = qp->adopted ? qp->opts.adopted[lane->index] : NULL;
	uint32_t room = room_ahead(qp, lane);
	bool same = qp->recv_cq == qp->cq;
	int ret = own ? check_own(qp, lane, own) : 0;

	if (!ret)
		ret = reserve_in(qp->cq, lane, own ? own->send_cq : NULL, sends, room,
				 neighbour_of(qp, lane), &lane->send_cq_index);
	if (ret)
		return ret;
	if (qp->srq) {
		lane->recv_cq_index = qp->srq->cq_index;
		return 0;
	}
	ret = reserve_in(qp->recv_cq, lane, own ? own->recv_cq : NULL, receives,
			 same ? room - sends : receives, same ? lane->send_cq_index : 0,
			 &lane->recv_cq_index);
	if (ret)
		snt__cq_unreserve(qp->cq, lane->send_cq_index, sends);
	return ret;
}

/* After a failure there may be a QP, which destroy_lane() handles. */
static int open_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret = reserve_lane(qp, lane);

	if (ret)
		return ret;
	if (qp->adopted)
		lane->qp = qp->opts.adopted[lane->index];
	else
		ret = snt__lane_create_qp(qp, lane);
	if (!ret)
		ret = snt__lane_join_cqs(qp, lane);
	if (ret)
		unreserve_lane(qp, lane);
	return ret;
}

static int destroy_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	const struct snt_device *device = qp->ctx->device[lane->device];
	int ret = 0;

	if (lane->qp && !qp->adopted)
		ret = device->control.destroy_qp(lane->qp);
	if (ret)
		return snt__fail(-ret, "%s: lane %u cannot be destroyed: %s",
				 device->name, lane->index, strerror(-ret));
	lane->qp = NULL;
	return 0;
}

static int close_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	uint32_t qp_num = lane->qp ? lane->qp->qp_num : 0;
	bool has_qp = lane->qp;
	int ret = destroy_lane(qp, lane);

	if (ret)
		return ret;
	if (has_qp)
		snt__lane_leave_routes(qp, lane, qp_num);
	unreserve_lane(qp, lane);
	return 0;
}

/*
 * The whole
 */

/* How many lanes there are, and their roles. */
static int plan_lanes(struct snt_qp *qp, unsigned device_count)
{
	uint32_t given = qp->opts.adopted_count;
	uint32_t extra = 0;

	qp->pass_through = qp->opts.flags & SNT_QP_PASS_THROUGH;
	qp->data_lanes = qp->opts.lanes ? qp->opts.lanes : device_count;
	if (qp->adopted && !qp->opts.lanes)
		qp->data_lanes = given > 1 ? given - 1 : 1;
	if (qp->pass_through) {
		qp->data_lanes = 1;
	} else if (qp->scheme == SNT_SCHEME_DQPLB) {
		extra = 1;
		qp->message_lane = qp->data_lanes;
	} else {
		extra = qp->opts.notify_lanes;
		if (!extra)
			extra = device_count < qp->data_lanes ? device_count
							      : qp->data_lanes;
		if (qp->adopted)
			extra = given > qp->data_lanes ? given - qp->data_lanes : 1;
	}
	qp->lane_count = qp->data_lanes + extra;
	if (qp->lane_count > SNT_LANES_MAX)
		return snt__fail(EINVAL, "%u lanes are more than the %d of one QP",
				 qp->lane_count, SNT_LANES_MAX);
	if (qp->adopted && given != qp->lane_count)
		return snt__fail(
			EINVAL,
			"%u QPs were given where %u data lanes need %u in all%s", given,
			qp->data_lanes, qp->lane_count,
			given == 1 ? "; a single QP needs SNT_QP_PASS_THROUGH" : "");
	return 0;
}

/* What every lane can send in one piece. */
static uint32_t find_message_max(const struct snt_qp *qp)
{
	uint32_t least = 1u << 31;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		uint32_t max = snt__port(qp->ctx->device[qp->lane[i].device])
				       ->info.message_size_max;

		if (max && max < least)
			least = max;
	}
	return least;
}

static void leave_all(struct snt_qp *qp, uint32_t count)
{
	while (count--)
		leave_cqs(qp, &qp->lane[count], qp->lane[count].qp->qp_num);
}

static int open_lanes(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		int ret = open_lane(qp, &qp->lane[i]);

		if (ret) {
			leave_all(qp, i);
			return ret;
		}
	}
	return 0;
}

/* The mailbox comes last, so that no registration has to be undone, which a device
 * may refuse. */
static int open_all_lanes(struct snt_qp *qp)
{
	int ret = snt__balance_check(qp, &qp->opts);

	if (!ret)
		ret = snt__qp_begin(qp);
	if (!ret)
		ret = open_lanes(qp);
	if (ret)
		return ret;
	ret = snt__mailbox_open(qp);
	if (ret)
		leave_all(qp, qp->lane_count);
	return ret;
}

static int check_labels(const struct snt_qp *qp)
{
	const uint32_t *label = qp->opts.flow_labels;

	for (uint32_t i = 0; label && i < qp->data_lanes; i++)
		if (label[i] > SNT__FLOW_LABEL_MAX)
			return snt__fail(
				EINVAL,
				"snt_qp_opts.flow_labels[%u] is 0x%x, which is "
				"more than 20 bits",
				i, label[i]);
	return 0;
}

static int set_up_qp(struct snt_qp *qp)
{
	uint8_t devices[SNT_DEVICES_MAX];
	unsigned count = list_wanted_devices(qp->ctx, qp->opts.devices, devices);
	int ret = plan_lanes(qp, count);

	if (!ret)
		ret = check_labels(qp);
	for (unsigned i = 0; !ret && i < count; i++)
		ret = snt__qp_opts_fit(&qp->opts, qp->ctx->device[devices[i]]);
	for (size_t i = 0; !ret && i < qp->opts.adopted_count; i++)
		if (qp->opts.adopted_devices[i] >= qp->ctx->device_count ||
		    !qp->opts.adopted[i])
			ret = snt__fail(
				EINVAL,
				"adopted lane %zu is NULL or on no device of the "
				"context",
				i);
	for (uint32_t i = 0; !ret && qp->opts.lane_devices && i < qp->lane_count; i++)
		if (qp->opts.lane_devices[i] >= qp->ctx->device_count)
			ret = snt__fail(EINVAL, "lane %u is to be on device %u of %u",
					i, qp->opts.lane_devices[i],
					qp->ctx->device_count);
	if (ret)
		return ret;
	ret = snt__layout_allocate(qp);
	if (!ret)
		ret = snt__failover_create(qp);
	if (ret)
		return ret;
	deal_lanes(qp, devices, count);
	qp->message_max = find_message_max(qp);
	qp->extra = qp->lane + qp->data_lanes;
	qp->recv_batch = qp->lane_depth < 4 * SNT__CHAIN_MAX ? (qp->lane_depth + 3) / 4
							     : SNT__CHAIN_MAX;
	qp->lane[0].is_single = qp->pass_through;
	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		qp->lane[i].is_data = true;
		qp->lane[i].sequenced = qp->scheme == SNT_SCHEME_DQPLB;
	}
	return open_all_lanes(qp);
}

/* Destroys the QPs of a virtual QP that could not be created, and itself. */
static int finish_unmade(void *owner)
{
	struct snt_qp *qp = owner;

	for (; qp->lane_count; qp->lane_count--) {
		int ret = destroy_lane(qp, &qp->lane[qp->lane_count - 1]);

		if (ret)
			return ret;
	}
	snt__failover_free(qp);
	free(qp->memory);
	free(qp);
	return 0;
}

static void undo_qp(struct snt_qp *qp)
{
	struct snt__err_kept kept;

	snt__qp_num_release(qp->num);
	if (!qp->memory)
		qp->lane_count = 0;
	snt__err_keep(&kept);
	qp->deferred.home[0] = qp->cq;
	qp->deferred.home[1] = qp->recv_cq;
	if (finish_unmade(qp))
		snt__deferred_release_add(qp->ctx, &qp->deferred, finish_unmade, qp);
	snt__err_restore(&kept);
}

int snt_qp_create(struct snt_ctx *ctx, const struct snt_qp_opts *user_opts,
		  struct snt_qp **qp_out)
{
	struct snt_qp_opts opts;
	struct snt_qp *qp;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_qp_opts");
	if (ret)
		return ret;
	ret = snt__srq_settle(ctx, &opts);
	if (ret)
		return ret;
	snt__qp_opts_default(&opts);
	ret = snt__qp_opts_check(ctx, &opts);
	if (ret)
		return ret;
	qp = snt__lines_alloc(1, sizeof(*qp));
	if (!qp)
		return snt__fail(ENOMEM, "no memory for a virtual QP");
	qp->ctx = ctx;
	qp->opts = opts;
	qp->cq = opts.cq;
	qp->recv_cq = opts.recv_cq;
	qp->srq = opts.srq;
	qp->send_served = qp->cq->notify.served;
	qp->recv_served = qp->recv_cq->notify.served;
	qp->scheme = opts.scheme;
	qp->adopted = opts.adopted_count != 0;
	qp->depth = opts.send_depth;
	qp->lane_depth = opts.lane_depth;
	qp->recv_depth = opts.recv_depth;
	qp->send_sge_max = opts.send_sge_max;
	qp->recv_sge_max = opts.recv_sge_max;
	qp->inline_max = opts.inline_max;
	qp->num = snt__qp_num_take();
	qp->send_ready = (struct snt__ready){ .qp = qp };
	qp->recv_ready = (struct snt__ready){ .qp = qp, .receives = true };
	ret = qp->num ? set_up_qp(qp)
		      : snt__fail(ENOSPC, "all numbers of virtual QPs are in use");
	if (ret) {
		undo_qp(qp);
		return ret;
	}
	snt__balance_set(qp);
	if (qp->srq)
		qp->srq->qp_count++;
	qp->cq->qp_count++;
	if (qp->recv_cq != qp->cq)
		qp->recv_cq->qp_count++;
	snt__ctx_lock(ctx);
	ctx->count[SNT__CTX_QPS]++;
	snt__list_append(&ctx->qps, &qp->in_ctx);
	snt__ctx_unlock(ctx);
	*qp_out = qp;
	return 0;
}

int snt_qp_create_with_cq(struct snt_ctx *ctx, const struct snt_cq_opts *cq_opts,
			  const struct snt_qp_opts *user_opts, struct snt_cq **cq_out,
			  struct snt_qp **qp_out)
{
	struct snt_qp_opts opts;
	struct snt_cq *cq;
	int ret =
		snt__opts_import(&opts, sizeof(opts), user_opts, "struct snt_qp_opts");

	if (ret)
		return ret;
	if (opts.cq)
		return snt__fail(EINVAL, "snt_qp_opts.cq is set; use snt_qp_create()");
	ret = snt_cq_create(ctx, cq_opts, &cq);
	if (ret)
		return ret;
	opts.cq = cq;
	ret = snt_qp_create(ctx, &opts, qp_out);
	if (ret) {
		snt__cq_abandon(cq);
		return ret;
	}
	*cq_out = cq;
	return 0;
}

int snt_qp_destroy(struct snt_qp *qp)
{
	int ret;

	if (!qp)
		return 0;
	if (!snt__qp_is_over(qp))
		return snt__fail(EBUSY,
				 "QP %u is connected; close it, and poll until "
				 "SNT_OP_CLOSED",
				 qp->num);
	ret = snt__life_destroy_old(qp);
	if (ret)
		return ret;
	for (; qp->lane_count; qp->lane_count--) {
		ret = close_lane(qp, &qp->lane[qp->lane_count - 1]);
		if (ret)
			return ret;
	}
	ret = snt__mailbox_close(qp);
	if (ret)
		return ret;
	snt__qp_abandon(qp);
	snt__qp_leave_passing(qp);
	if (qp->srq)
		snt__srq_leave(qp);
	snt__cq_forget(qp->cq, &qp->send_ready);
	snt__cq_forget(qp->recv_cq, &qp->recv_ready);
	qp->cq->qp_count--;
	if (qp->recv_cq != qp->cq)
		qp->recv_cq->qp_count--;
	snt__ctx_lock(qp->ctx);
	qp->ctx->count[SNT__CTX_QPS]--;
	snt__unlink(&qp->in_ctx);
	snt__ctx_unlock(qp->ctx);
	snt__qp_num_release(qp->num);
	snt__failover_free(qp);
	free(qp->rkey);
	free(qp->memory);
	free(qp);
	return 0;
}
