/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>

#include "channel/channel.h"
#include "util/err.h"
#include "util/lines.h"
#include "util/minmax.h"
#include "util/opts.h"

static const char *peer_shut(struct snt_stream *stream)
{
	const struct snt_channel *channel = stream->user_arg;

	return channel->fetch_first || channel->look == SNT__LOOK_OFFER
		       ? "it shut down before it was told that its offers are fetched"
		       : NULL;
}

static void on_stream_ended(struct snt_stream *stream)
{
	int result = stream->status ? stream->status : -ECONNRESET;

	snt__chan_end_fetches(stream->user_arg, result);
	snt__chan_end_offers(stream->user_arg, result);
}

static void free_channel_of(struct snt_stream *stream)
{
	struct snt_channel *channel = stream->user_arg;

	snt__chan_report_fetches(channel);
	snt__chan_report_offers(channel);
	free(channel);
}

static const struct snt__stream_user channel_user = {
	.noted = snt__chan_noted,
	.peer_shut = peer_shut,
	.tell = snt__chan_tell,
	.ended = on_stream_ended,
	.freed = free_channel_of,
};

static int check_stream_unused(const struct snt_stream *stream)
{
	int ret = snt__stream_check_process(stream);

	if (ret)
		return ret;
	if (stream->user)
		return snt__fail(EINVAL, "the stream is a channel's already");
	if (stream->staged || stream->send_first || stream->in.consumed ||
	    stream->half != SNT__STREAM_WRITING)
		return snt__fail(
			EINVAL, "the stream has been used; make a channel of it before "
				"anything is written or read");
	return 0;
}

/* The part of the stream's WRs that is used for READs. */
static uint32_t reads_of(uint32_t wr_limit)
{
	return (uint32_t)snt__max(2, snt__min(wr_limit / 8, SNT__READS_MAX));
}

static void set_up_channel(struct snt_channel *channel, struct snt_stream *stream,
			   const struct snt_channel_opts *opts)
{
	channel->stream = stream;
	channel->read_port.complete = snt__chan_read;
	channel->read_port.channel = channel;
	channel->fetch_end = &channel->fetch_first;
	channel->fetch_done_end = &channel->fetch_done;
	channel->offer_end = &channel->offer_first;
	channel->offer_done_end = &channel->offer_done;
	channel->reads_max = reads_of(stream->wr_limit);
	channel->read_length = SNT__READ_LENGTH;
	channel->wants = SNT_CHANNEL_READABLE;
	channel->wanted = stream->stage_size / 4;
	channel->ready = opts->ready;
	channel->arg = opts->arg;
}

static void write_greeting(struct snt_channel *channel)
{
	uint8_t hello[SNT__GREET_LENGTH];
	const struct iovec iov = { hello, sizeof(hello) };

	snt__greet_pack(hello);
	snt__chan_put(channel, SNT__RECORD_HELLO, &iov, 1, sizeof(hello));
}

int snt_channel_create(struct snt_stream *stream,
		       const struct snt_channel_opts *user_opts,
		       struct snt_channel **channel_out)
{
	struct snt_channel_opts opts;
	struct snt_channel *channel;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_channel_opts");

	if (!ret)
		ret = check_stream_unused(stream);
	if (ret)
		return ret;
	channel = snt__lines_alloc(1, sizeof(*channel));
	if (!channel)
		return snt__fail(ENOMEM, "no memory for a channel");
	set_up_channel(channel, stream, &opts);
	stream->wr_limit -= channel->reads_max;
	stream->ready = NULL;
	stream->user = &channel_user;
	stream->user_arg = channel;
	if (!snt__stream_has_failed(stream))
		write_greeting(channel);
	snt__stream_tell_later(stream);
	*channel_out = channel;
	return 0;
}
