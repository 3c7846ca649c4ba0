/* SPDX-License-Identifier: MIT */
#include "vqp_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)
#define US 1000u

struct fabric fabric;

static const char *kind_of(const struct link *link)
{
	if (link->pass)
		return "pass-through";
	return link->scheme == SNT_SPRAY ? "SPRAY" : "DQPLB";
}

int wrong(const struct link *link, const char *format, ...)
{
	const struct world *world = link->world;
	va_list args;

	printf("# seed %llu, link %u of %u (%s, lanes %u, devices %u/%u, lengths wanted "
	       "%d/%d, %s%s) at %llu ns:\n",
	       (unsigned long long)world->seed, link->index, world->links,
	       kind_of(link), link->end[1].opts.lanes, world->host[0].devices,
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
		ret = snt_ctx_open(&opts, &host->ctx);
	for (unsigned i = 0; !ret && i < host->cqs; i++)
		ret = snt_cq_create(host->ctx, &cq_opts, &host->cq[i]);
	return ret ? wrong(&world->link[0], "host %u: %s", index, snt_err_text()) : 0;
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
		.recv_cq = host->cq[dice(world, host->cqs)],
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
		.mtu = 256 << dice(world, 2),
		.timeout = 10 + dice(world, 4),
		.rnr_timer = 1 + dice(world, 12),
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
	if (chance(world, 40))
		end->opts.balance = SNT_BY_TIME;
	if (lacks_length(link) && chance(world, 50))
		end->opts.flags |= SNT_QP_NOTIFY_LENGTH;
	/* A notification for each device of the peer. */
	if (world->host[0].devices != world->host[1].devices)
		end->opts.notify_lanes = DEVICES_MAX;
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
	int ret;

	end->host = &link->world->host[index];
	end->memory = aligned_alloc(GRAIN, MEMORY);
	fill_memory(end, index);
	choose_opts(link, end, lanes);
	ret = snt_mem_register(end->host->ctx, end->memory, MEMORY, ACCESS, &end->mem);
	if (!ret)
		ret = snt_mem_token(end->mem, &end->token);
	if (!ret)
		ret = snt_qp_create(end->host->ctx, &end->opts, &end->qp);
	if (ret)
		return wrong(link, "set-up of end %u: %d, %s", index, ret,
			     snt_err_text());
	list_lanes(end);
	return 0;
}

static int open_link(struct link *link)
{
	uint32_t lanes = 1 + dice(link->world, link->floods ? 3 : 6);
	struct end *end = link->end;
	uint64_t size;

	if (link->pass)
		lanes = 1;
	if (open_end(link, 0, lanes) || open_end(link, 1, lanes))
		return -1;
	size = end[0].opts.fragment_size;
	if (end[1].opts.fragment_size < size)
		size = end[1].opts.fragment_size;
	end[0].message_max = end[1].message_max = size;
	if (link->world->wraps)
		wrap_counters(link);
	return 0;
}

static void choose_links(struct world *world)
{
	uint32_t kind = dice(world, 20);

	world->links = kind < 12 ? 1 : kind < 17 ? 2 : 3;
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		link->world = world;
		link->index = i;
		link->scheme = chance(world, 50) ? SNT_SPRAY : SNT_DQPLB;
		link->pass = chance(world, world->links > 1 ? 30 : 10);
		link->floods = chance(world, 15);
	}
}

int world_open(struct world *world)
{
	struct snt__sim_opts opts = { .seed = world->seed,
				      .capture = fabric.plan->capture };
	bool ipv6 = dice(world, 2);

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

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = dice(link->world, 4); j; j--)
			if (post_recv(link, i, dice(link->world, 2)))
				return -1;
		if (snt_qp_card(link->end[i].qp, &card[i]))
			return wrong(link, "card: %s", snt_err_text());
	}
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
		if (world->wraps)
			wrap_counters(link);
	}
	return 0;
}

/*
 * What must be possible when everything has been said.
 */

static int end_close(struct link *link, struct end *end)
{
	if (snt_qp_destroy(end->qp))
		return wrong(link, "destroy: %s", snt_err_text());
	end->qp = NULL;
	if (snt_mem_release(end->mem))
		return wrong(link, "memory: %s", snt_err_text());
	return 0;
}

static int close_host(struct world *world, struct host *host)
{
	const struct link *link = &world->link[0];
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
	if (snt_ctx_close(host->ctx))
		return wrong(link, "context: %s", snt_err_text());
	return 0;
}

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

		if (end_close(link, &link->end[0]) || end_close(link, &link->end[1]))
			return -1;
	}
	for (unsigned i = 0; i < 2; i++)
		if (close_host(world, &world->host[i]) || check_overruns(world, i))
			return -1;
	search_count(fabric.sim);
	if (snt__sim_destroy(fabric.sim))
		return wrong(&world->link[0], "objects are left: %s", snt_err_text());
	fabric.sim = NULL;
	return 0;
}

/* After a failure the library's objects are left alone: who knows their state. */
void world_free(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		for (unsigned end = 0; end < 2; end++)
			free(world->link[i].end[end].memory);
}
