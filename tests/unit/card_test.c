/* SPDX-License-Identifier: MIT */
/* Cards as bytes and as JSON: what goes round, and that nothing else is let in. */
#include "lib/test.h"

#include <jansson.h>
#include <sennit/card.h>
#include <sennit/device.h>

#include "vqp/card.h"

static const uint8_t gid_ipv4[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };

static struct snt_card sample(unsigned device_count, unsigned lane_count)
{
	struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 0x0a0b0c,
		.generation = 0xfedcba9876543210,
		.epoch = 0x01020304,
		.scheme = SNT_SPRAY,
		.flags = SNT_QP_TRACKED,
		.read_depth = 16,
		.mtu = 4096,
		.lane_depth = 128,
		.recv_depth = 256,
		.fragment_size = 1 << 20,
		.device_count = device_count,
		.data_lanes = lane_count > 1 ? lane_count - 1 : 1,
		.lane_count = lane_count,
	};

	for (unsigned i = 0; i < device_count; i++) {
		memcpy(card.device[i].gid, gid_ipv4, sizeof(gid_ipv4));
		card.device[i].gid[15] += i;
		card.device[i].link = SNT_LINK_ETHERNET;
		card.device[i].gid_type = SNT_GID_ROCE_V2;
	}
	for (unsigned i = 0; i < lane_count; i++) {
		card.lane[i].qp_num = 0x123400 + i;
		card.lane[i].psn = 0xabcd00 + i;
		card.lane[i].device = i % device_count;
	}
	return card;
}

static struct snt_card sample_with_mailbox(unsigned device_count, unsigned lane_count)
{
	struct snt_card card = sample(device_count, lane_count);

	card.flags |= SNT_QP_NOTIFY_LENGTH;
	card.mailbox_addr = 0x00007f1234567890;
	card.mailbox_slots = 512;
	for (unsigned i = 0; i < device_count; i++)
		card.device[i].mailbox_key = 0xc0ffee00 + i;
	return card;
}

/* The most of everything, with what the sample has not. */
static struct snt_card largest(void)
{
	struct snt_card card = sample(SNT_DEVICES_MAX, SNT_LANES_MAX);

	card.qp_num = 0xffffff;
	card.generation = UINT64_MAX;
	card.epoch = UINT32_MAX;
	card.scheme = SNT_DQPLB;
	card.read_depth = 255;
	card.lane_depth = 65536;
	card.recv_depth = 65536;
	card.window = 1 << 23;
	card.fragment_size = UINT64_C(1) << 31;
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++) {
		memset(card.device[i].gid, 0xfe, sizeof(card.device[i].gid));
		card.device[i].lid = 0xffff;
		card.device[i].link = SNT_LINK_INFINIBAND;
		card.device[i].gid_type = SNT_GID_ROCE_V1;
	}
	for (unsigned i = 0; i < SNT_LANES_MAX; i++) {
		card.lane[i].qp_num = 0xffffff - i;
		card.lane[i].psn = 0xffffff;
	}
	return card;
}

/* The longest card, whose mailbox ends with the address space. */
static struct snt_card longest(void)
{
	struct snt_card card = largest();

	card.scheme = SNT_SPRAY;
	card.window = 0;
	card.flags |= SNT_QP_NOTIFY_LENGTH;
	card.mailbox_slots = 131072;
	card.mailbox_addr = UINT64_MAX - 131072 * 8 + 1;
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		card.device[i].mailbox_key = UINT32_MAX;
	return card;
}

static void assert_same(const struct snt_card *a, const struct snt_card *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->qp_num, b->qp_num);
	assert_true(a->generation == b->generation);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->scheme, b->scheme);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->read_depth, b->read_depth);
	assert_int_equal(a->mtu, b->mtu);
	assert_int_equal(a->lane_depth, b->lane_depth);
	assert_int_equal(a->recv_depth, b->recv_depth);
	assert_int_equal(a->window, b->window);
	assert_int_equal(a->fragment_size, b->fragment_size);
	assert_int_equal(a->device_count, b->device_count);
	assert_int_equal(a->data_lanes, b->data_lanes);
	assert_int_equal(a->lane_count, b->lane_count);
	assert_true(a->mailbox_addr == b->mailbox_addr);
	assert_int_equal(a->mailbox_slots, b->mailbox_slots);
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++) {
		assert_memory_equal(a->device[i].gid, b->device[i].gid, 16);
		assert_int_equal(a->device[i].lid, b->device[i].lid);
		assert_int_equal(a->device[i].link, b->device[i].link);
		assert_int_equal(a->device[i].gid_type, b->device[i].gid_type);
		assert_int_equal(a->device[i].mailbox_key, b->device[i].mailbox_key);
	}
	for (unsigned i = 0; i < SNT_LANES_MAX; i++) {
		assert_int_equal(a->lane[i].qp_num, b->lane[i].qp_num);
		assert_int_equal(a->lane[i].psn, b->lane[i].psn);
		assert_int_equal(a->lane[i].device, b->lane[i].device);
	}
}

/* Into garbage, so that a field which is not written is seen. */
static void assert_goes_round(const struct snt_card *card)
{
	static char text[SNT__CARD_JSON_MAX];
	uint8_t packed[SNT_CARD_PACKED_MAX];
	struct snt_card back;
	ssize_t size;

	size = snt_card_pack(card, packed, sizeof(packed));
	assert_success(size);
	memset(&back, 0xa5, sizeof(back));
	assert_success(snt_card_unpack(packed, size, &back));
	assert_same(card, &back);

	size = snt_card_to_json(card, text, sizeof(text));
	assert_success(size);
	assert_int_equal(size, strlen(text));
	memset(&back, 0xa5, sizeof(back));
	assert_success(snt_card_from_json(text, size, &back));
	assert_same(card, &back);
}

static void every_count_goes_round(void **state)
{
	(void)state;
	for (unsigned devices = 1; devices <= SNT_DEVICES_MAX; devices++) {
		struct snt_card card = sample(devices, SNT_LANES_MAX);

		assert_goes_round(&card);
		card = sample_with_mailbox(devices, SNT_LANES_MAX);
		assert_goes_round(&card);
	}
	for (unsigned lanes = 1; lanes <= SNT_LANES_MAX; lanes++) {
		struct snt_card card = sample(2, lanes);

		assert_goes_round(&card);
	}
}

static void every_extreme_goes_round(void **state)
{
	struct snt_card card = largest();

	(void)state;
	assert_goes_round(&card);
	card = longest();
	assert_goes_round(&card);
	card = sample_with_mailbox(1, 2);
	card.recv_depth = 1;
	card.mailbox_slots = 2;
	card.mailbox_addr = 0; /* some devices count from there */
	card.device[0].mailbox_key = 0;
	assert_goes_round(&card);

	card = sample(1, 1);
	card.qp_num = 1;
	card.generation = 1;
	card.epoch = 0;
	card.flags = 0;
	card.read_depth = 0;
	card.mtu = 256;
	card.lane_depth = 1;
	card.recv_depth = 1;
	card.scheme = SNT_DQPLB;
	card.window = 1;
	card.fragment_size = 256;
	card.lane[0].qp_num = 2;
	card.lane[0].psn = 0;
	assert_goes_round(&card);
	/* InfiniBand goes by LID; of an adopted port nothing may be known. */
	memset(card.device[0].gid, 0, sizeof(card.device[0].gid));
	card.device[0].link = SNT_LINK_INFINIBAND;
	card.device[0].gid_type = SNT_GID_IB;
	card.device[0].lid = 7;
	assert_goes_round(&card);
	card.device[0].link = SNT_LINK_UNKNOWN;
	assert_goes_round(&card);
}

/* The same number on two devices is two QPs. */
static void devices_number_their_qps_apart(void **state)
{
	struct snt_card card = sample(2, 2);
	uint8_t packed[SNT_CARD_PACKED_MAX];

	(void)state;
	card.lane[1].qp_num = card.lane[0].qp_num;
	assert_goes_round(&card);
	card.lane[1].device = card.lane[0].device;
	assert_error(snt_card_pack(&card, packed, sizeof(packed)), EINVAL,
		     "lane 1: qp_num 1192960 of device 0 is that of lane 0, too");
}

/* The layout is a promise to peers of other versions and byte orders. */
static void packed_bytes_are_fixed(void **state)
{
	static const char expected[] =
		"\x01\x02\x01\x10\x00\x0a\x0b\x0c" /* to the QP number */
		"\xfe\xdc\xba\x98\x76\x54\x32\x10" /* generation */
		"\x01\x02\x03\x04\x00\x00\x10\x00" /* epoch, MTU */
		"\x00\x00\x00\x80\x00\x00\x01\x00" /* depths */
		"\x00\x40\x00\x00\x01\x01\x02\x00" /* window, counts */
		"\x00\x00\x00\x00\x00\x10\x00\x00" /* fragment size */
		"\x00\x00\x00\x00\x00\x00\x00\x00" /* GID */
		"\x00\x00\xff\xff\x0a\x00\x00\x01"
		"\xab\xcd\x02\x02"		   /* LID, link, GID type */
		"\x12\x34\x00\xab\xcd\x00\x00\x00" /* QP number, PSN, device */
		"\x12\x34\x01\xab\xcd\x01\x00\x00";
	struct snt_card card = sample(1, 2);
	uint8_t packed[SNT_CARD_PACKED_MAX];

	(void)state;
	card.scheme = SNT_DQPLB;
	card.window = 1 << 22;
	card.device[0].lid = 0xabcd;
	assert_int_equal(snt_card_pack(&card, packed, sizeof(packed)),
			 sizeof(expected) - 1);
	assert_memory_equal(packed, expected, sizeof(expected) - 1);
}

/* It follows all that a card without one has. */
static void a_packed_mailbox_is_fixed(void **state)
{
	static const char expected[] = "\x00\x00\x7f\x12\x34\x56\x78\x90"  /* address */
				       "\x00\x00\x02\x00"		   /* slots */
				       "\xc0\xff\xee\x00\xc0\xff\xee\x01"; /* keys */
	struct snt_card plain = sample(2, 3), card = sample_with_mailbox(2, 3);
	uint8_t packed[SNT_CARD_PACKED_MAX], before[SNT_CARD_PACKED_MAX];
	ssize_t size = snt_card_pack(&plain, before, sizeof(before));

	(void)state;
	assert_success(size);
	assert_int_equal(snt_card_pack(&card, packed, sizeof(packed)),
			 size + sizeof(expected) - 1);
	assert_memory_equal(packed + size, expected, sizeof(expected) - 1);
	assert_int_equal(packed[2], SNT_QP_TRACKED | SNT_QP_NOTIFY_LENGTH);
	packed[2] = before[2];
	assert_memory_equal(packed, before, size);
}

static void a_json_mailbox_is_fixed(void **state)
{
	static const char expected[] =
		"{\"version\": 1, \"generation\": \"0xfedcba9876543210\", "
		"\"scheme\": \"spray\", \"flags\": [\"tracked\", "
		"\"notify_length\"], \"qp_num\": 658188, "
		"\"epoch\": 16909060, \"read_depth\": 16, \"mtu\": 4096, "
		"\"lane_depth\": 128, \"recv_depth\": 256, \"window\": 0, "
		"\"fragment_size\": 1048576, \"data_lanes\": 1, "
		"\"mailbox_addr\": \"0x00007f1234567890\", \"mailbox_slots\": 512, "
		"\"devices\": "
		"[{\"gid\": \"::ffff:10.0.0.1\", \"link\": \"ethernet\", "
		"\"gid_type\": \"roce v2\", \"lid\": 0, "
		"\"mailbox_key\": 3237998080}], \"lanes\": [{\"qp_num\": "
		"1192960, \"psn\": 11259136, \"device\": 0}, {\"qp_num\": "
		"1192961, \"psn\": 11259137, \"device\": 0}]}";
	struct snt_card card = sample_with_mailbox(1, 2);
	char text[sizeof(expected)];

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	assert_string_equal(text, expected);
}

static void json_text_is_fixed(void **state)
{
	static const char expected[] =
		"{\"version\": 1, \"generation\": \"0xfedcba9876543210\", "
		"\"scheme\": \"spray\", \"flags\": [\"tracked\"], \"qp_num\": 658188, "
		"\"epoch\": 16909060, \"read_depth\": 16, \"mtu\": 4096, "
		"\"lane_depth\": 128, \"recv_depth\": 256, \"window\": 0, "
		"\"fragment_size\": 1048576, \"data_lanes\": 1, \"devices\": "
		"[{\"gid\": \"::ffff:10.0.0.1\", \"link\": \"ethernet\", "
		"\"gid_type\": \"roce v2\", \"lid\": 0}], \"lanes\": [{\"qp_num\": "
		"1192960, \"psn\": 11259136, \"device\": 0}]}";
	struct snt_card card = sample(1, 1);
	char text[sizeof(expected)];

	(void)state;
	assert_int_equal(snt_card_to_json(&card, text, sizeof(text)),
			 sizeof(expected) - 1);
	assert_string_equal(text, expected);
	assert_error(snt_card_to_json(&card, text, sizeof(text) - 1), ENOSPC,
		     "needs 410 bytes as JSON with its NUL, not 409");
	assert_error(snt_card_to_json(&card, NULL, 0), ENOSPC, "not 0");
}

/* What src/vqp/card.h says of its limit. */
static void the_longest_json_is_far_from_its_limit(void **state)
{
	struct snt_card card = longest();
	static char text[SNT__CARD_JSON_MAX];

	(void)state;
	assert_in_range(snt_card_to_json(&card, text, sizeof(text)), 1,
			SNT__CARD_JSON_MAX / 3);
}

/* An exact copy, so that reading past it is seen. */
static int unpack_copy(const uint8_t *packed, size_t size, struct snt_card *card_out)
{
	uint8_t *copy = malloc(size ? size : 1);
	int ret;

	assert_non_null(copy);
	if (size)
		memcpy(copy, packed, size);
	ret = snt_card_unpack(copy, size, card_out);
	free(copy);
	return ret;
}

static void wrong_sizes_are_refused(void **state)
{
	struct snt_card card = sample(3, 5), back = { .qp_num = 99 };
	uint8_t packed[SNT_CARD_PACKED_MAX + 8] = { 0 };
	ssize_t size = snt_card_pack(&card, packed, sizeof(packed));

	(void)state;
	assert_int_equal(size, 48 + 3 * 20 + 5 * 8);
	for (size_t cut = 0; cut <= sizeof(packed); cut++) {
		if (cut == (size_t)size)
			continue;
		assert_error(unpack_copy(packed, cut, &back), EBADMSG, "packed card");
		assert_int_equal(back.qp_num, 99);
	}
	assert_success(unpack_copy(packed, size, &back));
	assert_error(snt_card_unpack(NULL, 0, &back), EBADMSG, "is empty");
	assert_error(unpack_copy(packed, 47, &back), EBADMSG, "cut off after 47 bytes");
	assert_error(unpack_copy(packed, 149, &back), EBADMSG,
		     "with 3 devices and 5 lanes has 149 bytes, not 148");
	assert_error(snt_card_pack(&card, packed, size - 1), ENOSPC,
		     "needs 148 bytes when packed, not 147");
}

static void wrong_sizes_with_a_mailbox_are_refused(void **state)
{
	struct snt_card card = sample_with_mailbox(3, 5), back = { .qp_num = 99 };
	uint8_t packed[SNT_CARD_PACKED_MAX + 8] = { 0 };
	ssize_t size = snt_card_pack(&card, packed, sizeof(packed));

	(void)state;
	assert_int_equal(size, 48 + 3 * 20 + 5 * 8 + 12 + 3 * 4);
	for (size_t cut = 0; cut <= sizeof(packed); cut++) {
		if (cut == (size_t)size)
			continue;
		assert_error(unpack_copy(packed, cut, &back), EBADMSG, "packed card");
		assert_int_equal(back.qp_num, 99);
	}
	assert_error(unpack_copy(packed, 148, &back), EBADMSG,
		     "and a mailbox has 148 bytes, not 172");
	packed[2] &= ~SNT_QP_NOTIFY_LENGTH;
	assert_error(unpack_copy(packed, size, &back), EBADMSG,
		     "3 devices and 5 lanes has 172 bytes, not 148");
}

/* Whatever becomes of the bytes, two cards never look the same to one of us. */
static void every_flipped_bit_is_refused_or_kept(void **state)
{
	struct snt_card card[] = { sample(2, 3), largest(), sample_with_mailbox(2, 3) },
			back;
	uint8_t packed[SNT_CARD_PACKED_MAX], again[SNT_CARD_PACKED_MAX];
	unsigned refused = 0, kept = 0;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(card); i++) {
		ssize_t size = snt_card_pack(&card[i], packed, sizeof(packed));

		assert_success(size);
		for (ssize_t bit = 0; bit < 8 * size; bit++) {
			packed[bit / 8] ^= 1 << bit % 8;
			if (unpack_copy(packed, size, &back)) {
				refused++;
			} else {
				kept++;
				assert_int_equal(snt_card_pack(&back, again,
							       sizeof(again)),
						 size);
				assert_memory_equal(again, packed, size);
			}
			packed[bit / 8] ^= 1 << bit % 8;
		}
	}
	assert_true(refused && kept);
}

static void unpack_refuses(size_t byte, uint8_t value, int err, const char *phrase)
{
	struct snt_card card = sample(2, 2), back = { .qp_num = 99 };
	uint8_t packed[SNT_CARD_PACKED_MAX];
	ssize_t size = snt_card_pack(&card, packed, sizeof(packed));

	packed[byte] = value;
	assert_error(unpack_copy(packed, size, &back), err, phrase);
	assert_int_equal(back.qp_num, 99);
}

static void malformed_bytes_are_refused(void **state)
{
	(void)state;
	unpack_refuses(0, 0, EPROTONOSUPPORT, "version 0; this library reads 1");
	unpack_refuses(0, 2, EPROTONOSUPPORT, "version 2");
	unpack_refuses(1, 0, EBADMSG, "packed card refused: scheme is 0");
	unpack_refuses(2, 0x81, EBADMSG, "flags 0x81");
	unpack_refuses(4, 1, EBADMSG, "qp_num is");
	unpack_refuses(36, 0, EBADMSG, "device_count is 0, not 1 to 32");
	unpack_refuses(36, 255, EBADMSG, "device_count is 255");
	unpack_refuses(36, 1, EBADMSG, "has 104 bytes, not 84");
	unpack_refuses(37, 0, EBADMSG, "data_lanes is 0, not 1 to 2");
	unpack_refuses(37, 3, EBADMSG, "data_lanes is 3");
	unpack_refuses(38, 0, EBADMSG, "lane_count is 0, not 1 to 160");
	unpack_refuses(38, 255, EBADMSG, "lane_count is 255");
	unpack_refuses(39, 1, EBADMSG, "a reserved byte is set");
	unpack_refuses(103, 1, EBADMSG, "a reserved byte is set");
	unpack_refuses(102, 2, EBADMSG, "lane 1: device is 2, but there are 2");
	unpack_refuses(66, 3, EBADMSG, "device 0: link is 3");
	unpack_refuses(87, 3, EBADMSG, "device 1: gid_type is 3");
}

/* Every function that takes a card refuses this one, with this phrase. */
static void card_refused(const struct snt_card *card, const char *phrase)
{
	static char text[SNT__CARD_JSON_MAX];
	uint8_t packed[SNT_CARD_PACKED_MAX];

	assert_non_null(snt__card_fault(card));
	assert_non_null(strstr(snt__card_fault(card), phrase));
	assert_error(snt_card_pack(card, packed, sizeof(packed)), EINVAL, phrase);
	assert_error(snt_card_to_json(card, text, sizeof(text)), EINVAL, phrase);
}

#define REFUSED(field, value, phrase)                \
	do {                                         \
		struct snt_card card = sample(2, 3); \
                                                     \
		card.field = value;                  \
		card_refused(&card, phrase);         \
	} while (0)

static void fields_out_of_range_are_refused(void **state)
{
	(void)state;
	REFUSED(version, 0, "version is 0, not 1");
	REFUSED(version, 257, "version is 257, not 1");
	REFUSED(qp_num, 0, "qp_num is 0");
	REFUSED(qp_num, 0x1000000, "qp_num is 16777216, not 1 to 16777215");
	REFUSED(generation, 0, "generation");
	REFUSED(scheme, SNT_SCHEME_DEFAULT, "scheme is 0");
	REFUSED(scheme, 3, "scheme is 3");
	REFUSED(flags, 4, "flags 0x4");
	REFUSED(flags, SNT_QP_NOTIFY_LENGTH, "mailbox_slots is 0, not 257 to 131072");
	REFUSED(mailbox_slots, 512, "there is a mailbox, but no SNT_QP_NOTIFY_LENGTH");
	REFUSED(mailbox_addr, 8, "there is a mailbox, but no SNT_QP_NOTIFY_LENGTH");
	REFUSED(mtu, 0, "mtu is 0");
	REFUSED(mtu, 128, "mtu is 128, not 256 to 4096");
	REFUSED(mtu, 1500, "mtu is 1500, which is no power of two");
	REFUSED(mtu, 8192, "mtu is 8192");
	REFUSED(lane_depth, 0, "lane_depth is 0, not 1 to 65536");
	REFUSED(lane_depth, 65537, "lane_depth is 65537");
	REFUSED(recv_depth, 0, "recv_depth is 0");
	REFUSED(recv_depth, UINT32_MAX, "recv_depth is 4294967295");
	REFUSED(window, 1, "window is 1, but SPRAY has none");
	REFUSED(fragment_size, 0, "fragment_size is 0");
	REFUSED(fragment_size, 192, "fragment_size is 192, not 256 to 2147483648");
	REFUSED(fragment_size, 257, "fragment_size is 257, no multiple of 64");
	REFUSED(fragment_size, (UINT64_C(1) << 31) + 64, "fragment_size is 2147483712");
	REFUSED(fragment_size, (UINT64_C(1) << 32) + 256,
		"fragment_size is 4294967552");
}

#define MAILBOX_REFUSED(field, value, phrase)                     \
	do {                                                      \
		struct snt_card card = sample_with_mailbox(2, 3); \
                                                                  \
		card.field = value;                               \
		card_refused(&card, phrase);                      \
	} while (0)

static void mailboxes_out_of_range_are_refused(void **state)
{
	(void)state;
	MAILBOX_REFUSED(mailbox_slots, 256, "mailbox_slots is 256, not 257 to 131072");
	MAILBOX_REFUSED(recv_depth, 512, "mailbox_slots is 512, not 513 to 131072");
	MAILBOX_REFUSED(mailbox_slots, 511,
			"mailbox_slots is 511, which is no power of two");
	MAILBOX_REFUSED(mailbox_slots, 262144, "mailbox_slots is 262144");
	MAILBOX_REFUSED(mailbox_slots, UINT32_MAX, "mailbox_slots is 4294967295");
	MAILBOX_REFUSED(mailbox_addr, 0x1004,
			"mailbox_addr is 0x1004, no multiple of 8");
	MAILBOX_REFUSED(mailbox_addr, UINT64_MAX - 512 * 8 + 1 + 8,
			"too near to the end for 512 slots");
	MAILBOX_REFUSED(mailbox_addr, UINT64_MAX - 7, "too near to the end");
	MAILBOX_REFUSED(data_lanes, 3, "there is a mailbox, but no notify lane");
}

static void a_mailbox_is_for_spray(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 3);

	(void)state;
	card.scheme = SNT_DQPLB;
	card.window = 1024;
	card_refused(&card, "there is a mailbox, but no notify lane");
}

static void windows_out_of_range_are_refused(void **state)
{
	static const uint32_t window[] = { 0, 3, (1 << 23) - 1, (1 << 23) + 1,
					   1 << 24 };
	struct snt_card card = sample(1, 1);

	(void)state;
	card.scheme = SNT_DQPLB;
	for (unsigned i = 0; i < ARRAY_SIZE(window); i++) {
		card.window = window[i];
		card_refused(&card, "window is");
	}
}

static void counts_and_elements_out_of_range_are_refused(void **state)
{
	(void)state;
	REFUSED(device_count, 0, "device_count is 0");
	REFUSED(device_count, SNT_DEVICES_MAX + 1, "device_count is 33");
	REFUSED(device_count, UINT32_MAX, "device_count is 4294967295");
	REFUSED(device_count, 1, "lane 1: device is 1, but there are 1");
	REFUSED(lane_count, 0, "lane_count is 0");
	REFUSED(lane_count, SNT_LANES_MAX + 1, "lane_count is 161");
	REFUSED(lane_count, UINT32_MAX, "lane_count is 4294967295");
	REFUSED(lane_count, 4, "lane 3: qp_num is 0, not 2 to 16777215");
	REFUSED(data_lanes, 0, "data_lanes is 0, not 1 to 3");
	REFUSED(data_lanes, 4, "data_lanes is 4");
	REFUSED(device[1].link, 3, "device 1: link is 3");
	REFUSED(device[0].gid_type, 3, "device 0: gid_type is 3");
	REFUSED(lane[2].qp_num, 1, "lane 2: qp_num is 1");
	REFUSED(lane[0].qp_num, 0x1000000, "lane 0: qp_num is 16777216");
	REFUSED(lane[1].psn, 0x1000000, "lane 1: psn is 16777216, not 0 to 16777215");
	REFUSED(lane[1].device, 2, "lane 1: device is 2, but there are 2");
	REFUSED(lane[2].qp_num, 0x123400, "lane 2: qp_num 1192960 of device 0 is that");
}

static void ethernet_needs_a_gid(void **state)
{
	struct snt_card card = sample(2, 2);

	(void)state;
	memset(card.device[1].gid, 0, sizeof(card.device[1].gid));
	card_refused(&card, "device 1: gid is zero");
	card.device[1].gid[15] = 1;
	assert_null(snt__card_fault(&card));
}

/* An exact copy without a NUL, as text comes off a wire. */
static int read_copy(const char *text, size_t length, struct snt_card *card_out)
{
	char *copy = malloc(length ? length : 1);
	int ret;

	assert_non_null(copy);
	memcpy(copy, text, length);
	ret = snt_card_from_json(copy, length, card_out);
	free(copy);
	return ret;
}

/* The sample's text with one phrase, which must occur, replaced by another. */
static int read_edited(const char *old, const char *new, struct snt_card *card_out)
{
	struct snt_card card = sample(2, 2);
	char text[2048], edited[sizeof(text) + 1024];
	char *at;

	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	at = strstr(text, old);
	assert_non_null(at);
	*at = '\0';
	snprintf(edited, sizeof(edited), "%s%s%s", text, new, at + strlen(old));
	return read_copy(edited, strlen(edited), card_out);
}

static void edited_refuses(const char *old, const char *new, const char *phrase)
{
	struct snt_card back = { .qp_num = 99 };

	assert_error(read_edited(old, new, &back), EBADMSG, phrase);
	assert_int_equal(back.qp_num, 99);
}

/* Reads the whole again with one member replaced, or left out for NULL. */
static void member_refused(json_t *root, json_t *object, const char *name,
			   const char *value)
{
	json_t *before = json_incref(json_object_get(object, name));
	json_t *now = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
	struct snt_card back;
	char *text;

	if (now)
		assert_int_equal(json_object_set_new(object, name, now), 0);
	else
		assert_int_equal(json_object_del(object, name), 0);
	text = json_dumps(root, 0);
	assert_non_null(text);
	assert_error(read_copy(text, strlen(text), &back), EBADMSG, name);
	if (!value)
		assert_non_null(strstr(snt_err_text(), "is missing"));
	free(text);
	json_object_set_new(object, name, before);
}

static void members_refused(json_t *root, json_t *object)
{
	static const char *const wrong[] = {
		NULL,	 "null",  "true",    "{}",    "[[]]",  "[null]",    "[{}]",
		"[1]",	 "-1",	  "1.0",     "0.5",   "1e99",  "\"\"",	    "\"0\"",
		"\"1\"", "\"x\"", "[\"x\"]", "-1e99", "false", "\"12abc\"", "1e-9",
	};
	const char *name[32];
	unsigned count = 0;
	void *iter;

	for (iter = json_object_iter(object); iter;
	     iter = json_object_iter_next(object, iter)) {
		assert_true(count < ARRAY_SIZE(name));
		name[count++] = json_object_iter_key(iter);
	}
	for (unsigned i = 0; i < count; i++) {
		/* Taking a member out frees its name. */
		char *copy = strdup(name[i]);

		assert_non_null(copy);
		for (unsigned j = 0; j < ARRAY_SIZE(wrong); j++)
			member_refused(root, object, copy, wrong[j]);
		free(copy);
	}
}

static void every_member_is_needed_and_typed(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 2);
	char text[2048];
	json_t *root;

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	root = json_loads(text, 0, NULL);
	assert_non_null(root);
	members_refused(root, root);
	members_refused(root, json_array_get(json_object_get(root, "devices"), 1));
	members_refused(root, json_array_get(json_object_get(root, "lanes"), 1));
	json_decref(root);
}

/* Once a list with a number among its strings was read as if it were a string. */
static void h24_non_string_element_is_refused(void **state)
{
	(void)state;
	edited_refuses("[\"tracked\"]", "[7]", "flags[0] must be a known flag");
	edited_refuses("[\"tracked\"]", "[\"tracked\", null]", "flags[1]");
	edited_refuses("[\"tracked\"]", "[\"tracked\", \"tracked\"]",
		       "not \"tracked\"");
	edited_refuses("[\"tracked\"]", "[[\"tracked\"]]", "not an array");
	edited_refuses("[\"tracked\"]", "\"tracked\"",
		       "flags must be an array of words, not \"tracked\"");
	edited_refuses("\"devices\": [", "\"devices\": [3, ",
		       "devices[0] must be an object, not 3");
	edited_refuses("\"lanes\": [", "\"lanes\": [\"x\", ",
		       "lanes[0] must be an object, not \"x\"");
	edited_refuses("\"::ffff:10.0.0.2\"", "10", "devices[1].gid must be");
}

/* Once "12abc" was 12, and 2^32 + 1 was 1. */
static void h25_numbers_are_not_truncated(void **state)
{
	static const char *const mtu[] = {
		"\"12abc\"", "\"4096\"", "4096.0",     "4.096e3",
		"1e99",	     "-4096",	 "4294971392", "18446744073709555712",
	};
	struct snt_card back;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(mtu); i++) {
		char member[64];

		snprintf(member, sizeof(member), "\"mtu\": %s", mtu[i]);
		edited_refuses("\"mtu\": 4096", member, "");
	}
	edited_refuses(
		"\"version\": 1", "\"version\": 4294967297",
		"version must be an integer from 0 to 4294967295, not 4294967297");
	edited_refuses("\"psn\": 11259137", "\"psn\": 4294967297",
		       "lanes[1].psn must be an integer from 0 to 4294967295");
	edited_refuses(
		"\"psn\": 11259137", "\"psn\": \"12abc\"",
		"lanes[1].psn must be an integer from 0 to 4294967295, not \"12abc\"");
	edited_refuses("\"device\": 1", "\"device\": 257",
		       "lanes[1].device must be an integer from 0 to 255, not 257");
	edited_refuses("\"read_depth\": 16", "\"read_depth\": 272", "read_depth");
	edited_refuses("\"fragment_size\": 1", "\"fragment_size\": -1",
		       "fragment_size must be an integer");
	edited_refuses("\"lid\": 0", "\"lid\": 65536", "devices[0].lid");
	edited_refuses("0xfedcba9876543210", "12abc", "generation must be a string of");
	edited_refuses("0xfedcba9876543210", "0xfedcba987654321", "generation");
	edited_refuses("0xfedcba9876543210", "0x1fedcba9876543210", "generation");
	edited_refuses("0xfedcba9876543210", "0xfedcba987654321g", "generation");
	edited_refuses("0xfedcba9876543210", "0xfedcba9876543210g", "generation");
	edited_refuses("0xfedcba9876543210", "0x-edcba9876543210", "generation");
	edited_refuses("0xfedcba9876543210", "0x0000000000000000", "generation is 0");
	assert_success(read_edited("0xfedcba9876543210", "0xFEDCBA9876543210", &back));
	assert_true(back.generation == 0xfedcba9876543210);
}

/* Members of a mailbox are not looked at where there is none. */
static void a_mailbox_needs_its_flag(void **state)
{
	struct snt_card card = sample(2, 2), back;

	(void)state;
	edited_refuses("[\"tracked\"]", "[\"notify_length\"]",
		       "mailbox_addr is missing");
	assert_success(read_edited("\"epoch\"",
				   "\"mailbox_addr\": 7, \"mailbox_slots\": [], "
				   "\"epoch\"",
				   &back));
	assert_same(&card, &back);
}

static void json_out_of_range_is_refused(void **state)
{
	(void)state;
	edited_refuses("\"psn\": 11259137", "\"psn\": 16777216", "lane 1: psn is");
	edited_refuses("\"device\": 1", "\"device\": 2", "lane 1: device is 2");
	edited_refuses("\"data_lanes\": 1", "\"data_lanes\": 3", "data_lanes is 3");
	edited_refuses("{\"qp_num\": 1192961, \"psn\": 11259137, \"device\": 1}",
		       "{\"qp_num\": 1192960, \"psn\": 1, \"device\": 0}",
		       "lane 1: qp_num 1192960 of device 0 is that of lane 0, too");
	edited_refuses("\"spray\"", "\"default\"",
		       "scheme must be \"spray\" or \"dqplb\", not \"default\"");
	edited_refuses("\"spray\"", "\"dqplb\"", "window is 0, not 1 to 8388608");
	edited_refuses("\"tracked\"", "\"trackless\"", "flags[0]");
	edited_refuses("\"ethernet\"", "\"Ethernet\"", "devices[0].link must be");
	edited_refuses("\"roce v2\"", "\"roce v3\"", "devices[0].gid_type must be");
	edited_refuses("::ffff:10.0.0.1", "::", "device 0: gid is zero");
	edited_refuses("::ffff:10.0.0.1", "10.0.0.1", "devices[0].gid must be");
	edited_refuses("::ffff:10.0.0.1", "fe80::1%eth0", "devices[0].gid must be");
	edited_refuses("::ffff:10.0.0.1", "::ffff:10.0.0.1 ", "devices[0].gid must be");
	edited_refuses("[{\"qp_num\"", "[], \"more\": [{\"qp_num\"",
		       "lanes has 0 elements, not 1 to 160");
}

static void other_versions_are_told_apart(void **state)
{
	static const char later[] = "{\"version\": 2, \"strands\": []}";
	struct snt_card back;

	(void)state;
	assert_error(read_copy(later, strlen(later), &back), EPROTONOSUPPORT,
		     "version 2; this library reads 1");
	assert_error(read_edited("\"version\": 1", "\"version\": 0", &back),
		     EPROTONOSUPPORT, "version 0");
}

/* So that versions can grow; and people indent. */
static void unknown_members_are_ignored(void **state)
{
	struct snt_card card = sample(2, 2), back;
	json_t *root;
	char text[2048];
	char *indented;

	(void)state;
	assert_success(read_edited("{\"version\"",
				   "{\"x\": [{\"y\": [1.5, null]}], \"version\"",
				   &back));
	assert_same(&card, &back);
	assert_success(
		read_edited("{\"gid\"", "{\"name\": \"mlx5_0\", \"gid\"", &back));
	assert_same(&card, &back);
	assert_success(read_edited("\"psn\"", "\"rate\": 1e9, \"psn\"", &back));
	assert_same(&card, &back);

	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	root = json_loads(text, 0, NULL);
	indented = json_dumps(root, JSON_INDENT(8) | JSON_SORT_KEYS);
	json_decref(root);
	assert_non_null(indented);
	assert_success(read_copy(indented, strlen(indented), &back));
	assert_same(&card, &back);
	free(indented);
}

static void malformed_json_is_refused(void **state)
{
	struct snt_card card = sample(1, 1), back = { .qp_num = 99 };
	char text[1024] = "";
	ssize_t length = snt_card_to_json(&card, text, sizeof(text));

	(void)state;
	assert_error(snt_card_from_json(NULL, 0, &back), EBADMSG, "is empty");
	for (ssize_t cut = 0; cut < length; cut++)
		assert_error(read_copy(text, cut, &back), EBADMSG, "JSON card is");
	assert_int_equal(back.qp_num, 99);
	assert_success(read_copy(text, length, &back));
	/* The NUL is not part of the text. */
	assert_error(read_copy(text, length + 1, &back), EBADMSG,
		     "malformed in line 1");
	text[length] = '}';
	assert_error(read_copy(text, length + 1, &back), EBADMSG,
		     "end of file expected");
	text[length] = '\n';
	assert_success(read_copy(text, length + 1, &back));
	text[20] = '\0';
	assert_error(read_copy(text, length, &back), EBADMSG, "line 1, column");
	assert_error(read_copy("[]", 2, &back), EBADMSG,
		     "must be an object, not an array");
	assert_error(read_copy("7", 1, &back), EBADMSG, "malformed");
	assert_error(read_copy("{}", 2, &back), EBADMSG, "version is missing");
	edited_refuses("\"spray\"", "\"spray\\u0000\"", "malformed");
	edited_refuses("\"spray\"", "\"spr\xff\"", "malformed");
	edited_refuses("\"epoch\"", "\"mtu\": 4096, \"epoch\"", "duplicate object key");
	edited_refuses("\"mtu\": 4096", "\"mtu\": 1e999", "malformed");
}

/* What a peer wrote may end up in a log. */
static void sentences_show_foreign_text_short_and_printable(void **state)
{
	(void)state;
	edited_refuses("\"spray\"", "\"\\u001b[2J\\n\xc3\xa9\"", "not \"?[2J???\"");
	edited_refuses("\"spray\"", "\"a string that is much longer\"",
		       "not \"a string that is...\"");
	edited_refuses("\"spray\"", "hello", "malformed");
	assert_null(strstr(snt_err_text(), "hello"));
	edited_refuses("\"spray\"", "\"\033[2J\"", "control character 0x1b");
	assert_null(strstr(snt_err_text(), "\033"));
}

static void depth_and_length_are_limited(void **state)
{
	static char deep[SNT__CARD_JSON_MAX + 1];
	char brackets[128];
	struct snt_card back;

	(void)state;
	memset(deep, '[', sizeof(deep));
	assert_error(read_copy(deep, sizeof(deep) - 1, &back), EBADMSG,
		     "deeper than 32 levels");
	assert_error(read_copy(deep, sizeof(deep), &back), EBADMSG,
		     "65537 bytes is longer than 65536");
	/* Inside of the card, at the limit and past it; a string has no depth. */
	snprintf(brackets, sizeof(brackets), "{\"x\": %.31s%.31s, \"version\"", deep,
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_success(read_edited("{\"version\"", brackets, &back));
	snprintf(brackets, sizeof(brackets), "{\"x\": %.32s%.32s, \"version\"", deep,
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	edited_refuses("{\"version\"", brackets, "deeper");
	snprintf(brackets, sizeof(brackets), "{\"x\": \"\\\"%.50s\", \"version\"",
		 deep);
	assert_success(read_edited("{\"version\"", brackets, &back));
}

static void long_arrays_are_refused(void **state)
{
	static char text[SNT__CARD_JSON_MAX], edited[SNT__CARD_JSON_MAX];
	struct snt_card card = sample(SNT_DEVICES_MAX, SNT_LANES_MAX), back;
	char *at;

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	at = strstr(text, "\"lanes\": [") + strlen("\"lanes\": [");
	snprintf(edited, sizeof(edited), "%.*s{}, %s", (int)(at - text), text, at);
	assert_error(read_copy(edited, strlen(edited), &back), EBADMSG,
		     "lanes has 161 elements, not 1 to 160");
	at = strstr(text, "\"devices\": [") + strlen("\"devices\": [");
	snprintf(edited, sizeof(edited), "%.*s{}, %s", (int)(at - text), text, at);
	assert_error(read_copy(edited, strlen(edited), &back), EBADMSG,
		     "devices has 33 elements, not 1 to 32");
}

static unsigned allocations_left;

static void *failing_malloc(size_t size)
{
	if (!allocations_left--)
		return NULL;
	return malloc(size);
}

static void every_allocation_can_fail(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 3), back = { .qp_num = 99 };
	char text[2048], again[sizeof(text)];
	ssize_t length = snt_card_to_json(&card, text, sizeof(text));
	ssize_t ret = -ENOMEM;
	unsigned failures, nomem = 0;

	(void)state;
	json_set_alloc_funcs(failing_malloc, free);
	for (failures = 0; ret < 0; failures++) {
		allocations_left = failures;
		ret = snt_card_to_json(&card, again, sizeof(again));
		if (ret < 0)
			assert_error(ret, ENOMEM, "out of memory");
	}
	assert_int_equal(ret, length);
	assert_string_equal(again, text);
	assert_true(failures > 30);

	ret = -ENOMEM;
	for (failures = 0; ret < 0; failures++) {
		allocations_left = failures;
		ret = snt_card_from_json(text, length, &back);
		/* For want of memory jansson loses letters and whole strings, and then
		 * blames the text. A card that comes of it must not be taken. */
		if (ret == -ENOMEM)
			nomem++;
		else if (ret < 0)
			assert_error(ret, EBADMSG, "JSON card");
		if (ret < 0)
			assert_int_equal(back.qp_num, 99);
	}
	assert_same(&card, &back);
	assert_true(failures > 30);
	assert_true(nomem > 10);
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_count_goes_round),
		cmocka_unit_test(every_extreme_goes_round),
		cmocka_unit_test(devices_number_their_qps_apart),
		cmocka_unit_test(packed_bytes_are_fixed),
		cmocka_unit_test(json_text_is_fixed),
		cmocka_unit_test(a_packed_mailbox_is_fixed),
		cmocka_unit_test(a_json_mailbox_is_fixed),
		cmocka_unit_test(the_longest_json_is_far_from_its_limit),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(wrong_sizes_with_a_mailbox_are_refused),
		cmocka_unit_test(every_flipped_bit_is_refused_or_kept),
		cmocka_unit_test(malformed_bytes_are_refused),
		cmocka_unit_test(fields_out_of_range_are_refused),
		cmocka_unit_test(windows_out_of_range_are_refused),
		cmocka_unit_test(mailboxes_out_of_range_are_refused),
		cmocka_unit_test(a_mailbox_is_for_spray),
		cmocka_unit_test(a_mailbox_needs_its_flag),
		cmocka_unit_test(counts_and_elements_out_of_range_are_refused),
		cmocka_unit_test(ethernet_needs_a_gid),
		cmocka_unit_test(every_member_is_needed_and_typed),
		cmocka_unit_test(h24_non_string_element_is_refused),
		cmocka_unit_test(h25_numbers_are_not_truncated),
		cmocka_unit_test(json_out_of_range_is_refused),
		cmocka_unit_test(other_versions_are_told_apart),
		cmocka_unit_test(unknown_members_are_ignored),
		cmocka_unit_test(malformed_json_is_refused),
		cmocka_unit_test(sentences_show_foreign_text_short_and_printable),
		cmocka_unit_test(depth_and_length_are_limited),
		cmocka_unit_test(long_arrays_are_refused),
		cmocka_unit_test(every_allocation_can_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
