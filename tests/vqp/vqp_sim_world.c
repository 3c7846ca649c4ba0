/* SPDX-License-Identifier: MIT */
#include "vqp_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define US 1000u

struct fabric fabric;

int wrong(const struct link *link, const char *format, ...)
{
	const struct world *world = link->world;
	va_list args;

	printf("# seed %llu, link %u of %u (%s, lanes %u, devices %u/%u, lengths wanted "
	       "%d/%d, %s%s) at %llu ns:\n",
	       (unsigned long long)world->seed, link->index, world->links,
	       link_kind(link), link->end[1].opts.lanes, world->host[0].devices,
	       world->host[1].devices, wants_length(&link->end[0]),
	       wants_length(&link->end[1]), link->faulty ? "with faults" : "no faults",
	       world->wraps ? ", wraps" : "",
	       (unsigned long long)(fabric.sim ? snt__sim_now(fabric.sim) : 0));
	va_start(args, format);
	search_wrong_args(format, args);
	va_end(args);
	return -1;
}

/*
 * Hosts
 */

/* What gets lost can be sent again: retries never run out by chance. */
static struct snt__sim_link_opts choose_cable(struct world *world)
{
	uint32_t loss = dice(world, 15000), corrupt = dice(world, 10000);
	uint32_t duplicate = dice(world, 100000), reorder = dice(world, 20000);
	uint32_t jitter = dice(world, 10 * US), mix = dice(world, 50 * US);
	uint32_t speed = 1000 + dice(world, 20000);

	return (struct snt__sim_link_opts){
		.delay_ns = 100 + dice(world, 5 * US),
		.late_ns = US + dice(world, 20 * US),
		.loss = has(LOSS) ? loss : 0,
		.corrupt = has(CORRUPT) ? corrupt : 0,
		.duplicate = has(DUPLICATE) ? duplicate : 0,
		.reorder = has(REORDER) ? reorder : 0,
		.jitter_ns = has(JITTER) ? jitter : 0,
		.mix_ns = has(MIX) ? mix : 0,
		.mbps = has(BANDWIDTH) ? speed : 0,
	};
}

static int open_devices(struct world *world, unsigned index, bool ipv6)
{
	if (snt__sim_host_create(fabric.sim, &fabric.host[index]))
		return -1;
	for (unsigned i = 0; i < world->host[index].devices; i++) {
		struct snt__sim_link_opts out = choose_cable(world),
					  in = choose_cable(world);
		struct snt__sim_device_opts opts = {
			.out = &out,
			.in = &in,
			.ipv6 = ipv6,
			.turnaround_ns = chance(world, 30) ? dice(world, US) : 0,
			.config = { .qp_max = 128,
				    .cq_max = 256,
				    .mr_max = 64,
				    .srq_max = 1 },
		};

		if (snt__sim_device_create(fabric.host[index], &opts,
					   &fabric.device[index][i]))
			return -1;
	}
	return 0;
}

static int open_host(struct world *world, unsigned index, bool ipv6)
{
	struct host *host = &world->host[index];
	struct snt_ctx_opts opts = { .size = sizeof(opts) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .depth = 16 + dice(world, 36),
				       .per_device = 64 };
	int ret = open_devices(world, index, ipv6);

	host->polls_itself = chance(world, 15);
	host->polls_single = chance(world, 10);
	host->cqs = 1 + chance(world, 30);
	snt__sim_host_ctx_opts(fabric.host[index], &opts);
	if (!ret)
		ret = snt_ctx_create(&opts, &host->ctx);
	for (unsigned i = 0; !ret && i < host->cqs; i++)
		ret = snt_cq_create(host->ctx, &cq_opts, &host->cq[i]);
	return ret ? wrong(&world->link[0], "host %u: %s", index, snt_err_text()) : 0;
}

/*
 * Links
 */

static void choose_opts(struct link *link, struct end *end, uint32_t lanes)
{
	struct world *world = link->world;

	end->cq = choose_cq(world, end->host);
	end->recv_cq = choose_cq(world, end->host);
	choose_limits(link, end, lanes);
	end->opts.cq = end->cq;
	end->opts.recv_cq = end->recv_cq;
	end->opts.mtu = 256 << dice(world, 2);
	end->opts.fragment_size = choose_fragment_size(world);
	end->opts.timeout = 10 + dice(world, 4);
	end->opts.rnr_timer = 1 + dice(world, 12);
	choose_manner(link, end, 40);
}

static int open_end(struct link *link, unsigned index, uint32_t lanes)
{
	struct end *end = &link->end[index];

	end->host = &link->world->host[index];
	end->memory = aligned_alloc(GRAIN, MEMORY);
	choose_opts(link, end, lanes);
	return end_open(link, index);
}

static int open_link(struct link *link)
{
	uint32_t lanes = 1 + dice(link->world, link->floods ? 3 : 6);

	if (link->pass)
		lanes = 1;
	link->failover = lacks_length(link) && chance(link->world, 50);
	link->calm = link->failover && chance(link->world, 60);
	if (open_end(link, 0, lanes) || open_end(link, 1, lanes))
		return -1;
	link_agree(link);
	if (link->world->wraps)
		wrap_counters(link);
	return 0;
}

int world_open(struct world *world)
{
	struct snt__sim_opts opts = { .seed = world->seed,
				      .capture = fabric.plan->capture };
	bool ipv6 = dice(world, 2);

	forget_receipts();
	choose_links(world);
	world->wraps = chance(world, 30);
	if (snt__sim_create(&opts, &fabric.sim))
		return wrong(&world->link[0], "simulation: %s", snt_err_text());
	for (unsigned i = 0; i < 2; i++)
		world->host[i].devices = 1 + dice(world, DEVICES_MAX);
	for (unsigned i = 0; i < 2; i++)
		if (open_host(world, i, ipv6))
			return -1;
	for (unsigned i = 0; i < world->links; i++)
		if (open_link(&world->link[i]))
			return -1;
	return 0;
}

static int connect_link(struct link *link)
{
	struct snt_card card[2];

	if (link_offer(link, card))
		return -1;
	for (unsigned i = 0; i < 2; i++)
		if (snt_qp_connect(link->end[i].qp, &card[!i]))
			return wrong(link, "connect: %s", snt_err_text());
	return 0;
}

int world_connect(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (connect_link(&world->link[i]))
			return -1;
	return 0;
}

int world_renew(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		if (link_renew(link))
			return -1;
		if (world->wraps)
			wrap_counters(link);
	}
	return 0;
}

/*
 * What must be possible when everything has been said.
 */

static int check_overruns(struct world *world, unsigned index)
{
	for (unsigned i = 0; i < world->host[index].devices; i++) {
		const struct snt__soft_device *core = fabric.device[index][i]->core;

		if (snt__soft_device_stats(core)->cq_overruns)
			return wrong(&world->link[0], "a CQ has overrun");
	}
	return 0;
}

int world_close(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		if (end_destroy(link, &link->end[0]) ||
		    end_destroy(link, &link->end[1]))
			return -1;
	}
	for (unsigned i = 0; i < 2; i++)
		if (host_close(world, &world->host[i]) || check_overruns(world, i))
			return -1;
	search_count(fabric.sim);
	if (snt__sim_destroy(fabric.sim))
		return wrong(&world->link[0], "objects are left: %s", snt_err_text());
	fabric.sim = NULL;
	return 0;
}
