/* SPDX-License-Identifier: MIT */
/* Readiness: which events the program wants, and whether they are true. */
#include <errno.h>

#include "channel/channel.h"

/* Reported once for each registration. */
#define ONCE                                                                 \
	(SNT_CHANNEL_READABLE | SNT_CHANNEL_WRITABLE | SNT_CHANNEL_FLUSHED | \
	 SNT_CHANNEL_FETCHED)

static bool has_wanted_room(const struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;

	if (snt__stream_has_failed(stream))
		return true;
	return stream->opened && snt__chan_room(channel) >= channel->wanted &&
	       channel->offers < SNT_CHANNEL_OFFERS_MAX;
}

static bool all_is_flushed(const struct snt_channel *channel)
{
	const struct snt_stream *stream = channel->stream;

	if (snt__stream_has_failed(stream))
		return true;
	return stream->opened && snt__stream_all_arrived(stream) &&
	       !channel->offer_first;
}

/* Those of `which` that are true. */
static unsigned true_events(struct snt_channel *channel, unsigned which)
{
	const struct snt_stream *stream = channel->stream;
	unsigned events = 0;

	if (which & SNT_CHANNEL_READABLE && snt__chan_look(channel) != -EAGAIN)
		events |= SNT_CHANNEL_READABLE;
	if (which & SNT_CHANNEL_WRITABLE && has_wanted_room(channel))
		events |= SNT_CHANNEL_WRITABLE;
	if (which & SNT_CHANNEL_FLUSHED && all_is_flushed(channel))
		events |= SNT_CHANNEL_FLUSHED;
	if (which & SNT_CHANNEL_FETCHED && !channel->fetch_first)
		events |= SNT_CHANNEL_FETCHED;
	if (which & SNT_CHANNEL_OPEN && stream->opened)
		events |= SNT_CHANNEL_OPEN;
	if (which & SNT_CHANNEL_OVER && snt__stream_is_over(stream))
		events |= SNT_CHANNEL_OVER;
	return events;
}

unsigned snt__chan_states(struct snt_channel *channel)
{
	return true_events(channel, ONCE | SNT_CHANNEL_OPEN | SNT_CHANNEL_OVER);
}

/* Returns the wanted events that are true, and no longer wants them. */
static unsigned take_channel_events(struct snt_channel *channel)
{
	struct snt_stream *stream = channel->stream;
	unsigned events = true_events(channel, channel->wants);

	channel->wants &= ~events;
	if (stream->wants & SNT_STREAM_OPEN && stream->opened) {
		stream->wants &= (uint8_t)~SNT_STREAM_OPEN;
		events |= SNT_CHANNEL_OPEN;
	}
	if (stream->wants & SNT_STREAM_OVER && snt__stream_is_over(stream)) {
		stream->wants &= (uint8_t)~SNT_STREAM_OVER;
		events |= SNT_CHANNEL_OVER;
	}
	return events;
}

void snt__chan_tell(struct snt_stream *stream)
{
	struct snt_channel *channel = stream->user_arg;
	unsigned events;

	if (channel->fetch_done)
		snt__chan_report_fetches(channel);
	if (channel->offer_done)
		snt__chan_report_offers(channel);
	if (!channel->ready || stream->holder != SNT__STREAM_PROGRAM)
		return;
	events = take_channel_events(channel);
	if (events)
		channel->ready(channel->arg, channel, events);
}

void snt_channel_set_ready_handler(struct snt_channel *channel,
				   void (*ready)(void *arg, struct snt_channel *channel,
						 unsigned events),
				   void *arg)
{
	channel->ready = ready;
	channel->arg = arg;
	if (ready)
		snt__stream_tell_later(channel->stream);
}
