/* SPDX-License-Identifier: MIT */
/* Messages that are copied, to the stream's stage. */
#include <errno.h>
#include <limits.h>

#include "channel/channel.h"
#include "util/err.h"

int snt__chan_refuse(struct snt_channel *channel)
{
	int ret = snt__stream_refuse(channel->stream);

	if (__builtin_expect(ret, 0))
		return ret;
	if (channel->shut)
		return snt__fail(EPIPE, "the channel has been shut down by this end");
	return 0;
}

static int refuse_for_room(struct snt_channel *channel, uint64_t wanted)
{
	channel->wanted = wanted;
	channel->wants |= SNT_CHANNEL_WRITABLE;
	channel->count.stalls++;
	return snt__fail_later(EAGAIN,
			       "the channel has no room for the message; wait for "
			       "SNT_CHANNEL_WRITABLE",
			       0, 0);
}

int snt__chan_put(struct snt_channel *channel, enum snt__record_type type,
		  const struct iovec *iov, int count, uint64_t length)
{
	static const uint8_t zeros[8];
	struct snt_stream *stream = channel->stream;
	struct snt__record_header header = snt__record_pack(type, length);
	uint64_t size = snt__record_size(length);

	if (__builtin_expect(size > snt__chan_room(channel), 0))
		return refuse_for_room(channel, size);
	snt__stream_stage(stream, (const uint8_t *)&header, sizeof(header));
	for (int i = 0; i < count; i++)
		snt__stream_stage(stream, iov[i].iov_base, iov[i].iov_len);
	snt__stream_stage(stream, zeros, size - sizeof(header) - length);
	stream->count.bytes_written += size;
	snt__stream_pump(stream);
	return 0;
}

static int send_pieces(struct snt_channel *channel, const struct iovec *iov, int count,
		       uint64_t length)
{
	int ret = snt__chan_refuse(channel);

	if (__builtin_expect(ret, 0))
		return ret;
	if (__builtin_expect(!channel->stream->opened, 0))
		return refuse_for_room(channel, channel->wanted);
	if (length > snt__chan_send_max(channel))
		return snt__fail(EMSGSIZE,
				 "a message of %llu bytes is longer than the %llu that "
				 "the ends' rings allow; offer it, or choose larger "
				 "ones (send_size, recv_size)",
				 (unsigned long long)length,
				 (unsigned long long)snt__chan_send_max(channel));
	ret = snt__chan_put(channel, SNT__RECORD_MESSAGE, iov, count, length);
	if (__builtin_expect(ret, 0))
		return ret;
	channel->count.messages_sent++;
	channel->count.bytes_sent += length;
	return 0;
}

int snt_channel_send(struct snt_channel *channel, const void *buffer, size_t length)
{
	const struct iovec iov = { (void *)(uintptr_t)buffer, length };

	return send_pieces(channel, &iov, 1, length);
}

int snt_channel_sendv(struct snt_channel *channel, const struct iovec *iov, int count)
{
	uint64_t length = 0;

	if (count < 0)
		return snt__fail(EINVAL, "buffer count %d is out of range", count);
	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > SSIZE_MAX - length)
			return snt__fail(EMSGSIZE, "too many bytes for one message");
		length += iov[i].iov_len;
	}
	return send_pieces(channel, iov, count, length);
}
