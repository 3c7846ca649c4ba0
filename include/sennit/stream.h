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
 *	struct snt_endpoint server = SNT_INIT(server, .host = "10.0.0.1", .port = 4000);
 *	struct snt_stream_listener *listener;
 *	struct snt_stream *stream;
 *	char text[] = "hello";
 *
 *	if (serves) {
 *		check(snt_stream_listener_create(loop, &server, NULL, &listener));
 *		check(snt_stream_listener_wait(listener, -1, &stream));
 *		check(snt_stream_listener_destroy(listener));
 *		check(snt_stream_read_all(stream, text, sizeof(text), -1));
 *	} else {
 *		check(snt_stream_connect(loop, &server, NULL, &stream));
 *		check(snt_stream_write_all(stream, text, sizeof(text), -1));
 *	}
 *	check(snt_stream_close(stream, -1));
 *
 * Flow control. Each end has a ring, into which the peer writes by RDMA, as far as it
 * has credit for free space. The reader reports its progress with the next data in the
 * other direction, or in a message of its own when a quarter of the ring has become
 * free. So no message ever finds a receiver without room for it, and waiting for a peer
 * that does not read costs neither end anything. Written bytes are copied once, into
 * registered memory of this end, and small writes that come faster than they can be
 * sent are sent together; bytes given to snt_stream_write_registered() are not copied
 * at all.
 *
 * Non-blocking use. Only calls with a timeout block; the others return -EAGAIN if
 * nothing can be done at the moment. Each -EAGAIN, and each read or write of fewer
 * bytes than requested, registers interest: as soon as the call is worth repeating the
 * stream's loop (loop.h) calls the function snt_stream_opts::ready, once for each
 * registration. There is none before the first call: a program reads or writes once
 * when it gets a stream, and then from the function (examples/22-stream-callbacks.c).
 * Programs without a function call snt_stream_wait(), or try again when the loop has
 * run. The two directions are independent: neither holds up the other.
 *
 * There are no background threads: bytes held back, for lack of room at the peer or to
 * be sent together with others, leave when the loop runs. A program that will not run
 * the loop for long calls snt_stream_flush() first, until it returns 0.
 *
 * End of a stream. Each end closes its own direction (snt_stream_shutdown()), and the
 * peer reads 0 after it has read everything. When both have done so, and everything has
 * arrived, the stream is over, with status 0. A stream can also fail: by
 * snt_stream_abort() of either end, by the loss of the connection, or by a peer that
 * violates the protocol. Then writes fail at once; reads first return everything that
 * had arrived, and then the error.
 *
 * A stream that has lost its connection is not connected again, as a connection with
 * snt_conn_opts.retries is: neither end knows which bytes in flight the other program has
 * read, so that only the programs can tell where to go on.
 *
 * A peer can write to this end's ring, and to nothing else; its messages are checked
 * against the credit it was given. A violation ends the stream with -EPROTO and a text.
 *
 * Thread: loop, for every call here. The memory of snt_stream_send may have been registered
 * by any thread. In a ready function all calls are legal except those that wait, which
 * fail with -EBUSY; the stream may be destroyed. After a fork streams belong to the
 * parent: calls that would move bytes, or change something, fail with -ECHILD in the
 * child.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_stream;
struct snt_stream_listener;

/* Minimum and maximum size of a ring; maximum size of the data for the peer's program. */
#define SNT_STREAM_RING_MIN 256
#define SNT_STREAM_RING_MAX (UINT64_C(1) << 30)
#define SNT_STREAM_DATA_MAX 64
/* Maximum size of an offer, see snt_stream_offer(). */
#define SNT_STREAM_OFFER_MAX SNT_CONN_DATA_MAX

/* States of a stream, and events that report them. */
enum snt_stream_events {
	SNT_STREAM_OPEN = 1 << 0,     /* connected; for snt_stream_connect() */
	SNT_STREAM_READABLE = 1 << 1, /* bytes, the end, or an error */
	SNT_STREAM_WRITABLE = 1 << 2, /* room, or an error */
	SNT_STREAM_FLUSHED = 1 << 3,  /* everything written has arrived */
	SNT_STREAM_OVER = 1 << 4, /* the last one: snt_stream_query() has the status */
};

struct snt_stream_opts {
	size_t size;
	/* Rounded up to powers of two; 0: 1 MiB. The ring that the peer writes to, and
	 * the memory for bytes written that have not yet arrived. */
	uint64_t recv_size;
	uint64_t send_size;
	/* Messages in flight, 1 to 4096; 0: 64. Does not limit the number of writes:
	 * those made while all are in use are sent together. From about 900 on the
	 * stream needs a CQ of the program's own. */
	uint32_t depth;
	uint32_t lanes;	  /* as in snt_conn_opts; 1 costs least on a single device */
	uint32_t devices; /* bit i: use device i; 0: all */
	uint32_t mtu;	  /* as in snt_qp_opts */
	/* Messages up to this length are sent inline, with one lane and if the devices
	 * support it; 0: none. */
	uint32_t inline_max;
	/* One with ops (cq.h); NULL: one that all streams of the loop share. */
	struct snt_cq *cq;
	/* Called when something the program waits for has happened; a sum of
	 * snt_stream_events. */
	void (*ready)(void *arg, struct snt_stream *stream, unsigned events);
	void *arg;
	/* For the peer's program; copied. */
	const void *data;
	size_t data_length;
};

/**
 * snt_stream_connect - connect to a listener
 * @endpoint: host and port are required
 * @opts: NULL for all defaults
 *
 * Bytes written before the stream is open are sent as soon as it is.
 *
 * Ownership: the program's, until snt_stream_destroy(), also if it fails later.
 * Returns: 0; -EOPNOTSUPP if a device has no write with immediate; otherwise as
 * snt_conn_connect() and snt_mem_register().
 */
SNT_API int snt_stream_connect(struct snt_loop *loop,
			       const struct snt_endpoint *endpoint,
			       const struct snt_stream_opts *opts,
			       struct snt_stream **stream_out);

struct snt_stream_listener_opts {
	size_t size;
	/* As in snt_listener_opts. The backlog includes streams that ended before they
	 * were accepted. */
	uint32_t backlog;
	uint32_t connection_max;
	/* Options of accepted streams, copied. NULL: all defaults. */
	const struct snt_stream_opts *stream;
	/* A stream is open, or is already over with bytes left to read: it is the
	 * program's from now on. NULL: snt_stream_listener_wait() returns it. */
	void (*accepted)(void *arg, struct snt_stream_listener *listener,
			 struct snt_stream *stream);
	void *arg;
	/* Another listener, in any loop of the context, whose port this one shares: as in
	 * snt_listener_opts, with `accepted` for its function. */
	struct snt_stream_listener *share;
};

/**
 * snt_stream_listener_create - listen for streams
 * @endpoint: NULL: any free port of all local addresses
 * @opts: NULL for all defaults
 *
 * All requested streams are accepted, within the limits.
 *
 * Returns: 0; -EINVAL also for stream options that are out of range; otherwise as
 * snt_listener_create().
 */
SNT_API int snt_stream_listener_create(struct snt_loop *loop,
				       const struct snt_endpoint *endpoint,
				       const struct snt_stream_listener_opts *opts,
				       struct snt_stream_listener **listener_out);

/**
 * snt_stream_listener_port - get the port of a listener
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
 * @timeout_ns: negative: for ever; 0: do not wait
 *
 * For listeners without a function. A stream that was open and has since ended is
 * returned too, in its turn: the program can read the bytes that arrived, and then the
 * status.
 *
 * Ownership: the stream is the program's.
 * Returns: 0; -ETIME if none came before the timeout; -EINVAL if the listener has a
 * function; -EBUSY inside a callback; -ECANCELED if the listener was destroyed
 * meanwhile; the errno of the loop.
 */
SNT_API int snt_stream_listener_wait(struct snt_stream_listener *listener,
				     int64_t timeout_ns,
				     struct snt_stream **stream_out);

/**
 * snt_stream_listener_destroy - stop listening
 *
 * Streams that the program holds continue; all others are abandoned. NULL is legal and
 * does nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_stream_listener_destroy(struct snt_stream_listener *listener);

/**
 * snt_stream_create - make a stream over a virtual QP of the program
 * @qp: not yet connected, nothing posted; reports to one CQ, made with ops; of any scheme
 * @opts: sizes, functions and data; the rest describes the QP of a stream by address, and
 *	is not used
 *
 * For programs that connect by cards (card.h). Both ends make their stream, exchange
 * offers in the same way as cards, connect their QPs, then call snt_stream_start().
 * Each end grants the receives of its QP, except 32 for the stream's own messages.
 *
 * Ownership: the QP stays the program's, but only the stream posts to it and closes it;
 * it is closed when the stream is over.
 * Returns: 0; -EINVAL if the QP is connected, has no ops, has receives posted or a
 * stream already, or is too small, as the text explains; -EOPNOTSUPP; otherwise as
 * snt_mem_register().
 */
SNT_API int snt_stream_create(struct snt_qp *qp, const struct snt_stream_opts *opts,
			      struct snt_stream **stream_out);

/**
 * snt_stream_offer - get the offer that the peer needs
 *
 * Returns: the number of bytes, at most SNT_STREAM_OFFER_MAX; -ENOSPC if @size is too
 * small.
 */
SNT_API ssize_t snt_stream_offer(const struct snt_stream *stream, void *buffer,
				 size_t size);

/**
 * snt_stream_start - start a stream with the peer's offer
 *
 * Returns: 0; -ENOTCONN if the QP is not connected; -EALREADY; -EPROTONOSUPPORT for
 * another version; -EBADMSG for any input that snt_stream_offer() cannot produce.
 */
SNT_API int snt_stream_start(struct snt_stream *stream, const void *offer,
			     size_t length);

/**
 * snt_stream_set_ready_handler - set, or change, the function for events
 *
 * Mainly for streams from a listener. Interest registered before is reported to the new
 * function.
 */
SNT_API void snt_stream_set_ready_handler(struct snt_stream *stream,
					  void (*ready)(void *arg,
							struct snt_stream *stream,
							unsigned events),
					  void *arg);

/**
 * snt_stream_read, snt_stream_readv - take bytes that have arrived
 *
 * Returns: how many, at least 1; 0 if the peer has shut down and everything was read,
 * or if no bytes were requested; -EAGAIN if there are none now; once the stream is
 * over, and everything was read, its status; -EINVAL for a negative count, or for more
 * bytes than a ssize_t holds.
 */
SNT_API ssize_t snt_stream_read(struct snt_stream *stream, void *buffer, size_t length);
SNT_API ssize_t snt_stream_readv(struct snt_stream *stream, const struct iovec *iov,
				 int count);

/**
 * snt_stream_peek - access bytes that have arrived without copying them
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
 * snt_stream_consume - release bytes returned by snt_stream_peek()
 *
 * Their memory is the peer's from now on.
 *
 * Returns: 0; -EINVAL if there are fewer.
 */
SNT_API int snt_stream_consume(struct snt_stream *stream, size_t length);

/**
 * snt_stream_write, snt_stream_writev - send bytes
 *
 * They are copied, and sent at once unless many small writes are in flight.
 *
 * Returns: how many were accepted, at least 1 unless @length is 0; -EAGAIN if there is
 * no room now; -EPIPE after snt_stream_shutdown(); the reason if the stream has failed;
 * -EINVAL as snt_stream_read().
 */
SNT_API ssize_t snt_stream_write(struct snt_stream *stream, const void *buffer,
				 size_t length);
SNT_API ssize_t snt_stream_writev(struct snt_stream *stream, const struct iovec *iov,
				  int count);

/* Bytes to send without copying. Zero it, then set the members up to `arg`. */
struct snt_stream_send {
	const struct snt_mem *mem; /* that contains them */
	const void *addr;
	uint64_t length;
	/* The memory is the program's again, and so is this structure. */
	void (*released)(struct snt_stream_send *send);
	void *arg;
	int32_t result; /* 0: everything has arrived; else the error: arrival unknown */
	/* The library's. */
	uint64_t at, sent;
	struct snt_stream_send *next;
	uint64_t reserved[2];
};

/**
 * snt_stream_write_registered - send bytes without copying them
 *
 * In order with all other writes. Any number may be in flight; the loop calls the
 * function once for each, in order.
 *
 * Ownership: the structure and the bytes are the library's until released().
 * Returns: 0; -EINVAL without a length or function; -ERANGE outside of the memory;
 * -EPIPE, or the reason, as snt_stream_write().
 */
SNT_API int snt_stream_write_registered(struct snt_stream *stream,
					struct snt_stream_send *send);

/**
 * snt_stream_flush - send everything that is held back
 *
 * Small writes are sent at once instead of being gathered, until all bytes written
 * before this call have arrived.
 *
 * Returns: 0 if everything has arrived in the peer's memory; -EAGAIN if it has not yet;
 * the reason if the stream has failed.
 */
SNT_API int snt_stream_flush(struct snt_stream *stream);

/**
 * snt_stream_shutdown - end this end's direction of a stream
 *
 * Bytes written before are still sent. Reading continues.
 *
 * Returns: 0; -EALREADY; the reason if the stream has failed.
 */
SNT_API int snt_stream_shutdown(struct snt_stream *stream);

/**
 * snt_stream_close - end a stream gracefully, and free it
 * @timeout_ns: negative: for ever; 0: do not wait
 *
 * Shuts down, unless already done; waits until the peer has, too, and until everything
 * has arrived on both sides; then destroys the stream. No data is lost: if bytes arrive
 * meanwhile the stream is not destroyed.
 *
 * Returns: 0: the stream no longer exists; -ECANCELED if it was destroyed meanwhile;
 * with the stream still there, -ETIME on timeout, -ENODATA if there are bytes to
 * read, its status if it failed, -EBUSY inside a callback if it would have to wait.
 */
SNT_API int snt_stream_close(struct snt_stream *stream, int64_t timeout_ns);

/**
 * snt_stream_abort - end a stream at once
 * @text: human-readable reason, sent to the peer; NULL: none
 *
 * Both ends are over soon, this end with -ECANCELED, the peer with -ECONNABORTED. Data
 * in flight may or may not arrive.
 *
 * Returns: 0; -EALREADY if the stream is over or ending.
 */
SNT_API int snt_stream_abort(struct snt_stream *stream, const char *text);

/**
 * snt_stream_destroy - free a stream in any state
 *
 * A stream that is not over is aborted. The program must not use it afterwards: none of
 * its functions is called any more except released() of memory still in use. The loop,
 * or closing it, releases what devices still use. NULL is legal and does nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_stream_destroy(struct snt_stream *stream);

/**
 * snt_stream_wait - wait for one of several states
 * @events: a sum of snt_stream_events; SNT_STREAM_OVER is always waited for
 * @timeout_ns: negative: no timeout; 0: check, and do not wait
 *
 * Returns: those of @events, and SNT_STREAM_OVER, that are true; the status if only
 * OVER is and the stream failed; -ETIME on timeout; -EBUSY inside a callback;
 * -ECANCELED if it was destroyed meanwhile; the errno of the loop.
 */
SNT_API int snt_stream_wait(struct snt_stream *stream, unsigned events,
			    int64_t timeout_ns);

/**
 * snt_stream_read_all, snt_stream_write_all - transfer a given number of bytes, waiting
 * @timeout_ns: for all of them; negative: for ever
 *
 * Returns: how many; fewer than @length only if the timeout came first, or the end of the
 * stream or an error, of which the next call tells. If there were no bytes at all,
 * -ETIME if time is up, or what snt_stream_read() or snt_stream_write() returns.
 */
SNT_API ssize_t snt_stream_read_all(struct snt_stream *stream, void *buffer,
				    size_t length, int64_t timeout_ns);
SNT_API ssize_t snt_stream_write_all(struct snt_stream *stream, const void *buffer,
				     size_t length, int64_t timeout_ns);

/**
 * snt_stream_file - a FILE for a stream
 * @mode: "r", "w" or "r+", as of fopen(3)
 *
 * Calls on the FILE wait, and dispatch meanwhile; so they fail with EBUSY inside
 * callbacks. fclose(3) waits until all bytes written have arrived, and does not close
 * the stream. Close its FILEs before destroying a stream.
 *
 * Ownership: the program's, until fclose(3).
 * Returns: 0; -EINVAL for another mode; -ENOMEM. Calls on the FILE report errors in errno,
 * as stdio does.
 */
SNT_API int snt_stream_file(struct snt_stream *stream, const char *mode,
			    FILE **file_out);

enum snt_stream_state {
	SNT_STREAM_CONNECTING = 1,
	SNT_STREAM_RUNNING,
	SNT_STREAM_FAILING, /* failed, and being cleaned up */
	SNT_STREAM_ENDED,
};

struct snt_stream_info {
	size_t size;
	enum snt_stream_state state;
	int32_t status;	  /* if it failed: -errno */
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
	uint64_t unsent; /* accepted, not yet in flight */
	/* Since it began. */
	uint64_t bytes_read;
	uint64_t bytes_written;
	uint64_t messages_sent;	    /* with bytes */
	uint64_t messages_received; /* with bytes */
	uint64_t credits_sent;	    /* by themselves */
	uint64_t credits_along;	    /* with bytes */
	uint64_t credits_received;
	uint64_t stalls;	   /* for lack of room in the peer's ring */
	uint64_t receives_granted; /* to the peer */
	/* Maximum of these that the peer had in use at a time. While that is at most
	 * the number granted, no message can have met a receiver that was not ready. */
	uint64_t receives_most;
	/* The peer program's, valid as `text` is. */
	const void *data;
	size_t data_length;
};

/**
 * snt_stream_query - get state and statistics of a stream
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_stream_query(const struct snt_stream *stream,
			     struct snt_stream_info *info_out);

/**
 * snt_stream_conn - get the connection below, for queries only
 *
 * Returns: NULL if it has none, or no longer has one.
 */
SNT_API const struct snt_conn *snt_stream_conn(const struct snt_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
