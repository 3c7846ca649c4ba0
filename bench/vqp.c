/* SPDX-License-Identifier: MIT */
/*
 * What a virtual QP costs, on a device that costs as little as a device can. Each
 * case posts 64 WRs (16 if they have 16 fragments) and polls them, 32 at a time;
 * its value is ns per WR. The baselines post the same physical fragments one by
 * one with plain verbs, and poll each, as a careful engineer would write it.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sennit/sennit.h>

#include "devices/null.h"
#include "lib/bench.h"

#define LANES	 4
#define WRS	 64
#define FRAGMENT 4096
#define BUFFER	 (16 * FRAGMENT)
#define ROUNDS	 16

static struct snt_ctx *ctx;
static struct snt_device *device;
static struct snt_mem *mem;
static struct snt_token token;
static char buffer[BUFFER];

/* One case: WRs prepared once, and where they go. */
struct load {
	struct snt_cq *cq;
	struct snt_qp *qp;
	unsigned wrs;
	unsigned fragments;
	struct snt_sge sge;
	struct snt_send_wr wr[WRS];
};

/* The same by hand. */
struct raw {
	struct ibv_cq *cq;
	struct ibv_qp *qp[LANES];
	unsigned lanes;
	unsigned wrs;
	unsigned fragments;
	unsigned notifies; /* empty writes with immediate that follow each WR */
	enum ibv_wr_opcode opcode;
};

static void run_raw(void *arg, unsigned count)
{
	const struct raw *raw = arg;
	struct ibv_wc wc[32];

	for (unsigned done = 0; done < count; done += raw->wrs) {
		unsigned turn = 0;

		for (unsigned i = 0; i < raw->wrs * (raw->fragments + raw->notifies);
		     i++) {
			struct ibv_send_wr wr, *bad;
			struct ibv_sge sge;

			sge.addr = (uintptr_t)buffer + i % 16 * FRAGMENT;
			sge.length = FRAGMENT;
			sge.lkey = 1;
			wr.wr_id = i;
			wr.next = NULL;
			wr.sg_list = &sge;
			wr.num_sge = 1;
			wr.opcode = raw->opcode;
			wr.send_flags = IBV_SEND_SIGNALED;
			wr.imm_data = i;
			wr.wr.rdma.remote_addr = (uintptr_t)buffer;
			wr.wr.rdma.rkey = 2;
			ibv_post_send(raw->qp[turn], &wr, &bad);
			turn = turn + 1 == raw->lanes ? 0 : turn + 1;
		}
		while (ibv_poll_cq(raw->cq, 32, wc) > 0)
			bench_use(wc);
	}
}

static void run_load(void *arg, unsigned count)
{
	struct load *load = arg;
	struct snt_wc wc[32];

	for (unsigned done = 0; done < count; done += load->wrs) {
		unsigned left = load->wrs;

		snt_qp_post_send(load->qp, load->wr, load->wrs);
		while (left) {
			left -= snt_cq_poll(load->cq, wc, 32);
			bench_use(wc);
		}
	}
}

/* The same, but each WR posted by a call of its own. */
static void run_each(void *arg, unsigned count)
{
	struct load *load = arg;
	struct snt_wc wc[32];

	for (unsigned done = 0; done < count; done += load->wrs) {
		unsigned left = load->wrs;

		for (unsigned i = 0; i < load->wrs; i++)
			snt_qp_post_send(load->qp, &load->wr[i], 1);
		while (left) {
			left -= snt_cq_poll(load->cq, wc, 32);
			bench_use(wc);
		}
	}
}

static void poll_empty(void *arg, unsigned count)
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

/* Receives: one fragment per CQE, sequence numbers in turn over the lanes. */
struct receiver {
	struct load load;
	struct ibv_qp *lane[LANES];
	uint32_t sequence;
	struct snt_recv_wr recv[WRS];
};

static void run_recv_dqplb(void *arg, unsigned count)
{
	struct receiver *receiver = arg;
	struct snt_wc wc[32];

	for (unsigned done = 0; done < count; done += WRS) {
		unsigned left = WRS;

		snt_qp_post_recv(receiver->load.qp, receiver->recv, WRS);
		for (unsigned i = 0; i < WRS; i++) {
			uint32_t sequence = receiver->sequence++;

			null_recv(receiver->lane[sequence % LANES],
				  htonl((sequence & 0xffffff) | 1u << 31), 64);
		}
		while (left) {
			left -= snt_cq_poll(receiver->load.cq, wc, 32);
			bench_use(wc);
		}
	}
}

/* The same arrivals, polled and replaced by hand. */
static void run_recv_raw(void *arg, unsigned count)
{
	const struct raw *raw = arg;
	struct ibv_wc wc[32];
	int n;

	for (unsigned done = 0; done < count; done += WRS) {
		for (unsigned i = 0; i < WRS; i++)
			null_recv(raw->qp[i % LANES], htonl(i), 64);
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
}

static void die(const char *what)
{
	fprintf(stderr, "vqp: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void make_load(struct load *load, unsigned lanes, enum snt_scheme scheme,
		      unsigned opcode, unsigned fragments)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = lanes,
				    .scheme = scheme,
				    .fragment_size = FRAGMENT,
				    .lane_depth = 128 };
	struct snt_card card;

	load->fragments = fragments;
	load->wrs = fragments == 1 ? WRS : WRS / 4;
	load->sge = (struct snt_sge){ mem, buffer, (uint64_t)fragments * FRAGMENT };
	for (unsigned i = 0; i < load->wrs; i++)
		load->wr[i] = (struct snt_send_wr){ .wr_id = i,
						    .opcode = opcode,
						    .flags = SNT_SIGNALED,
						    .sge_count = 1,
						    .imm = i + 1,
						    .sge = &load->sge,
						    .remote = &token,
						    .remote_addr = token.addr };
	if (snt_qp_create_with_cq(ctx, NULL, &opts, &load->cq, &load->qp) ||
	    snt_qp_card(load->qp, &card) || snt_qp_connect(load->qp, &card))
		die("cannot make a QP");
}

static void make_raw(struct raw *raw, unsigned lanes, unsigned fragments,
		     unsigned notifies, enum ibv_wr_opcode opcode)
{
	const struct snt_control *control = snt_device_control(device);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 512, .max_recv_wr = 128, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	raw->lanes = lanes;
	raw->fragments = fragments;
	raw->notifies = notifies;
	raw->wrs = fragments == 1 ? WRS : WRS / 4;
	raw->opcode = opcode;
	if (control->create_cq(snt_device_context(device), 4096, NULL, NULL, 0,
			       &raw->cq))
		die("no CQ");
	attr.send_cq = attr.recv_cq = raw->cq;
	for (unsigned i = 0; i < lanes; i++) {
		struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT };
		struct ibv_recv_wr recv = { .wr_id = i }, *bad;

		if (control->create_qp(snt_device_pd(device), &attr, &raw->qp[i]))
			die("no QP");
		control->modify_qp(raw->qp[i], &init, IBV_QP_STATE);
		for (int j = 0; j < 64; j++)
			ibv_post_recv(raw->qp[i], &recv, &bad);
	}
}

static const struct row {
	const char *name, *raw_name, *each_name;
	unsigned lanes;
	enum snt_scheme scheme;
	unsigned opcode, fragments, notifies;
	enum ibv_wr_opcode verb;
} rows[] = {
	{ "write-1lane-1frag", "raw-write-1lane-1frag", "write-1lane-1frag-each", 1,
	  SNT_SPRAY, SNT_WRITE, 1, 0, IBV_WR_RDMA_WRITE },
	{ "write-4lane-1frag", "raw-write-4lane-1frag", "write-4lane-1frag-each", 4,
	  SNT_SPRAY, SNT_WRITE, 1, 0, IBV_WR_RDMA_WRITE },
	{ "write-4lane-16frag", "raw-write-4lane-16frag", "write-4lane-16frag-each", 4,
	  SNT_SPRAY, SNT_WRITE, 16, 0, IBV_WR_RDMA_WRITE },
	{ "imm-spray-4lane-1frag", "raw-imm-spray-4lane-1frag",
	  "imm-spray-4lane-1frag-each", 4, SNT_SPRAY, SNT_WRITE_IMM, 1, 1,
	  IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "imm-dqplb-4lane-1frag", "raw-imm-dqplb-4lane-1frag",
	  "imm-dqplb-4lane-1frag-each", 4, SNT_DQPLB, SNT_WRITE_IMM, 1, 1,
	  IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "imm-dqplb-4lane-16frag", "raw-imm-dqplb-4lane-16frag",
	  "imm-dqplb-4lane-16frag-each", 4, SNT_DQPLB, SNT_WRITE_IMM, 16, 1,
	  IBV_WR_RDMA_WRITE_WITH_IMM },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void add_rows(struct bench *bench, struct load *load, struct raw *raw)
{
	for (unsigned i = 0; i < ROW_COUNT; i++) {
		const struct row *row = &rows[i];

		make_load(&load[i], row->lanes, row->scheme, row->opcode,
			  row->fragments);
		make_raw(&raw[i], row->lanes, row->fragments, row->notifies, row->verb);
		bench_case(bench, row->raw_name, run_raw, &raw[i], ROUNDS * raw[i].wrs,
			   NULL);
		bench_case(bench, row->name, run_load, &load[i], ROUNDS * load[i].wrs,
			   row->raw_name);
		bench_case(bench, row->each_name, run_each, &load[i],
			   ROUNDS * load[i].wrs, row->raw_name);
	}
}

int main(int argc, char **argv)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct bench *bench = bench_begin("vqp", argc, argv);
	static struct load load[ROW_COUNT];
	static struct raw raw[ROW_COUNT], raw_recv;
	static struct receiver receiver;
	struct null_device *null = null_device_create("null0");
	struct snt_adopted adopted = null_adopted(null);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	if (snt_ctx_open(&opts, &ctx) ||
	    snt_mem_register(ctx, buffer, sizeof(buffer), access, &mem) ||
	    snt_mem_token(mem, &token))
		die("cannot begin");
	device = snt_ctx_device(ctx, 0);
	add_rows(bench, load, raw);
	make_load(&receiver.load, LANES, SNT_DQPLB, SNT_WRITE_IMM, 1);
	for (unsigned i = 0; i < LANES; i++) {
		struct snt_lane_info lane = { .size = sizeof(lane) };

		snt_qp_lane(receiver.load.qp, i, &lane);
		receiver.lane[i] = lane.qp;
	}
	make_raw(&raw_recv, LANES, 1, 0, IBV_WR_RDMA_WRITE);
	bench_case(bench, "raw-recv-dqplb", run_recv_raw, &raw_recv, ROUNDS * WRS,
		   NULL);
	bench_case(bench, "recv-dqplb", run_recv_dqplb, &receiver, ROUNDS * WRS,
		   "raw-recv-dqplb");
	bench_case(bench, "raw-empty-poll", poll_raw_empty, &raw[0], 1024, NULL);
	bench_case(bench, "empty-poll", poll_empty, &load[1], 1024, "raw-empty-poll");
	/* The process ends here; what is open goes with it. */
	return bench_end(bench);
}
