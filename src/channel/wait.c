/* SPDX-License-Identifier: MIT */
/* Calls that wait, and dispatch meanwhile. */
#include <errno.h>

#include "channel/channel.h"
#include "util/err.h"

struct awaited {
	struct snt_channel *channel;
	unsigned events;
};

static unsigned awaited_events(const struct awaited *awaited)
{
	return snt__chan_states(awaited->channel) & awaited->events;
}

static bool has_found(const void *what)
{
	return awaited_events(what) != 0;
}

static int wait_shielded(struct snt_channel *channel, unsigned events,
			 int64_t timeout_ns)
{
	struct snt_stream *stream = channel->stream;
	const struct awaited awaited = { channel, events | SNT_CHANNEL_OVER };
	int ret = snt__stream_check_process(stream);

	if (ret)
		return ret;
	if (!has_found(&awaited))
		ret = snt__conn_loop_wait(stream->conn_loop, &channel->waiters,
					  has_found, &awaited, timeout_ns);
	if (ret)
		return ret == -ETIME
			       ? snt__fail(ETIME, "timed out waiting for the channel")
			       : ret;
	ret = (int)awaited_events(&awaited);
	if (ret == SNT_CHANNEL_OVER && stream->status)
		return snt__fail(-stream->status, "%s", stream->text);
	return ret;
}

int snt_channel_wait(struct snt_channel *channel, unsigned events, int64_t timeout_ns)
{
	struct snt__shield kept;
	int ret;

	snt__shield_begin(channel->stream->conn_loop->loop, &kept);
	ret = wait_shielded(channel, events, timeout_ns);
	snt__shield_end(&kept);
	return ret;
}

/* After -EAGAIN: 0 to try again. */
static int wait_again(struct snt_channel *channel, unsigned event, int64_t timeout_ns,
		      uint64_t begin)
{
	const struct snt__conn_loop *conn_loop = channel->stream->conn_loop;
	int64_t left = snt__conn_loop_left(conn_loop, timeout_ns, begin);
	int ret;

	if (!left)
		return snt__fail(ETIME, "timed out waiting for the channel");
	ret = snt_channel_wait(channel, event, left);
	return ret > 0 ? 0 : ret;
}

int snt_channel_send_wait(struct snt_channel *channel, const void *buffer,
			  size_t length, int64_t timeout_ns)
{
	uint64_t begin =
		timeout_ns > 0 ? snt_loop_now(channel->stream->conn_loop->loop) : 0;
	int ret;

	while ((ret = snt_channel_send(channel, buffer, length)) == -EAGAIN) {
		ret = wait_again(channel, SNT_CHANNEL_WRITABLE, timeout_ns, begin);
		if (ret)
			break;
	}
	return ret;
}

ssize_t snt_channel_recv_wait(struct snt_channel *channel, void *buffer, size_t size,
			      int64_t timeout_ns)
{
	uint64_t begin =
		timeout_ns > 0 ? snt_loop_now(channel->stream->conn_loop->loop) : 0;
	ssize_t ret;

	while ((ret = snt_channel_recv(channel, buffer, size)) == -EAGAIN) {
		ret = wait_again(channel, SNT_CHANNEL_READABLE, timeout_ns, begin);
		if (ret)
			break;
	}
	return ret;
}
