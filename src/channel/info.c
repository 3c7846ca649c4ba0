/* SPDX-License-Identifier: MIT */
#include "channel/channel.h"
#include "util/opts.h"

/* The longest message for which there is room now. */
static uint64_t room_of(const struct snt_channel *channel)
{
	uint64_t room = snt__chan_room(channel), most = snt__chan_send_max(channel);

	room = room < SNT__RECORD_HEADER ? 0 : room - SNT__RECORD_HEADER;
	return room < most ? room : most;
}

int snt_channel_query(struct snt_channel *channel, struct snt_channel_info *info_out)
{
	const struct snt_stream *stream = channel->stream;
	struct snt_channel_info info = channel->count;

	info.states = snt__chan_states(channel);
	info.status = stream->status;
	info.text = stream->text;
	info.send_max = snt__chan_send_max(channel);
	info.recv_max = snt__record_max(stream->in.size);
	info.room = room_of(channel);
	info.offers_pending = channel->offers;
	return snt__info_export(info_out, &info, sizeof(info),
				"struct snt_channel_info");
}

const struct snt_stream *snt_channel_stream(const struct snt_channel *channel)
{
	return channel->stream;
}
