/* SPDX-License-Identifier: MIT */
#ifndef SNT_CHANNEL_RECORD_H
#define SNT_CHANNEL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sennit/mem.h>

/*
 * What a channel writes to its stream: records of a header, a body, and zeros up to a
 * multiple of 8 bytes, all in network byte order. As a ring's size is a power of two, and
 * at least 256, no header crosses its end.
 *
 *	HELLO    magic and version; the first record, and no other
 *	MESSAGE  the program's bytes
 *	OFFER    the address and length of a message in the sender's memory, and the
 *	         packed token of that memory
 */
enum snt__record_type {
	SNT__RECORD_NONE,
	SNT__RECORD_HELLO,
	SNT__RECORD_MESSAGE,
	SNT__RECORD_OFFER,
};

struct snt__record_header {
	uint32_t length; /* of the body */
	uint8_t type;
	uint8_t zero[3];
};

#define SNT__RECORD_HEADER sizeof(struct snt__record_header)
#define SNT__GREET_LENGTH  8
#define SNT__OFFER_MAX	   (16 + SNT_TOKEN_PACKED_MAX)

/* As read from a header. */
struct snt__record {
	enum snt__record_type type;
	uint32_t length;
};

struct snt__offered {
	uint64_t addr;
	uint64_t length;
	struct snt_token token;
};

/* The bytes that a record takes. */
static inline uint64_t snt__record_size(uint64_t length)
{
	return SNT__RECORD_HEADER + ((length + 7) & ~UINT64_C(7));
}

/* The longest body where both ends have at least so much memory. A reader may wait for at
 * most half of its ring, and a writer for half of its stage. */
static inline uint64_t snt__record_max(uint64_t memory)
{
	return memory / 2 - SNT__RECORD_HEADER;
}

struct snt__record_header snt__record_pack(enum snt__record_type type, uint64_t length);

/* NULL, or what is wrong with a header. `first`: is it the stream's first? */
const char *snt__record_unpack(const void *bytes, bool first, uint64_t length_max,
			       struct snt__record *record_out);

void snt__greet_pack(uint8_t bytes[SNT__GREET_LENGTH]);
const char *snt__greet_check(const uint8_t bytes[SNT__GREET_LENGTH]);

/* Returns the length, at most SNT__OFFER_MAX, or the error of snt_token_pack(). */
ssize_t snt__offered_pack(const struct snt__offered *offered,
			  uint8_t bytes[SNT__OFFER_MAX]);
/* NULL, or what is wrong with an offer. */
const char *snt__offered_unpack(const uint8_t *bytes, size_t length,
				struct snt__offered *offered_out);

#endif
