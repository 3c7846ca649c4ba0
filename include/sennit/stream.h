/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_STREAM_H
#define SENNIT_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sennit/api.h>
#include <sennit/conn.h>
#include <sennit/ctx.h>
#include <sennit/mem.h>
#include <sennit/qp.h>

/*
 * Streams: an ordered pipe of bytes in each direction, over all lanes of a virtual QP.
 *
 *	server                                  client
 *
 *	snt_stream_listener_create()            snt_stream_connect()
 *	snt_stream_listener_wait()              snt_stream_wait(SNT_STREAM_OPEN)
 *	             ... snt_stream_read(), snt_stream_write() ...
 *	snt_stream_close()                      snt_stream_close()
 *
 * How. Each end has a ring, into which the other writes by RDMA, as far as it has been
 * told that there is room. Who reads tells how much he has read along with the next data
 * the other way, or by itself when a quarter of the ring has become free. So no message ever
 * finds a receiver without room for it, and to wait for a peer that does not read costs
 * neither end anything. Written bytes are copied once, into registered memory of this end,
 * and small writes that come faster than they can be sent go out together; those of
 * snt_stream_write_registered() are not copied at all.
 *
 * Without waiting. No call but those with a timeout blocks: where nothing can be done at
 * the moment, they return -EAGAIN. Each -EAGAIN, and each write or read of less than was
 * asked for, leaves a wish behind: as soon as the call is worth repeating the function
 * snt_stream_opts::ready is called, by the stream's loop (loop.h), once for each wish.
 * There is none before the first call: a program reads or writes once when it gets a
 * stream, and then from the function (examples/22-stream-callbacks.c). Programs that have
 * no function call snt_stream_wait(), or look again when the loop has run. Both halves are
 * independent of each other: what one waits for does not hold up the other.
 *
 * Nothing happens behind the program's back: bytes that had to wait, for room at the peer or
 * for others to go with, leave when the loop runs. A program that is about to do something
 * else for long calls snt_stream_flush() until it returns 0.
 *
 * Ends. Each end closes its own half (snt_stream_shutdown()), and the other reads 0 when
 * it has read everything. When both have, and all has arrived, the stream is over, with
 * status 0. A stream can also fail: by snt_stream_abort(), of either end, by the loss of
 * the connection, or by a peer which breaks the rules. Then writes fail at once; reads have
 * first everything that had arrived, and then the error.
 *
 * A peer can write to this end's ring, and to nothing else; what it says is checked
 * against what it was told. One that lies ends its stream with -EPROTO and a sentence.
 *
 * Thread: loop, for every call here. The memory of snt_stream_send may have been registered
 * by any thread. In a ready function all calls are legal but those that wait, which are
 * -EBUSY there; the stream may be destroyed. After a fork streams are the parent's: what
 * would move bytes, or change something, is -ECHILD in the child.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_stream;
struct snt_stream_listener;

/* The shortest and longest ring; the longest lot of bytes for the peer's program. */
#define SNT_STREAM_RING_MIN 256
#define SNT_STREAM_RING_MAX (UINT64_C(1) << 30)
#define SNT_STREAM_DATA_MAX 64
/* The longest offer, see snt_stream_offer(). */
#define SNT_STREAM_OFFER_MAX SNT_CONN_DATA_MAX

/* What is so, or has come to be so. */
enum snt_stream_events {
	SNT_STREAM_OPEN = 1 << 0,     /* connected; of snt_stream_connect() */
	SNT_STREAM_READABLE = 1 << 1, /* bytes, the end, or an error */
	SNT_STREAM_WRITABLE = 1 << 2, /* room, or an error */
	SNT_STREAM_FLUSHED = 1 << 3,  /* all that was written has arrived */
	SNT_STREAM_OVER = 1 << 4, /* the last one: snt_stream_query() has the status */
};

struct snt_stream_opts {
	size_t size;
	/* Rounded up to powers of two; 0: 1 MiB. The ring that the peer writes to, and the
	 * memory for what has been written and has not yet arrived. */
	uint64_t recv_size;
	uint64_t send_size;
	/* Messages under way, 1 to 4096; 0: 64. Has nothing to do with how many writes
	 * there are: those that find all in use go out together. From about 900 on it takes
	 * a CQ of the program's own. */
	uint32_t depth;
	uint32_t lanes;	  /* as in snt_conn_opts; 1 costs least on a single device */
	uint32_t devices; /* bit i: use device i; 0: all */
	uint32_t mtu;	  /* as in snt_qp_opts */
	/* Messages up to this length go out with the request, where there is one lane and
	 * the devices can do so; 0: none. */
	uint32_t inline_max;
	/* One with ops (cq.h); NULL: one that all streams of the loop share. */
	struct snt_cq *cq;
	/* What was wished for, or has happened, has come: a sum of snt_stream_events. */
	void (*ready)(void *arg, struct snt_stream *stream, unsigned events);
	void *arg;
	/* Of snt_stream_connect(): as in snt_conn_opts. */
	const char *host;
	uint16_t port;
	const char *source;
	enum snt_carrier carrier;
	const void *secret;
	size_t secret_length;
	const char *name;
	uint64_t setup_ns;
	uint64_t detect_ns;
	/* For the peer's program; copied. */
	const void *data;
	size_t data_length;
};

/**
 * snt_stream_connect - connect to a listener
 *
 * What is written before it is open goes out as soon as it is.
 *
 * Ownership: the program's, until snt_stream_destroy(), also if it fails later.
 * Returns: 0; -EOPNOTSUPP if a device has no write with immediate; otherwise as
 * snt_conn_connect() and snt_mem_register().
 */
SNT_API int snt_stream_connect(struct snt_loop *loop,
			       const struct snt_stream_opts *opts,
			       struct snt_stream **stream_out);

struct snt_stream_listener_opts {
	size_t size;
	const char *host; /* as in snt_listener_opts, from here */
	uint16_t port;
	enum snt_carrier carrier;
	/* Streams that ended before they were accepted take places of it, too. */
	uint32_t backlog;
	uint32_t connection_max;
	const void *secret;
	size_t secret_length;
	uint64_t setup_ns; /* to here */
	/* Of the streams that are accepted, copied; host, port, source, carrier, secret and
	 * name must be 0. NULL: all defaults. */
	const struct snt_stream_opts *stream;
	/* One is open, or over again, with bytes to be read: it is the program's from now on.
	 * NULL: snt_stream_listener_wait() has it. */
	void (*accepted)(void *arg, struct snt_stream_listener *listener,
			 struct snt_stream *stream);
	void *arg;
	/* Another listener, in any loop of the context, whose port this one shares: as in
	 * snt_listener_opts, with `accepted` for its function. */
	struct snt_stream_listener *share;
};

/**
 * snt_stream_listener_create - listen for streams
 *
 * All that are asked for are accepted, within the limits.
 *
 * Returns: 0; -EINVAL also for options of streams that are out of range; otherwise as
 * snt_listener_create().
 */
SNT_API int snt_stream_listener_create(struct snt_loop *loop,
				       const struct snt_stream_listener_opts *opts,
				       struct snt_stream_listener **listener_out);

/**
 * snt_stream_listener_port - on which port
 */
SNT_API uint16_t snt_stream_listener_port(const struct snt_stream_listener *listener);

/**
 * snt_stream_listener_address - an address at which peers reach a listener
 *
 * Returns: as snt_listener_address().
 */
SNT_API int snt_stream_listener_address(const struct snt_stream_listener *listener,
					unsigned position, char *buffer, size_t size);

/**
 * snt_stream_listener_wait - wait for a stream that is open
 * @timeout_ns: -1: for ever; 0: do not wait
 *
 * For listeners without a function. A stream that was open and has ended since comes all
 * the same, in its turn: what it had delivered can be read, then how it ended.
 *
 * Ownership: the stream is the program's.
 * Returns: 0; -EAGAIN if there is none in time; -EINVAL if there is a function; -EBUSY
 * inside of one; -ECANCELED if the listener was destroyed meanwhile; the errno of the loop.
 */
SNT_API int snt_stream_listener_wait(struct snt_stream_listener *listener,
				     int64_t timeout_ns,
				     struct snt_stream **stream_out);

/**
 * snt_stream_listener_destroy - listen no more
 *
 * Streams that the program has go on; others are given up. NULL is legal and does
 * nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_stream_listener_destroy(struct snt_stream_listener *listener);

/**
 * snt_stream_create - a stream over a virtual QP of the program's
 * @qp: not yet connected, nothing posted; reports to one CQ, made with ops; of any scheme
 * @opts: sizes and functions; depth is that of the QP, and the rest must be 0
 *
 * For programs that connect by cards (card.h). Both ends make their stream, exchange
 * offers by the way that cards go, connect their QPs, then call snt_stream_start(). Each
 * end grants what its QP has receives for, of which 32 are kept for the stream's own
 * messages.
 *
 * Ownership: the QP stays the program's, but nobody else posts to it or closes it; it is
 * closed when the stream is over.
 * Returns: 0; -EINVAL if the QP is connected, has no ops, has receives posted or a stream
 * already, or room for too few, which the text names; -EOPNOTSUPP; otherwise as
 * snt_mem_register().
 */
SNT_API int snt_stream_create(struct snt_qp *qp, const struct snt_stream_opts *opts,
			      struct snt_stream **stream_out);

/**
 * snt_stream_offer - what the peer needs to know
 *
 * Returns: the number of bytes, at most SNT_STREAM_OFFER_MAX; -ENOSPC if @size is too
 * small.
 */
SNT_API ssize_t snt_stream_offer(const struct snt_stream *stream, void *buffer,
				 size_t size);

/**
 * snt_stream_start - begin, with the peer's offer
 *
 * Returns: 0; -ENOTCONN if the QP is not connected; -EALREADY; -EPROTONOSUPPORT for
 * another version; -EBADMSG for anything that snt_stream_offer() cannot have written.
 */
SNT_API int snt_stream_start(struct snt_stream *stream, const void *offer,
			     size_t length);

/**
 * snt_stream_on_ready - set, or change, the function for events
 *
 * For streams from a listener, mostly. What was wished for before is told to the new one.
 */
SNT_API void snt_stream_on_ready(struct snt_stream *stream,
				 void (*ready)(void *arg, struct snt_stream *stream,
					       unsigned events),
				 void *arg);

/**
 * snt_stream_read, snt_stream_readv - take bytes that have arrived
 *
 * Returns: how many, at least 1; 0 if the peer has shut down and all was read, or if
 * nothing was asked for; -EAGAIN if there are none now; once the stream is over, and all
 * was read, its status; -EINVAL for a negative count, or for more bytes than a ssize_t
 * holds.
 */
SNT_API ssize_t snt_stream_read(struct snt_stream *stream, void *buffer, size_t length);
SNT_API ssize_t snt_stream_readv(struct snt_stream *stream, const struct iovec *iov,
				 int count);

/**
 * snt_stream_peek - look at bytes that have arrived, where they are
 * @least: how many are needed, at most half of the ring; 0: 1. With fewer it is -EAGAIN,
 *	unless no more will come.
 * @iov: set to where they are, in order; the second has length 0 if there is but one
 *
 * They stay there until snt_stream_consume().
 *
 * Returns: how many; 0, -EAGAIN or the status as snt_stream_read(); -EINVAL.
 */
SNT_API ssize_t snt_stream_peek(struct snt_stream *stream, size_t least,
				struct iovec iov[2]);

/**
 * snt_stream_consume - be done with bytes that were looked at
 *
 * Their memory is the peer's from now on.
 *
 * Returns: 0; -EINVAL if there are not as many.
 */
SNT_API int snt_stream_consume(struct snt_stream *stream, size_t length);

/**
 * snt_stream_write, snt_stream_writev - send bytes
 *
 * They are copied, and leave at once unless many small ones are under way.
 *
 * Returns: how many were taken, at least 1 unless nothing was asked for; -EAGAIN if there
 * is no room now; -EPIPE after snt_stream_shutdown(); the reason if the stream has
 * failed; -EINVAL as snt_stream_read().
 */
SNT_API ssize_t snt_stream_write(struct snt_stream *stream, const void *buffer,
				 size_t length);
SNT_API ssize_t snt_stream_writev(struct snt_stream *stream, const struct iovec *iov,
				  int count);

/* Bytes to be sent from where they are. Zero it, then set the upper part. */
struct snt_stream_send {
	const struct snt_mem *mem; /* in which they are */
	const void *addr;
	uint64_t length;
	/* The memory is the program's again, and so is this structure. */
	void (*released)(struct snt_stream_send *send);
	void *arg;
	int32_t result; /* 0: all has arrived; else why nobody knows */
	/* The library's. */
	uint64_t at, sent;
	struct snt_stream_send *next;
};

/**
 * snt_stream_write_registered - send bytes without copying them
 *
 * In order with what is written otherwise. Any number may be under way; the function is
 * called once for each, in order, by the loop.
 *
 * Ownership: the structure and the bytes are the library's until released().
 * Returns: 0; -EINVAL without a length or function; -ERANGE outside of the memory;
 * -EPIPE, or the reason, as snt_stream_write().
 */
SNT_API int snt_stream_write_registered(struct snt_stream *stream,
					struct snt_stream_send *send);

/**
 * snt_stream_flush - let nothing wait here
 *
 * Small writes go out at once instead of being gathered, until all that was written before
 * this call has arrived.
 *
 * Returns: 0 if everything has arrived in the peer's memory; -EAGAIN if it has not yet;
 * the reason if the stream has failed.
 */
SNT_API int snt_stream_flush(struct snt_stream *stream);

/**
 * snt_stream_shutdown - nothing more will be written
 *
 * What was written before still goes out. Reading goes on.
 *
 * Returns: 0; -EALREADY; the reason if the stream has failed.
 */
SNT_API int snt_stream_shutdown(struct snt_stream *stream);

/**
 * snt_stream_close - end in good order, and free
 * @timeout_ns: -1: for ever; 0: do not wait
 *
 * Shuts down, if that was not done; waits until the peer has, too, and until all has
 * arrived on both sides; then destroys. Nothing is lost: bytes that came meanwhile are the
 * reason not to destroy.
 *
 * Returns: 0: it is gone; -ECANCELED if it was destroyed meanwhile; with the stream still
 * there, -EINPROGRESS if time is up, -ENODATA if there is something to be read, its status if
 * it failed, -EBUSY inside of a function if it would have to wait.
 */
SNT_API int snt_stream_close(struct snt_stream *stream, int64_t timeout_ns);

/**
 * snt_stream_abort - end now
 * @text: a reason for the peer's people; NULL: none
 *
 * Both ends are over soon, here with -ECANCELED, at the peer with -ECONNABORTED. What is
 * on its way may arrive, or not.
 *
 * Returns: 0; -EALREADY if it is over, or on the way there.
 */
SNT_API int snt_stream_abort(struct snt_stream *stream, const char *text);

/**
 * snt_stream_destroy - be done with a stream, whatever state it is in
 *
 * One that is not over is aborted. It is gone for the program: no function of it is
 * called any more but those of memory that is still to be released. What devices have yet
 * to let go of is seen to by the loop, or by closing it. NULL is legal and does nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_stream_destroy(struct snt_stream *stream);

/**
 * snt_stream_wait - wait until one of these is so
 * @events: a sum of snt_stream_events; SNT_STREAM_OVER is always waited for
 * @timeout_ns: -1: for ever; 0: look, and do not wait
 *
 * Returns: those of @events, and SNT_STREAM_OVER, that are so; the status if only OVER is
 * and it failed; -EINPROGRESS if time is up; -EBUSY inside of a function; -ECANCELED if it
 * was destroyed meanwhile; the errno of the loop.
 */
SNT_API int snt_stream_wait(struct snt_stream *stream, unsigned events,
			    int64_t timeout_ns);

/**
 * snt_stream_read_all, snt_stream_write_all - a given number of bytes, however long it takes
 * @timeout_ns: for all of them; -1: for ever
 *
 * Returns: how many; fewer than @length only if the timeout came first, or the end of the
 * stream or an error, of which the next call tells. If there were no bytes at all,
 * -EINPROGRESS if time is up, or what snt_stream_read() or snt_stream_write() returns.
 */
SNT_API ssize_t snt_stream_read_all(struct snt_stream *stream, void *buffer,
				    size_t length, int64_t timeout_ns);
SNT_API ssize_t snt_stream_write_all(struct snt_stream *stream, const void *buffer,
				     size_t length, int64_t timeout_ns);

/**
 * snt_stream_file - a FILE for a stream
 * @mode: "r", "w" or "r+", as of fopen(3)
 *
 * Its calls wait, and dispatch meanwhile; so they fail with EBUSY inside of callbacks.
 * fclose(3) waits until what was written has arrived, and leaves the stream as it is. A
 * stream is not to be destroyed before its FILEs.
 *
 * Returns: the FILE; NULL with errno (EINVAL for another mode, ENOMEM) and a text in
 * snt_err_text().
 */
SNT_API FILE *snt_stream_file(struct snt_stream *stream, const char *mode);

enum snt_stream_state {
	SNT_STREAM_CONNECTING = 1,
	SNT_STREAM_RUNNING,
	SNT_STREAM_FAILING, /* it failed, and what is left is being tidied up */
	SNT_STREAM_ENDED,
};

struct snt_stream_info {
	size_t size;
	enum snt_stream_state state;
	int32_t status;	  /* of one that failed: -errno */
	const char *text; /* why, never NULL; until the stream is destroyed */
	int32_t peer_shut_down;
	uint32_t lanes;
	uint64_t recv_size; /* this end's ring */
	uint64_t peer_size; /* the peer's */
	uint64_t send_size;
	uint64_t chunk; /* the longest message */
	/* Now. */
	uint64_t readable; /* bytes */
	uint64_t writable;
	uint64_t unsent; /* taken, and not yet on their way */
	/* Since it began. */
	uint64_t bytes_read;
	uint64_t bytes_written;
	uint64_t messages_sent;	    /* with bytes */
	uint64_t messages_received; /* with bytes */
	uint64_t credits_sent;	    /* by themselves */
	uint64_t credits_along;	    /* with bytes */
	uint64_t credits_received;
	uint64_t stalls;	   /* for want of room in the peer's ring */
	uint64_t receives_granted; /* to the peer */
	/* The most that the peer had used of these at a time. While it is not more than
	 * were granted no message can have met a receiver that was not ready. */
	uint64_t receives_most;
	/* The peer program's, valid as `text` is. */
	const void *data;
	size_t data_length;
};

/**
 * snt_stream_query - what is known of a stream
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_stream_query(const struct snt_stream *stream,
			     struct snt_stream_info *info_out);

/**
 * snt_stream_conn - the connection below, to be asked and nothing else
 *
 * Returns: NULL if it has none, or none any more.
 */
SNT_API const struct snt_conn *snt_stream_conn(const struct snt_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
