/* SPDX-License-Identifier: MIT */
#ifndef SNT_CHANNEL_CHANNEL_H
#define SNT_CHANNEL_CHANNEL_H

#include <sennit/channel.h>

#include "channel/record.h"
#include "stream/stream.h"

/*
 * A channel: records (record.h) in a stream, of which it is the user.
 *
 * Offers are counted from 0 at both ends, in the order of their records. The receiver
 * takes an offer by a fetch or by dropping it, is done with offers in the order in which
 * it took them, and notes how many these are (snt__stream_note()). The sender releases as
 * many.
 *
 *	record.c  what is written to the stream
 *	send.c    messages that are copied
 *	recv.c    the next message
 *	offer.c   offers of this end
 *	fetch.c   reading the peer's
 *	ready.c   events
 *	wait.c    calls that wait
 *	create.c, end.c, info.c
 */

/* Of a fetch: short enough that other messages get their turn, and enough in flight to
 * keep the wire busy. */
#define SNT__READ_LENGTH (256u << 10)
#define SNT__READS_MAX	 8

struct snt_channel;

/* Takes completions: begins like struct snt_op. */
struct snt__read_port {
	void (*complete)(struct snt_op *op, const struct snt_wc *wc);
	struct snt_channel *channel;
};

/* The next record. */
enum snt__look {
	SNT__LOOK_HELLO, /* the peer has not greeted yet */
	SNT__LOOK_HEADER,
	SNT__LOOK_BODY,	   /* the header has arrived, and is in `record` */
	SNT__LOOK_MESSAGE, /* a message has arrived whole */
	SNT__LOOK_OFFER,   /* an offer, which is in `offered` */
	SNT__LOOK_FAULT,
};

struct snt_channel {
	struct snt_stream *stream;
	struct snt__read_port read_port;

	/* Receiving. A record's header and an offer are copied before they are checked:
	 * the peer can write to the ring at any time. */
	enum snt__look look;
	struct snt__record record;
	struct snt__offered offered;
	const char *fault;

	/* Fetches that are not done, in order; the first that is not asked for as a
	 * whole; and those to be reported. */
	struct snt_fetch *fetch_first, **fetch_end;
	struct snt_fetch *fetch_next;
	struct snt_fetch *fetch_done, **fetch_done_end;
	uint32_t piece[SNT__READS_MAX]; /* READs in flight */
	uint32_t piece_head, piece_tail;
	uint32_t reads_max;
	uint32_t read_length; /* the most of one */
	uint32_t finished;    /* offers of the peer, done with */

	/* Offers that are not released, in order; and those to be reported. */
	struct snt_offer *offer_first, **offer_end;
	struct snt_offer *offer_done, **offer_done_end;
	uint32_t released; /* as the peer has noted */
	uint32_t offers;   /* not released */
	bool shut;	   /* nothing more will be sent */

	/* Events. */
	unsigned wants;	 /* those that are reported once */
	uint64_t wanted; /* room, by the last message that was refused */
	void (*ready)(void *arg, struct snt_channel *channel, unsigned events);
	void *arg;
	struct snt__conn_loop_waiter *waiters;
	struct snt_channel_info count; /* counters */
};

/* recv.c: looks at the next record. 0 if it is a message or an offer, else as
 * snt_channel_peek(), without a text. */
int snt__chan_look(struct snt_channel *channel);
/* recv.c: the same with a text, and interest in what comes. */
int snt__chan_next(struct snt_channel *channel);
/* recv.c: the next message has been received. */
void snt__chan_consume(struct snt_channel *channel);

/* send.c: 0, or why nothing can be sent. */
int snt__chan_refuse(struct snt_channel *channel);
/* send.c: writes a record whose body is in pieces; or -EAGAIN. */
int snt__chan_put(struct snt_channel *channel, enum snt__record_type type,
		  const struct iovec *iov, int count, uint64_t length);

static inline uint64_t snt__chan_room(const struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;

	return stream->stage_size - (stream->staged - stream->released);
}

/* The longest body of a record. */
static inline uint64_t snt__chan_send_max(const struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;
	uint64_t peer = stream->out.size;

	if (!stream->opened)
		return 0;
	return snt__record_max(peer < stream->stage_size ? peer : stream->stage_size);
}

/* offer.c: the peer is done with so many offers, modulo its numbers. */
const char *snt__chan_noted(struct snt_stream *stream, uint32_t number);
/* offer.c: shuts the stream down when that can be done. */
void snt__chan_try_shut(struct snt_channel *channel);
/* offer.c, fetch.c: the stream is over. */
void snt__chan_end_offers(struct snt_channel *channel, int result);
void snt__chan_end_fetches(struct snt_channel *channel, int result);
/* offer.c, fetch.c: calls the program for those that are done. */
void snt__chan_report_offers(struct snt_channel *channel);
void snt__chan_report_fetches(struct snt_channel *channel);
/* fetch.c: asks for as much as may be in flight. */
void snt__chan_pump(struct snt_channel *channel);
void snt__chan_read(struct snt_op *op, const struct snt_wc *wc);
/* fetch.c: one more offer of the peer has been dropped. */
void snt__chan_drop_offer(struct snt_channel *channel);

/* ready.c: the events that are true now. */
unsigned snt__chan_states(struct snt_channel *channel);
void snt__chan_tell(struct snt_stream *stream);

#endif
