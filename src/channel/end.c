/* SPDX-License-Identifier: MIT */
/* Flushing, and the end. */
#include <errno.h>

#include "channel/channel.h"
#include "util/err.h"

int snt_channel_flush(struct snt_channel *channel)
{
	int ret = snt_stream_flush(channel->stream);

	if (!ret && channel->offer_first)
		ret = snt__fail_later(EAGAIN,
				      "the peer is not done with all offers yet; wait "
				      "for SNT_CHANNEL_FLUSHED",
				      0, 0);
	if (ret == -EAGAIN)
		channel->wants |= SNT_CHANNEL_FLUSHED;
	return ret;
}

int snt_channel_shutdown(struct snt_channel *channel)
{
	struct snt_stream *stream = channel->stream;
	int ret = snt__stream_check_process(stream);

	if (ret || snt__stream_has_failed(stream))
		return ret ? ret : snt__stream_refuse(stream);
	if (channel->shut)
		return snt__fail(EALREADY, "the channel has been shut down before");
	channel->shut = true;
	snt__chan_try_shut(channel);
	return 0;
}

static int end_result(struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;

	if (stream->status)
		return snt__fail(-stream->status, "%s", stream->text);
	if (!snt__chan_look(channel))
		return snt__fail(ENODATA, "there are messages to receive");
	return 0;
}

/* Until the stream is over; or why it is not. A peer whose offers are not fetched does not
 * end, so that what is there to be received is reported at once. */
static int await_end(struct snt_channel *channel, int64_t timeout_ns)
{
	struct snt_stream *stream = channel->stream;
	uint64_t begin = timeout_ns > 0 ? snt_loop_now(stream->conn_loop->loop) : 0;

	while (!snt__stream_is_over(stream)) {
		int64_t left =
			snt__conn_loop_left(stream->conn_loop, timeout_ns, begin);
		int look = snt__chan_look(channel), ret;

		if (!look)
			return snt__fail(ENODATA, "there are messages to receive");
		if (!left)
			return snt__fail(ETIME,
					 "timed out: the channel has not ended yet");
		ret = snt_channel_wait(channel,
				       look == -EAGAIN ? SNT_CHANNEL_READABLE : 0,
				       left);
		/* With -ECANCELED it may be gone. */
		if (ret == -ECANCELED || (ret < 0 && !snt__stream_is_over(stream)))
			return ret;
	}
	return 0;
}

static int close_channel_shielded(struct snt_channel *channel, int64_t timeout_ns)
{
	struct snt_stream *stream = channel->stream;
	int ret = snt__conn_loop_check(stream->conn_loop);

	if (ret)
		return ret;
	if (!snt__stream_has_failed(stream) && !channel->shut)
		snt_channel_shutdown(channel);
	ret = await_end(channel, timeout_ns);
	if (!ret)
		ret = end_result(channel);
	return ret ? ret : snt_channel_destroy(channel);
}

int snt_channel_close(struct snt_channel *channel, int64_t timeout_ns)
{
	const struct snt_loop *loop = channel->stream->conn_loop->loop;
	struct snt__shield kept;
	int ret;

	snt__shield_begin(loop, &kept);
	ret = close_channel_shielded(channel, timeout_ns);
	snt__shield_end(&kept);
	return ret;
}

int snt_channel_abort(struct snt_channel *channel, const char *text)
{
	return snt_stream_abort(channel->stream, text);
}

int snt_channel_destroy(struct snt_channel *channel)
{
	int ret = channel ? snt__conn_loop_check(channel->stream->conn_loop) : 0;

	if (!channel || ret)
		return ret;
	snt__conn_loop_waiters_end(channel->waiters);
	channel->waiters = NULL;
	channel->ready = NULL;
	return snt_stream_destroy(channel->stream);
}
