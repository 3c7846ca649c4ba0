/* SPDX-License-Identifier: MIT */
#include "copy_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/err.h>

/* Data in flight in this process, and always a few other frames besides it. */
#define OUT_SIZE (4 * COPY_DATA_MAX)
/* Frames go out together while there are more to come. */
#define GATHERED_MIN (64 << 10)

int copy_link_begin(struct copy_link *link, struct snt_stream *stream)
{
	memset(link, 0, sizeof(*link));
	link->stream = stream;
	link->out = malloc(OUT_SIZE);
	return link->out ? 0 : -ENOMEM;
}

void copy_link_end(struct copy_link *link)
{
	free(link->out);
	link->out = NULL;
}

int copy_link_fail(struct copy_link *link, int error, const char *text)
{
	if (!link->error) {
		link->error = error;
		snprintf(link->text, sizeof(link->text), "%s", text);
		snt_stream_abort(link->stream, text);
	}
	return -link->error;
}

/* The stream's own reason is more precise. */
static int fail_stream(struct copy_link *link, ssize_t ret)
{
	struct snt_stream_info info = { .size = sizeof(info) };

	snt_stream_query(link->stream, &info);
	return copy_link_fail(link, (int)-ret,
			      *info.text ? info.text : strerror((int)-ret));
}

bool copy_link_has_room(struct copy_link *link, size_t size)
{
	if (OUT_SIZE - link->end < COPY_HEADER + size) {
		memmove(link->out, link->out + link->begin, link->end - link->begin);
		link->end -= link->begin;
		link->begin = 0;
	}
	return OUT_SIZE - link->end >= COPY_HEADER + size;
}

void copy_link_put(struct copy_link *link, const struct copy_frame *frame)
{
	ssize_t length =
		copy_frame_pack(frame, link->out + link->end, OUT_SIZE - link->end);

	if (length < 0)
		copy_link_fail(link, EPROTO,
			       "a control frame does not fit into the send ring");
	else
		link->end += (size_t)length;
}

uint8_t *copy_link_data(struct copy_link *link)
{
	return link->out + link->end + COPY_HEADER;
}

void copy_link_put_data(struct copy_link *link, uint32_t length)
{
	struct copy_frame frame = { .type = COPY_DATA, .length = length };

	copy_frame_pack(&frame, link->out + link->end, COPY_HEADER);
	link->end += COPY_HEADER + length;
}

int copy_link_push(struct copy_link *link, bool more_comes)
{
	ssize_t ret;

	if (link->error)
		return -link->error;
	if (link->begin == link->end ||
	    (more_comes && link->end - link->begin < GATHERED_MIN))
		return 0;
	ret = snt_stream_write(link->stream, link->out + link->begin,
			       link->end - link->begin);
	if (ret == -EAGAIN)
		return 0;
	if (ret < 0)
		return fail_stream(link, ret);
	link->begin += (size_t)ret;
	if (link->begin == link->end)
		link->begin = link->end = 0;
	return 1;
}

static void copy_from_ring(const struct iovec iov[2], uint8_t *to, size_t length)
{
	size_t first = length < iov[0].iov_len ? length : iov[0].iov_len;

	memcpy(to, iov[0].iov_base, first);
	if (length > first)
		memcpy(to + first, iov[1].iov_base, length - first);
}

/* Copies so many bytes from the front of what has arrived. 1; 0: not yet; or an
 * error. */
static int peek_bytes(struct copy_link *link, uint8_t *to, size_t length)
{
	struct iovec iov[2];
	ssize_t ret = snt_stream_peek(link->stream, length, iov);

	if (ret == -EAGAIN)
		return 0;
	if (ret < 0)
		return fail_stream(link, ret);
	if (!ret)
		return copy_link_fail(link, EPIPE, "the peer closed the connection");
	if ((size_t)ret < length)
		return copy_link_fail(
			link, EPROTO,
			"the peer closed the connection in the middle of a frame");
	copy_from_ring(iov, to, length);
	return 1;
}

static int next_frame(struct copy_link *link, struct copy_frame *frame)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX];
	size_t whole = COPY_HEADER;
	ssize_t length;
	int ret;

	if (link->error)
		return -link->error;
	if (link->data_left)
		return 0;
	ret = peek_bytes(link, buffer, COPY_HEADER);
	if (ret <= 0)
		return ret;
	length = copy_frame_length(buffer);
	if (length < 0)
		return copy_link_fail(
			link, EPROTO,
			"the peer sent something that is not a frame of sennit cp");
	if (be32toh(*(uint32_t *)buffer) != COPY_DATA) {
		whole += (size_t)length;
		ret = peek_bytes(link, buffer, whole);
		if (ret <= 0)
			return ret;
	}
	if (copy_frame_unpack(buffer, whole, frame))
		return copy_link_fail(link, EPROTO, "the peer sent a malformed frame");
	if (frame->type == COPY_DATA)
		link->data_left = frame->length;
	link->heard++;
	snt_stream_consume(link->stream, whole);
	return 1;
}

int copy_link_next(struct copy_link *link, struct copy_frame *frame)
{
	static const struct copy_frame alive = { .type = COPY_ALIVE };
	int ret;

	while (copy_link_has_room(link, COPY_CONTROL_MAX)) {
		ret = next_frame(link, frame);
		if (ret > 0 && frame->type == COPY_ALIVE)
			link->alive++;
		else if (ret > 0 && frame->type == COPY_PROBE)
			copy_link_put(link, &alive);
		else
			return ret;
	}
	return 0;
}

ssize_t copy_link_bytes(struct copy_link *link, struct iovec iov[2])
{
	ssize_t ret;

	if (link->error)
		return -link->error;
	ret = snt_stream_peek(link->stream, 1, iov);
	if (ret == -EAGAIN)
		return 0;
	if (ret < 0)
		return fail_stream(link, ret);
	if (!ret)
		return copy_link_fail(
			link, EPROTO,
			"the peer closed the connection in the middle of a file's data");
	if ((size_t)ret > link->data_left) {
		ret = link->data_left;
		if (iov[0].iov_len >= (size_t)ret) {
			iov[0].iov_len = (size_t)ret;
			iov[1].iov_len = 0;
		} else {
			iov[1].iov_len = (size_t)ret - iov[0].iov_len;
		}
	}
	return ret;
}

void copy_link_consume(struct copy_link *link, size_t length)
{
	link->data_left -= (uint32_t)length;
	link->heard++;
	snt_stream_consume(link->stream, length);
}
