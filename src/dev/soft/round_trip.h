/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_ROUND_TRIP_H
#define SNT_DEV_SOFT_ROUND_TRIP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How long a peer takes to answer. One request at a time is timed, from when it is sent
 * until it is acknowledged. An answer to a request that was sent twice may belong to
 * either copy, so that these are not timed, with two exceptions. What a NAK has asked for
 * again is: the peer has discarded whatever came of it before, unless the network keeps no
 * order. And a request keeps being timed after a probe, from when it was first sent: the
 * time may be too long, but if it were left out, a wait that is too short would never be
 * found out. Neither counts for the minimum.
 */

/* No request is being timed. */
#define SNT__SOFT_UNTIMED UINT64_MAX

struct snt__soft_round_trip {
	uint64_t timed; /* the number of the request */
	uint64_t timed_at;
	uint64_t once;	/* numbers from here on may be timed */
	uint64_t fresh; /* numbers from here on have been sent once, or not yet */
	/* All in ns. */
	uint64_t wait; /* how long an answer may take */
	uint64_t mean;
	uint64_t deviation; /* mean, too */
	uint64_t min;	    /* UINT64_MAX: not measured yet */
	bool measured;
};

void snt__soft_round_trip_init(struct snt__soft_round_trip *trip, uint64_t first);

/* The request that is being timed has been answered. */
void snt__soft_round_trip_take(struct snt__soft_round_trip *trip, uint64_t now);

/* Numbers below `fresh` will have been sent more than once; those below `once` are not to
 * be timed. */
static inline void snt__soft_round_trip_doubt(struct snt__soft_round_trip *trip,
					      uint64_t once, uint64_t fresh)
{
	trip->timed = SNT__SOFT_UNTIMED;
	trip->once = once;
	trip->fresh = fresh;
}

/* This request asks for an answer and is sent now. */
static inline void snt__soft_round_trip_begin(struct snt__soft_round_trip *trip,
					      uint64_t number, uint64_t now)
{
	if (trip->timed != SNT__SOFT_UNTIMED || number < trip->once)
		return;
	trip->timed = number;
	trip->timed_at = now;
}

#endif
