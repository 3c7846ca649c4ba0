/* SPDX-License-Identifier: MIT */
/* Fetching what the peer offers, by READs on the stream's QP. */
#include <errno.h>

#include "channel/channel.h"
#include "dev/mem.h"
#include "util/err.h"
#include "util/minmax.h"
#include "vqp/post.h"

/*
 * READs
 */

static uint32_t reads_in_flight(const struct snt_channel *channel)
{
	return channel->piece_tail - channel->piece_head;
}

static bool post_read(struct snt_channel *channel, struct snt_fetch *fetch)
{
	struct snt_stream *stream = channel->stream;
	uint64_t length = snt__min(fetch->length - fetch->asked, channel->read_length);
	const struct snt_sge sge = { .mem = fetch->mem,
				     .addr = (uint8_t *)fetch->addr + fetch->asked,
				     .length = length };
	const struct snt_send_wr wr = { .wr_id = (uintptr_t)&channel->read_port,
					.opcode = SNT_OP_READ,
					.flags = SNT_SEND_SIGNALED,
					.sge_count = 1,
					.sge = &sge,
					.remote = &fetch->token,
					.remote_addr =
						fetch->remote_addr + fetch->asked };
	int ret = snt__qp_post_send(stream->qp, &wr, 1);

	if (ret != 1) {
		snt__stream_fail(stream, ret == -ESHUTDOWN ? 0 : EPROTO,
				 "the peer's offer cannot be read: %s",
				 ret == -ESHUTDOWN ? "the QP has ended"
						   : snt_err_text());
		return false;
	}
	channel->piece[channel->piece_tail++ % SNT__READS_MAX] = (uint32_t)length;
	fetch->asked += length;
	return true;
}

void snt__chan_pump(struct snt_channel *channel)
{
	while (channel->fetch_next && !snt__stream_has_failed(channel->stream) &&
	       reads_in_flight(channel) < channel->reads_max) {
		struct snt_fetch *fetch = channel->fetch_next;

		if (!post_read(channel, fetch))
			return;
		if (fetch->asked == fetch->length)
			channel->fetch_next = fetch->next;
	}
}

/*
 * Ends
 */

static void finish_offered(struct snt_channel *channel, uint64_t count)
{
	channel->finished = (uint32_t)(channel->finished + count) & SNT__IMM_NUMBER;
	snt__stream_note(channel->stream, channel->finished);
}

static void end_fetch(struct snt_channel *channel, int result)
{
	struct snt_fetch *fetch = channel->fetch_first;

	channel->fetch_first = fetch->next;
	if (!channel->fetch_first)
		channel->fetch_end = &channel->fetch_first;
	channel->count.fetches_pending--;
	fetch->result = result;
	fetch->next = NULL;
	*channel->fetch_done_end = fetch;
	channel->fetch_done_end = &fetch->next;
}

void snt__chan_end_fetches(struct snt_channel *channel, int result)
{
	channel->fetch_next = NULL;
	while (channel->fetch_first)
		end_fetch(channel, result);
}

void snt__chan_report_fetches(struct snt_channel *channel)
{
	while (channel->fetch_done) {
		struct snt_fetch *fetch = channel->fetch_done;

		channel->fetch_done = fetch->next;
		if (!channel->fetch_done)
			channel->fetch_done_end = &channel->fetch_done;
		fetch->done(fetch);
	}
}

void snt__chan_drop_offer(struct snt_channel *channel)
{
	struct snt_fetch *last;

	if (!channel->fetch_first) {
		finish_offered(channel, 1);
		return;
	}
	/* Reported in its turn. */
	last = snt__container(channel->fetch_end, struct snt_fetch, next);
	last->dropped++;
}

static void take_read_piece(struct snt_channel *channel, uint64_t length)
{
	struct snt_fetch *fetch = channel->fetch_first;

	fetch->arrived += length;
	channel->count.bytes_fetched += length;
	if (fetch->arrived < fetch->length)
		return;
	channel->count.messages_fetched++;
	end_fetch(channel, 0);
	finish_offered(channel, 1 + fetch->dropped);
}

void snt__chan_read(struct snt_op *op, const struct snt_wc *wc)
{
	struct snt_channel *channel = ((struct snt__read_port *)op)->channel;
	struct snt_stream *stream = channel->stream;
	uint64_t length = channel->piece[channel->piece_head++ % SNT__READS_MAX];

	/* After a failure pieces may be missing. */
	if (__builtin_expect(snt__stream_has_failed(stream), 0))
		return;
	if (__builtin_expect(wc->status != SNT_WC_SUCCESS, 0)) {
		snt__stream_lose(stream, wc);
	} else {
		take_read_piece(channel, length);
		snt__chan_pump(channel);
	}
	snt__stream_tell(stream);
}

/*
 * The call
 */

static int check_fetch(struct snt_channel *channel, const struct snt_fetch *fetch)
{
	const struct snt_mem *mem = fetch->mem;

	if (!mem || !fetch->done)
		return snt__fail(EINVAL, "a fetch needs memory and a function");
	if (channel->look != SNT__LOOK_OFFER)
		return snt__fail(EINVAL, "the next message is not offered; receive it");
	if (mem->ctx != channel->stream->conn_loop->ctx)
		return snt__fail(EINVAL, "the memory %s",
				 mem->ctx ? "is registered in another context"
					  : "has been released");
	if (channel->offered.length > fetch->size)
		return snt__fail(EMSGSIZE,
				 "the next message has %llu bytes, more than the "
				 "%llu to fetch it to",
				 (unsigned long long)channel->offered.length,
				 (unsigned long long)fetch->size);
	if (!snt__mem_holds(mem, (uintptr_t)fetch->addr, fetch->size))
		return snt__fail(ERANGE, "%llu bytes are outside of the memory",
				 (unsigned long long)fetch->size);
	if (!(mem->access & SNT_ACCESS_LOCAL_WRITE))
		return snt__fail(EACCES,
				 "the memory is registered without "
				 "SNT_ACCESS_LOCAL_WRITE, so that nothing can be "
				 "fetched to it");
	return 0;
}

int snt_channel_fetch(struct snt_channel *channel, struct snt_fetch *fetch)
{
	const struct snt_stream *stream = channel->stream;
	int ret = snt__chan_next(channel);

	if (!ret)
		ret = check_fetch(channel, fetch);
	if (ret)
		return ret;
	if (snt__stream_has_failed(stream) || snt__stream_is_over(stream))
		return snt__fail(stream->status ? -stream->status : ECONNRESET, "%s",
				 stream->status ? stream->text : "the channel is over");
	fetch->length = channel->offered.length;
	fetch->remote_addr = channel->offered.addr;
	fetch->token = channel->offered.token;
	fetch->asked = fetch->arrived = fetch->dropped = 0;
	fetch->next = NULL;
	*channel->fetch_end = fetch;
	channel->fetch_end = &fetch->next;
	if (!channel->fetch_next)
		channel->fetch_next = fetch;
	channel->count.fetches_pending++;
	channel->wants |= SNT_CHANNEL_FETCHED;
	snt__chan_consume(channel);
	snt__chan_pump(channel);
	return 0;
}
