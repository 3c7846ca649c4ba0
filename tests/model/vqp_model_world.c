/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

static const char *kind_of(const struct link *link)
{
	if (link->pass)
		return "pass-through";
	return link->scheme == SNT_SPRAY ? "SPRAY" : "DQPLB";
}

int wrong(const struct link *link, const char *format, ...)
{
	const struct end *end = link->end;
	const struct world *world = link->world;
	va_list args;

	printf("# seed %llu, link %u of %u (%s, lanes %u/%u, devices %u/%u, depths lane "
	       "%u/%u send %u/%u recv %u/%u, lengths wanted %d/%d, %s%s%s): ",
	       (unsigned long long)world->seed, link->index, world->links,
	       kind_of(link), end[0].opts.lanes, end[1].opts.lanes,
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

/* The library's own dice must not make replays differ. */
static int even_random(void *arg, void *buffer, size_t size)
{
	(void)arg;
	memset(buffer, 7, size);
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
				     .random = even_random };
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
	return snt_ctx_open(&opts, &host->ctx);
}

static int close_host(struct world *world, struct host *host)
{
	const struct link *link = &world->link[0];
	unsigned faults = 0;
	uint64_t strays = 0;
	struct snt_wc wc;

	for (unsigned i = 0; i < host->cqs; i++) {
		if (snt_cq_poll(host->cq[i], &wc, 1))
			return wrong(link, "a completion after all were destroyed");
		strays += snt_cq_stray(host->cq[i], NULL, NULL);
		if (snt_cq_destroy(host->cq[i]))
			return wrong(link, "CQ: %s", snt_err_text());
	}
	for (unsigned i = 0; i < world->links; i++)
		if (world->link[i].faulty)
			strays = 0;
	if (strays)
		return wrong(link, "%llu strays", (unsigned long long)strays);
	if (host->ctx && snt_ctx_close(host->ctx))
		return wrong(link, "context: %s", snt_err_text());
	for (unsigned i = 0; i < host->devices; i++)
		faults |= scripted_faults(host->device[i]);
	if (faults & (SCRIPTED_FAULT_CQ_OVERRUN | SCRIPTED_FAULT_DESTROY_BUSY))
		return wrong(link, "faults 0x%x at a device", faults);
	return 0;
}

/*
 * Links
 */

static void fill_memory(struct end *end, unsigned index)
{
	memset(end->memory, EMPTY, MEMORY);
	memset(end->memory + WORD, 0, GRAIN);
	memset(end->memory + CANARY, GUARD, CANARY_SIZE);
	for (uint32_t i = 0; i < SOURCE_SIZE; i++)
		end->memory[SOURCE + i] = source_byte(index, i);
	memset(end->image, EMPTY, IN_SIZE);
	memset(end->out_owner, NOBODY, sizeof(end->out_owner));
	memset(end->in_owner, NOBODY, sizeof(end->in_owner));
	end->matched[0] = end->matched[1] = -1;
}

static void choose_opts(struct link *link, struct end *end, uint32_t lanes)
{
	static const uint32_t sizes[] = { 256, 256, 256, 320, 512 };
	struct world *world = link->world;
	struct host *host = end->host;

	end->opts = (struct snt_qp_opts){
		.size = sizeof(end->opts),
		.cq = host->cq[dice(world, host->cqs)],
		.scheme = link->scheme,
		.lanes = lanes,
		.flags = lanes == 1 && !link->pass ? SNT_QP_TRACKED : 0,
		.lane_depth = 1 + dice(world, 8),
		.send_depth = 1 + dice(world, 8),
		.recv_depth = 1 + dice(world, 8),
		.send_sge_max = 1 + dice(world, PIECES_MAX),
		.recv_sge_max = 1 + dice(world, PIECES_MAX),
		.inline_max = dice(world, 2) * 64,
		.fragment_size = sizes[dice(world, 5)],
	};
	if (link->floods) {
		end->opts.lane_depth = 1 + dice(world, 2);
		end->opts.send_depth = 8;
		end->opts.recv_depth = 8;
	}
	/* An immediate of DQPLB needs two WRs on one lane. */
	if (link->scheme == SNT_DQPLB && end->opts.lane_depth == 1)
		end->opts.lane_depth = 2;
	for (unsigned i = 0; i < lanes; i++)
		end->weights[i] = 1 + dice(world, 5);
	if (chance(world, 20))
		end->opts.weights = end->weights;
	if (chance(world, 20))
		end->opts.balance = SNT_BY_TIME;
	if (lacks_length(link) && chance(world, 50))
		end->opts.flags |= SNT_QP_NOTIFY_LENGTH;
	/* A notification for each device of the peer. */
	if (world->host[0].devices != world->host[1].devices && !link->hostile)
		end->opts.notify_lanes = DEVICES_MAX;
	end->opts.recv_cq = host->cq[dice(world, host->cqs)];
	end->cq = end->opts.cq;
	end->recv_cq = end->opts.recv_cq;
}

static void list_lanes(struct end *end)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	while (end->lanes < LANES_MAX && !snt_qp_lane(end->qp, end->lanes, &info)) {
		end->lane_device[end->lanes] = info.device;
		end->lane[end->lanes++] = info.qp;
	}
}

static int open_end(struct link *link, unsigned index, uint32_t lanes)
{
	struct end *end = &link->end[index];
	bool raider = link->hostile && !index;
	int ret;

	end->memory = malloc(MEMORY);
	fill_memory(end, index);
	ret = snt_mem_register(end->host->ctx, end->memory, MEMORY, ACCESS, &end->mem);
	if (!ret)
		ret = snt_mem_token(end->mem, &end->token);
	if (!ret && !raider) {
		choose_opts(link, end, lanes);
		ret = snt_qp_create(end->host->ctx, &end->opts, &end->qp);
	}
	if (ret)
		return wrong(link, "set-up of end %u: %d, %s", index, ret,
			     snt_err_text());
	if (!raider)
		list_lanes(end);
	return 0;
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
	for (unsigned i = 0; i < 2; i++) {
		uint64_t size = end[0].opts.fragment_size;

		if (end[1].opts.fragment_size < size)
			size = end[1].opts.fragment_size;
		end[i].message_max = size;
	}
	if (link->world->wraps && !link->hostile)
		wrap_counters(link);
	return 0;
}

/* What must be possible when everything has been said. */
static int end_close(struct link *link, struct end *end)
{
	for (unsigned i = 0; end->qp && i < end->lanes; i++)
		if (scripted_pending(end->lane[i]))
			return wrong(link, "lane %u has WRs after SNT_CLOSED", i);
	if (snt_qp_destroy(end->qp))
		return wrong(link, "destroy: %s", snt_err_text());
	end->qp = NULL;
	if (snt_mem_release(end->mem))
		return wrong(link, "memory: %s", snt_err_text());
	return 0;
}

/*
 * All of it
 */

static void choose_links(struct world *world)
{
	uint32_t kind = dice(world, 20);

	world->links = kind < 12 ? 1 : kind < 17 ? 2 : 3;
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		link->scheme = chance(world, 50) ? SNT_SPRAY : SNT_DQPLB;
		link->pass = chance(world, world->links > 1 ? 30 : 10);
		link->floods = chance(world, 15);
	}
	if (world->links > 1 && chance(world, 40))
		world->link[world->links++] = (struct link){
			.scheme = chance(world, 50) ? SNT_SPRAY : SNT_DQPLB,
			.pass = chance(world, 10),
			.hostile = true,
			.faulty = true,
			.other_faults = 1,
		};
	for (unsigned i = 0; i < world->links; i++) {
		world->link[i].world = world;
		world->link[i].index = i;
	}
}

int world_open(struct world *world)
{
	unsigned devices[HOSTS] = { 1 + dice(world, DEVICES_MAX),
				    1 + dice(world, DEVICES_MAX), 1 };

	world->fabric = scripted_fabric_create(world->seed);
	world->link[0].end[0].host = &world->host[0];
	world->link[0].end[1].host = &world->host[1];
	choose_links(world);
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

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = dice(link->world, 4); link->end[i].qp && j; j--)
			if (post_recv(link, i, dice(link->world, 2)))
				return -1;
		if (link->end[i].qp && snt_qp_card(link->end[i].qp, &card[i]))
			return wrong(link, "card: %s", snt_err_text());
	}
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

/* A closed end begins again, on the same lanes, and knows nothing of before. */
static int renew_end(struct link *link, unsigned index)
{
	struct end *end = &link->end[index], before = *end;

	if (snt_qp_reset(end->qp))
		return wrong(link, "end %u: reset: %s", index, snt_err_text());
	*end = (struct end){ .host = before.host,
			     .cq = before.cq,
			     .recv_cq = before.recv_cq,
			     .qp = before.qp,
			     .mem = before.mem,
			     .token = before.token,
			     .opts = before.opts,
			     .memory = before.memory,
			     .message_max = before.message_max };
	list_lanes(end);
	fill_memory(end, index);
	return 0;
}

int world_renew(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		if (renew_end(link, 0) || renew_end(link, 1))
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

	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		if ((link->hostile && raid_close(link)) ||
		    end_close(link, &link->end[0]) || end_close(link, &link->end[1]))
			return -1;
	}
	for (unsigned i = 0; i < HOSTS; i++)
		if (close_host(world, &world->host[i]))
			return -1;
	left = scripted_fabric_destroy(world->fabric);
	world->fabric = NULL;
	return left ? wrong(&world->link[0], "%u objects leaked", left) : 0;
}

/* After a failure the library's objects are left alone: who knows their state. */
void world_free(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		for (unsigned end = 0; end < 2; end++)
			free(world->link[i].end[end].memory);
}
