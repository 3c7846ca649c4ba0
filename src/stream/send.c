/* SPDX-License-Identifier: MIT */
/*
 * Sending: the program's bytes go to the stage, and from there to the peer's ring as
 * the peer has room, together with credits for the other direction.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "dev/mem.h"
#include "stream/stream.h"
#include "util/assert.h"
#include "util/err.h"
#include "util/minmax.h"
#include "vqp/post.h"
#include "vqp/view.h"

/* The most WRs of one post. */
#define BATCH 8

/* While so many signalled messages are in flight, one that could grow waits for more
 * data: the next completion sends it in any case. */
#define WINDOW 2

/* WRs reserved for messages other than data. */
#define WRS_KEPT 4

struct batch {
	struct snt_send_wr wr[BATCH];
	struct snt_sge sge[BATCH];
	unsigned count;
};

/*
 * One WR
 */

static inline struct snt_send_wr *next_wr(struct snt_stream *stream,
					  struct batch *batch, uint32_t imm)
{
	struct snt_send_wr *wr = &batch->wr[batch->count];
	struct snt_sge *sge = &batch->sge[batch->count];

	batch->count++;
	wr->wr_id = (uintptr_t)&stream->send_port;
	wr->opcode = SNT_OP_WRITE_IMM;
	wr->flags = 0;
	wr->sge_count = 0;
	wr->imm = imm;
	wr->sge = sge;
	wr->remote = &stream->remote;
	wr->remote_addr =
		stream->remote.addr + (stream->out.sent & (stream->out.size - 1));
	return wr;
}

/* Signals it: its completion also stands for the WRs before it. */
static inline void signal_batch(struct snt_stream *stream, struct snt_send_wr *wr)
{
	wr->flags |= SNT_SEND_SIGNALED;
	stream->data_lots += stream->quiet.has_data;
	stream->send_batch[stream->send_batch_tail++ & stream->send_batch_mask] =
		stream->quiet;
	stream->quiet = (struct snt__send_batch){ 0 };
}

static inline unsigned cost_of(const struct snt_stream *stream, uint32_t imm)
{
	return 1 + (imm && snt__qp_is_dqplb(stream->qp));
}

/* A message without bytes. */
static bool add_imm(struct snt_stream *stream, struct batch *batch, uint32_t imm,
		    bool ends)
{
	struct snt_send_wr *wr = next_wr(stream, batch, imm);

	snt__outflow_spend_other(&stream->out, cost_of(stream, imm));
	stream->wrs++;
	stream->quiet.wrs++;
	stream->quiet.ends = ends;
	signal_batch(stream, wr);
	return true;
}

static inline bool may_add_imm(const struct snt_stream *stream)
{
	return stream->wrs < stream->wr_limit &&
	       snt__outflow_may_tell(&stream->out,
				     snt__qp_is_dqplb(stream->qp) ? 2 : 1);
}

static bool add_credit(struct snt_stream *stream, struct batch *batch)
{
	bool done = stream->in.ended && stream->half >= SNT__STREAM_END_POSTED;

	if (done || !snt__inflow_due(&stream->in) || !may_add_imm(stream))
		return false;
	stream->count.credits_sent++;
	return add_imm(stream, batch, snt__inflow_tell(&stream->in), false);
}

static bool add_note(struct snt_stream *stream, struct batch *batch)
{
	uint32_t imm = snt__imm(SNT__IMM_NOTE, SNT__IMM_NOTED | stream->note);
	unsigned cost = cost_of(stream, imm);

	if (stream->note == stream->note_sent || stream->wrs >= stream->wr_limit ||
	    !snt__outflow_may_note(&stream->out, cost))
		return false;
	stream->note_sent = stream->note;
	add_imm(stream, batch, imm, false);
	snt__outflow_noted(&stream->out);
	return true;
}

/* After all data. */
static bool add_end(struct snt_stream *stream, struct batch *batch)
{
	if (stream->half != SNT__STREAM_SHUT || stream->posted != stream->staged ||
	    stream->send_next || !may_add_imm(stream))
		return false;
	stream->half = SNT__STREAM_END_POSTED;
	return add_imm(stream, batch,
		       snt__imm(SNT__IMM_END,
				(uint32_t)stream->out.sent & SNT__IMM_POSITION),
		       true);
}

/*
 * Data
 */

/* Contiguous bytes, here and at the peer. */
struct piece {
	struct snt_stream_send *send; /* their send; NULL: from the stage */
	uint64_t have;		      /* bytes that could be sent if there were room */
	uint64_t length;
	bool last; /* ends with the last byte there is to send */
};

static inline struct piece next_piece(const struct snt_stream *stream)
{
	struct snt_stream_send *send = stream->send_next;
	uint64_t staged = (send ? send->at : stream->staged) - stream->posted;
	uint64_t to = stream->out.sent & (stream->out.size - 1);
	struct piece piece = { .have = staged };

	if (!staged && send) {
		piece.send = send;
		piece.have = send->length - send->sent;
	}
	piece.length =
		snt__min(snt__min(piece.have, stream->chunk), stream->out.size - to);
	if (!piece.send)
		piece.length =
			snt__min(piece.length,
				 stream->stage_size -
					 (stream->posted & (stream->stage_size - 1)));
	piece.last =
		piece.length == piece.have &&
		(piece.send ? !send->next && stream->staged == stream->posted : !send);
	return piece;
}

/* Limits the piece to the peer's room. Less than an eighth of the ring is not used,
 * because a slow reader would get tiny messages; the peer reports when a quarter is
 * free. */
static inline bool fit_into_room(struct snt_stream *stream, struct piece *piece)
{
	uint64_t room = snt__outflow_room(&stream->out);

	if (__builtin_expect(piece->length <= room, 1))
		return true;
	if (room < stream->out.size / 8) {
		stream->count.stalls += !stream->stalled;
		stream->stalled = true;
		return false;
	}
	piece->length = room;
	piece->last = false;
	return true;
}

/* May more data join this piece, and is a completion sure to send it otherwise? */
static inline bool may_wait(const struct snt_stream *stream, const struct piece *piece)
{
	return piece->last && !piece->send && piece->length < stream->chunk &&
	       stream->data_lots >= WINDOW && !stream->urgent &&
	       stream->half == SNT__STREAM_WRITING;
}

/* The immediate that is sent with the data. */
static inline uint32_t choose_imm(struct snt_stream *stream, uint64_t length)
{
	struct snt__inflow *in = &stream->in;
	bool extra =
		snt__qp_is_dqplb(stream->qp); /* an immediate costs one more receive */

	if (snt__qp_is_spray(stream->qp))
		return snt__imm(SNT__IMM_LENGTH, (uint32_t)length);
	if (extra && (!snt__inflow_worth(in) || !snt__outflow_may(&stream->out, 2)))
		return 0;
	stream->count.credits_along++;
	return snt__inflow_tell(in);
}

static inline void take_piece(struct snt_stream *stream, const struct piece *piece,
			      struct snt_sge *sge)
{
	struct snt_stream_send *send = piece->send;

	sge->length = piece->length;
	if (!send) {
		sge->mem = stream->stage_mem;
		sge->addr = stream->stage + (stream->posted & (stream->stage_size - 1));
		stream->posted += piece->length;
		stream->quiet.staged += (uint32_t)piece->length;
		return;
	}
	sge->mem = send->mem;
	sge->addr = (uint8_t *)(uintptr_t)send->addr + send->sent;
	send->sent += piece->length;
	if (send->sent < send->length)
		return;
	stream->send_next = send->next;
	stream->quiet.sends++;
}

static bool add_data(struct snt_stream *stream, struct batch *batch)
{
	struct piece piece = next_piece(stream);
	struct snt_send_wr *wr;
	uint32_t imm;

	if (!piece.length || may_wait(stream, &piece) ||
	    !fit_into_room(stream, &piece) ||
	    stream->wrs + WRS_KEPT >= stream->wr_limit ||
	    !snt__outflow_may(&stream->out, 1))
		return false;
	imm = choose_imm(stream, piece.length);
	wr = next_wr(stream, batch, imm);
	take_piece(stream, &piece, (struct snt_sge *)wr->sge);
	wr->sge_count = 1;
	if (piece.length <= stream->inline_max)
		wr->flags = SNT_SEND_INLINE;
	snt__outflow_spend(&stream->out, piece.length, cost_of(stream, imm));
	stream->count.messages_sent++;
	stream->quiet.has_data = true;
	stream->wrs++;
	stream->quiet.wrs++;
	if (piece.last || stream->quiet.sends ||
	    stream->quiet.staged >= stream->stage_size / 8 ||
	    stream->quiet.wrs >= stream->wr_limit / 4)
		signal_batch(stream, wr);
	return true;
}

/*
 * Posting
 */

static bool post_batch(struct snt_stream *stream, struct batch *batch)
{
	int ret = snt__qp_post_send(stream->qp, batch->wr, batch->count);

	if (__builtin_expect(ret == (int)batch->count, 1))
		return true;
	/* The QP is failing, and completions will tell why; or its count of WRs differs
	 * from ours. */
	snt__stream_fail(stream, ret == -ESHUTDOWN ? 0 : EIO,
			 "the QP takes nothing more");
	return false;
}

void snt__stream_pump(struct snt_stream *stream)
{
	struct batch batch;

	do {
		if (!snt__stream_is_up(stream))
			return;
		batch.count = 0;
		while (batch.count < BATCH && add_data(stream, &batch))
			;
		if (batch.count < BATCH)
			add_credit(stream, &batch);
		if (batch.count < BATCH)
			add_note(stream, &batch);
		if (batch.count < BATCH)
			add_end(stream, &batch);
		if (!batch.count)
			return;
	} while (post_batch(stream, &batch) && batch.count == BATCH);
}

void snt__stream_note(struct snt_stream *stream, uint32_t number)
{
	stream->note = number;
	snt__stream_pump(stream);
}

/* Registered sends that are complete, in the order in which they were sent. */
static void finish_sends(struct snt_stream *stream, unsigned count, int result)
{
	while (count-- && stream->send_first) {
		struct snt_stream_send *send = stream->send_first;

		stream->send_first = send->next;
		if (!stream->send_first)
			stream->send_end = &stream->send_first;
		send->result = result;
		send->next = NULL;
		*stream->send_done_end = send;
		stream->send_done_end = &send->next;
	}
}

void snt__stream_drop_sends(struct snt_stream *stream)
{
	stream->send_next = NULL;
	finish_sends(stream, UINT_MAX, stream->status ? stream->status : -ECONNRESET);
}

static inline void finish_send_batch(struct snt_stream *stream)
{
	struct snt__send_batch send_batch =
		stream->send_batch[stream->send_batch_head++ & stream->send_batch_mask];

	stream->released += send_batch.staged;
	stream->wrs -= send_batch.wrs;
	stream->data_lots -= send_batch.has_data;
	snt__assert(stream->released <= stream->posted &&
		    stream->posted <= stream->staged &&
		    stream->staged - stream->released <= stream->stage_size);
	if (send_batch.sends)
		finish_sends(stream, send_batch.sends, 0);
	if (stream->urgent && snt__stream_all_arrived(stream))
		stream->urgent = false;
	if (send_batch.ends) {
		snt__assert(stream->half == SNT__STREAM_END_POSTED);
		stream->half = SNT__STREAM_END_ACKED;
		snt__stream_leave(stream);
	}
}

void snt__stream_sent(struct snt_op *op, const struct snt_wc *wc)
{
	struct snt_stream *stream = ((struct snt__stream_port *)op)->stream;

	if (__builtin_expect(snt__stream_has_failed(stream), 0))
		return;
	if (__builtin_expect(wc->status != SNT_WC_SUCCESS, 0)) {
		snt__stream_lose(stream, wc);
	} else {
		finish_send_batch(stream);
		snt__stream_pump(stream);
	}
	snt__stream_tell(stream);
}

/*
 * Calls
 */

int snt__stream_refuse(const struct snt_stream *stream)
{
	int ret = snt__stream_check_process(stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (snt__stream_has_failed(stream))
		return snt__fail(stream->status ? -stream->status : ECONNRESET, "%s",
				 stream->text);
	if (stream->half != SNT__STREAM_WRITING)
		return snt__fail(EPIPE, "the stream has been shut down by this end");
	return 0;
}

size_t snt__stream_stage(struct snt_stream *stream, const uint8_t *from, size_t length)
{
	uint64_t mask = stream->stage_size - 1;
	size_t done = 0;

	while (done < length) {
		uint64_t at = stream->staged & mask;
		uint64_t room =
			stream->stage_size - (stream->staged - stream->released);
		uint64_t part = snt__min(snt__min(room, stream->stage_size - at),
					 snt__min(length - done, stream->chunk));

		if (!part)
			break;
		memcpy(stream->stage + at, from + done, part);
		stream->staged += part;
		done += part;
		if (stream->staged - stream->posted >= stream->chunk)
			snt__stream_pump(stream);
	}
	return done;
}

static ssize_t written_or_again(struct snt_stream *stream, size_t done, size_t length)
{
	if (done < length)
		stream->wants |= SNT_STREAM_WRITABLE;
	if (!done && length)
		return snt__fail_later(EAGAIN,
				       "the stream's send buffer is full; wait for "
				       "SNT_STREAM_WRITABLE",
				       0, 0);
	stream->count.bytes_written += done;
	snt__stream_pump(stream);
	return (ssize_t)done;
}

ssize_t snt_stream_write(struct snt_stream *stream, const void *buffer, size_t length)
{
	int ret = snt__stream_refuse(stream);

	if (ret)
		return ret;
	if (length > SSIZE_MAX)
		return snt__fail(EINVAL, "%zu bytes are too many for one call", length);
	return written_or_again(stream, snt__stream_stage(stream, buffer, length),
				length);
}

ssize_t snt_stream_writev(struct snt_stream *stream, const struct iovec *iov, int count)
{
	size_t done = 0, length = 0;
	int ret = snt__stream_refuse(stream);

	if (ret)
		return ret;
	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > SSIZE_MAX - length)
			return snt__fail(EINVAL, "too many bytes for one call");
		length += iov[i].iov_len;
	}
	if (count < 0)
		return snt__fail(EINVAL, "buffer count %d is out of range", count);
	for (int i = 0; i < count; i++) {
		size_t part =
			snt__stream_stage(stream, iov[i].iov_base, iov[i].iov_len);

		done += part;
		if (part < iov[i].iov_len)
			break;
	}
	return written_or_again(stream, done, length);
}

int snt_stream_write_registered(struct snt_stream *stream, struct snt_stream_send *send)
{
	int ret = snt__stream_refuse(stream);

	if (ret)
		return ret;
	if (!send->mem || !send->length || !send->released)
		return snt__fail(EINVAL,
				 "a registered send needs memory, a length and a "
				 "function");
	if (send->mem->ctx != stream->conn_loop->ctx)
		return snt__fail(EINVAL, send->mem->ctx
						 ? "the memory is registered in "
						   "another context"
						 : "the memory has been released");
	if (!snt__mem_holds(send->mem, (uintptr_t)send->addr, send->length))
		return snt__fail(ERANGE, "%llu bytes are outside of the memory",
				 (unsigned long long)send->length);
	send->at = stream->staged;
	send->sent = 0;
	send->next = NULL;
	*stream->send_end = send;
	stream->send_end = &send->next;
	if (!stream->send_next)
		stream->send_next = send;
	stream->count.bytes_written += send->length;
	snt__stream_pump(stream);
	return 0;
}

int snt_stream_flush(struct snt_stream *stream)
{
	int ret = snt__stream_check_process(stream);

	if (ret || snt__stream_has_failed(stream))
		return ret ? ret : snt__stream_refuse(stream);
	if (stream->opened && snt__stream_all_arrived(stream))
		return 0;
	stream->urgent = true;
	stream->wants |= SNT_STREAM_FLUSHED;
	snt__stream_pump(stream);
	return snt__fail_later(EAGAIN,
			       "the peer has not acknowledged all data yet; wait for "
			       "SNT_STREAM_FLUSHED",
			       0, 0);
}

int snt_stream_shutdown(struct snt_stream *stream)
{
	int ret = snt__stream_check_process(stream);

	if (ret || snt__stream_has_failed(stream))
		return ret ? ret : snt__stream_refuse(stream);
	if (stream->half != SNT__STREAM_WRITING)
		return snt__fail(EALREADY, "the stream has been shut down before");
	stream->half = SNT__STREAM_SHUT;
	snt__stream_pump(stream);
	return 0;
}
