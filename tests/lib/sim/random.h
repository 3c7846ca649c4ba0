/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_RANDOM_H
#define SNT_DEV_SOFT_SIM_RANDOM_H

#include <stdint.h>

/*
 * The simulation's chance: splitmix64, whose whole state is one number. Every link
 * and host draws from a stream of its own, and a link draws the same number of
 * times for each packet whatever its options are. So a change in one place of a
 * run, such as a fault kind switched off, leaves the dice of all others alone.
 */

static inline uint64_t snt__sim_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Stream @number of @seed. */
static inline uint64_t snt__sim_stream(uint64_t seed, uint64_t number)
{
	uint64_t state = seed;

	state = snt__sim_random(&state) ^ number;
	return snt__sim_random(&state);
}

/* From 0 to bound - 1, by the upper half of a draw; the lower half is as good. */
static inline uint32_t snt__sim_scale(uint64_t draw, uint32_t bound)
{
	return (uint32_t)((draw >> 32) * bound >> 32);
}

#endif
