/* SPDX-License-Identifier: MIT */
/*
 * Does it matter how many virtual QPs report to one CQ? Each case does the same: 32
 * WRs are posted to one of them and polled. In those with "far" they go to 32 of them,
 * far apart, so that memory and caches have more to do; of 32 QPs these are all. Bytes
 * are what the heap holds for each, with the null device's part of it.
 */
#include <malloc.h>
#include <stdlib.h>

#include "vqp/load.h"

#define FAR 32

struct crowd {
	unsigned count;
	struct snt_cq *cq;
	struct snt_qp **qp;
	struct snt_send_wr wr;
	struct snt_sge sge;
};

/* So many from one to the next of those that are posted to. */
static void run_steps(struct crowd *crowd, unsigned step, unsigned count)
{
	struct snt_wc wc[FAR];

	for (unsigned done = 0; done < count; done += FAR) {
		for (unsigned i = 0; i < FAR; i++)
			snt_qp_post_send(crowd->qp[i * step], &crowd->wr, 1);
		for (unsigned left = FAR; left;) {
			left -= snt_cq_poll(crowd->cq, wc, FAR);
			bench_use(wc);
		}
	}
}

static void run_all_steps(void *arg, unsigned count)
{
	run_steps(arg, 0, count);
}

static void run_far(void *arg, unsigned count)
{
	struct crowd *crowd = arg;

	run_steps(crowd, crowd->count / FAR, count);
}

static void poll_crowd(void *arg, unsigned count)
{
	struct crowd *crowd = arg;
	struct snt_wc wc[32];

	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)snt_cq_poll(crowd->cq, wc, 32));
}

static size_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Returns bytes for each. */
static double make_crowd(struct crowd *crowd, unsigned count)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .depth = 1 << 20 };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 2,
				    .lane_depth = 16,
				    .send_depth = FAR,
				    .recv_depth = 8 };
	struct snt_qp *first;
	size_t before;

	crowd->count = count;
	crowd->qp = calloc(count, sizeof(struct snt_qp *));
	if (snt_cq_create(ground.ctx, &cq_opts, &crowd->cq))
		die("no CQ");
	opts.cq = crowd->cq;
	/* The first one makes the physical CQ, which is not what is to be measured. */
	if (snt_qp_create(ground.ctx, &opts, &first))
		die("no QP");
	before = heap_bytes();
	for (unsigned i = 0; i < count; i++) {
		struct snt_card card;

		if (snt_qp_create(ground.ctx, &opts, &crowd->qp[i]) ||
		    snt_qp_card(crowd->qp[i], &card) ||
		    snt_qp_connect(crowd->qp[i], &card))
			die("cannot make so many QPs");
	}
	crowd->sge = (struct snt_sge){ ground.mem, ground.buffer, 64 };
	crowd->wr = (struct snt_send_wr){ .opcode = SNT_OP_WRITE,
					  .flags = SNT_SEND_SIGNALED,
					  .sge_count = 1,
					  .sge = &crowd->sge,
					  .remote = &ground.token,
					  .remote_addr = ground.token.addr };
	return (double)(heap_bytes() - before) / count;
}

void add_many(struct bench *bench)
{
	static const struct {
		unsigned count;
		const char *run, *far, *empty, *bytes;
	} rows[] = {
		{ 1, "qps-1", NULL, "qps-1-empty-poll", "qps-1-bytes" },
		{ 32, "qps-32", "qps-32-far", NULL, NULL },
		{ 100, "qps-100", "qps-100-far", "qps-100-empty-poll",
		  "qps-100-bytes" },
		{ 10000, "qps-10000", "qps-10000-far", "qps-10000-empty-poll",
		  "qps-10000-bytes" },
	};
	static struct crowd crowd[4];

	for (unsigned i = 0; i < 4; i++) {
		double bytes;

		if (!bench_wants(bench, "qps"))
			return;
		bytes = make_crowd(&crowd[i], rows[i].count);
		bench_case(bench, rows[i].run, run_all_steps, &crowd[i], ROUNDS * FAR,
			   i ? rows[0].run : NULL);
		if (rows[i].far)
			bench_case(bench, rows[i].far, run_far, &crowd[i], ROUNDS * FAR,
				   i > 1 ? rows[1].far : NULL);
		if (!rows[i].empty)
			continue;
		bench_case(bench, rows[i].empty, poll_crowd, &crowd[i], 1024,
			   i ? rows[0].empty : NULL);
		bench_value(bench, rows[i].bytes, bytes, "bytes",
			    i ? rows[0].bytes : NULL);
	}
}
