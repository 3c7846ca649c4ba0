/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_PLAN_H
#define SNT_CONN_PLAN_H

#include "conn/message.h"

/*
 * Which pairs of devices are tried, and how lanes are distributed over those that work.
 * The end that connects decides; the other checks the result.
 */

/* A pair of devices and its results. */
struct snt__trial {
	struct snt__pair pair;
	uint8_t ours; /* enum snt__verdict */
	uint8_t theirs;
};

struct snt__trials {
	unsigned count;
	struct snt__trial trial[SNT__PAIRS_MAX];
};

static inline bool snt__trial_works(const struct snt__trial *trial)
{
	return trial->ours == SNT__VERDICT_GOOD && trial->theirs == SNT__VERDICT_GOOD;
}

/*
 * All pairs that may be used, best first: each device with its counterpart, then with
 * the next one, and so on. Pairs that cannot work are marked.
 */
void snt__plan_candidates(const struct snt__offer *ours,
			  const struct snt__offer *theirs, struct snt__trials *out);

/* The number of data lanes, if all pairs work. */
unsigned snt__plan_lanes(const struct snt__offer *ours,
			 const struct snt__offer *theirs);

/* The number of working pairs after which no more are tried. */
unsigned snt__plan_enough(const struct snt__offer *ours,
			  const struct snt__offer *theirs);

/* The largest MTU that all devices of both ends have. */
uint16_t snt__plan_mtu(const struct snt__offer *ours, const struct snt__offer *theirs);

/* Does a QP of that many data lanes pass WRs on? */
bool snt__plan_passes(const struct snt__offer *ours, const struct snt__offer *theirs);

/* False: no pair works, or there would be too many lanes. */
bool snt__plan_make(const struct snt__offer *ours, const struct snt__offer *theirs,
		    const struct snt__trials *trials, uint16_t mtu,
		    struct snt__plan *out);

/* Checks the peer's plan, seen from our end. NULL, or what is wrong with it. */
const char *snt__plan_check(const struct snt__offer *ours,
			    const struct snt__offer *theirs,
			    const struct snt__trials *trials, uint16_t mtu,
			    const struct snt__plan *plan);

#endif
