/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_LINK_H
#define SENNIT_TOOL_COPY_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sennit/stream.h>

#include "copy_frame.h"

/* Frames over a stream, without blocking. */
struct copy_link {
	struct snt_stream *stream;
	uint8_t *out; /* frames that the stream has not taken yet: begin to end */
	size_t begin, end;
	uint32_t data_left; /* bytes of DATA that come before the next frame */
	uint64_t heard;	    /* frames and pieces of data received */
	uint64_t alive;	    /* answers to PROBE among them */
	int error;	    /* why the link has ended; 0: it has not */
	char text[256];
};

/* 0; -ENOMEM. The stream stays the caller's. */
int copy_link_begin(struct copy_link *link, struct snt_stream *stream);
void copy_link_end(struct copy_link *link);

/* Is there room for a frame, or for the most DATA? */
bool copy_link_has_room(struct copy_link *link, size_t size);
/* There is room. */
void copy_link_put(struct copy_link *link, const struct copy_frame *frame);
/* Where to put bytes of DATA, at most COPY_DATA_MAX; then how many there are. */
uint8_t *copy_link_data(struct copy_link *link);
void copy_link_put_data(struct copy_link *link, uint32_t length);

/* Gives the stream as much as it takes; with `more_comes`, only if that is worth a
 * write: the caller repeats the call until there is no more. 1: something; 0: nothing;
 * or the link's error. */
int copy_link_push(struct copy_link *link, bool more_comes);
/* The next complete frame; PROBE is answered here, and ALIVE counted. 1; 0: none now,
 * also while there are bytes of DATA left; or the link's error, -EPIPE if the peer has
 * ended. */
int copy_link_next(struct copy_link *link, struct copy_frame *frame);
/* Bytes of DATA that have arrived, in place; then how many can be released. Returns the
 * number of bytes, 0, or the link's error. */
ssize_t copy_link_bytes(struct copy_link *link, struct iovec iov[2]);
void copy_link_consume(struct copy_link *link, size_t length);

/* The peer breaks the protocol, or cannot be served: ends the link. Returns -error. */
int copy_link_fail(struct copy_link *link, int error, const char *text);

#endif
