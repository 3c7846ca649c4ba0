/* SPDX-License-Identifier: MIT */
#ifndef SEEDS_H
#define SEEDS_H

#include <stdint.h>

/*
 * What programs that search have in common: --seed N --seeds COUNT run one
 * function for seeds N to N + COUNT - 1, and a failure prints the command that
 * replays it.
 */

/* Returns 0, or non-zero after having printed what went wrong. */
typedef int (*seed_fn)(uint64_t seed);

/* Prints TAP; returns the exit status. */
int seeds_main(int argc, char **argv, uint64_t seeds_default, seed_fn fn);

/* A small generator (splitmix64) whose state is the caller's. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* From 0 to bound - 1. */
static inline uint32_t random_below(uint64_t *state, uint32_t bound)
{
	return (uint32_t)((random_next(state) >> 32) * bound >> 32);
}

#endif
