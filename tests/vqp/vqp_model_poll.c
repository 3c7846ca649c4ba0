/* SPDX-License-Identifier: MIT */
/*
 * Polling in all ways that there are: by array, one by one, by callback, one
 * physical CQ only, and by the program itself, which hands over what it found.
 */
#include "vqp_model.h"

#include <errno.h>
#include <stdio.h>

struct sink {
	struct world *world;
	unsigned host;
	const struct snt_cq *cq;
	int ret;
};

static void sink_one(void *arg, const struct snt_wc *wc)
{
	struct sink *sink = arg;

	if (!sink->ret)
		sink->ret = check_completion(sink->world, sink->host, sink->cq, wc);
}

static int check_all(struct world *world, unsigned host, const struct snt_cq *cq,
		     const struct snt_wc *wc, int count, int width, const char *how)
{
	if (world->trace)
		printf("# host %u: %s, width %d: %d\n", host, how, width, count);
	if (count < 0 || count > width)
		return wrong(&world->link[0], "host %u: %s of %d returned %d", host,
			     how, width, count);
	for (int i = 0; wc && i < count; i++)
		if (check_completion(world, host, cq, &wc[i]))
			return -1;
	return count;
}

/*
 * By the program itself
 */

/* Whose lane is it? NULL: nobody's. */
static struct link *find_owner(struct world *world, unsigned host, unsigned device,
			       uint32_t qp_num)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct end *end = &world->link[i].end[host];

		for (unsigned lane = 0; end->qp && lane < end->lanes; lane++)
			if (end->lane_device[lane] == device && end->lane[lane] &&
			    end->lane[lane]->qp_num == qp_num)
				return &world->link[i];
	}
	return NULL;
}

/* Foreign ones must be refused, and then nothing may have changed. */
static int hand_over_wrongly(struct link *link, unsigned host, unsigned device,
			     const struct ibv_wc *physical, int count)
{
	struct world *world = link->world;
	struct snt_wc wc[WIDTH_MAX];
	struct link *other = &world->link[dice(world, world->links)];
	struct snt_qp *qp = other->end[host].qp;

	if (!qp)
		return 0;
	if (other == link)
		device = DEVICES_MAX;
	if (snt_qp_complete(qp, device, physical, count, wc, WIDTH_MAX) != -EINVAL)
		return wrong(other, "completions of others are taken");
	return 0;
}

/* What did not fit comes later, with none at hand. */
static int fetch(struct link *link, unsigned host)
{
	struct snt_wc wc[WIDTH_MAX];
	int width = 1 + dice(link->world, WIDTH_MAX);
	int count = snt_qp_complete(link->end[host].qp, 0, NULL, 0, wc, width);

	return check_all(link->world, host, NULL, wc, count, width, "fetch");
}

static int hand_over(struct link *link, unsigned host, unsigned device,
		     const struct ibv_wc *physical, int count)
{
	struct world *world = link->world;
	struct snt_wc wc[WIDTH_MAX];
	int width = link->pass ? WIDTH_MAX : 1 + (int)dice(world, WIDTH_MAX);
	int ret;

	if (chance(world, 10) && hand_over_wrongly(link, host, device, physical, count))
		return -1;
	ret = snt_qp_complete(link->end[host].qp, device, physical, count, wc, width);
	ret = check_all(world, host, NULL, wc, ret, width, "hand over");
	if (ret >= 0 && chance(world, 50) && fetch(link, host) < 0)
		return -1;
	return ret;
}

/* One physical CQ; in runs of completions that belong together. */
static int poll_by_itself(struct world *world, unsigned host, const struct snt_cq *cq,
			  unsigned index)
{
	struct ibv_wc physical[WIDTH_MAX];
	unsigned device = 0;
	struct ibv_cq *from = snt_cq_physical(cq, index, &device);
	int count = from ? ibv_poll_cq(from, 1 + dice(world, WIDTH_MAX), physical) : 0;

	for (int i = 0, next; i < count; i = next) {
		struct link *link = find_owner(world, host, device, physical[i].qp_num);

		if (!link)
			return wrong(&world->link[0], "a CQE of no QP");
		for (next = i + 1; next < count; next++)
			if (find_owner(world, host, device, physical[next].qp_num) !=
			    link)
				break;
		if (hand_over(link, host, device, &physical[i], next - i) < 0)
			return -1;
	}
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];
		int ret = link->end[host].qp ? fetch(link, host) : 0;

		if (ret < 0)
			return -1;
		count += ret;
	}
	return count;
}

/*
 * By the library
 */

int poll_host(struct world *world, unsigned host)
{
	struct host *here = &world->host[host];
	unsigned turn = here->turn++, index = turn / here->cqs;
	struct snt_cq *cq = here->cq[turn % here->cqs];
	int width = 1 + dice(world, WIDTH_MAX), count;
	struct sink sink = { world, host, cq, 0 };
	struct snt_wc wc[WIDTH_MAX];
	uint32_t kind = here->polls_itself   ? 0
			: here->polls_single ? 3
					     : dice(world, 10);
	uint32_t physical = snt_cq_count(cq);

	index = physical ? index % physical : 0;
	switch (kind) {
	case 0:
		return poll_by_itself(world, host, cq, index);
	case 1:
		count = snt_cq_poll_each(cq, width, sink_one, &sink);
		if (sink.ret)
			return -1;
		return check_all(world, host, cq, NULL, count, width,
				 "poll by callback");
	case 2:
		count = snt_cq_poll_one(cq, wc);
		return check_all(world, host, cq, wc, count, 1, "poll of one");
	case 3:
		if (!physical)
			return 0;
		count = snt_cq_poll_index(cq, index, wc, width);
		return check_all(world, host, cq, wc, count, width, "poll by index");
	default:
		count = snt_cq_poll(cq, wc, width);
		return check_all(world, host, cq, wc, count, width, "poll");
	}
}
