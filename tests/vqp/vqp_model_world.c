/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wrong(const struct link *link, const char *format, ...)
{
	const struct end *end = link->end;
	const struct world *world = link->world;
	va_list args;

	printf("# seed %llu, link %u of %u (%s, lanes %u/%u, devices %u/%u, depths lane "
	       "%u/%u send %u/%u recv %u/%u, lengths wanted %d/%d, %s%s%s): ",
	       (unsigned long long)world->seed, link->index, world->links,
	       link_kind(link), end[0].opts.lanes, end[1].opts.lanes,
	       end[0].host->devices, end[1].host->devices, end[0].opts.lane_depth,
	       end[1].opts.lane_depth, end[0].opts.send_depth, end[1].opts.send_depth,
	       end[0].opts.recv_depth, end[1].opts.recv_depth, wants_length(&end[0]),
	       wants_length(&end[1]), link->faulty ? "with faults" : "no faults",
	       link->hostile ? ", hostile peer" : "", world->wraps ? ", wraps" : "");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	return -1;
}

/* The library's own dice must not make replays differ. They must never show the same twice,
 * though: what came late of a life before is told by that. */
static int own_random(void *arg, void *buffer, size_t size)
{
	struct world *world = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < size; i++)
		bytes[i] = random_below(&world->library_random, 256);
	return 0;
}

/* Nor must its clock. It does not go backwards, and does not always go on. */
static uint64_t even_clock(void *arg)
{
	struct world *world = arg;

	return world->time += world->time * 7 % 1000;
}

/*
 * Hosts
 */

static int open_cqs(struct world *world, struct host *host)
{
	struct snt_cq_opts opts = { .size = sizeof(opts),
				    .depth = 16 + dice(world, 36),
				    .per_device = 64 };
	int ret = 0;

	host->cqs = 1 + chance(world, 30);
	for (unsigned i = 0; !ret && i < host->cqs; i++)
		ret = snt_cq_create(host->ctx, &opts, &host->cq[i]);
	return ret;
}

static int open_host(struct world *world, struct host *host, unsigned devices)
{
	struct snt_adopted adopted[DEVICES_MAX];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = devices,
				     .clock = even_clock,
				     .clock_arg = world,
				     .random = own_random,
				     .random_arg = world };
	struct scripted_device_opts device = { .purge_cqes = chance(world, 30),
					       .round_up = chance(world, 30),
					       .inline_max = 64 };

	host->devices = devices;
	host->polls_itself = chance(world, 15);
	host->polls_single = chance(world, 10);
	for (unsigned i = 0; i < devices; i++) {
		host->device[i] = scripted_device_create(world->fabric, &device);
		adopted[i] = scripted_adopted(host->device[i]);
	}
	return snt_ctx_create(&opts, &host->ctx);
}

static int close_host(struct world *world, struct host *host)
{
	unsigned faults = 0;

	if (host_close(world, host))
		return -1;
	for (unsigned i = 0; i < host->devices; i++)
		faults |= scripted_faults(host->device[i]);
	if (faults & (SCRIPTED_FAULT_CQ_OVERRUN | SCRIPTED_FAULT_DESTROY_BUSY))
		return wrong(&world->link[0], "faults 0x%x at a device", faults);
	return 0;
}

/*
 * Links
 */

static void choose_opts(struct link *link, struct end *end, uint32_t lanes)
{
	struct world *world = link->world;

	end->cq = choose_cq(world, end->host);
	choose_limits(link, end, lanes);
	end->opts.fragment_size = choose_fragment_size(world);
	choose_manner(link, end, 20);
	end->recv_cq = choose_cq(world, end->host);
	end->opts.cq = end->cq;
	end->opts.recv_cq = end->recv_cq;
}

static int open_end(struct link *link, unsigned index, uint32_t lanes)
{
	struct end *end = &link->end[index];

	end->memory = malloc(MEMORY);
	if (!link->hostile || index)
		choose_opts(link, end, lanes);
	return end_open(link, index);
}

static int open_link(struct link *link)
{
	uint32_t lanes = 1 + dice(link->world, link->floods ? 3 : 6), peer = lanes;
	struct end *end = link->end;

	end[0].host = &link->world->host[link->hostile ? RAIDER : 0];
	end[1].host = &link->world->host[1];
	if (chance(link->world, 15))
		peer = 1 + dice(link->world, 6);
	if (link->pass)
		lanes = peer = 1;
	if (open_end(link, 0, lanes) || open_end(link, 1, peer))
		return -1;
	if (link->hostile) {
		end[0].opts = end[1].opts;
		if (raid_open(link))
			return -1;
	}
	link_agree(link);
	if (link->world->wraps && !link->hostile)
		wrap_counters(link);
	return 0;
}

/* Nothing is under way when everything has been said. */
static int check_lanes(const struct link *link, const struct end *end)
{
	for (unsigned i = 0; end->qp && i < end->lanes; i++)
		if (scripted_pending(end->lane[i]))
			return wrong(link, "lane %u has WRs after SNT_OP_CLOSED", i);
	return 0;
}

static int close_link(struct link *link)
{
	if (link->hostile && raid_close(link))
		return -1;
	for (unsigned i = 0; i < 2; i++)
		if (check_lanes(link, &link->end[i]) ||
		    end_destroy(link, &link->end[i]))
			return -1;
	return 0;
}

/*
 * All of it
 */

/* Behind the others, now and then. */
static void choose_hostile_link(struct world *world)
{
	if (world->links == 1 || !chance(world, 40))
		return;
	world->link[world->links] = (struct link){
		.world = world,
		.index = world->links,
		.scheme = chance(world, 50) ? SNT_SCHEME_SPRAY : SNT_SCHEME_DQPLB,
		.pass = chance(world, 10),
		.hostile = true,
		.faulty = true,
		.other_faults = 1,
	};
	if (world->link[world->links].pass)
		world->link[world->links].scheme = SNT_SCHEME_SPRAY;
	world->links++;
}

int world_open(struct world *world)
{
	unsigned devices[HOSTS] = { 1 + dice(world, DEVICES_MAX),
				    1 + dice(world, DEVICES_MAX), 1 };

	world->fabric = scripted_fabric_create(world->seed);
	world->link[0].end[0].host = &world->host[0];
	world->link[0].end[1].host = &world->host[1];
	choose_links(world);
	choose_hostile_link(world);
	world->wraps = chance(world, 30);
	world->time = 1000000 + dice(world, 1000);
	if (chance(world, 50))
		devices[1] = devices[0];
	for (unsigned i = 0; i < HOSTS; i++) {
		if (i == RAIDER && !world->link[world->links - 1].hostile)
			break;
		if (open_host(world, &world->host[i], devices[i]) ||
		    (i != RAIDER && open_cqs(world, &world->host[i])))
			return wrong(&world->link[0], "host %u: %s", i, snt_err_text());
	}
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
	if (link->hostile)
		return raid_connect(link);
	for (unsigned i = 0; i < 2; i++) {
		int ret;

		/* A server makes its card when it is connected. */
		if (i && snt_qp_card(link->end[0].qp, &card[0]))
			return wrong(link, "late card: %s", snt_err_text());
		ret = snt_qp_connect(link->end[i].qp, &card[!i]);

		/* Faults of an earlier life may be waiting; no more than these. */
		for (unsigned tries = 0; ret && link->faulty && tries < 12; tries++)
			ret = snt_qp_connect(link->end[i].qp, &card[!i]);
		if (ret)
			return wrong(link, "connect: %s", snt_err_text());
	}
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
		/* Connecting that fails begins to count from 0 again. */
		if (world->wraps && !link->faulty)
			wrap_counters(link);
	}
	return 0;
}

int world_close(struct world *world)
{
	unsigned left;

	for (unsigned i = 0; i < world->links; i++)
		if (close_link(&world->link[i]))
			return -1;
	for (unsigned i = 0; i < HOSTS; i++)
		if (close_host(world, &world->host[i]))
			return -1;
	left = scripted_fabric_destroy(world->fabric);
	world->fabric = NULL;
	return left ? wrong(&world->link[0], "%u objects leaked", left) : 0;
}
