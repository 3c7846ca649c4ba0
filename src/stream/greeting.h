/* SPDX-License-Identifier: MIT */
#ifndef SNT_STREAM_GREETING_H
#define SNT_STREAM_GREETING_H

#include <sennit/stream.h>

/*
 * What the ends exchange first: the address and length of the ring, and the number of
 * receives.
 */
struct snt__greeting {
	uint32_t receives;
	struct snt_token ring; /* its length is the ring's */
	uint8_t data_length;
	uint8_t data[SNT_STREAM_DATA_MAX];
};

/* Returns the number of bytes, at most SNT_STREAM_OFFER_MAX; -ENOSPC. */
ssize_t snt__greeting_pack(const struct snt__greeting *greeting, void *buffer,
			   size_t size);

/* Checks all of its input. -EPROTONOSUPPORT, -EBADMSG. */
int snt__greeting_unpack(const void *buffer, size_t size,
			 struct snt__greeting *greeting_out);

#endif
