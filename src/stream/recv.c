/* SPDX-License-Identifier: MIT */
/* Receiving: data arrives in the ring, and the program takes it. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "stream/stream.h"
#include "util/err.h"
#include "vqp/recv.h"
#include "vqp/view.h"

#define BATCH 16

int snt__stream_post_receives(struct snt_stream *stream, uint32_t count)
{
	struct snt_recv_wr wr[BATCH];

	for (uint32_t i = 0; i < BATCH && i < count; i++)
		wr[i] = (struct snt_recv_wr){ .wr_id = (uintptr_t)&stream->recv_port };
	while (count) {
		uint32_t part = count < BATCH ? count : BATCH;
		int ret = snt__qp_post_recv(stream->qp, wr, part);

		if (ret < 0)
			return ret;
		if ((uint32_t)ret < part)
			return -EAGAIN;
		count -= part;
	}
	return 0;
}

/*
 * Arrival
 */

/* Receives are replaced in batches, but for a note's, which is reported at once. Only
 * receives that are posted again are reported. */
static inline void replace_receive(struct snt_stream *stream, unsigned cost, bool data)
{
	int ret;

	stream->recv_missing++;
	stream->cost_missing += cost;
	stream->data_missing += data ? cost : 0;
	if (stream->recv_missing < stream->recv_batch && !stream->in.owes)
		return;
	ret = snt__stream_post_receives(stream, stream->recv_missing);
	if (ret) {
		snt__stream_fail(stream, 0, "the QP takes no receives any more");
		return;
	}
	snt__inflow_replace(&stream->in, stream->cost_missing, stream->data_missing);
	stream->recv_missing = stream->cost_missing = stream->data_missing = 0;
}

static const char *take_peer_end(struct snt_stream *stream, uint32_t imm)
{
	const char *fault;

	if (imm & SNT__IMM_ABORTED) {
		snt__stream_fail(stream, ECONNABORTED,
				 "the peer has aborted the stream");
		return NULL;
	}
	fault = snt__inflow_end(&stream->in, imm);
	if (!fault && stream->user)
		fault = stream->user->peer_shut(stream);
	if (!fault)
		snt__stream_leave(stream);
	return fault;
}

/* NULL, or what is wrong. */
static const char *take_note(struct snt_stream *stream, uint32_t imm)
{
	if (!(imm & SNT__IMM_NOTED) || !stream->user)
		return "it sent a message that means nothing";
	stream->in.owes = true;
	return stream->user->noted(stream, imm & SNT__IMM_NUMBER);
}

static const char *take_imm(struct snt_stream *stream, uint32_t imm, uint64_t bytes)
{
	switch (snt__imm_kind(imm)) {
	case SNT__IMM_CREDIT:
		stream->count.credits_received++;
		stream->stalled = false;
		return snt__outflow_credit(&stream->out, imm);
	case SNT__IMM_END:
		return bytes ? "it shut down with data" : take_peer_end(stream, imm);
	case SNT__IMM_NOTE:
		if (imm)
			return bytes ? "it sent a note with data"
				     : take_note(stream, imm);
		return bytes ? NULL : "it sent a message of nothing";
	default:
		return bytes ? NULL : "it sent a message of nothing";
	}
}

/* NULL, or how the peer broke the protocol. */
static const char *take_stream_message(struct snt_stream *stream,
				       const struct snt_wc *wc)
{
	bool dqplb = snt__qp_is_dqplb(stream->qp);
	bool spray = snt__qp_is_spray(stream->qp);
	uint32_t imm = wc->flags & SNT_WC_WITH_IMM ? wc->imm : 0;
	bool has_length = snt__imm_kind(imm) == SNT__IMM_LENGTH;
	uint64_t bytes = spray ? 0 : wc->length;
	unsigned cost = 1 + (imm && dqplb);
	const char *fault;

	if (wc->opcode != SNT_OP_RECV_NOTIFY)
		return "it sent a message of another kind";
	if (has_length && !spray)
		return "it reported a length where the completion has one";
	if (has_length)
		bytes = imm & SNT__IMM_VALUE;
	fault = snt__inflow_arrive(&stream->in, bytes, cost);
	if (!fault)
		fault = take_imm(stream, imm, bytes);
	if (fault)
		return fault;
	stream->count.messages_received += bytes != 0;
	if (!snt__stream_has_failed(stream))
		replace_receive(stream, cost, bytes != 0);
	return NULL;
}

void snt__stream_received(struct snt_op *op, const struct snt_wc *wc)
{
	struct snt_stream *stream = ((struct snt__stream_port *)op)->stream;
	const char *fault;

	if (__builtin_expect(wc->status != SNT_WC_SUCCESS, 0)) {
		snt__stream_lose(stream, wc);
		snt__stream_tell(stream);
		return;
	}
	if (__builtin_expect(stream->status == -EPROTO, 0))
		return;
	fault = take_stream_message(stream, wc);
	if (__builtin_expect(fault != NULL, 0))
		snt__stream_fail(stream, EPROTO,
				 "the peer does not keep to the rules: %s", fault);
	snt__stream_pump(stream);
	snt__stream_tell(stream);
}

/*
 * Calls
 */

/* In pieces, so that the peer is told in time. */
static size_t copy_out(struct snt_stream *stream, uint8_t *to, size_t length)
{
	struct snt__inflow *in = &stream->in;
	uint64_t most = in->size / 4;
	size_t done = 0;

	while (done < length && snt__inflow_unread(in)) {
		uint64_t at = in->consumed & (in->size - 1);
		uint64_t part = snt__inflow_unread(in);

		if (part > length - done)
			part = length - done;
		if (part > in->size - at)
			part = in->size - at;
		if (part > most)
			part = most;
		memcpy(to + done, stream->ring + at, part);
		in->consumed += part;
		done += part;
		if (snt__inflow_due(in))
			snt__stream_pump(stream);
	}
	return done;
}

/* Nothing to read: returns why. */
static ssize_t nothing_to_read(struct snt_stream *stream, uint64_t least)
{
	if (stream->in.ended)
		return 0;
	if (snt__stream_is_over(stream))
		return snt__fail(stream->status ? -stream->status : ECONNRESET, "%s",
				 stream->text);
	stream->low = least;
	stream->wants |= SNT_STREAM_READABLE;
	return snt__fail_later(EAGAIN,
			       "nothing has arrived on the stream; wait for "
			       "SNT_STREAM_READABLE",
			       0, 0);
}

static ssize_t have_read(struct snt_stream *stream, size_t done, size_t length)
{
	stream->count.bytes_read += done;
	if (!done && length)
		return nothing_to_read(stream, 1);
	if (done < length) {
		stream->low = 1;
		stream->wants |= SNT_STREAM_READABLE;
	}
	return (ssize_t)done;
}

ssize_t snt_stream_read(struct snt_stream *stream, void *buffer, size_t length)
{
	int ret = snt__stream_check_process(stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (length > SSIZE_MAX)
		return snt__fail(EINVAL, "%zu bytes are too many for one call", length);
	return have_read(stream, copy_out(stream, buffer, length), length);
}

ssize_t snt_stream_readv(struct snt_stream *stream, const struct iovec *iov, int count)
{
	size_t done = 0, length = 0;
	int ret = snt__stream_check_process(stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (count < 0)
		return snt__fail(EINVAL, "buffer count %d is out of range", count);
	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > SSIZE_MAX - length)
			return snt__fail(EINVAL, "too many bytes for one call");
		length += iov[i].iov_len;
	}
	for (int i = 0; i < count; i++)
		done += copy_out(stream, iov[i].iov_base, iov[i].iov_len);
	return have_read(stream, done, length);
}

ssize_t snt_stream_peek(struct snt_stream *stream, size_t least, struct iovec iov[2])
{
	struct snt__inflow *in = &stream->in;
	uint64_t unread = snt__inflow_unread(in);
	uint64_t at = in->consumed & (in->size - 1);
	uint64_t first = unread < in->size - at ? unread : in->size - at;
	int ret = snt__stream_check_process(stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (least > in->size / 2)
		return snt__fail(EINVAL, "cannot wait for %zu bytes in a ring of %llu",
				 least, (unsigned long long)in->size);
	iov[0] = (struct iovec){ stream->ring + at, first };
	iov[1] = (struct iovec){ stream->ring, unread - first };
	if (!least)
		least = 1;
	if (unread >= least || (unread && (in->ended || snt__stream_is_over(stream))))
		return (ssize_t)unread;
	return nothing_to_read(stream, least);
}

int snt_stream_consume(struct snt_stream *stream, size_t length)
{
	int ret = snt__stream_check_process(stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (length > snt__inflow_unread(&stream->in))
		return snt__fail(EINVAL,
				 "%zu bytes are more than the %llu that have arrived",
				 length,
				 (unsigned long long)snt__inflow_unread(&stream->in));
	stream->in.consumed += length;
	stream->count.bytes_read += length;
	if (snt__inflow_due(&stream->in))
		snt__stream_pump(stream);
	return 0;
}
