/* SPDX-License-Identifier: MIT */
/*
 * Timers and deadlines: the fd tells of them, so that no timeout is needed.
 */
#include <errno.h>
#include <stdlib.h>

#include "lib/seeds.h"
#include "loop/adapters/cases.h"

/* Asleep: nothing but the timer can wake the loop. */
static void sleep_until(struct world *world, const unsigned *count, unsigned wanted)
{
	while (*count < wanted)
		world->driver->turn(true);
	expect(*count == wanted, "%u instead of %u", *count, wanted);
}

#define TIMERS	10000
#define SPREAD	(20 * 1000000u)
#define STOPPED 7 /* each so manyth is stopped, the one before it moved */

struct storm {
	struct world *world;
	unsigned fired;
	struct snt_timer timer[TIMERS];
};

static void fired(struct snt_timer *timer)
{
	struct storm *storm = timer->arg;

	expect(snt_loop_now(storm->world->end[0].loop) >= timer->deadline_ns,
	       "a timer fired early");
	expect((timer - storm->timer) % STOPPED, "a stopped timer fired");
	storm->fired++;
}

static void storm_of_timers(struct world *world)
{
	struct storm *storm = calloc(1, sizeof(*storm));
	unsigned wanted = 0;

	expect(storm, "no memory");
	storm->world = world;
	world_open(world, &(struct world_opts){ 0 });
	for (unsigned i = 0; i < TIMERS; i++) {
		storm->timer[i].fired = fired;
		storm->timer[i].arg = storm;
		must(snt_timer_start(world->end[0].loop, &storm->timer[i],
				     random_below(&world->random, SPREAD)),
		     "start");
	}
	for (unsigned i = 0; i < TIMERS; i++) {
		if (i % STOPPED == 0)
			expect(snt_timer_stop(&storm->timer[i]) == 1, "stop");
		else
			wanted++;
		if (i % STOPPED == STOPPED - 1)
			must(snt_timer_start(world->end[0].loop, &storm->timer[i],
					     random_below(&world->random, SPREAD)),
			     "move");
	}
	sleep_until(world, &storm->fired, wanted);
	world_close(world);
	free(storm);
}

/* Receives for which nothing comes, at an end where nothing else moves. */
#define RECVS 64

static void note(struct job *job)
{
	(void)job;
}

static void late(struct snt_timer *timer)
{
	++*(unsigned *)timer->arg;
}

/* What was sent can only be let go of: the callbacks come with the end of the QP. */
static void deadlines_of_receives(struct world *world)
{
	unsigned over = 0, is_late = 0;
	struct job *job = calloc(RECVS, sizeof(*job));
	struct snt_timer timer = { .fired = late, .arg = &is_late };

	expect(job, "no memory");
	world_open(world, &(struct world_opts){ 0 });
	for (unsigned i = 0; i < RECVS; i++) {
		job[i] = (struct job){ .count = &over, .then = note, .length = 64 };
		job_recv(world, &job[i]);
		must(snt_op_timeout(&job[i].op, 1000 * (i + 1), SNT_CANCEL_DETACH),
		     "timeout");
	}
	must(snt_timer_start(world->end[0].loop, &timer, 2000000), "start");
	sleep_until(world, &is_late, 1);
	expect(!over, "%u receives ended while the device had them", over);
	world_close_qp(world, 0, 0);
	expect(over == RECVS, "%u of %u receives are over", over, RECVS);
	for (unsigned i = 0; i < RECVS; i++)
		expect(job[i].op.result == -ETIMEDOUT, "receive %u has %d", i,
		       job[i].op.result);
	world_close(world);
	free(job);
}

/* What waits for a lane ends when its deadline comes. */
static void deadlines_of_the_unsent(struct world *world)
{
	unsigned over = 0;
	struct job job[16];

	world_open(world, &(struct world_opts){ .lanes = 2, .lane_depth = 1 });
	for (unsigned i = 0; i < 16; i++) {
		job[i] = (struct job){
			.count = &over, .then = note, .offset = 64 * i, .length = 64
		};
		job_write(world, &job[i]);
	}
	for (unsigned i = 8; i < 16; i++)
		must(snt_op_timeout(&job[i].op, 100000, SNT_CANCEL_DETACH), "timeout");
	sleep_until(world, &over, 8);
	world_until(world, &over, 16);
	for (unsigned i = 0; i < 16; i++)
		expect(job[i].op.result == (i < 8 ? 0 : -ETIMEDOUT), "write %u has %d",
		       i, job[i].op.result);
	world_close(world);
}

const struct loop_case cases_time[] = {
	{ "a storm of timers", ON_CLOCK, 0, storm_of_timers },
	{ "deadlines of receives", ON_CLOCK, 0, deadlines_of_receives },
	{ "deadlines of the unsent", ON_SCRIPTED, 0, deadlines_of_the_unsent },
	{ 0 },
};
