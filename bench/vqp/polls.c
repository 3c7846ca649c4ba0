/* SPDX-License-Identifier: MIT */
/* Ways to poll: nothing there, and 64 WRs on four lanes by each of them. */
#include "vqp/load.h"

static void poll_empty_vqp_cq(void *arg, unsigned count)
{
	struct load *load = arg;
	struct snt_wc wc[32];

	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)snt_cq_poll(load->cq, wc, 32));
}

static void poll_raw_empty(void *arg, unsigned count)
{
	const struct raw *raw = arg;
	struct ibv_wc wc[32];

	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)ibv_poll_cq(raw->cq, 32, wc));
}

static void count_down(void *arg, const struct snt_wc *wc)
{
	unsigned *left = arg;

	bench_use(wc);
	--*left;
}

/* Takes some, and returns how many. */
typedef unsigned (*poll_fn)(struct load *load, unsigned left);

static unsigned by_callback(struct load *load, unsigned left)
{
	unsigned seen = left;

	snt_cq_poll_each(load->cq, left, count_down, &seen);
	return left - seen;
}

static unsigned by_index(struct load *load, unsigned left)
{
	struct snt_wc wc[32];

	(void)left;
	return snt_cq_poll_index(load->cq, 0, wc, 32);
}

static unsigned by_one(struct load *load, unsigned left)
{
	struct snt_wc wc;

	(void)left;
	return snt_cq_poll_one(load->cq, &wc);
}

/* The program polls the physical CQ and hands over what it finds. */
static unsigned by_itself(struct load *load, unsigned left)
{
	struct ibv_wc physical[32];
	struct snt_wc wc[32];
	int count = ibv_poll_cq(snt_cq_physical(load->cq, 0, NULL), 32, physical);

	(void)left;
	return snt_qp_complete(load->qp, 0, physical, count, wc, 32);
}

static inline void run_polls(struct load *load, unsigned count, poll_fn poll)
{
	for (unsigned done = 0; done < count; done += load->wrs) {
		snt_qp_post_send(load->qp, load->wr, load->wrs);
		for (unsigned left = load->wrs; left;)
			left -= poll(load, left);
	}
}

static void run_callback(void *arg, unsigned count)
{
	run_polls(arg, count, by_callback);
}

static void run_index(void *arg, unsigned count)
{
	run_polls(arg, count, by_index);
}

static void run_one(void *arg, unsigned count)
{
	run_polls(arg, count, by_one);
}

static void run_self(void *arg, unsigned count)
{
	run_polls(arg, count, by_itself);
}

void add_polls(struct bench *bench)
{
	static struct load load;
	static struct raw raw;
	const unsigned count = ROUNDS * WRS;

	load_make(&load, (struct load_opts){ LANES, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1,
					     0, 0, 0 });
	raw_make(&raw, (struct raw_opts){ LANES, 1, 0, 0, IBV_WR_RDMA_WRITE });
	bench_case(bench, "raw-empty-poll", poll_raw_empty, &raw, 1024, NULL);
	bench_case(bench, "empty-poll", poll_empty_vqp_cq, &load, 1024,
		   "raw-empty-poll");
	bench_case(bench, "poll-array", load_run, &load, count, NULL);
	bench_case(bench, "poll-callback", run_callback, &load, count, "poll-array");
	bench_case(bench, "poll-index", run_index, &load, count, "poll-array");
	bench_case(bench, "poll-one", run_one, &load, count, "poll-array");
	bench_case(bench, "poll-self", run_self, &load, count, "poll-array");
}
