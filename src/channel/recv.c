/* SPDX-License-Identifier: MIT */
/* The next message: records are found in the stream's ring, and checked. */
#include <errno.h>
#include <string.h>

#include "channel/channel.h"
#include "util/err.h"

/* Messages up to this part of the ring are copied in one piece. */
#define PART 8

static int find_record_fault(struct snt_channel *channel, const char *fault)
{
	channel->look = SNT__LOOK_FAULT;
	channel->fault = fault;
	snt__stream_fail(channel->stream, EPROTO,
			 "the peer does not keep to the rules: %s", fault);
	return -EPROTO;
}

/* Nothing more has arrived. */
static int find_nothing(struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;

	if (stream->in.ended)
		return snt__inflow_unread(&stream->in)
			       ? find_record_fault(channel,
						   "it shut down within a message")
			       : -ESHUTDOWN;
	if (snt__stream_is_over(stream))
		return stream->status ? stream->status : -ECONNRESET;
	return -EAGAIN;
}

/* Bytes of the ring from the next on; the second piece has length 0 if there is but
 * one. */
static inline void find_bytes(const struct snt_channel *channel, uint64_t from,
			      uint64_t length, struct iovec iov[2])
{
	const struct snt_stream *stream = channel->stream;
	uint64_t at = (stream->in.consumed + from) & (stream->in.size - 1);
	uint64_t first = stream->in.size - at;

	if (first > length)
		first = length;
	iov[0] = (struct iovec){ stream->ring + at, first };
	iov[1] = (struct iovec){ stream->ring, length - first };
}

static void copy_body(const struct snt_channel *channel, uint8_t *to, uint64_t length)
{
	struct iovec iov[2];

	find_bytes(channel, SNT__RECORD_HEADER, length, iov);
	memcpy(to, iov[0].iov_base, iov[0].iov_len);
	memcpy(to + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
}

static const char *take_record_header(struct snt_channel *channel)
{
	const struct snt__inflow *in = &channel->stream->in;
	const char *fault;

	fault = snt__record_unpack(channel->stream->ring +
					   (in->consumed & (in->size - 1)),
				   channel->look == SNT__LOOK_HELLO,
				   snt__record_max(in->size), &channel->record);
	if (!fault)
		channel->look = SNT__LOOK_BODY;
	return fault;
}

static const char *take_channel_hello(struct snt_channel *channel)
{
	uint8_t hello[SNT__GREET_LENGTH];

	copy_body(channel, hello, sizeof(hello));
	snt__chan_consume(channel);
	return snt__greet_check(hello);
}

static const char *take_peer_offer(struct snt_channel *channel)
{
	uint8_t bytes[SNT__OFFER_MAX];
	const char *fault;

	if (channel->stream->in.ended)
		return "it shut down before its offers were fetched";
	copy_body(channel, bytes, channel->record.length);
	fault = snt__offered_unpack(bytes, channel->record.length, &channel->offered);
	if (!fault)
		channel->look = SNT__LOOK_OFFER;
	return fault;
}

static const char *take_body(struct snt_channel *channel)
{
	switch (channel->record.type) {
	case SNT__RECORD_HELLO:
		return take_channel_hello(channel);
	case SNT__RECORD_OFFER:
		return take_peer_offer(channel);
	default:
		channel->look = SNT__LOOK_MESSAGE;
		return NULL;
	}
}

/* The bytes that the next step needs. */
static inline uint64_t bytes_needed(const struct snt_channel *channel)
{
	return channel->look == SNT__LOOK_BODY
		       ? snt__record_size(channel->record.length)
		       : SNT__RECORD_HEADER;
}

int snt__chan_look(struct snt_channel *channel)
{
	while (channel->look < SNT__LOOK_MESSAGE) {
		const char *fault;

		if (snt__inflow_unread(&channel->stream->in) < bytes_needed(channel))
			return find_nothing(channel);
		/* Nothing can be consumed: the stream is the parent's. */
		if (__builtin_expect(snt__loop_forked(channel->stream->conn_loop->loop),
				     0))
			return -EAGAIN;
		fault = channel->look == SNT__LOOK_BODY ? take_body(channel)
							: take_record_header(channel);
		if (__builtin_expect(fault != NULL, 0))
			return find_record_fault(channel, fault);
	}
	return channel->look == SNT__LOOK_FAULT ? -EPROTO : 0;
}

int snt__chan_next(struct snt_channel *channel)
{
	int ret = snt__stream_check_process(channel->stream);

	if (__builtin_expect(ret, 0))
		return ret;
	ret = snt__chan_look(channel);
	if (__builtin_expect(!ret, 1))
		return 0;
	if (ret == -EAGAIN) {
		channel->wants |= SNT_CHANNEL_READABLE;
		return snt__fail_later(
			EAGAIN,
			"no message has arrived on the channel; wait for "
			"SNT_CHANNEL_READABLE",
			0, 0);
	}
	if (ret == -ESHUTDOWN)
		return snt__fail(ESHUTDOWN, "the peer has shut down its direction");
	if (channel->look == SNT__LOOK_FAULT)
		return snt__fail(EPROTO, "the peer does not keep to the rules: %s",
				 channel->fault);
	return snt__fail(-ret, "%s", channel->stream->text);
}

void snt__chan_consume(struct snt_channel *channel)
{
	channel->look = SNT__LOOK_HEADER;
	snt_stream_consume(channel->stream, snt__record_size(channel->record.length));
}

int snt_channel_peek(struct snt_channel *channel,
		     struct snt_channel_message *message_out)
{
	struct snt_channel_message message = { 0 };
	int ret = snt__chan_next(channel);

	if (ret)
		return ret;
	message.is_offer = channel->look == SNT__LOOK_OFFER;
	message.length =
		message.is_offer ? channel->offered.length : channel->record.length;
	if (!message.is_offer)
		find_bytes(channel, SNT__RECORD_HEADER, message.length, message.bytes);
	*message_out = message;
	return 0;
}

/* In pieces, so that the peer is told of room in time. */
static void receive_long(struct snt_channel *channel, uint8_t *buffer)
{
	struct snt_stream *stream = channel->stream;
	uint64_t length = channel->record.length;

	channel->look = SNT__LOOK_HEADER;
	snt_stream_consume(stream, SNT__RECORD_HEADER);
	snt_stream_read(stream, buffer, length);
	snt_stream_consume(stream,
			   snt__record_size(length) - SNT__RECORD_HEADER - length);
}

ssize_t snt_channel_recv(struct snt_channel *channel, void *buffer, size_t size)
{
	uint64_t length;
	int ret = snt__chan_next(channel);

	if (__builtin_expect(ret, 0))
		return ret;
	if (channel->look == SNT__LOOK_OFFER)
		return snt__fail(
			EMSGSIZE,
			"the next message, of %llu bytes, is offered; fetch it "
			"(snt_channel_fetch()) or drop it",
			(unsigned long long)channel->offered.length);
	length = channel->record.length;
	if (length > size)
		return snt__fail(EMSGSIZE,
				 "the next message has %llu bytes, more than the "
				 "buffer's %zu",
				 (unsigned long long)length, size);
	channel->count.messages_received++;
	channel->count.bytes_received += length;
	if (length <= channel->stream->in.size / PART) {
		copy_body(channel, buffer, length);
		snt__chan_consume(channel);
	} else {
		receive_long(channel, buffer);
	}
	return (ssize_t)length;
}

int snt_channel_drop(struct snt_channel *channel)
{
	int ret = snt__chan_next(channel);

	if (ret)
		return ret;
	channel->count.messages_dropped++;
	if (channel->look == SNT__LOOK_OFFER)
		snt__chan_drop_offer(channel);
	snt__chan_consume(channel);
	return 0;
}
