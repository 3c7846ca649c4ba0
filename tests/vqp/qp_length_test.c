/* SPDX-License-Identifier: MIT */
/*
 * SNT_QP_NOTIFY_LENGTH: notifications that tell the length. What is told is right,
 * whatever the order of events and whichever end dies.
 */
#include "lib/qp_length_kit.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * What is told
 */

static void every_length_is_told(void **state)
{
	static const uint64_t lengths[] = {
		0,
		1,
		7,
		8,
		9,
		FRAGMENT - 1,
		FRAGMENT,
		FRAGMENT + 1,
		2 * FRAGMENT,
		7 * FRAGMENT + 5,
		VQP_BUFFER,
	};
	static const uint32_t inlines[] = { 0, 7, 8, 64 };

	(void)state;
	for (unsigned i = 0; i < 3 * ARRAY_SIZE(inlines); i++) {
		struct vqp_pair *pair = open_asking(1 + i % 3, inlines[i / 3]);

		for (unsigned j = 0; j < ARRAY_SIZE(lengths); j++) {
			post_notify(pair, 1, j);
			write_from(pair, 0, 100 + j, lengths[j]);
			expect_length(pair, 1, j, lengths[j]);
			expect(pair, 0, 100 + j, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

/* Those that are kept in the ring before they go. */
static void every_kind_of_wr_is_told(void **state)
{
	struct vqp_pair *pair = open_asking(2, 64);
	struct snt_sge sge[2];
	struct snt_send_wr wr = vqp_wr(pair, 0, sge, SNT_OP_WRITE_IMM, 0, FRAGMENT + 1);

	(void)state;
	sge[1] =
		(struct snt_sge){ pair->end[0].mem, pair->end[0].buffer, 2 * FRAGMENT };
	wr.sge_count = 2;
	post_notify(pair, 1, 1);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	wr.sge_count = 1;
	wr.flags |= SNT_SEND_INLINE;
	sge[0].length = 61;
	post_notify(pair, 1, 2);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	wr.flags = SNT_SEND_SIGNALED | SNT_SEND_FENCE | SNT_SEND_SOLICITED;
	sge[0].length = 3 * FRAGMENT;
	post_notify(pair, 1, 3);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	expect_length(pair, 1, 1, 3 * FRAGMENT + 1);
	expect_length(pair, 1, 2, 61);
	expect_length(pair, 1, 3, 3 * FRAGMENT);
	vqp_pair_close(pair);
}

/* Little memory, mapped as often as it takes. */
static void *map_often(size_t length)
{
	char *at = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("qp_length_test", MFD_CLOEXEC);
	const size_t period = 16 << 20;

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, period), 0);
	for (size_t offset = 0; offset < length; offset += period) {
		size_t part = length - offset < period ? length - offset : period;

		assert_ptr_not_equal(mmap(at + offset, part, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_FIXED, fd, 0),
				     MAP_FAILED);
	}
	close(fd);
	return at;
}

static void more_than_4_gib_are_told(void **state)
{
	const uint64_t length = (UINT64_C(4) << 30) + 4097;
	struct snt_qp_opts sends = options(0), receives = options(ASKS);
	void *huge = map_often(length);
	struct vqp_pair *pair;

	(void)state;
	sends.fragment_size = receives.fragment_size = UINT64_C(1) << 30;
	pair = make_pair(1, sends, receives);
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		assert_success(snt_mem_release(end->mem));
		assert_success(snt_mem_register(end->ctx, huge, length,
						SNT_ACCESS_LOCAL_WRITE |
							SNT_ACCESS_REMOTE_WRITE,
						&end->mem));
		assert_success(snt_mem_token(end->mem, &end->token));
		free(end->buffer);
		end->buffer = huge;
	}
	vqp_pair_connect(pair);
	post_notify(pair, 1, 1);
	write_from(pair, 0, 2, length);
	expect_length(pair, 1, 1, length);
	pair->end[0].buffer = pair->end[1].buffer = NULL;
	vqp_pair_close(pair);
	munmap(huge, length);
}

/* A notification is one WR, with or without. */
static void a_length_costs_no_wr(void **state)
{
	struct vqp_pair *pair = open_asking(2, 0);
	unsigned lanes = snt_qp_lane_count(pair->end[0].qp);

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		post_notify(pair, 1, i);
		write_from(pair, 0, i, i);
		expect_length(pair, 1, i, i);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(lane_info(pair, 0, lanes + i).fragments, 20);
	vqp_pair_close(pair);
}

/* Each end that asks has a mailbox, and the other, for want of inline, words that
 * are registered to be sent. */
static void each_direction_is_on_its_own(void **state)
{
	(void)state;
	for (unsigned asking = 0; asking < 4; asking++) {
		struct vqp_pair *pair = make_pair(2, options(asking & 1 ? ASKS : 0),
						  options(asking & 2 ? ASKS : 0));

		vqp_pair_connect(pair);
		for (unsigned end = 0; end < 2; end++) {
			bool asks = asking >> end & 1, is_asked = asking >> !end & 1;

			assert_int_equal(regions(pair, end), 1 + asks + is_asked);
			post_notify(pair, end, 7);
			write_from(pair, !end, 8, 3 * FRAGMENT);
			if (asks)
				expect_length(pair, end, 7, 3 * FRAGMENT);
			else
				expect_no_length(pair, end, 7);
			expect(pair, !end, 8, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

static void inline_needs_no_memory_of_the_sender(void **state)
{
	struct vqp_pair *pair = open_asking(1, 8);

	(void)state;
	assert_int_equal(regions(pair, 0), 1);
	assert_int_equal(regions(pair, 1), 2);
	vqp_pair_close(pair);
}

/* Devices and notify lanes that differ at the two ends. */
static void ends_that_are_not_alike_tell(void **state)
{
	static const struct {
		unsigned devices[2], lanes[2], notify[2];
	} cases[] = {
		{ { 1, 2 }, { 4, 4 }, { 2, 0 } }, { { 3, 1 }, { 6, 6 }, { 0, 3 } },
		{ { 2, 3 }, { 6, 5 }, { 3, 3 } }, { { 1, 4 }, { 2, 7 }, { 4, 4 } },
		{ { 1, 1 }, { 1, 1 }, { 0, 0 } },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snt_qp_opts opts[2];
		const struct snt_qp_opts *const both[] = { &opts[0], &opts[1] };
		struct vqp_pair *pair;

		for (unsigned end = 0; end < 2; end++) {
			opts[end] = options(ASKS);
			opts[end].lanes = cases[i].lanes[end];
			opts[end].notify_lanes = cases[i].notify[end];
			opts[end].recv_depth = 3 + 4 * end;
		}
		pair = vqp_pair_make(cases[i].devices, both);
		vqp_pair_connect(pair);
		for (uint64_t j = 0; j < 20; j++) {
			unsigned end = j % 2;

			post_notify(pair, end, j);
			write_from(pair, !end, j, j * FRAGMENT + j);
			expect_length(pair, end, j, j * FRAGMENT + j);
			expect(pair, !end, j, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

/* Mailbox and words are of the devices that the first notify lane joins, which need
 * not be the first ones. */
static void keys_are_those_of_the_lane(void **state)
{
	static const uint32_t masks[][2] = { { 6, 4 }, { 4, 6 }, { 2, 5 }, { 1, 2 } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(masks); i++) {
		struct snt_qp_opts opts[2] = { options(ASKS), options(ASKS) };
		struct vqp_pair *pair;

		for (unsigned end = 0; end < 2; end++) {
			opts[end].devices = masks[i][end];
			opts[end].notify_lanes = 2;
		}
		pair = make_pair(3, opts[0], opts[1]);
		vqp_pair_connect(pair);
		for (unsigned end = 0; end < 2; end++) {
			post_notify(pair, end, 1);
			write_from(pair, !end, 2, 12345);
			expect_length(pair, end, 1, 12345);
			expect(pair, !end, 2, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

/* As peers of other byte orders read it. */
static void slots_are_written_in_turn_and_network_order(void **state)
{
	static const unsigned char expected[] = { 0, 0, 0, 0, 0, 3, 0x12, 0x34, 0,
						  0, 0, 0, 0, 0, 0, 7,	  0 };
	struct vqp_pair *pair = open_asking(1, 0);
	struct snt_card card;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card));
	for (unsigned i = 0; i < 2; i++) {
		post_notify(pair, 1, i);
		write_from(pair, 0, i, i ? 7 : 0x31234);
		expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	}
	assert_memory_equal((void *)(uintptr_t)card.mailbox_addr, expected,
			    sizeof(expected));
	vqp_pair_close(pair);
}

/*
 * In any order
 */

/* What a device may do that finds no receive for the write which is next on its lane,
 * if it looks for one when the bytes are placed already. */
static void write_too_early(struct vqp_pair *pair)
{
	struct ibv_qp *lane = first_notify_lane(pair, 0);
	struct scripted_send sent;

	for (unsigned i = 0; !scripted_peek(lane, i, &sent); i++) {
		const void *bytes = sent.inline_bytes;

		if (sent.landed)
			continue;
		if (!(sent.wr.send_flags & IBV_SEND_INLINE))
			bytes = (const void *)(uintptr_t)sent.sge[0].addr;
		memcpy((void *)(uintptr_t)sent.wr.wr.rdma.remote_addr, bytes, 8);
		return;
	}
}

static uint64_t length_of(uint64_t number)
{
	return number * 37 % (4 * FRAGMENT);
}

struct race {
	struct vqp_pair *pair;
	uint64_t random;
	uint64_t sent, received, posted;
};

static void send_some(struct race *race, uint64_t total)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(race->pair, 0, &sge, SNT_OP_WRITE_IMM, 0, 0);

	wr.flags = 0;
	for (; race->sent < total; race->sent++) {
		wr.imm = race->sent;
		sge.length = length_of(race->sent);
		if (snt_qp_post_send(race->pair->end[0].qp, &wr, 1) != 1)
			return;
	}
}

static void receive_some(struct race *race, unsigned max)
{
	struct snt_wc wc[4];
	int count = snt_cq_poll(race->pair->end[1].cq, wc, max);

	assert_success(count);
	for (int i = 0; i < count; i++) {
		assert_int_equal(wc[i].status, SNT_WC_SUCCESS);
		assert_int_equal(wc[i].wr_id, race->received);
		assert_int_equal(wc[i].imm, race->received);
		assert_int_equal(wc[i].flags, SNT_WC_WITH_IMM);
		assert_int_equal(wc[i].length, length_of(race->received));
		race->received++;
	}
}

static void post_some(struct race *race)
{
	struct snt_recv_wr recv = { 0 };

	do
		recv.wr_id = race->posted;
	while (snt_qp_post_recv(race->pair->end[1].qp, &recv, 1) == 1 &&
	       ++race->posted);
}

/* The receiver polls rarely, and not all of its CQs; the sender never waits. */
static void run_race(struct race *race, uint64_t total)
{
	struct snt_cq *cq = race->pair->end[1].cq;

	while (race->received < total) {
		uint32_t dice = race->random >> 33;

		write_too_early(race->pair);
		scripted_step(race->pair->fabric, &race->random);
		race->random = race->random * 6364136223846793005u + 1;
		if (dice % 4 == 0)
			snt_cq_poll(race->pair->end[0].cq, &(struct snt_wc){ 0 }, 1);
		if (dice % 8 == 1)
			send_some(race, total);
		if (dice % 64 == 2)
			post_some(race);
		if (dice % 32 == 3)
			for (unsigned i = 0; i < snt_cq_count(cq); i++)
				scripted_hold_cq(snt_cq_physical(cq, i, NULL),
						 dice >> (10 + i) & 1);
		if (dice % 32 == 4)
			receive_some(race, 1 + dice / 64 % 4);
	}
	for (unsigned i = 0; i < snt_cq_count(cq); i++)
		scripted_hold_cq(snt_cq_physical(cq, i, NULL), false);
}

static void a_slow_receiver_reads_every_length(void **state)
{
	static const uint32_t depths[] = { 1, 2, 3, 4, 7, 8 };
	const uint64_t total = 300; /* many times round the mailbox */

	(void)state;
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(depths); i++) {
		struct snt_qp_opts sends = options(0), receives = options(ASKS);
		struct race race = { .random = i };

		sends.inline_max = i % 2 ? 8 : 0;
		receives.recv_depth = depths[i / 4];
		race.pair = make_pair(1 + i / 2 % 2, sends, receives);
		vqp_pair_connect(race.pair);
		run_race(&race, total);
		vqp_pair_close(race.pair);
	}
}

/* The last lane to complete must not matter, nor when the completion is reported. */
static void a_length_is_read_with_its_own_lane(void **state)
{
	(void)state;
	for (unsigned held = 0; held < 2; held++) {
		struct vqp_pair *pair = open_asking(2, 0);
		struct ibv_cq *cq = scripted_cq_at(pair->end[1].device[held], 0);

		post_notify(pair, 1, 1);
		post_notify(pair, 1, 2);
		write_from(pair, 0, 1, 111);
		write_from(pair, 0, 2, 222);
		scripted_hold_cq(cq, true);
		vqp_expect_none(pair, 1);
		scripted_hold_cq(cq, false);
		expect_length(pair, 1, 1, 111);
		expect_length(pair, 1, 2, 222);
		vqp_pair_close(pair);
	}
}

/* Chains of notifications of which the device takes a part. */
static void partly_refused_notifications_are_told(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < 8; shape++) {
		struct vqp_pair *pair = open_asking(1 + shape % 2, shape & 2 ? 8 : 0);
		struct scripted_post_fault fault = {
			.qp = first_notify_lane(pair, 0),
			.kind = SCRIPTED_POST_SEND,
			.error = ENOMEM,
			.mode = SCRIPTED_ACCEPT_SOME,
			.accept = 1 + shape / 4,
		};

		for (unsigned i = 0; i < 6; i++) {
			post_notify(pair, 1, i);
			write_from(pair, 0, i, 1000 + i);
		}
		scripted_fail_post(pair->end[0].device[0], &fault);
		for (unsigned i = 0; i < 6; i++)
			expect_length(pair, 1, i, 1000 + i);
		assert_true(lane_info(pair, 0, 4).doorbells > 1);
		vqp_pair_close(pair);
	}
}

static void programs_that_poll_by_themselves_are_told(void **state)
{
	struct vqp_pair *pair = open_asking(2, 0);
	struct snt_cq *cq = pair->end[1].cq;
	struct snt_wc wc = { 0 };
	int found = 0;

	(void)state;
	post_notify(pair, 1, 7);
	write_from(pair, 0, 1, 2 * FRAGMENT);
	for (unsigned round = 0; !found && round < 100; round++) {
		vqp_pair_run(pair, round);
		assert_success(snt_cq_poll(pair->end[0].cq, &wc, 1));
		for (unsigned i = 0; !found && i < snt_cq_count(cq); i++) {
			unsigned device;
			struct ibv_cq *physical = snt_cq_physical(cq, i, &device);
			struct ibv_wc cqe;
			int count = ibv_poll_cq(physical, 1, &cqe);

			found = snt_qp_complete(pair->end[1].qp, device, &cqe, count,
						&wc, 1);
		}
	}
	assert_int_equal(found, 1);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.flags, SNT_WC_WITH_IMM);
	assert_int_equal(wc.length, 2 * FRAGMENT);
	vqp_pair_close(pair);
}

/*
 * Ends of lanes and lives
 */

/* The bytes may be there without the notification; that is not one. */
static void a_lane_that_dies_tells_nothing(void **state)
{
	(void)state;
	for (unsigned landed = 0; landed < 2; landed++) {
		struct vqp_pair *pair = open_asking(1, 0);
		struct ibv_qp *lane = first_notify_lane(pair, 0);

		for (unsigned i = 1; i <= 3; i++) {
			post_notify(pair, 1, i);
			write_from(pair, 0, i, 100 * i);
		}
		for (unsigned i = 0; i < 4; i++)
			while (!scripted_complete(lane_qp(pair, 0, i), IBV_WC_SUCCESS))
				;
		assert_int_equal(snt_cq_poll(pair->end[0].cq, &(struct snt_wc){ 0 }, 1),
				 0);
		assert_int_equal(scripted_pending(lane), 3);
		assert_int_equal(scripted_complete(lane, IBV_WC_SUCCESS), 0);
		if (landed)
			assert_int_equal(scripted_land(lane), 0);
		else
			write_too_early(pair);
		assert_int_equal(scripted_complete(lane, IBV_WC_RETRY_EXC_ERR), 0);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_RETRY_EXC_ERR);
		expect(pair, 0, 3, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		expect_length(pair, 1, 1, 100);
		if (landed)
			expect_length(pair, 1, 2, 200);
		vqp_expect_none(pair, 1);
		/* Data lanes go on, and what cannot be announced fails. */
		write_from(pair, 0, 9, 5);
		expect(pair, 0, 9, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		vqp_pair_close(pair);
	}
}

static void close_and_reset(struct vqp_pair *pair)
{
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_qp_close(pair->end[end].qp, 77));
		while (vqp_poll(pair, end).opcode != SNT_OP_CLOSED)
			;
	}
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_reset(pair->end[end].qp));
}

/* Each life counts from 0, at both ends, with the memory of the first. */
static void every_life_tells(void **state)
{
	struct snt_qp_opts opts = options(ASKS);
	struct vqp_pair *pair;

	(void)state;
	opts.recv_depth = 5; /* 8 slots */
	pair = make_pair(2, opts, opts);
	for (unsigned life = 0; life < 4; life++) {
		vqp_pair_connect(pair);
		assert_int_equal(regions(pair, 0), 3);
		for (unsigned i = 0; i < 3 + 10 * life; i++) {
			post_notify(pair, 1, i);
			write_from(pair, 0, i, 1000 * life + i);
			expect_length(pair, 1, i, 1000 * life + i);
			expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		post_notify(pair, 1, 50);
		close_and_reset(pair);
	}
	vqp_pair_close(pair);
}

/* A peer that asks is followed by one that does not, and the other way round. */
static void next_peer_may_want_lengths_or_not(void **state)
{
	struct vqp_pair *pair = open_asking(1, 0);
	struct snt_card card[2];

	(void)state;
	for (unsigned life = 0; life < 4; life++) {
		bool asked = life % 2;
		struct scripted_send sent;

		close_and_reset(pair);
		for (unsigned end = 0; end < 2; end++)
			assert_success(snt_qp_card(pair->end[end].qp, &card[end]));
		if (!asked) {
			card[1].flags = 0;
			card[1].mailbox_addr = card[1].mailbox_slots = 0;
		}
		for (unsigned end = 0; end < 2; end++)
			assert_success(snt_qp_connect(pair->end[end].qp, &card[!end]));
		write_from(pair, 0, 1, 600);
		for (unsigned i = 0; scripted_pending(first_notify_lane(pair, 0)) == 0;
		     i++) {
			vqp_pair_run(pair, i);
			assert_success(
				snt_cq_poll(pair->end[0].cq, &(struct snt_wc){ 0 }, 1));
		}
		assert_int_equal(scripted_peek(first_notify_lane(pair, 0), 0, &sent),
				 0);
		assert_int_equal(sent.wr.num_sge, asked);
		post_notify(pair, 1, 1);
		if (asked)
			expect_length(pair, 1, 1, 600);
		else
			expect(pair, 1, 1, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	}
	vqp_pair_close(pair);
}

/*
 * Hostile peers
 */

static void a_mailbox_of_garbage_is_a_wrong_length(void **state)
{
	struct vqp_pair *pair = open_asking(2, 0);
	struct snt_card card;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card));
	for (unsigned i = 0; i < 3; i++)
		post_notify(pair, 1, i);
	for (unsigned i = 0; i < 2; i++)
		write_from(pair, 0, i, 5);
	/* Landed, and not yet looked at. */
	for (unsigned i = 0; i < 10; i++) {
		vqp_pair_run(pair, i);
		snt_cq_poll(pair->end[0].cq, &(struct snt_wc){ 0 }, 1);
	}
	memset((void *)(uintptr_t)card.mailbox_addr, 0xff, 8 * card.mailbox_slots);
	expect_length(pair, 1, 0, UINT64_MAX);
	expect_length(pair, 1, 1, UINT64_MAX);
	write_from(pair, 0, 2, 5);
	expect_length(pair, 1, 2, 5);
	vqp_pair_close(pair);
}

/* An end that gives a wrong key loses the lane by it, at both ends, and nothing
 * more. */
static void a_false_mailbox_fails_the_notification(void **state)
{
	struct vqp_pair *pair = make_pair(1, options(0), options(ASKS));
	struct snt_card card[2];

	(void)state;
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_card(pair->end[end].qp, &card[end]));
	card[1].mailbox_addr -= 8 * (uint64_t)card[1].mailbox_slots;
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_connect(pair->end[end].qp, &card[!end]));
	post_notify(pair, 1, 1);
	write_from(pair, 0, 1, 5);
	expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_REM_ACCESS_ERR);
	expect(pair, 1, 1, SNT_OP_RECV_NOTIFY, SNT_WC_FLUSHED);
	send_wr(pair, SNT_OP_WRITE, 2, 3);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_length_is_told),
		cmocka_unit_test(every_kind_of_wr_is_told),
		cmocka_unit_test(more_than_4_gib_are_told),
		cmocka_unit_test(a_length_costs_no_wr),
		cmocka_unit_test(each_direction_is_on_its_own),
		cmocka_unit_test(inline_needs_no_memory_of_the_sender),
		cmocka_unit_test(ends_that_are_not_alike_tell),
		cmocka_unit_test(keys_are_those_of_the_lane),
		cmocka_unit_test(slots_are_written_in_turn_and_network_order),
		cmocka_unit_test(a_slow_receiver_reads_every_length),
		cmocka_unit_test(a_length_is_read_with_its_own_lane),
		cmocka_unit_test(partly_refused_notifications_are_told),
		cmocka_unit_test(programs_that_poll_by_themselves_are_told),
		cmocka_unit_test(a_lane_that_dies_tells_nothing),
		cmocka_unit_test(every_life_tells),
		cmocka_unit_test(next_peer_may_want_lengths_or_not),
		cmocka_unit_test(a_mailbox_of_garbage_is_a_wrong_length),
		cmocka_unit_test(a_false_mailbox_fails_the_notification),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
