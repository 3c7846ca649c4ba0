/* SPDX-License-Identifier: MIT */
#include "loop/spin.h"

/* Longer waits count as this, so that a single long one does not decide. */
#define GAP_MAX (2 * SNT__SPIN_MAX)

static bool is_probe_due(struct snt__spin *spin)
{
	if (!spin->probe_every)
		spin->probe_every = SNT__SPIN_PROBE;
	if (++spin->waits < spin->probe_every)
		return false;
	spin->waits = 0;
	return true;
}

static bool is_fast(const struct snt__spin *spin)
{
	return spin->gap_ns < SNT__SPIN_MAX;
}

/* Whether the other way was better has to be clear. */
static void end_trial(struct snt__spin *spin, uint64_t mean_ns)
{
	if (mean_ns < spin->before_ns - spin->before_ns / 8) {
		spin->sleeps = !spin->sleeps;
		spin->term = SNT__SPIN_TERM;
	} else if (spin->term < SNT__SPIN_TERM_MAX) {
		spin->term *= 2;
	}
}

/* Returns whether this was a trial, of which nothing else is learnt. */
static bool compare_ways(struct snt__spin *spin, uint64_t gap_ns)
{
	bool tried = spin->tries;

	if (!spin->term)
		spin->term = SNT__SPIN_TERM;
	spin->sum_ns += gap_ns;
	if (++spin->count < (spin->tries ? SNT__SPIN_TRIAL : spin->term))
		return tried;
	if (spin->tries)
		end_trial(spin, spin->sum_ns / spin->count);
	else
		spin->before_ns = spin->sum_ns / spin->count;
	spin->tries = !spin->tries;
	spin->sum_ns = spin->count = 0;
	return tried;
}

uint64_t snt__spin_for(struct snt__spin *spin)
{
	uint64_t twice = 2 * spin->gap_ns;

	spin->probes = false;
	if (spin->alone)
		return 0;
	if (!spin->gap_ns)
		return SNT__SPIN_FIRST;
	if (is_fast(spin) && spin->sleeps != spin->tries)
		return 0;
	if (is_fast(spin))
		return twice < SNT__SPIN_MAX ? twice : SNT__SPIN_MAX;
	spin->probes = is_probe_due(spin);
	return spin->probes ? SNT__SPIN_MAX : 0;
}

/* The next probe comes later if this one has failed. */
static void judge_probe(struct snt__spin *spin, bool paid)
{
	if (paid)
		spin->probe_every = SNT__SPIN_PROBE;
	else if (spin->probes && spin->probe_every < SNT__SPIN_PROBE_MAX)
		spin->probe_every *= 2;
}

/* Quick to learn that answers are fast, slow to learn that they are not. */
void snt__spin_learn(struct snt__spin *spin, uint64_t gap_ns)
{
	judge_probe(spin, gap_ns < SNT__SPIN_MAX);
	if (gap_ns > GAP_MAX)
		gap_ns = GAP_MAX;
	if (is_fast(spin) && compare_ways(spin, gap_ns))
		return;
	if (!spin->gap_ns)
		spin->gap_ns = SNT__SPIN_FIRST / 2;
	if (gap_ns < spin->gap_ns)
		spin->gap_ns -= (spin->gap_ns - gap_ns) / 2;
	else
		spin->gap_ns += (gap_ns - spin->gap_ns) / 8;
	spin->gap_ns += !spin->gap_ns;
}
