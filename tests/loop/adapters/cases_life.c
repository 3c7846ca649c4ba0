/* SPDX-License-Identifier: MIT */
/*
 * Ends: of ops, of QPs, and of contexts, in callbacks above all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loop/adapters/cases.h"

/*
 * Destroying in callbacks
 */

struct last {
	struct world *world;
	unsigned end, qp;
	unsigned done;
};

static void destroy_qp(struct snt_op *op)
{
	struct last *last = op->arg;
	struct world_end *end = &last->world->end[last->end];

	expect(!op->result, "close: %s", strerror(-op->result));
	must(snt_qp_destroy(end->qp[last->qp]), "destroy a QP in a callback");
	end->qp[last->qp] = NULL;
	must(snt_cq_destroy(end->cq[last->qp]), "destroy a CQ in a callback");
	end->cq[last->qp] = NULL;
	last->done++;
}

static void note(struct job *job)
{
	(void)job;
}

/* Two QPs with a CQ each. Both have completions waiting when the first goes away, with
 * its CQ; those of the second come all the same. */
static void destroy_qp_in_callback(struct world *world)
{
	struct last last = { .world = world };
	struct snt_op close = { .done = destroy_qp, .arg = &last };
	unsigned flushed = 0, received = 0, sent = 0;
	struct job left = { .count = &flushed, .then = note, .length = 64 };
	struct job recv = { .count = &received, .qp = 1, .length = 64 };
	struct job send = { .count = &sent, .end = 1, .qp = 1, .length = 64 };

	world_open(world, &(struct world_opts){ .qps = 2, .cqs = 2 });
	job_recv(world, &left);
	job_recv(world, &recv);
	job_send(world, &send);
	must(snt_op_close(world->end[0].qp[0], &close), "close");
	world_until(world, &last.done, 1);
	expect(flushed == 1 && left.op.result == -ESHUTDOWN,
	       "a receive of the closed QP came %u times, with %d", flushed,
	       left.op.result);
	world_until(world, &received, 1);
	world_until(world, &sent, 1);
	world_close(world);
}

/* All of an end goes in the callback of its last op, the adapter included. */
static void destroy_all(struct snt_op *op)
{
	struct last *last = op->arg;
	struct world *world = last->world;
	struct world_end *end = &world->end[last->end];

	destroy_qp(op);
	must(snt_mem_release(end->mem), "release memory in a callback");
	end->mem = NULL;
	world_detach(world, last->end);
	must(snt_loop_destroy(end->loop), "close a loop in a callback");
	end->loop = NULL;
	must(snt_ctx_destroy(end->ctx), "close a context in a callback");
	end->ctx = NULL;
}

static void close_context_in_callback(struct world *world)
{
	for (unsigned i = 0; i < 2; i++) {
		struct last last = { .world = world, .end = i };
		struct snt_op close = { .done = destroy_all, .arg = &last };
		unsigned flushed = 0;
		struct job left[4];

		world_open(world, &(struct world_opts){ .budget = 1 + 99 * (int)i });
		for (unsigned j = 0; j < 4; j++) {
			left[j] = (struct job){
				.count = &flushed, .then = note, .end = i, .length = 64
			};
			job_recv(world, &left[j]);
		}
		must(snt_op_close(world->end[i].qp[0], &close), "close");
		world_until(world, &last.done, 1);
		expect(flushed == 4, "of 4 receives %u came back before the end",
		       flushed);
		world_close(world);
	}
}

/*
 * Cancelling
 */

#define WRITES 12
/* Of so many a lane takes 1, and there are two. */
static const struct world_opts narrow = { .lanes = 2, .lane_depth = 1, .budget = 0 };

static void post_writes(struct world *world, struct job job[WRITES], unsigned *count,
			void (*then)(struct job *job), void *arg)
{
	world_open(world, &narrow);
	world_until_idle(world);
	for (unsigned i = 0; i < WRITES; i++) {
		job[i] = (struct job){ .count = count,
				       .then = then,
				       .arg = arg,
				       .index = i,
				       .offset = 64 * i,
				       .length = 64 };
		world->end[0].buffer[64 * i] = (unsigned char)(i + 1);
		job_write(world, &job[i]);
	}
}

static bool has_landed(const struct world *world, unsigned index)
{
	return world->end[1].buffer[64 * index] == index + 1;
}

/* Not yet sent: at once, and it never happens. Sent: its callback comes, but late.
 * Over, or cancelled already: said so. */
static void cancel_in_every_state(struct world *world)
{
	struct snt_op unused = { 0 };
	unsigned count = 0;
	struct job job[WRITES];

	expect(snt_op_cancel(&unused, SNT_CANCEL_DETACH) == -ENOENT,
	       "cancelled the unused");
	post_writes(world, job, &count, note, NULL);
	must(snt_op_cancel(&job[0].op, SNT_CANCEL_DETACH), "cancel what was sent");
	must(snt_op_cancel(&job[WRITES - 1].op, SNT_CANCEL_DETACH),
	     "cancel what was not");
	expect(snt_op_cancel(&job[0].op, SNT_CANCEL_DETACH) == -EALREADY,
	       "cancelled twice");
	expect(!count, "a callback inside of a cancel");
	world_until_idle(world);
	expect(count == 1 && job[WRITES - 1].op.result == -ECANCELED,
	       "after cancelling what was not sent, %u are over", count);
	world_until(world, &count, WRITES);
	expect(job[0].op.result == -ECANCELED && !job[0].op.wc.status,
	       "what was sent and cancelled has %d", job[0].op.result);
	expect(snt_op_cancel(&job[1].op, SNT_CANCEL_DETACH) == -ENOENT,
	       "cancelled the past");
	for (unsigned i = 0; i < WRITES; i++) {
		expect(has_landed(world, i) == (i != WRITES - 1), "write %u", i);
		expect(!job[i].op.result == (i && i != WRITES - 1), "write %u has %d",
		       i, job[i].op.result);
	}
	world_close(world);
}

static void abort_all(struct world *world)
{
	struct snt_qp_info info = { .size = sizeof(info) };
	unsigned count = 0;
	struct job job[WRITES];

	post_writes(world, job, &count, note, NULL);
	must(snt_op_cancel(&job[0].op, SNT_CANCEL_ABORT), "abort");
	world_until(world, &count, WRITES);
	expect(job[0].op.result == -ECANCELED, "what was aborted has %d",
	       job[0].op.result);
	for (unsigned i = 1; i < WRITES; i++)
		expect(job[i].op.result == -ESHUTDOWN, "write %u has %d", i,
		       job[i].op.result);
	must(snt_qp_query(world->end[0].qp[0], &info), "query");
	expect(info.state == SNT_QP_BROKEN, "the QP is not broken");
	world_close(world);
}

/* The first callback cancels all others, whatever has become of them. */
static void cancel_others(struct job *job)
{
	struct job *all = job->arg;

	if (job->index)
		return;
	for (unsigned i = 1; i < WRITES; i++) {
		int ret = snt_op_cancel(&all[i].op, SNT_CANCEL_DETACH);

		expect(ret == 0 || (ret == -ENOENT && !all[i].is_posted),
		       "write %u cannot be cancelled: %d", i, ret);
	}
	expect(snt_op_cancel(&job->op, SNT_CANCEL_DETACH) == -ENOENT,
	       "cancelled itself");
}

static void cancel_in_callback(struct world *world)
{
	unsigned count = 0;
	struct job job[WRITES];

	post_writes(world, job, &count, cancel_others, job);
	world_until(world, &count, WRITES);
	world_until_idle(world);
	expect(count == WRITES, "%u callbacks for %u ops", count, WRITES);
	for (unsigned i = 1; i < WRITES; i++)
		expect(job[i].op.result == -ECANCELED || has_landed(world, i),
		       "write %u has %d and has not landed", i, job[i].op.result);
	world_close(world);
}

/* The counterpart of a future that is dropped while it reads: the message that comes is
 * for the receive that was detached; the next is not lost. */
static void cancelled_receive(struct world *world)
{
	unsigned received = 0, sent = 0;
	struct job recv[2], send[2];

	world_open(world, &(struct world_opts){ 0 });
	for (unsigned i = 0; i < 2; i++) {
		recv[i] =
			(struct job){ .count = &received, .then = note, .length = 64 };
		send[i] = (struct job){ .count = &sent, .end = 1, .length = 64 };
		job_recv(world, &recv[i]);
	}
	must(snt_op_cancel(&recv[0].op, SNT_CANCEL_DETACH), "cancel");
	for (unsigned i = 0; i < 2; i++)
		job_send(world, &send[i]);
	world_until(world, &received, 2);
	world_until(world, &sent, 2);
	expect(recv[0].op.result == -ECANCELED && recv[0].op.wc.length == 64,
	       "the cancelled receive has %d", recv[0].op.result);
	expect(!recv[1].op.result, "the other receive has %d", recv[1].op.result);
	world_close(world);
}

/*
 * What callbacks may not do
 */

static void try_to_dispatch(struct job *job)
{
	struct snt_loop *loop = job->arg;

	expect(snt_loop_dispatch(loop, 0) == -EBUSY &&
		       snt_loop_poll(loop, 0) == -EBUSY &&
		       snt_loop_wait(loop, 0) == -EBUSY,
	       "a callback can dispatch");
}

static void no_dispatch_in_callbacks(struct world *world)
{
	unsigned count = 0;
	struct job job = { .count = &count, .then = try_to_dispatch, .length = 64 };

	world_open(world, &(struct world_opts){ 0 });
	job.arg = world->end[0].loop;
	job_write(world, &job);
	world_until(world, &count, 1);
	world_close(world);
}

/*
 * What goes wrong
 */

static unsigned errors;

static void note_error(int error)
{
	expect(error == -EINVAL, "another error: %s", strerror(-error));
	errors++;
}

/* A budget that is none, so that there is a dispatch that fails. */
static void errors_are_told(struct world *world)
{
	world_open(world, &(struct world_opts){ 0 });
	world_until_idle(world);
	world_detach(world, 0);
	world_attach(world, 0, -1);
	must(snt_loop_wake(world->end[0].loop), "wake");
	errors = 0;
	driver_error = note_error;
	for (int i = 0; i < 3; i++)
		world->driver->turn(false);
	driver_error = NULL;
	expect(errors, "a dispatch that fails is not reported");
	world_detach(world, 0);
	world_close(world);
}

const struct loop_case cases_life[] = {
	{ "destroy a QP in a callback", ON_ALL, 0, destroy_qp_in_callback },
	{ "close a context in a callback", ON_ALL, 0, close_context_in_callback },
	{ "cancel in every state", ON_SCRIPTED, 0, cancel_in_every_state },
	{ "abort", ON_SCRIPTED, 0, abort_all },
	{ "cancel in a callback", ON_ALL, 0, cancel_in_callback },
	{ "a cancelled receive", ON_ALL, 0, cancelled_receive },
	{ "no dispatch in callbacks", ON_ALL, 0, no_dispatch_in_callbacks },
	{ "errors are told", ON_ALL, 0, errors_are_told },
	{ 0 },
};
