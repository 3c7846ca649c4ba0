/* SPDX-License-Identifier: MIT */
/*
 * Express messages (src/vqp/spray.h): a short WRITE_IMM in SPRAY is one write with
 * immediate on a notify lane. When it is sent, what it waits for, what waits for it,
 * and what ends with it.
 */
#include "lib/vqp_kit.h"

#include <arpa/inet.h>
#include <errno.h>

#define LANES 4
#define SHORT 64
#define MAX   1024

static struct snt_qp_opts options(uint32_t flags)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .lanes = LANES,
				     .flags = flags,
				     .lane_depth = 8,
				     .fragment_size = FRAGMENT,
				     .inline_max = 64,
				     .send_sge_max = 2,
				     .express_max = MAX };
}

/* The receiver has a mailbox, if these are its flags. */
static struct vqp_pair *open_express(unsigned devices, uint32_t flags)
{
	struct snt_qp_opts sends = options(0), receives = options(flags);
	struct vqp_pair *pair =
		vqp_pair_make((const unsigned[]){ devices, devices },
			      (const struct snt_qp_opts *const[]){ &sends, &receives });

	vqp_pair_connect(pair);
	return pair;
}

/* A WRITE_IMM of end 0, from its buffer to the same place. */
static void write_imm(struct vqp_pair *pair, uint64_t wr_id, uint64_t length,
		      unsigned flags)
{
	struct snt_sge sge;
	struct snt_send_wr wr =
		vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, wr_id * FRAGMENT, length);

	wr.wr_id = wr_id;
	wr.imm = wr_id;
	wr.flags |= flags;
	memset(pair->end[0].buffer + wr_id * FRAGMENT, wr_id, length);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
}

static unsigned pending_on(struct vqp_pair *pair, unsigned lane)
{
	return scripted_pending(lane_qp(pair, 0, lane));
}

static unsigned pending_on_data_lanes(struct vqp_pair *pair)
{
	unsigned count = 0;

	for (unsigned i = 0; i < LANES; i++)
		count += pending_on(pair, i);
	return count;
}

static struct scripted_send peek(struct vqp_pair *pair, unsigned lane, unsigned index)
{
	struct scripted_send sent;

	assert_int_equal(scripted_peek(lane_qp(pair, 0, lane), index, &sent), 0);
	return sent;
}

static uint64_t length_of(const struct scripted_send *sent)
{
	return sent->wr.num_sge ? sent->sge[0].length : 0;
}

static void poll_sender(struct vqp_pair *pair, int due)
{
	struct snt_wc wc;

	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), due);
}

static void complete(struct vqp_pair *pair, unsigned lane)
{
	assert_int_equal(scripted_complete(lane_qp(pair, 0, lane), IBV_WC_SUCCESS), 0);
}

/* Notification i, whose bytes have come. */
static void expect_notified(struct vqp_pair *pair, uint64_t i, uint64_t length)
{
	struct snt_wc wc = expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);

	assert_int_equal(wc.imm, i);
	assert_int_equal(wc.flags, SNT_WC_WITH_IMM | SNT_WC_LENGTH_UNKNOWN);
	assert_memory_equal(pair->end[0].buffer + i * FRAGMENT,
			    pair->end[1].buffer + i * FRAGMENT, length);
}

/*
 * What is sent
 */

static void one_write_on_the_notify_lane(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);
	struct scripted_send sent;

	(void)state;
	for (unsigned i = 1; i < 4; i++) {
		post_notify(pair, 1, i);
		write_imm(pair, i, 20 * i, i == 2 ? SNT_SEND_INLINE : 0);
	}
	assert_int_equal(pending_on_data_lanes(pair), 0);
	assert_int_equal(pending_on(pair, LANES), 3);
	for (unsigned i = 0; i < 3; i++) {
		sent = peek(pair, LANES, i);
		assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
		assert_int_equal(ntohl(sent.wr.imm_data), i + 1);
		assert_int_equal(length_of(&sent), 20 * (i + 1));
	}
	for (unsigned i = 1; i < 4; i++) {
		expect_notified(pair, i, 20 * i);
		expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	}
	vqp_pair_close(pair);
}

/* Up to express_max, and up to a fragment. */
static void longer_ones_take_all_lanes(void **state)
{
	struct snt_qp_opts opts = options(0);
	struct vqp_pair *pair = open_express(1, 0);

	(void)state;
	post_notify(pair, 1, 1);
	post_notify(pair, 1, 2);
	write_imm(pair, 1, MAX, 0);
	assert_int_equal(pending_on(pair, LANES), 1);
	write_imm(pair, 2, MAX + 1, 0);
	assert_int_equal(pending_on(pair, LANES), 1);
	assert_int_equal(pending_on_data_lanes(pair), 1);
	expect_notified(pair, 1, MAX);
	expect_notified(pair, 2, MAX + 1);
	vqp_pair_close(pair);
	opts.express_max = SNT_EXPRESS_MAX;
	pair = vqp_pair_open(1, &opts);
	post_notify(pair, 1, 1);
	write_imm(pair, 1, FRAGMENT + 1, 0);
	assert_int_equal(pending_on(pair, LANES), 0);
	assert_int_equal(pending_on_data_lanes(pair), 2);
	expect_notified(pair, 1, FRAGMENT + 1);
	vqp_pair_close(pair);
}

/* To a peer with two devices: an empty one on the other lane, in the same call. */
static void lanes_take_turns_with_the_data(void **state)
{
	struct vqp_pair *pair = open_express(2, 0);

	(void)state;
	for (unsigned i = 1; i < 5; i++) {
		post_notify(pair, 1, i);
		write_imm(pair, i, SHORT, 0);
		for (unsigned lane = 0; lane < 2; lane++) {
			struct scripted_send sent = peek(pair, LANES + lane, i - 1);

			assert_int_equal(pending_on(pair, LANES + lane), i);
			assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
			assert_int_equal(length_of(&sent),
					 lane == (i - 1) % 2 ? SHORT : 0);
		}
	}
	for (unsigned i = 1; i < 5; i++)
		expect_notified(pair, i, SHORT);
	vqp_pair_close(pair);
}

/* One lane's write is not enough, whichever has the data. */
static void reported_when_every_lane_has_it(void **state)
{
	(void)state;
	for (unsigned lane = 0; lane < 2; lane++) {
		struct vqp_pair *pair = open_express(2, 0);
		struct snt_wc wc;

		post_notify(pair, 1, 1);
		write_imm(pair, 1, SHORT, 0);
		complete(pair, LANES + lane);
		assert_int_equal(snt_cq_poll(pair->end[1].cq, &wc, 1), 0);
		complete(pair, LANES + !lane);
		expect_notified(pair, 1, SHORT);
		vqp_pair_close(pair);
	}
}

/* A peer with a mailbox gets the bytes by a plain write ahead of the length, which may
 * be as long as the message. */
static void lengths_are_told(void **state)
{
	static const uint64_t lengths[] = { 0, 1, 7, 8, 9, SHORT, MAX, MAX + 1 };

	(void)state;
	for (unsigned devices = 1; devices < 4; devices++) {
		struct vqp_pair *pair = open_express(devices, SNT_QP_NOTIFY_LENGTH);

		for (unsigned i = 0; i < 40; i++) {
			uint64_t length = lengths[i % ARRAY_SIZE(lengths)];
			struct snt_wc wc;

			post_notify(pair, 1, i);
			write_imm(pair, i, length, i % 5 ? 0 : SNT_SEND_FENCE);
			wc = expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
			assert_int_equal(wc.flags, SNT_WC_WITH_IMM);
			assert_int_equal(wc.length, length);
			assert_memory_equal(pair->end[0].buffer + i * FRAGMENT,
					    pair->end[1].buffer + i * FRAGMENT, length);
			expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

static void data_go_ahead_of_the_length(void **state)
{
	struct vqp_pair *pair = open_express(1, SNT_QP_NOTIFY_LENGTH);
	struct scripted_send sent;

	(void)state;
	post_notify(pair, 1, 1);
	write_imm(pair, 1, 8, 0);
	assert_int_equal(pending_on(pair, LANES), 2);
	sent = peek(pair, LANES, 0);
	assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(length_of(&sent), 8);
	sent = peek(pair, LANES, 1);
	assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(length_of(&sent), 8);
	vqp_pair_close(pair);
}

/*
 * Order
 */

/* Data lanes are waited for, in whatever form it came. */
static void waits_for_what_is_on_data_lanes(void **state)
{
	(void)state;
	for (unsigned count = 1; count < 3; count++) {
		struct vqp_pair *pair = open_express(1, 0);
		struct snt_sge sge;
		struct snt_send_wr wr[2] = {
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, SHORT),
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, SHORT)
		};

		send_wr(pair, SNT_OP_WRITE, 1, 2);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, count),
				 (int)count);
		assert_int_equal(pending_on(pair, LANES), 0);
		assert_int_equal(pending_on_data_lanes(pair), 2);
		complete(pair, 0);
		poll_sender(pair, 0);
		assert_int_equal(pending_on(pair, LANES), 0);
		complete(pair, 1);
		assert_int_equal(snt_cq_poll(pair->end[0].cq, &(struct snt_wc){ 0 }, 1),
				 1);
		assert_int_equal(pending_on(pair, LANES), count);
		for (unsigned i = 0; i < count; i++)
			post_notify(pair, 1, i);
		vqp_pair_close(pair);
	}
}

/* It does not overtake a notification whose data are still under way. */
static void waits_for_a_longer_one(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);

	(void)state;
	for (unsigned i = 1; i < 4; i++)
		post_notify(pair, 1, i);
	write_imm(pair, 1, 2 * FRAGMENT, 0);
	write_imm(pair, 2, SHORT, 0);
	assert_int_equal(pending_on(pair, LANES), 0);
	complete(pair, 1);
	complete(pair, 0);
	poll_sender(pair, 0);
	assert_int_equal(pending_on(pair, LANES), 2);
	assert_int_equal(ntohl(peek(pair, LANES, 0).wr.imm_data), 1);
	write_imm(pair, 3, SHORT, 0);
	assert_int_equal(pending_on(pair, LANES), 3);
	expect_notified(pair, 1, 2 * FRAGMENT);
	expect_notified(pair, 2, SHORT);
	expect_notified(pair, 3, SHORT);
	vqp_pair_close(pair);
}

static void a_fence_waits_for_it(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);

	(void)state;
	for (unsigned i = 1; i < 3; i++)
		post_notify(pair, 1, i);
	write_imm(pair, 1, SHORT, 0);
	write_imm(pair, 2, SHORT, SNT_SEND_FENCE);
	assert_int_equal(pending_on(pair, LANES), 1);
	complete(pair, LANES);
	poll_sender(pair, 1);
	assert_int_equal(pending_on(pair, LANES), 1);
	expect_notified(pair, 1, SHORT);
	expect_notified(pair, 2, SHORT);
	vqp_pair_close(pair);
}

static void a_send_waits_for_it(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_SEND, 0, SHORT);

	(void)state;
	post_notify(pair, 1, 1);
	post_data(pair, 1, 2, 0, FRAGMENT);
	write_imm(pair, 1, SHORT, 0);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(pending_on_data_lanes(pair), 0);
	complete(pair, LANES);
	poll_sender(pair, 1);
	assert_int_equal(pending_on_data_lanes(pair), 1);
	expect_notified(pair, 1, SHORT);
	expect(pair, 1, 2, SNT_OP_RECV, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* If only the acknowledgement were lost, an atomic on the notify lane would be reported as
 * flushed, and have been executed. */
static void an_atomic_waits_for_it(void **state)
{
	(void)state;
	for (unsigned devices = 1; devices < 3; devices++) {
		struct vqp_pair *pair = open_express(devices, 0);
		struct snt_sge sge;
		struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_FETCH_ADD, 0, 8);

		wr.compare_add = 5;
		post_notify(pair, 1, 1);
		post_notify(pair, 1, 2);
		write_imm(pair, 1, SHORT, 0);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		assert_int_equal(pending_on_data_lanes(pair), 0);
		assert_int_equal(pending_on(pair, LANES), 1);
		write_imm(pair, 2, SHORT, 0);
		assert_int_equal(pending_on(pair, LANES), 1);
		expect_notified(pair, 1, SHORT);
		expect_notified(pair, 2, SHORT);
		assert_int_equal(*(uint64_t *)pair->end[1].buffer, 5);
		vqp_pair_close(pair);
	}
}

/*
 * Failures
 */

/* An earlier WR failed, and that was not known yet. */
static void flushed_behind_a_failure(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);

	(void)state;
	post_notify(pair, 1, 2);
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 0), IBV_WC_REM_ACCESS_ERR),
			 0);
	write_imm(pair, 2, SHORT, 0);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_REM_ACCESS_ERR);
	expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
	write_imm(pair, 3, SHORT, 0);
	expect(pair, 0, 3, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	expect(pair, 1, 2, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* The lane that carried a refused key is a notify lane: no WRITE_IMM from then on, of any
 * length; all else goes on. */
static void a_bad_key_ends_the_notify_lanes(void **state)
{
	(void)state;
	for (unsigned devices = 1; devices < 3; devices++) {
		struct vqp_pair *pair = open_express(devices, 0);
		struct snt_token forged = pair->end[1].token;
		struct snt_sge sge;
		struct snt_send_wr wr =
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, SHORT);

		for (unsigned i = 0; i < devices; i++)
			forged.key[i] ^= 0x55;
		wr.remote = &forged;
		for (unsigned i = 2; i < 5; i++)
			post_notify(pair, 1, i);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		write_imm(pair, 2, SHORT, 0);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_REM_ACCESS_ERR);
		expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		for (unsigned i = 0; i < devices; i++)
			assert_false(lane_info(pair, 0, LANES + i).alive);
		write_imm(pair, 3, SHORT, 0);
		expect(pair, 0, 3, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		write_imm(pair, 4, 2 * FRAGMENT, 0);
		expect(pair, 0, 4, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		send_wr(pair, SNT_OP_WRITE, 9, 2);
		expect(pair, 0, 9, SNT_OP_WRITE, SNT_WC_SUCCESS);
		for (unsigned i = 2; i < 5; i++)
			assert_true(vqp_poll(pair, 1).status);
		vqp_pair_close(pair);
	}
}

/* A device refuses the post of one lane: what the other took is not reported. */
static void a_refused_post_fails_it(void **state)
{
	(void)state;
	for (unsigned device = 0; device < 2; device++) {
		struct vqp_pair *pair = open_express(2, 0);

		post_notify(pair, 1, 1);
		scripted_fail_post(pair->end[0].device[device],
				   &(struct scripted_post_fault){ .error = ENOMEM });
		write_imm(pair, 1, SHORT, 0);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		write_imm(pair, 2, SHORT, 0);
		expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_FLUSHED);
		vqp_pair_close(pair);
	}
}

/*
 * The option
 */

static uint32_t express_max_of(struct vqp_pair *pair)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(pair->end[0].qp, &info));
	return info.express_max;
}

static void the_limit_is_what_all_allow(void **state)
{
	static const struct {
		uint32_t asked, fragment_size, lane_depth, flags, due;
	} cases[] = {
		{ 0, 1 << 20, 8, 0, SNT_EXPRESS_DEFAULT },
		{ 0, 512, 8, 0, 512 },
		{ SNT_EXPRESS_MAX, 1 << 20, 8, 0, SNT_EXPRESS_MAX },
		{ SNT_EXPRESS_OFF, 1 << 20, 8, 0, 0 },
		{ 100, 1 << 20, 1, 0, 100 },
		{ 100, 1 << 20, 2, SNT_QP_NOTIFY_LENGTH, 100 },
		/* The data and the length need two places on the lane. */
		{ 100, 1 << 20, 1, SNT_QP_NOTIFY_LENGTH, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snt_qp_opts opts = options(cases[i].flags);
		struct vqp_pair *pair;

		opts.express_max = cases[i].asked;
		opts.fragment_size = cases[i].fragment_size;
		opts.lane_depth = cases[i].lane_depth;
		pair = vqp_pair_open(1, &opts);
		assert_int_equal(express_max_of(pair), cases[i].due);
		vqp_pair_close(pair);
	}
}

static void express_max_can_be_changed(void **state)
{
	struct vqp_pair *pair = open_express(1, 0);
	struct snt_qp_opts change = { .size = sizeof(change), .express_max = 10 };

	(void)state;
	assert_success(snt_qp_modify(pair->end[0].qp, &change));
	assert_int_equal(express_max_of(pair), 10);
	change.express_max = SNT_EXPRESS_OFF;
	assert_success(snt_qp_modify(pair->end[0].qp, &change));
	assert_int_equal(express_max_of(pair), 0);
	change.express_max = SNT_EXPRESS_MAX + 1;
	assert_int_equal(snt_qp_modify(pair->end[0].qp, &change), -EINVAL);
	assert_non_null(strstr(snt_err_text(), "express_max"));
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_write_on_the_notify_lane),
		cmocka_unit_test(longer_ones_take_all_lanes),
		cmocka_unit_test(lanes_take_turns_with_the_data),
		cmocka_unit_test(reported_when_every_lane_has_it),
		cmocka_unit_test(lengths_are_told),
		cmocka_unit_test(data_go_ahead_of_the_length),
		cmocka_unit_test(waits_for_what_is_on_data_lanes),
		cmocka_unit_test(waits_for_a_longer_one),
		cmocka_unit_test(a_fence_waits_for_it),
		cmocka_unit_test(a_send_waits_for_it),
		cmocka_unit_test(an_atomic_waits_for_it),
		cmocka_unit_test(flushed_behind_a_failure),
		cmocka_unit_test(a_bad_key_ends_the_notify_lanes),
		cmocka_unit_test(a_refused_post_fails_it),
		cmocka_unit_test(the_limit_is_what_all_allow),
		cmocka_unit_test(express_max_can_be_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
