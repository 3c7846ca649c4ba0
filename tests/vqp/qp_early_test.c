/* SPDX-License-Identifier: MIT */
/*
 * DQPLB when one of the receiver's CQs is looked at later than another: the sender
 * cannot know, and runs ahead of what was polled.
 */
#include "lib/vqp_kit.h"

#include <arpa/inet.h>

#define MESSAGES 100

/* A sender that never rests, and both ends polled. */
static void exchange(struct vqp_pair *pair, unsigned rounds, unsigned *sent,
		     unsigned *notified)
{
	struct snt_wc wc;

	for (unsigned round = 0; round < rounds; round++) {
		while (*sent < MESSAGES &&
		       try_send(pair, SNT_OP_WRITE_IMM, *sent, 1 + *sent % 3) == 1)
			++*sent;
		vqp_pair_run(pair, round);
		while (snt_cq_poll(pair->end[0].cq, &wc, 1) == 1)
			assert_int_equal(wc.status, SNT_WC_SUCCESS);
		while (snt_cq_poll(pair->end[1].cq, &wc, 1) == 1) {
			assert_int_equal(wc.status, SNT_WC_SUCCESS);
			assert_int_equal(wc.wr_id, *notified);
			assert_int_equal(wc.imm, *notified);
			assert_int_equal(wc.length, FRAGMENT * (1 + *notified % 3));
			++*notified;
		}
	}
}

static void f3_a_slow_cq_is_not_a_hostile_peer(void **state)
{
	(void)state;
	for (unsigned slow = 0; slow < 3; slow++) {
		struct vqp_pair *pair = open_pair(3, 3, SNT_SCHEME_DQPLB);
		unsigned sent = 0, notified = 0;

		for (unsigned i = 0; i < MESSAGES; i++)
			post_notify(pair, 1, i);
		scripted_hold_cq(lane_qp(pair, 1, slow)->recv_cq, true);
		exchange(pair, 200, &sent, &notified);
		assert_in_range(notified, 0, MESSAGES - 1);
		scripted_hold_cq(lane_qp(pair, 1, slow)->recv_cq, false);
		exchange(pair, 400, &sent, &notified);
		assert_int_equal(notified, MESSAGES);
		vqp_pair_close(pair);
	}
}

/* An immediate straight to a lane of the receiver, as a hostile peer would. */
static void write_imm(struct vqp_pair *pair, unsigned lane, uint32_t imm)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = htonl(imm) };
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(lane_qp(pair, 0, lane), &wr, &bad), 0);
}

static bool is_broken(struct vqp_pair *pair)
{
	vqp_pair_run(pair, 1);
	vqp_expect_none(pair, 1);
	return !lane_info(pair, 1, 0).alive;
}

static void what_no_honest_peer_sends_is_a_fault_at_once(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);

	(void)state;
	write_imm(pair, 0, 1u << 22);
	assert_true(is_broken(pair));
	vqp_pair_close(pair);
}

/* Early arrivals on all lanes, and no receive left that could fill the gap. */
static void a_gap_that_nothing_can_fill_is_a_fault(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);
	uint32_t window = 32; /* 2 lanes of 8, twice */

	(void)state;
	for (unsigned i = 0; i < 15; i++)
		write_imm(pair, i % 2, window + i);
	assert_false(is_broken(pair));
	write_imm(pair, 1, window + 15);
	assert_true(is_broken(pair));
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f3_a_slow_cq_is_not_a_hostile_peer),
		cmocka_unit_test(what_no_honest_peer_sends_is_a_fault_at_once),
		cmocka_unit_test(a_gap_that_nothing_can_fill_is_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
