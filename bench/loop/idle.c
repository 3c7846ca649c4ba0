/* SPDX-License-Identifier: MIT */
/*
 * What a loop with many connected QPs costs while nothing happens: CPU time of the whole
 * process, threads of the soft devices included, in a second of waiting. The same for one
 * QP, to compare with.
 */
#include <sys/resource.h>

#include "loop/cases.h"

#define QPS	  1000
#define SECOND_NS INT64_C(1000000000)

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct idle {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp[2 * QPS];
	unsigned count;
};

/* Each with the next one, in one context. */
static void connect_all(struct idle *idle)
{
	const struct snt_qp_opts opts = { .size = sizeof(opts),
					  .cq = idle->cq,
					  .flags = SNT_QP_PASS_THROUGH,
					  .devices = 1,
					  .lane_depth = 2,
					  .recv_depth = 2 };

	for (unsigned i = 0; i < idle->count; i++) {
		struct snt_card card[2];

		if (snt_qp_create(idle->ctx, &opts, &idle->qp[i]))
			die("no QP");
		if (!(i % 2))
			continue;
		for (unsigned n = 0; n < 2; n++)
			if (snt_qp_card(idle->qp[i - n], &card[n]))
				die("no card");
		for (unsigned n = 0; n < 2; n++)
			if (snt_qp_connect(idle->qp[i - n], &card[!n]))
				die("no connection");
	}
}

static void open_idle(struct idle *idle)
{
	const struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					       .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };

	if (snt_ctx_create(&ctx_opts, &idle->ctx) ||
	    snt_loop_create(idle->ctx, NULL, &idle->loop))
		die("no context");
	cq_opts.loop = idle->loop;
	if (snt_cq_create(idle->ctx, &cq_opts, &idle->cq))
		die("no CQ");
	connect_all(idle);
}

static void close_idle(struct idle *idle)
{
	for (unsigned i = 0; i < idle->count; i++) {
		struct snt_op op = { 0 };

		if (snt_op_close(idle->qp[i], &op) || snt_op_wait(&op, -1) ||
		    snt_qp_destroy(idle->qp[i]))
			die("no end");
	}
	if (snt_cq_destroy(idle->cq) || snt_loop_destroy(idle->loop) ||
	    snt_ctx_destroy(idle->ctx))
		die("no end");
}

static double measure_idle(unsigned count)
{
	static struct idle idle;
	double before;

	idle.count = count;
	open_idle(&idle);
	while (snt_loop_wait(idle.loop, SECOND_NS / 10) > 0)
		continue;
	before = cpu_us();
	if (snt_loop_wait(idle.loop, SECOND_NS) < 0)
		die("wait");
	before = cpu_us() - before;
	close_idle(&idle);
	return before;
}

void add_idle(struct bench *bench)
{
	bench_value(bench, "idle-1-us/s", measure_idle(2), "us", NULL);
	bench_value(bench, "idle-1000-us/s", measure_idle(2 * QPS), "us", NULL);
}
