/* SPDX-License-Identifier: MIT */
/*
 * A loop with a thousand connected QPs, on soft devices: while nothing happens no
 * thread wakes up, and no processor is spent; and what happens then is heard by the one
 * it is for.
 */
#include "lib/test.h"

#include <sys/resource.h>
#include <sennit/sennit.h>

#define QPS	  1000
#define SECOND_NS INT64_C(1000000000)
#define CPU_MS	  20 /* in a second; more by far than it takes, and far from polling */

static struct snt_ctx *ctx;
static struct snt_loop *loop;
static struct snt_cq *cq;
static struct snt_qp *qp[2 * QPS];
static struct snt_op op[2 * QPS];
static unsigned done;

static double cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void note(struct snt_op *from)
{
	assert_int_equal(from->result, 0);
	done++;
}

static void connect_all(void)
{
	const struct snt_qp_opts opts = { .size = sizeof(opts),
					  .cq = cq,
					  .flags = SNT_QP_PASS_THROUGH,
					  .devices = 1,
					  .lane_depth = 2,
					  .recv_depth = 2 };

	for (unsigned i = 0; i < 2 * QPS; i++) {
		struct snt_card card[2];

		assert_success(snt_qp_create(ctx, &opts, &qp[i]));
		if (!(i % 2))
			continue;
		for (unsigned n = 0; n < 2; n++)
			assert_success(snt_qp_card(qp[i - n], &card[n]));
		for (unsigned n = 0; n < 2; n++)
			assert_success(snt_qp_connect(qp[i - n], &card[!n]));
		op[i].done = note;
		assert_success(snt_op_recv(qp[i], &op[i], NULL));
	}
}

static void a_thousand_idle_qps(void **state)
{
	const struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					       .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	double before;

	(void)state;
	assert_success(snt_ctx_create(&ctx_opts, &ctx));
	assert_success(snt_loop_create(ctx, NULL, &loop));
	cq_opts.loop = loop;
	assert_success(snt_cq_create(ctx, &cq_opts, &cq));
	connect_all();
	while (snt_loop_wait(loop, SECOND_NS / 10))
		continue;
	before = cpu_ms();
	assert_int_equal(snt_loop_wait(loop, SECOND_NS), 0);
	before = cpu_ms() - before;
	print_message("# %.1f ms of CPU in an idle second\n", before);
	assert_true(before < CPU_MS);
	/* The last of them is heard as the first is. */
	for (unsigned i = 0; i < 2; i++) {
		unsigned at = i * (2 * QPS - 2);

		op[at].done = note;
		assert_success(
			snt_op_post(qp[at], &op[at],
				    &(struct snt_send_wr){ .opcode = SNT_OP_SEND }));
		while (done < 2 * (i + 1))
			assert_success(snt_loop_wait(loop, -1));
		assert_int_equal(op[at + 1].wc.qp_num, snt_qp_num(qp[at + 1]));
	}
	for (unsigned i = 0; i < 2 * QPS; i++) {
		struct snt_op close = { 0 };

		op[i].done = NULL;
		assert_success(snt_op_close(qp[i], &close));
		assert_int_equal(snt_op_wait(&close, -1), 0);
		assert_success(snt_qp_destroy(qp[i]));
	}
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_loop_destroy(loop));
	assert_success(snt_ctx_destroy(ctx));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_idle_qps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
