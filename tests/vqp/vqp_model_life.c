/* SPDX-License-Identifier: MIT */
/*
 * What links, their ends and their hosts go through on whatever devices: they are
 * chosen, opened, come to rest, begin again and are closed.
 */
#include "vqp_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

/*
 * Choosing
 */

void choose_links(struct world *world)
{
	uint32_t kind = dice(world, 20);

	world->links = kind < 12 ? 1 : kind < 17 ? 2 : 3;
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		link->world = world;
		link->index = i;
		link->scheme = chance(world, 50) ? SNT_SCHEME_SPRAY : SNT_SCHEME_DQPLB;
		link->pass = chance(world, world->links > 1 ? 30 : 10);
		if (link->pass)
			link->scheme = SNT_SCHEME_SPRAY;
		link->twins = link->pass && chance(world, 40);
		link->floods = chance(world, 15);
	}
}

struct snt_cq *choose_cq(struct world *world, const struct host *host)
{
	return host->cq[dice(world, host->cqs)];
}

void choose_limits(struct link *link, struct end *end, uint32_t lanes)
{
	struct world *world = link->world;

	end->opts = (struct snt_qp_opts){
		.size = sizeof(end->opts),
		.scheme = link->scheme,
		.lanes = lanes,
		.flags = link->pass ? SNT_QP_PASS_THROUGH : 0,
		.lane_depth = 1 + dice(world, 8),
		.send_depth = 1 + dice(world, 8),
		.recv_depth = 1 + dice(world, 8),
		.send_sge_max = 1 + dice(world, PIECES_MAX),
		.recv_sge_max = 1 + dice(world, PIECES_MAX),
		.inline_max = dice(world, 2) * 64,
	};
}

uint32_t choose_fragment_size(struct world *world)
{
	static const uint32_t sizes[] = { 64, 128, 256, 256, 320 };

	return sizes[dice(world, 5)];
}

/* Around the fragment size, and around the length of most WRs. */
static uint32_t choose_express_max(struct link *link, const struct end *end)
{
	uint32_t fragment = end->opts.fragment_size;

	switch (dice(link->world, 6)) {
	case 0:
		return SNT_EXPRESS_OFF;
	case 1:
		return 1 + dice(link->world, 64);
	case 2:
		return fragment - 1 + dice(link->world, 3);
	case 3:
		return SNT_EXPRESS_MAX;
	default:
		return 0;
	}
}

void choose_manner(struct link *link, struct end *end, uint32_t by_time_percent)
{
	struct world *world = link->world;

	if (link->floods) {
		end->opts.lane_depth = 1 + dice(world, 2);
		end->opts.send_depth = 8;
		end->opts.recv_depth = 8;
	}
	/* An immediate of DQPLB needs two WRs on one lane. */
	if (link->scheme == SNT_SCHEME_DQPLB && end->opts.lane_depth == 1)
		end->opts.lane_depth = 2;
	for (unsigned i = 0; i < end->opts.lanes; i++)
		end->weights[i] = 1 + dice(world, 5);
	if (chance(world, 20))
		end->opts.weights = end->weights;
	if (chance(world, by_time_percent))
		end->opts.balance = SNT_BALANCE_BY_TIME;
	if (lacks_length(link) && chance(world, 50))
		end->opts.flags |= SNT_QP_NOTIFY_LENGTH;
	if (link->failover) {
		end->opts.flags = SNT_QP_FAILOVER;
		if (!link->calm && chance(world, 30))
			end->opts.flags |= SNT_QP_STRICT;
	}
	end->opts.express_max = choose_express_max(link, end);
	/* A notification for each device of the peer. */
	if (world->host[0].devices != world->host[1].devices && !link->hostile &&
	    !link->pass)
		end->opts.notify_lanes = DEVICES_MAX;
}

/*
 * Ends
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

void end_list_lanes(struct end *end)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	end->lanes = 0;
	while (end->lanes < LANES_MAX &&
	       !snt_qp_query_lane(end->qp, end->lanes, &info)) {
		end->lane_device[end->lanes] = info.device;
		end->lane[end->lanes++] = info.qp;
	}
}

int end_open(struct link *link, unsigned index)
{
	struct end *end = &link->end[index];
	bool raider = link->hostile && !index;
	int ret;

	fill_memory(end, index);
	ret = snt_mem_register(end->host->ctx, end->memory, MEMORY, ACCESS, &end->mem);
	if (!ret)
		ret = snt_mem_token(end->mem, &end->token);
	if (!ret && !raider)
		ret = snt_qp_create(end->host->ctx, &end->opts, &end->qp);
	if (ret)
		return wrong(link, "set-up of end %u: %d, %s", index, ret,
			     snt_err_text());
	if (!raider)
		end_list_lanes(end);
	return 0;
}

void link_agree(struct link *link)
{
	struct end *end = link->end;
	uint64_t size = end[0].opts.fragment_size;

	if (end[1].opts.fragment_size < size)
		size = end[1].opts.fragment_size;
	end[0].message_max = end[1].message_max = size;
}

int link_offer(struct link *link, struct snt_card card[2])
{
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = dice(link->world, 4); link->end[i].qp && j; j--)
			if (post_recv(link, i, dice(link->world, 2)))
				return -1;
		if (link->end[i].qp && snt_qp_card(link->end[i].qp, &card[i]))
			return wrong(link, "card: %s", snt_err_text());
	}
	return 0;
}

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
	end_list_lanes(end);
	fill_memory(end, index);
	return 0;
}

int link_renew(struct link *link)
{
	link->only_status = 0;
	return renew_end(link, 0) || renew_end(link, 1) ? -1 : 0;
}

int end_close(struct link *link, unsigned end, bool may_fail)
{
	struct end *here = &link->end[end];
	bool again = here->closing && !here->close_failed;
	int ret = snt_qp_close(here->qp, id_of(link, CLOSE_ID, end));

	here->closing = true;
	here->close_failed = ret < 0 && !again;
	if (link->world->trace)
		printf("# link %u, end %u: close: %d\n", link->index, end, ret);
	if (ret == (again ? -EALREADY : 0) || (here->close_failed && may_fail))
		return 0;
	return wrong(link, "end %u: close: %d", end, ret);
}

int end_destroy(struct link *link, struct end *end)
{
	if (snt_qp_destroy(end->qp))
		return wrong(link, "destroy: %s", snt_err_text());
	end->qp = NULL;
	if (snt_mem_release(end->mem))
		return wrong(link, "memory: %s", snt_err_text());
	return 0;
}

/*
 * Coming to rest
 */

/* Gives the peer's WRs the receives that they wait for. */
static int feed(struct link *link, unsigned end)
{
	struct end *here = &link->end[end], *there = &link->end[!end];
	int notifies = there->notifies, messages = there->messages;

	if (link->hostile)
		return 0;
	if (link->pass) {
		messages += notifies;
		notifies = 0;
	}
	if (here->class_posted[0] < notifies && post_recv(link, end, false))
		return -1;
	if (here->class_posted[1] < messages && post_recv(link, end, true))
		return -1;
	return 0;
}

int feed_all(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (feed(&world->link[i], 0) || feed(&world->link[i], 1))
			return -1;
	return 0;
}

int poll_hosts(struct world *world)
{
	int count = 0;

	for (unsigned host = 0; host < 2; host++) {
		int ret = poll_host(world, host);

		if (ret < 0)
			return -1;
		count += ret;
	}
	return count;
}

bool all_closed(const struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		for (unsigned end = 0; end < 2; end++)
			if (world->link[i].end[end].qp &&
			    !world->link[i].end[end].closed)
				return false;
	return true;
}

/*
 * All of it
 */

int host_close(struct world *world, struct host *host)
{
	const struct link *link = &world->link[0];
	uint64_t strays = 0;
	struct snt_wc wc;

	for (unsigned i = 0; i < host->cqs; i++) {
		if (snt_cq_poll(host->cq[i], &wc, 1))
			return wrong(link, "a completion after all were destroyed");
		strays += snt_cq_stray_count(host->cq[i]);
		if (snt_cq_destroy(host->cq[i]))
			return wrong(link, "CQ: %s", snt_err_text());
	}
	for (unsigned i = 0; i < world->links; i++)
		if (world->link[i].faulty)
			strays = 0;
	if (strays)
		return wrong(link, "%llu strays", (unsigned long long)strays);
	if (host->ctx && snt_ctx_destroy(host->ctx))
		return wrong(link, "context: %s", snt_err_text());
	return 0;
}

/* After a failure the library's objects are left alone: their state is unknown. */
void world_free(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		for (unsigned end = 0; end < 2; end++)
			free(world->link[i].end[end].memory);
}
