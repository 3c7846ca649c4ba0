/* SPDX-License-Identifier: MIT */
/* Offers of this end: messages that the peer reads from where they are. */
#include <errno.h>
#include <limits.h>

#include "channel/channel.h"
#include "dev/mem.h"
#include "util/err.h"

static int check_memory(const struct snt_channel *channel,
			const struct snt_offer *offer)
{
	const struct snt_mem *mem = offer->mem;

	if (!mem || !offer->length || !offer->released)
		return snt__fail(EINVAL,
				 "an offer needs memory, a length and a function");
	if (mem->ctx != channel->stream->conn_loop->ctx)
		return snt__fail(EINVAL, "the memory %s",
				 mem->ctx ? "is registered in another context"
					  : "has been released");
	if (offer->length > SNT_CHANNEL_OFFER_MAX)
		return snt__fail(EMSGSIZE, "%llu bytes are more than can be offered",
				 (unsigned long long)offer->length);
	if (!snt__mem_holds(mem, (uintptr_t)offer->addr, offer->length))
		return snt__fail(ERANGE, "%llu bytes are outside of the memory",
				 (unsigned long long)offer->length);
	if (!(mem->access & SNT_ACCESS_REMOTE_READ))
		return snt__fail(EACCES, "the memory is registered without "
					 "SNT_ACCESS_REMOTE_READ, so that no peer can "
					 "fetch a message from it");
	return 0;
}

static int put_offer(struct snt_channel *channel, const struct snt_offer *offer)
{
	struct snt__offered offered = { .addr = (uintptr_t)offer->addr,
					.length = offer->length };
	uint8_t bytes[SNT__OFFER_MAX];
	struct iovec iov = { .iov_base = bytes };
	ssize_t length;
	int ret = snt_mem_token(offer->mem, &offered.token);

	if (ret)
		return ret;
	length = snt__offered_pack(&offered, bytes);
	if (length < 0)
		return (int)length;
	iov.iov_len = (size_t)length;
	if (channel->stream->opened && iov.iov_len > snt__chan_send_max(channel))
		return snt__fail(EMSGSIZE, "the peer's ring is too small for an offer");
	return snt__chan_put(channel, SNT__RECORD_OFFER, &iov, 1, iov.iov_len);
}

int snt_channel_offer(struct snt_channel *channel, struct snt_offer *offer)
{
	int ret = snt__chan_refuse(channel);

	if (!ret)
		ret = check_memory(channel, offer);
	if (ret)
		return ret;
	if (!channel->stream->opened || channel->offers == SNT_CHANNEL_OFFERS_MAX) {
		channel->wants |= SNT_CHANNEL_WRITABLE;
		return snt__fail_later(EAGAIN,
				       "the channel is not open yet, or has too many "
				       "offers pending; wait for SNT_CHANNEL_WRITABLE",
				       0, 0);
	}
	ret = put_offer(channel, offer);
	if (ret)
		return ret;
	offer->next = NULL;
	*channel->offer_end = offer;
	channel->offer_end = &offer->next;
	channel->offers++;
	channel->count.messages_offered++;
	return 0;
}

/*
 * Release
 */

static void finish_offers(struct snt_channel *channel, uint32_t count, int result)
{
	while (count-- && channel->offer_first) {
		struct snt_offer *offer = channel->offer_first;

		channel->offer_first = offer->next;
		if (!channel->offer_first)
			channel->offer_end = &channel->offer_first;
		channel->offers--;
		offer->result = result;
		offer->next = NULL;
		*channel->offer_done_end = offer;
		channel->offer_done_end = &offer->next;
	}
}

void snt__chan_end_offers(struct snt_channel *channel, int result)
{
	finish_offers(channel, UINT_MAX, result);
}

void snt__chan_report_offers(struct snt_channel *channel)
{
	while (channel->offer_done) {
		struct snt_offer *offer = channel->offer_done;

		channel->offer_done = offer->next;
		if (!channel->offer_done)
			channel->offer_done_end = &channel->offer_done;
		offer->released(offer);
	}
}

const char *snt__chan_noted(struct snt_stream *stream, uint32_t number)
{
	struct snt_channel *channel = stream->user_arg;
	uint32_t count = (number - channel->released) & SNT__IMM_NUMBER;

	if (count > channel->offers)
		return "it says that it is done with more offers than were made";
	channel->released = number;
	finish_offers(channel, count, 0);
	snt__chan_try_shut(channel);
	return NULL;
}

void snt__chan_try_shut(struct snt_channel *channel)
{
	struct snt_stream *stream = channel->stream;

	if (channel->shut && !channel->offers && stream->half == SNT__STREAM_WRITING &&
	    !snt__stream_has_failed(stream))
		snt_stream_shutdown(stream);
}
