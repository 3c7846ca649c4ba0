/* SPDX-License-Identifier: MIT */
#include "perf_wire.h"

#include <errno.h>
#include <string.h>

#include "perf_error.h"

/*
 * One function walks over the members in both directions, so that they cannot differ: a
 * cursor either writes a member or fills it in.
 */
struct cursor {
	unsigned char *at, *end;
	bool writes;
	bool bad; /* too short, or an invalid value; the rest is skipped */
};

static bool has_bytes(struct cursor *cursor, size_t length)
{
	if ((size_t)(cursor->end - cursor->at) < length)
		cursor->bad = true;
	return !cursor->bad;
}

static uint64_t walk_number(struct cursor *cursor, uint64_t value, unsigned bytes)
{
	uint64_t read = 0;

	if (!has_bytes(cursor, bytes))
		return value;
	for (unsigned i = 0; i < bytes; i++, cursor->at++) {
		if (cursor->writes)
			*cursor->at = (unsigned char)(value >> 8 * (bytes - 1 - i));
		read = read << 8 | *cursor->at;
	}
	return read;
}

static void walk_u8(struct cursor *cursor, uint8_t *value)
{
	*value = (uint8_t)walk_number(cursor, *value, 1);
}

static void walk_u32(struct cursor *cursor, uint32_t *value)
{
	*value = (uint32_t)walk_number(cursor, *value, 4);
}

static void walk_u64(struct cursor *cursor, uint64_t *value)
{
	*value = walk_number(cursor, *value, 8);
}

static void yes_or_no(struct cursor *cursor, bool *value)
{
	uint64_t is = walk_number(cursor, *value, 1);

	cursor->bad |= is > 1;
	*value = is == 1;
}

static void walk_bytes(struct cursor *cursor, void *memory, size_t *length, size_t max)
{
	uint64_t is = walk_number(cursor, *length, 2);

	if (is > max)
		cursor->bad = true;
	if (!has_bytes(cursor, is))
		return;
	if (cursor->writes)
		memcpy(cursor->at, memory, is);
	else
		memcpy(memory, cursor->at, is);
	cursor->at += is;
	*length = is;
}

static bool is_printable(char letter)
{
	return letter >= ' ' && letter <= '~';
}

/* Text from outside is shown to users: printable ASCII only. */
static void walk_text(struct cursor *cursor, char *value)
{
	size_t length = cursor->writes ? strnlen(value, PERF_TEXT_MAX - 1) : 0;

	for (size_t i = 0; i < length; i++)
		if (!is_printable(value[i]))
			value[i] = '?';
	walk_bytes(cursor, value, &length, PERF_TEXT_MAX - 1);
	if (cursor->writes || cursor->bad)
		return;
	value[length] = 0;
	for (size_t i = 0; i < length; i++)
		cursor->bad |= !is_printable(value[i]);
}

static void walk_hello(struct cursor *cursor, struct perf_hello *hello)
{
	walk_u32(cursor, &hello->device_count);
	cursor->bad |= !hello->device_count || hello->device_count > SNT_DEVICES_MAX;
	walk_text(cursor, hello->version);
	walk_text(cursor, hello->host);
	walk_text(cursor, hello->kernel);
	walk_text(cursor, hello->cpu);
	walk_text(cursor, hello->devices);
}

/* Values are checked further by perf_case_check(). */
static void walk_case(struct cursor *cursor, struct perf_case *c)
{
	walk_u8(cursor, &c->kind);
	walk_u8(cursor, &c->op);
	walk_u8(cursor, &c->scheme);
	walk_u8(cursor, &c->balance);
	yes_or_no(cursor, &c->verify);
	yes_or_no(cursor, &c->events);
	yes_or_no(cursor, &c->bidirectional);
	walk_u8(cursor, &c->timeout);
	walk_u32(cursor, &c->lanes);
	walk_u32(cursor, &c->depth);
	walk_u32(cursor, &c->batch);
	walk_u32(cursor, &c->mtu);
	walk_u64(cursor, &c->size);
	walk_u64(cursor, &c->fragment);
	walk_u64(cursor, &c->seed);
}

static void walk_use(struct cursor *cursor, struct perf_use *use)
{
	walk_u64(cursor, &use->elapsed_ns);
	walk_u64(cursor, &use->cpu_ns);
	walk_u64(cursor, &use->wakeups);
	walk_u64(cursor, &use->messages);
	walk_u64(cursor, &use->checked_bytes);
	walk_u64(cursor, &use->wrong_bytes);
	walk_u64(cursor, &use->wrong_message);
	walk_u64(cursor, &use->wrong_offset);
	walk_u64(cursor, &use->sent);
	walk_u32(cursor, &use->paths);
	walk_u64(cursor, &use->loss.resends);
	walk_u64(cursor, &use->loss.probes);
	walk_u64(cursor, &use->loss.timeouts);
	walk_u64(cursor, &use->loss.duplicates);
	walk_u64(cursor, &use->loss.out_of_order);
	walk_u64(cursor, &use->loss.drops);
	walk_u32(cursor, &use->loss.buffer);
	walk_u32(cursor, &use->loss.buffer_wanted);
}

static void walk_limit(struct cursor *cursor, struct perf_limit *limit)
{
	walk_u64(cursor, &limit->messages);
	walk_u64(cursor, &limit->duration_ns);
	cursor->bad |= limit->duration_ns > PERF_DURATION_MAX_NS;
}

static void walk_message(struct cursor *cursor, struct perf_message *message)
{
	switch (message->type) {
	case PERF_HELLO:
		walk_hello(cursor, &message->hello);
		break;
	case PERF_CASE:
		walk_case(cursor, &message->c);
		break;
	case PERF_READY:
	case PERF_CONNECT:
		walk_bytes(cursor, message->address.card, &message->address.card_length,
			   PERF_CARD_MAX);
		walk_bytes(cursor, message->address.token,
			   &message->address.token_length, PERF_TOKEN_MAX);
		walk_bytes(cursor, message->address.offer,
			   &message->address.offer_length, PERF_OFFER_MAX);
		break;
	case PERF_RUN:
		walk_limit(cursor, &message->limit);
		break;
	case PERF_STOP:
		walk_u64(cursor, &message->messages);
		break;
	case PERF_RESULT:
		walk_use(cursor, &message->use);
		break;
	case PERF_FAILED:
		walk_text(cursor, message->text);
		break;
	default: /* the others have no body */
		break;
	}
}

size_t perf_encode(const struct perf_message *message, unsigned char *frame)
{
	struct perf_message copy = *message;
	struct cursor cursor = { .at = frame + PERF_HEADER,
				 .end = frame + PERF_HEADER + PERF_BODY_MAX,
				 .writes = true };
	struct cursor header = { .at = frame,
				 .end = frame + PERF_HEADER,
				 .writes = true };
	size_t length;

	walk_message(&cursor, &copy);
	length = (size_t)(cursor.at - frame);
	walk_number(&header, length - PERF_HEADER, 4);
	walk_number(&header, PERF_VERSION, 2);
	walk_number(&header, message->type, 2);
	return length;
}

int perf_decode_header(const unsigned char *header, uint16_t *type_out)
{
	unsigned char copy[PERF_HEADER];
	struct cursor cursor = { .at = copy, .end = copy + sizeof(copy) };
	uint64_t length, version;

	memcpy(copy, header, sizeof(copy));
	length = walk_number(&cursor, 0, 4);
	version = walk_number(&cursor, 0, 2);
	*type_out = (uint16_t)walk_number(&cursor, 0, 2);
	if (length > PERF_BODY_MAX || *type_out < PERF_HELLO || *type_out > PERF_FAILED)
		return perf_fail(EBADMSG, "the other end is not sennit perf");
	if (version != PERF_VERSION)
		return perf_fail(
			EPROTONOSUPPORT,
			"the other end has version %u of the protocol, this one version %u; "
			"install the same sennit on both",
			(unsigned)version, PERF_VERSION);
	return (int)length;
}

int perf_decode(uint16_t type, const unsigned char *body, size_t length,
		struct perf_message *message_out)
{
	/* Only read from: the cursor does not write. */
	struct cursor cursor = { .at = (unsigned char *)(uintptr_t)body };

	cursor.end = cursor.at + length;
	memset(message_out, 0, sizeof(*message_out));
	message_out->type = type;
	walk_message(&cursor, message_out);
	if (cursor.bad || cursor.at != cursor.end)
		return perf_fail(EBADMSG,
				 "the other end sent a malformed message of type %u",
				 type);
	return 0;
}
