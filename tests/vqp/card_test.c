/* SPDX-License-Identifier: MIT */
/* Cards, and cards as bytes: what goes round, and that nothing else is let in. */
#include "lib/card_kit.h"

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
	card.read_depth = 1;
	card.mtu = 256;
	card.lane_depth = 1;
	card.recv_depth = 1;
	card.scheme = SNT_SCHEME_DQPLB;
	card.window = 1;
	card.fragment_size = 64;
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
		"\x01\x02\x00\x10\x00\x0a\x0b\x0c" /* to the QP number */
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
	card.scheme = SNT_SCHEME_DQPLB;
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
	assert_int_equal(packed[2], SNT_QP_NOTIFY_LENGTH);
	packed[2] = before[2];
	assert_memory_equal(packed, before, size);
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
	unpack_refuses(0, 0, EPROTONOSUPPORT, "version 0; this library reads 1 and 2");
	unpack_refuses(0, 3, EPROTONOSUPPORT, "version 3");
	unpack_refuses(0, 2, EBADMSG, "version is 2, without SNT_QP_FAILOVER");
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
	REFUSED(flags, 8, "flags 0x8");
	REFUSED(flags, SNT_QP_FAILOVER, "version is 1, with SNT_QP_FAILOVER");
	REFUSED(version, SNT_CARD_VERSION_FAILOVER,
		"version is 2, without SNT_QP_FAILOVER");
	REFUSED(flags, SNT_QP_PASS_THROUGH,
		"3 lanes, but SNT_QP_PASS_THROUGH is for one");
	REFUSED(data_lanes, 3, "data lanes only, but no SNT_QP_PASS_THROUGH");
	REFUSED(flags, SNT_QP_NOTIFY_LENGTH, "mailbox_slots is 0, not 257 to 131072");
	REFUSED(mailbox_slots, 512, "there is a mailbox, but no SNT_QP_NOTIFY_LENGTH");
	REFUSED(mailbox_addr, 8, "there is a mailbox, but no SNT_QP_NOTIFY_LENGTH");
	REFUSED(mtu, 0, "mtu is 0");
	REFUSED(mtu, 128, "mtu is 128, not 256 to 4096");
	REFUSED(mtu, 1500, "mtu is 1500, not a power of two");
	REFUSED(mtu, 8192, "mtu is 8192");
	REFUSED(lane_depth, 0, "lane_depth is 0, not 1 to 65536");
	REFUSED(lane_depth, 65537, "lane_depth is 65537");
	REFUSED(recv_depth, 0, "recv_depth is 0");
	REFUSED(recv_depth, UINT32_MAX, "recv_depth is 4294967295");
	REFUSED(window, 1, "window is 1, but SPRAY has none");
	REFUSED(fragment_size, 0, "fragment_size is 0");
	REFUSED(fragment_size, 32, "fragment_size is 32, not 64 to 2147483648");
	REFUSED(fragment_size, 257, "fragment_size is 257, not a multiple of 64");
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
	MAILBOX_REFUSED(mailbox_slots, 511, "mailbox_slots is 511, not a power of two");
	MAILBOX_REFUSED(mailbox_slots, 262144, "mailbox_slots is 262144");
	MAILBOX_REFUSED(mailbox_slots, UINT32_MAX, "mailbox_slots is 4294967295");
	MAILBOX_REFUSED(mailbox_addr, 0x1004,
			"mailbox_addr is 0x1004, not a multiple of 8");
	MAILBOX_REFUSED(mailbox_addr, UINT64_MAX - 512 * 8 + 1 + 8,
			"too near to the end for 512 slots");
	MAILBOX_REFUSED(mailbox_addr, UINT64_MAX - 7, "too near to the end");
}

static void a_mailbox_is_for_spray(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 3);
	struct snt_card passes = sample_with_mailbox(2, 1);

	(void)state;
	card.scheme = SNT_SCHEME_DQPLB;
	card.window = 1024;
	card_refused(&card, "there is a mailbox, but no notify lane");
	card_refused(&passes, "there is a mailbox, but no notify lane");
}

static void windows_out_of_range_are_refused(void **state)
{
	static const uint32_t window[] = { 0, 3, (1 << 23) - 1, (1 << 23) + 1,
					   1 << 24 };
	struct snt_card card = sample(1, 1);

	(void)state;
	card.scheme = SNT_SCHEME_DQPLB;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_count_goes_round),
		cmocka_unit_test(every_extreme_goes_round),
		cmocka_unit_test(devices_number_their_qps_apart),
		cmocka_unit_test(packed_bytes_are_fixed),
		cmocka_unit_test(a_packed_mailbox_is_fixed),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(wrong_sizes_with_a_mailbox_are_refused),
		cmocka_unit_test(every_flipped_bit_is_refused_or_kept),
		cmocka_unit_test(malformed_bytes_are_refused),
		cmocka_unit_test(fields_out_of_range_are_refused),
		cmocka_unit_test(windows_out_of_range_are_refused),
		cmocka_unit_test(mailboxes_out_of_range_are_refused),
		cmocka_unit_test(a_mailbox_is_for_spray),
		cmocka_unit_test(counts_and_elements_out_of_range_are_refused),
		cmocka_unit_test(ethernet_needs_a_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
