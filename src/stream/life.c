/* SPDX-License-Identifier: MIT */
/* The life of a stream: memory, start, failure, end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "conn/conn.h"
#include "stream/stream.h"
#include "util/assert.h"
#include "util/err.h"
#include "util/lines.h"
#include "util/minmax.h"
#include "util/opts.h"
#include "vqp/cause.h"
#include "vqp/view.h"

#define RING_DEFAULT (UINT64_C(1) << 20)
#define PAGE	     4096

/*
 * The last packet of a message also carries the immediate. If that packet were full, it
 * would be longer than those before it, and segmentation offload would not include it.
 * So messages of many packets are slightly longer than a whole number of packets.
 */
#define CHUNK_MANY (UINT64_C(1) << 14)
#define CHUNK_ODD  64
/*
 * Used where rings have room for four: for packets of 4096 bytes, two, since the first
 * is longer than the others, and four times 15, as many as offload takes at once.
 */
#define CHUNK_LONG (UINT64_C(62) * 4096)
#define RECV_BATCH 4

/*
 * Memory
 */

static uint64_t size_of(uint64_t wanted)
{
	uint64_t rounded = SNT_STREAM_RING_MIN;

	if (!wanted)
		return RING_DEFAULT;
	while (rounded < wanted)
		rounded *= 2;
	return rounded;
}

static int check_size(const char *name, uint64_t size)
{
	if (size <= SNT_STREAM_RING_MAX)
		return 0;
	return snt__fail(EINVAL, "snt_stream_opts.%s is %llu, more than %llu", name,
			 (unsigned long long)size,
			 (unsigned long long)SNT_STREAM_RING_MAX);
}

static int make_memory(struct snt_ctx *ctx, uint64_t size, unsigned access,
		       uint8_t **memory_out, struct snt_mem **mem_out)
{
	void *memory;
	int ret;

	if (posix_memalign(&memory, PAGE, size))
		return snt__fail(ENOMEM, "no %llu bytes of memory for a stream",
				 (unsigned long long)size);
	ret = snt_mem_register(ctx, memory, size, access, mem_out);
	if (ret)
		free(memory);
	else
		*memory_out = memory;
	return ret;
}

static int make_rings(struct snt_stream *stream, uint64_t recv_size)
{
	const unsigned remote = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	int ret = make_memory(stream->conn_loop->ctx, recv_size, remote, &stream->ring,
			      &stream->ring_mem);

	if (ret)
		return ret;
	ret = make_memory(stream->conn_loop->ctx, stream->stage_size, 0, &stream->stage,
			  &stream->stage_mem);
	if (ret)
		goto err_ring;
	stream->send_batch = snt__lines_alloc(stream->send_batch_mask + 1,
					      sizeof(*stream->send_batch));
	if (!stream->send_batch) {
		ret = snt__fail(ENOMEM, "no memory for a stream");
		goto err_stage;
	}
	return 0;

err_stage:
	snt_mem_release(stream->stage_mem);
	free(stream->stage);
err_ring:
	snt_mem_release(stream->ring_mem);
	free(stream->ring);
	return ret;
}

/* Every message of a stream is a write with an immediate. */
static int check_devices(const struct snt_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->device_count; i++) {
		const struct ibv_device *ibv = ctx->device[i]->context->device;

		if (ibv && ibv->transport_type == IBV_TRANSPORT_IWARP)
			return snt__fail(
				EOPNOTSUPP,
				"%s is an iWARP device, which has no write with "
				"immediate, so that it cannot have streams",
				ctx->device[i]->name);
	}
	return 0;
}

int snt__stream_check(const struct snt_ctx *ctx, const struct snt_stream_opts *opts)
{
	int ret = check_devices(ctx);

	if (!ret)
		ret = check_size("recv_size", opts->recv_size);
	if (!ret)
		ret = check_size("send_size", opts->send_size);
	if (ret)
		return ret;
	if (opts->data_length > SNT_STREAM_DATA_MAX)
		return snt__fail(EINVAL, "%zu bytes of data, more than the limit of %d",
				 opts->data_length, SNT_STREAM_DATA_MAX);
	if (opts->data_length && !opts->data)
		return snt__fail(EINVAL, "%zu bytes of data are NULL",
				 opts->data_length);
	return 0;
}

static void take_stream_opts(struct snt_stream *stream,
			     const struct snt_stream_opts *opts)
{
	if (opts->data_length)
		memcpy(stream->data, opts->data, opts->data_length);
	stream->data_length = (uint8_t)opts->data_length;
	stream->ready = opts->ready;
	stream->arg = opts->arg;
}

static void set_up_stream(struct snt_stream *stream, uint32_t wr_limit)
{
	stream->send_port.complete = snt__stream_sent;
	stream->recv_port.complete = snt__stream_received;
	stream->send_port.stream = stream->recv_port.stream = stream;
	stream->worker.work = snt__stream_work;
	stream->wr_limit = wr_limit;
	for (stream->send_batch_mask = 15; stream->send_batch_mask + 1 < wr_limit;)
		stream->send_batch_mask = stream->send_batch_mask * 2 + 1;
	stream->send_end = &stream->send_first;
	stream->send_done_end = &stream->send_done;
	stream->low = 1;
	stream->wants = SNT_STREAM_READABLE | SNT_STREAM_OPEN | SNT_STREAM_OVER;
	/* Until the peer's greeting has arrived. */
	snt__outflow_init(&stream->out, SNT_STREAM_RING_MIN, SNT__RECEIVES_KEPT);
	stream->chunk = stream->stage_size;
}

int snt__stream_make(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     uint32_t receives, uint32_t wr_limit,
		     struct snt_stream **stream_out)
{
	struct snt_stream *stream;
	int ret = snt__stream_check(snt__loop_ctx(loop), opts);

	if (ret)
		return ret;
	stream = snt__lines_alloc(1, sizeof(*stream));
	if (!stream)
		return snt__fail(ENOMEM, "no memory for a stream");
	stream->stage_size = size_of(opts->send_size);
	set_up_stream(stream, wr_limit);
	take_stream_opts(stream, opts);
	snt__inflow_init(&stream->in, size_of(opts->recv_size), receives);
	stream->recv_batch =
		receives - SNT__RECEIVES_KEPT < 8 * RECV_BATCH ? 1 : RECV_BATCH;
	ret = snt__conn_loop_get(loop, &stream->conn_loop);
	if (!ret)
		ret = make_rings(stream, size_of(opts->recv_size));
	if (ret) {
		free(stream);
		return ret;
	}
	*stream_out = stream;
	return 0;
}

void snt__stream_unmake(struct snt_stream *stream)
{
	for (struct snt__stream_waiter *at = stream->waiter; at; at = at->next)
		at->gone = true;
	if (stream->user)
		stream->user->freed(stream);
	snt__unlink(&stream->worker.link);
	snt_mem_release(stream->ring_mem);
	snt_mem_release(stream->stage_mem);
	free(stream->ring);
	free(stream->stage);
	free(stream->send_batch);
	free(stream);
}

/*
 * Start
 */

int snt__stream_prepare(struct snt_stream *stream, struct snt_qp *qp)
{
	stream->qp = qp;
	stream->inline_max = snt__qp_worth_inline(qp);
	return snt__stream_post_receives(stream, stream->in.receives);
}

void snt__stream_meet(struct snt_stream *stream, const struct snt__greeting *peer)
{
	uint64_t size = peer->ring.length;

	snt__outflow_init(&stream->out, size, peer->receives);
	stream->remote = peer->ring;
	stream->peer_data_length = peer->data_length;
	memcpy(stream->peer_data, peer->data, peer->data_length);
	stream->chunk = snt__min(size, stream->stage_size) / 8;
	if (2 * stream->chunk >= CHUNK_LONG)
		stream->chunk = CHUNK_LONG;
	if (stream->chunk >= CHUNK_MANY)
		stream->chunk += CHUNK_ODD;
	stream->chunk = snt__min(stream->chunk, snt__qp_fragment_size(stream->qp));
}

void snt__stream_begin(struct snt_stream *stream)
{
	stream->opened = true;
	snt__stream_enter(stream, SNT__STREAM_RUNNING);
	stream->count.lanes = snt__qp_data_lanes(stream->qp);
	snt__stream_pump(stream);
}

/*
 * Failure and end
 */

void snt__stream_enter(struct snt_stream *stream, enum snt__stream_phase phase)
{
#define TO(phase) (1u << SNT__STREAM_##phase)
	static const uint8_t legal[SNT__STREAM_PHASES] = {
		[SNT__STREAM_STARTING] = TO(RUNNING) | TO(FAILED) | TO(OVER),
		[SNT__STREAM_RUNNING] = TO(LEAVING) | TO(FAILED) | TO(OVER),
		[SNT__STREAM_LEAVING] = TO(FAILED) | TO(OVER),
		[SNT__STREAM_FAILED] = TO(OVER),
	};
#undef TO

	snt__assert(legal[stream->phase] >> phase & 1);
	stream->phase = (uint8_t)phase;
}

void snt__stream_fail(struct snt_stream *stream, int error, const char *format, ...)
{
	va_list args;

	if (stream->phase >= SNT__STREAM_FAILED)
		return;
	va_start(args, format);
	vsnprintf(stream->text, sizeof(stream->text), format, args);
	va_end(args);
	snt__stream_enter(stream, SNT__STREAM_FAILED);
	stream->status = -error;
	snt__stream_cut(stream, stream->text);
}

/* A flushed WR has a cause, which is reported elsewhere. */
void snt__stream_lose(struct snt_stream *stream, const struct snt_wc *wc)
{
	if (stream->phase == SNT__STREAM_LEAVING)
		return;
	snt__stream_fail(stream, -snt__status_error(wc->status),
			 "a message was lost: %s", snt_status_text(wc->status));
}

/* Both directions have ended, and both ends know it. */
static bool is_complete(const struct snt_stream *stream)
{
	return stream->in.ended && stream->half == SNT__STREAM_END_ACKED;
}

void snt__stream_leave(struct snt_stream *stream)
{
	if (stream->phase != SNT__STREAM_RUNNING || !is_complete(stream))
		return;
	snt__stream_enter(stream, SNT__STREAM_LEAVING);
	if (stream->conn)
		snt_conn_disconnect(stream->conn, 0);
	else
		snt__stream_end(stream, 0, NULL);
}

/* The first reason counts, unless it only follows from another. */
void snt__stream_end(struct snt_stream *stream, int error, const char *text)
{
	bool failed = stream->phase == SNT__STREAM_FAILED || !is_complete(stream);

	if (failed && !stream->status) {
		bool known = error && error != -ECANCELED;

		stream->status = known ? error : -ECONNRESET;
		if (known || !stream->text[0])
			snprintf(stream->text, sizeof(stream->text), "%s",
				 text && text[0] ? text : "the connection has ended");
	}
	snt__stream_enter(stream, SNT__STREAM_OVER);
	snt__stream_drop_sends(stream);
	if (stream->user)
		stream->user->ended(stream);
}

int snt_stream_abort(struct snt_stream *stream, const char *text)
{
	int ret = snt__conn_loop_check(stream->conn_loop);

	if (ret)
		return ret;
	if (stream->phase >= SNT__STREAM_FAILED)
		return snt__fail(EALREADY, "the stream has ended");
	snt__stream_fail(stream, ECANCELED, "%s", text ? text : "it is aborted");
	return 0;
}

/*
 * Destruction. A stream that devices still use is freed when they release it, and keeps
 * the context from being closed meanwhile.
 */

static void linger_stream(struct snt_stream *stream)
{
	stream->conn_loop->lingering++;
	if (stream->conn)
		stream->conn_loop->users--;
}

static void stop_lingering(struct snt_stream *stream)
{
	stream->conn_loop->lingering--;
	if (stream->conn)
		stream->conn_loop->users++;
}

void snt__stream_free(struct snt_stream *stream)
{
	/* The close's completion continues here. */
	if (snt__stream_close_qp(stream))
		return;
	stop_lingering(stream);
	if (snt_conn_destroy(stream->conn)) {
		/* A device still uses it, so that it cannot be freed yet. */
		linger_stream(stream);
		return;
	}
	snt__stream_unmake(stream);
}

int snt_stream_destroy(struct snt_stream *stream)
{
	int ret = stream ? snt__conn_loop_check(stream->conn_loop) : 0;

	if (!stream || ret)
		return ret;
	for (struct snt__stream_waiter *at = stream->waiter; at; at = at->next)
		at->gone = true;
	stream->waiter = NULL;
	snt__stream_listener_forget(stream);
	stream->busy++;
	if (!snt__stream_is_over(stream) && !snt__stream_give_up(stream))
		snt__stream_fail(stream, ECANCELED, "it is destroyed");
	linger_stream(stream);
	stream->holder = SNT__STREAM_NOBODY;
	stream->busy--;
	if (snt__stream_is_over(stream) && !stream->busy)
		snt__stream_tell_later(stream);
	return 0;
}

static int close_shielded(struct snt_stream *stream, int64_t timeout_ns)
{
	bool gone = false;
	int ret = snt__conn_loop_check(stream->conn_loop);

	if (ret)
		return ret;
	if (!snt__stream_has_failed(stream) && stream->half == SNT__STREAM_WRITING)
		snt_stream_shutdown(stream);
	if (!snt__stream_is_over(stream) && timeout_ns)
		ret = snt__stream_wait(stream, SNT_STREAM_OVER, timeout_ns, &gone);
	if (gone ||
	    (ret < 0 && !(ret == stream->status && snt__stream_is_over(stream))))
		return ret;
	if (!snt__stream_is_over(stream))
		return snt__fail(ETIME, "timed out: the stream has not ended yet");
	if (stream->status)
		return snt__fail(-stream->status, "%s", stream->text);
	if (snt__inflow_unread(&stream->in))
		return snt__fail(ENODATA, "%llu bytes have not been read",
				 (unsigned long long)snt__inflow_unread(&stream->in));
	return snt_stream_destroy(stream);
}

int snt_stream_close(struct snt_stream *stream, int64_t timeout_ns)
{
	struct snt__shield kept;
	int ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = close_shielded(stream, timeout_ns);
	snt__shield_end(&kept);
	return ret;
}
