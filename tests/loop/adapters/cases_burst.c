/* SPDX-License-Identifier: MIT */
/*
 * Many completions: how often the loop wakes for them, which other sources get a turn
 * meanwhile, and whether all of them come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop/adapters/cases.h"
#include "loop/adapters/ticker.h"

#define QPS   8
#define BURST 16

/*
 * Wake-ups
 */

#define BURSTS 200

/* End 1 is not in the loop, so that all wakes are those of the receiver. */
static void one_burst(struct world *world, unsigned burst, unsigned *received)
{
	unsigned sent = 0;
	struct job recv[BURST], send[BURST];

	for (unsigned i = 0; i < BURST; i++) {
		recv[i] =
			(struct job){ .count = received, .qp = i % QPS, .length = 64 };
		send[i] = (struct job){
			.count = &sent, .end = 1, .qp = i % QPS, .length = 64
		};
		job_recv(world, &recv[i]);
		job_send(world, &send[i]);
	}
	world_settle(world);
	while (sent < BURST)
		must(snt_loop_poll(world->end[1].loop, 0), "poll");
	world_until_idle(world);
	expect(*received == (burst + 1) * BURST, "after burst %u there are %u", burst,
	       *received);
}

static void wakes_per_burst(struct world *world)
{
	unsigned received = 0;
	unsigned long before, wakes;

	world_open(world, &(struct world_opts){ .qps = QPS, .cqs = 4 });
	world_detach(world, 1);
	world_until_idle(world);
	before = world_dispatches;
	for (unsigned i = 0; i < BURSTS; i++)
		one_burst(world, i, &received);
	wakes = world_dispatches - before;
	expect(wakes * 100 <= BURSTS * 105, "%lu wake-ups for %u bursts", wakes,
	       BURSTS);
	snprintf(world_words, sizeof(world_words), "%.2f", (double)wakes / BURSTS);
	world_close(world);
}

static void ticked(void *arg)
{
	++*(unsigned *)arg;
}

/* On a busy machine, ends on sockets may still probe each other in the first seconds. */
#define SECONDS_MAX 10

static unsigned long wakes_in_a_second(struct world *world)
{
	unsigned seconds = 0;
	void *ticker = ticker_start(world->driver, 1000, ticked, &seconds);
	unsigned long before = world_dispatches, wakes;

	while (!seconds)
		world->driver->turn(true);
	wakes = world_dispatches - before;
	ticker_stop(world->driver, ticker);
	return wakes;
}

/* One second, in which nothing is to do. Both ends have receives posted. */
static void idle_second(struct world *world)
{
	unsigned received = 0, sent = 0, seconds = 0;
	struct job recv = { .count = &received, .length = 64 };
	struct job send = { .count = &sent, .end = 1, .length = 64 };
	unsigned long wakes;

	world_open(world, &(struct world_opts){ 0 });
	job_recv(world, &recv);
	job_send(world, &send);
	world_until(world, &received, 1);
	world_until(world, &sent, 1);
	world_until_idle(world);
	do
		wakes = wakes_in_a_second(world);
	while (wakes > 2 && ++seconds < SECONDS_MAX);
	expect(wakes <= 2, "%lu wake-ups in an idle second", wakes);
	world_close(world);
}

/*
 * Turns
 */

#define READY 1000

/* Something else in the same loop, which always has something to do. */
struct other {
	unsigned turns;
};

static void other_ready(void *arg)
{
	((struct other *)arg)->turns++;
}

static void budget_of_one(struct world *world)
{
	struct job *recv = calloc(READY, sizeof(*recv));
	struct job *send = calloc(READY, sizeof(*send));
	unsigned received = 0, sent = 0;
	struct other other = { 0 };
	unsigned long before;
	void *watched;
	int pair[2];

	expect(recv && send && !pipe(pair) && write(pair[1], "", 1) == 1, "no memory");
	world_open(world, &(struct world_opts){
				  .qps = QPS, .cqs = 4, .depth = 256, .budget = 1 });
	for (unsigned i = 0; i < READY; i++) {
		recv[i] =
			(struct job){ .count = &received, .qp = i % QPS, .length = 8 };
		send[i] = (struct job){
			.count = &sent, .end = 1, .qp = i % QPS, .length = 8
		};
		job_recv(world, &recv[i]);
		job_send(world, &send[i]);
	}
	world_settle(world);
	watched = world->driver->watch(pair[0], other_ready, &other);
	before = world_dispatches;
	world_until(world, &received, READY);
	world_until(world, &sent, READY);
	expect(world_dispatches - before >= 2 * READY,
	       "%lu dispatches for %u callbacks of 1", world_dispatches - before,
	       2 * READY);
	expect(other.turns >= READY / 2, "another fd had %u turns only", other.turns);
	world->driver->unwatch(watched);
	close(pair[0]);
	close(pair[1]);
	world_close(world);
	free(recv);
	free(send);
}

/*
 * Millions
 */

struct count {
	struct world *world;
	unsigned received, sent;
	uint32_t expected[QPS];
};

static void repost(struct job *job)
{
	struct count *count = job->arg;

	if (job->op.result == -ESHUTDOWN)
		return;
	expect(!job->op.result, "an op has failed: %s", strerror(-job->op.result));
	expect(job->op.wc.imm == count->expected[job->qp], "QP %u: message %u, not %u",
	       job->qp, job->op.wc.imm, count->expected[job->qp]);
	count->expected[job->qp]++;
	job_recv(count->world, job);
}

static void sent_one(struct snt_op *op)
{
	expect(!op->result, "an op has failed: %s", strerror(-op->result));
	++*(unsigned *)op->arg;
}

static void send_numbers(struct world *world, struct snt_op ops[QPS][BURST],
			 struct count *count, uint32_t from)
{
	struct snt_sge sge = world_sge(world, 1, 0, 8);

	for (unsigned i = 0; i < BURST; i++)
		for (unsigned qp = 0; qp < QPS; qp++) {
			ops[qp][i].done = sent_one;
			ops[qp][i].arg = &count->sent;
			must(snt_op_post(world->end[1].qp[qp], &ops[qp][i],
					 &(struct snt_send_wr){ .opcode =
									SNT_OP_SEND_IMM,
								.imm = from + i,
								.sge = &sge,
								.sge_count = 1 }),
			     "send");
		}
}

/* All CQs of an end share one channel. Half of the completions are receives, which are
 * numbered, half are sends. */
static void millions_of_completions(struct world *world)
{
	static struct snt_op ops[QPS][BURST];
	static struct job recv[QPS][2 * BURST];
	struct count count = { .world = world };
	unsigned rounds = case_completions / (2 * QPS * BURST) + 1;

	world_open(world, &(struct world_opts){ .qps = QPS, .cqs = 4 });
	if (world->fabric)
		scripted_eager(world->fabric, true);
	for (unsigned i = 0; i < QPS * 2 * BURST; i++) {
		struct job *job = &recv[i % QPS][i / QPS];

		*job = (struct job){ .count = &count.received,
				     .then = repost,
				     .arg = &count,
				     .qp = i % QPS,
				     .length = 8 };
		job_recv(world, job);
	}
	for (unsigned round = 0; round < rounds; round++) {
		unsigned wanted = (round + 1) * QPS * BURST;

		send_numbers(world, ops, &count, round * BURST);
		world_until(world, &count.received, wanted);
		world_until(world, &count.sent, wanted);
	}
	world_close(world);
}

const struct loop_case cases_burst[] = {
	{ "wakes per burst", ON_SCRIPTED, 0, wakes_per_burst },
	{ "an idle second", ON_CLOCK, 0, idle_second },
	{ "a budget of one", ON_SCRIPTED, 0, budget_of_one },
	{ "millions of completions", ON_SCRIPTED | ON_SOFT, CASE_LONG,
	  millions_of_completions },
	{ 0 },
};
