/* SPDX-License-Identifier: MIT */
#ifndef SNT_STREAM_STREAM_H
#define SNT_STREAM_STREAM_H

#include <sennit/op.h>
#include <sennit/stream.h>

#include "conn/conn_loop.h"
#include "stream/flow.h"
#include "stream/greeting.h"
#include "util/list.h"

/*
 * A stream. Written bytes go through the stage, a ring of registered memory: staged by
 * the program, posted to the QP, released when the peer's device has them. Positions
 * count from 0 and never wrap.
 *
 *	released <= posted <= staged <= released + stage_size
 *
 * Messages in flight are a FIFO of send_batches, one for each signalled WR, since completions
 * come in order. The last WR of all data is always signalled, so that every wait ends
 * with a completion or with a message of the peer.
 *
 *	flow.c     how much may be sent
 *	greeting.c  what the ends exchange first
 *	send.c     the stage, registered sends, credits: everything that is posted
 *	recv.c     what arrives
 *	ready.c    readiness callbacks; waiting
 *	life.c     memory; start, failure, end
 *	transport.c  the QP or connection below
 *	connect.c  streams by address; listener.c
 *	file.c     streams as a FILE
 */

/* Takes completions: begins like struct snt_op. */
struct snt__stream_port {
	void (*complete)(struct snt_op *op, const struct snt_wc *wc);
	struct snt_stream *stream;
};

/* A signalled WR and the unsignalled ones before it. */
struct snt__send_batch {
	uint32_t staged; /* bytes of the stage */
	uint16_t wrs;
	uint8_t sends; /* registered sends that end with it */
	bool has_data : 1;
	bool ends : 1; /* it ends the stream's own half */
};

/* The stream's user, if that is a part of the library and not the program. */
struct snt__stream_user {
	/* The peer's user has noted a number; the peer shuts down. NULL, or what is wrong
	 * with that. */
	const char *(*noted)(struct snt_stream *stream, uint32_t number);
	const char *(*peer_shut)(struct snt_stream *stream);
	/* Reports what has become true; from inside the loop. May destroy the stream. */
	void (*tell)(struct snt_stream *stream);
	/* The stream is over: no device uses memory of its user any more. */
	void (*ended)(struct snt_stream *stream);
	/* The last call. */
	void (*freed)(struct snt_stream *stream);
};

/* On the stack of the thread that waits. */
struct snt__stream_waiter {
	struct snt__stream_waiter *next;
	struct snt_stream *stream;
	bool gone;
};

/*
 * The life of a stream. Its two directions end on their own, before that.
 *
 *	phase     begins with                           leads to
 *
 *	STARTING  its creation                          RUNNING, FAILED, OVER
 *	RUNNING   the connection                        LEAVING, FAILED, OVER
 *	LEAVING   the end of both directions            FAILED, OVER
 *	FAILED    the first error, which ends the       OVER
 *	          transport
 *	OVER      the end of the transport
 */
enum snt__stream_phase {
	SNT__STREAM_STARTING,
	SNT__STREAM_RUNNING,
	SNT__STREAM_LEAVING,
	SNT__STREAM_FAILED,
	SNT__STREAM_OVER,
	SNT__STREAM_PHASES,
};

/* This end's direction. Each leads to the next only. */
enum snt__stream_half {
	SNT__STREAM_WRITING,
	SNT__STREAM_SHUT,	/* nothing more will be written */
	SNT__STREAM_END_POSTED, /* behind all data */
	SNT__STREAM_END_ACKED,
};

enum snt__stream_holder {
	SNT__STREAM_LIBRARY, /* a listener, or a call that creates it */
	SNT__STREAM_PROGRAM,
	SNT__STREAM_NOBODY, /* the program has destroyed it */
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
	uint64_t low;	       /* bytes that make the stream readable */
	uint32_t recv_batch;   /* receives that are replaced at once */
	uint32_t recv_missing; /* to be replaced */
	uint32_t cost_missing; /* their cost, as the peer counts */
	uint32_t data_missing; /* the part of this for data */

	/* Sending. */
	uint8_t *stage;
	struct snt_mem *stage_mem;
	uint64_t stage_size;
	uint64_t staged, posted, released;
	uint64_t chunk;
	struct snt_token remote;
	struct snt__send_batch *send_batch;
	uint32_t send_batch_mask, send_batch_head, send_batch_tail;
	struct snt__send_batch quiet; /* WRs since the last signalled one */
	uint32_t data_lots;	      /* send_batches in flight that have bytes */
	uint32_t wrs;		      /* in flight */
	uint32_t wr_limit;
	uint32_t inline_max;
	struct snt_stream_send *send_first; /* not yet released */
	struct snt_stream_send **send_end;
	struct snt_stream_send *send_next; /* not yet posted as a whole */
	struct snt_stream_send *send_done; /* to be reported */
	struct snt_stream_send **send_done_end;

	/* For the peer's user. */
	uint32_t note, note_sent;

	uint8_t wants;	/* SNT_STREAM_* events to be reported; OPEN and OVER once */
	uint8_t phase;	/* enum snt__stream_phase; changed by snt__stream_enter() */
	uint8_t half;	/* enum snt__stream_half */
	uint8_t holder; /* enum snt__stream_holder */
	uint8_t busy;	/* depth of callbacks that are running */
	/* Independent of the phase. */
	bool opened;  /* it has been RUNNING */
	bool urgent;  /* nothing is delayed */
	bool stalled; /* counted as such */
	int status;   /* 0 until it has failed */
	char text[160];

	struct snt__conn_loop *conn_loop;
	struct snt_conn *conn;
	struct snt_stream_listener *listener; /* its source, until accepted */
	struct snt__link in_listener;
	struct snt_op close_op;
	struct snt__worker worker; /* reports changes from outside of the loop */
	struct snt__stream_waiter *waiter;
	void (*ready)(void *arg, struct snt_stream *stream, unsigned events);
	void *arg;
	const struct snt__stream_user *user; /* NULL: the program */
	void *user_arg;
	struct snt_stream_info count; /* counters, and lanes */
	uint8_t peer_data_length;
	uint8_t peer_data[SNT_STREAM_DATA_MAX];
	uint8_t data_length;
	uint8_t data[SNT_STREAM_DATA_MAX];
};

/* life.c: changes the phase. */
void snt__stream_enter(struct snt_stream *stream, enum snt__stream_phase phase);

static inline bool snt__stream_is_over(const struct snt_stream *stream)
{
	return stream->phase == SNT__STREAM_OVER;
}

static inline bool snt__stream_has_failed(const struct snt_stream *stream)
{
	return stream->phase == SNT__STREAM_FAILED || stream->status;
}

/* Can WRs be posted? */
static inline bool snt__stream_is_up(const struct snt_stream *stream)
{
	return stream->phase == SNT__STREAM_RUNNING ||
	       stream->phase == SNT__STREAM_LEAVING;
}

/* life.c: memory and options; not connected. `receives` is what the QP will have for
 * the peer, `wr_limit` how many WRs it takes. */
int snt__stream_make(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     uint32_t receives, uint32_t wr_limit,
		     struct snt_stream **stream_out);
/* life.c: 0, or what is wrong with sizes, data or the context's devices. */
int snt__stream_check(const struct snt_ctx *ctx, const struct snt_stream_opts *opts);
/* life.c: frees a stream that neither the program nor a device uses. */
void snt__stream_unmake(struct snt_stream *stream);
/* life.c: frees a stream that is over, and that the program has destroyed. */
void snt__stream_free(struct snt_stream *stream);
/* life.c: the QP exists, and is not connected. */
int snt__stream_prepare(struct snt_stream *stream, struct snt_qp *qp);
/* life.c: the peer's greeting has arrived. */
void snt__stream_meet(struct snt_stream *stream, const struct snt__greeting *peer);
/* life.c: it is connected. */
void snt__stream_begin(struct snt_stream *stream);
/* life.c: it has failed. The first reason counts. */
void snt__stream_fail(struct snt_stream *stream, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* life.c: a WR has failed. */
void snt__stream_lose(struct snt_stream *stream, const struct snt_wc *wc);
/* life.c: nothing more can arrive, and no device uses it. */
void snt__stream_end(struct snt_stream *stream, int error, const char *text);
/* life.c: ends the connection if both halves have ended. */
void snt__stream_leave(struct snt_stream *stream);
/* life.c: the error of a call that sends, or 0. */
int snt__stream_refuse(const struct snt_stream *stream);

/* transport.c: ends the connection, or the QP, after a failure. */
void snt__stream_cut(struct snt_stream *stream, const char *text);
/* transport.c: the same at once if it was never connected. True: it is over. */
bool snt__stream_give_up(struct snt_stream *stream);
/* transport.c: closes the program's QP. True: not closed yet, its completion follows. */
bool snt__stream_close_qp(struct snt_stream *stream);
void snt__stream_greeting(const struct snt_stream *stream,
			  struct snt__greeting *greeting);

/* The plan of a stream's connection; `conn` points to the rest. */
struct snt__stream_plan {
	struct snt_conn_opts conn;
	struct snt_qp_opts qp;
	uint8_t offer[SNT_STREAM_OFFER_MAX];
};

/* connect.c: a stream by address, to be connected, or accepted, as planned. */
int snt__stream_plan(struct snt_loop *loop, const struct snt_stream_opts *opts,
		     struct snt__stream_plan *plan, struct snt_stream **stream_out);
/* connect.c: would these options be accepted? */
int snt__stream_check_for_conn(struct snt_loop *loop,
			       const struct snt_stream_opts *opts);
/* connect.c: the greeting of the other end of a connection. */
int snt__stream_peer(const struct snt_conn *conn, struct snt__greeting *peer);

/* listener.c: for a stream that came from a listener, and that the program does not
 * have yet: it is open; it has ended. */
void snt__stream_listener_tell(struct snt_stream *stream);
void snt__stream_listener_ended(struct snt_stream *stream);
void snt__stream_listener_forget(struct snt_stream *stream);

/* send.c: posts everything that can be posted. */
void snt__stream_pump(struct snt_stream *stream);
/* send.c: copies bytes to the stage, as many as there is room for. Whole messages are sent at
 * once, so that the peer can begin. */
size_t snt__stream_stage(struct snt_stream *stream, const uint8_t *from, size_t length);
void snt__stream_sent(struct snt_op *op, const struct snt_wc *wc);
/* send.c: tells the peer's user a number, of at most SNT__IMM_NUMBER; of several that have not
 * been sent yet, only the last. */
void snt__stream_note(struct snt_stream *stream, uint32_t number);
/* send.c: drops registered sends that will not be sent any more. */
void snt__stream_drop_sends(struct snt_stream *stream);

/* recv.c */
void snt__stream_received(struct snt_op *op, const struct snt_wc *wc);
int snt__stream_post_receives(struct snt_stream *stream, uint32_t count);

/* ready.c: as snt_stream_wait(); `gone_out` says whether the stream has been
 * destroyed. */
int snt__stream_wait(struct snt_stream *stream, unsigned events, int64_t timeout_ns,
		     bool *gone_out);
/* ready.c: the events that are true now. */
unsigned snt__stream_state(const struct snt_stream *stream);
/* ready.c: calls the program's callbacks for what has become true. The stream may be
 * gone afterwards. Only from inside the loop. */
void snt__stream_tell(struct snt_stream *stream);
/* ready.c: the same in the next dispatch. */
void snt__stream_tell_later(struct snt_stream *stream);
int snt__stream_work(struct snt__worker *worker);

/* 0, or -ECHILD after a fork. Costs a comparison. */
static inline int snt__stream_check_process(const struct snt_stream *stream)
{
	if (__builtin_expect(!snt__loop_forked(stream->conn_loop->loop), 1))
		return 0;
	return snt__conn_loop_check(stream->conn_loop);
}

static inline bool snt__stream_all_arrived(const struct snt_stream *stream)
{
	return stream->released == stream->staged && !stream->send_first;
}

#endif
