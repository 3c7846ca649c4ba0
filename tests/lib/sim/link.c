/* SPDX-License-Identifier: MIT */
#include "lib/sim/link.h"

#include "lib/sim/random.h"

#define MILLION 1000000

void snt__sim_link_init(struct snt__sim_link *link,
			const struct snt__sim_link_opts *opts, uint64_t stream)
{
	*link = (struct snt__sim_link){ .random = stream };
	if (opts)
		link->opts = *opts;
	link->mix = snt__sim_random(&link->random);
}

/* When the last bit leaves, or UINT64_MAX if the queue has no room. */
static uint64_t time_of_leaving(struct snt__sim_link *link, uint64_t now,
				uint32_t length)
{
	uint64_t begin = link->free_at > now ? link->free_at : now, bits;

	if (!link->opts.mbps)
		return now;
	if (link->opts.queue_bytes &&
	    ((begin - now) * link->opts.mbps + 7999) / 8000 + length >
		    link->opts.queue_bytes)
		return UINT64_MAX;
	bits = length * UINT64_C(8000) + link->remainder;
	link->free_at = begin + bits / link->opts.mbps;
	link->remainder = bits % link->opts.mbps;
	return link->free_at;
}

/* How long a flow is held back at this time: another time every so often. */
static uint64_t hold_time(const struct snt__sim_link *link, uint64_t now, uint32_t flow)
{
	uint64_t state = link->mix ^ flow;

	if (!link->opts.mix_ns)
		return 0;
	state += now / (UINT64_C(4) * link->opts.mix_ns) * UINT64_C(0x9fb21c651e98df25);
	return snt__sim_scale(snt__sim_random(&state), link->opts.mix_ns);
}

static bool is_hit(uint64_t draw, uint32_t of_a_million)
{
	return snt__sim_scale(draw, MILLION) < of_a_million;
}

struct snt__sim_fate snt__sim_link_carry(struct snt__sim_link *link, uint64_t now,
					 uint32_t length, uint32_t flow)
{
	const struct snt__sim_link_opts *opts = &link->opts;
	struct snt__sim_fate fate = { .arrival_copy = UINT64_MAX };
	uint64_t luck = snt__sim_random(&link->random);
	uint64_t copy = snt__sim_random(&link->random);
	uint64_t damage = snt__sim_random(&link->random);
	uint64_t late = snt__sim_random(&link->random);
	uint64_t jitter = snt__sim_random(&link->random);
	uint64_t *last = &link->last[opts->mix_ns ? flow % SNT__SIM_FLOWS : 0];

	if (link->cut) {
		fate.drop = SNT__SIM_DROP_CUT;
		return fate;
	}
	fate.arrival = time_of_leaving(link, now, length);
	if (fate.arrival == UINT64_MAX) {
		fate.drop = SNT__SIM_DROP_QUEUE;
		return fate;
	}
	if (is_hit(luck, opts->loss)) {
		fate.drop = SNT__SIM_DROP_LOSS;
		return fate;
	}
	fate.arrival += opts->delay_ns + snt__sim_scale(jitter, opts->jitter_ns);
	fate.arrival += hold_time(link, now, flow);
	if (is_hit(late, opts->reorder))
		fate.arrival += snt__sim_scale(late << 32, opts->late_ns);
	else if (fate.arrival < *last)
		fate.arrival = *last;
	else
		*last = fate.arrival;
	if (is_hit(copy, opts->duplicate))
		fate.arrival_copy =
			fate.arrival + snt__sim_scale(copy << 32, opts->late_ns);
	if (is_hit(damage, opts->corrupt))
		fate.damage = damage | 1;
	return fate;
}

/* In the order in which the CRC takes them. */
static void flip_bit(uint8_t *bytes, uint32_t bit)
{
	bytes[bit / 8] ^= 1 << bit % 8;
}

void snt__sim_damage(uint8_t *bytes, uint32_t length, uint64_t dice)
{
	uint32_t bits = length * 8,
		 first = snt__sim_scale(snt__sim_random(&dice), bits);
	uint64_t kind = snt__sim_random(&dice), burst = snt__sim_random(&dice);

	flip_bit(bytes, first);
	if (kind % 4 == 3) {
		for (uint32_t i = 1; i < 32 && first + i < bits; i++)
			if (burst >> i & 1)
				flip_bit(bytes, first + i);
		return;
	}
	/* Three different ones: the distances add up to less than all of them. */
	for (uint32_t i = 0, at = first; i < kind % 4; i++) {
		at = (at + 1 + snt__sim_scale(snt__sim_random(&dice), bits / 3)) % bits;
		flip_bit(bytes, at);
	}
}
