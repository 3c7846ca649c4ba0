/* SPDX-License-Identifier: MIT */
#include "stream/greeting.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "stream/flow.h"
#include "util/err.h"

#define MAGIC	0x736e7473 /* "snts" */
#define VERSION 1

/* In network byte order; followed by the data, then the packed token. */
struct header {
	uint32_t magic;
	uint8_t version;
	uint8_t data_length;
	uint16_t receives;
};

_Static_assert(sizeof(struct header) == 8, "no holes");
_Static_assert(sizeof(struct header) + SNT_STREAM_DATA_MAX + SNT_TOKEN_PACKED_MAX <=
		       SNT_STREAM_OFFER_MAX,
	       "an offer fits");

ssize_t snt__greeting_pack(const struct snt__greeting *greeting, void *buffer,
			   size_t size)
{
	struct header header = {
		.magic = htobe32(MAGIC),
		.version = VERSION,
		.data_length = greeting->data_length,
		.receives = htobe16((uint16_t)greeting->receives),
	};
	size_t before = sizeof(header) + greeting->data_length;
	uint8_t *to = buffer;
	ssize_t token;

	if (size < before)
		return snt__fail(ENOSPC, "%zu bytes are too few for a stream's offer",
				 size);
	memcpy(to, &header, sizeof(header));
	memcpy(to + sizeof(header), greeting->data, greeting->data_length);
	token = snt_token_pack(&greeting->ring, to + before, size - before);
	return token < 0 ? token : token + (ssize_t)before;
}

static int check_greeting(const struct snt__greeting *greeting)
{
	uint64_t size = greeting->ring.length;

	if (size < SNT_STREAM_RING_MIN || size > SNT_STREAM_RING_MAX ||
	    (size & (size - 1)) || !(greeting->ring.access & SNT_ACCESS_REMOTE_WRITE))
		return snt__fail(EBADMSG, "the peer offered an invalid ring");
	if (greeting->receives < SNT__RECEIVES_KEPT + SNT__MESSAGE_COST_MAX ||
	    greeting->receives >= 1 << 14)
		return snt__fail(EBADMSG,
				 "the peer offered an invalid number of receives, %u",
				 greeting->receives);
	return 0;
}

int snt__greeting_unpack(const void *buffer, size_t size,
			 struct snt__greeting *greeting_out)
{
	struct header header;
	struct snt__greeting greeting = { 0 };
	const uint8_t *from = buffer;
	size_t before;
	int ret;

	if (size < sizeof(header))
		return snt__fail(EBADMSG, "%zu bytes are not a stream's offer", size);
	memcpy(&header, from, sizeof(header));
	before = sizeof(header) + header.data_length;
	if (header.magic != htobe32(MAGIC))
		return snt__fail(EBADMSG, "the peer is connected, but not by a stream");
	if (header.version != VERSION)
		return snt__fail(EPROTONOSUPPORT,
				 "the peer's streams have version %u, ours %u",
				 header.version, VERSION);
	if (header.data_length > SNT_STREAM_DATA_MAX || size < before)
		return snt__fail(EBADMSG, "the peer's offer is truncated");
	greeting.receives = be16toh(header.receives);
	greeting.data_length = header.data_length;
	memcpy(greeting.data, from + sizeof(header), header.data_length);
	ret = snt_token_unpack(from + before, size - before, &greeting.ring);
	if (!ret)
		ret = check_greeting(&greeting);
	if (!ret)
		*greeting_out = greeting;
	return ret;
}
