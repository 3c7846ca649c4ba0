/* SPDX-License-Identifier: MIT */
#ifndef SNT_STREAM_STREAM_H
#define SNT_STREAM_STREAM_H

#include <sennit/op.h>
#include <sennit/stream.h>

#include "conn/hub.h"
#include "stream/flow.h"
#include "stream/greeting.h"
#include "util/list.h"

/*
 * A stream. Bytes that are written go through the stage, a ring of registered memory:
 * staged by the program, posted to the QP, released when the peer's device has them.
 * Positions count from 0 and have no end.
 *
 *	released <= posted <= staged <= released + stage_size
 *
 * What is under way is a FIFO of lots, one for each signalled WR, since completions come
 * in order. The last WR of all that there is to send is always signalled, so that whoever
 * waits for anything waits for a completion or for a word of the peer.
 *
 *	flow.c     how much may be sent
 *	greeting.c  what the ends tell each other at first
 *	send.c     the stage, registered sends, credits: all that is posted
 *	recv.c     what arrives
 *	ready.c    whom to tell that what he wished for is there; waiting
 *	life.c     memory; beginning, failing, ending
 *	below.c    the QP, or the connection, that it is on
 *	connect.c  by address; listener.c
 *	file.c     as a FILE
 */

/* Takes completions: as struct snt_op begins. */
struct snt__stream_port {
	void (*complete)(struct snt_op *op, const struct snt_wc *wc);
	struct snt_stream *stream;
};

/* What one signalled WR, and those before it that were not, stand for. */
struct snt__lot {
	uint32_t staged; /* bytes of the stage */
	uint16_t wrs;
	uint8_t sends; /* registered ones that end with it */
	bool has_data : 1;
	bool ends : 1; /* the stream's own half does with it */
};

/* On the stack of whoever waits. */
struct snt__stream_waiter {
	struct snt__stream_waiter *next;
	struct snt_stream *stream;
	bool gone;
};

struct snt_stream {
	struct snt__stream_port send_port;
	struct snt__stream_port recv_port;
	struct snt_qp *qp;
	struct snt__outflow out;
	struct snt__inflow in;

	/* Receiving. */
	uint8_t *ring;
	struct snt_mem *ring_mem;
	uint64_t low;	       /* readable means so many bytes */
	uint32_t recv_batch;   /* receives that are replaced at once */
	uint32_t recv_missing; /* to be replaced */
	uint32_t cost_missing; /* what they stand for, as the peer counts */
	uint32_t data_missing; /* of this, those of data */

	/* Sending. */
	uint8_t *stage;
	struct snt_mem *stage_mem;
	uint64_t stage_size;
	uint64_t staged, posted, released;
	uint64_t chunk;
	struct snt_token remote;
	struct snt__lot *lot;
	uint32_t lot_mask, lot_head, lot_tail;
	struct snt__lot quiet; /* WRs since the last signalled one */
	uint32_t data_lots;    /* of those under way, with bytes */
	uint32_t wrs;	       /* under way */
	uint32_t wr_limit;
	uint32_t inline_max;
	struct snt_stream_send *send_first; /* not yet released */
	struct snt_stream_send **send_end;
	struct snt_stream_send *send_next; /* not yet posted as a whole */
	struct snt_stream_send *send_done; /* to be told so */
	struct snt_stream_send **send_done_end;

	/* Wishes. */
	bool wants_read, wants_write, wants_flush;
	bool urgent; /* nothing is put off */

	/* Life. */
	bool open;
	bool told_open;
	bool shut;	 /* nothing more will be written */
	bool end_posted; /* and the peer is being told */
	bool end_acked;
	bool leaving; /* the connection is being disconnected */
	bool failed;
	bool closing_qp;
	bool over;
	bool told_over;
	bool dead;     /* the program is done with it */
	bool programs; /* the program has it */
	bool stalled;
	uint8_t busy; /* inside of functions of the program */
	int status;
	char text[160];

	struct snt__hub *hub;
	struct snt_conn *conn;
	struct snt_stream_listener *listener; /* it came from, until it is accepted */
	struct snt__link in_listener;
	struct snt_op close_op;
	struct snt__worker worker; /* tells what came to be so outside of the loop */
	struct snt__stream_waiter *waiter;
	void (*ready)(void *arg, struct snt_stream *stream, unsigned events);
	void *arg;
	struct snt_stream_info count; /* what is counted, and lanes */
	uint8_t peer_data_length;
	uint8_t peer_data[SNT_STREAM_DATA_MAX];
	uint8_t data_length;
	uint8_t data[SNT_STREAM_DATA_MAX];
};

/* life.c: memory and options; nothing is connected. `receives` is what the QP will have
 * for the peer, `wr_limit` how many WRs it takes. */
int snt__stream_make(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     uint32_t receives, uint32_t wr_limit,
		     struct snt_stream **stream_out);
/* life.c: 0, or what is wrong with sizes, data or the context's devices. */
int snt__stream_check(const struct snt_ctx *ctx, const struct snt_stream_opts *opts);
/* life.c: one that nobody knows, and that no device has a hand in. */
void snt__stream_unmake(struct snt_stream *stream);
/* life.c: one that is over, and that the program is done with. */
void snt__stream_free(struct snt_stream *stream);
/* life.c: the QP is there, and not connected. */
int snt__stream_prepare(struct snt_stream *stream, struct snt_qp *qp);
/* life.c: the peer has told who it is. */
void snt__stream_meet(struct snt_stream *stream, const struct snt__greeting *peer);
/* life.c: it is connected. */
void snt__stream_begin(struct snt_stream *stream);
/* life.c: it has failed. The first reason counts. */
void snt__stream_fail(struct snt_stream *stream, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* life.c: a WR has failed. */
void snt__stream_lose(struct snt_stream *stream, const struct snt_wc *wc);
/* life.c: nothing can come any more, and nothing is in the hands of a device. */
void snt__stream_end(struct snt_stream *stream, int error, const char *text);
/* life.c: if both halves have ended, the connection does. */
void snt__stream_leave(struct snt_stream *stream);
/* life.c: the refusal of a call that sends, or 0. */
int snt__stream_refuse(const struct snt_stream *stream);

/* below.c: ends the connection, or the QP, after a failure. */
void snt__stream_cut(struct snt_stream *stream, const char *text);
/* below.c: does so at once, if it was never connected. True: it is over. */
bool snt__stream_give_up(struct snt_stream *stream);
/* below.c: of the program's QP. True: it is not closed yet, and comes back. */
bool snt__stream_close_qp(struct snt_stream *stream);
void snt__stream_greeting(const struct snt_stream *stream,
			  struct snt__greeting *greeting);

/* What a stream's connection is to be like; `conn` points to the rest. */
struct snt__stream_plan {
	struct snt_conn_opts conn;
	struct snt_qp_opts qp;
	uint8_t offer[SNT_STREAM_OFFER_MAX];
};

/* connect.c: a stream by address, to be connected, or accepted, as planned. */
int snt__stream_plan(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     struct snt__stream_plan *plan, struct snt_stream **stream_out);
/* connect.c: would one with these options be made? */
int snt__stream_check_for_conn(struct snt_loop *loop,
			       const struct snt_stream_opts *opts);
/* connect.c: what the other end of a connection has told of itself. */
int snt__stream_peer(const struct snt_conn *conn, struct snt__greeting *peer);

/* listener.c: of a stream that came from one, and that the program does not have yet. It is
 * open; it has ended. */
void snt__stream_listener_tell(struct snt_stream *stream);
void snt__stream_listener_ended(struct snt_stream *stream);
void snt__stream_listener_forget(struct snt_stream *stream);

/* send.c: posts all that can be posted. */
void snt__stream_pump(struct snt_stream *stream);
void snt__stream_sent(struct snt_op *op, const struct snt_wc *wc);
/* send.c: registered ones that will not be sent any more. */
void snt__stream_drop_sends(struct snt_stream *stream);

/* recv.c */
void snt__stream_received(struct snt_op *op, const struct snt_wc *wc);
int snt__stream_post_receives(struct snt_stream *stream, uint32_t count);

/* ready.c: as snt_stream_wait(); `gone_out` says whether there is still a stream. */
int snt__stream_wait(struct snt_stream *stream, unsigned events, int64_t timeout_ns,
		     bool *gone_out);
/* ready.c: what is so now. */
unsigned snt__stream_state(const struct snt_stream *stream);
/* ready.c: calls the program's functions, as far as there is a reason. The stream may be
 * gone afterwards. Only from inside of the loop. */
void snt__stream_tell(struct snt_stream *stream);
/* ready.c: the same by the next dispatch. */
void snt__stream_tell_later(struct snt_stream *stream);
int snt__stream_work(struct snt__worker *worker);

/* 0, or -ECHILD after a fork. Costs a comparison. */
static inline int snt__stream_check_process(const struct snt_stream *stream)
{
	if (__builtin_expect(!snt__loop_forked(stream->hub->loop), 1))
		return 0;
	return snt__hub_check(stream->hub);
}

static inline bool snt__stream_all_arrived(const struct snt_stream *stream)
{
	return stream->released == stream->staged && !stream->send_first;
}

#endif
