/* SPDX-License-Identifier: MIT */
/*
 * What a virtual QP makes of lanes that are not alike: goodput in virtual time, next to
 * what each lane carries alone.
 *
 *	balance_sim [--seed N] [--seeds COUNT]
 *
 * Balanced by time, a slow or shared lane must not drag the whole below the best single
 * one, and lanes that have nothing in common add up. Round robin is printed next to it.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"

#define LANES_MAX    4
#define ENDS	     2
#define MESSAGE	     (1u << 20)
#define FRAGMENT     (64u << 10)
#define DEPTH	     8 /* few, so that a slow lane can hold up the others */
#define WARM_UP_NS   UINT64_C(60000000) /* nothing is known of lanes at first */
#define MEASURED_NS  UINT64_C(60000000)
#define SHARE_NEEDED 0.95

struct scenario {
	const char *name;
	uint32_t mbps[LANES_MAX]; /* of each lane's cables, up to a 0 */
	uint32_t delay_ns[LANES_MAX];
	uint32_t trunk_mbps; /* all lanes of the sender share it; 0: none */
	uint32_t trunk_queue;
	enum {
		BEST,	 /* of the single lanes is what must be reached */
		SUM,	 /* of all lanes */
		NO_LIMIT /* for information */
	} limit;
};

static const struct scenario scenarios[] = {
	{ "2 equal lanes", { 10000, 10000 }, { 1000, 1000 }, 0, 0, SUM },
	{ "4 equal lanes",
	  { 10000, 10000, 10000, 10000 },
	  { 1000, 1000, 1000, 1000 },
	  0,
	  0,
	  SUM },
	{ "2 lanes, 2:1", { 10000, 5000 }, { 1000, 1000 }, 0, 0, SUM },
	{ "2 lanes, 10:1", { 10000, 1000 }, { 1000, 1000 }, 0, 0, BEST },
	{ "3 lanes, 10:10:1",
	  { 10000, 10000, 1000 },
	  { 1000, 1000, 1000 },
	  0,
	  0,
	  BEST },
	{ "2 lanes, one 20 times as far",
	  { 10000, 10000 },
	  { 1000, 20000 },
	  0,
	  0,
	  BEST },
	{ "2 lanes, one trunk", { 10000, 10000 }, { 1000, 1000 }, 10000, 0, BEST },
	{ "4 lanes, one trunk",
	  { 10000, 10000, 10000, 10000 },
	  { 1000, 1000, 1000, 1000 },
	  10000,
	  0,
	  BEST },
	{ "2 lanes, one lossy trunk",
	  { 10000, 10000 },
	  { 1000, 1000 },
	  10000,
	  256 << 10,
	  NO_LIMIT },
};

/* Two hosts, joined by as many cables as there are lanes. */
struct bed {
	struct snt__sim *sim;
	struct snt_ctx *ctx[ENDS];
	struct snt_cq *cq[ENDS];
	struct snt_qp *qp[ENDS];
	struct snt_mem *mem[ENDS];
	unsigned char *memory[ENDS];
};

static void must(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "balance: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void open_host(struct bed *bed, const struct scenario *scenario, unsigned end)
{
	struct snt__sim_link_opts trunk_opts = { .mbps = scenario->trunk_mbps,
						 .queue_bytes = scenario->trunk_queue };
	struct snt_ctx_opts opts = { .size = sizeof(opts) };
	struct snt__sim_trunk *trunk = NULL;
	struct snt__sim_device *device;
	struct snt__sim_host *host;

	must(snt__sim_host_create(bed->sim, &host), "host");
	if (scenario->trunk_mbps && end == 0)
		must(snt__sim_trunk_create(bed->sim, &trunk_opts, &trunk), "trunk");
	for (unsigned i = 0; i < LANES_MAX && scenario->mbps[i]; i++) {
		struct snt__sim_link_opts link = { .mbps = scenario->mbps[i],
						   .delay_ns = scenario->delay_ns[i] };
		struct snt__sim_device_opts device_opts = { .out = &link,
							    .in = &link,
							    .trunk = trunk };

		must(snt__sim_device_create(host, &device_opts, &device), "device");
	}
	snt__sim_host_ctx_opts(host, &opts);
	must(snt_ctx_create(&opts, &bed->ctx[end]), "context");
}

static void open_bed(struct bed *bed, const struct scenario *scenario, uint32_t devices,
		     enum snt_balance balance, uint64_t seed)
{
	struct snt__sim_opts sim_opts = { .seed = seed };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .devices = devices,
				    .lanes = __builtin_popcount(devices),
				    .fragment_size = FRAGMENT,
				    .send_depth = DEPTH,
				    .balance = balance,
				    .timeout = scenario->trunk_queue ? 9 : 18 };
	struct snt_card card[ENDS];

	must(snt__sim_create(&sim_opts, &bed->sim), "simulation");
	for (unsigned i = 0; i < ENDS; i++) {
		open_host(bed, scenario, i);
		bed->memory[i] = calloc(1, MESSAGE);
		must(snt_mem_register(bed->ctx[i], bed->memory[i], MESSAGE,
				      SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				      &bed->mem[i]),
		     "memory");
		must(snt_cq_create(bed->ctx[i], NULL, &bed->cq[i]), "CQ");
		opts.cq = bed->cq[i];
		must(snt_qp_create(bed->ctx[i], &opts, &bed->qp[i]), "QP");
		must(snt_qp_card(bed->qp[i], &card[i]), "card");
	}
	for (unsigned i = 0; i < ENDS; i++)
		must(snt_qp_connect(bed->qp[i], &card[!i]), "connect");
}

static void close_bed(struct bed *bed)
{
	for (unsigned i = 0; i < ENDS; i++)
		must(snt_qp_close(bed->qp[i], 0), "close");
	for (unsigned i = 0; i < ENDS; i++) {
		struct snt_wc wc = { 0 };

		while (wc.opcode != SNT_OP_CLOSED)
			if (!snt_cq_poll(bed->cq[i], &wc, 1))
				snt__sim_step(bed->sim);
		must(snt_qp_destroy(bed->qp[i]), "destroy");
		must(snt_cq_destroy(bed->cq[i]), "CQ");
		must(snt_mem_release(bed->mem[i]), "memory");
		must(snt_ctx_destroy(bed->ctx[i]), "context");
		free(bed->memory[i]);
	}
	must(snt__sim_destroy(bed->sim), "simulation");
}

static void post(struct bed *bed)
{
	struct snt_sge sge = { bed->mem[0], bed->memory[0], MESSAGE };
	struct snt_token token;
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &token };

	must(snt_mem_token(bed->mem[1], &token), "token");
	wr.remote_addr = token.addr;
	while (snt_qp_post_send(bed->qp[0], &wr, 1) == 1)
		;
}

/* What is known of the completions so far. */
struct tally {
	uint64_t begin; /* the first after the warm-up */
	uint64_t bytes; /* after that */
};

static void count(struct bed *bed, struct tally *tally, const struct snt_wc *wc)
{
	uint64_t now = snt__sim_now(bed->sim);

	if (wc->status) {
		fprintf(stderr, "balance: a WRITE failed: %s\n",
			snt_status_text(wc->status));
		exit(1);
	}
	if (now < WARM_UP_NS)
		return;
	if (!tally->begin)
		tally->begin = now;
	else if (now > tally->begin)
		tally->bytes += wc->length;
}

/* In Gbit/s of payload. */
static double measure(const struct scenario *scenario, uint32_t devices,
		      enum snt_balance balance, uint64_t seed)
{
	struct tally tally = { 0 };
	struct snt_wc wc[DEPTH];
	struct bed bed;

	open_bed(&bed, scenario, devices, balance, seed);
	post(&bed);
	while (snt__sim_now(bed.sim) < WARM_UP_NS + MEASURED_NS) {
		int n = snt_cq_poll(bed.cq[0], wc, DEPTH);

		must(n, "poll");
		for (int i = 0; i < n; i++)
			count(&bed, &tally, &wc[i]);
		if (n)
			post(&bed);
		else
			snt__sim_step(bed.sim);
	}
	close_bed(&bed);
	return tally.begin
		       ? tally.bytes * 8.0 / (WARM_UP_NS + MEASURED_NS - tally.begin)
		       : 0;
}

/* True: what must be reached is. */
static bool judge(const struct scenario *scenario, uint64_t seed)
{
	double best = 0, sum = 0, single, in_turn, by_time, need;
	unsigned lanes = 0;
	bool good;

	for (; lanes < LANES_MAX && scenario->mbps[lanes]; lanes++) {
		single = measure(scenario, 1u << lanes, SNT_BALANCE_ROUND_ROBIN, seed);
		sum += single;
		if (single > best)
			best = single;
	}
	in_turn = measure(scenario, (1u << lanes) - 1, SNT_BALANCE_ROUND_ROBIN, seed);
	by_time = measure(scenario, (1u << lanes) - 1, SNT_BALANCE_BY_TIME, seed);
	need = scenario->limit == SUM ? sum : best;
	good = by_time >= SHARE_NEEDED * need || scenario->limit == NO_LIMIT;
	printf("# %-28s best %5.2f  sum %5.2f  in turn %5.2f (%.2f)  by time %5.2f (%.2f "
	       "of the %s)%s\n",
	       scenario->name, best, sum, in_turn, in_turn / need, by_time,
	       by_time / need, scenario->limit == SUM ? "sum" : "best",
	       good ? "" : "  too little");
	return good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ 0 },
	};
	const unsigned scenario_count = sizeof(scenarios) / sizeof(scenarios[0]);
	bool failed = false;
	uint64_t seed = 1;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (option != 'n') /* one is as good as many: nothing is random */
			return 2;
	}
	printf("1..%u\n", scenario_count);
	for (unsigned i = 0; i < scenario_count; i++) {
		bool good = judge(&scenarios[i], seed);

		printf("%s %u - %s\n", good ? "ok" : "not ok", i + 1,
		       scenarios[i].name);
		failed |= !good;
	}
	return failed;
}
