/* SPDX-License-Identifier: MIT */
/* Packets as bytes: those of the kernel's rxe, made-up ones, and bad ones. */
#include "lib/test.h"

#include "dev/soft/wire.h"
#include "lib/seeds.h"
#include "vectors/rxe.h"

#define ICRC_SIZE 4

/* A copy of just that size, so that reading past it is seen; at an odd address. */
static int decode_copy(const uint8_t *bytes, size_t length,
		       struct snt__wire_packet *packet)
{
	uint8_t *copy = malloc(length + 1);
	int ret;

	assert_non_null(copy);
	memcpy(copy + 1, bytes, length);
	memset(packet, 0, sizeof(*packet));
	ret = snt__wire_decode(copy + 1, length, packet);
	if (!ret) {
		/* The same place in what was given. */
		assert_true(packet->payload >= copy + 1);
		packet->payload = bytes + (packet->payload - copy - 1);
	}
	free(copy);
	return ret;
}

static void rxe_packets_go_round(void **state)
{
	bool seen[7][256] = { 0 };

	(void)state;
	for (size_t i = 0; i < RXE_PACKETS; i++) {
		struct rxe_packet rxe = rxe_packet(i);
		size_t length = rxe.length - ICRC_SIZE, size;
		uint8_t header[SNT__WIRE_HEADER_MAX];
		struct snt__wire_packet packet;

		assert_int_equal(decode_copy(rxe.bytes, length, &packet), 0);
		assert_int_equal(packet.opcode, rxe.bytes[0]);
		assert_int_equal(packet.pkey, SNT__WIRE_PKEY_DEFAULT);
		size = snt__wire_encode(&packet, header);
		assert_memory_equal(header, rxe.bytes, size);
		assert_ptr_equal(packet.payload, rxe.bytes + size);
		assert_int_equal(size + packet.payload_length +
					 snt__wire_pad(packet.payload_length),
				 length);
		seen[rxe.version][packet.opcode] = true;
	}
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		bool known = snt__wire_opcodes[opcode].header_size;

		assert_int_equal(seen[4][opcode], known);
		assert_int_equal(seen[6][opcode], known);
	}
}

/* One of rxe's, whose fields are known: see tests/vm/wire_capture.c. */
static struct snt__wire_packet decode_first(uint8_t opcode)
{
	struct snt__wire_packet packet;

	for (size_t i = 0;; i++) {
		struct rxe_packet rxe;

		assert_true(i < RXE_PACKETS);
		rxe = rxe_packet(i);
		if (rxe.bytes[0] != opcode)
			continue;
		assert_int_equal(decode_copy(rxe.bytes, rxe.length - ICRC_SIZE,
					     &packet),
				 0);
		packet.payload = NULL; /* gone with the copy */
		return packet;
	}
}

static void rxe_packets_mean_what_was_sent(void **state)
{
	struct snt__wire_packet packet = decode_first(SNT__WIRE_WRITE_FIRST);

	(void)state;
	assert_int_equal(packet.reth.length, 512);
	assert_int_equal(packet.payload_length, 256);
	assert_int_equal(packet.flags, 0);
	packet = decode_first(SNT__WIRE_WRITE_ONLY_IMM);
	assert_int_equal(packet.immediate, htobe32(0x01020304));
	assert_int_equal(packet.reth.length, packet.payload_length);
	assert_int_equal(packet.flags, SNT__WIRE_ACK_REQUEST);
	packet = decode_first(SNT__WIRE_FETCH_ADD);
	assert_int_equal(packet.atomic.swap_add, UINT64_C(0x1122334455667788));
	assert_int_equal(packet.atomic.addr % 8, 0);
	packet = decode_first(SNT__WIRE_COMPARE_SWAP);
	assert_int_equal(packet.atomic.compare, UINT64_C(0x1122334455667788));
	assert_int_equal(packet.atomic.swap_add, UINT64_C(0x99aabbccddeeff00));
	assert_int_equal(packet.atomic.key,
			 decode_first(SNT__WIRE_FETCH_ADD).atomic.key);
	packet = decode_first(SNT__WIRE_ACKNOWLEDGE);
	assert_int_equal(packet.ack.syndrome, SNT__SYNDROME_ACK_UNLIMITED);
	assert_int_equal(packet.ack.msn, 1);
	packet = decode_first(SNT__WIRE_UD_SEND_ONLY);
	assert_int_equal(packet.qpn, SNT__WIRE_GSI_QPN);
	assert_int_equal(packet.datagram.qkey, SNT__WIRE_GSI_QKEY);
	assert_int_equal(packet.datagram.source_qpn, SNT__WIRE_GSI_QPN);
	assert_int_equal(packet.payload_length, 256);
	packet = decode_first(SNT__WIRE_UD_SEND_ONLY_IMM);
	assert_int_equal(packet.qpn, 0x123456);
	assert_int_equal(packet.psn, 0xffffff);
	assert_int_equal(packet.datagram.qkey, 0x00abcdef);
	assert_int_equal(packet.immediate, htobe32(0x05060708));
	assert_int_equal(packet.payload_length, 41);
}

/* By the definition of the headers, since rxe leaves some bits alone. */
static void bytes_are_in_their_places(void **state)
{
	static const uint8_t expected[] = {
		0x0b, 0xe0, 0x89, 0xab, 0x00, 0xfe, 0xdc, 0xba, 0x80, 0x12, 0x34,
		0x56, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xaa, 0xbb,
		0xcc, 0xdd, 0x00, 0x00, 0x00, 0x02, 0x10, 0x20, 0x30, 0x40,
	};
	const struct snt__wire_packet packet = {
		.opcode = SNT__WIRE_WRITE_ONLY_IMM,
		.flags = SNT__WIRE_SOLICITED | SNT__WIRE_MIGRATED |
			 SNT__WIRE_ACK_REQUEST,
		.pkey = 0x89ab,
		.qpn = 0x55fedcba, /* eight bits too many */
		.psn = 0xff123456,
		.immediate = htobe32(0x10203040),
		.reth = { UINT64_C(0x0123456789abcdef), 0xaabbccdd, 2 },
		.payload_length = 2,
	};
	uint8_t header[SNT__WIRE_HEADER_MAX];

	(void)state;
	assert_int_equal(snt__wire_encode(&packet, header), sizeof(expected));
	assert_memory_equal(header, expected, sizeof(expected));
}

static struct snt__wire_packet random_packet(uint8_t opcode, uint64_t *random)
{
	unsigned parts = snt__wire_opcodes[opcode].parts;
	struct snt__wire_packet packet;

	memset(&packet, 0, sizeof(packet));
	packet.opcode = opcode;
	packet.flags = random_next(random) & 0xe0;
	packet.pkey = random_next(random);
	packet.qpn = random_next(random) & SNT__QPN_MASK;
	packet.psn = random_next(random) & SNT__PSN_MASK;
	if (parts & SNT__WIRE_IMMEDIATE)
		packet.immediate = random_next(random);
	if (parts & SNT__WIRE_PAYLOAD)
		packet.payload_length = random_below(random, 64);
	if (parts & (SNT__WIRE_RETH | SNT__WIRE_ATOMIC_ETH)) {
		packet.reth.addr = random_next(random);
		packet.reth.key = random_next(random);
	}
	if (parts & SNT__WIRE_RETH)
		packet.reth.length = random_next(random);
	if (parts & SNT__WIRE_ATOMIC_ETH) {
		packet.atomic.swap_add = random_next(random);
		packet.atomic.compare = random_next(random);
	}
	if (parts & SNT__WIRE_AETH) {
		packet.ack.syndrome = random_next(random);
		packet.ack.msn = random_next(random) & SNT__PSN_MASK;
	}
	if (parts & SNT__WIRE_ATOMIC_ACK_ETH)
		packet.ack.original = random_next(random);
	if (parts & SNT__WIRE_IETH)
		packet.invalidate.key = random_next(random);
	if (parts & SNT__WIRE_DETH) {
		packet.datagram.qkey = random_next(random);
		packet.datagram.source_qpn = random_next(random) & SNT__QPN_MASK;
	}
	return packet;
}

static void every_field_of_every_opcode_goes_round(void **state)
{
	uint64_t random = 3;

	(void)state;
	for (unsigned i = 0; i < 256 * 100; i++) {
		const struct snt__wire_opcode_info *info = &snt__wire_opcodes[i & 255];
		struct snt__wire_packet packet, back;
		uint8_t bytes[SNT__WIRE_HEADER_MAX + 64] = { 0 };
		size_t size;

		if (!info->header_size)
			continue;
		packet = random_packet(i & 255, &random);
		size = snt__wire_encode(&packet, bytes);
		assert_int_equal(size, info->header_size);
		packet.payload = bytes + size;
		size += packet.payload_length + snt__wire_pad(packet.payload_length);
		assert_int_equal(decode_copy(bytes, size, &back), 0);
		assert_memory_equal(&back, &packet, sizeof(packet));
	}
}

static void reserved_bits_are_ignored(void **state)
{
	struct rxe_packet rxe = rxe_packet(0);
	struct snt__wire_packet packet, other;

	(void)state;
	assert_int_equal(decode_copy(rxe.bytes, rxe.length - ICRC_SIZE, &packet), 0);
	rxe.bytes[4] = 0xff;
	rxe.bytes[8] |= 0x7f;
	rxe.bytes[16] = 0xff; /* of the DETH */
	assert_int_equal(rxe.bytes[0], SNT__WIRE_UD_SEND_ONLY);
	assert_int_equal(decode_copy(rxe.bytes, rxe.length - ICRC_SIZE, &other), 0);
	assert_memory_equal(&packet, &other, sizeof(packet));
}

static void cut_off_packets_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < RXE_PACKETS; i++) {
		struct rxe_packet rxe = rxe_packet(i);
		size_t length = rxe.length - ICRC_SIZE;
		size_t header = snt__wire_opcodes[rxe.bytes[0]].header_size;
		unsigned pad = rxe.bytes[1] >> 4 & 3;
		struct snt__wire_packet packet;

		for (size_t cut = 0; cut <= length; cut++) {
			int ret = decode_copy(rxe.bytes, cut, &packet);

			if (cut < header)
				assert_int_equal(ret, -EBADMSG);
			else if (cut % 4 || cut - header < pad)
				assert_int_equal(ret, -EMSGSIZE);
			else
				assert_int_equal(packet.payload_length,
						 cut - header - pad);
		}
	}
}

static void nonsensical_options_are_refused(void **state)
{
	uint8_t bytes[SNT__WIRE_HEADER_MAX + 4] = { SNT__WIRE_SEND_ONLY };
	struct snt__wire_packet packet;

	(void)state;
	assert_int_equal(decode_copy(bytes, 12, &packet), 0);
	for (unsigned version = 1; version < 16; version++) {
		bytes[1] = version;
		assert_int_equal(decode_copy(bytes, 12, &packet), -EPROTONOSUPPORT);
	}
	bytes[1] = 1 << 4; /* pad without payload */
	assert_int_equal(decode_copy(bytes, 12, &packet), -EMSGSIZE);
	assert_int_equal(decode_copy(bytes, 16, &packet), 0);
	assert_int_equal(packet.payload_length, 3);
	bytes[1] = 0;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		const struct snt__wire_opcode_info *info = &snt__wire_opcodes[opcode];

		bytes[0] = opcode;
		if (!info->header_size)
			assert_int_equal(decode_copy(bytes, 40, &packet), -EOPNOTSUPP);
		else
			assert_int_equal(decode_copy(bytes, info->header_size + 4,
						     &packet),
					 info->parts & SNT__WIRE_PAYLOAD ? 0
									 : -EMSGSIZE);
	}
}

static void opcodes_follow_from_their_place(void **state)
{
	static const enum snt__wire_kind kinds[] = { SNT__WIRE_KIND_SEND,
						     SNT__WIRE_KIND_WRITE,
						     SNT__WIRE_KIND_READ_RESPONSE };

	(void)state;
	for (unsigned i = 0; i < 3 * 8; i++) {
		enum snt__wire_kind kind = kinds[i / 8];
		bool first = i & 1, last = i & 2, immediate = i & 4;
		const struct snt__wire_opcode_info *info;
		uint8_t opcode = snt__wire_opcode(kind, first, last, immediate);

		info = &snt__wire_opcodes[opcode];
		assert_int_equal(info->kind, kind);
		assert_int_equal(!!(info->parts & SNT__WIRE_FIRST), first);
		assert_int_equal(!!(info->parts & SNT__WIRE_LAST), last);
		assert_int_equal(!!(info->parts & SNT__WIRE_IMMEDIATE),
				 last && immediate &&
					 kind != SNT__WIRE_KIND_READ_RESPONSE);
		assert_int_equal(!!(info->parts & SNT__WIRE_RETH),
				 first && kind == SNT__WIRE_KIND_WRITE);
		assert_int_equal(snt__wire_transport(opcode), SNT__WIRE_RC);
		assert_int_equal(snt__wire_kind_is_response(kind), i / 8 == 2);
	}
	assert_int_equal(snt__wire_transport(SNT__WIRE_UD_SEND_ONLY_IMM), SNT__WIRE_UD);
}

static void opcodes_of_single_packets_are_as_they_are(void **state)
{
	const unsigned bare = SNT__WIRE_FIRST | SNT__WIRE_LAST;
	const unsigned last = SNT__WIRE_LAST | SNT__WIRE_PAYLOAD;
	const unsigned only = bare | SNT__WIRE_PAYLOAD;
	const struct {
		uint8_t opcode, kind;
		unsigned parts;
	} expected[] = {
		{ 0x0c, SNT__WIRE_KIND_READ, bare | SNT__WIRE_RETH },
		{ 0x11, SNT__WIRE_KIND_ACKNOWLEDGE, bare | SNT__WIRE_AETH },
		{ 0x12, SNT__WIRE_KIND_ATOMIC_ACKNOWLEDGE,
		  bare | SNT__WIRE_AETH | SNT__WIRE_ATOMIC_ACK_ETH },
		{ 0x13, SNT__WIRE_KIND_COMPARE_SWAP, bare | SNT__WIRE_ATOMIC_ETH },
		{ 0x14, SNT__WIRE_KIND_FETCH_ADD, bare | SNT__WIRE_ATOMIC_ETH },
		{ 0x16, SNT__WIRE_KIND_SEND, last | SNT__WIRE_IETH },
		{ 0x17, SNT__WIRE_KIND_SEND, only | SNT__WIRE_IETH },
		{ 0x64, SNT__WIRE_KIND_SEND, only | SNT__WIRE_DETH },
		{ 0x65, SNT__WIRE_KIND_SEND,
		  only | SNT__WIRE_DETH | SNT__WIRE_IMMEDIATE },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct snt__wire_opcode_info *info =
			&snt__wire_opcodes[expected[i].opcode];

		assert_int_equal(info->kind, expected[i].kind);
		assert_int_equal(info->parts, expected[i].parts);
	}
}

static void sequence_numbers_go_round(void **state)
{
	(void)state;
	assert_int_equal(snt__psn_add(0xfffffe, 3), 1);
	assert_int_equal(snt__psn_add(5, -6), 0xffffff);
	assert_int_equal(snt__psn_diff(1, 0xfffffe), 3);
	assert_int_equal(snt__psn_diff(0xfffffe, 1), -3);
	assert_int_equal(snt__psn_diff(7, 7), 0);
	assert_int_equal(snt__psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(snt__psn_diff(0x800000, 0), -0x800000);
}

static void syndromes_have_a_class_and_a_value(void **state)
{
	(void)state;
	assert_int_equal(snt__syndrome_class(SNT__SYNDROME_ACK_UNLIMITED),
			 SNT__SYNDROME_ACK);
	assert_int_equal(snt__syndrome_class(SNT__SYNDROME_RNR | 31),
			 SNT__SYNDROME_RNR);
	assert_int_equal(snt__syndrome_value(SNT__SYNDROME_RNR | 31), 31);
	assert_int_equal(snt__syndrome_class(SNT__SYNDROME_NAK_ACCESS),
			 SNT__SYNDROME_NAK);
	assert_int_equal(snt__syndrome_class(0x40), 0x40); /* reserved is no ACK */
	assert_int_equal(snt__syndrome_class(0x80), 0x80);
}

static void times_are_those_of_the_specification(void **state)
{
	(void)state;
	assert_int_equal(snt__rnr_timer_ns(0), 655360000);
	assert_int_equal(snt__rnr_timer_ns(1), 10000);
	assert_int_equal(snt__rnr_timer_ns(2), 20000);
	assert_int_equal(snt__rnr_timer_ns(3), 30000);
	assert_int_equal(snt__rnr_timer_ns(31), 491520000);
	/* Each is double of what it was two codes before. */
	for (unsigned code = 4; code < 32; code++)
		assert_int_equal(snt__rnr_timer_ns(code),
				 2 * snt__rnr_timer_ns(code - 2));
	assert_int_equal(snt__ack_timeout_ns(0), 0);
	assert_int_equal(snt__ack_timeout_ns(1), 8192);
	assert_int_equal(snt__ack_timeout_ns(14), 67108864);
	assert_int_equal(snt__ack_timeout_ns(31), UINT64_C(4096) << 31);
}

static void mtus_are_powers_of_two(void **state)
{
	static const unsigned bytes[] = { 0, 256, 512, 1024, 2048, 4096, 0 };

	(void)state;
	for (unsigned mtu = 0; mtu < ARRAY_SIZE(bytes); mtu++)
		assert_int_equal(snt__mtu_bytes(mtu), bytes[mtu]);
	for (unsigned size = 0; size < 10000; size++) {
		unsigned mtu = snt__mtu_within(size);

		assert_true(snt__mtu_bytes(mtu) <= size);
		assert_true(mtu == 5 || snt__mtu_bytes(mtu + 1) > size);
	}
	assert_int_equal(snt__mtu_within(SIZE_MAX), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rxe_packets_go_round),
		cmocka_unit_test(rxe_packets_mean_what_was_sent),
		cmocka_unit_test(bytes_are_in_their_places),
		cmocka_unit_test(every_field_of_every_opcode_goes_round),
		cmocka_unit_test(reserved_bits_are_ignored),
		cmocka_unit_test(cut_off_packets_are_refused),
		cmocka_unit_test(nonsensical_options_are_refused),
		cmocka_unit_test(opcodes_follow_from_their_place),
		cmocka_unit_test(opcodes_of_single_packets_are_as_they_are),
		cmocka_unit_test(sequence_numbers_go_round),
		cmocka_unit_test(syndromes_have_a_class_and_a_value),
		cmocka_unit_test(times_are_those_of_the_specification),
		cmocka_unit_test(mtus_are_powers_of_two),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
