/* SPDX-License-Identifier: MIT */
#ifndef BENCH_NETWORK_PAIR_H
#define BENCH_NETWORK_PAIR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Two soft devices on a simulated link, with one RC QP each, and WRITEs from one to the
 * other. Time is virtual: the results are the same on every host.
 */

struct pair_opts {
	uint64_t seed;
	uint32_t delay_ns; /* one way */
	/* Packets of a million, in either direction. */
	uint32_t loss;
	uint32_t reorder;
	uint32_t message; /* bytes */
	bool like_rxe;	  /* so the peer recovers; else as a soft device */
};

struct pair_result {
	double share;	     /* of the link, that was messages */
	uint64_t silence_ns; /* the longest time without a completion */
};

/* Keeps messages in flight until so much time has passed, or so many have completed;
 * 0: no limit of this kind. Ends the program if one fails. */
struct pair_result pair_run(const struct pair_opts *opts, uint64_t time_ns,
			    uint64_t messages);

#endif
