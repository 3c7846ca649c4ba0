/* SPDX-License-Identifier: MIT */
/*
 * How late an answer is noticed that comes after 10 us, inside of the time that waits
 * look before they sleep. The answer comes by the clock, whichever thread polls, on a
 * scripted device, so that no other process has a part in it. Values are ns from post
 * to return; what spins does nothing but snt_loop_poll().
 */
#include <errno.h>
#include <time.h>

#include "lib/devices/scripted.h"
#include "loop/cases.h"

#define ANSWER_NS 10000
#define COUNT	  20

static struct {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[4096];
	struct snt_cq *cq;
	struct snt_qp *qp[2];
	struct ibv_qp *lane;
	uint64_t due_ns; /* 0: nothing is */
} x;

static int (*real_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);

static uint64_t answer_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static int poll_in_time(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	if (x.due_ns && answer_now_ns() >= x.due_ns) {
		x.due_ns = 0;
		scripted_complete(x.lane, IBV_WC_SUCCESS);
	}
	return real_poll(cq, max, wc);
}

static void post_question(struct snt_op *op)
{
	struct snt_sge sge = { x.mem, x.buffer, 64 };

	if (snt_op_write(x.qp[0], op, &sge, &x.token, x.token.addr))
		die("no write");
	x.due_ns = answer_now_ns() + ANSWER_NS;
}

static void spin_for_answer(void *arg, unsigned count)
{
	static struct snt_op op;

	(void)arg;
	for (unsigned i = 0; i < count; i++) {
		post_question(&op);
		while (snt_op_pending(&op))
			snt_loop_poll(x.loop, 0);
	}
}

static void wait_for_answer(void *arg, unsigned count)
{
	static struct snt_op op;

	snt_loop_set_spin(x.loop, *(int64_t *)arg);
	for (unsigned i = 0; i < count; i++) {
		int ret;

		/* A thread that was without a processor for too long sleeps, and
		 * nothing would wake it. */
		post_question(&op);
		do
			ret = snt_op_wait(&op, 1000000);
		while (ret == -ETIME);
		if (ret)
			die("no answer");
	}
}

static void make_qps(void)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = x.loop,
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH };
	struct snt_lane_info info = { .size = sizeof(info) };
	struct snt_card card[2];

	if (snt_cq_create(x.ctx, &cq_opts, &x.cq))
		die("no CQ");
	qp_opts.cq = x.cq;
	for (int i = 0; i < 2; i++)
		if (snt_qp_create(x.ctx, &qp_opts, &x.qp[i]) ||
		    snt_qp_card(x.qp[i], &card[i]))
			die("no QP");
	for (int i = 0; i < 2; i++)
		if (snt_qp_connect(x.qp[i], &card[!i]))
			die("no connection");
	if (snt_qp_query_lane(x.qp[0], 0, &info))
		die("no lane");
	x.lane = info.qp;
}

void add_answers(struct bench *bench)
{
	static int64_t hybrid = 50000, adaptive = SNT_SPIN_AUTO;
	struct scripted_device *device =
		scripted_device_create(scripted_fabric_create(1), NULL);
	struct snt_adopted adopted = scripted_adopted(device);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	real_poll = adopted.context->ops.poll_cq;
	adopted.context->ops.poll_cq = poll_in_time;
	if (snt_ctx_create(&opts, &x.ctx) || snt_loop_create(x.ctx, NULL, &x.loop) ||
	    snt_mem_register(x.ctx, x.buffer, sizeof(x.buffer),
			     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			     &x.mem) ||
	    snt_mem_token(x.mem, &x.token))
		die("cannot begin");
	make_qps();
	bench_case(bench, "answer-spinning", spin_for_answer, NULL, COUNT, NULL);
	bench_case(bench, "answer-hybrid", wait_for_answer, &hybrid, COUNT,
		   "answer-spinning");
	bench_case(bench, "answer-adaptive", wait_for_answer, &adaptive, COUNT,
		   "answer-spinning");
}
