/* SPDX-License-Identifier: MIT */
/*
 * DQPLB, receiving: polling fragments that have arrived, in turn over the lanes,
 * and replacing their receives. Against the same by hand. Arrivals, and receives of
 * the program, are prepared before the clock runs.
 */
#include <arpa/inet.h>

#include "vqp/load.h"

#define ARRIVALS 1024 /* 256 on each lane */
#define DEPTH	 512

struct receiver {
	struct load load;
	struct ibv_qp *lane[LANES];
	uint32_t sequence;
	unsigned fragments; /* of a message */
};

static void prepare_arrivals(void *arg)
{
	struct receiver *receiver = arg;
	struct snt_recv_wr recv = { 0 };

	for (unsigned i = 0; i < ARRIVALS; i++) {
		uint32_t sequence = receiver->sequence++;
		bool last = sequence % receiver->fragments == receiver->fragments - 1;

		null_recv(receiver->lane[sequence % LANES],
			  htonl((sequence & 0xffffff) | (last ? 1u << 31 : 0)), 64);
	}
	for (unsigned i = 0; i < ARRIVALS / receiver->fragments; i++)
		if (snt_qp_post_recv(receiver->load.qp, &recv, 1) != 1)
			die("no receive");
}

static void run_receives(void *arg, unsigned count)
{
	struct receiver *receiver = arg;
	struct snt_wc wc[32];

	for (unsigned left = count / receiver->fragments; left;) {
		left -= snt_cq_poll(receiver->load.cq, wc, 32);
		bench_use(wc);
	}
}

static void prepare_raw(void *arg)
{
	const struct raw *raw = arg;

	for (unsigned i = 0; i < ARRIVALS; i++)
		null_recv(raw->qp[i % LANES], htonl(i), 64);
}

static void run_raw_receives(void *arg, unsigned count)
{
	const struct raw *raw = arg;
	struct ibv_wc wc[32];
	int n;

	(void)count;
	while ((n = ibv_poll_cq(raw->cq, 32, wc)) > 0)
		for (int i = 0; i < n; i++) {
			struct ibv_recv_wr wr, *bad;

			wr.wr_id = wc[i].wr_id;
			wr.next = NULL;
			wr.sg_list = NULL;
			wr.num_sge = 0;
			ibv_post_recv(raw->qp[wc[i].wr_id], &wr, &bad);
		}
}

/* The program's own receives, which raw verbs do not have. */
static void run_post_recv(void *arg, unsigned count)
{
	struct receiver *receiver = arg;
	static const struct snt_recv_wr recv[WRS];

	for (unsigned done = 0; done < count; done += WRS)
		snt_qp_post_recv(receiver->load.qp, recv, WRS);
}

/* Matches and polls what the last pass has posted. */
static void use_up(void *arg)
{
	struct receiver *receiver = arg;
	struct snt_qp_info info = { .size = sizeof(info) };

	snt_qp_query(receiver->load.qp, &info);
	for (unsigned i = 0; i < info.recv_notifies; i++) {
		uint32_t sequence = receiver->sequence++;

		null_recv(receiver->lane[sequence % LANES],
			  htonl((sequence & 0xffffff) | 1u << 31), 64);
	}
	run_receives(receiver, info.recv_notifies);
}

static void make_receiver(struct receiver *receiver, unsigned fragments)
{
	load_make(&receiver->load,
		  (struct load_opts){ LANES, SNT_SCHEME_DQPLB, SNT_OP_WRITE_IMM, 1, 0,
				      DEPTH, 0 });
	receiver->fragments = fragments;
	for (unsigned i = 0; i < LANES; i++) {
		struct snt_lane_info lane = { .size = sizeof(lane) };

		snt_qp_query_lane(receiver->load.qp, i, &lane);
		receiver->lane[i] = lane.qp;
	}
}

void add_receives(struct bench *bench)
{
	static struct receiver receiver[3];
	static struct raw raw;

	make_receiver(&receiver[0], 1);
	make_receiver(&receiver[1], 16);
	make_receiver(&receiver[2], 1);
	raw_make(&raw, (struct raw_opts){ LANES, 1, 0, 0, IBV_WR_RDMA_WRITE });
	bench_prepared_case(bench, "raw-recv-dqplb", prepare_raw, run_raw_receives,
			    &raw, ARRIVALS, NULL);
	bench_prepared_case(bench, "recv-dqplb", prepare_arrivals, run_receives,
			    &receiver[0], ARRIVALS, "raw-recv-dqplb");
	bench_prepared_case(bench, "recv-dqplb-16frag", prepare_arrivals, run_receives,
			    &receiver[1], ARRIVALS, "raw-recv-dqplb");
	bench_prepared_case(bench, "post-recv-dqplb", use_up, run_post_recv,
			    &receiver[2], DEPTH, "raw-recv-dqplb");
}
