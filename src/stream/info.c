/* SPDX-License-Identifier: MIT */
#include "stream/stream.h"
#include "util/opts.h"

static enum snt_stream_state stream_state(const struct snt_stream *stream)
{
	static const enum snt_stream_state states[SNT__STREAM_PHASES] = {
		[SNT__STREAM_STARTING] = SNT_STREAM_CONNECTING,
		[SNT__STREAM_RUNNING] = SNT_STREAM_RUNNING,
		[SNT__STREAM_LEAVING] = SNT_STREAM_RUNNING,
		[SNT__STREAM_FAILED] = SNT_STREAM_FAILING,
		[SNT__STREAM_OVER] = SNT_STREAM_ENDED,
	};

	return states[stream->phase];
}

static uint64_t unsent_bytes(const struct snt_stream *stream)
{
	uint64_t bytes = stream->staged - stream->posted;

	for (const struct snt_stream_send *at = stream->send_next; at; at = at->next)
		bytes += at->length - at->sent;
	return bytes;
}

int snt_stream_query(const struct snt_stream *stream, struct snt_stream_info *info_out)
{
	struct snt_stream_info info = stream->count;

	info.state = stream_state(stream);
	info.status = stream->status;
	info.text = stream->text;
	info.peer_shut_down = stream->in.ended;
	info.recv_size = stream->in.size;
	info.peer_size = stream->opened ? stream->out.size : 0;
	info.send_size = stream->stage_size;
	info.chunk = stream->chunk;
	info.readable = snt__inflow_unread(&stream->in);
	info.writable = stream->stage_size - (stream->staged - stream->released);
	info.unsent = unsent_bytes(stream);
	info.receives_granted = stream->in.receives;
	info.receives_most = stream->in.most;
	info.data = stream->peer_data;
	info.data_length = stream->peer_data_length;
	return snt__info_export(info_out, &info, sizeof(info),
				"struct snt_stream_info");
}

const struct snt_conn *snt_stream_conn(const struct snt_stream *stream)
{
	return stream->conn;
}
