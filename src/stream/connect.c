/* SPDX-License-Identifier: MIT */
/* Streams by address: each has a connection, whose requests carry the offers. */
#include <errno.h>
#include <string.h>

#include "conn/conn.h"
#include "conn/endpoint.h"
#include "stream/stream.h"
#include "util/err.h"
#include "util/opts.h"
#include "vqp/qp.h"

#define DEPTH_DEFAULT 64
#define DEPTH_MAX     4096
/* WRs in addition to those of data. */
#define WRS_MORE 8
/* Receives of a lane that may be missing, since they are replaced in batches. */
#define RECEIVES_MORE 16

static uint32_t depth_of(const struct snt_stream_opts *opts)
{
	return opts->depth ? opts->depth : DEPTH_DEFAULT;
}

/* Receives for any distribution of messages, even if all of them take one lane. */
static uint32_t receives_wanted(const struct snt_stream_opts *opts)
{
	uint32_t receives = SNT__RECEIVES_KEPT + SNT__MESSAGE_COST_MAX * depth_of(opts);

	return receives < 1 << 13 ? receives : (1 << 13) - 1;
}

/*
 * Events of the connection
 */

int snt__stream_peer(const struct snt_conn *conn, struct snt__greeting *peer)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	int ret = snt_conn_query(conn, &info);

	return ret ? ret : snt__greeting_unpack(info.data, info.data_length, peer);
}

static int connect_to_peer(struct snt_stream *stream, struct snt_conn *conn)
{
	struct snt__greeting peer;
	int ret = snt__stream_peer(conn, &peer);

	if (!ret)
		ret = snt__stream_prepare(stream, snt_conn_qp(conn));
	if (!ret)
		snt__stream_meet(stream, &peer);
	return ret;
}

static void end_with_conn(struct snt_stream *stream, struct snt_conn *conn)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	snt_conn_query(conn, &info);
	snt__stream_end(stream, info.status, info.text);
	if (stream->listener)
		snt__stream_listener_ended(stream);
	else
		snt__stream_tell(stream);
}

static void on_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct snt_stream *stream = arg;
	int ret;

	switch (event) {
	case SNT_CONN_PREPARE:
		ret = connect_to_peer(stream, conn);
		if (ret)
			snt__stream_fail(stream, -ret, "%s", snt_err_text());
		break;
	case SNT_CONN_CONNECTED:
		if (snt__stream_has_failed(stream))
			break;
		snt__stream_begin(stream);
		if (stream->listener)
			snt__stream_listener_tell(stream);
		else
			snt__stream_tell(stream);
		break;
	case SNT_CONN_OVER:
		end_with_conn(stream, conn);
		break;
	default:
		break;
	}
}

/*
 * Creation
 */

static int check_stream_depth(const struct snt_stream_opts *opts)
{
	if (depth_of(opts) <= DEPTH_MAX)
		return 0;
	return snt__fail(EINVAL, "snt_stream_opts.depth is %u, more than %d",
			 opts->depth, DEPTH_MAX);
}

static struct snt_qp_opts qp_opts_of(const struct snt__conn_loop *conn_loop,
				     const struct snt_stream_opts *opts)
{
	return (struct snt_qp_opts){
		.size = sizeof(struct snt_qp_opts),
		.cq = opts->cq ? opts->cq : conn_loop->cq,
		.scheme = SNT_SCHEME_DQPLB,
		.lanes = opts->lanes,
		.devices = opts->devices,
		.mtu = opts->mtu,
		.inline_max = opts->inline_max,
		.lane_depth = receives_wanted(opts) + RECEIVES_MORE,
		.recv_depth = receives_wanted(opts),
		.send_depth = depth_of(opts) + WRS_MORE,
	};
}

int snt__stream_check_for_conn(struct snt_loop *loop,
			       const struct snt_stream_opts *opts)
{
	const struct snt_conn_opts conn = { .size = sizeof(conn) };
	struct snt__offer offer;
	struct snt_qp_opts qp;
	struct snt__conn_loop *conn_loop;
	int ret = check_stream_depth(opts);

	if (!ret)
		ret = snt__stream_check(snt__loop_ctx(loop), opts);
	if (!ret)
		ret = snt__conn_loop_get(loop, &conn_loop);
	if (ret)
		return ret;
	qp = qp_opts_of(conn_loop, opts);
	return snt__offer_make(conn_loop, &conn, &qp, &offer);
}

static int fill_plan(struct snt__stream_plan *plan, struct snt_stream *stream,
		     const struct snt_stream_opts *opts)
{
	ssize_t length = snt_stream_offer(stream, plan->offer, sizeof(plan->offer));

	if (length < 0)
		return (int)length;
	plan->qp = qp_opts_of(stream->conn_loop, opts);
	plan->conn = (struct snt_conn_opts){
		.size = sizeof(plan->conn),
		.qp = &plan->qp,
		.event = on_event,
		.arg = stream,
		.data = plan->offer,
		.data_length = (size_t)length,
	};
	return 0;
}

int snt__stream_plan(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     struct snt__stream_plan *plan, struct snt_stream **stream_out)
{
	struct snt_stream *stream;
	int ret = check_stream_depth(opts);

	if (!ret)
		ret = snt__stream_make(loop, opts, receives_wanted(opts),
				       depth_of(opts) + WRS_MORE, &stream);
	if (ret)
		return ret;
	ret = fill_plan(plan, stream, opts);
	if (ret)
		snt__stream_unmake(stream);
	else
		*stream_out = stream;
	return ret;
}

int snt_stream_connect(struct snt_loop *loop, const struct snt_endpoint *endpoint,
		       const struct snt_stream_opts *user_opts,
		       struct snt_stream **stream_out)
{
	struct snt__stream_plan plan;
	struct snt_stream_opts opts;
	struct snt_stream *stream;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_stream_opts");

	if (!ret)
		ret = snt__stream_plan(loop, &opts, &plan, &stream);
	if (ret)
		return ret;
	ret = snt__endpoint_check_stream(endpoint);
	if (!ret)
		ret = snt__conn_connect_stream(loop, endpoint, &plan.conn,
					       &stream->conn);
	if (ret) {
		snt__stream_unmake(stream);
		return ret;
	}
	stream->holder = SNT__STREAM_PROGRAM;
	*stream_out = stream;
	return 0;
}
