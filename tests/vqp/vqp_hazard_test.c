/* SPDX-License-Identifier: MIT */
/*
 * Mistakes that virtual QPs elsewhere have made, one regression test or more for
 * each, named after it. Tests go by what a program and its peer can see.
 *
 * Not here:
 * H10, H11, H16, H21 to H23, which are about receiving: vqp_scenario_test.c.
 * H14 device lists: select_test.c. H19 moved-from objects: C has none; leaks are
 * counted by every test that closes its fabric. H24, H25 malformed cards:
 * card_test.c and the fuzzers. H26, H15 nonsense sizes, H12's frees in the wrong
 * order and undone constructions: vqp_create_test.c too.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <sys/mman.h>

#include "lib/vqp_kit.h"
#include "vqp/qp.h"

static void refuse(struct vqp_pair *pair, struct ibv_qp *qp, unsigned nth,
		   enum scripted_post_mode mode, unsigned accept)
{
	struct scripted_post_fault fault = {
		.qp = qp, .nth = nth, .error = ENOMEM, .mode = mode, .accept = accept
	};

	scripted_fail_post(pair->end[0].device[0], &fault);
}

static void h1_error_cqes_are_not_routed_by_opcode(void **state)
{
	(void)state;
	/* The garbage in error CQEs changes from one to the next. */
	for (unsigned i = 0; i < 32; i++) {
		struct vqp_pair *pair =
			open_pair(1, 4, i % 2 ? SNT_SCHEME_SPRAY : SNT_SCHEME_DQPLB);
		unsigned dead = i / 2 % 4;

		post_data(pair, 0, 7, 0, 64);
		post_notify(pair, 0, 8);
		for (unsigned lane = 0; lane < 4; lane++)
			send_wr(pair, SNT_OP_WRITE, 1000 + lane, 1);
		assert_int_equal(scripted_complete(lane_qp(pair, 0, dead),
						   IBV_WC_RETRY_EXC_ERR),
				 0);
		for (unsigned lane = 0; lane < 4; lane++) {
			struct snt_wc wc = vqp_poll(pair, 0);

			/* A dead lane 0 is also that of the data receive. */
			while (wc.opcode == SNT_OP_RECV ||
			       wc.opcode == SNT_OP_RECV_NOTIFY) {
				assert_in_range(wc.wr_id, 7, 8);
				assert_int_equal(wc.status, SNT_WC_FLUSHED);
				wc = vqp_poll(pair, 0);
			}
			assert_int_equal(wc.wr_id, 1000 + lane);
			assert_int_equal(wc.opcode, SNT_OP_WRITE);
			if (lane == dead)
				assert_int_equal(wc.status, SNT_WC_RETRY_EXC_ERR);
		}
		vqp_pair_close(pair);
	}
}

static void h2_a_dead_lane_is_not_used(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
	struct snt_lane_info before;
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 1), IBV_WC_REM_ACCESS_ERR),
			 0);
	wc = expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.lane, 1);
	before = lane_info(pair, 0, 1);
	assert_false(before.alive);
	assert_int_equal(before.errors, 1);
	for (unsigned i = 0; i < 40; i++) {
		send_wr(pair, SNT_OP_WRITE, 10 + i, 1);
		expect(pair, 0, 10 + i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	}
	assert_int_equal(lane_info(pair, 0, 1).fragments, before.fragments);
	vqp_pair_close(pair);
}

static void h2_without_any_lane_posts_are_refused(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 2);
	for (unsigned i = 0; i < 2; i++)
		scripted_complete(lane_qp(pair, 0, i), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(try_send(pair, SNT_OP_WRITE, 2, 1), -ESHUTDOWN);
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

static void h3_no_notification_after_a_failed_fragment(void **state)
{
	(void)state;
	for (unsigned dead = 0; dead < 4; dead++) {
		struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);

		post_notify(pair, 1, 5);
		send_wr(pair, SNT_OP_WRITE_IMM, 1, 4);
		/* The bytes have landed, only the ACK was lost: still a failure. */
		assert_int_equal(scripted_land(lane_qp(pair, 0, dead)), 0);
		scripted_complete(lane_qp(pair, 0, dead), IBV_WC_RETRY_EXC_ERR);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_RETRY_EXC_ERR);
		vqp_expect_none(pair, 1);
		/* The next one uses the receive that is left. */
		send_wr(pair, SNT_OP_WRITE_IMM, 2, 4);
		expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		assert_int_equal(expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, 0).imm, 2);
		vqp_pair_close(pair);
	}
}

static void h3_no_ordering_point_after_an_earlier_failure(void **state)
{
	static const unsigned opcodes[] = { SNT_OP_WRITE_IMM, SNT_OP_SEND };
	struct vqp_pair *pair;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
		post_notify(pair, 1, 5);
		post_data(pair, 1, 5, 0, FRAGMENT);
		send_wr(pair, SNT_OP_WRITE, 1, 4);
		send_wr(pair, opcodes[i], 2, 1);
		scripted_complete(lane_qp(pair, 0, 3), IBV_WC_RETRY_EXC_ERR);
		expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
		expect(pair, 0, 2, opcodes[i], SNT_WC_FLUSHED);
		vqp_expect_none(pair, 1);
		send_wr(pair, opcodes[i], 3, 1);
		expect(pair, 0, 3, opcodes[i], SNT_WC_SUCCESS);
		assert_int_equal(vqp_poll(pair, 1).wr_id, 5);
		vqp_pair_close(pair);
	}
}

/* Not even when positions have wrapped, in a few minutes of traffic. */
static void h3_a_reported_failure_is_forgotten(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
	struct snt_qp *qp = pair->end[0].qp;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	send_wr(pair, SNT_OP_WRITE, 2, 1);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_SUCCESS);
	qp->head = qp->ordered = qp->next = qp->tail += (1u << 31) + 16;
	post_notify(pair, 1, 5);
	send_wr(pair, SNT_OP_WRITE_IMM, 3, 1);
	expect(pair, 0, 3, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h3_the_first_error_is_the_status(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	scripted_complete(lane_qp(pair, 0, 2), IBV_WC_REM_OP_ERR);
	scripted_complete(lane_qp(pair, 0, 1), IBV_WC_RETRY_EXC_ERR);
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_SUCCESS);
	assert_int_equal(expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_REM_OP_ERR).lane, 2);
	vqp_pair_close(pair);
}

/* One completion, and no second life afterwards: memory may be used again at once. */
static void expect_one_end(struct vqp_pair *pair, bool success)
{
	struct snt_wc wc = vqp_poll(pair, 0);
	unsigned char *here = pair->end[0].buffer, *there = pair->end[1].buffer;

	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status == SNT_WC_SUCCESS, success);
	if (success)
		assert_memory_equal(here, there, 8 * FRAGMENT);
	memset(here, 0xee, 8 * FRAGMENT);
	memset(there, 0, 8 * FRAGMENT);
	vqp_expect_none(pair, 0);
	for (unsigned i = 0; i < 8 * FRAGMENT; i++)
		assert_int_equal(there[i], 0);
	send_wr(pair, SNT_OP_WRITE, 2, 8);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_memory_equal(here, there, 8 * FRAGMENT);
	vqp_pair_close(pair);
}

static struct vqp_pair *open_filled(void)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);

	for (unsigned i = 0; i < 8 * FRAGMENT; i++)
		pair->end[0].buffer[i] = i % 251;
	return pair;
}

static void h4_a_refused_fragment_ends_in_a_completion(void **state)
{
	struct vqp_pair *pair = open_filled();

	(void)state;
	refuse(pair, lane_qp(pair, 0, 1), 1, SCRIPTED_REFUSE_ALL, 0);
	send_wr(pair, SNT_OP_WRITE, 1, 8);
	expect_one_end(pair, false);
}

/* One fragment has a way of its own, where there is no chain. */
static void h4_a_refused_wr_of_one_fragment_ends_in_a_completion(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);

	(void)state;
	refuse(pair, lane_qp(pair, 0, 1), 1, SCRIPTED_REFUSE_ALL, 0);
	for (unsigned i = 1; i <= 4; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_FLUSHED);
	expect(pair, 0, 3, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect(pair, 0, 4, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

/* In DQPLB lanes end together, also in the middle of a WR: those whose turn would come
 * get nothing of it any more. */
static void h4_lanes_that_end_with_another_are_not_posted_to(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	refuse(pair, lane_qp(pair, 0, 1), 1, SCRIPTED_REFUSE_ALL, 0);
	send_wr(pair, SNT_OP_WRITE, 1, 8);
	assert_int_equal(lane_info(pair, 0, 0).doorbells, 1);
	assert_int_equal(lane_info(pair, 0, 1).doorbells, 1);
	assert_int_equal(lane_info(pair, 0, 2).doorbells, 0);
	assert_int_equal(lane_info(pair, 0, 3).doorbells, 0);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_FLUSHED);
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

static void h4_a_chain_that_was_taken_in_part_goes_on(void **state)
{
	(void)state;
	for (unsigned accept = 1; accept < 4; accept++) {
		struct vqp_pair *pair = open_filled();
		struct ibv_qp *qp = lane_qp(pair, 0, 1);

		refuse(pair, qp, 1, SCRIPTED_ACCEPT_SOME, accept);
		if (accept < 3)
			refuse(pair, qp, 2, SCRIPTED_ACCEPT_SOME, 1);
		send_wr(pair, SNT_OP_WRITE, 1, 8);
		expect_one_end(pair, true);
	}
}

/* The rest of a chain, of which no completion will come by since what was taken is
 * unsignalled; or the marker of the lane that dies of the first refusal. */
static void h4_a_second_refusal_ends_in_a_completion(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_pair *pair = open_filled();
		struct ibv_qp *qp = lane_qp(pair, 0, 1);

		refuse(pair, qp, 1, i ? SCRIPTED_REFUSE_ALL : SCRIPTED_ACCEPT_SOME, 2);
		refuse(pair, qp, 2, SCRIPTED_REFUSE_ALL, 0);
		send_wr(pair, SNT_OP_WRITE, 1, 8);
		expect_one_end(pair, false);
	}
}

/* rxe can take a chain and then say that it did not. */
static void h4_a_lie_about_what_was_taken(void **state)
{
	static const enum scripted_post_mode modes[] = { SCRIPTED_QUEUE_ALL_BAD_FIRST,
							 SCRIPTED_QUEUE_ALL_BAD_NULL };

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct vqp_pair *pair = open_filled();
		struct scripted_post_fault lie = { .qp = lane_qp(pair, 0, 1),
						   .error = EIO,
						   .mode = modes[i % 2] };
		unsigned char *there = pair->end[1].buffer;
		struct snt_wc wc;

		if (i / 2) /* with something under way already */
			send_wr(pair, SNT_OP_WRITE, 7, 2);
		scripted_fail_post(pair->end[0].device[0], &lie);
		send_wr(pair, SNT_OP_WRITE, 8, 4);
		do
			wc = vqp_poll(pair, 0);
		while (wc.wr_id != 8);
		/* Retired: the peer's bytes must not change any more. */
		memset(pair->end[0].buffer, 0xee, 8 * FRAGMENT);
		memset(there, 0, 8 * FRAGMENT);
		vqp_expect_none(pair, 0);
		for (unsigned at = 0; at < 8 * FRAGMENT; at++)
			assert_int_equal(there[at], 0);
		vqp_pair_close(pair);
	}
}

static void h5_a_failed_post_inside_of_a_poll_loses_nothing(void **state)
{
	(void)state;
	for (unsigned nth = 2; nth < 12; nth++) {
		struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
		unsigned failed = 0;

		refuse(pair, lane_qp(pair, 0, 0), nth, SCRIPTED_REFUSE_ALL, 0);
		for (unsigned i = 0; i < 20; i++)
			send_wr(pair, SNT_OP_WRITE, 100 + i, 3);
		for (unsigned i = 0; i < 20; i++) {
			struct snt_wc wc = vqp_poll(pair, 0);

			assert_int_equal(wc.wr_id, 100 + i);
			failed += wc.status != SNT_WC_SUCCESS;
		}
		assert_true(failed <= 8); /* a lane's depth */
		vqp_expect_none(pair, 0);
		vqp_pair_close(pair);
	}
}

static void h5_a_failed_poll_loses_nothing(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_wc wc[8];
	int total = 0;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	send_wr(pair, SNT_OP_WRITE, 2, 1);
	vqp_pair_run(pair, 3);
	scripted_fail_poll(snt_cq_physical(pair->end[0].cq, 1, NULL), 1);
	for (unsigned i = 0; i < 8; i++) {
		int count = snt_cq_poll(pair->end[0].cq, wc, 1);

		if (count < 0)
			assert_error(count, EIO, "scripted1");
		else
			total += count;
		if (count > 0)
			assert_int_equal(wc[0].wr_id, total);
	}
	assert_int_equal(total, 2);
	vqp_pair_close(pair);
}

static void h6_a_sequence_ends_after_earlier_plain_writes(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	send_wr(pair, SNT_OP_WRITE_IMM, 2, 1);
	for (unsigned lane = 1; lane < 4; lane++)
		assert_int_equal(scripted_pending(lane_qp(pair, 0, lane)), 0);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h6_plain_writes_and_reads_take_no_sequence_number(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		post_notify(pair, 1, i);
		send_wr(pair, SNT_OP_WRITE, 1, 3);
		send_wr(pair, SNT_OP_READ, 2, 3);
		send_wr(pair, SNT_OP_WRITE_IMM, 3, 3);
		for (unsigned j = 1; j <= 3; j++)
			assert_int_equal(vqp_poll(pair, 0).wr_id, j);
		assert_int_equal(expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS)
					 .length,
				 3 * FRAGMENT);
	}
	vqp_pair_close(pair);
}

/* A hole in the sequence cannot be healed; both ends must learn of it. */
static void h7_a_lost_sequence_number_ends_the_qp(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	post_notify(pair, 1, 5);
	refuse(pair, lane_qp(pair, 0, 1), 1, SCRIPTED_REFUSE_ALL, 0);
	send_wr(pair, SNT_OP_WRITE_IMM, 1, 4);
	assert_int_not_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
	assert_int_equal(try_send(pair, SNT_OP_WRITE_IMM, 2, 1), -ESHUTDOWN);
	vqp_expect_none(pair, 1);
	assert_success(snt_qp_close(pair->end[1].qp, 6));
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_FLUSHED);
	expect(pair, 1, 6, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

#define GIB (UINT64_C(1) << 30)

/* Two ends, one device each, that move no bytes and so may have any length. */
static struct vqp_pair *open_huge_pair(uint64_t fragment_size)
{
	const struct scripted_device_opts device = { .move_no_bytes = true };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .fragment_size = fragment_size };
	struct vqp_pair *pair = calloc(1, sizeof(*pair));
	struct snt_card card[2];

	pair->fabric = scripted_fabric_create(1);
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];
		struct snt_adopted adopted;
		struct snt_ctx_opts ctx = { .size = sizeof(ctx),
					    .adopted = &adopted,
					    .adopted_count = 1 };

		end->device[0] = scripted_device_create(pair->fabric, &device);
		adopted = scripted_adopted(end->device[0]);
		assert_success(snt_ctx_create(&ctx, &end->ctx));
		assert_success(snt_cq_create(end->ctx, NULL, &end->cq));
		opts.cq = end->cq;
		assert_success(snt_qp_create(end->ctx, &opts, &end->qp));
		assert_success(snt_qp_card(end->qp, &card[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(pair->end[i].qp, &card[!i]));
	return pair;
}

static void write_huge(uint64_t length, uint64_t fragment_size)
{
	struct vqp_pair *pair = open_huge_pair(fragment_size);
	void *range = mmap(NULL, length, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t fragments = 0, bytes = 0;
	struct snt_sge sge;
	struct snt_send_wr wr;

	assert_ptr_not_equal(range, MAP_FAILED);
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		assert_success(snt_mem_register(end->ctx, range, length,
						SNT_ACCESS_LOCAL_WRITE |
							SNT_ACCESS_REMOTE_WRITE,
						&end->mem));
		assert_success(snt_mem_token(end->mem, &end->token));
	}
	pair->end[0].buffer = range;
	wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, length);
	post_notify(pair, 1, 5);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_true(expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS).length ==
		    length);
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	for (unsigned i = 0; i < 4; i++) {
		fragments += lane_info(pair, 0, i).fragments;
		bytes += lane_info(pair, 0, i).bytes;
	}
	assert_true(bytes == length);
	assert_true(fragments == (length + fragment_size - 1) / fragment_size);
	pair->end[0].buffer = NULL;
	vqp_pair_close(pair);
	munmap(range, length);
}

static void h8_lengths_beyond_2_gib(void **state)
{
	(void)state;
	write_huge(3 * GIB, GIB);
	write_huge(2 * GIB + 1, 1 << 24);
}

static void h9_lengths_beyond_4_gib(void **state)
{
	(void)state;
	write_huge(4 * GIB - 1, GIB);
	write_huge(4 * GIB, GIB);
	write_huge(9 * GIB + 1, 1 << 24);
}

/* A QP number is given out again at once; what is left in the CQ of the QP that had it
 * before is a stray. */
static void h12_completions_of_a_destroyed_qp_are_dropped(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 2,
				    .cq = pair->end[0].cq };
	struct snt_qp *again;
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 8);
	scripted_complete(lane_qp(pair, 0, 1), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	send_wr(pair, SNT_OP_WRITE, 2, 8);
	assert_success(snt_qp_close(pair->end[0].qp, 3));
	assert_int_equal(vqp_poll(pair, 0).wr_id, 2);
	expect(pair, 0, 3, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	/* After the last word the device holds nothing of it. */
	for (unsigned i = 0; i < 3; i++) {
		struct snt_lane_info info = lane_info(pair, 0, i);

		assert_int_equal(info.under_way, 0);
		assert_int_equal(scripted_pending(info.qp), 0);
		assert_int_equal(scripted_recv_pending(info.qp), 0);
	}
	assert_success(snt_qp_destroy(pair->end[0].qp));
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &again));
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
	assert_int_equal(snt_cq_stray_count(pair->end[0].cq), 0);
	pair->end[0].qp = again;
	vqp_pair_close(pair);
}

static void h13_missing_keys_are_refused_at_once(void **state)
{
	struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 4 * FRAGMENT);
	struct snt_token token = pair->end[1].token;

	(void)state;
	token.key_count = 1;
	wr.remote = &token;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -EINVAL);
	wr.remote = NULL;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -EINVAL);
	wr.remote = &pair->end[1].token;
	sge.mem = pair->end[1].mem; /* of another context */
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -EINVAL);
	vqp_expect_none(pair, 0);
	assert_int_equal(scripted_counters(pair->end[0].device[0]).send_wrs, 0);
	send_wr(pair, SNT_OP_WRITE, 4, 4);
	expect(pair, 0, 4, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h15_the_least_depths_suffice(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .lanes = 2,
					    .scheme = i % 2 ? SNT_SCHEME_DQPLB
							    : SNT_SCHEME_SPRAY,
					    .lane_depth = i / 2 ? 1 : 2,
					    .send_depth = 1,
					    .recv_depth = 1,
					    .fragment_size = 256 };
		struct vqp_pair *pair;

		if (opts.scheme == SNT_SCHEME_DQPLB && opts.lane_depth == 1)
			continue; /* refused: vqp_create_test.c */
		pair = vqp_pair_open(1, &opts);
		for (unsigned wr = 1; wr < 5; wr++) {
			post_notify(pair, 1, wr);
			send_wr(pair, SNT_OP_WRITE_IMM, wr, 2);
			assert_int_equal(try_send(pair, SNT_OP_WRITE, 9, 1), -EAGAIN);
			expect(pair, 0, wr, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
			expect(pair, 1, wr, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

static void h17_messages_and_atomics_respect_the_depth(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_sge sge;

	(void)state;
	for (unsigned i = 0; i < 40; i++)
		post_data(pair, 1, i, 8 * FRAGMENT, FRAGMENT);
	for (unsigned i = 0; i < 120; i++) {
		struct snt_send_wr atomic =
			vqp_wr(pair, 0, &sge, SNT_OP_FETCH_ADD, 0, 8);

		if (i % 3 == 0) {
			send_wr(pair, SNT_OP_SEND, i, 1);
		} else if (i % 3 == 1) {
			send_wr(pair, SNT_OP_WRITE, i, 1);
		} else {
			atomic.wr_id = i;
			assert_int_equal(snt_qp_post_send(pair->end[0].qp, &atomic, 1),
					 1);
		}
		assert_true(scripted_pending(lane_qp(pair, 0, 0)) <= 8);
	}
	for (unsigned i = 0; i < 120; i++) {
		struct snt_wc wc = vqp_poll(pair, 0);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, SNT_WC_SUCCESS);
	}
	vqp_pair_close(pair);
}

/* Depths are what was asked for, also where a ring likes powers of two. */
static void h17_depths_are_exact(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 2,
				    .send_depth = 5,
				    .recv_depth = 5,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(2, &opts);
	struct snt_sge sge = { pair->end[1].mem, pair->end[1].buffer, 8 };
	struct snt_recv_wr recv = { .wr_id = 5 };

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		send_wr(pair, SNT_OP_WRITE, i, 1);
		post_notify(pair, 1, i);
		post_data(pair, 1, i, 0, 8);
	}
	assert_int_equal(try_send(pair, SNT_OP_WRITE, 5, 1), -EAGAIN);
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), -EAGAIN);
	recv.sge = &sge;
	recv.sge_count = 1;
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), -EAGAIN);
	for (unsigned i = 0; i < 5; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	send_wr(pair, SNT_OP_WRITE, 6, 1);
	expect(pair, 0, 6, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h18_notifications_are_pipelined(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
	struct scripted_send sent;
	struct snt_wc wc;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		post_notify(pair, 1, i);
		send_wr(pair, SNT_OP_WRITE_IMM, i, 1);
	}
	for (unsigned lane = 0; lane < 4; lane++)
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(scripted_complete(lane_qp(pair, 0, lane),
							   IBV_WC_SUCCESS),
					 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
	assert_int_equal(scripted_pending(lane_qp(pair, 0, 4)), 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(scripted_peek(lane_qp(pair, 0, 4), i, &sent), 0);
		/* Network order on the wire, so that mixed peers agree. */
		assert_int_equal(sent.wr.imm_data, htonl(i));
	}
	for (unsigned i = 0; i < 8; i++)
		expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h20_flags_keep_their_meaning(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, FRAGMENT);
	struct scripted_send sent;
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	post_notify(pair, 1, 5);
	/* A fenced one is not sent while another is under way, on any lane. */
	wr.wr_id = 2;
	wr.flags = SNT_SEND_FENCE | SNT_SEND_SOLICITED;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(scripted_pending(lane_qp(pair, 0, 0)), 1);
	assert_int_equal(scripted_pending(lane_qp(pair, 0, 1)), 0);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 0), IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 1);
	assert_int_equal(scripted_pending(lane_qp(pair, 0, 1)), 1);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 1), IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
	assert_int_equal(scripted_peek(lane_qp(pair, 0, 2), 0, &sent), 0);
	assert_true(sent.wr.send_flags & IBV_SEND_SOLICITED);
	/* Not signalled: the peer learns of it, the program does not. */
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	wr.flags = 0x10;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -EINVAL);
	vqp_pair_close(pair);
}

static void h20_unsignalled_wrs_are_reported_iff_they_fail(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, FRAGMENT);

	(void)state;
	wr.flags = 0;
	for (unsigned i = 0; i < 1000; i++) {
		wr.wr_id = i;
		while (snt_qp_post_send(pair->end[0].qp, &wr, 1) == -EAGAIN)
			vqp_expect_none(pair, 0);
	}
	for (unsigned i = 0; i < 4; i++) /* the ring is deeper than one round */
		vqp_expect_none(pair, 0);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	for (unsigned i = 0; i < 2; i++)
		scripted_complete(lane_qp(pair, 0, i), IBV_WC_REM_OP_ERR);
	expect(pair, 0, 999, SNT_OP_WRITE, SNT_WC_REM_OP_ERR);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(h1_error_cqes_are_not_routed_by_opcode),
		cmocka_unit_test(h2_a_dead_lane_is_not_used),
		cmocka_unit_test(h2_without_any_lane_posts_are_refused),
		cmocka_unit_test(h3_no_notification_after_a_failed_fragment),
		cmocka_unit_test(h3_no_ordering_point_after_an_earlier_failure),
		cmocka_unit_test(h3_a_reported_failure_is_forgotten),
		cmocka_unit_test(h3_the_first_error_is_the_status),
		cmocka_unit_test(h4_a_refused_fragment_ends_in_a_completion),
		cmocka_unit_test(h4_a_refused_wr_of_one_fragment_ends_in_a_completion),
		cmocka_unit_test(h4_lanes_that_end_with_another_are_not_posted_to),
		cmocka_unit_test(h4_a_chain_that_was_taken_in_part_goes_on),
		cmocka_unit_test(h4_a_second_refusal_ends_in_a_completion),
		cmocka_unit_test(h4_a_lie_about_what_was_taken),
		cmocka_unit_test(h5_a_failed_post_inside_of_a_poll_loses_nothing),
		cmocka_unit_test(h5_a_failed_poll_loses_nothing),
		cmocka_unit_test(h6_a_sequence_ends_after_earlier_plain_writes),
		cmocka_unit_test(h6_plain_writes_and_reads_take_no_sequence_number),
		cmocka_unit_test(h7_a_lost_sequence_number_ends_the_qp),
		cmocka_unit_test(h8_lengths_beyond_2_gib),
		cmocka_unit_test(h9_lengths_beyond_4_gib),
		cmocka_unit_test(h12_completions_of_a_destroyed_qp_are_dropped),
		cmocka_unit_test(h13_missing_keys_are_refused_at_once),
		cmocka_unit_test(h15_the_least_depths_suffice),
		cmocka_unit_test(h17_messages_and_atomics_respect_the_depth),
		cmocka_unit_test(h17_depths_are_exact),
		cmocka_unit_test(h18_notifications_are_pipelined),
		cmocka_unit_test(h20_flags_keep_their_meaning),
		cmocka_unit_test(h20_unsignalled_wrs_are_reported_iff_they_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
