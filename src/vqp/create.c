/* SPDX-License-Identifier: MIT */
/*
 * Making and unmaking virtual QPs: options are checked against what the devices
 * can do, all rings come from one block, lanes are created, put into INIT and
 * made known to the virtual CQs. Whatever fails undoes all of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/opts.h"
#include "vqp/cq.h"
#include "vqp/check.h"
#include "vqp/layout.h"
#include "vqp/qp.h"

/* In each queue of a lane, beyond what the program posts: one when the lane dies
 * and one when the QP is closed. */
#define MARKERS 2

static atomic_uint next_num;

/*
 * Options
 */

#define DEFAULT(field, value) ((field) ? (field) : (value))

static void set_defaults(struct snt_qp_opts *opts)
{
	opts->recv_cq = DEFAULT(opts->recv_cq, opts->cq);
	opts->scheme = DEFAULT(opts->scheme, SNT_SPRAY);
	opts->lane_depth = DEFAULT(opts->lane_depth, 128);
	opts->send_depth = DEFAULT(opts->send_depth, 256);
	opts->recv_depth = DEFAULT(opts->recv_depth, 128);
	opts->send_sge_max = DEFAULT(opts->send_sge_max, 1);
	opts->recv_sge_max = DEFAULT(opts->recv_sge_max, 1);
	opts->fragment_size = DEFAULT(opts->fragment_size, UINT64_C(1) << 20);
	opts->hop_limit = DEFAULT(opts->hop_limit, 64);
	opts->timeout = DEFAULT(opts->timeout, 14);
	opts->retry_count = DEFAULT(opts->retry_count, 7);
	opts->rnr_retry_count = DEFAULT(opts->rnr_retry_count, 7);
	opts->rnr_timer = DEFAULT(opts->rnr_timer, 12);
}

/* A table of what each option may be; snt_qp_opts.flags and the like are apart. */
struct range {
	const char *option;
	uint64_t value, low, high;
};

static int check_ranges(const struct range *range, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (range[i].value < range[i].low || range[i].value > range[i].high)
			return snt__fail(EINVAL,
					 "snt_qp_opts.%s is %" PRIu64
					 "; it must be from %" PRIu64 " to %" PRIu64,
					 range[i].option, range[i].value, range[i].low,
					 range[i].high);
	return 0;
}

static int check_opts(const struct snt_ctx *ctx, const struct snt_qp_opts *opts)
{
	const struct range ranges[] = {
		{ "scheme", opts->scheme, SNT_SPRAY, SNT_DQPLB },
		{ "flags", opts->flags, 0, SNT_QP_TRACKED },
		{ "lanes", opts->lanes, 0, 128 },
		/* A sequenced fragment and its raw immediate go together. */
		{ "lane_depth", opts->lane_depth, opts->scheme == SNT_DQPLB ? 2 : 1,
		  32768 },
		{ "send_depth", opts->send_depth, 1, 1 << 20 },
		{ "recv_depth", opts->recv_depth, 1, 32768 },
		{ "send_sge_max", opts->send_sge_max, 1, 16 },
		{ "recv_sge_max", opts->recv_sge_max, 1, 16 },
		{ "inline_max", opts->inline_max, 0, 4096 },
		{ "fragment_size", opts->fragment_size, 256, UINT64_C(1) << 31 },
		{ "mtu", opts->mtu, 0, 4096 },
		{ "timeout", opts->timeout, 1, 31 },
		{ "retry_count", opts->retry_count, 1, 7 },
		{ "rnr_retry_count", opts->rnr_retry_count, 1, 7 },
		{ "rnr_timer", opts->rnr_timer, 1, 31 },
	};
	int ret;

	if (!opts->cq || opts->cq->ctx != ctx || opts->recv_cq->ctx != ctx)
		return snt__fail(EINVAL,
				 "snt_qp_opts.cq is NULL or of another context");
	ret = check_ranges(ranges, sizeof(ranges) / sizeof(ranges[0]));
	if (ret)
		return ret;
	if (opts->fragment_size % 64)
		return snt__fail(EINVAL,
				 "snt_qp_opts.fragment_size %" PRIu64
				 " is not a multiple of 64",
				 opts->fragment_size);
	if (opts->mtu & (opts->mtu - 1) || (opts->mtu && opts->mtu < 256))
		return snt__fail(EINVAL,
				 "snt_qp_opts.mtu %u is none of 256, 512, 1024, 2048, "
				 "4096",
				 opts->mtu);
	if (opts->adopted_count && (!opts->adopted || !opts->adopted_devices))
		return snt__fail(EINVAL,
				 "%zu adopted QPs are announced, but the QPs or their "
				 "devices are NULL",
				 opts->adopted_count);
	if (ctx->device_count < 32 && opts->devices >> ctx->device_count)
		return snt__fail(EINVAL,
				 "snt_qp_opts.devices 0x%x names devices beyond the %u "
				 "of the context",
				 opts->devices, ctx->device_count);
	return 0;
}

static int beyond(const struct snt_device *device, const char *option, uint64_t value,
		  uint64_t limit)
{
	return snt__fail(EINVAL,
			 "%s: %s %" PRIu64 " is beyond the device's limit of %" PRIu64,
			 device->name, option, value, limit);
}

/* A limit of 0 is one that is not known. */
static int check_device(const struct snt_device *device, const struct snt_qp_opts *opts)
{
	const struct snt_device_info *info = &device->port.info;

	if (info->message_size_max && opts->fragment_size > info->message_size_max)
		return beyond(device, "fragment_size", opts->fragment_size,
			      info->message_size_max);
	if (info->qp_depth_max && opts->lane_depth + MARKERS > info->qp_depth_max)
		return beyond(device, "lane_depth (and 2)", opts->lane_depth + MARKERS,
			      info->qp_depth_max);
	if (info->qp_depth_max && opts->recv_depth + MARKERS > info->qp_depth_max)
		return beyond(device, "recv_depth (and 2)", opts->recv_depth + MARKERS,
			      info->qp_depth_max);
	if (info->qp_sge_max && opts->send_sge_max > info->qp_sge_max)
		return beyond(device, "send_sge_max", opts->send_sge_max,
			      info->qp_sge_max);
	if (info->qp_sge_max && opts->recv_sge_max > info->qp_sge_max)
		return beyond(device, "recv_sge_max", opts->recv_sge_max,
			      info->qp_sge_max);
	return 0;
}

/*
 * Lanes
 */

/* Which of the context's devices take part, in order. */
static unsigned list_devices(const struct snt_ctx *ctx, uint32_t wanted, uint8_t *list)
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
		lane->device =
			qp->adopted ? qp->opts.adopted_devices[i] : list[turn % count];
		lane->depth = qp->lane_depth;
		lane->flow_label = qp->opts.flow_labels ? qp->opts.flow_labels[i]
							: (qp->num * 64 + i) & 0xfffff;
	}
}

/* Where each lane begins to count packets. Chosen by chance, so that packets of an
 * earlier connection, or of a forger, are unlikely to fit. */
static int choose_psns(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		uint32_t psn;
		int ret = snt__ctx_random(qp->ctx, &psn, sizeof(psn));

		if (ret)
			return snt__fail(-ret, "no random numbers: %s", strerror(-ret));
		qp->lane[i].psn = psn & 0xffffff;
	}
	return 0;
}

static uint32_t lane_recv_depth(const struct snt_qp *qp, uint32_t lane)
{
	if (qp->pass_through)
		return qp->recv_depth;
	if (qp->scheme == SNT_DQPLB && lane < qp->data_lanes)
		return qp->lane_depth;
	if (lane == qp->message_lane || lane >= qp->data_lanes)
		return qp->recv_depth;
	return 0;
}

static int create_qp(struct snt_qp *qp, struct snt__lane *lane)
{
	struct snt_device *device = qp->ctx->device[lane->device];
	uint32_t recv_depth = lane_recv_depth(qp, lane->index);
	struct ibv_qp_init_attr attr = {
		.send_cq = qp->cq->physical[lane->send_cq_index].cq,
		.recv_cq = qp->recv_cq->physical[lane->recv_cq_index].cq,
		.cap = { .max_send_wr = qp->lane_depth + MARKERS,
			 .max_recv_wr = recv_depth + MARKERS,
			 .max_send_sge = qp->send_sge_max,
			 .max_recv_sge = qp->recv_sge_max,
			 .max_inline_data = qp->inline_max },
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
		return snt__fail(-ret, "%s: no QP for lane %u: %s", device->name,
				 lane->index, strerror(-ret));
	/* Nobody counts what is posted to a lane that passes WRs on, so that the
	 * device's idea of its depth is what limits it. */
	if (qp->pass_through && attr.cap.max_send_wr > lane->send_room) {
		lane->send_room = attr.cap.max_send_wr;
		return -EAGAIN;
	}
	return snt__qp_to_init(qp, lane);
}

/* -EAGAIN: it needs more room in the CQ, which is in send_room now. */
static int try_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	uint32_t send_room = lane->send_room;
	int ret =
		snt__cq_reserve(qp->cq, lane->device, send_room, &lane->send_cq_index);

	if (ret)
		return ret;
	ret = snt__cq_reserve(qp->recv_cq, lane->device, lane->recv_room,
			      &lane->recv_cq_index);
	if (ret)
		goto err_send;
	if (qp->adopted)
		lane->qp = qp->opts.adopted[lane->index];
	else
		ret = create_qp(qp, lane);
	if (ret)
		goto err_recv;
	ret = snt__route_add(&qp->cq->route, lane->device, lane->qp->qp_num, lane);
	if (ret)
		goto err_recv;
	if (qp->recv_cq == qp->cq)
		return 0;
	ret = snt__route_add(&qp->recv_cq->route, lane->device, lane->qp->qp_num, lane);
	if (!ret)
		return 0;
	snt__route_remove(&qp->cq->route, lane->device, lane->qp->qp_num);
err_recv:
	if (lane->qp && !qp->adopted)
		qp->ctx->device[lane->device]->control.destroy_qp(lane->qp);
	lane->qp = NULL;
	snt__cq_unreserve(qp->recv_cq, lane->recv_cq_index, lane->recv_room);
err_send:
	snt__cq_unreserve(qp->cq, lane->send_cq_index, send_room);
	return ret;
}

static int open_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret;

	lane->send_room = qp->lane_depth + MARKERS;
	lane->recv_room = lane_recv_depth(qp, lane->index) + MARKERS;
	do
		ret = try_lane(qp, lane);
	while (ret == -EAGAIN);
	return ret;
}

static int close_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	const struct snt_device *device = qp->ctx->device[lane->device];
	uint32_t qp_num = lane->qp->qp_num;
	int ret = qp->adopted ? 0 : device->control.destroy_qp(lane->qp);

	if (ret)
		return snt__fail(-ret, "%s: lane %u cannot be destroyed: %s",
				 device->name, lane->index, strerror(-ret));
	snt__route_remove(&qp->cq->route, lane->device, qp_num);
	if (qp->recv_cq != qp->cq)
		snt__route_remove(&qp->recv_cq->route, lane->device, qp_num);
	snt__cq_unreserve(qp->recv_cq, lane->recv_cq_index, lane->recv_room);
	snt__cq_unreserve(qp->cq, lane->send_cq_index, lane->send_room);
	return 0;
}

/* Generation and lane, so that a CQE of an earlier life is recognised. */
void snt__qp_retag(struct snt_qp *qp)
{
	static atomic_uint generation;
	uint32_t fresh = atomic_fetch_add(&generation, 1) << 8;

	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->lane[i].tag = (fresh | i) & ~(SNT__TAG_RECV | SNT__TAG_MARKER);
}

/*
 * The whole
 */

/* How many lanes, and which of them for what. */
static int plan(struct snt_qp *qp, unsigned device_count)
{
	uint32_t given = qp->opts.adopted_count;
	uint32_t extra = 0;

	qp->data_lanes = qp->opts.lanes ? qp->opts.lanes : device_count;
	if (qp->adopted && !qp->opts.lanes)
		qp->data_lanes = given > 1 ? given - 1 : 1;
	qp->pass_through = qp->data_lanes == 1 && !(qp->opts.flags & SNT_QP_TRACKED);
	if (!qp->pass_through && qp->scheme == SNT_DQPLB) {
		extra = 1;
		qp->message_lane = qp->data_lanes;
	} else if (!qp->pass_through) {
		extra = device_count < qp->data_lanes ? device_count : qp->data_lanes;
		if (qp->adopted)
			extra = given > qp->data_lanes ? given - qp->data_lanes : 1;
		qp->notify_count = extra;
	}
	qp->lane_count = qp->data_lanes + extra;
	if (qp->lane_count > SNT_LANES_MAX)
		return snt__fail(EINVAL, "%u lanes are more than the %d of one QP",
				 qp->lane_count, SNT_LANES_MAX);
	if (qp->adopted && given != qp->lane_count)
		return snt__fail(EINVAL,
				 "%u QPs were given where %u data lanes need %u in all",
				 given, qp->data_lanes, qp->lane_count);
	return 0;
}

/* What every lane can send in one piece. */
static uint32_t find_message_max(const struct snt_qp *qp)
{
	uint32_t least = 1u << 31;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		uint32_t max =
			qp->ctx->device[qp->lane[i].device]->port.info.message_size_max;

		if (max && max < least)
			least = max;
	}
	return least;
}

static int open_lanes(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		int ret = open_lane(qp, &qp->lane[i]);

		if (!ret)
			continue;
		while (i--)
			close_lane(qp, &qp->lane[i]);
		return ret;
	}
	return 0;
}

static int set_up(struct snt_qp *qp)
{
	uint8_t devices[SNT_DEVICES_MAX];
	unsigned count = list_devices(qp->ctx, qp->opts.devices, devices);
	int ret = plan(qp, count);

	for (unsigned i = 0; !ret && i < count; i++)
		ret = check_device(qp->ctx->device[devices[i]], &qp->opts);
	for (size_t i = 0; !ret && i < qp->opts.adopted_count; i++)
		if (qp->opts.adopted_devices[i] >= qp->ctx->device_count ||
		    !qp->opts.adopted[i])
			ret = snt__fail(
				EINVAL,
				"adopted lane %zu is NULL or on no device of the "
				"context",
				i);
	if (ret)
		return ret;
	ret = snt__layout_allocate(qp);
	if (ret)
		return ret;
	deal_lanes(qp, devices, count);
	qp->message_max = find_message_max(qp);
	qp->simple_max = SNT__SIMPLE_MAX;
	if (qp->pass_through && qp->message_max < qp->simple_max)
		qp->simple_max = qp->message_max;
	qp->turn = qp->lane;
	qp->recv_batch = qp->lane_depth < 4 * SNT__CHAIN_MAX ? (qp->lane_depth + 3) / 4
							     : SNT__CHAIN_MAX;
	qp->lane[0].is_single = qp->pass_through;
	qp->lane[0].passes = qp->pass_through;
	for (uint32_t i = 0; i < qp->data_lanes; i++)
		qp->lane[i].sequenced = qp->scheme == SNT_DQPLB;
	snt__qp_retag(qp);
	ret = choose_psns(qp);
	if (!ret)
		ret = open_lanes(qp);
	if (ret)
		free(qp->memory);
	return ret;
}

int snt_qp_create(struct snt_ctx *ctx, const struct snt_qp_opts *user_opts,
		  struct snt_qp **qp_out)
{
	struct snt_qp_opts opts;
	struct snt_qp *qp;
	int ret =
		snt__opts_import(&opts, sizeof(opts), user_opts, "struct snt_qp_opts");

	if (ret)
		return ret;
	set_defaults(&opts);
	ret = check_opts(ctx, &opts);
	if (ret)
		return ret;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return snt__fail(ENOMEM, "no memory for a virtual QP");
	qp->ctx = ctx;
	qp->opts = opts;
	qp->cq = opts.cq;
	qp->recv_cq = opts.recv_cq;
	qp->scheme = opts.scheme;
	qp->adopted = opts.adopted_count != 0;
	qp->depth = opts.send_depth;
	qp->lane_depth = opts.lane_depth;
	qp->recv_depth = opts.recv_depth;
	qp->send_sge_max = opts.send_sge_max;
	qp->recv_sge_max = opts.recv_sge_max;
	qp->inline_max = opts.inline_max;
	qp->fragment_size = opts.fragment_size;
	qp->remote_count = 1;
	qp->refusal = -ENOTCONN;
	qp->num = 1 + atomic_fetch_add(&next_num, 1) % 0xffffff;
	qp->send_ready = (struct snt__ready){ .qp = qp };
	qp->recv_ready = (struct snt__ready){ .qp = qp, .receives = true };
	ret = snt__ctx_random(ctx, &qp->generation, sizeof(qp->generation));
	if (ret)
		ret = snt__fail(-ret, "no random numbers: %s", strerror(-ret));
	else
		ret = set_up(qp);
	if (ret) {
		free(qp);
		return ret;
	}
	qp->generation |= 1;
	qp->cq->qp_count++;
	qp->recv_cq->qp_count++;
	ctx->qp_count++;
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
		snt_cq_destroy(cq);
		return ret;
	}
	*cq_out = cq;
	return 0;
}

int snt_qp_destroy(struct snt_qp *qp)
{
	if (!qp)
		return 0;
	if (qp->connected && !qp->closed_reported)
		return snt__fail(EBUSY,
				 "QP %u is connected; close it, and poll until "
				 "SNT_CLOSED",
				 qp->num);
	for (; qp->lane_count; qp->lane_count--) {
		int ret = close_lane(qp, &qp->lane[qp->lane_count - 1]);

		if (ret)
			return ret;
	}
	snt__cq_forget(qp->cq, &qp->send_ready);
	snt__cq_forget(qp->recv_cq, &qp->recv_ready);
	qp->cq->qp_count--;
	qp->recv_cq->qp_count--;
	qp->ctx->qp_count--;
	free(qp->rkey);
	free(qp->memory);
	free(qp);
	return 0;
}

uint32_t snt_qp_num(const struct snt_qp *qp)
{
	return qp->num;
}

unsigned snt_qp_lanes(const struct snt_qp *qp)
{
	return qp->data_lanes;
}

enum snt_scheme snt_qp_scheme(const struct snt_qp *qp)
{
	return qp->scheme;
}

int snt_qp_lane(const struct snt_qp *qp, unsigned index, struct snt_lane_info *info_out)
{
	const struct snt__lane *lane;
	struct snt_lane_info info;

	if (index >= qp->lane_count)
		return snt__fail(ENOENT, "QP %u has %u lanes, so none with number %u",
				 qp->num, qp->lane_count, index);
	lane = &qp->lane[index];
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
	};
	return snt__info_export(info_out, &info, sizeof(info), "struct snt_lane_info");
}
