/* SPDX-License-Identifier: MIT */
/* Which lane gets how much. */
#include "lib/vqp_kit.h"

#define LANES 4

static uint64_t clock_now;

static uint64_t tell_time(void *arg)
{
	(void)arg;
	return clock_now;
}

/* Two ends with a clock of the test's own. */
static struct vqp_pair *open_balanced(enum snt_scheme scheme, enum snt_balance balance,
				      const uint16_t *weights)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .scheme = scheme,
				    .lanes = LANES,
				    .lane_depth = 64,
				    .send_depth = 4096,
				    .fragment_size = FRAGMENT,
				    .balance = balance,
				    .weights = weights };

	vqp_pair_clock(tell_time);
	return vqp_pair_open(1, &opts);
}

static void weights_are_shares(void **state)
{
	const uint16_t weights[LANES] = { 1, 2, 4, 3 };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_ROUND_ROBIN, weights);

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		send_wr(pair, SNT_OP_WRITE, i, 10);
	for (unsigned i = 0; i < LANES; i++)
		assert_in_range(lane_info(pair, 0, i).bytes,
				(10 * weights[i] - 1) * FRAGMENT,
				(10 * weights[i] + 1) * FRAGMENT);
	for (unsigned i = 0; i < 10; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* From equal shares to others, while it is connected. */
static void weights_may_come_later(void **state)
{
	const uint16_t weights[LANES] = { 1, 1, 1, 7 };
	const struct snt_qp_opts change = { .size = sizeof(change),
					    .weights = weights };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_ROUND_ROBIN, NULL);

	(void)state;
	assert_success(snt_qp_modify(pair->end[0].qp, &change));
	for (unsigned i = 0; i < 10; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	assert_in_range(lane_info(pair, 0, 3).bytes, 6 * FRAGMENT, 8 * FRAGMENT);
	for (unsigned i = 0; i < 10; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* A lane that had no room gets no more than its share when it has. */
static void a_lane_that_was_full_does_not_catch_up(void **state)
{
	const uint16_t weights[LANES] = { 2, 1, 1, 1 };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_ROUND_ROBIN, weights);
	uint64_t before;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		send_wr(pair, SNT_OP_WRITE, i, 10); /* 64 at most on the first lane */
	assert_int_equal(lane_info(pair, 0, 0).bytes, 64 * FRAGMENT);
	for (unsigned i = 0; i < 20; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	before = lane_info(pair, 0, 0).bytes;
	send_wr(pair, SNT_OP_WRITE, 1, 50);
	assert_in_range(lane_info(pair, 0, 0).bytes - before, 19 * FRAGMENT,
			21 * FRAGMENT);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* Plays a device whose lanes take so much time for a fragment. */
static void play(struct vqp_pair *pair, const uint64_t *price, uint64_t *busy_until,
		 uint64_t until)
{
	struct snt_wc wc;

	while (clock_now < until) {
		clock_now += 100;
		for (unsigned i = 0; i < LANES; i++) {
			struct ibv_qp *lane = lane_qp(pair, 0, i);

			if (!scripted_pending(lane)) {
				busy_until[i] = clock_now;
			} else if (busy_until[i] + price[i] <= clock_now) {
				scripted_complete(lane, IBV_WC_SUCCESS);
				busy_until[i] += price[i];
			}
		}
		while (snt_cq_poll(pair->end[0].cq, &wc, 1) == 1)
			assert_int_equal(wc.status, SNT_WC_SUCCESS);
	}
}

static uint32_t under_way(struct vqp_pair *pair)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(pair->end[0].qp, &info));
	return info.under_way;
}

/* Keeps the QP busy for 4 ms. Returns the fragments that each lane carried. */
static void measure(enum snt_scheme scheme, enum snt_balance balance,
		    const uint64_t *price, uint64_t *carried)
{
	struct vqp_pair *pair = open_balanced(scheme, balance, NULL);
	uint64_t busy_until[LANES];

	clock_now = 1;
	for (unsigned i = 0; i < LANES; i++)
		busy_until[i] = clock_now;
	for (unsigned step = 0; step < 400; step++) {
		while (under_way(pair) < 48)
			send_wr(pair, SNT_OP_WRITE, step, 4);
		play(pair, price, busy_until, clock_now + 10000);
	}
	for (unsigned i = 0; i < LANES; i++)
		carried[i] = lane_info(pair, 0, i).fragments -
			     lane_info(pair, 0, i).under_way;
	vqp_pair_close(pair);
}

static uint64_t sum(const uint64_t *carried)
{
	return carried[0] + carried[1] + carried[2] + carried[3];
}

/* Sums of what lanes could carry: 4 ms at one fragment in 1, 2 or 10 us. */
static void by_time_slow_lanes_do_not_hold_up_others(void **state)
{
	const uint64_t price[LANES] = { 1000, 10000, 2000, 1000 };
	uint64_t carried[LANES], in_turn[LANES];

	(void)state;
	measure(SNT_SCHEME_SPRAY, SNT_BALANCE_BY_TIME, price, carried);
	assert_in_range(sum(carried), 0.95 * (4000 + 400 + 2000 + 4000), 10400);
	measure(SNT_SCHEME_SPRAY, SNT_BALANCE_ROUND_ROBIN, price, in_turn);
	assert_in_range(sum(in_turn), 0, sum(carried) / 2);
}

static void by_time_equal_lanes_get_equal_shares(void **state)
{
	const uint64_t price[LANES] = { 1000, 1000, 1000, 1000 };
	uint64_t carried[LANES];

	(void)state;
	measure(SNT_SCHEME_SPRAY, SNT_BALANCE_BY_TIME, price, carried);
	for (unsigned i = 0; i < LANES; i++)
		assert_in_range(carried[i], 3800, 4000);
}

/* What is unknown is tried, and before that goes by weights. */
static void by_time_begins_with_weights(void **state)
{
	const uint16_t weights[LANES] = { 1, 7, 1, 1 };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_BY_TIME, weights);

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 20);
	assert_in_range(lane_info(pair, 0, 1).bytes, 13 * FRAGMENT, 15 * FRAGMENT);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* No lane is left out for long, however slow it is. */
static void dqplb_uses_every_lane_now_and_then(void **state)
{
	const uint16_t weights[LANES] = { 60000, 1, 60000, 60000 };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_DQPLB, SNT_BALANCE_ROUND_ROBIN, weights);

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		post_notify(pair, 1, i);
		send_wr(pair, SNT_OP_WRITE_IMM, i, 30);
		expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	}
	/* 1,200 fragments; the window is 512. */
	assert_in_range(lane_info(pair, 0, 1).bytes, 8 * FRAGMENT, 16 * FRAGMENT);
	vqp_pair_close(pair);
}

/* One WR of so many fragments after the other, each done within 10 us. Counts what
 * lanes carry. */
static void send_lightly(struct vqp_pair *pair, unsigned wrs, unsigned fragments,
			 uint64_t *carried)
{
	struct snt_wc wc;

	for (unsigned i = 0; i < LANES; i++)
		carried[i] = -lane_info(pair, 0, i).fragments;
	for (unsigned i = 0; i < wrs; i++) {
		send_wr(pair, SNT_OP_WRITE, i, fragments);
		clock_now += 10000;
		vqp_pair_run(pair, i);
		while (snt_cq_poll(pair->end[0].cq, &wc, 1) == 1)
			assert_int_equal(wc.status, SNT_WC_SUCCESS);
	}
	for (unsigned i = 0; i < LANES; i++)
		carried[i] += lane_info(pair, 0, i).fragments;
}

/* It is not known since when its lanes have been busy. */
static void by_time_may_begin_with_busy_lanes(void **state)
{
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_ROUND_ROBIN, NULL);
	struct snt_qp_opts change = { .size = sizeof(change),
				      .balance = SNT_BALANCE_BY_TIME };
	uint64_t carried[LANES];

	(void)state;
	clock_now = UINT64_C(30) * 86400 * 1000000000; /* long after it was made */
	send_wr(pair, SNT_OP_WRITE, 1, 2);
	assert_success(snt_qp_modify(pair->end[0].qp, &change));
	clock_now += 10000;
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	send_lightly(pair, 500, 4, carried);
	for (unsigned i = 0; i < LANES; i++)
		assert_in_range(carried[i], 400, 600);
	vqp_pair_close(pair);
}

/* It is tried again, now and then. */
static void by_time_one_stall_is_not_for_ever(void **state)
{
	const uint64_t price[LANES] = { 1000, 1000, 1000, 1000 };
	struct vqp_pair *pair =
		open_balanced(SNT_SCHEME_SPRAY, SNT_BALANCE_BY_TIME, NULL);
	uint64_t carried[LANES], busy_until[LANES];
	struct snt_wc wc;

	(void)state;
	clock_now = 1;
	send_lightly(pair, 20, 4, carried);
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	clock_now += 10000;
	for (unsigned i = 1; i < LANES; i++)
		scripted_complete(lane_qp(pair, 0, i), IBV_WC_SUCCESS);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
	clock_now += 500000000;
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	for (unsigned i = 0; i < LANES; i++) {
		busy_until[i] = clock_now;
		carried[i] = -lane_info(pair, 0, i).fragments;
	}
	for (unsigned i = 0; i < 500; i++) {
		send_wr(pair, SNT_OP_WRITE, i, 16);
		play(pair, price, busy_until, clock_now + 10000);
	}
	for (unsigned i = 0; i < LANES; i++)
		assert_in_range(carried[i] + lane_info(pair, 0, i).fragments, 1600,
				2400);
	vqp_pair_close(pair);
}

/* Trying a lane that stays slow costs no more than that. */
static void by_time_a_lane_that_stays_slow_is_left_out(void **state)
{
	const uint64_t price[LANES] = { 1000, 1000, 1000, 100000 };
	uint64_t carried[LANES];

	(void)state;
	measure(SNT_SCHEME_SPRAY, SNT_BALANCE_BY_TIME, price, carried);
	assert_in_range(sum(carried), 0.95 * 12040, 12040);
}

/* A lane that was full and is free again comes first only if something waits. */
static void turns_are_kept_on_the_narrowest_lanes(void **state)
{
	const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(schemes); i++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .lanes = LANES,
					    .scheme = schemes[i],
					    .lane_depth = 1 + i,
					    .fragment_size = FRAGMENT,
					    .express_max = SNT_EXPRESS_OFF };
		struct vqp_pair *pair = vqp_pair_open(1, &opts);

		for (unsigned j = 0; j < 10 * LANES; j++) {
			post_notify(pair, 1, j);
			send_wr(pair, SNT_OP_WRITE_IMM, j, 1);
			expect(pair, 0, j, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
			expect(pair, 1, j, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		}
		for (unsigned j = 0; j < LANES; j++)
			assert_int_equal(lane_info(pair, 0, j).bytes, 10 * FRAGMENT);
		vqp_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weights_are_shares),
		cmocka_unit_test(weights_may_come_later),
		cmocka_unit_test(a_lane_that_was_full_does_not_catch_up),
		cmocka_unit_test(by_time_slow_lanes_do_not_hold_up_others),
		cmocka_unit_test(by_time_equal_lanes_get_equal_shares),
		cmocka_unit_test(by_time_begins_with_weights),
		cmocka_unit_test(dqplb_uses_every_lane_now_and_then),
		cmocka_unit_test(by_time_may_begin_with_busy_lanes),
		cmocka_unit_test(by_time_one_stall_is_not_for_ever),
		cmocka_unit_test(by_time_a_lane_that_stays_slow_is_left_out),
		cmocka_unit_test(turns_are_kept_on_the_narrowest_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
