/* SPDX-License-Identifier: MIT */
/* The lanes that are alive take turns, whichever lanes have died, and when. */
#include "lib/vqp_kit.h"

#define LANES 4

static void count_fragments(struct vqp_pair *pair, uint64_t *count)
{
	for (unsigned i = 0; i < LANES; i++)
		count[i] = lane_info(pair, 0, i).bytes / FRAGMENT;
}

static void kill_lane(struct vqp_pair *pair, unsigned lane)
{
	struct scripted_post_fault fault = { .qp = lane_qp(pair, 0, lane),
					     .error = ENOMEM };
	struct snt_wc wc;

	scripted_fail_post(pair->end[0].device[0], &fault);
	while (lane_info(pair, 0, lane).alive) {
		send_wr(pair, SNT_OP_WRITE, 1, 1);
		wc = vqp_poll(pair, 0);
		assert_true(wc.status == SNT_WC_SUCCESS || wc.status == SNT_WC_FLUSHED);
	}
}

/* From now on, one WR after the other. Lane i is dead if bit i of `dead` is set. */
static void assert_turns(struct vqp_pair *pair, unsigned dead, unsigned fragments)
{
	uint64_t before[LANES], after[LANES], least = UINT64_MAX, most = 0;

	count_fragments(pair, before);
	for (unsigned i = 0; i < 12; i++) {
		send_wr(pair, SNT_OP_WRITE, i, fragments);
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	}
	count_fragments(pair, after);
	for (unsigned i = 0; i < LANES; i++) {
		uint64_t carried = after[i] - before[i];

		if (dead & 1u << i) {
			assert_int_equal(carried, 0);
			continue;
		}
		least = carried < least ? carried : least;
		most = carried > most ? carried : most;
	}
	assert_in_range(most - least, 0, 1);
}

static void a_dead_lane_takes_no_turns(void **state)
{
	(void)state;
	for (unsigned first = 0; first < LANES; first++)
		for (unsigned second = 0; second < LANES; second++) {
			struct vqp_pair *pair = open_pair(1, LANES, SNT_SCHEME_SPRAY);
			unsigned dead = 1u << first;

			kill_lane(pair, first);
			assert_turns(pair, dead, 1);
			assert_turns(pair, dead, 5);
			if (second != first) {
				kill_lane(pair, second);
				dead |= 1u << second;
			}
			assert_turns(pair, dead, 1);
			assert_turns(pair, dead, 7);
			vqp_pair_close(pair);
		}
}

/* The lane dies of a post of this very WR, whose other fragments still go out. */
static void a_lane_may_die_while_lanes_take_turns(void **state)
{
	(void)state;
	for (unsigned turn = 0; turn < LANES; turn++)
		for (unsigned lane = 0; lane < LANES; lane++) {
			struct vqp_pair *pair = open_pair(1, LANES, SNT_SCHEME_SPRAY);
			struct scripted_post_fault fault = { .error = EIO };

			for (unsigned i = 0; i < turn; i++) {
				send_wr(pair, SNT_OP_WRITE, i, 1);
				expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
			}
			fault.qp = lane_qp(pair, 0, lane);
			scripted_fail_post(pair->end[0].device[0], &fault);
			send_wr(pair, SNT_OP_WRITE, 9, 2 * LANES + 1);
			expect(pair, 0, 9, SNT_OP_WRITE, SNT_WC_FLUSHED);
			assert_turns(pair, 1u << lane, 1);
			assert_turns(pair, 1u << lane, 2 * LANES);
			vqp_pair_close(pair);
		}
}

/* All lanes end while a WR is spread over them: each keeps its own share, no more. */
static void shares_stay_as_they_are_when_a_qp_breaks(void **state)
{
	(void)state;
	for (unsigned turn = 0; turn < LANES; turn++)
		for (unsigned lane = 0; lane < LANES; lane++) {
			struct vqp_pair *pair = open_pair(1, LANES, SNT_SCHEME_DQPLB);
			struct scripted_post_fault fault = { .error = EIO };
			uint64_t before[LANES], after[LANES];

			for (unsigned i = 0; i < turn; i++) {
				send_wr(pair, SNT_OP_WRITE, i, 1);
				expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
			}
			fault.qp = lane_qp(pair, 0, lane);
			scripted_fail_post(pair->end[0].device[0], &fault);
			count_fragments(pair, before);
			send_wr(pair, SNT_OP_WRITE, 9, 2 * LANES);
			count_fragments(pair, after);
			for (unsigned i = 0; i < LANES; i++)
				assert_int_equal(after[i] - before[i], 2);
			expect(pair, 0, 9, SNT_OP_WRITE, SNT_WC_FLUSHED);
			vqp_pair_close(pair);
		}
}

/* Many WRs in one call, so that a lane dies within its chain, and others go on. */
static void a_list_goes_on_without_a_lane(void **state)
{
	(void)state;
	for (unsigned lane = 0; lane < LANES; lane++) {
		struct vqp_pair *pair = open_pair(1, LANES, SNT_SCHEME_SPRAY);
		struct scripted_post_fault fault = { .error = EIO };
		struct snt_send_wr wr[24];
		struct snt_sge sge[24];

		for (unsigned i = 0; i < ARRAY_SIZE(wr); i++) {
			wr[i] = vqp_wr(pair, 0, &sge[i], SNT_OP_WRITE, 0, FRAGMENT);
			wr[i].wr_id = i;
		}
		fault.qp = lane_qp(pair, 0, lane);
		scripted_fail_post(pair->end[0].device[0], &fault);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, ARRAY_SIZE(wr)),
				 ARRAY_SIZE(wr));
		for (unsigned i = 0; i < ARRAY_SIZE(wr); i++)
			expect(pair, 0, i, SNT_OP_WRITE,
			       i % LANES == lane ? SNT_WC_FLUSHED : SNT_WC_SUCCESS);
		assert_turns(pair, 1u << lane, 1);
		vqp_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dead_lane_takes_no_turns),
		cmocka_unit_test(a_lane_may_die_while_lanes_take_turns),
		cmocka_unit_test(shares_stay_as_they_are_when_a_qp_breaks),
		cmocka_unit_test(a_list_goes_on_without_a_lane),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
