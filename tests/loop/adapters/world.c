/* SPDX-License-Identifier: MIT */
#include "loop/adapters/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/sim/device.h"
#include "lib/patience.h"

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

/* Turns without a dispatch until it is believed that there is none to come. */
#define QUIET 3

/* A busy machine may take its time, but not that much. */
#define WATCHDOG_SECONDS 120

const char *world_case = "none";
uint64_t world_seed;
char world_words[64];
unsigned long world_dispatches;

void world_fail(const char *format, ...)
{
	va_list args;

	printf("# %s: ", world_case);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n# again: --seed %llu --seeds 1 \"%s\"\nBail out! %s failed\n",
	       (unsigned long long)world_seed, world_case, world_case);
	fflush(stdout);
	_exit(1);
}

void (*driver_error)(int error);

void driver_fail(const char *what, int error)
{
	world_fail("%s: %s (%s)", what, strerror(-error), snt_err_text());
}

void must(int ret, const char *what)
{
	if (ret < 0)
		world_fail("%s: %s: %s", what, strerror(-ret), snt_err_text());
}

/* Adapters call it in headers, so the linker is told to have this called instead. */
int __real_snt_loop_dispatch(struct snt_loop *loop, int budget);
int __wrap_snt_loop_dispatch(struct snt_loop *loop, int budget);
int __wrap_snt_loop_dispatch(struct snt_loop *loop, int budget)
{
	__atomic_fetch_add(&world_dispatches, 1, __ATOMIC_RELAXED);
	return __real_snt_loop_dispatch(loop, budget);
}

/*
 * Devices
 */

static void open_scripted(struct world *world, unsigned index,
			  struct snt_ctx_opts *opts, const struct world_opts *wanted)
{
	static struct snt_adopted adopted[2];
	struct world_end *end = &world->end[index];

	end->device = scripted_device_create(world->fabric, NULL);
	expect(end->device, "no scripted device");
	adopted[index] = scripted_adopted(end->device);
	if (wanted->instrument && !index)
		adopted[index].control = wanted->instrument(&adopted[index]);
	opts->adopted = &adopted[index];
	opts->adopted_count = 1;
	opts->soft = SNT_SOFT_NEVER;
}

static void open_sim(struct world *world, struct snt_ctx_opts *opts)
{
	struct snt__sim_link_opts cable = { .delay_ns = 1000,
					    .late_ns = 20000,
					    .loss = 2000,
					    .duplicate = 2000,
					    .reorder = 2000,
					    .mix_ns = 2000 };
	struct snt__sim_device_opts device_opts = {
		.out = &cable,
		.in = &cable,
		.config = { .qp_max = 128, .cq_max = 64, .mr_max = 64, .srq_max = 1 },
	};
	struct snt__sim_device *device;
	struct snt__sim_host *host;

	must(snt__sim_host_create(world->sim, &host), "a host");
	must(snt__sim_device_create(host, &device_opts, &device), "a device");
	snt__sim_host_ctx_opts(host, opts);
}

static void open_ctx(struct world *world, unsigned index,
		     const struct world_opts *wanted)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts) };

	if (world->kind == ON_SCRIPTED)
		open_scripted(world, index, &opts, wanted);
	else if (world->kind == ON_SIM)
		open_sim(world, &opts);
	else
		opts.soft = world->kind == ON_SOFT ? SNT_SOFT_ONLY : SNT_SOFT_NEVER;
	must(snt_ctx_create(&opts, &world->end[index].ctx), "a context");
	must(snt_loop_create(world->end[index].ctx, NULL, &world->end[index].loop),
	     "a loop");
}

bool world_steps(const struct world *world)
{
	return world->kind == ON_SCRIPTED || world->kind == ON_SIM;
}

bool world_step(struct world *world)
{
	if (world->kind == ON_SCRIPTED)
		return scripted_step(world->fabric, &world->random);
	return world->kind == ON_SIM && snt__sim_step(world->sim);
}

void world_settle(struct world *world)
{
	while (world_step(world))
		;
}

/*
 * Ends
 */

static void open_cqs(struct world *world, struct world_end *end,
		     const struct world_opts *wanted)
{
	for (unsigned i = 0; i < world->cqs; i++) {
		bool is_watched = wanted->watched && i == world->cqs - 1;
		struct snt_cq_opts opts = { .size = sizeof(opts),
					    .loop = end->loop,
					    .ops = is_watched ? SNT_CQ_OPS_NONE
							      : SNT_CQ_OPS_EVENTS };

		must(snt_cq_create(end->ctx, &opts, &end->cq[i]), "a CQ");
	}
}

static void open_qps(struct world *world, struct world_end *end,
		     const struct world_opts *wanted)
{
	uint32_t depth = wanted->depth ? wanted->depth : WORLD_DEPTH;

	for (unsigned i = 0; i < world->qps; i++) {
		struct snt_qp_opts opts = {
			.size = sizeof(opts),
			.cq = end->cq[i % world->cqs],
			.flags = wanted->lanes ? 0 : SNT_QP_PASS_THROUGH,
			.lanes = wanted->lanes ? wanted->lanes : 1,
			.devices = wanted->lanes ? 0 : 1,
			.lane_depth = wanted->lane_depth ? wanted->lane_depth : depth,
			.send_depth = depth,
			.recv_depth = depth
		};

		must(snt_qp_create(end->ctx, &opts, &end->qp[i]), "a QP");
	}
}

static void open_end(struct world *world, unsigned index,
		     const struct world_opts *wanted)
{
	struct world_end *end = &world->end[index];

	open_ctx(world, index, wanted);
	end->buffer = calloc(1, WORLD_BUFFER);
	expect(end->buffer, "no memory");
	must(snt_mem_register(end->ctx, end->buffer, WORLD_BUFFER, ACCESS, &end->mem),
	     "memory");
	must(snt_mem_token(end->mem, &end->token), "a token");
	open_cqs(world, end, wanted);
	open_qps(world, end, wanted);
}

static void connect_qps(struct world *world, unsigned count)
{
	struct world_end *end = world->end;
	struct snt_card card[2];

	for (unsigned i = 0; i < count; i++) {
		for (int side = 0; side < 2; side++)
			must(snt_qp_card(end[side].qp[i], &card[side]), "a card");
		for (int side = 0; side < 2; side++)
			must(snt_qp_connect(end[side].qp[i], &card[!side]), "connect");
	}
}

void world_attach(struct world *world, unsigned end, int budget)
{
	world->end[end].attached = world->driver->attach(world->end[end].loop, budget);
}

void world_detach(struct world *world, unsigned end)
{
	if (world->end[end].attached)
		world->driver->detach(world->end[end].attached);
	world->end[end].attached = NULL;
}

void world_open(struct world *world, const struct world_opts *opts)
{
	alarm(patience_s(WATCHDOG_SECONDS));
	world->qps = opts->qps ? opts->qps : 1;
	world->cqs = opts->cqs ? opts->cqs : 1;
	if (world->kind == ON_SCRIPTED) {
		world->fabric = scripted_fabric_create(world->random);
		expect(world->fabric, "no fabric");
	} else if (world->kind == ON_SIM) {
		struct snt__sim_opts sim_opts = { .seed = world->random };

		must(snt__sim_create(&sim_opts, &world->sim), "a fabric");
	}
	must(world->driver->start(), "the event loop");
	for (unsigned i = 0; i < 2; i++)
		open_end(world, i, opts);
	connect_qps(world, world->qps - opts->unconnected);
	for (unsigned i = 0; i < 2 && !opts->detached; i++)
		world_attach(world, i, opts->budget);
}

static void close_fabric(struct world *world)
{
	for (unsigned i = 0; i < 2 && world->fabric; i++)
		expect(!scripted_faults(world->end[i].device),
		       "the device of end %u complains: %#x", i,
		       scripted_faults(world->end[i].device));
	if (world->fabric)
		expect(!scripted_fabric_destroy(world->fabric), "objects are left");
	if (world->sim)
		must(snt__sim_destroy(world->sim), "objects are left");
	world->fabric = NULL;
	world->sim = NULL;
}

static void count_closed(struct snt_op *op)
{
	++*(unsigned *)op->arg;
}

static void close_watched(struct world *world, unsigned end, unsigned qp)
{
	struct snt_wc wc = { 0 };
	int ret = snt_qp_close(world->end[end].qp[qp], 0);

	if (ret == -ENOTCONN)
		return;
	must(ret, "close");
	while (wc.opcode != SNT_OP_CLOSED) {
		world_step(world);
		must(snt_cq_poll(world->end[end].cq[qp % world->cqs], &wc, 1), "poll");
	}
}

/* By an op or, where there are none, by polling. */
void world_close_qp(struct world *world, unsigned end, unsigned qp)
{
	unsigned count = 0;
	struct snt_op op = { .done = count_closed, .arg = &count };
	struct snt_qp **at = &world->end[end].qp[qp];
	int ret;

	if (!*at)
		return;
	ret = snt_op_close(*at, &op);
	if (ret == -EINVAL) {
		close_watched(world, end, qp);
	} else if (ret != -ENOTCONN) {
		must(ret, "close");
		world_until(world, &count, 1);
	}
	must(snt_qp_destroy(*at), "destroy a QP");
	*at = NULL;
}

void world_close(struct world *world)
{
	for (unsigned i = 0; i < 2 * world->qps; i++) {
		struct world_end *end = &world->end[i % 2];

		if (end->loop && !end->attached)
			world_attach(world, i % 2, 0);
		world_close_qp(world, i % 2, i / 2);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &world->end[i];

		for (unsigned cq = 0; cq < world->cqs; cq++)
			must(snt_cq_destroy(end->cq[cq]), "destroy a CQ");
		must(snt_mem_release(end->mem), "release memory");
		/* Receives of QPs that never were connected. */
		if (end->loop)
			must(snt_loop_dispatch(end->loop, 0), "the last dispatch");
		world_detach(world, i);
		must(snt_loop_destroy(end->loop), "close a loop");
		must(snt_ctx_destroy(end->ctx), "close a context");
		free(end->buffer);
	}
	close_fabric(world);
	world->driver->stop();
	*world = (struct world){ .driver = world->driver,
				 .kind = world->kind,
				 .random = world->random };
}

/*
 * Time
 */

static bool turn_quietly(struct world *world)
{
	unsigned long before = world_dispatches;

	world->driver->turn(false);
	return world_dispatches == before;
}

void world_until_idle(struct world *world)
{
	for (unsigned quiet = 0; quiet < QUIET;)
		quiet = turn_quietly(world) ? quiet + 1 : 0;
}

void world_until(struct world *world, const unsigned *count, unsigned wanted)
{
	unsigned quiet = 0;

	alarm(patience_s(WATCHDOG_SECONDS));
	while (*count < wanted) {
		if (!world_steps(world)) {
			world->driver->turn(true);
			continue;
		}
		if (world_step(world) || !turn_quietly(world))
			quiet = 0;
		else
			quiet++;
		expect(quiet < QUIET,
		       "nothing moves and nothing wakes the loop: %u of %u are done",
		       *count, wanted);
	}
	expect(*count == wanted, "%u are done, %u were to be", *count, wanted);
}

void world_until_other(struct world *world, const unsigned *count, unsigned wanted)
{
	while (*count < wanted)
		if (!world_step(world))
			world->driver->turn(!world_steps(world));
		else
			world->driver->turn(false);
}

/*
 * Ops
 */

struct snt_sge world_sge(const struct world *world, unsigned end, uint64_t offset,
			 uint64_t length)
{
	expect(offset + length <= WORLD_BUFFER, "outside of the buffer");
	return (struct snt_sge){ .mem = world->end[end].mem,
				 .addr = world->end[end].buffer + offset,
				 .length = length };
}

static void job_done(struct snt_op *op)
{
	struct job *job = op->arg;

	expect(job->is_posted, "a callback of what was not accepted, or a second one");
	job->is_posted = false;
	expect(job->then || !op->result, "an op has failed: %s", strerror(-op->result));
	++*job->count;
	if (job->then)
		job->then(job);
}

static struct snt_op *prepare(struct job *job)
{
	job->op.done = job_done;
	job->op.arg = job;
	return &job->op;
}

/* A callback inside of the call would find is_posted false. */
static void accepted(struct job *job, int ret, const char *what)
{
	must(ret, what);
	job->is_posted = true;
}

void job_send(struct world *world, struct job *job)
{
	struct snt_sge sge = world_sge(world, job->end, job->offset, job->length);

	accepted(job, snt_op_send(world->end[job->end].qp[job->qp], prepare(job), &sge),
		 "send");
}

void job_recv(struct world *world, struct job *job)
{
	struct snt_sge sge = world_sge(world, job->end, job->offset, job->length);

	accepted(job, snt_op_recv(world->end[job->end].qp[job->qp], prepare(job), &sge),
		 "receive");
}

void job_write(struct world *world, struct job *job)
{
	struct snt_sge sge = world_sge(world, job->end, job->offset, job->length);
	const struct snt_token *there = &world->end[!job->end].token;

	accepted(job,
		 snt_op_write(world->end[job->end].qp[job->qp], prepare(job), &sge,
			      there, there->addr + job->offset),
		 "write");
}
