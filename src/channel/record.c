/* SPDX-License-Identifier: MIT */
#include "channel/record.h"

#include <endian.h>
#include <sennit/channel.h>
#include <string.h>

#include "dev/mem.h"

#define MAGIC	0x736e7463 /* "sntc" */
#define VERSION 1

struct hello {
	uint32_t magic;
	uint8_t version;
	uint8_t zero[3];
};

/* Followed by the packed token. */
struct offer {
	uint64_t addr;
	uint64_t length;
};

_Static_assert(sizeof(struct snt__record_header) == 8, "no holes");
_Static_assert(sizeof(struct hello) == SNT__GREET_LENGTH, "no holes");
_Static_assert(sizeof(struct offer) + SNT_TOKEN_PACKED_MAX == SNT__OFFER_MAX,
	       "no holes");
_Static_assert(SNT__RECORD_HEADER + SNT__OFFER_MAX == SNT_CHANNEL_OFFER_BYTES,
	       "as documented");

struct snt__record_header snt__record_pack(enum snt__record_type type, uint64_t length)
{
	return (struct snt__record_header){ .length = htobe32((uint32_t)length),
					    .type = (uint8_t)type };
}

const char *snt__record_unpack(const void *bytes, bool first, uint64_t length_max,
			       struct snt__record *record_out)
{
	struct snt__record_header header;
	struct snt__record record;

	memcpy(&header, bytes, sizeof(header));
	record.type = header.type;
	record.length = be32toh(header.length);
	if (first != (record.type == SNT__RECORD_HELLO))
		return first ? "it has no channel, but a stream of bytes"
			     : "it greeted twice";
	if (record.type == SNT__RECORD_NONE || record.type > SNT__RECORD_OFFER ||
	    header.zero[0] || header.zero[1] || header.zero[2])
		return "it sent a record of an unknown kind";
	if (record.length > length_max)
		return "it sent a message longer than half of the ring";
	if (record.type == SNT__RECORD_HELLO && record.length != SNT__GREET_LENGTH)
		return "its greeting has a wrong length";
	if (record.type == SNT__RECORD_OFFER &&
	    (record.length <= sizeof(struct offer) || record.length > SNT__OFFER_MAX))
		return "its offer has a wrong length";
	*record_out = record;
	return NULL;
}

void snt__greet_pack(uint8_t bytes[SNT__GREET_LENGTH])
{
	const struct hello hello = { .magic = htobe32(MAGIC), .version = VERSION };

	memcpy(bytes, &hello, sizeof(hello));
}

const char *snt__greet_check(const uint8_t bytes[SNT__GREET_LENGTH])
{
	struct hello hello;

	memcpy(&hello, bytes, sizeof(hello));
	if (hello.magic != htobe32(MAGIC))
		return "it has no channel, but a stream of bytes";
	if (hello.version != VERSION)
		return "its channels have another version";
	return NULL;
}

ssize_t snt__offered_pack(const struct snt__offered *offered,
			  uint8_t bytes[SNT__OFFER_MAX])
{
	const struct offer offer = { .addr = htobe64(offered->addr),
				     .length = htobe64(offered->length) };
	ssize_t token = snt_token_pack(&offered->token, bytes + sizeof(offer),
				       SNT_TOKEN_PACKED_MAX);

	memcpy(bytes, &offer, sizeof(offer));
	return token < 0 ? token : token + (ssize_t)sizeof(offer);
}

const char *snt__offered_unpack(const uint8_t *bytes, size_t length,
				struct snt__offered *offered_out)
{
	struct snt__offered offered = { 0 };
	struct offer offer;

	memcpy(&offer, bytes, sizeof(offer));
	offered.addr = be64toh(offer.addr);
	offered.length = be64toh(offer.length);
	if (snt_token_unpack(bytes + sizeof(offer), length - sizeof(offer),
			     &offered.token))
		return "its offer has an invalid token";
	if (!offered.length || offered.length > SNT_CHANNEL_OFFER_MAX)
		return "its offer has an invalid length";
	if (!(offered.token.access & SNT_ACCESS_REMOTE_READ) ||
	    !snt__token_holds(&offered.token, offered.addr, offered.length))
		return "its offer is outside of its memory, or may not be read";
	*offered_out = offered;
	return NULL;
}
