/* SPDX-License-Identifier: MIT */
/* Soft devices: packets that no honest peer sends, and those that were not asked
 * for. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include "lib/seeds.h"

#define FAR (256u << 10)
#define MTU 1024u

static const uint8_t payload[4096 + 4];

static struct snt__wire_packet packet_for(struct kit *kit, unsigned to, uint8_t opcode,
					  uint32_t psn, size_t length)
{
	return (struct snt__wire_packet){
		.opcode = opcode,
		.flags = SNT__WIRE_ACK_REQUEST,
		.pkey = 0xffff,
		.qpn = kit->end[to].qp->qp_num,
		.psn = psn,
		.payload_length = length,
	};
}

static void inject(struct kit *kit, uint8_t opcode, uint32_t psn, size_t length)
{
	struct snt__wire_packet packet = packet_for(kit, B, opcode, psn, length);

	kit_inject(kit, B, &packet, payload);
}

/* With a RETH that is good, but for its length. */
static void inject_write(struct kit *kit, uint8_t opcode, uint32_t psn, size_t length,
			 uint32_t total)
{
	struct snt__wire_packet packet = packet_for(kit, B, opcode, psn, length);

	packet.reth.addr = (uintptr_t)kit->end[B].bytes + FAR;
	packet.reth.key = kit->end[B].mr->rkey;
	packet.reth.length = total;
	kit_inject(kit, B, &packet, payload);
}

/* B has given up, and says why. */
static void expect_nak(struct kit *kit, uint8_t syndrome, uint32_t psn)
{
	struct snt__soft_packet out[2];
	struct snt__wire_packet packet;

	assert_int_equal(snt__soft_output(kit->end[B].device, out, 2, 0), 1);
	assert_int_equal(snt__wire_decode(out[0].header, out[0].header_length, &packet),
			 0);
	assert_int_equal(packet.opcode, SNT__WIRE_ACKNOWLEDGE);
	assert_int_equal(packet.ack.syndrome, syndrome);
	assert_int_equal(packet.psn, psn);
	assert_int_equal(packet.qpn, kit->end[A].qp->qp_num);
}

static void expect_invalid(struct kit *kit, uint32_t psn)
{
	expect_nak(kit, SNT__SYNDROME_NAK_INVALID_REQUEST, psn);
	assert_int_equal(kit_state(kit, B), IBV_QPS_ERR);
	kit_expect_event(kit, B, IBV_EVENT_QP_REQ_ERR);
	/* Silence ever after. */
	inject(kit, SNT__WIRE_SEND_ONLY, psn, 0);
	assert_int_equal(kit_swallow(kit, B), 0);
	kit_close(kit);
}

static struct kit *open_with_receives(void)
{
	struct kit *kit = kit_open(NULL);

	kit_recv(kit, B, 70, FAR, 64 << 10);
	kit_recv(kit, B, 71, FAR, 64 << 10);
	return kit;
}

static void opcodes_out_of_sequence(void **state)
{
	static const uint8_t orphans[] = {
		SNT__WIRE_SEND_MIDDLE,		SNT__WIRE_SEND_LAST,
		SNT__WIRE_SEND_LAST_IMM,	SNT__WIRE_WRITE_MIDDLE,
		SNT__WIRE_WRITE_LAST,		SNT__WIRE_WRITE_LAST_IMM,
		SNT__WIRE_SEND_LAST_INVALIDATE,
	};
	static const uint8_t in_send[] = {
		SNT__WIRE_SEND_FIRST,		SNT__WIRE_SEND_ONLY,
		SNT__WIRE_WRITE_FIRST,		SNT__WIRE_WRITE_ONLY,
		SNT__WIRE_WRITE_MIDDLE,		SNT__WIRE_WRITE_LAST,
		SNT__WIRE_READ_REQUEST,		SNT__WIRE_FETCH_ADD,
		SNT__WIRE_SEND_ONLY_INVALIDATE,
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(orphans); i++) {
		struct kit *kit = open_with_receives();

		inject(kit, orphans[i], 0, MTU);
		expect_invalid(kit, 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(in_send); i++) {
		struct kit *kit = open_with_receives();
		bool bare = in_send[i] == SNT__WIRE_READ_REQUEST ||
			    in_send[i] == SNT__WIRE_FETCH_ADD;

		inject(kit, SNT__WIRE_SEND_FIRST, 0, MTU);
		kit_swallow(kit, B);
		inject(kit, in_send[i], 1, bare ? 0 : MTU);
		expect_invalid(kit, 1);
	}
}

static void a_write_ends_as_a_write(void **state)
{
	static const uint8_t others[] = { SNT__WIRE_SEND_LAST, SNT__WIRE_SEND_MIDDLE,
					  SNT__WIRE_WRITE_FIRST, SNT__WIRE_WRITE_ONLY };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		struct kit *kit = open_with_receives();

		inject_write(kit, SNT__WIRE_WRITE_FIRST, 0, MTU, 3000);
		kit_swallow(kit, B);
		inject_write(kit, others[i], 1, MTU, 3000);
		expect_invalid(kit, 1);
	}
}

static void lengths_of_packets(void **state)
{
	static const struct {
		uint8_t opcode;
		uint16_t length;
	} cases[] = {
		{ SNT__WIRE_SEND_FIRST, 0 },	   { SNT__WIRE_SEND_FIRST, MTU - 4 },
		{ SNT__WIRE_SEND_FIRST, MTU - 1 }, { SNT__WIRE_SEND_FIRST, MTU + 4 },
		{ SNT__WIRE_SEND_ONLY, MTU + 1 },  { SNT__WIRE_SEND_ONLY, 4096 },
	};
	struct kit *kit;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		kit = open_with_receives();
		inject(kit, cases[i].opcode, 0, cases[i].length);
		expect_invalid(kit, 0);
	}
	kit = open_with_receives();
	inject(kit, SNT__WIRE_SEND_FIRST, 0, MTU);
	kit_swallow(kit, B);
	inject(kit, SNT__WIRE_SEND_LAST, 1, 0);
	expect_invalid(kit, 1);
	kit = open_with_receives();
	inject(kit, SNT__WIRE_SEND_FIRST, 0, MTU);
	kit_swallow(kit, B);
	inject(kit, SNT__WIRE_SEND_MIDDLE, 1, MTU - 1);
	expect_invalid(kit, 1);
}

static void lengths_of_writes(void **state)
{
	static const struct {
		uint8_t first;
		uint16_t first_length;
		uint32_t total;
		uint8_t second; /* 0: none */
		uint16_t second_length;
	} cases[] = {
		{ SNT__WIRE_WRITE_ONLY, 8, 7, 0, 0 },
		{ SNT__WIRE_WRITE_ONLY, 8, 9, 0, 0 },
		{ SNT__WIRE_WRITE_ONLY, 0, 1, 0, 0 },
		{ SNT__WIRE_WRITE_FIRST, MTU, MTU, 0, 0 },
		{ SNT__WIRE_WRITE_FIRST, MTU, 10, 0, 0 },
		{ SNT__WIRE_WRITE_FIRST, MTU, 0, 0, 0 },
		{ SNT__WIRE_WRITE_FIRST, MTU, 3000, SNT__WIRE_WRITE_LAST, MTU },
		{ SNT__WIRE_WRITE_FIRST, MTU, 1500, SNT__WIRE_WRITE_LAST, 475 },
		{ SNT__WIRE_WRITE_FIRST, MTU, 1500, SNT__WIRE_WRITE_LAST, 477 },
		{ SNT__WIRE_WRITE_FIRST, MTU, 1500, SNT__WIRE_WRITE_MIDDLE, MTU },
		{ SNT__WIRE_WRITE_FIRST, MTU, 2048, SNT__WIRE_WRITE_MIDDLE, MTU },
		{ SNT__WIRE_WRITE_FIRST, MTU, (1u << 31) + 1, 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kit *kit = open_with_receives();

		inject_write(kit, cases[i].first, 0, cases[i].first_length,
			     cases[i].total);
		if (cases[i].second) {
			kit_swallow(kit, B);
			inject(kit, cases[i].second, 1, cases[i].second_length);
		}
		expect_invalid(kit, !!cases[i].second);
	}
}

static void reads_that_are_too_long(void **state)
{
	struct kit *kit = open_with_receives();

	(void)state;
	inject_write(kit, SNT__WIRE_READ_REQUEST, 0, 0, (1u << 31) + 1);
	expect_invalid(kit, 0);
	kit = open_with_receives();
	inject_write(kit, SNT__WIRE_READ_REQUEST, 0, 0, 1u << 31);
	expect_nak(kit, SNT__SYNDROME_NAK_ACCESS, 0);
	kit_close(kit);
}

/* One NAK, then silence until the right one comes. */
static void too_early(void **state)
{
	struct kit *kit = open_with_receives();

	(void)state;
	inject(kit, SNT__WIRE_SEND_ONLY, 5, 8);
	inject(kit, SNT__WIRE_SEND_ONLY, 6, 8);
	expect_nak(kit, SNT__SYNDROME_NAK_SEQUENCE, 0);
	inject(kit, SNT__WIRE_SEND_ONLY, 7, 8);
	assert_int_equal(kit_swallow(kit, B), 0);
	inject(kit, SNT__WIRE_SEND_ONLY, 0, 8);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 0);
	inject(kit, SNT__WIRE_SEND_ONLY, 5, 8);
	expect_nak(kit, SNT__SYNDROME_NAK_SEQUENCE, 1);
	/* A NAK that was not sent before the packet came is not sent. */
	inject(kit, SNT__WIRE_SEND_ONLY, 1, 8);
	inject(kit, SNT__WIRE_SEND_ONLY, 9, 8);
	{
		struct snt__wire_packet packet =
			packet_for(kit, B, SNT__WIRE_WRITE_ONLY, 2, 0);

		packet.flags = 0;
		packet.reth.length = 0;
		kit_inject(kit, B, &packet, NULL);
	}
	assert_int_equal(kit_swallow(kit, B), 0);
	assert_int_equal(kit_stats(kit, B)->out_of_order, 5);
	kit_close(kit);
}

/* Packets that are good, but for one thing. */
static void not_for_us(void **state)
{
	struct kit *kit = open_with_receives();
	struct snt__soft_path path = { .hop_limit = 64 };
	struct snt__wire_packet good = packet_for(kit, B, SNT__WIRE_SEND_ONLY, 0, 8);
	struct snt__wire_packet packet;
	uint8_t bytes[64] = { 0 };
	size_t length;

#define DROPPED(change)                                                   \
	do {                                                              \
		uint64_t before = kit_stats(kit, B)->dropped;             \
		packet = good;                                            \
		change;                                                   \
		kit_inject(kit, B, &packet, payload);                     \
		assert_int_equal(kit_stats(kit, B)->dropped, before + 1); \
		assert_int_equal(kit_swallow(kit, B), 0);                 \
	} while (0)

	(void)state;
	DROPPED(packet.qpn ^= 1);
	DROPPED(packet.qpn ^= 1 << 23);
	DROPPED(packet.qpn = 0);
	DROPPED(packet.qpn = 1);
	DROPPED(packet.qpn = 0xffffff);
	DROPPED(packet.pkey = 0x1234);
	DROPPED(packet.opcode = SNT__WIRE_UD_SEND_ONLY);
	kit_expect_none(kit, B);

	/* From another address, or to another one of ours. */
	length = snt__wire_encode(&good, bytes) + 8;
	path.source[10] = path.source[11] = path.target[10] = path.target[11] = 0xff;
	path.source[12] = path.target[12] = 10;
	path.source[15] = 3;
	path.target[15] = 2;
	snt__soft_input(kit->end[B].device, &path, bytes, length, 0);
	path.source[15] = 1;
	path.target[15] = 7;
	snt__soft_input(kit->end[B].device, &path, bytes, length, 0);
	kit_expect_none(kit, B);
	path.target[15] = 2;
	snt__soft_input(kit->end[B].device, &path, bytes, length, 0);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
#undef DROPPED
	kit_close(kit);
}

/*
 * Responses
 */

static void answer(struct kit *kit, uint8_t opcode, uint32_t psn, uint8_t syndrome,
		   size_t length)
{
	struct snt__wire_packet packet = packet_for(kit, A, opcode, psn, length);

	packet.ack.syndrome = syndrome;
	packet.ack.original = 99;
	kit_inject(kit, A, &packet, payload);
}

/* It was not asked for: all of these are without effect. */
static void ghosts(void **state)
{
	static const uint8_t opcodes[] = { SNT__WIRE_ACKNOWLEDGE,
					   SNT__WIRE_ATOMIC_ACKNOWLEDGE,
					   SNT__WIRE_READ_RESPONSE_ONLY,
					   SNT__WIRE_READ_RESPONSE_MIDDLE };
	static const uint8_t syndromes[] = { 0x1f, 0x2c, 0x60, 0x61, 0x62,
					     0x63, 0x40, 0x80, 0xff };
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_swallow(kit, A); /* number 0 is under way */
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		for (unsigned j = 0; j < ARRAY_SIZE(syndromes); j++) {
			answer(kit, opcodes[i], 1, syndromes[j], 0);
			answer(kit, opcodes[i], 0xffffff, syndromes[j], 0);
			answer(kit, opcodes[i], 0x7fffff, syndromes[j], 0);
		}
	}
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, 0x40, 0);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, 0x80, 0);
	kit_expect_none(kit, A);
	assert_int_equal(kit_state(kit, A), IBV_QPS_RTS);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

static void bad_responses(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint8_t answer;
		uint16_t length;
	} cases[] = {
		{ IBV_WR_RDMA_READ, SNT__WIRE_READ_RESPONSE_ONLY, 7 },
		{ IBV_WR_RDMA_READ, SNT__WIRE_READ_RESPONSE_ONLY, 9 },
		{ IBV_WR_RDMA_READ, SNT__WIRE_READ_RESPONSE_FIRST, MTU },
		{ IBV_WR_RDMA_READ, SNT__WIRE_ATOMIC_ACKNOWLEDGE, 0 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, SNT__WIRE_READ_RESPONSE_ONLY, 8 },
		{ IBV_WR_RDMA_WRITE, SNT__WIRE_READ_RESPONSE_ONLY, 8 },
		{ IBV_WR_RDMA_WRITE, SNT__WIRE_ATOMIC_ACKNOWLEDGE, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kit *kit = kit_open(NULL);

		memset(kit->end[A].bytes, 0xee, 64);
		kit_send(kit, A,
			 &(struct kit_send){
				 .id = 1, .opcode = cases[i].opcode, .length = 8 });
		kit_swallow(kit, A);
		answer(kit, cases[i].answer, 0, 0x1f, cases[i].length);
		kit_expect(kit, A, 1, IBV_WC_BAD_RESP_ERR);
		assert_int_equal(kit_state(kit, A), IBV_QPS_ERR);
		for (unsigned j = 0; j < 64; j++)
			assert_int_equal(kit->end[A].bytes[j], 0xee);
		kit_close(kit);
	}
}

static void every_nak(void **state)
{
	static const struct {
		uint8_t syndrome;
		enum ibv_wc_status status;
	} naks[] = {
		{ 0x61, IBV_WC_REM_INV_REQ_ERR }, { 0x62, IBV_WC_REM_ACCESS_ERR },
		{ 0x63, IBV_WC_REM_OP_ERR },	  { 0x64, IBV_WC_REM_OP_ERR },
		{ 0x7f, IBV_WC_REM_OP_ERR },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(naks); i++) {
		struct kit *kit = kit_open(NULL);

		for (unsigned id = 0; id < 3; id++)
			kit_send(kit, A,
				 &(struct kit_send){ .id = id,
						     .opcode = IBV_WR_RDMA_WRITE });
		kit_swallow(kit, A);
		answer(kit, SNT__WIRE_ACKNOWLEDGE, 1, naks[i].syndrome, 0);
		kit_expect(kit, A, 0, IBV_WC_SUCCESS); /* a NAK acknowledges, too */
		kit_expect(kit, A, 1, naks[i].status);
		kit_expect(kit, A, 2, IBV_WC_WR_FLUSH_ERR);
		kit_close(kit);
	}
}

/* An acknowledgment of something behind a READ says that its response is lost. */
static void implied_nak(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 2, .opcode = IBV_WR_RDMA_READ, .length = 8 });
	kit_send(kit, A, &(struct kit_send){ .id = 3, .opcode = IBV_WR_RDMA_WRITE });
	assert_int_equal(kit_swallow(kit, A), 3);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 2, 0x1f, 0);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect_none(kit, A);
	/* Once: the READ and what is behind it. */
	assert_int_equal(kit_swallow(kit, A), 2);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 2, 0x1f, 0);
	assert_int_equal(kit_swallow(kit, A), 0);
	answer(kit, SNT__WIRE_READ_RESPONSE_ONLY, 1, 0x1f, 8);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 2, 0x1f, 0);
	kit_expect(kit, A, 3, IBV_WC_SUCCESS);
	assert_int_equal(kit_stats(kit, A)->rewinds, 1);
	kit_close(kit);
}

/* Repetitions that are not what was asked before. */
static void false_duplicates(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct snt__wire_packet read = packet_for(kit, B, SNT__WIRE_READ_REQUEST, 0, 0);

	(void)state;
	read.reth.addr = (uintptr_t)kit->end[B].bytes + FAR;
	read.reth.key = kit->end[B].mr->rkey;
	read.reth.length = 5000;
	kit_inject(kit, B, &read, NULL);
	assert_int_equal(kit_swallow(kit, B), 5);
	kit_inject(kit, B, &read, NULL);
	assert_int_equal(kit_swallow(kit, B), 5);
	/* The second half, as after a loss. */
	read.psn = 2;
	read.reth.addr += 2 * MTU;
	read.reth.length -= 2 * MTU;
	kit_inject(kit, B, &read, NULL);
	assert_int_equal(kit_swallow(kit, B), 3);
	/* Longer than it was; elsewhere; with another key; as an atomic. */
	read.reth.length += MTU;
	kit_inject(kit, B, &read, NULL);
	read.reth.length -= MTU;
	read.reth.addr += 8;
	kit_inject(kit, B, &read, NULL);
	read.reth.addr -= 8;
	read.reth.key ^= 1 << 30;
	kit_inject(kit, B, &read, NULL);
	read = packet_for(kit, B, SNT__WIRE_FETCH_ADD, 0, 0);
	read.atomic.addr = (uintptr_t)kit->end[B].bytes + FAR;
	read.atomic.key = kit->end[B].mr->rkey;
	read.atomic.swap_add = 1;
	kit_inject(kit, B, &read, NULL);
	assert_int_equal(kit_swallow(kit, B), 0);
	kit_check_zero(kit, B, FAR, 8);
	assert_int_equal(kit_state(kit, B), IBV_QPS_RTS);
	kit_close(kit);
}

/* An atomic that is repeated has the result that it had, whatever happened since. */
static void atomics_are_replayed(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .dest_reads = 2 });
	struct snt__wire_packet add = packet_for(kit, B, SNT__WIRE_FETCH_ADD, 0, 0);
	uint64_t *at = (uint64_t *)(void *)(kit->end[B].bytes + FAR);
	struct snt__soft_packet out[4];
	struct snt__wire_packet packet;

	(void)state;
	add.atomic.addr = (uintptr_t)at;
	add.atomic.key = kit->end[B].mr->rkey;
	add.atomic.swap_add = 5;
	for (add.psn = 0; add.psn < 2; add.psn++) {
		kit_inject(kit, B, &add, NULL);
		assert_int_equal(kit_swallow(kit, B), 1);
	}
	assert_int_equal(*at, 10);
	*at = 1000;
	for (add.psn = 0; add.psn < 2; add.psn++) {
		kit_inject(kit, B, &add, NULL);
		assert_int_equal(snt__soft_output(kit->end[B].device, out, 4, 0), 1);
		assert_int_equal(snt__wire_decode(out[0].header, out[0].header_length,
						  &packet),
				 0);
		assert_int_equal(packet.opcode, SNT__WIRE_ATOMIC_ACKNOWLEDGE);
		assert_int_equal(packet.ack.original, 5 * add.psn);
	}
	assert_int_equal(*at, 1000);
	/* Elsewhere, or with another key, it is not the same. */
	add.psn = 0;
	add.atomic.addr += 8;
	kit_inject(kit, B, &add, NULL);
	add.atomic.addr -= 8;
	add.atomic.key ^= 1 << 30;
	kit_inject(kit, B, &add, NULL);
	add.atomic.key ^= 1 << 30;
	assert_int_equal(kit_swallow(kit, B), 0);
	assert_int_equal(at[1], 0);
	/* The third takes the place of the first, which is forgotten then. */
	add.psn = 2;
	kit_inject(kit, B, &add, NULL);
	assert_int_equal(kit_swallow(kit, B), 1);
	add.psn = 0;
	kit_inject(kit, B, &add, NULL);
	assert_int_equal(kit_swallow(kit, B), 0);
	assert_int_equal(*at, 1005);
	kit_close(kit);
}

/* The memory of a READ goes away between its responses. */
static void revoked(bool dying)
{
	struct kit *kit = kit_open(NULL);
	struct snt__wire_packet read = packet_for(kit, B, SNT__WIRE_READ_REQUEST, 0, 0);
	struct snt__soft_packet out[2];

	read.reth.addr = (uintptr_t)kit->end[B].bytes + FAR;
	read.reth.key = kit->end[B].mr->rkey;
	read.reth.length = 5000;
	kit_inject(kit, B, &read, NULL);
	if (dying)
		inject(kit, SNT__WIRE_SEND_LAST, 5, 8);
	assert_int_equal(snt__soft_output(kit->end[B].device, out, 2, 0), 2);
	assert_int_equal(kit->control->dereg_mr(kit->end[B].mr), 0);
	kit->end[B].mr = NULL;
	expect_nak(kit, SNT__SYNDROME_NAK_ACCESS, 2);
	assert_int_equal(kit_swallow(kit, B), 0);
	assert_int_equal(kit_state(kit, B), IBV_QPS_ERR);
	kit_expect_event(kit, B,
			 dying ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

static void reads_are_revoked(void **state)
{
	(void)state;
	revoked(false);
	revoked(true);
}

/* A copy of a READ that was answered is late, and its memory gone: it does no harm. */
static void late_copy_of_a_read(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct snt__wire_packet read = packet_for(kit, B, SNT__WIRE_READ_REQUEST, 0, 0);

	(void)state;
	read.reth.addr = (uintptr_t)kit->end[B].bytes + FAR;
	read.reth.key = kit->end[B].mr->rkey;
	read.reth.length = 5000;
	kit_inject(kit, B, &read, NULL);
	assert_int_equal(kit_swallow(kit, B), 5);
	assert_int_equal(kit->control->dereg_mr(kit->end[B].mr), 0);
	kit->end[B].mr = NULL;
	kit_inject(kit, B, &read, NULL);
	/* What waits behind it is answered. */
	inject(kit, SNT__WIRE_WRITE_ONLY, 5, 0);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 5);
	assert_int_equal(kit_state(kit, B), IBV_QPS_RTS);
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

/* A requester that waits for a receive to be posted cannot be hurried. */
static void waiting_is_not_disturbed(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .rnr_retries = 1 });

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND });
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_SEND });
	assert_int_equal(kit_swallow(kit, A), 2);
	for (unsigned i = 0; i < 3; i++) {
		answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_RNR | 12, 0);
		answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_NAK_SEQUENCE, 0);
		assert_int_equal(kit_swallow(kit, A), 0);
	}
	kit_send(kit, A, &(struct kit_send){ .id = 3, .opcode = IBV_WR_SEND });
	assert_int_equal(kit_swallow(kit, A), 0);
	assert_true(snt__soft_deadline(kit->end[A].device) == 640000);
	assert_int_equal(kit_stats(kit, A)->rewinds, 0);
	kit->now = 640000;
	snt__soft_timer(kit->end[A].device, kit->now);
	assert_int_equal(kit_swallow(kit, A), 3);
	/* The first one was received, after all. */
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, 0x1f, 0);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 1, SNT__SYNDROME_RNR | 12, 0);
	kit_expect_none(kit, A);
	kit_close(kit);
}

/* A loss before the wait does not hide one after it. */
static void lost_before_and_after_waiting(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND });
	assert_int_equal(kit_swallow(kit, A), 1);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_NAK_SEQUENCE, 0);
	assert_int_equal(kit_swallow(kit, A), 1);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_NAK_SEQUENCE, 0);
	assert_int_equal(kit_swallow(kit, A), 0);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_RNR | 12, 0);
	kit->now = snt__soft_deadline(kit->end[A].device);
	snt__soft_timer(kit->end[A].device, kit->now);
	assert_int_equal(kit_swallow(kit, A), 1);
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 0, SNT__SYNDROME_NAK_SEQUENCE, 0);
	assert_int_equal(kit_swallow(kit, A), 1);
	kit_close(kit);
}

/* Responses that come after a timeout and before the READ was sent again. */
static void late_responses_count(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = IBV_WR_RDMA_READ, .length = 3 * MTU });
	kit_send(kit, A,
		 &(struct kit_send){ .id = 2,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .flags = IBV_SEND_FENCE });
	assert_int_equal(kit_swallow(kit, A), 1);
	kit_time_out(kit, A);
	answer(kit, SNT__WIRE_READ_RESPONSE_FIRST, 0, 0x1f, MTU);
	answer(kit, SNT__WIRE_READ_RESPONSE_MIDDLE, 1, 0x1f, MTU);
	/* What is left of the READ, and not the WRITE. */
	assert_int_equal(kit_swallow(kit, A), 1);
	answer(kit, SNT__WIRE_READ_RESPONSE_ONLY, 2, 0x1f, MTU);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	assert_int_equal(kit_swallow(kit, A), 1);
	kit_close(kit);
}

/*
 * Lies about loss and time
 */

/* An honest answer at first, so that round trips are known. */
static struct kit *open_known(const struct kit_opts *opts)
{
	struct kit *kit = kit_open(opts);

	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_RDMA_WRITE });
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	return kit;
}

/* A peer that asks for the same packet all the time gets it, and nothing else: the QP
 * fails no later than if it were silent. */
static void naks_do_not_keep_a_qp_alive(void **state)
{
	const uint64_t timeout = UINT64_C(4096) << 14, step = 100000;
	struct kit *kit = open_known(&(struct kit_opts){ .retries = 2 });
	uint64_t begin = kit->now;
	unsigned sent = 0;

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	while (kit_state(kit, A) == IBV_QPS_RTS) {
		sent += kit_swallow(kit, A);
		answer(kit, SNT__WIRE_ACKNOWLEDGE, 1, SNT__SYNDROME_NAK_SEQUENCE, 0);
		kit->now += step;
		if (snt__soft_deadline(kit->end[A].device) <= kit->now)
			snt__soft_timer(kit->end[A].device, kit->now);
	}
	kit_expect(kit, A, 2, IBV_WC_RETRY_EXC_ERR);
	/* The first NAK is a retry, and there is one more. */
	assert_in_range(kit->now - begin, 3 * timeout, 3 * timeout + 10 * step);
	assert_in_range(sent, 1, (kit->now - begin) / step * 3);
	kit_close(kit);
}

/* A clock that leaps, as when a virtual machine was stopped, is no reason to fail, and is
 * forgotten soon. */
static void clock_leaps_are_forgotten(void **state)
{
	struct kit *kit = open_known(NULL);

	(void)state;
	kit_send(kit, A, &(struct kit_send){ .id = 2, .opcode = IBV_WR_RDMA_WRITE });
	kit_swallow(kit, A);
	kit->now += UINT64_C(3600) * 1000000000;
	answer(kit, SNT__WIRE_ACKNOWLEDGE, 1, 0x1f, 0);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 200; i++) {
		kit_send(kit, A, &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE });
		kit_swallow(kit, A);
		answer(kit, SNT__WIRE_ACKNOWLEDGE, 2 + i, 0x1f, 0);
		kit_expect(kit, A, 0, IBV_WC_SUCCESS);
	}
	kit_send(kit, A, &(struct kit_send){ .opcode = IBV_WR_RDMA_WRITE });
	kit_swallow(kit, A);
	assert_in_range(snt__soft_deadline(kit->end[A].device) - kit->now, 1000000,
			2000000);
	kit_close(kit);
}

/* A QP is closed, in any way, while a probe waits to be sent or was sent. */
static void closing_ends_probes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		struct kit *kit = open_known(NULL);
		enum ibv_qp_state to = i % 3 == 1 ? IBV_QPS_RESET : IBV_QPS_ERR;

		kit_send(kit, A,
			 &(struct kit_send){ .id = 2,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .length = 5000 });
		kit_swallow(kit, A);
		kit->now = snt__soft_deadline(kit->end[A].device);
		snt__soft_timer(kit->end[A].device, kit->now);
		assert_int_equal(kit_stats(kit, A)->probes, 1);
		if (i >= 3)
			assert_int_equal(kit_swallow(kit, A), 2);
		if (i % 3 == 2) {
			assert_int_equal(kit->control->destroy_qp(kit->end[A].qp), 0);
			kit->end[A].qp = NULL;
		} else {
			assert_int_equal(kit_modify(kit, A, to), 0);
		}
		assert_int_equal(kit_swallow(kit, A), 0);
		assert_true(snt__soft_deadline(kit->end[A].device) == SNT__SOFT_NEVER);
		kit_run(kit);
		kit_close(kit);
	}
}

/* Probes are sent from memory that is still registered, or not at all. */
static void probes_need_their_memory(void **state)
{
	struct kit *kit = open_known(NULL);

	(void)state;
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 2, .opcode = IBV_WR_RDMA_WRITE, .length = 5000 });
	kit_swallow(kit, A);
	assert_int_equal(kit->control->dereg_mr(kit->end[A].mr), 0);
	kit->end[A].mr = NULL;
	kit->now = snt__soft_deadline(kit->end[A].device);
	snt__soft_timer(kit->end[A].device, kit->now);
	assert_int_equal(kit_swallow(kit, A), 0);
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_LOC_PROT_ERR);
	kit_close(kit);
}

/*
 * Answers that wait to be sent
 */

static void inject_read(struct kit *kit, uint32_t psn, uint32_t length)
{
	inject_write(kit, SNT__WIRE_READ_REQUEST, psn, 0, length);
}

static void inject_add(struct kit *kit, uint32_t psn)
{
	struct snt__wire_packet add = packet_for(kit, B, SNT__WIRE_FETCH_ADD, psn, 0);

	add.atomic.addr = (uintptr_t)kit->end[B].bytes + FAR;
	add.atomic.key = kit->end[B].mr->rkey;
	add.atomic.swap_add = 1;
	kit_inject(kit, B, &add, NULL);
}

/* An ACK for a repetition says no less than the one that was about to be sent. */
static void acks_do_not_go_back(void **state)
{
	struct kit *kit = open_with_receives();

	(void)state;
	inject(kit, SNT__WIRE_SEND_ONLY, 0, 8);
	inject_read(kit, 1, 8);
	assert_int_equal(kit_swallow(kit, B), 1); /* which is the ACK, too */
	inject(kit, SNT__WIRE_SEND_ONLY, 2, 8);
	inject(kit, SNT__WIRE_SEND_ONLY, 0, 8);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 2);
	/* But it does not pass over the READ, whose response may be missing. */
	inject(kit, SNT__WIRE_SEND_ONLY, 0, 8);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 0);
	inject(kit, SNT__WIRE_SEND_ONLY, 2, 8);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 2);
	kit_close(kit);
}

/* A repetition that waits gives way to a new request. */
static void repetition_gives_way(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .dest_reads = 1 });
	struct snt__soft_packet out[4];
	struct snt__wire_packet packet;

	(void)state;
	inject_add(kit, 0);
	assert_int_equal(kit_swallow(kit, B), 1);
	inject_add(kit, 0);
	inject_add(kit, 1);
	assert_int_equal(snt__soft_output(kit->end[B].device, out, 4, 0), 1);
	assert_int_equal(snt__wire_decode(out[0].header, out[0].header_length, &packet),
			 0);
	assert_int_equal(packet.psn, 1);
	assert_int_equal(packet.ack.original, 1);
	assert_int_equal(packet.ack.msn, 2);
	assert_int_equal(kit_state(kit, B), IBV_QPS_RTS);
	kit_close(kit);
}

static void reconnect_b(struct kit *kit)
{
	assert_int_equal(kit_modify(kit, B, IBV_QPS_RESET), 0);
	kit_connect(kit, B);
	assert_int_equal(kit_swallow(kit, B), 0);
}

/* A QP that was reset has forgotten all that went before. */
static void reset_forgets(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .dest_reads = 1 });

	(void)state;
	/* Half a message. */
	kit_recv(kit, B, 70, FAR, 5000);
	inject(kit, SNT__WIRE_SEND_FIRST, 0, MTU);
	reconnect_b(kit);
	inject_write(kit, SNT__WIRE_WRITE_ONLY, 0, 8, 8);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 0);
	/* A NAK. */
	inject(kit, SNT__WIRE_SEND_ONLY, 5, 8);
	reconnect_b(kit);
	inject(kit, SNT__WIRE_SEND_ONLY, 5, 8);
	expect_nak(kit, SNT__SYNDROME_NAK_SEQUENCE, 0);
	/* An atomic that was not answered, or was. */
	reconnect_b(kit);
	inject_add(kit, 0);
	reconnect_b(kit);
	inject_write(kit, SNT__WIRE_WRITE_ONLY, 0, 0, 0);
	expect_nak(kit, SNT__SYNDROME_ACK_UNLIMITED, 0);
	reconnect_b(kit);
	inject_add(kit, 0);
	assert_int_equal(kit_swallow(kit, B), 1);
	assert_int_equal(kit->end[B].bytes[FAR], 2);
	reconnect_b(kit);
	inject_write(kit, SNT__WIRE_WRITE_ONLY, 0, 8, 8);
	assert_int_equal(kit_swallow(kit, B), 1);
	inject_add(kit, 0);
	assert_int_equal(kit_swallow(kit, B), 0); /* there was none in this life */
	/* And a receive. */
	kit_recv(kit, B, 71, FAR, 5000);
	inject(kit, SNT__WIRE_SEND_FIRST, 1, MTU);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_RESET), 0);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_INIT), 0);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_ERR), 0);
	kit_expect_none(kit, B);
	kit_close(kit);
}

/* Every AETH tells how many messages are done. */
static void messages_are_counted(void **state)
{
	struct kit *kit = open_with_receives();
	struct snt__soft_packet out[8];
	struct snt__wire_packet packet;

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		static const uint32_t expected[] = { 2, 3, 4 };

		inject_write(kit, SNT__WIRE_WRITE_ONLY, 0, 8, 8);
		inject_write(kit, SNT__WIRE_WRITE_FIRST, 1, MTU, 2 * MTU);
		inject_write(kit, SNT__WIRE_WRITE_LAST, 2, MTU, 2 * MTU);
		assert_int_equal(snt__soft_output(kit->end[B].device, out, 8, 0), 1);
		inject_read(kit, 3, 8);
		inject_add(kit, 4);
		assert_int_equal(snt__soft_output(kit->end[B].device, out + 1, 7, 0),
				 2);
		for (unsigned i = 0; i < 3; i++) {
			uint8_t bytes[SNT__WIRE_HEADER_MAX + 8] = { 0 };

			memcpy(bytes, out[i].header, out[i].header_length);
			assert_int_equal(snt__wire_decode(bytes,
							  out[i].header_length +
								  out[i].payload_length,
							  &packet),
					 0);
			assert_int_equal(packet.ack.msn, expected[i]);
		}
		reconnect_b(kit);
	}
	kit_close(kit);
}

/* Noise, and packets of which one byte is wrong, in every state. */
static void noise(void **state)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT,
						    IBV_QPS_RTR, IBV_QPS_RTS,
						    IBV_QPS_ERR };
	uint64_t random = 1;

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		struct kit *kit = kit_open(&(struct kit_opts){ .unconnected = true });
		unsigned target = states[round % ARRAY_SIZE(states)];

		kit_connect(kit, A);
		for (unsigned next = IBV_QPS_INIT;
		     next <= (target == IBV_QPS_ERR ? (unsigned)IBV_QPS_RTS : target);
		     next++)
			assert_int_equal(kit_modify(kit, B, next), 0);
		if (target == IBV_QPS_ERR)
			assert_int_equal(kit_modify(kit, B, IBV_QPS_ERR), 0);
		for (unsigned i = 0; i < 100; i++) {
			struct snt__wire_packet packet =
				packet_for(kit, B, (uint8_t)random_below(&random, 0x18),
					   random_below(&random, 3) - 1,
					   random_below(&random, 4)
						   ? random_below(&random, 2000)
						   : MTU);
			unsigned part = snt__wire_opcodes[packet.opcode].parts;

			if (!snt__wire_opcodes[packet.opcode].header_size)
				continue;
			if (!(part & SNT__WIRE_PAYLOAD))
				packet.payload_length = 0;
			packet.reth.addr = (uintptr_t)kit->end[B].bytes +
					   random_below(&random, KIT_BYTES + 100);
			packet.reth.key = kit->end[B].mr->rkey;
			packet.reth.length = random_below(&random, 5000);
			if (part & SNT__WIRE_AETH)
				packet.ack.syndrome =
					(uint8_t)random_below(&random, 256);
			kit_inject(kit, B, &packet, payload);
		}
		kit_swallow(kit, B);
		kit_close(kit);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opcodes_out_of_sequence),
		cmocka_unit_test(a_write_ends_as_a_write),
		cmocka_unit_test(lengths_of_packets),
		cmocka_unit_test(lengths_of_writes),
		cmocka_unit_test(reads_that_are_too_long),
		cmocka_unit_test(too_early),
		cmocka_unit_test(not_for_us),
		cmocka_unit_test(ghosts),
		cmocka_unit_test(bad_responses),
		cmocka_unit_test(every_nak),
		cmocka_unit_test(implied_nak),
		cmocka_unit_test(false_duplicates),
		cmocka_unit_test(atomics_are_replayed),
		cmocka_unit_test(reads_are_revoked),
		cmocka_unit_test(late_copy_of_a_read),
		cmocka_unit_test(waiting_is_not_disturbed),
		cmocka_unit_test(lost_before_and_after_waiting),
		cmocka_unit_test(naks_do_not_keep_a_qp_alive),
		cmocka_unit_test(clock_leaps_are_forgotten),
		cmocka_unit_test(closing_ends_probes),
		cmocka_unit_test(probes_need_their_memory),
		cmocka_unit_test(late_responses_count),
		cmocka_unit_test(acks_do_not_go_back),
		cmocka_unit_test(repetition_gives_way),
		cmocka_unit_test(reset_forgets),
		cmocka_unit_test(messages_are_counted),
		cmocka_unit_test(noise),
	};

	return cmocka_run_group_tests_name("soft_hostile", tests, NULL, NULL);
}
