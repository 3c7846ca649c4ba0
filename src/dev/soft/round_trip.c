/* SPDX-License-Identifier: MIT */
#include "dev/soft/round_trip.h"

/* All in ns. The least time beyond the mean that an answer is waited for: peers in user
 * space lose their processor for that long without anything being lost. */
#define MARGIN_MIN UINT64_C(1000000)
/* What is waited for before anything was measured. */
#define WAIT_FIRST UINT64_C(5000000)
/* Longer ones say nothing: timeouts are shorter. It also keeps sums from wrapping. */
#define SAMPLE_MAX (UINT64_C(1) << 34)

void snt__soft_round_trip_init(struct snt__soft_round_trip *trip, uint64_t first)
{
	*trip = (struct snt__soft_round_trip){
		.timed = SNT__SOFT_UNTIMED,
		.once = first,
		.fresh = first,
		.wait = WAIT_FIRST,
		.min = UINT64_MAX,
	};
}

/* Mean and deviation are smoothed as TCP does (RFC 6298). */
static void smooth_round_trip(struct snt__soft_round_trip *trip, uint64_t sample)
{
	uint64_t distance =
		sample > trip->mean ? sample - trip->mean : trip->mean - sample;

	if (!trip->measured) {
		trip->measured = true;
		trip->mean = sample;
		trip->deviation = sample / 2;
		return;
	}
	trip->deviation = trip->deviation - trip->deviation / 4 + distance / 4;
	trip->mean = trip->mean - trip->mean / 8 + sample / 8;
}

void snt__soft_round_trip_take(struct snt__soft_round_trip *trip, uint64_t now)
{
	uint64_t sample = now > trip->timed_at ? now - trip->timed_at : 0;
	uint64_t margin;

	if (sample > SAMPLE_MAX)
		sample = SAMPLE_MAX;
	smooth_round_trip(trip, sample);
	if (sample < trip->min && trip->timed >= trip->fresh)
		trip->min = sample;
	margin = 4 * trip->deviation;
	trip->wait = trip->mean + (margin > MARGIN_MIN ? margin : MARGIN_MIN);
	trip->timed = SNT__SOFT_UNTIMED;
}
