/* SPDX-License-Identifier: MIT */
/*
 * Many connections between many hosts, with all that can happen to messages, programs
 * and hosts. No end is told what is not so; each end is told in time; in the end both
 * ends agree, and nothing is left.
 */
#include "cm_sim.h"

#include <stdio.h>

#define OPERATIONS 40
#define LINGER_NS  (12 * S)
/* Of those who are asked for more time. */
#define WAIT_MAX_NS (60 * S)

/*
 * Time
 */

static int check_patience(void)
{
	uint64_t now = snt__sim_now(world.sim);

	for (unsigned i = 0; i < world.ends; i++) {
		const struct end *end = &world.end[i];
		uint64_t most = patience_ns() + 10 * MS;

		if (end->stage == CONNECTING || end->stage == ACCEPTED)
			most += WAIT_MAX_NS;
		else if (end->stage != CLOSING)
			continue;
		if (now > end->since + most)
			return wrong(end, "waits in vain");
	}
	return 0;
}

static int step(void)
{
	if (!snt__sim_step(world.sim))
		return 0;
	return serve_all() || check_managers() ? -1 : 0;
}

/* Lets everything happen until then, programs included. */
static int run_until(uint64_t until)
{
	if (serve_all())
		return -1;
	for (;;) {
		uint64_t due = next_due(),
			 next = snt__sim_queue_next(&world.sim->queue);

		if (due > until && next > until)
			break;
		if (due <= next) {
			snt__sim_run(world.sim, due);
			if (serve_all() || act_when_due())
				return -1;
		} else if (step()) {
			return -1;
		}
	}
	snt__sim_run(world.sim, until);
	return check_patience();
}

/*
 * Faults
 */

static void restore(void *arg)
{
	snt__sim_device_cut(arg, false);
}

static int harm(void)
{
	struct host *host = &world.host[dice(world.hosts)];
	struct snt__sim_device *device = host->device[dice(host->devices)].sim;
	uint64_t unit = chance(30) ? 20 * MS : MS;
	uint64_t later = snt__sim_now(world.sim) + dice(2000) * unit;

	if (host->dead)
		return 0;
	if (has(CUT) && chance(50)) {
		snt__sim_device_cut(device, true);
		return snt__sim_at(world.sim, later, restore, device);
	}
	if (has(KILL) && chance(20))
		return crash_host(host);
	if (has(RESTART) && chance(50))
		return crash_host(host) || start_host(host) ? -1 : 0;
	return 0;
}

/*
 * The end
 */

/* Both ends of a connection think the same of it, if both are there and patience has
 * not ended in between. */
static int check_agreement(void)
{
	for (unsigned i = 0; i < world.ends; i++) {
		const struct end *end = &world.end[i], *peer;

		if (end->stage != ESTABLISHED)
			continue;
		if (end->peer == NOBODY)
			return wrong(end, "established without a peer");
		peer = &world.end[end->peer];
		if (peer->crashed || given_up(end->host) || given_up(peer->host) ||
		    has_evicted(end->host) || has_evicted(peer->host))
			continue;
		if (peer->stage != ESTABLISHED || peer->peer != end->index)
			return wrong(end, "the peer knows nothing of it");
		if (!end->passive != peer->passive)
			return wrong(end, "both began it");
		if (world.real_qps && !world.disturbed && peer->sent && !end->got)
			return wrong(end, "the peer's message has not come");
	}
	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].stage < ESTABLISHED)
			return wrong(&world.end[i], "neither connected nor over");
	return 0;
}

/* Faults end, and each end that waits gets an answer. */
static int settle(void)
{
	uint64_t now = snt__sim_now(world.sim);

	heal();
	world.settling = true;
	return run_until(now + 2 * WAIT_MAX_NS) || check_agreement() ? -1 : 0;
}

static int check_empty(void)
{
	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].stage != DESTROYED)
			return wrong(&world.end[i], "it does not go");
	if (snt__sim_queue_next(&world.sim->queue) != UINT64_MAX)
		return wrong(NULL, "something goes on");
	for (unsigned i = 0; i < world.hosts; i++)
		if (!world.host[i].dead &&
		    snt__soft_deadline(world.host[i].device[0].sim->core) != UINT64_MAX)
			return wrong(NULL, "host %u waits for something", i);
	return 0;
}

/* All that is left is taken leave of, and forgotten in time. */
static int part(void)
{
	uint64_t now = snt__sim_now(world.sim);

	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].stage != DESTROYED)
			world.end[i].due = now;
	if (run_until(now + 2 * patience_ns() + LINGER_NS))
		return -1;
	/* What is timed may be there long after it is needed. */
	if (!snt__sim_run_idle(world.sim, now + 1000 * S))
		return wrong(NULL, "there is no end to it");
	return check_empty();
}

static int run_program(const struct search_plan *plan)
{
	unsigned ops = 5 + dice(OPERATIONS - 5);

	if (ops > plan->ops)
		ops = plan->ops;
	for (unsigned i = 0; i < ops; i++) {
		uint64_t pause = chance(10) ? 3 * S : 50 * MS;

		if (world.disturbed && chance(15) ? harm() : start_connect())
			return -1;
		if (run_until(snt__sim_now(world.sim) + dice((uint32_t)pause)))
			return -1;
	}
	return settle() || part() ? -1 : 0;
}

static int run(const struct search_plan *plan)
{
	int ret = open_world(plan);

	if (!ret)
		ret = run_program(plan);
	return ret ? ret : close_world();
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = {
		"loss",	   "duplicate", "corrupt", "reorder", "jitter", "cut", "kill",
		"restart", "slow",	"refuse",  "abandon", "limit",	NULL
	};
	static const struct search search = {
		.kinds = kinds, .ops_max = OPERATIONS, .seeds_default = 100, .run = run
	};

	return search_main(argc, argv, &search);
}
