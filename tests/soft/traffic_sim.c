/* SPDX-License-Identifier: MIT */
/*
 * Random traffic of all opcodes over soft devices on a simulated fabric with faults,
 * judged by what verbs promise: every byte, every completion, in order, once.
 */
#include "traffic.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define WCS_MAX	    8
#define ROUNDS_MAX  3
#define DRAIN_NS    UINT64_C(60000000000)
#define DRAIN_STEPS 16 /* more than polls and posts can cause */
#define RECVS_AHEAD 4

static struct world world;

static struct end *pick_end(void)
{
	return &world.end[dice(&world, world.pairs)][dice(&world, 2)];
}

/*
 * Polling
 */

/* A program that sleeps on a channel is woken by it alone. */
static int take_events(struct device *device)
{
	struct pollfd poller = { .fd = device->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	while (poll(&poller, 1, 0) == 1) {
		if (device->control->get_cq_event(device->channel, &cq, &context))
			return wrong(&world, "a CQ event that cannot be had");
		device->control->ack_cq_events(cq, 1);
		for (unsigned i = 0; i < device->cqs; i++)
			if (device->cq[i] == cq)
				device->asleep[i] = device->dozes[i] = false;
	}
	return 0;
}

/* How many there were, or -1. */
static int poll_some(struct device *device, unsigned index)
{
	int width = between(&world, 1, WCS_MAX);
	struct ibv_wc wc[WCS_MAX];
	int count = ibv_poll_cq(device->cq[index], width, wc);

	if (count < 0 || count > width)
		return wrong(&world, "a poll of %d: %d", width, count);
	for (int i = 0; i < count; i++) {
		if (device->dozes[index] && is_loud(&world, device, &wc[i]))
			return wrong(&world, "%s: an event is missing",
				     device->sim->name);
		if (check_completion(&world, device, &wc[i]))
			return -1;
	}
	return count;
}

/* A program that waits for solicited ones only looks at times, and finds others
 * only. */
static int poll_cq(struct device *device, unsigned index)
{
	bool solicited;
	int count;

	if (device->asleep[index] && !(device->dozes[index] && chance(&world, 10)))
		return 0;
	count = poll_some(device, index);
	if (count || device->asleep[index] || !device->channel || chance(&world, 50))
		return count;
	solicited = chance(&world, 30);
	if (ibv_req_notify_cq(device->cq[index], solicited))
		return wrong(&world, "req_notify_cq");
	count = poll_some(device, index);
	device->asleep[index] = !count;
	device->dozes[index] = !count && solicited;
	return count;
}

static int poll_device(struct device *device)
{
	if (device->sim->host->dead)
		return 0;
	if (device->channel && take_events(device))
		return -1;
	for (unsigned i = 0; i < device->cqs; i++)
		if (poll_cq(device, i) < 0)
			return -1;
	return 0;
}

static int poll_all(void)
{
	for (unsigned i = 0; i < world.devices; i++)
		if (poll_device(&world.device[i]))
			return -1;
	return 0;
}

/* All that there is, also where no program would look because nothing woke it. */
static int poll_dry(void)
{
	for (unsigned i = 0; i < world.devices * CQS_MAX; i++) {
		struct device *device = &world.device[i / CQS_MAX];
		int count = 1;

		if (device->channel && !device->sim->host->dead && take_events(device))
			return -1;
		while (count > 0 && i % CQS_MAX < device->cqs &&
		       !device->sim->host->dead)
			count = poll_some(device, i % CQS_MAX);
		if (count < 0)
			return -1;
	}
	return 0;
}

/*
 * One round of traffic
 */

/* Ahead of what is sent, or too late. */
static int receive(struct end *end)
{
	int ahead = end->recvs - end->recvs_done -
		    (end->peer->consumers - end->peer->arrived);

	if (!has(&world, RNR))
		return post_recvs(&world, end);
	return ahead < RECVS_AHEAD ? post_recv(&world, end) : 0;
}

static bool is_lost(const struct end *end)
{
	return is_dead(end) || end->device->killed;
}

/* Dead, or in RESET for ever, since its peer is. */
static bool is_gone(const struct end *end)
{
	return is_dead(end) || world_state(end) == IBV_QPS_RESET;
}

static int resume(struct end *end)
{
	return world_state(end) == IBV_QPS_SQD
		       ? world_set_state(&world, end, IBV_QPS_RTS)
		       : 0;
}

static int pause_or_resume(struct end *end)
{
	return world_state(end) == IBV_QPS_RTS
		       ? world_set_state(&world, end, IBV_QPS_SQD)
		       : resume(end);
}

static int act(void)
{
	struct end *end = pick_end();
	uint32_t what = dice(&world, 100);

	if (what < 35)
		return is_gone(end) ? 0 : post_sends(&world, end);
	if (what < 50)
		return is_gone(end) ? 0 : receive(end);
	if (what < 75)
		return poll_device(&world.device[dice(&world, world.devices)]);
	if (what < 76 && has(&world, ERROR) && !is_gone(end))
		return world_set_state(&world, end, IBV_QPS_ERR);
	if (what < 79 && has(&world, PAUSE) && !is_lost(end))
		return pause_or_resume(end);
	for (uint32_t i = dice(&world, 40); i > 0; i--)
		snt__sim_step(world.sim);
	return 0;
}

/* Until there is nothing left to post. */
static int play(uint32_t ops)
{
	uint32_t begin = world.ops;

	for (uint32_t i = 0; i < 12 * ops && world.ops - begin < ops; i++)
		if (act())
			return -1;
	return 0;
}

static bool sends_are_done(const struct end *end)
{
	return is_dead(end) || end->sends_done == end->sends;
}

static bool recvs_are_done(const struct end *end)
{
	return is_dead(end) || end->srq || end->recvs_done == end->recvs;
}

static bool all(bool (*fn)(const struct end *end))
{
	for (unsigned i = 0; i < world.pairs * 2; i++)
		if (!fn(&world.end[i / 2][i % 2]))
			return false;
	return true;
}

static int help_along(struct end *end)
{
	if (is_gone(end))
		return 0;
	return resume(end) || post_recvs(&world, end) || post_marker(&world, end) ? -1
										  : 0;
}

static int stuck(const char *what)
{
	for (unsigned i = 0; i < world.pairs * 2; i++) {
		const struct end *end = &world.end[i / 2][i % 2];

		printf("# %u.%u: sends %d of %d, receives %d of %d, arrived %d of %d, "
		       "state %d%s\n",
		       end->pair, end->side, end->sends_done, end->sends,
		       end->recvs_done, end->recvs, end->arrived, end->consumers,
		       world_state(end), is_dead(end) ? ", dead" : "");
	}
	return wrong(&world, "completions of %s are missing", what);
}

/* Until every WR is accounted for; markers make that visible. */
static int drain(bool (*done)(const struct end *end), const char *what)
{
	uint64_t deadline = snt__sim_now(world.sim) + DRAIN_NS;
	unsigned idle = 0;

	while (!all(done)) {
		for (unsigned i = 0; i < world.pairs * 2; i++)
			if (help_along(&world.end[i / 2][i % 2]))
				return -1;
		if (poll_all())
			return -1;
		/* Polls take in a few at a time, and some of them only arm. */
		idle = snt__sim_step(world.sim) ? 0 : idle + 1;
		for (unsigned i = 1; !idle && i < DRAIN_STEPS; i++)
			snt__sim_step(world.sim);
		if (idle > 1000 || snt__sim_now(world.sim) > deadline)
			return stuck(what);
	}
	return 0;
}

static int set_states(enum ibv_qp_state state)
{
	for (unsigned i = 0; i < world.pairs * 2; i++)
		if (!is_gone(&world.end[i / 2][i % 2]) &&
		    world_set_state(&world, &world.end[i / 2][i % 2], state))
			return -1;
	return 0;
}

static void land_packets(void)
{
	while (snt__sim_in_flight(world.sim) && snt__sim_step(world.sim))
		;
}

/* Are all that this end's peer has sent in good order, and none but copies under
 * way? */
static bool is_at_rest(const struct end *end)
{
	return !is_dead(end) && !is_dead(end->peer) && !end->device->killed &&
	       world_state(end) == IBV_QPS_RTS && world_state(end->peer) == IBV_QPS_RTS;
}

/* Memory that is not needed any more goes away; copies of READs that come late must not
 * do harm. */
static int renew_memory(void)
{
	bool at_rest[PAIRS_MAX * 2];

	for (unsigned i = 0; i < world.pairs * 2; i++) {
		at_rest[i] = is_at_rest(&world.end[i / 2][i % 2]);
		if (at_rest[i] && world_register_anew(&world, &world.end[i / 2][i % 2]))
			return -1;
	}
	land_packets();
	for (unsigned i = 0; i < world.pairs * 2; i++) {
		const struct end *end = &world.end[i / 2][i % 2];

		if (at_rest[i] && !world.harmed && world_state(end) != IBV_QPS_RTS)
			return wrong(&world, "%u.%u: a copy has done harm", end->pair,
				     end->side);
	}
	return 0;
}

/* All QPs into ERR, so that receives are given back and nothing is sent. */
static int come_to_an_end(void)
{
	if (drain(sends_are_done, "sends") || (has(&world, DEREG) && renew_memory()) ||
	    set_states(IBV_QPS_ERR) || drain(recvs_are_done, "receives"))
		return -1;
	land_packets();
	return poll_dry();
}

/* All QPs into RESET, whatever is under way, as soon as all that has happened is
 * known. */
static int break_off(void)
{
	if (poll_dry() || set_states(IBV_QPS_RESET))
		return -1;
	for (unsigned i = 0; i < world.pairs * 2; i++)
		abandon(&world.end[i / 2][i % 2]);
	land_packets();
	return 0;
}

static int end_round(void)
{
	bool breaks = has(&world, RESET) && chance(&world, 70);

	if (breaks ? break_off() : come_to_an_end())
		return -1;
	for (unsigned i = 0; i < world.pairs * 2; i++)
		if (check_end(&world, &world.end[i / 2][i % 2]))
			return -1;
	for (unsigned i = 0; i < world.devices; i++)
		if (check_device(&world, &world.device[i]))
			return -1;
	return 0;
}

/*
 * Connected again
 */

static void forget(struct end *end)
{
	end->arrived = end->consumers;
	end->failed = end->sent_bad = end->recv_failed = false;
	end->unsignalled = 0;
	end->window = UNBOUND;
	end->round = end->seen = end->sends;
	memcpy(&end->word, end->peer->memory + WORD, sizeof(end->word));
	end->word_before = end->word;
}

static int begin_round(void)
{
	for (unsigned i = 0; i < world.pairs; i++) {
		struct end *end = world.end[i];

		if (is_lost(&end[0]) || is_lost(&end[1]))
			continue;
		for (unsigned side = 0; side < 2; side++) {
			/* Some are there already; once has to be enough. */
			if (!is_gone(&end[side]) &&
			    world_set_state(&world, &end[side], IBV_QPS_RESET))
				return -1;
			forget(&end[side]);
		}
		if (world_connect(&world, &end[0]))
			return -1;
	}
	return 0;
}

static int play_all(void)
{
	uint32_t rounds = chance(&world, 70) && !has(&world, RESET)
				  ? 1
				  : between(&world, 2, ROUNDS_MAX);

	for (uint32_t i = 0; i < rounds; i++) {
		if (i && begin_round())
			return -1;
		if (play(between(&world, 1, OPS_MAX / rounds)) || end_round())
			return -1;
	}
	return 0;
}

static int run(const struct search_plan *plan)
{
	if (world_open(&world, plan) || play_all())
		return -1;
	return world_close(&world);
}

static const char *const kinds[FAULTS + 1] = {
	[LOSS] = "loss",
	[DUPLICATE] = "duplicate",
	[CORRUPT] = "corrupt",
	[REORDER] = "reorder",
	[JITTER] = "jitter",
	[MIX] = "mix",
	[BANDWIDTH] = "bandwidth",
	[CUT] = "cut",
	[PORT] = "port",
	[DEVICE] = "device",
	[HOST] = "host",
	[ERROR] = "error",
	[BAD] = "bad",
	[RNR] = "rnr",
	[GIVE_UP] = "give-up",
	[RESET] = "reset",
	[DEREG] = "dereg",
	[PAUSE] = "pause",
	[WINDOW] = "window",
};

int main(int argc, char **argv)
{
	static const struct search search = {
		.kinds = kinds,
		.ops_max = OPS_MAX,
		.seeds_default = 1000,
		.run = run,
	};

	return search_main(argc, argv, &search);
}
