/* SPDX-License-Identifier: MIT */
#include "lib/stream_chance.h"

#define US 1000u

static struct snt__sim_link_opts choose_cable(const struct search_plan *plan,
					      uint64_t *random)
{
	uint32_t loss = random_below(random, 10000),
		 corrupt = random_below(random, 5000);
	uint32_t duplicate = random_below(random, 50000);
	uint32_t reorder = random_below(random, 20000);
	uint32_t jitter = random_below(random, 10 * US);
	uint32_t mix = random_below(random, 50 * US);
	uint32_t speed = 500 + random_below(random, 20000);

	return (struct snt__sim_link_opts){
		.delay_ns = 100 + random_below(random, 5 * US),
		.late_ns = US + random_below(random, 20 * US),
		.loss = search_has(plan, CHANCE_LOSS) ? loss : 0,
		.corrupt = search_has(plan, CHANCE_CORRUPT) ? corrupt : 0,
		.duplicate = search_has(plan, CHANCE_DUPLICATE) ? duplicate : 0,
		.reorder = search_has(plan, CHANCE_REORDER) ? reorder : 0,
		.jitter_ns = search_has(plan, CHANCE_JITTER) ? jitter : 0,
		.mix_ns = search_has(plan, CHANCE_MIX) ? mix : 0,
		.mbps = search_has(plan, CHANCE_BANDWIDTH) ? speed : 0,
	};
}

const char *chance_add_devices(struct world *world, const struct search_plan *plan,
			       uint64_t *random)
{
	const char *text = NULL;
	bool ipv6 = random_below(random, 2);
	unsigned count = 1 + (random_below(random, 4) == 0);

	for (unsigned end = 0; end < 2; end++)
		for (unsigned i = 0; !text && i < count; i++) {
			struct snt__sim_link_opts out = choose_cable(plan, random);
			struct snt__sim_link_opts in = choose_cable(plan, random);
			struct snt__sim_device_opts opts = {
				.out = &out,
				.in = &in,
				.ipv6 = ipv6,
				.turnaround_ns = random_below(random, 3)
							 ? 0
							 : random_below(random, US),
			};

			text = world_add_device(world, end, &opts);
		}
	return text;
}

void chance_choose_opts(struct world *world, uint64_t *random)
{
	static const uint32_t depths[] = { 1, 1, 2, 4, 16, 64 };
	uint32_t lanes = 1 + random_below(random, 3),
		 mtu = 256u << random_below(random, 5),
		 depth = depths[random_below(random, 6)];
	enum snt_scheme scheme =
		random_below(random, 3) ? SNT_SCHEME_DQPLB : SNT_SCHEME_SPRAY;
	bool passes = random_below(random, 3) && lanes == 1;

	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &world->end[i];
		uint32_t receives = 34 + random_below(random, depth * 2);

		end->opts.recv_size = UINT64_C(256) << random_below(random, 6);
		end->opts.send_size = UINT64_C(256) << random_below(random, 6);
		end->qp_opts.scheme = passes ? SNT_SCHEME_SPRAY : scheme;
		end->qp_opts.lanes = lanes;
		end->qp_opts.flags = passes ? SNT_QP_PASS_THROUGH : 0;
		end->qp_opts.mtu = mtu;
		end->qp_opts.timeout = 10;
		end->qp_opts.fragment_size =
			random_below(random, 2) ? 0
						: 64 * (4 + random_below(random, 16));
		end->qp_opts.recv_depth = receives;
		end->qp_opts.lane_depth = scheme == SNT_SCHEME_DQPLB
						  ? receives + 16
						  : 9 + random_below(random, 2 * depth);
		end->qp_opts.send_depth = 9 + random_below(random, 2 * depth);
		end->qp_opts.inline_max = random_below(random, 3) ? 0 : 64;
		if (world->by_card)
			continue;
		end->opts.lanes = lanes;
		end->opts.depth = depth;
		end->opts.mtu = mtu;
		world->at.detect_ns = 500 * WORLD_MS;
		end->opts.inline_max = end->qp_opts.inline_max;
	}
}
