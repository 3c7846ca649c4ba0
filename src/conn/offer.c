/* SPDX-License-Identifier: MIT */
/* This end's offer, and whether the program's options are possible. */
#include <errno.h>
#include <string.h>

#include "conn/conn.h"
#include "util/err.h"
#include "vqp/options.h"
#include "vqp/view.h"

#define LANES_MAX 128

static int describe_offered_device(const struct snt_device *device,
				   struct snt__offer_device *out)
{
	const struct snt__port *port = snt__port(device);

	if (!device->has_control)
		return snt__fail(
			EOPNOTSUPP,
			"%s has no control table, so it cannot be connected by "
			"address",
			device->name);
	out->mtu = (uint16_t)port->info.mtu;
	out->address.link = (uint8_t)port->info.link;
	if (port->info.link == SNT_LINK_INFINIBAND)
		out->address.lid = port->info.lid;
	if (port->gid_best < 0)
		return 0;
	out->address.gid_type = (uint8_t)port->gid[port->gid_best].type;
	memcpy(out->address.gid, port->gid[port->gid_best].raw,
	       sizeof(out->address.gid));
	return 0;
}

static int describe_devices(struct snt_ctx *ctx, uint32_t wanted,
			    struct snt__offer *offer)
{
	offer->device_count = (uint8_t)ctx->device_count;
	for (unsigned i = 0; i < ctx->device_count; i++) {
		int ret = describe_offered_device(ctx->device[i], &offer->device[i]);

		if (ret)
			return ret;
		if (!wanted || wanted >> i & 1)
			offer->devices |= 1u << i;
	}
	if (offer->devices && (!wanted || wanted == offer->devices))
		return 0;
	return snt__fail(EINVAL,
			 "snt_qp_opts.devices 0x%x names devices beyond the %u of the "
			 "context",
			 wanted, ctx->device_count);
}

static bool is_elsewhere(const struct snt__conn_loop *conn_loop,
			 const struct snt_cq *cq)
{
	return snt__cq_loop(cq) && snt__cq_loop(cq) != conn_loop->loop;
}

/* Otherwise the creation of the QP would find these errors: much later, when the peer
 * has been told. */
static int check_offered_ranges(const struct snt__conn_loop *conn_loop,
				const struct snt_qp_opts *qp)
{
	struct snt_qp_opts whole = *qp;
	int ret;

	snt__qp_opts_default(&whole);
	ret = snt__qp_opts_check(conn_loop->ctx, &whole);
	if (ret)
		return ret;
	/* Connections close and connect QPs, so both must belong to the same thread. */
	if (is_elsewhere(conn_loop, whole.cq) || is_elsewhere(conn_loop, whole.recv_cq))
		return snt__fail(
			EINVAL, "snt_qp_opts.%s is in another loop than the connection",
			is_elsewhere(conn_loop, whole.cq) ? "cq" : "recv_cq");
	return 0;
}

static int check_offered_qp(const struct snt__conn_loop *conn_loop,
			    const struct snt_qp_opts *qp)
{
	if (!qp->cq)
		return snt__fail(EINVAL,
				 "snt_conn_opts.qp is NULL, or its cq is; a QP needs a "
				 "CQ to report to");
	if (qp->adopted_count || qp->adopted)
		return snt__fail(EOPNOTSUPP,
				 "adopted QPs cannot be connected by address");
	if (qp->notify_lanes || qp->lane_devices || qp->flow_labels || qp->weights)
		return snt__fail(
			EINVAL,
			"snt_qp_opts.notify_lanes, lane_devices, flow_labels "
			"and weights depend on what the peer has; leave them 0");
	if (qp->lanes > LANES_MAX)
		return snt__fail(EINVAL, "%u lanes are more than the %d of one QP",
				 qp->lanes, LANES_MAX);
	return check_offered_ranges(conn_loop, qp);
}

int snt__offer_check_data(const void *data, size_t length)
{
	if (length > SNT_CONN_DATA_MAX)
		return snt__fail(EINVAL, "%zu bytes of data, more than the limit of %d",
				 length, SNT_CONN_DATA_MAX);
	return length && !data ? snt__fail(EINVAL, "%zu bytes of data are NULL", length)
			       : 0;
}

int snt__offer_make(const struct snt__conn_loop *conn_loop,
		    const struct snt_conn_opts *opts, const struct snt_qp_opts *qp,
		    struct snt__offer *offer)
{
	int ret = check_offered_qp(conn_loop, qp);

	if (!ret)
		ret = snt__offer_check_data(opts->data, opts->data_length);
	if (ret)
		return ret;
	memset(offer, 0, sizeof(*offer));
	offer->scheme = qp->scheme ? (uint8_t)qp->scheme : SNT_SCHEME_SPRAY;
	offer->flags = (uint8_t)qp->flags;
	offer->lanes = qp->flags & SNT_QP_PASS_THROUGH ? 1 : (uint8_t)qp->lanes;
	offer->mtu = qp->mtu ? (uint16_t)qp->mtu : 4096;
	offer->data_length = (uint16_t)opts->data_length;
	if (opts->data_length)
		memcpy(offer->data, opts->data, opts->data_length);
	return describe_devices(conn_loop->ctx, qp->devices, offer);
}
