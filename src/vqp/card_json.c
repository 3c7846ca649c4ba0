/* SPDX-License-Identifier: MIT */
/*
 * Cards as JSON. Members are named as the fields of struct snt_card; the counts
 * are the arrays' lengths:
 *
 *	{"version": 1, "generation": "0x00000000c0ffee01", "scheme": "spray",
 *	 "flags": ["tracked"], "qp_num": 7, "epoch": 0, ..., "data_lanes": 1,
 *	 "devices": [{"gid": "::ffff:10.0.0.1", "link": "ethernet",
 *		      "gid_type": "roce v2", "lid": 0}],
 *	 "lanes": [{"qp_num": 18, "psn": 4711, "device": 0}, ...]}
 *
 * Those of a mailbox are there with the flag "notify_length" only:
 *
 *	 "mailbox_addr": "0x00007f2a5c001000", "mailbox_slots": 256,
 *	 "devices": [{..., "mailbox_key": 4711}]
 *
 * Generation and address are strings because other languages read numbers as
 * doubles, which hold 53 bits.
 *
 * This file knows types and names, and that a number fits its field; what makes
 * sense in a field is snt__card_fault()'s matter.
 */
#include "vqp/card.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* Deeper than any card. The parser recurses, and may do so on a small stack. */
#define DEPTH_MAX 32

#define HEX_DIGITS 16

/* An unsigned field of any size. */
struct number {
	const char *name;
	size_t offset;
	size_t size;
};

#define NUMBER(type, field) #field, offsetof(type, field), sizeof(((type *)NULL)->field)

/* Separate, since it is read before all other members. */
static const struct number version_number = { NUMBER(struct snt_card, version) };

static const struct number card_numbers[] = {
	{ NUMBER(struct snt_card, qp_num) },
	{ NUMBER(struct snt_card, epoch) },
	{ NUMBER(struct snt_card, read_depth) },
	{ NUMBER(struct snt_card, mtu) },
	{ NUMBER(struct snt_card, lane_depth) },
	{ NUMBER(struct snt_card, recv_depth) },
	{ NUMBER(struct snt_card, window) },
	{ NUMBER(struct snt_card, fragment_size) },
	{ NUMBER(struct snt_card, data_lanes) },
};

static const struct number device_numbers[] = {
	{ NUMBER(struct snt_card_device, lid) },
};

static const struct number mailbox_numbers[] = {
	{ NUMBER(struct snt_card, mailbox_slots) },
};

static const struct number key_numbers[] = {
	{ NUMBER(struct snt_card_device, mailbox_key) },
};

static const struct number lane_numbers[] = {
	{ NUMBER(struct snt_card_lane, qp_num) },
	{ NUMBER(struct snt_card_lane, psn) },
	{ NUMBER(struct snt_card_lane, device) },
};

/* Words for the values of a field: `first` and those that follow it. */
struct words {
	const char *name;
	const char *expected;
	uint8_t first;
	uint8_t count;
	const char *word[3];
};

static const struct words scheme_words = {
	.name = "scheme",
	.expected = "\"spray\" or \"dqplb\"",
	.first = SNT_SCHEME_SPRAY,
	.count = 2,
	.word = { "spray", "dqplb" },
};

static const struct words link_words = {
	.name = "link",
	.expected = "\"ethernet\", \"infiniband\" or \"unknown\"",
	.first = SNT_LINK_UNKNOWN,
	.count = 3,
	.word = { "unknown", "infiniband", "ethernet" },
};

static const struct words gid_type_words = {
	.name = "gid_type",
	.expected = "\"ib\", \"roce v1\" or \"roce v2\"",
	.first = SNT_GID_IB,
	.count = 3,
	.word = { "ib", "roce v1", "roce v2" },
};

/* Bit i is word i. */
static const char *const flag_words[] = { "pass_through", "notify_length", "failover" };

_Static_assert(SNT_QP_PASS_THROUGH == 1 << 0, "the first word");
_Static_assert(SNT_QP_NOTIFY_LENGTH == 1 << 1, "the second word");
_Static_assert(SNT_QP_FAILOVER == 1 << 2, "the third word");

static bool json_has_mailbox(const struct snt_card *card)
{
	return card->flags & SNT_QP_NOTIFY_LENGTH;
}

static uint64_t load_number(const struct number *number, const void *base)
{
	const void *field = (const char *)base + number->offset;

	switch (number->size) {
	case sizeof(uint8_t):
		return *(const uint8_t *)field;
	case sizeof(uint16_t):
		return *(const uint16_t *)field;
	case sizeof(uint32_t):
		return *(const uint32_t *)field;
	default:
		return *(const uint64_t *)field;
	}
}

static void store_number(const struct number *number, void *base, uint64_t value)
{
	void *field = (char *)base + number->offset;

	switch (number->size) {
	case sizeof(uint8_t):
		*(uint8_t *)field = value;
		break;
	case sizeof(uint16_t):
		*(uint16_t *)field = value;
		break;
	case sizeof(uint32_t):
		*(uint32_t *)field = value;
		break;
	default:
		*(uint64_t *)field = value;
		break;
	}
}

/*
 * Writing. Every function takes a card without faults and returns 0, or -1 when
 * out of memory; jansson passes that on when it is given NULL for a value.
 */

static int write_numbers(json_t *object, const struct number *number, size_t count,
			 const void *base)
{
	int ret = 0;

	for (size_t i = 0; i < count; i++)
		ret |= json_object_set_new(object, number[i].name,
					   json_integer(load_number(&number[i], base)));
	return ret;
}

static int write_word(json_t *object, const struct words *words, uint8_t value)
{
	return json_object_set_new(object, words->name,
				   json_string(words->word[value - words->first]));
}

static int write_flags(json_t *root, const struct snt_card *card)
{
	json_t *array = json_array();
	int ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(flag_words); i++)
		if (card->flags & 1 << i)
			ret |= json_array_append_new(array, json_string(flag_words[i]));
	return ret | json_object_set_new(root, "flags", array);
}

static int write_hex(json_t *object, const char *name, uint64_t value)
{
	char text[2 + HEX_DIGITS + 1];

	snprintf(text, sizeof(text), "0x%0*" PRIx64, HEX_DIGITS, value);
	return json_object_set_new(object, name, json_string(text));
}

static int write_mailbox(json_t *root, const struct snt_card *card)
{
	if (!json_has_mailbox(card))
		return 0;
	return write_hex(root, "mailbox_addr", card->mailbox_addr) |
	       write_numbers(root, mailbox_numbers, ARRAY_SIZE(mailbox_numbers), card);
}

static json_t *device_to_json(const struct snt_card_device *device, bool with_key)
{
	json_t *object = json_object();
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, device->gid, gid, sizeof(gid));
	if (json_object_set_new(object, "gid", json_string(gid)) ||
	    write_word(object, &link_words, device->link) ||
	    write_word(object, &gid_type_words, device->gid_type) ||
	    write_numbers(object, device_numbers, ARRAY_SIZE(device_numbers), device) ||
	    write_numbers(object, key_numbers, with_key ? ARRAY_SIZE(key_numbers) : 0,
			  device)) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *lane_to_json(const struct snt_card_lane *lane)
{
	json_t *object = json_object();

	if (write_numbers(object, lane_numbers, ARRAY_SIZE(lane_numbers), lane)) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static int write_arrays(json_t *root, const struct snt_card *card)
{
	json_t *devices = json_array(), *lanes = json_array();
	int ret = 0;

	for (unsigned i = 0; i < card->device_count; i++)
		ret |= json_array_append_new(devices,
					     device_to_json(&card->device[i],
							    json_has_mailbox(card)));
	for (unsigned i = 0; i < card->lane_count; i++)
		ret |= json_array_append_new(lanes, lane_to_json(&card->lane[i]));
	ret |= json_object_set_new(root, "devices", devices);
	return ret | json_object_set_new(root, "lanes", lanes);
}

static json_t *card_to_json(const struct snt_card *card)
{
	json_t *root = json_object();

	if (write_numbers(root, &version_number, 1, card) ||
	    write_hex(root, "generation", card->generation) ||
	    write_word(root, &scheme_words, card->scheme) || write_flags(root, card) ||
	    write_numbers(root, card_numbers, ARRAY_SIZE(card_numbers), card) ||
	    write_mailbox(root, card) || write_arrays(root, card)) {
		json_decref(root);
		return NULL;
	}
	return root;
}

ssize_t snt_card_to_json(const struct snt_card *card, char *buffer, size_t size)
{
	const char *fault = snt__card_fault(card);
	size_t length = 0;
	json_t *root;

	if (fault)
		return snt__fail(EINVAL, "card cannot be written as JSON: %s", fault);
	root = card_to_json(card);
	if (root)
		length = json_dumpb(root, buffer, size, 0);
	json_decref(root);
	if (!length)
		return snt__fail(ENOMEM, "out of memory for a card as JSON");
	if (length >= size)
		return snt__fail(ENOSPC,
				 "this card needs %zu bytes as JSON with its NUL, not "
				 "%zu",
				 length + 1, size);
	buffer[length] = '\0';
	return length;
}

/*
 * Reading. `where` goes before a member's name in sentences: "" at the top, or
 * "lanes[3].".
 */

struct where {
	char text[32];
};

static struct where where_element(const char *array, size_t index, const char *dot)
{
	struct where where;

	snprintf(where.text, sizeof(where.text), "%s[%zu]%s", array, index, dot);
	return where;
}

/* A value from outside in a form that is safe in a sentence: short, and printable. */
struct sight {
	char text[32];
};

static struct sight sight_of(const json_t *value)
{
	struct sight sight = { "" };
	bool longer;

	switch (json_typeof(value)) {
	case JSON_STRING:
		longer = json_string_length(value) > 16;
		snprintf(sight.text, sizeof(sight.text), "\"%.16s%s\"",
			 json_string_value(value), longer ? "..." : "");
		for (char *at = sight.text; *at; at++)
			if (!isascii(*at) || !isprint(*at))
				*at = '?';
		break;
	case JSON_INTEGER:
		snprintf(sight.text, sizeof(sight.text), "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
		break;
	case JSON_REAL:
		/* Even 1.0, since some parsers take it for the integer 1 and some do
		 * not. */
		snprintf(sight.text, sizeof(sight.text), "a real number");
		break;
	case JSON_OBJECT:
		snprintf(sight.text, sizeof(sight.text), "an object");
		break;
	case JSON_ARRAY:
		snprintf(sight.text, sizeof(sight.text), "an array");
		break;
	case JSON_NULL:
		snprintf(sight.text, sizeof(sight.text), "null");
		break;
	default:
		snprintf(sight.text, sizeof(sight.text), "a boolean");
		break;
	}
	return sight;
}

/* Refuses a value that is not what it should be; NULL for one that is missing. */
static int refuse_json_value(const char *where, const char *name, const char *expected,
			     const json_t *value)
{
	if (!value)
		return snt__fail(EBADMSG, "JSON card refused: %s%s is missing", where,
				 name);
	return snt__fail(EBADMSG, "JSON card refused: %s%s must be %s, not %s", where,
			 name, expected, sight_of(value).text);
}

static int read_number(const json_t *object, const char *where,
		       const struct number *number, void *base)
{
	const json_t *value = json_object_get(object, number->name);
	const uint64_t max = UINT64_MAX >> (64 - 8 * number->size);
	json_int_t found;
	char expected[48];

	/* jansson itself refuses integers that do not fit a signed 64-bit type, so none
	 * is truncated here. */
	if (json_is_integer(value)) {
		found = json_integer_value(value);
		if (found >= 0 && (uint64_t)found <= max) {
			store_number(number, base, found);
			return 0;
		}
	}
	snprintf(expected, sizeof(expected), "an integer from 0 to %" PRIu64, max);
	return refuse_json_value(where, number->name, expected, value);
}

static int read_numbers(const json_t *object, const char *where,
			const struct number *number, size_t count, void *base)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < count; i++)
		ret = read_number(object, where, &number[i], base);
	return ret;
}

static int read_word(const json_t *object, const char *where, const struct words *words,
		     uint8_t *value_out)
{
	const json_t *value = json_object_get(object, words->name);
	const char *text = json_string_value(value);

	for (unsigned i = 0; text && i < words->count; i++) {
		if (!strcmp(text, words->word[i])) {
			*value_out = words->first + i;
			return 0;
		}
	}
	return refuse_json_value(where, words->name, words->expected, value);
}

static int read_flag(const json_t *value, size_t index, uint8_t *flags)
{
	const char *text = json_string_value(value);

	for (size_t i = 0; text && i < ARRAY_SIZE(flag_words); i++) {
		if (!strcmp(text, flag_words[i]) && !(*flags & 1 << i)) {
			*flags |= 1 << i;
			return 0;
		}
	}
	return refuse_json_value("", where_element("flags", index, "").text,
				 "a known flag that was not named before", value);
}

static int read_flags(const json_t *root, struct snt_card *card)
{
	const json_t *array = json_object_get(root, "flags");
	int ret = 0;

	if (!json_is_array(array))
		return refuse_json_value("", "flags", "an array of words", array);
	for (size_t i = 0; !ret && i < json_array_size(array); i++)
		ret = read_flag(json_array_get(array, i), i, &card->flags);
	return ret;
}

/* All digits are required: a shorter number was truncated on its way. */
static int read_hex(const json_t *object, const char *name, uint64_t *value_out)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const json_t *value = json_object_get(object, name);
	const char *text = json_string_value(value);

	if (!text || strncmp(text, "0x", 2) != 0 || strlen(text + 2) != HEX_DIGITS ||
	    strspn(text + 2, digits) != HEX_DIGITS)
		return refuse_json_value("", name, "a string of 0x and 16 hex digits",
					 value);
	*value_out = strtoull(text + 2, NULL, 16);
	return 0;
}

static int read_mailbox(const json_t *root, struct snt_card *card)
{
	int ret;

	if (!json_has_mailbox(card))
		return 0;
	ret = read_hex(root, "mailbox_addr", &card->mailbox_addr);
	return ret ? ret
		   : read_numbers(root, "", mailbox_numbers,
				  ARRAY_SIZE(mailbox_numbers), card);
}

static int read_device(const json_t *object, size_t index, bool with_key,
		       struct snt_card_device *device)
{
	const struct where where = where_element("devices", index, ".");
	const json_t *gid = json_object_get(object, "gid");
	const char *text = json_string_value(gid);
	int ret;

	if (!text || inet_pton(AF_INET6, text, device->gid) != 1)
		return refuse_json_value(where.text, "gid",
					 "an IPv6 address, such as ::ffff:10.0.0.1",
					 gid);
	ret = read_word(object, where.text, &link_words, &device->link);
	if (ret)
		return ret;
	ret = read_word(object, where.text, &gid_type_words, &device->gid_type);
	if (ret)
		return ret;
	ret = read_numbers(object, where.text, device_numbers,
			   ARRAY_SIZE(device_numbers), device);
	if (ret || !with_key)
		return ret;
	return read_numbers(object, where.text, key_numbers, ARRAY_SIZE(key_numbers),
			    device);
}

/* An array of 1 to max objects. */
static int read_array(const json_t *root, const char *name, size_t max,
		      const json_t **array_out, uint32_t *count_out)
{
	const json_t *array = json_object_get(root, name);
	size_t count = json_array_size(array);

	if (!json_is_array(array))
		return refuse_json_value("", name, "an array of objects", array);
	if (!count || count > max)
		return snt__fail(EBADMSG,
				 "JSON card refused: %s has %zu elements, not 1 to %zu",
				 name, count, max);
	for (size_t i = 0; i < count; i++) {
		const json_t *element = json_array_get(array, i);

		if (!json_is_object(element))
			return refuse_json_value("", where_element(name, i, "").text,
						 "an object", element);
	}
	*array_out = array;
	*count_out = count;
	return 0;
}

static int read_arrays(const json_t *root, struct snt_card *card)
{
	const json_t *devices = NULL, *lanes = NULL;
	int ret;

	ret = read_array(root, "devices", SNT_DEVICES_MAX, &devices,
			 &card->device_count);
	if (!ret)
		ret = read_array(root, "lanes", SNT_LANES_MAX, &lanes,
				 &card->lane_count);
	for (size_t i = 0; !ret && i < card->device_count; i++)
		ret = read_device(json_array_get(devices, i), i, json_has_mailbox(card),
				  &card->device[i]);
	for (size_t i = 0; !ret && i < card->lane_count; i++)
		ret = read_numbers(json_array_get(lanes, i),
				   where_element("lanes", i, ".").text, lane_numbers,
				   ARRAY_SIZE(lane_numbers), &card->lane[i]);
	return ret;
}

static int read_card(const json_t *root, struct snt_card *card)
{
	const char *fault;
	int ret;

	if (!json_is_object(root))
		return refuse_json_value("", "the text", "an object", root);
	ret = read_number(root, "", &version_number, card);
	if (ret)
		return ret;
	if (card->version != SNT_CARD_VERSION &&
	    card->version != SNT_CARD_VERSION_FAILOVER)
		return snt__fail(EPROTONOSUPPORT,
				 "JSON card has version %" PRIu32
				 "; this library reads %d and %d",
				 card->version, SNT_CARD_VERSION,
				 SNT_CARD_VERSION_FAILOVER);
	ret = read_hex(root, "generation", &card->generation);
	if (!ret)
		ret = read_word(root, "", &scheme_words, &card->scheme);
	if (!ret)
		ret = read_flags(root, card);
	if (!ret)
		ret = read_numbers(root, "", card_numbers, ARRAY_SIZE(card_numbers),
				   card);
	if (!ret)
		ret = read_mailbox(root, card);
	if (!ret)
		ret = read_arrays(root, card);
	if (ret)
		return ret;
	fault = snt__card_fault(card);
	return fault ? snt__fail(EBADMSG, "JSON card refused: %s", fault) : 0;
}

/* Only matches brackets: up to the first error, where the parser stops, both see the
 * same ones. */
static bool nests_too_deep(const char *text, size_t length)
{
	unsigned depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < length; i++) {
		if (text[i] == '"')
			quoted = !quoted;
		else if (quoted && text[i] == '\\')
			i++;
		else if (!quoted && (text[i] == '[' || text[i] == '{'))
			depth++;
		else if (!quoted && (text[i] == ']' || text[i] == '}') && depth)
			depth--;
		if (depth > DEPTH_MAX)
			return true;
	}
	return false;
}

/*
 * jansson does not report all failures to allocate: it loses letters of long strings,
 * or calls a string an invalid token. malloc() sets errno, which jansson resets when it
 * converts a number. So jansson gets the text byte by byte, and errno is looked at
 * before each of them: no number is converted between a lost letter and the next byte.
 */
struct source {
	const char *text;
	size_t length;
	size_t used;
	bool out_of_memory;
};

static size_t next_byte(void *buffer, size_t size, void *arg)
{
	struct source *source = arg;

	(void)size;
	source->out_of_memory |= errno == ENOMEM;
	if (source->out_of_memory)
		return (size_t)-1;
	if (source->used == source->length)
		return 0;
	*(char *)buffer = source->text[source->used++];
	return 1;
}

static json_t *load_json(struct source *source, json_error_t *error)
{
	int before = errno;
	json_t *root;

	errno = 0;
	root = json_load_callback(next_byte, source, JSON_REJECT_DUPLICATES, error);
	source->out_of_memory |=
		errno == ENOMEM ||
		(!root && (!error->text[0] ||
			   json_error_code(error) == json_error_out_of_memory));
	errno = before;
	return root;
}

/* jansson quotes the text near the error; that text is not printed. */
static int refuse_text(json_error_t *error)
{
	char *near = strstr(error->text, " near '");

	if (near)
		*near = '\0';
	return snt__fail(EBADMSG, "JSON card is malformed in line %d, column %d: %s",
			 error->line, error->column, error->text);
}

int snt_card_from_json(const char *text, size_t length, struct snt_card *card_out)
{
	struct source source = { .text = text, .length = length };
	struct snt_card card = { 0 };
	json_error_t error;
	json_t *root;
	int ret;

	if (!length)
		return snt__fail(EBADMSG, "JSON card is empty");
	if (length > SNT__CARD_JSON_MAX)
		return snt__fail(EBADMSG, "JSON card of %zu bytes is longer than %d",
				 length, SNT__CARD_JSON_MAX);
	if (nests_too_deep(text, length))
		return snt__fail(EBADMSG, "JSON card nests deeper than %d levels",
				 DEPTH_MAX);
	root = load_json(&source, &error);
	if (source.out_of_memory)
		ret = snt__fail(ENOMEM, "out of memory for a JSON card");
	else
		ret = root ? read_card(root, &card) : refuse_text(&error);
	json_decref(root);
	if (ret)
		return ret;
	*card_out = card;
	return 0;
}
