/* SPDX-License-Identifier: MIT */
/*
 * What a virtual QP costs, on a device that costs as little as a device can. Most
 * cases post 64 WRs (16 if they have 16 fragments) and poll them, 32 at a time;
 * values are ns per WR. The baselines post the same physical fragments one by one
 * with plain verbs, and poll each, as a careful engineer would write it.
 */
#include "vqp/load.h"

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("vqp", argc, argv);

	ground_lay();
	add_writes(bench);
	add_dead(bench);
	add_receives(bench);
	add_polls(bench);
	add_many(bench);
	/* The process ends here; what is open goes with it. */
	return bench_end(bench);
}
