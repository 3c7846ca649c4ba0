/* SPDX-License-Identifier: MIT */
#include "vqp/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "dev/ctx.h"
#include "dev/device.h"
#include "util/err.h"
#include "vqp/cq.h"

#define FLAGS_KNOWN \
	(SNT_QP_PASS_THROUGH | SNT_QP_NOTIFY_LENGTH | SNT_QP_FAILOVER | SNT_QP_STRICT)

#define DEFAULT(field, value) ((field) ? (field) : (value))

void snt__qp_opts_default(struct snt_qp_opts *opts)
{
	opts->recv_cq = DEFAULT(opts->recv_cq, opts->cq);
	opts->scheme = DEFAULT(opts->scheme, SNT_SCHEME_SPRAY);
	opts->balance = DEFAULT(opts->balance, SNT_BALANCE_ROUND_ROBIN);
	opts->lane_depth = DEFAULT(opts->lane_depth, 128);
	opts->send_depth = DEFAULT(opts->send_depth, 256);
	opts->recv_depth = DEFAULT(opts->recv_depth, 128);
	opts->send_sge_max = DEFAULT(opts->send_sge_max, 1);
	opts->recv_sge_max = DEFAULT(opts->recv_sge_max, 1);
	opts->fragment_size = DEFAULT(opts->fragment_size, UINT64_C(1) << 20);
	/* The program's own notify QPs may be made for empty writes only. */
	opts->express_max =
		DEFAULT(opts->express_max,
			opts->adopted_count ? SNT_EXPRESS_OFF : SNT_EXPRESS_DEFAULT);
	opts->hop_limit = DEFAULT(opts->hop_limit, 64);
	opts->timeout = DEFAULT(opts->timeout, 14);
	opts->retry_count = DEFAULT(opts->retry_count, 7);
	opts->rnr_retry_count = DEFAULT(opts->rnr_retry_count, 7);
	opts->rnr_timer = DEFAULT(opts->rnr_timer, 12);
}

/* The range of each option; snt_qp_opts.flags and the like are handled separately. */
struct range {
	const char *option;
	uint64_t value, low, high;
};

static int check_option_ranges(const struct range *range, unsigned count)
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

static int check_pass_through(const struct snt_qp_opts *opts)
{
	const char *fault = NULL;

	if (opts->lanes > 1)
		fault = "has one lane; leave snt_qp_opts.lanes 0";
	else if (opts->scheme == SNT_SCHEME_DQPLB)
		fault = "cuts no WRs and needs no scheme; leave snt_qp_opts.scheme 0";
	else if (opts->notify_lanes)
		fault = "has no notify lanes; leave snt_qp_opts.notify_lanes 0";
	else if (opts->flags & SNT_QP_NOTIFY_LENGTH)
		fault = "reports lengths as the device does, without "
			"SNT_QP_NOTIFY_LENGTH";
	return fault ? snt__fail(EINVAL, "a QP with SNT_QP_PASS_THROUGH %s", fault) : 0;
}

/* What cannot be sent again yet, or not at all. */
static int check_failover(const struct snt_ctx *ctx, const struct snt_qp_opts *opts)
{
	const char *fault = NULL;

	if (opts->flags & SNT_QP_PASS_THROUGH)
		fault = "cannot have SNT_QP_PASS_THROUGH, which keeps no WRs";
	else if (opts->scheme == SNT_SCHEME_DQPLB)
		fault = "cannot use DQPLB yet; use SPRAY";
	else if (opts->flags & SNT_QP_NOTIFY_LENGTH)
		fault = "cannot have SNT_QP_NOTIFY_LENGTH yet";
	else if (opts->adopted_count)
		fault = "makes new physical QPs, so that none can be adopted";
	else if (opts->cq->notify.served || opts->recv_cq->notify.served)
		fault = "cannot report to a CQ with ops yet";
	for (unsigned i = 0; !fault && i < ctx->device_count; i++)
		if (!ctx->device[i]->has_control)
			fault = "needs a control table of every device";
	return fault ? snt__fail(EINVAL, "a QP with SNT_QP_FAILOVER %s", fault) : 0;
}

static int check_flags_of_opts(const struct snt_qp_opts *opts)
{
	if (opts->flags & SNT_QP_STRICT && !(opts->flags & SNT_QP_FAILOVER))
		return snt__fail(EINVAL, "SNT_QP_STRICT needs SNT_QP_FAILOVER");
	if (opts->flags & SNT_QP_PASS_THROUGH)
		return check_pass_through(opts);
	if (opts->flags & SNT_QP_NOTIFY_LENGTH && opts->scheme == SNT_SCHEME_DQPLB)
		return snt__fail(EINVAL,
				 "SNT_QP_NOTIFY_LENGTH is for SPRAY; DQPLB tells "
				 "lengths by itself");
	return 0;
}

int snt__qp_opts_check(const struct snt_ctx *ctx, const struct snt_qp_opts *opts)
{
	const struct range ranges[] = {
		{ "scheme", opts->scheme, SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB },
		{ "flags", opts->flags, 0, FLAGS_KNOWN },
		{ "balance", opts->balance, SNT_BALANCE_ROUND_ROBIN,
		  SNT_BALANCE_BY_TIME },
		{ "lanes", opts->lanes, 0, SNT_DATA_LANES_MAX },
		{ "notify_lanes", opts->notify_lanes, 0, SNT_DEVICES_MAX },
		/* A sequenced fragment and its raw immediate are posted together. */
		{ "lane_depth", opts->lane_depth,
		  opts->scheme == SNT_SCHEME_DQPLB ? 2 : 1, SNT_LANE_DEPTH_MAX },
		{ "send_depth", opts->send_depth, 1, SNT_SEND_DEPTH_MAX },
		{ "recv_depth", opts->recv_depth, 1, SNT_RECV_DEPTH_MAX },
		{ "send_sge_max", opts->send_sge_max, 1, SNT_SGES_MAX },
		{ "recv_sge_max", opts->recv_sge_max, 1, SNT_SGES_MAX },
		{ "inline_max", opts->inline_max, 0, SNT_INLINE_MAX },
		{ "fragment_size", opts->fragment_size, SNT_FRAGMENT_SIZE_MIN,
		  SNT_FRAGMENT_SIZE_MAX },
		{ "mtu", opts->mtu, 0, SNT_MTU_MAX },
		{ "service_level", opts->service_level, 0, 15 },
		{ "timeout", opts->timeout, 1, 31 },
		{ "retry_count", opts->retry_count, 1, 7 },
		{ "rnr_retry_count", opts->rnr_retry_count, 1, 7 },
		{ "rnr_timer", opts->rnr_timer, 1, 31 },
	};
	int ret;

	if (!opts->cq || opts->cq->ctx != ctx || opts->recv_cq->ctx != ctx)
		return snt__fail(EINVAL,
				 "snt_qp_opts.cq is NULL or of another context");
	if (opts->cq->loop && opts->recv_cq->loop &&
	    opts->recv_cq->loop != opts->cq->loop)
		return snt__fail(EINVAL, "snt_qp_opts.cq and recv_cq are in different "
					 "loops; a QP is used by one thread");
	ret = check_option_ranges(ranges, sizeof(ranges) / sizeof(ranges[0]));
	if (!ret)
		ret = check_flags_of_opts(opts);
	if (!ret && opts->flags & SNT_QP_FAILOVER)
		ret = check_failover(ctx, opts);
	if (ret)
		return ret;
	if (opts->fragment_size % SNT_FRAGMENT_SIZE_UNIT)
		return snt__fail(EINVAL,
				 "snt_qp_opts.fragment_size %" PRIu64
				 " is not a multiple of %d",
				 opts->fragment_size, SNT_FRAGMENT_SIZE_UNIT);
	if (opts->express_max > SNT_EXPRESS_MAX && opts->express_max != SNT_EXPRESS_OFF)
		return snt__fail(
			EINVAL,
			"snt_qp_opts.express_max is %u; it must be at most %d, "
			"or SNT_EXPRESS_OFF",
			opts->express_max, SNT_EXPRESS_MAX);
	if (opts->mtu & (opts->mtu - 1) || (opts->mtu && opts->mtu < SNT_MTU_MIN))
		return snt__fail(
			EINVAL,
			"snt_qp_opts.mtu %u is not one of 256, 512, 1024, 2048, "
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

static int fail_beyond_limit(const struct snt_device *device, const char *option,
			     uint64_t value, uint64_t limit)
{
	return snt__fail(EINVAL,
			 "%s: %s %" PRIu64 " is beyond the device's limit of %" PRIu64,
			 device->name, option, value, limit);
}

/* A limit of 0 is not known. */
int snt__qp_opts_fit(const struct snt_qp_opts *opts, const struct snt_device *device)
{
	const struct snt_device_info *info = &snt__port(device)->info;

	if (info->message_size_max && opts->fragment_size > info->message_size_max)
		return fail_beyond_limit(device, "fragment_size", opts->fragment_size,
					 info->message_size_max);
	if (info->qp_depth_max && opts->lane_depth + SNT__MARKERS > info->qp_depth_max)
		return fail_beyond_limit(device, "lane_depth (and 2)",
					 opts->lane_depth + SNT__MARKERS,
					 info->qp_depth_max);
	if (info->qp_depth_max && opts->recv_depth + SNT__MARKERS > info->qp_depth_max)
		return fail_beyond_limit(device, "recv_depth (and 2)",
					 opts->recv_depth + SNT__MARKERS,
					 info->qp_depth_max);
	if (info->pkey_count && opts->pkey_index >= info->pkey_count)
		return fail_beyond_limit(device, "pkey_index", opts->pkey_index,
					 info->pkey_count - 1);
	if (info->read_in_max && opts->read_depth > info->read_in_max)
		return fail_beyond_limit(device, "read_depth", opts->read_depth,
					 info->read_in_max);
	if (info->read_out_max && opts->read_depth > info->read_out_max)
		return fail_beyond_limit(device, "read_depth", opts->read_depth,
					 info->read_out_max);
	if (info->qp_sge_max && opts->send_sge_max > info->qp_sge_max)
		return fail_beyond_limit(device, "send_sge_max", opts->send_sge_max,
					 info->qp_sge_max);
	if (info->qp_sge_max && opts->recv_sge_max > info->qp_sge_max)
		return fail_beyond_limit(device, "recv_sge_max", opts->recv_sge_max,
					 info->qp_sge_max);
	return 0;
}

/*
 * Changes
 */

enum when {
	NEVER,
	UNCONNECTED,
	ALWAYS,
};

/* When each option may be changed; all other options are fixed at creation. */
static const struct changeable {
	const char *name;
	enum when when;
	size_t offset, size;
} changeables[] = {
#define CHANGEABLE(field, when)                                    \
	{                                                          \
#field, when, offsetof(struct snt_qp_opts, field), \
			sizeof(((struct snt_qp_opts *)0)->field)   \
	}
	CHANGEABLE(cq, NEVER),
	CHANGEABLE(recv_cq, NEVER),
	CHANGEABLE(scheme, NEVER),
	CHANGEABLE(flags, NEVER),
	CHANGEABLE(lanes, NEVER),
	CHANGEABLE(devices, NEVER),
	CHANGEABLE(notify_lanes, NEVER),
	CHANGEABLE(lane_depth, NEVER),
	CHANGEABLE(send_depth, NEVER),
	CHANGEABLE(recv_depth, NEVER),
	CHANGEABLE(send_sge_max, NEVER),
	CHANGEABLE(recv_sge_max, NEVER),
	CHANGEABLE(inline_max, NEVER),
	CHANGEABLE(flow_labels, NEVER),
	CHANGEABLE(adopted, NEVER),
	CHANGEABLE(adopted_devices, NEVER),
	CHANGEABLE(adopted_count, NEVER),
	CHANGEABLE(lane_devices, NEVER),
	CHANGEABLE(srq, NEVER),
	CHANGEABLE(pkey_index, NEVER),
	CHANGEABLE(mtu, UNCONNECTED),
	CHANGEABLE(fragment_size, UNCONNECTED),
	CHANGEABLE(traffic_class, UNCONNECTED),
	CHANGEABLE(service_level, UNCONNECTED),
	CHANGEABLE(hop_limit, UNCONNECTED),
	CHANGEABLE(timeout, UNCONNECTED),
	CHANGEABLE(retry_count, UNCONNECTED),
	CHANGEABLE(rnr_retry_count, UNCONNECTED),
	CHANGEABLE(read_depth, UNCONNECTED),
	CHANGEABLE(rnr_timer, ALWAYS),
	CHANGEABLE(express_max, ALWAYS),
	CHANGEABLE(balance, ALWAYS),
	CHANGEABLE(weights, ALWAYS),
};

static bool is_set(const struct snt_qp_opts *opts, const struct changeable *changeable)
{
	const unsigned char *at = (const unsigned char *)opts + changeable->offset;

	for (size_t i = 0; i < changeable->size; i++)
		if (at[i])
			return true;
	return false;
}

int snt__qp_opts_change(struct snt_qp_opts *opts, const struct snt_qp_opts *change,
			int connected)
{
	struct snt_qp_opts changed = *opts;

	for (size_t i = 0; i < sizeof(changeables) / sizeof(changeables[0]); i++) {
		const struct changeable *at = &changeables[i];

		if (!is_set(change, at))
			continue;
		if (at->when == NEVER)
			return snt__fail(EINVAL,
					 "snt_qp_opts.%s is settled when a QP is made",
					 at->name);
		if (at->when == UNCONNECTED && connected)
			return snt__fail(
				EISCONN,
				"snt_qp_opts.%s cannot be changed while the QP "
				"is connected",
				at->name);
		memcpy((char *)&changed + at->offset, (const char *)change + at->offset,
		       at->size);
	}
	*opts = changed;
	return 0;
}
