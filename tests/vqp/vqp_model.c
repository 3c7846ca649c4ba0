/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of operations on virtual QPs, judged by the contract in qp.h.
 * Even seeds run without faults: there everything has to succeed. In odd ones lanes
 * fail, devices refuse posts and ends are closed; links that nothing of this touches
 * have to succeed all the same.
 */
#include "vqp_model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Polls may take in a lot before they have something to report. */
#define ROUNDS_IDLE 200
#define SECONDS_MAX 20 /* for one seed; it takes less than a millisecond */

/* Returns how many steps there were, or -1. */
static int step(struct world *world, unsigned most)
{
	unsigned count = 0;

	while (count < most && scripted_step(world->fabric, &world->random)) {
		count++;
		if (check_effects(world))
			return -1;
	}
	return count;
}

/* One operation of an end that has a virtual QP. */
static int operate_end(struct link *link, unsigned end, uint32_t what)
{
	int ret;

	if (link->hostile && end == 0) {
		for (unsigned i = 1 + dice(link->world, 4); i; i--)
			raid(link);
		return 0;
	}
	ret = what < 30 ? post_sends(link, end)
			: post_recv(link, end, dice(link->world, 2));
	return ret;
}

static int operate(struct world *world)
{
	struct link *link = &world->link[dice(world, world->links)];
	unsigned end = dice(world, 2);
	uint32_t what = dice(world, 100);
	int ret = 0;

	if (what < 50)
		ret = operate_end(link, end, what);
	else if (what < 75)
		ret = step(world, 1 + dice(world, 8));
	else if (what < 96 || !world->may_fail)
		ret = poll_host(world, end);
	else
		ret = harm(world);
	if (ret >= 0 && chance(world, 15))
		ret = check_pending(link, end);
	if (chance(world, 2))
		hinder(world, false);
	return ret;
}

/* Lets everything come to rest. */
static int settle(struct world *world, bool fed)
{
	for (unsigned idle = 0; idle < ROUNDS_IDLE; idle++) {
		int moved, ret;

		if (fed && feed_all(world))
			return -1;
		moved = poll_hosts(world);
		if (moved < 0)
			return -1;
		if (world->link[world->links - 1].hostile)
			raid_poll(&world->link[world->links - 1]);
		ret = step(world, 1 + dice(world, 64));
		if (ret < 0)
			return -1;
		if (moved || ret)
			idle = 0;
		if (all_closed(world))
			break;
	}
	return 0;
}

/* The error has been polled, since nothing moves any more: it is known. */
static int check_query(struct link *link, unsigned end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	if (snt_qp_query(link->end[end].qp, &info))
		return wrong(link, "query: %s", snt_err_text());
	if (info.cause != SNT_CAUSE_STATUS ||
	    info.cause_status != (unsigned)link->only_status)
		return wrong(link, "end %u: ended by %u (%u), not by %d", end,
			     info.cause, info.cause_status, link->only_status);
	return 0;
}

/* Nothing moves any more: is there a good reason for what has not retired? */
static int check_rest(struct link *link, unsigned end)
{
	const struct end *here = &link->end[end];
	unsigned least, most, pending = 0;

	if (!here->qp)
		return raid_check(link);
	for (unsigned i = 0; i < here->lanes; i++)
		pending += scripted_pending(here->lane[i]);
	ring_bounds(here, &least, &most);
	least = unreported(here, least);
	if (least && (!pending || !link->faulty))
		return wrong(link,
			     "end %u: WR %d of %d hangs, %u physical WRs under way",
			     end, here->sends - (int)least, here->sends, pending);
	if (link->only_status && link->only_end == end && check_query(link, end))
		return -1;
	if (here->closing && !here->closed && !here->close_failed)
		return wrong(link, "end %u: SNT_OP_CLOSED does not come", end);
	return check_pending(link, end);
}

static int check_all(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (check_rest(&world->link[i], 0) || check_rest(&world->link[i], 1))
			return -1;
	return 0;
}

static bool may_close(const struct end *end)
{
	return end->qp && (!end->closing || end->close_failed);
}

static int close_all(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		for (unsigned end = 0; end < 2; end++)
			while (may_close(&link->end[end]))
				if (end_close(link, end, link->faulty))
					return -1;
	}
	return 0;
}

/* From connecting to being closed. */
static int live(struct world *world)
{
	unsigned count = 20 + dice(world, 40 + 40 * world->links);

	if (world->link[0].floods)
		count += 100;
	if (world_connect(world))
		return -1;
	for (unsigned i = 0; i < count; i++)
		if (operate(world) < 0)
			return -1;
	hinder(world, true);
	if (settle(world, true) || check_all(world) || close_all(world) ||
	    settle(world, false) || check_all(world))
		return -1;
	for (unsigned i = 0; i < world->links; i++)
		if (check_memory(&world->link[i]))
			return -1;
	return 0;
}

static int sequence(struct world *world)
{
	if (world_open(world) || live(world))
		return -1;
	if (!world->link[world->links - 1].hostile && chance(world, 15) &&
	    (world_renew(world) || live(world)))
		return -1;
	return world_close(world);
}

static uint64_t seed_running;

/* A call that never returns: all that can be done is to say which seed it was. */
static void on_alarm(int number)
{
	char text[96];
	int length =
		snprintf(text, sizeof(text), "not ok 1 - seed %llu hangs in one call\n",
			 (unsigned long long)seed_running);

	(void)number;
	if (write(STDOUT_FILENO, text, length) < 0)
		_exit(2);
	_exit(1);
}

static int run(uint64_t seed)
{
	static struct world world;
	int ret;

	seed_running = seed;
	alarm(SECONDS_MAX);
	memset(&world, 0, sizeof(world));
	world.seed = seed;
	world.random = seed;
	world.may_fail = seed & 1;
	if (getenv("VQP_MODEL_FAULTS"))
		world.may_fail = getenv("VQP_MODEL_FAULTS")[0] != '0';
	world.trace = getenv("VQP_MODEL_TRACE") != NULL;
	ret = sequence(&world);
	world_free(&world);
	return ret;
}

int main(int argc, char **argv)
{
	signal(SIGALRM, on_alarm);
	return seeds_main(argc, argv, 1000, run);
}
