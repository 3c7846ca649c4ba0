/* SPDX-License-Identifier: MIT */
/*
 * The transport of a stream: a connection of its own, or a QP of the program's, which
 * cannot tell the peer that it ends and is closed by the stream.
 */
#include <errno.h>
#include <sennit/card.h>

#include "conn/conn.h"
#include "stream/stream.h"
#include "util/err.h"
#include "util/minmax.h"
#include "util/opts.h"
#include "vqp/cq.h"
#include "vqp/view.h"

/* Of a QP. One is reserved for the message of an abort. */
#define WRS_MIN	  9
#define WRS_ABORT 1

/* How long the message of an abort may take. */
#define ABORT_NS UINT64_C(500000000)

/*
 * The program's QP
 */

static void on_stream_qp_closed(struct snt_op *op)
{
	struct snt_stream *stream = op->arg;

	stream->qp = NULL;
	if (!snt__stream_is_over(stream))
		snt__stream_end(stream, 0, NULL);
	snt__stream_tell(stream);
}

bool snt__stream_close_qp(struct snt_stream *stream)
{
	struct snt_qp *qp = stream->qp;

	if (stream->conn || !qp)
		return false;
	if (!snt__qp_is_connected(qp)) {
		/* Its receives belong to the stream, and must not be left
		 * to another user. */
		snt_qp_reset(qp);
		stream->qp = NULL;
		return false;
	}
	if (snt_op_pending(&stream->close_op))
		return true;
	stream->close_op.done = on_stream_qp_closed;
	stream->close_op.arg = stream;
	snt_op_close(qp, &stream->close_op);
	return true;
}

static void said_abort(struct snt_op *op)
{
	snt__stream_close_qp(op->arg);
}

/* Tells the peer, which otherwise has to find out by itself; with a timeout, since the
 * peer may be gone. */
static int say_abort(struct snt_stream *stream)
{
	const struct snt_send_wr wr = {
		.opcode = SNT_OP_WRITE_IMM,
		.imm = snt__imm(SNT__IMM_END, SNT__IMM_ABORTED),
		.remote = &stream->remote,
		.remote_addr = stream->remote.addr,
	};
	int ret;

	stream->close_op.done = said_abort;
	stream->close_op.arg = stream;
	ret = snt_op_post(stream->qp, &stream->close_op, &wr);
	if (!ret)
		snt_op_timeout(&stream->close_op, ABORT_NS, SNT_CANCEL_ABORT);
	return ret;
}

static void cut_qp(struct snt_stream *stream)
{
	/* A peer that has aborted no longer reads. */
	bool may = stream->opened && stream->status != -ECONNABORTED &&
		   snt__outflow_may_tell(&stream->out, 2);

	if (may && !say_abort(stream))
		return;
	if (!snt__stream_close_qp(stream)) {
		snt__stream_end(stream, 0, NULL);
		snt__stream_tell_later(stream);
	}
}

/*
 * Both
 */

void snt__stream_cut(struct snt_stream *stream, const char *text)
{
	if (stream->conn)
		snt_conn_abort(stream->conn, text);
	else
		cut_qp(stream);
}

bool snt__stream_give_up(struct snt_stream *stream)
{
	if (!stream->conn || snt_conn_destroy(stream->conn))
		return false;
	stream->conn = NULL;
	stream->qp = NULL;
	stream->status = -ECANCELED;
	snt__stream_end(stream, 0, NULL);
	return true;
}

void snt__stream_greeting(const struct snt_stream *stream,
			  struct snt__greeting *greeting)
{
	*greeting = (struct snt__greeting){ .receives = stream->in.receives,
					    .data_length = stream->data_length };
	for (unsigned i = 0; i < stream->data_length; i++)
		greeting->data[i] = stream->data[i];
	snt_mem_token(stream->ring_mem, &greeting->ring);
}

/*
 * Streams by cards
 */

/* As many as a greeting can tell. */
static uint32_t receives_relied_on(const struct snt_qp *qp)
{
	return (uint32_t)snt__min(snt__qp_recv_room(qp), (1u << 13) - 1);
}

static int check_stream_qp(const struct snt_qp *qp)
{
	uint32_t wrs = snt__qp_send_room(qp);
	struct snt_qp_info info = { .size = sizeof(info) };

	if (snt__qp_is_connected(qp))
		return snt__fail(EINVAL,
				 "QP %u is connected; a stream begins before that",
				 snt_qp_num(qp));
	if (!snt__cq_has_ops(snt__qp_cq(qp, SNT__QUEUE_SEND)) ||
	    !snt__cq_has_ops(snt__qp_cq(qp, SNT__QUEUE_RECV)))
		return snt__fail(
			EINVAL,
			"QP %u does not report to a CQ with ops (snt_cq_opts.ops)",
			snt_qp_num(qp));
	snt_qp_query(qp, &info);
	if (info.recvs || info.recv_notifies)
		return snt__fail(EINVAL,
				 "QP %u has receives, or a stream, already; a stream "
				 "posts its own",
				 snt_qp_num(qp));
	if (receives_relied_on(qp) < SNT__RECEIVES_KEPT + SNT__MESSAGE_COST_MAX)
		return snt__fail(
			EINVAL,
			"QP %u has %u receives for a peer to rely on (recv_depth, "
			"lane_depth), a stream needs %d",
			snt_qp_num(qp), receives_relied_on(qp),
			SNT__RECEIVES_KEPT + SNT__MESSAGE_COST_MAX);
	if (wrs < WRS_MIN)
		return snt__fail(EINVAL, "QP %u takes %u sends, a stream needs %d",
				 snt_qp_num(qp), wrs, WRS_MIN);
	return 0;
}

int snt_stream_create(struct snt_qp *qp, const struct snt_stream_opts *user_opts,
		      struct snt_stream **stream_out)
{
	struct snt_stream_opts opts;
	struct snt_stream *stream;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_stream_opts");

	if (!ret)
		ret = check_stream_qp(qp);
	if (!ret)
		ret = snt__stream_make(snt__cq_loop(snt__qp_cq(qp, SNT__QUEUE_SEND)),
				       &opts, receives_relied_on(qp),
				       snt__qp_send_room(qp) - WRS_ABORT, &stream);
	if (ret)
		return ret;
	ret = snt__stream_prepare(stream, qp);
	if (ret) {
		/* The receives that were posted belong to the stream, and must not be
		 * left to another user. */
		snt_qp_reset(qp);
		snt__stream_unmake(stream);
		return ret;
	}
	stream->holder = SNT__STREAM_PROGRAM;
	*stream_out = stream;
	return 0;
}

ssize_t snt_stream_offer(const struct snt_stream *stream, void *buffer, size_t size)
{
	struct snt__greeting greeting;

	snt__stream_greeting(stream, &greeting);
	return snt__greeting_pack(&greeting, buffer, size);
}

int snt_stream_start(struct snt_stream *stream, const void *offer, size_t length)
{
	struct snt__greeting peer;
	int ret;

	if (stream->phase != SNT__STREAM_STARTING || stream->conn)
		return snt__fail(EALREADY, "the stream has begun");
	if (!snt__qp_is_connected(stream->qp))
		return snt__fail(ENOTCONN, "QP %u is not connected",
				 snt_qp_num(stream->qp));
	ret = snt__greeting_unpack(offer, length, &peer);
	if (ret)
		return ret;
	snt__stream_meet(stream, &peer);
	snt__stream_begin(stream);
	snt__stream_tell_later(stream);
	return 0;
}
