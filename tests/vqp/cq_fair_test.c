/* SPDX-License-Identifier: MIT */
/*
 * QPs of one virtual CQ are served alike, however they are spread over its physical CQs: a
 * physical CQ that has room for a few more is as full of work as one that has many.
 */
#include "lib/test.h"

#include "lib/loop_kit.h"

#define QPS	 41
#define CQ_DEPTH 256
#define DEPTH	 8
#define BUSY	 6 /* WRs on each QP at all times */
#define WRS	 40000

static struct {
	struct loop_pair *pair;
	struct snt_cq *cq;
	struct snt_qp *qp[QPS][2];
	unsigned served[QPS];
} fair;

static void open_world(void)
{
	struct loop_opts opts = { 0 };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .depth = CQ_DEPTH };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .lane_depth = DEPTH,
				       .send_depth = DEPTH,
				       .recv_depth = DEPTH };
	struct snt_card card[2];

	memset(&fair, 0, sizeof(fair));
	fair.pair = loop_pair_open(&opts);
	assert_success(snt_cq_create(fair.pair->end[0].ctx, &cq_opts, &fair.cq));
	for (unsigned i = 0; i < QPS; i++) {
		for (int end = 0; end < 2; end++) {
			qp_opts.cq = end ? fair.pair->end[1].cq : fair.cq;
			assert_success(snt_qp_create(fair.pair->end[end].ctx, &qp_opts,
						     &fair.qp[i][end]));
			assert_success(snt_qp_card(fair.qp[i][end], &card[end]));
		}
		for (int end = 0; end < 2; end++)
			assert_success(snt_qp_connect(fair.qp[i][end], &card[!end]));
	}
	/* Several, and the last one is not as full as the others. */
	assert_true(snt_cq_count(fair.cq) >= 3);
	assert_true(QPS % snt_cq_count(fair.cq) != 0);
}

static void close_world(void)
{
	struct snt_wc wc[32];

	for (unsigned i = 0; i < QPS; i++)
		for (int end = 0; end < 2; end++)
			assert_success(snt_qp_close(fair.qp[i][end], 1));
	for (int turn = 0; turn < 100; turn++) {
		loop_pair_run(fair.pair);
		assert_success(snt_cq_poll(fair.cq, wc, 32));
		assert_success(snt_cq_poll(fair.pair->end[1].cq, wc, 32));
	}
	for (unsigned i = 0; i < QPS; i++)
		for (int end = 0; end < 2; end++)
			assert_success(snt_qp_destroy(fair.qp[i][end]));
	assert_success(snt_cq_destroy(fair.cq));
	loop_pair_close(fair.pair);
}

static void post_one(unsigned i)
{
	struct snt_sge sge = loop_sge(fair.pair, 0, 0, 8);
	struct snt_send_wr wr = { .wr_id = i,
				  .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &fair.pair->end[1].token,
				  .remote_addr = fair.pair->end[1].token.addr };

	assert_int_equal(snt_qp_post_send(fair.qp[i][0], &wr, 1), 1);
}

/* A device that is done with everything before the next poll. */
static void keep_busy(int max)
{
	struct snt_wc wc[64];

	for (unsigned i = 0; i < QPS; i++)
		for (unsigned n = 0; n < BUSY; n++)
			post_one(i);
	for (unsigned total = 0; total < WRS;) {
		int count;

		loop_pair_run(fair.pair);
		count = snt_cq_poll(fair.cq, wc, max);
		/* There is enough for every poll. */
		assert_int_equal(count, max);
		for (int n = 0; n < count; n++) {
			assert_int_equal(wc[n].status, SNT_WC_SUCCESS);
			fair.served[wc[n].wr_id]++;
			post_one(wc[n].wr_id);
		}
		total += count;
	}
}

static void judge(int max)
{
	unsigned least = fair.served[0], most = fair.served[0];

	for (unsigned i = 1; i < QPS; i++) {
		least = fair.served[i] < least ? fair.served[i] : least;
		most = fair.served[i] > most ? fair.served[i] : most;
	}
	if (least * 10 < most * 9)
		fail_msg("polled by %d: one QP was served %u times, another %u", max,
			 least, most);
}

static void qps_of_a_cq_with_few_are_served_no_more_than_others(void **state)
{
	static const int maxima[] = { 1, 2, 7, 16, 32, 64 };

	(void)state;
	for (unsigned i = 0; i < sizeof(maxima) / sizeof(maxima[0]); i++) {
		open_world();
		keep_busy(maxima[i]);
		judge(maxima[i]);
		close_world();
	}
}

/* What is left in other CQs is not forgotten when one has had its turn. */
static void a_poll_finds_all_there_is(void **state)
{
	struct snt_wc wc[QPS * BUSY + 1];

	(void)state;
	open_world();
	for (int round = 0; round < 10; round++) {
		for (unsigned i = 0; i < QPS; i++)
			for (unsigned n = 0; n < BUSY; n++)
				post_one(i);
		loop_pair_run(fair.pair);
		assert_int_equal(snt_cq_poll(fair.cq, wc, QPS * BUSY + 1), QPS * BUSY);
		assert_int_equal(snt_cq_poll(fair.cq, wc, 1), 0);
	}
	close_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qps_of_a_cq_with_few_are_served_no_more_than_others),
		cmocka_unit_test(a_poll_finds_all_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
