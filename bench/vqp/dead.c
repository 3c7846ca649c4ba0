/* SPDX-License-Identifier: MIT */
/* A QP of four lanes, one of which has died, against a QP that was made with three. */
#include "vqp/load.h"

static const struct row {
	const char *three, *dead, *three_each, *dead_each;
	unsigned opcode, fragments;
} rows[] = {
	{ "write-3lane-1frag", "write-4lane-1dead-1frag", "write-3lane-1frag-each",
	  "write-4lane-1dead-1frag-each", SNT_OP_WRITE, 1 },
	{ "write-3lane-16frag", "write-4lane-1dead-16frag", "write-3lane-16frag-each",
	  "write-4lane-1dead-16frag-each", SNT_OP_WRITE, 16 },
	{ "imm-spray-3lane-1frag", "imm-spray-4lane-1dead-1frag",
	  "imm-spray-3lane-1frag-each", "imm-spray-4lane-1dead-1frag-each",
	  SNT_OP_WRITE_IMM, 1 },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* The device refuses a fragment, and a poll finds that it has released everything. */
static void kill_lane(struct load *load, unsigned index)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_send_wr wr = load->wr[0];
	struct snt_wc wc[LANES];
	unsigned alive;

	snt_qp_query_lane(load->qp, index, &lane);
	null_refuse_sends(lane.qp, true);
	wr.opcode = SNT_OP_WRITE;
	for (unsigned i = 0; i < LANES; i++)
		snt_qp_post_send(load->qp, &wr, 1);
	snt_cq_poll(load->cq, wc, LANES);
	null_refuse_sends(lane.qp, false);
	for (unsigned i = 0; i < LANES; i++)
		snt_cq_poll(load->cq, wc, LANES);
	snt_qp_query_lane(load->qp, index, &lane);
	alive = lane.alive;
	if (alive)
		die("a lane survived");
}

static void add_pair(struct bench *bench, const struct row *row, struct load load[2])
{
	load_make(&load[0], (struct load_opts){ 3, SNT_SCHEME_SPRAY, row->opcode,
						row->fragments, 0, 0, 0 });
	load_make(&load[1], (struct load_opts){ 4, SNT_SCHEME_SPRAY, row->opcode,
						row->fragments, 0, 0, 0 });
	kill_lane(&load[1], 1);
	bench_case(bench, row->three, load_run, &load[0], ROUNDS * load[0].wrs, NULL);
	bench_case(bench, row->dead, load_run, &load[1], ROUNDS * load[1].wrs,
		   row->three);
	bench_case(bench, row->three_each, load_run_each, &load[0],
		   ROUNDS * load[0].wrs, NULL);
	bench_case(bench, row->dead_each, load_run_each, &load[1], ROUNDS * load[1].wrs,
		   row->three_each);
}

void add_dead(struct bench *bench)
{
	static struct load load[ROW_COUNT][2];

	for (unsigned i = 0; i < ROW_COUNT; i++)
		add_pair(bench, &rows[i], load[i]);
	bench_case(bench, "single-3lane", load_run_single, &load[0][0], 1024, NULL);
	bench_case(bench, "single-4lane-1dead", load_run_single, &load[0][1], 1024,
		   "single-3lane");
}
