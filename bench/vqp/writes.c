/* SPDX-License-Identifier: MIT */
/* Posting and polling WRs, against posting their fragments by hand. */
#include "vqp/load.h"

static const struct row {
	const char *name, *raw_name, *each_name;
	struct load_opts load;
	struct raw_opts raw;
} rows[] = {
	{ "write-1lane-1frag",
	  "raw-write-1lane-1frag",
	  "write-1lane-1frag-each",
	  { 1, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 0, 0, SNT_QP_PASS_THROUGH },
	  { 1, 1, 0, 0, IBV_WR_RDMA_WRITE } },
	{ "write-tracked-1frag",
	  "raw-write-tracked-1frag",
	  "write-tracked-1frag-each",
	  { 1, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 0, 0, 0 },
	  { 1, 1, 0, 0, IBV_WR_RDMA_WRITE } },
	{ "imm-tracked-1frag",
	  "raw-imm-tracked-1frag",
	  "imm-tracked-1frag-each",
	  { 1, SNT_SCHEME_SPRAY, SNT_OP_WRITE_IMM, 1, 0, 0, 0 },
	  { 1, 1, 0, 0, IBV_WR_RDMA_WRITE_WITH_IMM } },
	{ "write-4lane-1frag",
	  "raw-write-4lane-1frag",
	  "write-4lane-1frag-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 0, 0, 0 },
	  { 4, 1, 0, 0, IBV_WR_RDMA_WRITE } },
	{ "write-4lane-16frag",
	  "raw-write-4lane-16frag",
	  "write-4lane-16frag-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 16, 0, 0, 0 },
	  { 4, 16, 0, 0, IBV_WR_RDMA_WRITE } },
	{ "imm-spray-4lane-1frag",
	  "raw-imm-spray-4lane-1frag",
	  "imm-spray-4lane-1frag-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE_IMM, 1, 0, 0, 0 },
	  { 4, 1, 1, 0, IBV_WR_RDMA_WRITE_WITH_IMM } },
	{ "imm-dqplb-4lane-1frag",
	  "raw-imm-dqplb-4lane-1frag",
	  "imm-dqplb-4lane-1frag-each",
	  { 4, SNT_SCHEME_DQPLB, SNT_OP_WRITE_IMM, 1, 0, 0, 0 },
	  { 4, 1, 1, 0, IBV_WR_RDMA_WRITE_WITH_IMM } },
	{ "imm-dqplb-4lane-16frag",
	  "raw-imm-dqplb-4lane-16frag",
	  "imm-dqplb-4lane-16frag-each",
	  { 4, SNT_SCHEME_DQPLB, SNT_OP_WRITE_IMM, 16, 0, 0, 0 },
	  { 4, 16, 1, 0, IBV_WR_RDMA_WRITE_WITH_IMM } },
	{ "write-4lane-2sge",
	  "raw-write-4lane-2sge",
	  "write-4lane-2sge-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 2, 0, 0 },
	  { 4, 1, 0, 2, IBV_WR_RDMA_WRITE } },
	{ "write-4lane-4sge",
	  "raw-write-4lane-4sge",
	  "write-4lane-4sge-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 4, 0, 0 },
	  { 4, 1, 0, 4, IBV_WR_RDMA_WRITE } },
	{ "write-4lane-8sge",
	  "raw-write-4lane-8sge",
	  "write-4lane-8sge-each",
	  { 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 1, 8, 0, 0 },
	  { 4, 1, 0, 8, IBV_WR_RDMA_WRITE } },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void run_raw_single(void *arg, unsigned count)
{
	struct raw *raw = arg;
	struct raw one = *raw;

	one.wrs = 1;
	raw_run(&one, count);
}

/* One WR of so many fragments that the window is used up again and again. Its
 * value is that of a fragment, and must not depend on their number. */
struct backlog {
	struct load load;
	unsigned fragments;
	struct snt_mem *mem;
	struct snt_token token;
};

static void run_backlog(void *arg, unsigned count)
{
	struct backlog *backlog = arg;
	struct snt_wc wc;

	for (unsigned done = 0; done < count; done += backlog->fragments) {
		snt_qp_post_send(backlog->load.qp, backlog->load.wr, 1);
		while (!snt_cq_poll(backlog->load.cq, &wc, 1))
			;
		bench_use(&wc);
	}
}

static void add_backlog(struct bench *bench, struct backlog *backlog, const char *name,
			unsigned fragments, const char *baseline)
{
	static char huge[4096 * FRAGMENT]; /* never touched, so never there */
	struct snt_send_wr *wr = backlog->load.wr;

	load_make(&backlog->load,
		  (struct load_opts){ 4, SNT_SCHEME_SPRAY, SNT_OP_WRITE, 16, 0, 0, 0 });
	backlog->fragments = fragments;
	if (snt_mem_register(ground.ctx, huge, sizeof(huge),
			     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			     &backlog->mem) ||
	    snt_mem_token(backlog->mem, &backlog->token))
		die("no memory");
	backlog->load.sge[0] =
		(struct snt_sge){ backlog->mem, huge, (uint64_t)fragments * FRAGMENT };
	wr->remote = &backlog->token;
	wr->remote_addr = backlog->token.addr;
	bench_case(bench, name, run_backlog, backlog, 4096, baseline);
}

void add_writes(struct bench *bench)
{
	static struct load load[ROW_COUNT];
	static struct raw raw[ROW_COUNT];
	static struct backlog backlog[3];

	for (unsigned i = 0; i < ROW_COUNT; i++) {
		const struct row *row = &rows[i];

		load_make(&load[i], row->load);
		raw_make(&raw[i], row->raw);
		bench_case(bench, row->raw_name, raw_run, &raw[i], ROUNDS * raw[i].wrs,
			   NULL);
		bench_case(bench, row->name, load_run, &load[i], ROUNDS * load[i].wrs,
			   row->raw_name);
		bench_case(bench, row->each_name, load_run_each, &load[i],
			   ROUNDS * load[i].wrs, row->raw_name);
	}
	bench_case(bench, "raw-single", run_raw_single, &raw[3], 1024, NULL);
	bench_case(bench, "single-1lane", load_run_single, &load[0], 1024,
		   "raw-single");
	bench_case(bench, "single-tracked", load_run_single, &load[1], 1024,
		   "raw-single");
	bench_case(bench, "single-4lane", load_run_single, &load[3], 1024,
		   "raw-single");
	add_backlog(bench, &backlog[0], "backlog-512frag", 512, NULL);
	add_backlog(bench, &backlog[1], "backlog-1024frag", 1024, "backlog-512frag");
	add_backlog(bench, &backlog[2], "backlog-4096frag", 4096, "backlog-512frag");
}
