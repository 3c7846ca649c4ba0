/* SPDX-License-Identifier: MIT */
/*
 * Sixteen writes at a time on the null device, by plain posting and polling, as a batch
 * of ops, and as ops one by one. Values are ns per write, from post to callback.
 */
#include "lib/devices/null.h"
#include "loop/cases.h"

#define BATCH  16
#define ROUNDS 64
#define COUNT  (BATCH * ROUNDS)

static struct {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[4096];
	struct snt_cq *cq[2]; /* polled, and with ops */
	struct snt_qp *qp[2];
	struct snt_sge sge;
	struct snt_send_wr wr[BATCH];
	struct snt_op op[BATCH];
	struct snt_op *ops[BATCH];
	unsigned done;
} x;

static void count_polled_op(struct snt_op *op)
{
	bench_use(op);
	x.done++;
}

static void poll_plainly(void *arg, unsigned total)
{
	struct snt_wc wc[BATCH];

	(void)arg;
	for (unsigned i = 0; i < total; i += BATCH) {
		snt_qp_post_send(x.qp[0], x.wr, BATCH);
		for (int left = BATCH; left;) {
			left -= snt_cq_poll(x.cq[0], wc, BATCH);
			bench_use(wc);
		}
	}
}

/* The same with each WR posted by a call of its own. */
static void poll_plainly_each(void *arg, unsigned total)
{
	struct snt_wc wc[BATCH];

	(void)arg;
	for (unsigned i = 0; i < total; i += BATCH) {
		for (int n = 0; n < BATCH; n++)
			snt_qp_post_send(x.qp[0], &x.wr[n], 1);
		for (int left = BATCH; left;) {
			left -= snt_cq_poll(x.cq[0], wc, BATCH);
			bench_use(wc);
		}
	}
}

static void run_batches(void *arg, unsigned total)
{
	(void)arg;
	for (unsigned i = 0; i < total; i += BATCH) {
		snt_op_post_batch(x.qp[1], x.ops, x.wr, BATCH);
		for (x.done = 0; x.done < BATCH;)
			snt_loop_poll(x.loop, 0);
	}
}

static void run_each(void *arg, unsigned total)
{
	(void)arg;
	for (unsigned i = 0; i < total; i += BATCH) {
		for (int n = 0; n < BATCH; n++)
			snt_op_write(x.qp[1], &x.op[n], &x.sge, &x.token, x.token.addr);
		for (x.done = 0; x.done < BATCH;)
			snt_loop_poll(x.loop, 0);
	}
}

static void run_deadlines(void *arg, unsigned total)
{
	(void)arg;
	for (unsigned i = 0; i < total; i += BATCH) {
		for (int n = 0; n < BATCH; n++) {
			snt_op_write(x.qp[1], &x.op[n], &x.sge, &x.token, x.token.addr);
			snt_op_timeout(&x.op[n], 1000000000, SNT_CANCEL_DETACH);
		}
		for (x.done = 0; x.done < BATCH;)
			snt_loop_poll(x.loop, 0);
	}
}

static void poll_empty_loop(void *arg, unsigned total)
{
	(void)arg;
	for (unsigned i = 0; i < total; i++)
		bench_use((void *)(long)snt_loop_poll(x.loop, 0));
}

static void poll_cq_empty(void *arg, unsigned total)
{
	struct snt_wc wc[BATCH];

	(void)arg;
	for (unsigned i = 0; i < total; i++)
		bench_use((void *)(long)snt_cq_poll(x.cq[0], wc, BATCH));
}

static void make_ops_qp(int with_ops)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = with_ops ? x.loop : NULL,
				       .ops = with_ops ? SNT_CQ_OPS_POLLED : 0 };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH };
	struct snt_card card;

	if (snt_qp_create_with_cq(x.ctx, &cq_opts, &qp_opts, &x.cq[with_ops],
				  &x.qp[with_ops]) ||
	    snt_qp_card(x.qp[with_ops], &card) || snt_qp_connect(x.qp[with_ops], &card))
		die("cannot make a QP");
}

void add_ops(struct bench *bench)
{
	struct snt_adopted adopted = null_adopted(null_device_create("null0"));
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	if (snt_ctx_create(&opts, &x.ctx) || snt_loop_create(x.ctx, NULL, &x.loop) ||
	    snt_mem_register(x.ctx, x.buffer, sizeof(x.buffer),
			     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			     &x.mem) ||
	    snt_mem_token(x.mem, &x.token))
		die("cannot begin");
	x.sge = (struct snt_sge){ x.mem, x.buffer, 64 };
	for (int i = 0; i < BATCH; i++) {
		x.wr[i] = (struct snt_send_wr){ .opcode = SNT_OP_WRITE,
						.flags = SNT_SEND_SIGNALED,
						.sge_count = 1,
						.sge = &x.sge,
						.remote = &x.token,
						.remote_addr = x.token.addr };
		x.op[i].done = count_polled_op;
		x.ops[i] = &x.op[i];
	}
	make_ops_qp(0);
	make_ops_qp(1);
	bench_case(bench, "plain-16", poll_plainly, NULL, COUNT, NULL);
	bench_case(bench, "op-batch-16", run_batches, NULL, COUNT, "plain-16");
	bench_case(bench, "plain-each", poll_plainly_each, NULL, COUNT, NULL);
	bench_case(bench, "op-each", run_each, NULL, COUNT, "plain-each");
	bench_case(bench, "op-deadline", run_deadlines, NULL, COUNT, "plain-each");
	bench_case(bench, "empty-cq-poll", poll_cq_empty, NULL, COUNT, NULL);
	bench_case(bench, "empty-loop-poll", poll_empty_loop, NULL, COUNT,
		   "empty-cq-poll");
}
