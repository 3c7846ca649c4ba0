/* SPDX-License-Identifier: MIT */
/*
 * Connections on a bad fabric: whatever happens in whatever phase, both ends come to an
 * end of the setup, agree on it, and leave nothing behind.
 */
#include <stdio.h>
#include <string.h>

#include "conn/mac.h"
#include "lib/conn_world.h"
#include "lib/search.h"

enum kind {
	LOSS,
	DUPLICATE,
	REORDER,
	JITTER,
	CUT,	/* a cable is cut before anything begins */
	VANISH, /* all cables of a host are, at some time */
	ABORT,
	REFUSE,
	SECRET, /* that is not the same */
};

static const char *const kinds[] = { "loss",   "duplicate", "reorder", "jitter", "cut",
				     "vanish", "abort",	    "refuse",  "secret", NULL };

static const char secret[] = "the secret of both ends",
		  other[] = "another secret of it";

struct run {
	const struct search_plan *plan;
	uint64_t random;
	struct conn_world world;
	/* What is going to happen. */
	bool cut, vanish, abort, refuse, mismatch;
	unsigned end;
	uint64_t when;
};

static struct run run;

static uint32_t dice(uint32_t sides)
{
	return random_below(&run.random, sides);
}

/* Rolls first, so that a run without one kind of fault is otherwise the same. */
static bool chance(enum kind kind, uint32_t percent)
{
	bool hit = dice(100) < percent;

	return hit && search_has(run.plan, kind);
}

static struct snt__sim_link_opts choose_link(void)
{
	uint32_t loss = dice(10000), duplicate = dice(100000), reorder = dice(100000);
	uint32_t jitter = dice(1000000), delay = dice(1000000), late = dice(2000000);

	return (struct snt__sim_link_opts){
		.delay_ns = delay,
		.late_ns = late,
		.loss = search_has(run.plan, LOSS) ? loss : 0,
		.duplicate = search_has(run.plan, DUPLICATE) ? duplicate : 0,
		.reorder = search_has(run.plan, REORDER) ? reorder : 0,
		.jitter_ns = search_has(run.plan, JITTER) ? jitter : 0,
	};
}

static const char *add_devices(void)
{
	const char *text = NULL;

	for (unsigned end = 0; end < 2; end++) {
		unsigned count = 1 + dice(CONN_DEVICES);

		for (unsigned i = 0; !text && i < count; i++) {
			struct snt__sim_link_opts out = choose_link(),
						  in = choose_link();
			struct snt__sim_device_opts opts = {
				.out = &out,
				.in = &in,
				.config = { .mtu = (enum ibv_mtu)(IBV_MTU_1024 +
								  dice(3)) },
			};

			text = conn_world_add_device(&run.world, end, &opts);
		}
	}
	return text;
}

static void choose_opts(void)
{
	struct conn_world *world = &run.world;
	bool has_secret = dice(3) == 0 && snt__mac_available();
	unsigned scheme = 1 + dice(2);

	for (unsigned i = 0; i < 2; i++) {
		world->end[i].qp.scheme = (enum snt_scheme)scheme;
		world->end[i].qp.lanes = dice(5);
	}
	run.mismatch = chance(SECRET, 5) && snt__mac_available();
	if (has_secret || run.mismatch) {
		world->at.secret = world->to.secret = secret;
		world->at.secret_length = world->to.secret_length = strlen(secret);
	}
	if (run.mismatch) {
		world->to.secret = other;
		world->to.secret_length = strlen(other);
	}
	world->to.detect_ns = (500 + dice(2000)) * CONN_MS;
}

static void choose_faults(void)
{
	run.cut = chance(CUT, 20);
	run.vanish = chance(VANISH, 15);
	run.abort = chance(ABORT, 15) && !run.vanish;
	run.refuse = chance(REFUSE, 5) && !run.vanish && !run.abort;
	run.world.end[1].reject = run.refuse;
	run.end = dice(2);
	run.when = dice(60000) * UINT64_C(1000);
	if (run.cut && run.world.end[run.end].devices > 1)
		snt__sim_device_cut(run.world.end[run.end].device[1], true);
}

static void strike(void *arg)
{
	struct conn_end *end = &run.world.end[run.end];

	(void)arg;
	for (unsigned i = 0; run.vanish && i < end->devices; i++)
		snt__sim_device_cut(end->device[i], true);
	if (run.abort && end->conn)
		snt_conn_abort(end->conn, "as planned");
	else if (run.abort) /* there is nothing to be aborted yet */
		snt__sim_at(run.world.sim, snt__sim_now(run.world.sim) + CONN_MS,
			    strike, NULL);
}

/* Both ends are over, or never were; and know it in time. */
static const char *expect_end(void)
{
	struct conn_world *world = &run.world;
	uint64_t until = snt__sim_now(world->sim) + 40000 * CONN_MS;

	for (unsigned i = 0; i < 2; i++) {
		struct conn_end *end = &world->end[i];

		while (i == 0 || end->conn) {
			if (end->events[SNT_CONN_OVER])
				break;
			if (!conn_world_step(world, until))
				return i ? "the end that accepts does not notice"
					 : "the end that connects does not notice";
		}
		if (end->conn && !conn_world_status(world, i))
			return "it ends as if all were well";
	}
	if (run.refuse && !run.mismatch && conn_world_status(world, 0) != -ECONNREFUSED)
		return conn_world_text(world, 0);
	if (run.mismatch && !run.vanish && !run.abort && !run.refuse &&
	    conn_world_status(world, 0) != -EACCES)
		return conn_world_text(world, 0);
	return NULL;
}

static const char *expect_success(void)
{
	const char *text =
		conn_world_run(&run.world, SNT_CONN_CONNECTED, 15000 * CONN_MS);

	if (!text)
		text = conn_world_send(&run.world, 0, (uint8_t)dice(256));
	if (!text)
		text = conn_world_send(&run.world, 1, (uint8_t)dice(256));
	return text ? text : conn_world_leave(&run.world, dice(2));
}

static const char *play(void)
{
	const char *text = conn_world_open(&run.world, run.plan->seed);

	if (!text)
		text = add_devices();
	if (!text)
		text = conn_world_ready(&run.world);
	if (text)
		return text;
	choose_opts();
	choose_faults();
	text = conn_world_connect(&run.world);
	if (text)
		return text;
	if (run.vanish || run.abort)
		snt__sim_at(run.world.sim, snt__sim_now(run.world.sim) + run.when,
			    strike, NULL);
	if (run.vanish || run.abort || run.refuse || run.mismatch)
		text = expect_end();
	else
		text = expect_success();
	if (!text)
		search_count(run.world.sim);
	return text ? text : conn_world_close(&run.world);
}

static int play_seed(const struct search_plan *plan)
{
	const char *text;

	memset(&run, 0, sizeof(run));
	run.plan = plan;
	run.random = plan->seed * 2 + 1;
	text = play();
	return text ? search_wrong("%s", text) : 0;
}

int main(int argc, char **argv)
{
	const struct search search = {
		.kinds = kinds,
		.ops_max = 1,
		.seeds_default = 500,
		.run = play_seed,
	};

	return search_main(argc, argv, &search);
}
