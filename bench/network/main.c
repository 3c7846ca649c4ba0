/* SPDX-License-Identifier: MIT */
/*
 * One QP of a soft device on simulated networks that are long, or lose packets. A value is
 * the share of a link of 10 Gb/s that was messages, or the longest time in ms in which none
 * completed. A peer is a soft device, or recovers from loss only as rxe does.
 */
#include "lib/bench.h"
#include "network/pair.h"

#define US	UINT64_C(1000)
#define MS	(1000 * US)
#define PERCENT 10000
#define LARGE	(4 << 20)
#define PACKET	4096

/* What a long path needs to settle, and a lossy one to show its mean. */
#define TIME_NS (UINT64_C(1000) * MS)
#define TURNS	200
#define SEEDS	5

struct share_case {
	const char *name;
	uint32_t delay_ns;
	uint32_t loss;
	uint32_t reorder;
	bool like_rxe;
};

static void measure_share(struct bench *bench, const struct share_case *one)
{
	uint64_t time = TIME_NS + TURNS * 2 * (uint64_t)one->delay_ns;
	unsigned seeds = bench_passes(bench, SEEDS);
	double sum = 0;

	for (unsigned seed = 1; seed <= seeds; seed++) {
		const struct pair_opts opts = { .seed = seed,
						.delay_ns = one->delay_ns,
						.loss = one->loss,
						.reorder = one->reorder,
						.message = LARGE,
						.like_rxe = one->like_rxe };

		sum += pair_run(&opts, time, 0).share;
	}
	bench_value(bench, one->name, sum / seeds, "of link", NULL);
}

/* How long a peer that lives may seem dead: failover must not take it for that. */
static void measure_silence(struct bench *bench, const char *name, uint64_t messages)
{
	const struct pair_opts opts = {
		.seed = 1, .delay_ns = 50 * US, .loss = 2 * PERCENT, .message = PACKET
	};

	if (bench_wants(bench, name))
		bench_value(bench, name,
			    (double)pair_run(&opts, 0, messages).silence_ns /
				    (double)MS,
			    "ms", NULL);
}

int main(int argc, char **argv)
{
	static const struct share_case cases[] = {
		{ "loss-5us-0", 5 * US, 0, 0, false },
		{ "loss-5us-1pct", 5 * US, PERCENT, 0, false },
		{ "loss-50us-0", 50 * US, 0, 0, false },
		{ "loss-50us-1pct", 50 * US, PERCENT, 0, false },
		{ "loss-50us-5pct", 50 * US, 5 * PERCENT, 0, false },
		{ "loss-500us-0", 500 * US, 0, 0, false },
		{ "loss-500us-1pct", 500 * US, PERCENT, 0, false },
		{ "loss-5ms-0", 5 * MS, 0, 0, false },
		{ "loss-5ms-1pct", 5 * MS, PERCENT, 0, false },
		{ "reorder-50us-1pct", 50 * US, 0, PERCENT, false },
		{ "rxe-loss-5us-1pct", 5 * US, PERCENT, 0, true },
		{ "rxe-loss-50us-0", 50 * US, 0, 0, true },
		{ "rxe-loss-50us-1pct", 50 * US, PERCENT, 0, true },
		{ "rxe-loss-50us-5pct", 50 * US, 5 * PERCENT, 0, true },
		{ "rxe-loss-500us-0", 500 * US, 0, 0, true },
		{ "rxe-loss-500us-1pct", 500 * US, PERCENT, 0, true },
		{ "rxe-loss-5ms-0", 5 * MS, 0, 0, true },
		{ "rxe-loss-5ms-1pct", 5 * MS, PERCENT, 0, true },
		{ "rxe-reorder-50us-1pct", 50 * US, 0, PERCENT, true },
	};
	struct bench *bench = bench_begin("network", argc, argv);

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (bench_wants(bench, cases[i].name))
			measure_share(bench, &cases[i]);
	measure_silence(bench, "silence-50us-2pct", 1000000);
	return bench_end(bench);
}
