/* SPDX-License-Identifier: MIT */
/*
 * What the loop and its ops cost: per completion over plain polling, per burst with a
 * sleep in between, and in latency.
 */
#include "loop/cases.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void die(const char *what)
{
	fprintf(stderr, "loop: %s: %s\n", what, snt_err_text());
	exit(1);
}

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("loop", argc, argv);

	add_ops(bench);
	add_bursts(bench);
	add_answers(bench);
	if (bench_wants(bench, "idle"))
		add_idle(bench);
	if (bench_wants(bench, "wait"))
		add_latency(bench);
	return bench_end(bench);
}
