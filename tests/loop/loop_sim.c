/* SPDX-License-Identifier: MIT */
/*
 * Ops of all verbs on a simulated fabric that loses packets, with deadlines and
 * cancellations at random, served by event loops that sleep whenever they may. Time is
 * virtual, so a wake-up that is lost shows at once: all threads sleep, nothing is under
 * way, and something is not done.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"
#include "lib/seeds.h"

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)
#define OPS   40
#define SLOT  2048
#define RECVS 8
#define STEPS 1000000

enum style {
	DISPATCHES,
	SPINS_AND_ARMS,
	WAITS,
	STYLES,
};

struct job {
	struct snt_op op;
	unsigned opcode;
	unsigned length;
	unsigned calls, releases;
	bool cancelled;
	bool withdrawn;
};

struct end {
	struct snt__sim_host *host;
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_srq *srq; /* NULL: receives are the QP's */
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char *memory; /* slots to write from, to be written to, and the rest */
	struct job job[OPS];
	unsigned posted, done;
	struct snt_op recv[2][RECVS];
	unsigned recvs, recvs_done;
	struct snt_op_group group; /* of some of its jobs */
	unsigned groups_done;
	struct snt_op close_op, second_close_op;
	bool closed;
	enum style style;
	int budget;
};

#define TO     (OPS * SLOT)
#define REST   (2 * OPS * SLOT)
#define MEMORY (REST + SLOT)

static struct {
	uint64_t random;
	struct snt__sim *sim;
	struct end end[2];
	bool closing;
	bool pass;
	bool shared; /* receives */
	char text[200];
} world;

static int wrong(const char *what, int end)
{
	snprintf(world.text, sizeof(world.text), "end %d: %s; last error: %s", end,
		 what, snt_err_text());
	printf("# %s\n", world.text);
	return -1;
}

static unsigned dice(unsigned bound)
{
	return random_below(&world.random, bound);
}

/*
 * Receives: each is posted again by its own callback
 */

static int post_recv(struct end *end, int notify, unsigned i)
{
	struct snt_sge sge = { end->mem, end->memory + REST, SLOT };
	struct snt_op *op = &end->recv[notify][i];
	int ret =
		end->srq
			? snt_op_post_srq_recv(end->srq, op,
					       &(struct snt_recv_wr){ .sge = &sge,
								      .sge_count =
									      !notify })
			: snt_op_post_recv(end->qp, op,
					   &(struct snt_recv_wr){
						   .sge = &sge, .sge_count = !notify });

	if (!ret)
		end->recvs++;
	return ret;
}

static void received(struct snt_op *op)
{
	struct end *end = op->arg;
	int notify = op >= end->recv[1];

	end->recvs_done++;
	if (!op->result && !world.closing)
		post_recv(end, notify, op - end->recv[notify]);
}

static int post_recvs(struct end *end)
{
	int ret = 0;

	for (int notify = 0; notify < (world.pass ? 1 : 2); notify++)
		for (unsigned i = 0; !ret && i < RECVS; i++) {
			end->recv[notify][i].done = received;
			end->recv[notify][i].arg = end;
			ret = post_recv(end, notify, i);
		}
	return ret;
}

/*
 * Sends
 */

static void finished(struct snt_op *op)
{
	struct end *end = op->arg;

	((struct job *)op)->calls++;
	end->done += !op->released;
}

static void released(struct snt_op *op)
{
	struct job *job = (struct job *)op;
	struct end *end = op->arg;

	job->releases += job->calls == 1;
	end->done++;
}

static void group_done(struct snt_op_group *group)
{
	((struct end *)group->arg)->groups_done++;
}

static int join_group(struct end *end, struct job *job)
{
	end->group.done = group_done;
	end->group.arg = end;
	return snt_op_group_add(&end->group, &job->op);
}

static int post_job(struct end *end, struct end *peer, unsigned i)
{
	struct job *job = &end->job[i];
	uint64_t remote = peer->token.addr + TO + i * SLOT;
	struct snt_sge sge = { end->mem, end->memory + i * SLOT, 0 };

	job->op.done = finished;
	job->op.released = dice(2) ? released : NULL;
	job->op.arg = end;
	job->opcode = SNT_OP_WRITE + dice(7);
	job->length = 1 + dice(SLOT);
	sge.length = job->length;
	switch (job->opcode) {
	case SNT_OP_WRITE:
		return snt_op_write(end->qp, &job->op, &sge, &peer->token, remote);
	case SNT_OP_WRITE_IMM:
		return snt_op_post(end->qp, &job->op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
							  .imm = i,
							  .sge = &sge,
							  .sge_count = 1,
							  .remote = &peer->token,
							  .remote_addr = remote });
	case SNT_OP_READ:
		return snt_op_read(end->qp, &job->op, &sge, &peer->token, remote);
	case SNT_OP_SEND:
		return snt_op_send(end->qp, &job->op, &sge);
	case SNT_OP_SEND_IMM:
		return snt_op_post(end->qp, &job->op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_SEND_IMM,
							  .imm = i,
							  .sge = &sge,
							  .sge_count = 1 });
	default:
		sge.length = 8;
		return snt_op_post(end->qp, &job->op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_FETCH_ADD,
							  .sge = &sge,
							  .sge_count = 1,
							  .remote = &peer->token,
							  .remote_addr = remote,
							  .compare_add = 1 });
	}
}

static int post_some(struct end *end, struct end *peer)
{
	while (end->posted < OPS && dice(8)) {
		struct job *job = &end->job[end->posted];
		int ret = post_job(end, peer, end->posted);

		if (ret == -EAGAIN)
			return 0;
		if (ret)
			return wrong("a post", end - world.end);
		end->posted++;
		if (!dice(4) &&
		    snt_op_timeout(&job->op, 1 + dice(100000), SNT_CANCEL_DETACH))
			return wrong("a timeout", end - world.end);
		if (!dice(3) && join_group(end, job))
			return wrong("a group", end - world.end);
	}
	if (end->posted && !dice(4)) {
		struct job *job = &end->job[dice(end->posted)];

		if (snt_op_pending(&job->op) &&
		    !snt_op_cancel(&job->op, SNT_CANCEL_DETACH)) {
			job->cancelled = true;
			job->withdrawn = job->op.state == 2;
		}
	}
	return 0;
}

/*
 * Event loops
 */

static bool readable(struct end *end)
{
	struct pollfd poller = { .fd = snt_loop_fd(end->loop), .events = POLLIN };

	return poll(&poller, 1, 0) == 1;
}

/* Would it sleep on? The timerfd knows nothing of virtual time. */
static bool sleeps(struct end *end)
{
	if (end->style == SPINS_AND_ARMS) {
		snt_loop_poll(end->loop, end->budget);
		if (snt_loop_arm(end->loop))
			return false;
	}
	return !readable(end) && snt_loop_timeout(end->loop) != 0;
}

static int work(struct end *end)
{
	return end->style == WAITS ? snt_loop_wait(end->loop, 0)
				   : snt_loop_dispatch(end->loop, end->budget);
}

/* When the first deadline is, if there is one. */
static uint64_t next_deadline(void)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < 2; i++)
		for (unsigned n = 0; n < world.end[i].posted; n++) {
			const struct snt_timer *timer = &world.end[i].job[n].op.timer;

			if (timer->loop && timer->deadline_ns < first)
				first = timer->deadline_ns;
		}
	return first;
}

/* Lets time pass. False: nothing will ever happen again. */
static bool pass_time(void)
{
	uint64_t deadline = next_deadline();

	if (deadline != UINT64_MAX && !dice(4)) {
		snt__sim_run(world.sim, deadline);
		return true;
	}
	if (snt__sim_step(world.sim))
		return true;
	if (deadline == UINT64_MAX)
		return false;
	snt__sim_run(world.sim, deadline);
	return true;
}

static bool all_done(const struct end *end)
{
	if (world.closing)
		return end->closed;
	return end->posted == OPS && end->done == OPS;
}

static int run(void)
{
	for (unsigned step = 0; step < STEPS; step++) {
		bool asleep = true;
		int count;

		for (int i = 0; i < 2; i++) {
			struct end *end = &world.end[i];

			if (!world.closing && post_some(end, &world.end[!i]))
				return -1;
			if (sleeps(end))
				continue;
			count = work(end);
			if (count < 0)
				return wrong("a dispatch", i);
			/* The timerfd goes off by real time, in vain. */
			asleep &= !count;
		}
		if (all_done(&world.end[0]) && all_done(&world.end[1]))
			return 0;
		if (asleep && !pass_time() &&
		    (world.closing ||
		     (world.end[0].posted == OPS && world.end[1].posted == OPS)))
			return wrong("all sleep, and not all is done",
				     !all_done(&world.end[1]));
	}
	return wrong("it never ends", 0);
}

/*
 * The world
 */

static int open_end(struct end *end, const struct snt_qp_opts *given)
{
	struct snt__sim_link_opts cable = { .delay_ns = 500 + dice(5000),
					    .jitter_ns = dice(3000),
					    .loss = dice(20000),
					    .reorder = dice(20000),
					    .late_ns = 5000 };
	struct snt__sim_device_opts device_opts = { .out = &cable, .in = &cable };
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_srq_opts srq_opts = { .size = sizeof(srq_opts), .depth = RECVS };
	struct snt_qp_opts qp_opts = *given;
	struct snt__sim_device *device;
	int ret = snt__sim_host_create(world.sim, &end->host);

	for (int i = 0; !ret && i < 2; i++)
		ret = snt__sim_device_create(end->host, &device_opts, &device);
	if (ret)
		return ret;
	snt__sim_host_ctx_opts(end->host, &ctx_opts);
	end->memory = calloc(1, MEMORY);
	for (unsigned i = 0; i < OPS * SLOT; i++)
		end->memory[i] = 1 + i / SLOT;
	end->style = dice(STYLES);
	end->budget = dice(2) ? 0 : 1 + dice(4);
	ret = snt_ctx_create(&ctx_opts, &end->ctx);
	if (!ret)
		ret = snt_loop_create(end->ctx, NULL, &end->loop);
	if (!ret)
		ret = snt_mem_register(end->ctx, end->memory, MEMORY, ACCESS,
				       &end->mem);
	if (!ret)
		ret = snt_mem_token(end->mem, &end->token);
	cq_opts.loop = end->loop;
	if (!ret)
		ret = snt_cq_create(end->ctx, &cq_opts, &end->cq);
	qp_opts.cq = srq_opts.cq = end->cq;
	if (!ret && world.shared)
		ret = snt_srq_create(end->ctx, &srq_opts, &end->srq);
	qp_opts.srq = end->srq;
	if (!ret)
		ret = snt_qp_create(end->ctx, &qp_opts, &end->qp);
	return ret ? ret : post_recvs(end);
}

static int open_world(uint64_t seed)
{
	struct snt__sim_opts sim_opts = { .seed = seed };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .fragment_size = 256,
				    .lane_depth = 8,
				    .send_depth = 16,
				    .recv_depth = 16 };
	struct snt_card card[2];
	bool spray;
	int ret;

	memset(&world, 0, sizeof(world));
	world.random = seed;
	world.pass = !dice(3);
	world.shared = world.pass && dice(2);
	opts.lanes = world.pass ? 1 : 1 + dice(4);
	opts.flags = world.pass ? SNT_QP_PASS_THROUGH : 0;
	spray = dice(2);
	opts.scheme = world.pass || spray ? SNT_SCHEME_SPRAY : SNT_SCHEME_DQPLB;
	ret = snt__sim_create(&sim_opts, &world.sim);
	for (int i = 0; !ret && i < 2; i++)
		ret = open_end(&world.end[i], &opts);
	for (int i = 0; !ret && i < 2; i++)
		ret = snt_qp_card(world.end[i].qp, &card[i]);
	for (int i = 0; !ret && i < 2; i++)
		ret = snt_qp_connect(world.end[i].qp, &card[!i]);
	return ret ? wrong("opening", 0) : 0;
}

static void note_closed(struct snt_op *op)
{
	struct end *end = op->arg;

	end->closed = true;
}

/* And closes again with another op. */
static int give_up_closing(struct end *end)
{
	if (snt_op_cancel(&end->close_op, SNT_CANCEL_DETACH))
		return -1;
	end->close_op.done = NULL;
	end->second_close_op.done = note_closed;
	end->second_close_op.arg = end;
	if (dice(2) && snt_loop_dispatch(end->loop, 0) < 0)
		return -1;
	return snt_op_close(end->qp, &end->second_close_op);
}

static int close_qps(void)
{
	world.closing = true;
	for (int i = 0; i < 2; i++) {
		struct end *end = &world.end[i];

		end->close_op.done = note_closed;
		end->close_op.arg = end;
		if (snt_op_close(end->qp, &end->close_op))
			return wrong("closing", i);
		if (!dice(3) && give_up_closing(end))
			return wrong("closing again", i);
	}
	return run();
}

/* What is in an SRQ outlives the QPs, and ends with it. */
static int end_shared(struct end *end)
{
	if (!end->srq)
		return 0;
	if (snt_qp_destroy(end->qp) || snt_srq_destroy(end->srq))
		return -1;
	end->qp = NULL;
	while (end->recvs != end->recvs_done)
		if (snt_loop_dispatch(end->loop, end->budget) <= 0)
			return -1;
	return 0;
}

static int close_world(void)
{
	for (int i = 0; i < 2; i++) {
		struct end *end = &world.end[i];

		if (snt_qp_destroy(end->qp) || snt_cq_destroy(end->cq) ||
		    snt_mem_release(end->mem) || snt_loop_destroy(end->loop) ||
		    snt_ctx_destroy(end->ctx))
			return wrong("the end", i);
		free(end->memory);
	}
	return snt__sim_destroy(world.sim);
}

/* Every op came to one end, and what it says is true. */
static int judge(struct end *end, const struct end *peer, int index)
{
	if (end->recvs != end->recvs_done)
		return wrong("a receive without an end", index);
	if (end->group.pending || !end->group.done != !end->groups_done)
		return wrong("a group without an end", index);
	for (unsigned i = 0; i < OPS; i++) {
		const struct job *job = &end->job[i];
		const unsigned char *to = peer->memory + TO + i * SLOT;
		bool writes = job->opcode <= SNT_OP_WRITE_IMM;
		int result = job->op.result;

		if (job->calls != 1 || job->releases != !!job->op.released)
			return wrong("not one callback", index);
		if (result && result != -ETIMEDOUT &&
		    !(result == -ECANCELED && job->cancelled))
			return wrong("a result", index);
		if (writes && !result &&
		    (to[0] != i + 1 || to[job->length - 1] != i + 1))
			return wrong("bytes that are not there", index);
		if (writes && job->withdrawn && to[0])
			return wrong("bytes of a write that never was", index);
	}
	return 0;
}

static int try_seed(uint64_t seed)
{
	int ret = open_world(seed);

	if (!ret)
		ret = run();
	if (!ret)
		ret = close_qps();
	for (int i = 0; !ret && i < 2; i++)
		ret = end_shared(&world.end[i]) ? wrong("shared receives", i) : 0;
	for (int i = 0; !ret && i < 2; i++)
		ret = judge(&world.end[i], &world.end[!i], i);
	return ret ? ret : close_world();
}

int main(int argc, char **argv)
{
	return seeds_main(argc, argv, 1000, try_seed);
}
