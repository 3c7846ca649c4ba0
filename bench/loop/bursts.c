/* SPDX-License-Identifier: MIT */
/*
 * Bursts of 16 writes on the scripted device, with its channels: polled, and served by
 * dispatch when the fd is readable. Values are ns per write, the device's own cost
 * included in both; and the system calls of one burst: one epoll_wait(), and the read()
 * of the device's channel. (That it is empty afterwards costs another read() on real
 * devices, and an fcntl() here.)
 */
#include <poll.h>

#include "lib/devices/scripted.h"
#include "loop/cases.h"

#define BATCH  16
#define ROUNDS 16
#define COUNT  (BATCH * ROUNDS)

static struct scripted_fabric *fabric;

static struct world {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[4096];
	struct snt_cq *cq;
	struct snt_qp *qp[2];
	struct snt_sge sge;
	struct snt_send_wr wr[BATCH];
	struct snt_op op[BATCH];
	struct snt_op *ops[BATCH];
	unsigned done;
} polled, served;

static void count_op(struct snt_op *op)
{
	struct world *world = op->arg;

	world->done++;
}

static void poll_bursts(void *arg, unsigned total)
{
	struct world *world = arg;
	struct snt_wc wc[BATCH];

	for (unsigned i = 0; i < total; i += BATCH) {
		snt_qp_post_send(world->qp[0], world->wr, BATCH);
		for (int left = BATCH; left;)
			left -= snt_cq_poll(world->cq, wc, BATCH);
	}
}

static void dispatch_bursts(void *arg, unsigned total)
{
	struct world *world = arg;

	for (unsigned i = 0; i < total; i += BATCH) {
		snt_op_post_batch(world->qp[0], world->ops, world->wr, BATCH);
		for (world->done = 0; world->done < BATCH;)
			snt_loop_dispatch(world->loop, 0);
	}
}

static void connect_burst_qps(struct world *world, uint32_t ops)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = ops ? world->loop : NULL,
				       .ops = ops };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH,
				       .recv_depth = 2 };
	struct snt_card card[2];

	if (snt_cq_create(world->ctx, &cq_opts, &world->cq))
		die("no CQ");
	qp_opts.cq = world->cq;
	for (int i = 0; i < 2; i++)
		if (snt_qp_create(world->ctx, &qp_opts, &world->qp[i]) ||
		    snt_qp_card(world->qp[i], &card[i]))
			die("no QP");
	for (int i = 0; i < 2; i++)
		if (snt_qp_connect(world->qp[i], &card[!i]))
			die("no connection");
}

static void make_world(struct world *world, uint32_t ops)
{
	struct snt_adopted adopted =
		scripted_adopted(scripted_device_create(fabric, NULL));
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	if (snt_ctx_create(&opts, &world->ctx) ||
	    snt_loop_create(world->ctx, NULL, &world->loop) ||
	    snt_mem_register(world->ctx, world->buffer, sizeof(world->buffer),
			     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			     &world->mem) ||
	    snt_mem_token(world->mem, &world->token))
		die("cannot begin");
	world->sge = (struct snt_sge){ world->mem, world->buffer, 64 };
	for (int i = 0; i < BATCH; i++) {
		world->wr[i] = (struct snt_send_wr){ .opcode = SNT_OP_WRITE,
						     .flags = SNT_SEND_SIGNALED,
						     .sge_count = 1,
						     .sge = &world->sge,
						     .remote = &world->token,
						     .remote_addr = world->token.addr };
		world->op[i].done = count_op;
		world->op[i].arg = world;
		world->ops[i] = &world->op[i];
	}
	connect_burst_qps(world, ops);
}

/* What a program that sleeps on the fd, and its loop, ask of the kernel in a burst; the
 * program's own poll(2) comes on top. */
static void count_syscalls(struct bench *bench)
{
	struct pollfd poller = { .fd = snt_loop_fd(served.loop), .events = POLLIN };
	unsigned wakes = 0, bursts = 1000;

	while (poll(&poller, 1, 0) == 1)
		snt_loop_dispatch(served.loop, 0);
	for (unsigned i = 0; i < bursts; i++) {
		snt_op_post_batch(served.qp[0], served.ops, served.wr, BATCH);
		served.done = 0;
		syscall_counting = true;
		for (; poll(&poller, 1, 0) == 1; wakes++)
			snt_loop_dispatch(served.loop, 0);
		syscall_counting = false;
		if (served.done != BATCH)
			die("a wake-up was lost");
	}
	bench_value(bench, "burst-wake-ups", (double)wakes / bursts, "wake-ups", NULL);
	bench_value(bench, "burst-epoll-waits",
		    (double)syscall_counts[SYSCALL_EPOLL_WAIT] / bursts, "calls", NULL);
	bench_value(bench, "burst-channel-reads",
		    (double)syscall_counts[SYSCALL_READ] / bursts, "calls", NULL);
	bench_value(bench, "burst-all-calls",
		    (double)(syscall_counts[SYSCALL_EPOLL_WAIT] +
			     syscall_counts[SYSCALL_READ] +
			     syscall_counts[SYSCALL_WRITE]) /
			    bursts,
		    "calls", NULL);
}

/*
 * What turns cost: 16 writes whose callbacks post them again, so that there is always more
 * to do, and a program that lets its other fds have their turn after so many callbacks.
 */

static unsigned repeats;

static void repeat_op(struct snt_op *op)
{
	served.done++;
	if (repeats) {
		repeats--;
		snt_op_post_batch(served.qp[0], &op, served.wr, 1);
	}
}

static void take_turns(void *arg, unsigned total)
{
	struct pollfd poller = { .fd = snt_loop_fd(served.loop), .events = POLLIN };
	int budget = *(const int *)arg;

	for (int i = 0; i < BATCH; i++)
		served.op[i].done = repeat_op;
	repeats = total - BATCH;
	served.done = 0;
	snt_op_post_batch(served.qp[0], served.ops, served.wr, BATCH);
	while (served.done < total && poll(&poller, 1, -1) == 1)
		snt_loop_dispatch(served.loop, budget);
	for (int i = 0; i < BATCH; i++)
		served.op[i].done = count_op;
}

static void add_turns(struct bench *bench)
{
	static const struct {
		int budget;
		const char *name;
	} turns[] = { { 256, "turns-of-256" },
		      { 64, "turns-of-64" },
		      { 32, "turns-of-32" },
		      { 16, "turns-of-16" } };

	for (unsigned i = 0; i < sizeof(turns) / sizeof(turns[0]); i++)
		bench_case(bench, turns[i].name, take_turns, (void *)&turns[i].budget,
			   16 * COUNT, i ? turns[0].name : NULL);
}

void add_bursts(struct bench *bench)
{
	fabric = scripted_fabric_create(1);
	scripted_eager(fabric, true);
	make_world(&polled, 0);
	make_world(&served, SNT_CQ_OPS_EVENTS);
	if (snt_loop_fd(served.loop) < 0)
		die("no fd");
	bench_case(bench, "burst-polled", poll_bursts, &polled, COUNT, NULL);
	bench_case(bench, "burst-dispatched", dispatch_bursts, &served, COUNT,
		   "burst-polled");
	add_turns(bench);
	if (bench_wants(bench, "burst-"))
		count_syscalls(bench);
}
