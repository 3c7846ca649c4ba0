/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CHANNEL_H
#define SENNIT_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sennit/api.h>
#include <sennit/mem.h>
#include <sennit/stream.h>

/*
 * Channels: whole messages in both directions, in order, over a stream (stream.h).
 *
 *	struct snt_endpoint server = SNT_INIT(server, .host = "10.0.0.1", .port = 4000);
 *	struct snt_stream_listener *listener;
 *	struct snt_stream *stream;
 *	struct snt_channel *channel;
 *	char text[64] = "hello";
 *
 *	if (serves) {
 *		check(snt_stream_listener_create(loop, &server, NULL, &listener));
 *		check(snt_stream_listener_wait(listener, -1, &stream));
 *		check(snt_stream_listener_destroy(listener));
 *		check(snt_channel_create(stream, NULL, &channel));
 *		check(snt_channel_recv_wait(channel, text, sizeof(text), -1));
 *	} else {
 *		check(snt_stream_connect(loop, &server, NULL, &stream));
 *		check(snt_channel_create(stream, NULL, &channel));
 *		check(snt_channel_send_wait(channel, text, sizeof(text), -1));
 *	}
 *	check(snt_channel_close(channel, -1));
 *
 * There are two ways to send. snt_channel_send() copies the message, which may have any
 * length from 0 to snt_channel_info::send_max, and the receiver copies it out of the
 * stream's ring or looks at it there. snt_channel_offer() copies nothing: it tells the
 * peer where the message is, in registered memory, and the peer reads it from there by
 * RDMA into registered memory of its own (snt_channel_fetch()), or drops it. Messages
 * arrive in the order in which they were sent, offers among them; a message that is being
 * fetched does not hold up those behind it.
 *
 * Flow control. A sent message takes its length, rounded up to 8 bytes, and 8 more of the
 * peer's ring, an offer at most SNT_CHANNEL_OFFER_BYTES; the messages on the way that this
 * makes up are limited by the stream's depth. An offered message takes none of the peer's
 * memory until the peer's program provides it. Where there is no room a call returns
 * -EAGAIN and the program is told when the call is worth repeating, as with streams. That
 * an offer has been fetched is reported beside the messages in the other direction, not
 * behind them: two ends whose programs wait for their offers, and read nothing meanwhile,
 * do not block each other.
 *
 * A peer can read all of a memory of which a part has been offered to it, from the offer
 * until the memory is released (snt_mem_release()), or the channel is over: register
 * what it may read by itself. It can write to the ring, and to nothing else. Its messages
 * are checked; a violation ends the channel with -EPROTO and a text.
 *
 * The end of a channel is that of its stream. Each end shuts its direction down
 * (snt_channel_shutdown()), and the peer finds -ESHUTDOWN behind the last message. If the
 * stream fails, messages that have arrived whole can still be received, but offers can no
 * longer be fetched.
 *
 * Thread: loop, for every call here. In callbacks all calls are legal except those that
 * wait, which fail with -EBUSY; the channel may be destroyed. After a fork a channel belongs
 * to the parent, as a stream does.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_channel;

/* The longest message: sent, with the largest rings; offered. */
#define SNT_CHANNEL_SEND_MAX  (SNT_STREAM_RING_MAX / 2 - 8)
#define SNT_CHANNEL_OFFER_MAX (UINT64_C(1) << 40)
/* Offers that the peer has neither fetched nor dropped. */
#define SNT_CHANNEL_OFFERS_MAX (1u << 20)
/* The most of the ring that one offer takes; 56 for a memory on one device. */
#define SNT_CHANNEL_OFFER_BYTES (24 + SNT_TOKEN_PACKED_MAX)

/* States of a channel, and events that report them. */
enum snt_channel_events {
	/* Connected; not reported where the stream was, as one from a listener. */
	SNT_CHANNEL_OPEN = 1 << 0,
	SNT_CHANNEL_READABLE = 1 << 1, /* a message, the end, or an error */
	SNT_CHANNEL_WRITABLE =
		1 << 2, /* room for the message refused last, or an error */
	SNT_CHANNEL_FLUSHED = 1 << 3, /* all that was sent has arrived, and the peer is
					* done with all offers */
	SNT_CHANNEL_FETCHED = 1 << 4, /* no fetch is pending */
	SNT_CHANNEL_OVER =
		1 << 5, /* the last one: snt_channel_query() has the status */
};

struct snt_channel_opts {
	size_t size;
	/* Called when something the program waits for has happened: READABLE after a call
	 * returned -EAGAIN for lack of a message, and at first; WRITABLE after one did for
	 * lack of room; FLUSHED after snt_channel_flush() did; the others always. */
	void (*ready)(void *arg, struct snt_channel *channel, unsigned events);
	void *arg;
};

/**
 * snt_channel_create - make a channel of a stream
 * @stream: in any state, with nothing written to it or read from it; the peer makes a
 *	channel of its end as well
 * @opts: NULL for all defaults
 *
 * Sizes, lanes and depth are the stream's (snt_stream_opts); its function for events is no
 * longer called.
 *
 * Ownership: the stream is the channel's, also for snt_stream_destroy(), but stays the
 * program's if this fails. The channel is the program's, until snt_channel_destroy() or
 * snt_channel_close().
 * Returns: 0; -EINVAL if the stream has been used, or is a channel's; -ECHILD; -ENOMEM.
 */
SNT_API int snt_channel_create(struct snt_stream *stream,
			       const struct snt_channel_opts *opts,
			       struct snt_channel **channel_out);

/**
 * snt_channel_set_ready_handler - set, or change, the function for events
 */
SNT_API void snt_channel_set_ready_handler(struct snt_channel *channel,
					   void (*ready)(void *arg,
							 struct snt_channel *channel,
							 unsigned events),
					   void *arg);

/**
 * snt_channel_send, snt_channel_sendv - send a message that is copied
 * @length: from 0 on
 *
 * All of it is accepted, or nothing.
 *
 * Returns: 0; -EAGAIN if there is no room now, or the channel is not open yet; -EMSGSIZE
 * if it is longer than snt_channel_info::send_max; -EINVAL for a negative count; -EPIPE
 * after snt_channel_shutdown(); the reason if the channel has failed.
 */
SNT_API int snt_channel_send(struct snt_channel *channel, const void *buffer,
			     size_t length);
SNT_API int snt_channel_sendv(struct snt_channel *channel, const struct iovec *iov,
			      int count);

/* A message that is not copied. Zero it, then set the members up to `arg`. */
struct snt_offer {
	const struct snt_mem *mem; /* that contains it; with SNT_ACCESS_REMOTE_READ */
	const void *addr;
	uint64_t length;
	/* The memory is the program's again, and so is this structure. */
	void (*released)(struct snt_offer *offer);
	void *arg;
	int32_t result; /* 0: the peer has fetched or dropped it; else the error */
	/* The library's. */
	uint32_t reserved_32;
	struct snt_offer *next;
	uint64_t reserved[2];
};

/**
 * snt_channel_offer - send a message that the peer reads from where it is
 *
 * Offers are released in the order in which they were made. Only ending the channel
 * withdraws one.
 *
 * Ownership: the structure and the bytes are the library's until released().
 * Returns: 0; -EAGAIN and others as snt_channel_send(), also for SNT_CHANNEL_OFFERS_MAX
 * offers pending; -EINVAL without memory, length or function; -ERANGE outside of the
 * memory; -EACCES for memory without SNT_ACCESS_REMOTE_READ; -EMSGSIZE beyond
 * SNT_CHANNEL_OFFER_MAX, or if the peer's ring is too small for an offer.
 */
SNT_API int snt_channel_offer(struct snt_channel *channel, struct snt_offer *offer);

/* The next message. */
struct snt_channel_message {
	uint64_t length;
	int32_t is_offer; /* it is still in the peer's memory */
	uint32_t reserved_32;
	/* If not: where it is, in order. The second has length 0 if there is but one. The
	 * first is aligned to 8 bytes. */
	struct iovec bytes[2];
};

/**
 * snt_channel_peek - look at the next message without receiving it
 *
 * Its bytes stay there until it is received or dropped.
 *
 * Returns: 0; -EAGAIN if there is none now; -ESHUTDOWN if the peer has shut down and
 * everything was received; the status once the channel is over; -EPROTO if the peer broke
 * the rules.
 */
SNT_API int snt_channel_peek(struct snt_channel *channel,
			     struct snt_channel_message *message_out);

/**
 * snt_channel_recv - receive the next message into a buffer
 *
 * Returns: its length, which may be 0; -EMSGSIZE, with the message still there, if it is
 * longer than @size, or an offer (see snt_channel_fetch()); otherwise as
 * snt_channel_peek().
 */
SNT_API ssize_t snt_channel_recv(struct snt_channel *channel, void *buffer,
				 size_t size);

/**
 * snt_channel_drop - be done with the next message
 *
 * One that was looked at, or is not wanted. An offer is reported to the peer as released.
 *
 * Returns: 0; otherwise as snt_channel_peek().
 */
SNT_API int snt_channel_drop(struct snt_channel *channel);

/* An offered message to be read. Zero it, then set the members up to `arg`. */
struct snt_fetch {
	const struct snt_mem *mem; /* with SNT_ACCESS_LOCAL_WRITE */
	void *addr;
	uint64_t size;
	/* The memory is the program's again, and so is this structure. */
	void (*done)(struct snt_fetch *fetch);
	void *arg;
	int32_t result; /* 0: all of it is in the memory; else the error */
	uint32_t reserved_32;
	uint64_t length; /* of the message; set by the call */
	/* The library's. */
	uint64_t remote_addr, asked, arrived, dropped;
	struct snt_token token;
	struct snt_fetch *next;
	uint64_t reserved[2];
};

/**
 * snt_channel_fetch - receive the next message, which is an offer, into registered memory
 *
 * Messages behind it can be received at once. Any number of fetches may be pending; they
 * end in order, and done() is called once for each, in a dispatch.
 *
 * Ownership: the structure and the memory are the library's until done().
 * Returns: 0; -EINVAL if the next message is no offer, or without memory or function;
 * -EMSGSIZE, with the message still there, if it is longer than fetch->size; -ERANGE
 * outside of the memory; -EACCES for memory without SNT_ACCESS_LOCAL_WRITE; the reason if
 * the channel has failed; otherwise as snt_channel_peek().
 */
SNT_API int snt_channel_fetch(struct snt_channel *channel, struct snt_fetch *fetch);

/**
 * snt_channel_send_wait, snt_channel_recv_wait - send or receive a message, waiting
 * @timeout_ns: negative: for ever; 0: do not wait
 *
 * Returns: as snt_channel_send() and snt_channel_recv(), but -ETIME on timeout and, as
 * of snt_channel_wait(), -EBUSY, -ECANCELED, or the errno of the loop.
 */
SNT_API int snt_channel_send_wait(struct snt_channel *channel, const void *buffer,
				  size_t length, int64_t timeout_ns);
SNT_API ssize_t snt_channel_recv_wait(struct snt_channel *channel, void *buffer,
				      size_t size, int64_t timeout_ns);

/**
 * snt_channel_wait - wait for one of several states
 * @events: a sum of snt_channel_events; SNT_CHANNEL_OVER is always waited for
 * @timeout_ns: negative: no timeout; 0: check, and do not wait
 *
 * Returns: those of @events, and SNT_CHANNEL_OVER, that are true; the status if only OVER
 * is and the channel failed; -ETIME on timeout; -EBUSY inside a callback; -ECANCELED if
 * it was destroyed meanwhile; the errno of the loop.
 */
SNT_API int snt_channel_wait(struct snt_channel *channel, unsigned events,
			     int64_t timeout_ns);

/**
 * snt_channel_flush - send everything that is held back
 *
 * Returns: 0 if everything sent is in the peer's ring and the peer is done with all
 * offers; -EAGAIN if not yet; the reason if the channel has failed.
 */
SNT_API int snt_channel_flush(struct snt_channel *channel);

/**
 * snt_channel_shutdown - end this end's direction
 *
 * Messages sent before still arrive, and the peer learns of the end when it is done with
 * all offers. Receiving continues.
 *
 * Returns: 0; -EALREADY; the reason if the channel has failed.
 */
SNT_API int snt_channel_shutdown(struct snt_channel *channel);

/**
 * snt_channel_close - end a channel gracefully, and free it
 * @timeout_ns: negative: for ever; 0: do not wait
 *
 * As snt_stream_close(): shuts down, waits for the peer to do so, too, and destroys. It
 * does not wait while there are messages to receive: the peer would not end before its
 * offers are fetched or dropped.
 *
 * Returns: 0: the channel no longer exists; -ECANCELED if it was destroyed meanwhile; with
 * the channel still there, -ETIME on timeout, -ENODATA if there are messages to receive,
 * its status if it failed, -EBUSY inside a callback if it would have to wait.
 */
SNT_API int snt_channel_close(struct snt_channel *channel, int64_t timeout_ns);

/**
 * snt_channel_abort - end a channel at once
 * @text: human-readable reason, sent to the peer; NULL: none
 *
 * Returns: as snt_stream_abort().
 */
SNT_API int snt_channel_abort(struct snt_channel *channel, const char *text);

/**
 * snt_channel_destroy - free a channel in any state, and its stream
 *
 * A channel that is not over is aborted. None of its functions is called any more except
 * released() and done() of memory still in use, by the loop, which releases what devices
 * still use. NULL is legal and does nothing.
 *
 * Returns: 0; -ECHILD.
 */
SNT_API int snt_channel_destroy(struct snt_channel *channel);

struct snt_channel_info {
	size_t size;
	int32_t status;	  /* if it failed: -errno */
	const char *text; /* why, never NULL; until the channel is destroyed */
	unsigned states;  /* a sum of snt_channel_events, now */
	uint32_t reserved_32;
	/* The longest message that can be sent: half of the smaller of this end's
	 * send_size and the peer's recv_size, less 8; 0 until the channel is open. */
	uint64_t send_max;
	uint64_t recv_max; /* the same of the peer, by this end's ring */
	uint64_t room;	   /* the longest that could be accepted now */
	uint64_t offers_pending;
	uint64_t fetches_pending;
	/* Since it began. */
	uint64_t messages_sent; /* copied */
	uint64_t bytes_sent;
	uint64_t messages_received;
	uint64_t bytes_received;
	uint64_t messages_offered;
	uint64_t messages_fetched;
	uint64_t bytes_fetched;
	uint64_t messages_dropped;
	uint64_t stalls; /* sends and offers refused for lack of room */
};

/**
 * snt_channel_query - get state and statistics of a channel
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_channel_query(struct snt_channel *channel,
			      struct snt_channel_info *info_out);

/**
 * snt_channel_stream - get the stream below, for queries only
 */
SNT_API const struct snt_stream *snt_channel_stream(const struct snt_channel *channel);

#ifdef __cplusplus
}
#endif

#endif
