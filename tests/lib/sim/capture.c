/* SPDX-License-Identifier: MIT */
#include "lib/sim/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/err.h"

#define BLOCK_SECTION	0x0a0d0d0au
#define BLOCK_INTERFACE 1
#define BLOCK_PACKET	6
#define BYTE_ORDER_MARK 0x1a2b3c4du
#define LINK_RAW_IP	101

#define OPTION_END	  0
#define OPTION_COMMENT	  1
#define OPTION_NAME	  2 /* of an interface */
#define OPTION_FLAGS	  2 /* of a packet */
#define OPTION_RESOLUTION 9 /* of an interface's clock: a power of ten */

#define FLAG_INBOUND  1
#define FLAG_OUTBOUND 2

struct snt__sim_capture {
	int fd;
	int error; /* the first one; nothing is written after it */
	unsigned interfaces;
	size_t used;
	uint8_t buffer[8192]; /* of one block */
};

static void flush_capture(struct snt__sim_capture *capture)
{
	size_t done = 0;

	while (!capture->error && done < capture->used) {
		ssize_t n = write(capture->fd, capture->buffer + done,
				  capture->used - done);

		if (n >= 0)
			done += n;
		else if (errno != EINTR)
			capture->error = errno;
	}
	capture->used = 0;
}

/* Everything is in our byte order, and aligned to 4. */
static void add_bytes(struct snt__sim_capture *capture, const void *bytes,
		      size_t length)
{
	if (length)
		memcpy(capture->buffer + capture->used, bytes, length);
	capture->used += length;
	while (capture->used % 4)
		capture->buffer[capture->used++] = 0;
}

static void add_word(struct snt__sim_capture *capture, uint32_t word)
{
	add_bytes(capture, &word, sizeof(word));
}

static void add_halves(struct snt__sim_capture *capture, uint16_t first,
		       uint16_t second)
{
	uint16_t halves[] = { first, second };

	add_bytes(capture, halves, sizeof(halves));
}

static void add_option(struct snt__sim_capture *capture, uint16_t code,
		       const void *value, size_t length)
{
	add_halves(capture, code, length);
	add_bytes(capture, value, length);
}

/* No block is longer than the longest packet, a comment and little else. */
static void begin_block(struct snt__sim_capture *capture, uint32_t type)
{
	add_word(capture, type);
	add_word(capture, 0);
}

/* The length stands at both ends of a block. Written at once: a capture is wanted most
 * when the program crashes. */
static void end_block(struct snt__sim_capture *capture)
{
	uint32_t length = capture->used + sizeof(length);

	memcpy(capture->buffer + 4, &length, sizeof(length));
	add_word(capture, length);
	flush_capture(capture);
}

int snt__sim_capture_open(const char *path, struct snt__sim_capture **capture_out)
{
	struct snt__sim_capture *capture = malloc(sizeof(*capture));
	int fd;

	if (!capture)
		return snt__fail(ENOMEM, "no memory for a capture");
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		int error = errno;

		free(capture);
		return snt__fail(error, "%s: %s", path, strerror(error));
	}
	capture->fd = fd;
	capture->error = 0;
	capture->interfaces = 0;
	capture->used = 0;
	begin_block(capture, BLOCK_SECTION);
	add_word(capture, BYTE_ORDER_MARK);
	add_halves(capture, 1, 0);
	add_word(capture, UINT32_MAX); /* the section's length is not known */
	add_word(capture, UINT32_MAX);
	end_block(capture);
	*capture_out = capture;
	return 0;
}

unsigned snt__sim_capture_interface(struct snt__sim_capture *capture, const char *name)
{
	uint8_t nanoseconds = 9;

	begin_block(capture, BLOCK_INTERFACE);
	add_halves(capture, LINK_RAW_IP, 0);
	add_word(capture, 0); /* packets are complete */
	add_option(capture, OPTION_NAME, name, strnlen(name, 64));
	add_option(capture, OPTION_RESOLUTION, &nanoseconds, 1);
	add_option(capture, OPTION_END, NULL, 0);
	end_block(capture);
	return capture->interfaces++;
}

void snt__sim_capture_packet(struct snt__sim_capture *capture, unsigned interface,
			     bool inbound, uint64_t time_ns, const uint8_t *bytes,
			     size_t length, const char *comment)
{
	uint32_t flags = inbound ? FLAG_INBOUND : FLAG_OUTBOUND;

	begin_block(capture, BLOCK_PACKET);
	add_word(capture, interface);
	add_word(capture, time_ns >> 32);
	add_word(capture, time_ns);
	add_word(capture, length);
	add_word(capture, length);
	add_bytes(capture, bytes, length);
	if (comment)
		add_option(capture, OPTION_COMMENT, comment, strnlen(comment, 64));
	add_option(capture, OPTION_FLAGS, &flags, sizeof(flags));
	add_option(capture, OPTION_END, NULL, 0);
	end_block(capture);
}

int snt__sim_capture_close(struct snt__sim_capture *capture)
{
	int error;

	if (!capture)
		return 0;
	error = capture->error;
	if (close(capture->fd) && !error)
		error = errno;
	free(capture);
	return error ? snt__fail(error, "capture: %s", strerror(error)) : 0;
}
