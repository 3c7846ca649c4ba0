/* SPDX-License-Identifier: MIT */
#include "conn/plan.h"

#include <string.h>

#include "util/minmax.h"

static unsigned list_offered_devices(const struct snt__offer *offer, uint8_t *list)
{
	unsigned count = 0;

	for (unsigned i = 0; i < offer->device_count; i++)
		if (offer->devices & 1u << i)
			list[count++] = (uint8_t)i;
	return count;
}

static bool is_ipv4_mapped(const uint8_t *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

/* Can the two be reached from each other at all? */
static bool same_kind(const struct snt_card_device *a, const struct snt_card_device *b)
{
	if (a->link != b->link)
		return false;
	if (a->link != SNT_LINK_ETHERNET)
		return true;
	return a->gid_type == b->gid_type &&
	       is_ipv4_mapped(a->gid) == is_ipv4_mapped(b->gid);
}

void snt__plan_candidates(const struct snt__offer *ours,
			  const struct snt__offer *theirs, struct snt__trials *out)
{
	uint8_t local[SNT_DEVICES_MAX], remote[SNT_DEVICES_MAX];
	unsigned local_count = list_offered_devices(ours, local);
	unsigned remote_count = list_offered_devices(theirs, remote);
	unsigned longer = snt__max(local_count, remote_count);
	unsigned shorter = snt__min(local_count, remote_count);

	out->count = 0;
	for (unsigned shift = 0; shift < shorter; shift++) {
		for (unsigned i = 0; i < longer; i++) {
			/* The shorter list is rotated against the longer one. */
			unsigned l = local_count < remote_count ? i + shift : i;
			unsigned r = local_count < remote_count ? i : i + shift;
			struct snt__pair pair = { local[l % local_count],
						  remote[r % remote_count] };
			bool fits = same_kind(&ours->device[pair.local].address,
					      &theirs->device[pair.remote].address);

			if (out->count == SNT__PAIRS_MAX)
				return;
			out->trial[out->count++] = (struct snt__trial){
				.pair = pair,
				.ours = fits ? SNT__VERDICT_NONE : SNT__VERDICT_KIND,
			};
		}
	}
}

static unsigned devices_of_more(const struct snt__offer *ours,
				const struct snt__offer *theirs)
{
	return snt__max((unsigned)__builtin_popcount(ours->devices),
			(unsigned)__builtin_popcount(theirs->devices));
}

unsigned snt__plan_lanes(const struct snt__offer *ours, const struct snt__offer *theirs)
{
	if (!ours->lanes && !theirs->lanes)
		return devices_of_more(ours, theirs);
	if (!ours->lanes || !theirs->lanes)
		return snt__max(ours->lanes, theirs->lanes);
	return snt__min(ours->lanes, theirs->lanes);
}

unsigned snt__plan_enough(const struct snt__offer *ours,
			  const struct snt__offer *theirs)
{
	return snt__min(snt__plan_lanes(ours, theirs), devices_of_more(ours, theirs));
}

uint16_t snt__plan_mtu(const struct snt__offer *ours, const struct snt__offer *theirs)
{
	unsigned mtu = snt__min(ours->mtu, theirs->mtu);

	for (unsigned i = 0; i < ours->device_count; i++)
		if (ours->devices & 1u << i)
			mtu = snt__min(mtu, ours->device[i].mtu);
	for (unsigned i = 0; i < theirs->device_count; i++)
		if (theirs->devices & 1u << i)
			mtu = snt__min(mtu, theirs->device[i].mtu);
	return (uint16_t)mtu;
}

bool snt__plan_passes(const struct snt__offer *ours, const struct snt__offer *theirs)
{
	return snt__plan_lanes(ours, theirs) == 1 &&
	       ours->flags & theirs->flags & SNT_QP_PASS_THROUGH;
}

/* The pair whose devices have the fewest lanes; of equal ones, the first. */
static const struct snt__trial *pick_least_loaded(const struct snt__trials *trials,
						  const unsigned *local_load,
						  const unsigned *remote_load)
{
	const struct snt__trial *best = NULL;
	unsigned best_load = 0;

	for (unsigned i = 0; i < trials->count; i++) {
		const struct snt__trial *trial = &trials->trial[i];
		unsigned load =
			local_load[trial->pair.local] + remote_load[trial->pair.remote];

		if (!snt__trial_works(trial) || (best && load >= best_load))
			continue;
		best = trial;
		best_load = load;
	}
	return best;
}

static bool add_lane(struct snt__plan *plan, struct snt__pair pair)
{
	if (plan->lane_count == SNT_LANES_MAX)
		return false;
	plan->lane[plan->lane_count++] = pair;
	return true;
}

/*
 * SPRAY: every device that is the target of data lanes, at either end, is also the
 * target of a notify lane, since one NIC's notification says nothing about another
 * NIC's writes.
 */
static bool add_notify_lanes(struct snt__plan *plan)
{
	uint32_t local = 0, remote = 0;

	for (unsigned i = 0; i < plan->data_lanes; i++) {
		struct snt__pair pair = plan->lane[i];

		if (local >> pair.local & 1 && remote >> pair.remote & 1)
			continue;
		local |= 1u << pair.local;
		remote |= 1u << pair.remote;
		if (!add_lane(plan, pair))
			return false;
	}
	return plan->lane_count - plan->data_lanes <= SNT_DEVICES_MAX;
}

bool snt__plan_make(const struct snt__offer *ours, const struct snt__offer *theirs,
		    const struct snt__trials *trials, uint16_t mtu,
		    struct snt__plan *out)
{
	unsigned local_load[SNT_DEVICES_MAX] = { 0 };
	unsigned remote_load[SNT_DEVICES_MAX] = { 0 };
	unsigned lanes = snt__plan_lanes(ours, theirs);
	struct snt__plan plan = { .mtu = mtu };

	for (unsigned i = 0; i < lanes; i++) {
		const struct snt__trial *trial =
			pick_least_loaded(trials, local_load, remote_load);

		if (!trial || !add_lane(&plan, trial->pair))
			return false;
		local_load[trial->pair.local]++;
		remote_load[trial->pair.remote]++;
	}
	plan.data_lanes = (uint8_t)lanes;
	if (!snt__plan_passes(ours, theirs)) {
		if (ours->scheme == SNT_SCHEME_DQPLB ? !add_lane(&plan, plan.lane[0])
						     : !add_notify_lanes(&plan))
			return false;
	}
	*out = plan;
	return true;
}

static const struct snt__trial *find_trial_of_pair(const struct snt__trials *trials,
						   struct snt__pair pair)
{
	for (unsigned i = 0; i < trials->count; i++)
		if (trials->trial[i].pair.local == pair.local &&
		    trials->trial[i].pair.remote == pair.remote)
			return &trials->trial[i];
	return NULL;
}

const char *snt__plan_check(const struct snt__offer *ours,
			    const struct snt__offer *theirs,
			    const struct snt__trials *trials, uint16_t mtu,
			    const struct snt__plan *plan)
{
	unsigned extra = plan->lane_count - plan->data_lanes;

	if (plan->mtu > mtu)
		return "its MTU is beyond what was agreed on";
	if (plan->data_lanes != snt__plan_lanes(ours, theirs))
		return "its lanes are not as many as were agreed on";
	if (snt__plan_passes(ours, theirs)     ? extra != 0
	    : ours->scheme == SNT_SCHEME_DQPLB ? extra != 1
					       : !extra || extra > SNT_DEVICES_MAX)
		return "its extra lanes are not those of the scheme";
	for (unsigned i = 0; i < plan->lane_count; i++) {
		const struct snt__trial *trial =
			find_trial_of_pair(trials, plan->lane[i]);

		if (!trial || trial->ours != SNT__VERDICT_GOOD)
			return "it has a lane on a pair of devices that does not work";
	}
	return NULL;
}
