/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of operations on virtual QPs, over soft devices on a simulated
 * fabric with faults, judged by the contract in qp.h. In even seeds nothing happens
 * that a device cannot make good, so that everything has to succeed.
 */
#include "vqp_sim.h"

#include <stdio.h>
#include <string.h>

#define SETTLE_NS   UINT64_C(4000000000) /* retries run out in less than one second */
#define ROUNDS_IDLE 200
#define OPERATIONS  260

/* Returns how many steps there were, or -1. */
static int step(struct world *world, unsigned most)
{
	unsigned count = 0;

	while (count < most && snt__sim_step(fabric.sim)) {
		count++;
		if (check_effects(world))
			return -1;
	}
	return count;
}

/*
 * Faults
 */

/* Whatever hits a host may be felt by all links. */
static void expect_failures(struct world *world, bool lasting)
{
	for (unsigned i = 0; i < world->links; i++) {
		world->link[i].faulty |= !world->link[i].failover || lasting;
		world->link[i].other_faults++;
	}
}

static struct snt__sim_device *pick_device(struct world *world)
{
	unsigned host = dice(world, 2);

	return fabric.device[host][dice(world, world->host[host].devices)];
}

static void restore(void *arg)
{
	snt__sim_device_cut(arg, false);
}

/* For some time, or for good. */
static void cut(struct world *world)
{
	struct snt__sim_device *device = pick_device(world);
	uint64_t later = snt__sim_now(fabric.sim) + dice(world, 100000000);

	expect_failures(world, false);
	snt__sim_device_cut(device, true);
	/* With failover, everything is to succeed in the end. */
	if (chance(world, 70) || has_failover(world))
		snt__sim_at(fabric.sim, later, restore, device);
	if (world->trace)
		printf("# %s is cut\n", device->name);
}

static void kill_device(struct world *world)
{
	struct snt__sim_device *device = pick_device(world);

	expect_failures(world, true);
	fabric.killed = true;
	snt__sim_device_kill(device);
	if (world->trace)
		printf("# %s dies\n", device->name);
}

/* Longer than any packet takes. */
#define LAND_NS UINT64_C(2000000000)

/* A QP goes to ERR by itself, as when its port is gone. What it has sent arrives
 * before anything else happens, or it might undo what comes later to its place. Others
 * may have something under way for ever, where no receive is posted. */
static int fail_lane(struct world *world)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct link *link = &world->link[dice(world, world->links)];
	unsigned end = dice(world, 2);
	struct end *here = &link->end[end];
	struct ibv_qp *qp = here->lane[dice(world, here->lanes)];
	uint64_t deadline = snt__sim_now(fabric.sim) + LAND_NS;

	if (!qp)
		return 0;
	link->faulty |= !link->failover;
	link->other_faults++;
	if (world->trace)
		printf("# link %u, end %u: lane %u goes to ERR\n", link->index, end,
		       qp->qp_num);
	snt__soft_control()->modify_qp(qp, &attr, IBV_QP_STATE);
	if (link->failover)
		return 0;
	while (snt__sim_in_flight(fabric.sim) && snt__sim_now(fabric.sim) < deadline &&
	       snt__sim_step(fabric.sim))
		if (check_effects(world))
			return -1;
	return 0;
}

int harm(struct world *world)
{
	enum fault fault = CUT + dice(world, FAULTS - CUT);
	struct link *link = &world->link[dice(world, world->links)];

	if (!has(fault))
		return 0;
	switch (fault) {
	case CUT:
		cut(world);
		return 0;
	case LANE:
		return fail_lane(world);
	case DEVICE:
		kill_device(world);
		return 0;
	case STOP:
		return stop_lanes(world);
	default:
		link->faulty = true;
		link->other_faults++;
		return end_close(link, dice(world, 2), false);
	}
}

/*
 * One sequence
 */

static int operate(struct world *world)
{
	struct link *link = &world->link[dice(world, world->links)];
	unsigned end = dice(world, 2);
	uint32_t what = dice(world, 100);

	if (what < 30)
		return post_sends(link, end);
	if (what < 50)
		return post_recv(link, end, dice(world, 2));
	if (what < 75)
		return step(world, 1 + dice(world, 40));
	if (what < 97)
		return poll_host(world, end) < 0 ? -1 : carry_receipts(world);
	return harm(world);
}

/* Lets everything come to rest. Where something is broken it need not: an end that
 * waits for receives that the peer will never post does so for ever. */
static int settle(struct world *world, bool fed)
{
	uint64_t deadline = snt__sim_now(fabric.sim) +
			    (has_failover(world) ? 4 * SETTLE_NS : SETTLE_NS);

	for (unsigned idle = 0; idle < ROUNDS_IDLE && !all_closed(world); idle++) {
		int moved, ret;

		if ((fed && feed_all(world)) || carry_receipts(world) ||
		    (idle % 16 == 15 && urge(world)))
			return -1;
		moved = poll_hosts(world);
		if (moved < 0)
			return -1;
		ret = step(world, 1 + dice(world, 64));
		if (ret < 0)
			return -1;
		if ((moved || ret) && snt__sim_now(fabric.sim) < deadline)
			idle = 0;
	}
	return 0;
}

static int check_rest(struct link *link, unsigned end)
{
	const struct end *here = &link->end[end];
	unsigned least, most;

	ring_bounds(here, &least, &most);
	if (least && !link->faulty)
		return wrong(link, "end %u: WR %d of %d hangs", end,
			     here->sends - (int)least, here->sends);
	if (here->closing && !here->closed && !here->close_failed)
		return wrong(link, "end %u: SNT_OP_CLOSED does not come", end);
	return 0;
}

static int check_all(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (check_rest(&world->link[i], 0) || check_rest(&world->link[i], 1))
			return -1;
	return 0;
}

static int close_all(struct world *world)
{
	for (unsigned i = 0; i < world->links * 2; i++)
		if (!world->link[i / 2].end[i % 2].closing &&
		    end_close(&world->link[i / 2], i % 2, false))
			return -1;
	return 0;
}

/* From connecting to the end of closing. */
static int live(struct world *world, uint32_t count)
{
	if (world_connect(world))
		return -1;
	for (uint32_t i = 0; i < count && i < fabric.plan->ops; i++)
		if (operate(world) < 0)
			return -1;
	if (settle(world, true) || check_all(world) || close_all(world) ||
	    settle(world, false) || check_all(world))
		return -1;
	for (unsigned i = 0; i < world->links; i++)
		if (check_memory(&world->link[i]))
			return -1;
	return 0;
}

/* What is left of the old life must not reach the new one. */
static int live_again(struct world *world, uint32_t count)
{
	while (snt__sim_in_flight(fabric.sim) && snt__sim_step(fabric.sim))
		;
	return world_renew(world) || live(world, count) ? -1 : 0;
}

static int sequence(struct world *world)
{
	uint32_t count;

	if (world_open(world))
		return -1;
	count = 20 + dice(world, 40 + 40 * world->links);
	if (world->link[0].floods)
		count += 80;
	if (live(world, count))
		return -1;
	/* The dead do not come back. */
	if (chance(world, 25) && !fabric.killed && live_again(world, count / 2))
		return -1;
	return world_close(world);
}

static void choose_faults(struct world *world)
{
	bool peaceful = chance(world, 10);

	for (unsigned i = 0; i < FAULTS; i++) {
		bool wanted = chance(world, i >= CUT ? 50 : 33);

		if (wanted && !peaceful && (i < CUT || world->seed & 1))
			fabric.faults |= 1u << i;
	}
	fabric.faults &= fabric.plan->faults;
	world->may_fail = fabric.faults >> CUT;
}

/* Whose turn it was, when and with what end. */
static void saw(const struct snt_wc *wc)
{
	search_saw(wc->wr_id);
	search_saw((uint64_t)wc->status << 32 | wc->opcode << 8 | wc->flags);
	search_saw(wc->length);
	search_saw(snt__sim_now(fabric.sim));
}

static int run(const struct search_plan *plan)
{
	static struct world world;
	int ret;

	memset(&world, 0, sizeof(world));
	memset(&fabric, 0, sizeof(fabric));
	fabric.plan = plan;
	world.seed = plan->seed;
	world.random = plan->seed;
	world.trace = plan->verbose;
	world.saw = saw;
	world.link[0].world = &world;
	choose_faults(&world);
	ret = sequence(&world);
	world_free(&world);
	return ret;
}

static const char *const kinds[FAULTS + 1] = {
	[LOSS] = "loss",       [DUPLICATE] = "duplicate", [CORRUPT] = "corrupt",
	[REORDER] = "reorder", [JITTER] = "jitter",	  [MIX] = "mix",
	[CUT] = "cut",	       [BANDWIDTH] = "bandwidth", [LANE] = "lane",
	[DEVICE] = "device",   [CLOSE] = "close",	  [STOP] = "stop",
};

int main(int argc, char **argv)
{
	static const struct search search = {
		.kinds = kinds,
		.ops_max = OPERATIONS,
		.seeds_default = 1000,
		.has_addresses = true,
		.run = run,
	};

	return search_main(argc, argv, &search);
}
