/* SPDX-License-Identifier: MIT */
#include "copy_frame.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * Each type is a list of fields in this order: numbers, a digest, a text that takes the
 * rest.
 */

enum part {
	VERSION = 1 << 0,
	FLAGS = 1 << 1,
	DIGESTS = 1 << 2,
	MODE = 1 << 3,
	ERROR = 1 << 4,
	DONE = 1 << 5,
	SIZE = 1 << 6,
	MTIME = 1 << 7,
	OFFSET = 1 << 8,
	DIGEST = 1 << 9,
	TEXT = 1 << 10,
	ENTRY = 1 << 11,
};

static const unsigned parts_of[] = {
	[COPY_OPEN] = VERSION | FLAGS | DIGESTS | TEXT,
	[COPY_READY] = DIGESTS,
	[COPY_DIRECTORY] = ENTRY | MODE | TEXT,
	[COPY_FILE] = ENTRY | MODE | SIZE | MTIME | TEXT,
	[COPY_HAVE] = ENTRY | OFFSET | DIGEST,
	[COPY_START] = ENTRY | OFFSET,
	[COPY_DATA] = 0,
	[COPY_DONE] = ENTRY | DONE | DIGEST,
	[COPY_RESULT] = ERROR | TEXT,
	[COPY_PROBLEM] = ERROR | TEXT,
	[COPY_END] = 0,
	[COPY_JUDGED] = ENTRY | ERROR | TEXT,
	[COPY_PROBE] = 0,
	[COPY_ALIVE] = 0,
};

static const struct {
	enum part part;
	size_t offset;
	bool wide;
} numbers[] = {
	{ VERSION, offsetof(struct copy_frame, version), false },
	{ FLAGS, offsetof(struct copy_frame, flags), false },
	{ DIGESTS, offsetof(struct copy_frame, digests), false },
	{ ENTRY, offsetof(struct copy_frame, entry), false },
	{ MODE, offsetof(struct copy_frame, mode), false },
	{ ERROR, offsetof(struct copy_frame, error), false },
	{ DONE, offsetof(struct copy_frame, done), false },
	{ SIZE, offsetof(struct copy_frame, size), true },
	{ MTIME, offsetof(struct copy_frame, mtime_ns), true },
	{ OFFSET, offsetof(struct copy_frame, offset), true },
};
#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

static size_t put_number(void *to, const struct copy_frame *frame, size_t i)
{
	const char *from = (const char *)frame + numbers[i].offset;
	uint32_t narrow;
	uint64_t wide;

	if (numbers[i].wide) {
		memcpy(&wide, from, sizeof(wide));
		wide = htobe64(wide);
		memcpy(to, &wide, sizeof(wide));
		return sizeof(wide);
	}
	memcpy(&narrow, from, sizeof(narrow));
	narrow = htobe32(narrow);
	memcpy(to, &narrow, sizeof(narrow));
	return sizeof(narrow);
}

static size_t get_number(const void *from, struct copy_frame *frame, size_t i)
{
	char *to = (char *)frame + numbers[i].offset;
	uint32_t narrow;
	uint64_t wide;

	if (numbers[i].wide) {
		memcpy(&wide, from, sizeof(wide));
		wide = be64toh(wide);
		memcpy(to, &wide, sizeof(wide));
		return sizeof(wide);
	}
	memcpy(&narrow, from, sizeof(narrow));
	narrow = be32toh(narrow);
	memcpy(to, &narrow, sizeof(narrow));
	return sizeof(narrow);
}

static size_t number_size(unsigned parts)
{
	size_t size = 0;

	for (size_t i = 0; i < NUMBERS; i++)
		if (parts & numbers[i].part)
			size += numbers[i].wide ? 8 : 4;
	return size + (parts & DIGEST ? COPY_DIGEST : 0);
}

ssize_t copy_frame_pack(const struct copy_frame *frame, void *buffer, size_t size)
{
	unsigned parts = parts_of[frame->type];
	size_t text = parts & TEXT ? strnlen(frame->text, sizeof(frame->text)) : 0;
	size_t length = number_size(parts) + text;
	uint32_t header[2] = { htobe32((uint32_t)frame->type),
			       htobe32((uint32_t)length) };
	uint8_t *to = buffer;

	if (size < COPY_HEADER + length)
		return -ENOSPC;
	if (frame->type == COPY_DATA)
		header[1] = htobe32(frame->length);
	memcpy(to, header, sizeof(header));
	to += sizeof(header);
	for (size_t i = 0; i < NUMBERS; i++)
		if (parts & numbers[i].part)
			to += put_number(to, frame, i);
	if (parts & DIGEST) {
		memcpy(to, frame->digest, COPY_DIGEST);
		to += COPY_DIGEST;
	}
	memcpy(to, frame->text, text);
	return (ssize_t)(COPY_HEADER + length);
}

ssize_t copy_frame_length(const void *header)
{
	uint32_t word[2];

	memcpy(word, header, sizeof(word));
	word[0] = be32toh(word[0]);
	word[1] = be32toh(word[1]);
	if (word[0] < COPY_OPEN || word[0] >= COPY_TYPES)
		return -EBADMSG;
	if (word[1] > (word[0] == COPY_DATA ? COPY_DATA_MAX : COPY_CONTROL_MAX))
		return -EBADMSG;
	return word[1];
}

static bool is_valid_frame(const struct copy_frame *frame)
{
	return !(frame->flags & ~COPY_FLAGS_ALL) && !(frame->mode & ~07777u) &&
	       frame->done < COPY_DONES && frame->error <= 4095;
}

int copy_frame_unpack(const void *buffer, size_t length, struct copy_frame *frame_out)
{
	const uint8_t *from = buffer;
	ssize_t told = length < COPY_HEADER ? -EBADMSG : copy_frame_length(buffer);
	unsigned parts;
	size_t fixed;
	uint32_t type;

	memset(frame_out, 0, sizeof(*frame_out));
	if (told < 0)
		return -EBADMSG;
	memcpy(&type, buffer, sizeof(type));
	frame_out->type = (enum copy_type)be32toh(type);
	if (frame_out->type == COPY_DATA) {
		frame_out->length = (uint32_t)told;
		return 0;
	}
	parts = parts_of[frame_out->type];
	fixed = number_size(parts);
	if ((size_t)told != length - COPY_HEADER || (size_t)told < fixed ||
	    (!(parts & TEXT) && (size_t)told != fixed) ||
	    (size_t)told - fixed >= sizeof(frame_out->text))
		return -EBADMSG;
	from += COPY_HEADER;
	for (size_t i = 0; i < NUMBERS; i++)
		if (parts & numbers[i].part)
			from += get_number(from, frame_out, i);
	if (parts & DIGEST) {
		memcpy(frame_out->digest, from, COPY_DIGEST);
		from += COPY_DIGEST;
	}
	memcpy(frame_out->text, from, (size_t)told - fixed);
	/* A text that contains a NUL would be read differently here and by the peer. */
	return is_valid_frame(frame_out) &&
			       strlen(frame_out->text) == (size_t)told - fixed
		       ? 0
		       : -EBADMSG;
}
