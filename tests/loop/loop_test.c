/* SPDX-License-Identifier: MIT */
/*
 * The fd and dispatch: what makes it readable, what does not, and what is left behind.
 */
#include "lib/fds.h"
#include "lib/test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/devices/null.h"
#include "lib/loop_kit.h"

static struct ibv_qp *lane_of(struct snt_qp *qp)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query_lane(qp, 0, &info));
	return info.qp;
}

static void dispatch_until_quiet(struct snt_loop *loop)
{
	for (int i = 0; loop_readable(loop); i++) {
		assert_success(snt_loop_dispatch(loop, 0));
		assert_true(i < 10);
	}
}

/*
 * File descriptors
 */

static void a_cq_without_a_loop_makes_no_fd(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &pair->end[1].token,
				  .remote_addr = pair->end[1].token.addr };
	unsigned fds = count_fds();
	struct snt_wc wc;

	(void)state;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	loop_pair_run(pair);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 1);
	assert_int_equal(count_fds(), fds);
	assert_int_equal(scripted_live(pair->end[0].device[0], SCRIPTED_CHANNEL), 0);
	assert_int_equal(snt_loop_wake(pair->end[0].loop), 0);
	assert_int_equal(count_fds(), fds);
	loop_pair_close(pair);
}

static void a_loop_has_one_fd_and_closes_it(void **state)
{
	unsigned fds = count_fds(), with_pair;
	struct loop_pair *pair = loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS);
	struct snt_loop *loop = pair->end[0].loop;
	int fd;

	(void)state;
	/* A device has one channel, however many CQs there are on it. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(scripted_live(pair->end[0].device[i],
					       SCRIPTED_CHANNEL),
				 1);
	with_pair = count_fds();
	fd = snt_loop_fd(loop);
	assert_success(fd);
	assert_int_equal(snt_loop_fd(loop), fd);
	assert_int_equal(count_fds(), with_pair + 1); /* the bell is there */
	loop_pair_close(pair);
	assert_int_equal(count_fds(), fds);
}

/*
 * Nothing is lost
 */

/* Seed 003: a completion that comes between the poll which finds nothing and the
 * sleep. */
static void the_race_of_the_seed(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ .events = 1 });
	struct loop_end *end = &pair->end[0];
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	struct snt_send_wr wr = { .wr_id = 7,
				  .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &pair->end[1].token,
				  .remote_addr = pair->end[1].token.addr };
	struct snt_wc wc;

	(void)state;
	dispatch_until_quiet(end->loop);
	for (int before_arming = 0; before_arming < 2; before_arming++) {
		assert_int_equal(snt_qp_post_send(end->qp, &wr, 1), 1);
		assert_int_equal(snt_cq_poll(end->cq, &wc, 1), 0);
		if (before_arming) {
			loop_pair_run(pair);
			assert_int_equal(snt_loop_arm(end->loop), 1);
			/* What the look found is not lost. */
			assert_int_equal(snt_cq_poll(end->cq, &wc, 1), 1);
			assert_int_equal(wc.wr_id, 7);
			continue;
		}
		assert_int_equal(snt_loop_arm(end->loop), 0);
		assert_false(loop_readable(end->loop));
		loop_pair_run(pair);
		assert_true(loop_readable(end->loop));
		assert_int_equal(snt_loop_dispatch(end->loop, 0), 0);
		assert_int_equal(snt_cq_poll(end->cq, &wc, 1), 1);
	}
	assert_int_equal(snt_loop_arm(end->loop), 0);
	assert_false(loop_readable(end->loop));
	loop_pair_close(pair);
}

#define QPS 5

/* rdma-io, cq-notification-loss: one event was taken for each edge, so that the others
 * stayed in the channel and were never taken. */
static void all_events_of_an_edge_are_taken(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = end->loop,
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_cq *cq[QPS];
	struct snt_qp *qp[QPS][2];
	struct snt_op op[QPS] = { { 0 } }, close_op[QPS][2] = { { { 0 } } };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct snt_cq *own = end->cq;
	int outer = epoll_create1(EPOLL_CLOEXEC);
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	const struct snt_token *token = &pair->end[1].token;

	(void)state;
	for (int i = 0; i < QPS; i++) {
		struct snt_qp_opts opts = { .size = sizeof(opts) };

		assert_success(snt_cq_create(end->ctx, &cq_opts, &cq[i]));
		end->cq = cq[i];
		loop_pair_add(pair, &opts, qp[i]);
		op[i].done = loop_done;
	}
	end->cq = own;
	assert_success(epoll_ctl(outer, EPOLL_CTL_ADD, snt_loop_fd(end->loop), &event));
	dispatch_until_quiet(end->loop);
	epoll_wait(outer, &event, 1, 0);
	for (int i = 0; i < QPS; i++)
		assert_success(
			snt_op_write(qp[i][0], &op[i], &sge, token, token->addr));
	loop_pair_run(pair);
	assert_int_equal(epoll_wait(outer, &event, 1, 0), 1);
	assert_int_equal(snt_loop_dispatch(end->loop, 0), QPS);
	assert_int_equal(loop_done_count, QPS);
	assert_int_equal(epoll_wait(outer, &event, 1, 0), 0);
	for (int i = 0; i < QPS; i++)
		for (int n = 0; n < 2; n++)
			assert_success(snt_op_close(qp[i][n], &close_op[i][n]));
	loop_pair_settle(pair);
	for (int i = 0; i < QPS; i++) {
		for (int n = 0; n < 2; n++)
			assert_success(snt_qp_destroy(qp[i][n]));
		assert_success(snt_cq_destroy(cq[i]));
	}
	close(outer);
	loop_pair_close(pair);
}

/* rdma-io, the same bug's sibling: what came behind the completion that was waited for,
 * in the same batch, was thrown away. */
static void completions_behind_the_awaited_one_are_kept(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op[10] = { { 0 } };

	(void)state;
	for (int i = 0; i < 10; i++) {
		op[i].done = loop_done;
		assert_success(loop_write(pair, 0, &op[i], 0, 8));
	}
	loop_pair_run(pair);
	assert_int_equal(snt_op_wait(&op[3], -1), 0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(snt_op_wait(&op[i], -1), 0);
		assert_ptr_equal(loop_done_log[i], &op[i]);
	}
	assert_int_equal(loop_done_count, 10);
	loop_pair_close(pair);
}

#define READY 1000

static void budget_of_1(bool by_edge)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .qp = { .lane_depth = READY } };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_loop *loop = pair->end[0].loop;
	struct epoll_event event = { .events = EPOLLIN | (by_edge ? EPOLLET : 0) };
	int outer = epoll_create1(EPOLL_CLOEXEC);
	struct snt_op *op = calloc(READY, sizeof(*op));
	unsigned wakes = 0;

	assert_success(epoll_ctl(outer, EPOLL_CTL_ADD, snt_loop_fd(loop), &event));
	for (int i = 0; i < READY; i++) {
		op[i].done = loop_done;
		assert_success(loop_write(pair, 0, &op[i], 0, 8));
	}
	loop_pair_run(pair);
	while (epoll_wait(outer, &event, 1, 0) == 1) {
		int count = snt_loop_dispatch(loop, 1);

		assert_in_range(count, 0, 1);
		wakes++;
	}
	assert_int_equal(loop_done_count, READY);
	assert_in_range(wakes, READY, READY + 2);
	free(op);
	close(outer);
	loop_pair_close(pair);
}

static void a_budget_of_1_with_1000_ready(void **state)
{
	(void)state;
	budget_of_1(false);
	budget_of_1(true);
}

/* How often the fd wakes the program for each burst. */
static void a_burst_is_one_wake_up(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .qp = { .lane_depth = 64 } };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_loop *loop = pair->end[0].loop;
	static struct snt_op op[64];
	unsigned wakes = 0, bursts = 1000;

	(void)state;
	dispatch_until_quiet(loop);
	for (unsigned burst = 0; burst < bursts; burst++) {
		unsigned count = 1 + burst % 64;

		for (unsigned i = 0; i < count; i++)
			assert_success(loop_write(pair, 0, &op[i], 0, 8));
		scripted_run(pair->fabric, burst);
		for (; loop_readable(loop); wakes++)
			assert_success(snt_loop_dispatch(loop, 0));
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(snt_op_pending(&op[i]), 0);
	}
	assert_in_range(wakes, bursts, bursts * 105 / 100);
	loop_pair_close(pair);
}

static void an_idle_second_wakes_no_thread(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct pollfd poller = { .events = POLLIN };
	struct snt_op op = { 0 };

	(void)state;
	poller.fd = snt_loop_fd(pair->end[0].loop);
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	dispatch_until_quiet(pair->end[0].loop);
	assert_int_equal(poll(&poller, 1, 1000), 0);
	loop_pair_close(pair);
}

/* DQPLB keeps a message that has no receive; when one is posted, it is complete there
 * and then, and no CQE will tell. */
static void what_finishes_in_a_post_wakes(void **state)
{
	struct loop_pair *pair = loop_pair_lanes(SNT_SCHEME_DQPLB, SNT_CQ_OPS_EVENTS);
	struct snt_loop *loop = pair->end[1].loop;
	struct snt_op write = { .done = loop_done }, recv = { .done = loop_done };
	struct snt_sge from = loop_sge(pair, 0, 0, 1000);
	const struct snt_token *token = &pair->end[1].token;

	(void)state;
	assert_success(snt_loop_fd(loop));
	assert_success(
		snt_op_post(pair->end[0].qp, &write,
			    &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
						   .imm = 5,
						   .sge = &from,
						   .sge_count = 1,
						   .remote = token,
						   .remote_addr = token->addr }));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	dispatch_until_quiet(loop);
	assert_success(snt_op_recv(pair->end[1].qp, &recv, NULL));
	assert_int_equal(loop_done_count, 1);
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(recv.wc.imm, 5);
	assert_false(loop_readable(loop));
	loop_pair_close(pair);
}

/* The same for a program that polls by itself. */
static void what_finishes_in_a_post_wakes_an_armed_fd(void **state)
{
	struct loop_pair *pair = loop_pair_lanes(SNT_SCHEME_DQPLB, SNT_CQ_OPS_NONE);
	struct loop_end *end = &pair->end[1];
	struct snt_sge sge = loop_sge(pair, 0, 0, 1000);
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE_IMM,
				  .sge_count = 1,
				  .sge = &sge,
				  .imm = 6,
				  .remote = &end->token,
				  .remote_addr = end->token.addr };
	struct snt_recv_wr recv = { .wr_id = 3 };
	struct snt_wc wc;

	(void)state;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	loop_pair_run(pair);
	assert_int_equal(snt_cq_poll(end->cq, &wc, 1), 0);
	dispatch_until_quiet(end->loop);
	assert_int_equal(snt_loop_arm(end->loop), 0);
	assert_false(loop_readable(end->loop));
	assert_int_equal(snt_qp_post_recv(end->qp, &recv, 1), 1);
	assert_true(loop_readable(end->loop));
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 0);
	assert_int_equal(snt_cq_poll(end->cq, &wc, 1), 1);
	assert_int_equal(wc.imm, 6);
	loop_pair_close(pair);
}

/* A marker that its lane refuses has nothing but the next poll to be tried again. */
static void a_refused_marker_is_tried_again(void **state)
{
	struct loop_pair *pair = loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS);
	struct loop_end *end = &pair->end[0];
	struct snt_op op = { .done = loop_done };
	struct pollfd poller = { .events = POLLIN };
	int rounds;

	(void)state;
	poller.fd = snt_loop_fd(end->loop);
	dispatch_until_quiet(end->loop);
	for (unsigned nth = 1; nth <= 8; nth++) {
		struct scripted_post_fault fault = { .kind = SCRIPTED_POST_SEND,
						     .qp = lane_of(end->qp),
						     .nth = nth,
						     .error = ENOMEM };

		scripted_fail_post(end->device[0], &fault);
	}
	assert_success(snt_op_close(end->qp, &op));
	for (rounds = 0; snt_op_pending(&op) && rounds < 20; rounds++) {
		loop_pair_run(pair);
		assert_int_equal(poll(&poller, 1, 20000), 1);
		assert_success(snt_loop_dispatch(end->loop, 0));
	}
	assert_int_equal(snt_op_pending(&op), 0);
	assert_in_range(rounds, 3, 12);
	loop_pair_close(pair);
}

static void made_before_the_fd_or_after(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = end->loop,
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_cq *own = end->cq, *late;
	struct snt_qp *qp[2];
	struct snt_op op = { .done = loop_done }, close_op[2] = { { 0 } };
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	const struct snt_token *token = &pair->end[1].token;

	(void)state;
	/* Something finished before there was an fd. */
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	assert_true(loop_readable(end->loop));
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 1);
	assert_false(loop_readable(end->loop));
	/* A CQ that is made while a thread sleeps. */
	assert_success(snt_cq_create(end->ctx, &cq_opts, &late));
	end->cq = late;
	loop_pair_add(pair, &opts, qp);
	end->cq = own;
	dispatch_until_quiet(end->loop);
	assert_success(snt_op_write(qp[0], &op, &sge, token, token->addr));
	assert_false(loop_readable(end->loop));
	loop_pair_run(pair);
	assert_true(loop_readable(end->loop));
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 1);
	for (int i = 0; i < 2; i++)
		assert_success(snt_op_close(qp[i], &close_op[i]));
	loop_pair_settle(pair);
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_destroy(qp[i]));
	assert_success(snt_cq_destroy(late));
	loop_pair_close(pair);
}

/* Acknowledged in batches, and all of them before a CQ goes: scripted_faults() in
 * loop_pair_close() tells if not. */
static void events_are_acknowledged(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(snt_loop_fd(pair->end[0].loop));
	for (int i = 0; i < 200; i++) {
		assert_success(loop_write(pair, 0, &op, 0, 8));
		loop_pair_run(pair);
		assert_true(loop_readable(pair->end[0].loop));
		assert_success(snt_loop_dispatch(pair->end[0].loop, 0));
	}
	assert_int_equal(loop_done_count, 200);
	loop_pair_close(pair);
}

/*
 * Wakes, waits
 */

static unsigned woken;

static void note_wake(void *arg, struct snt_loop *loop)
{
	(void)loop;
	woken++;
	assert_string_equal(arg, "argument");
}

static void wakes_are_one(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;

	(void)state;
	woken = 0;
	dispatch_until_quiet(loop);
	assert_success(snt_loop_set_wake_handler(loop, note_wake, "argument"));
	for (int i = 0; i < 5; i++)
		assert_int_equal(snt_loop_wake(loop), 0);
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_timeout(loop), 0);
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(woken, 1);
	assert_false(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	/* It ends a wait, and a wait ends with it. */
	assert_int_equal(snt_loop_wake(loop), 0);
	assert_int_equal(snt_loop_wait(loop, -1), 1);
	assert_int_equal(woken, 2);
	assert_success(snt_loop_set_spin(loop, 1000000000));
	assert_int_equal(snt_loop_wake(loop), 0);
	assert_int_equal(snt_loop_wait(loop, -1), 1);
	assert_int_equal(woken, 3);
	assert_success(snt_loop_set_wake_handler(loop, NULL, NULL));
	assert_int_equal(snt_loop_wake(loop), 0);
	assert_int_equal(snt_loop_wait(loop, -1), 0);
	assert_int_equal(woken, 3);
	loop_pair_close(pair);
}

static void waits_end_in_time(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;
	uint64_t begin, spent;

	(void)state;
	dispatch_until_quiet(loop);
	for (int auto_spin = 0; auto_spin < 2; auto_spin++) {
		assert_success(snt_loop_set_spin(loop, auto_spin ? SNT_SPIN_AUTO : 0));
		begin = snt_loop_now(loop);
		assert_int_equal(snt_loop_wait(loop, 3000000), 0);
		spent = snt_loop_now(loop) - begin;
		assert_true(spent >= 3000000);
	}
	assert_int_equal(snt_loop_wait(loop, 0), 0);
	assert_error(snt_loop_set_spin(loop, -2), EINVAL, "spin");
	assert_error(snt_loop_set_spin(loop, 1000000001), EINVAL, "spin");
	loop_pair_close(pair);
}

static void nothing(struct snt_timer *timer)
{
	(void)timer;
}

static void a_negative_time_is_for_ever(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_op op = { .done = loop_done };
	struct snt_timer timer = { .fired = nothing };
	const int64_t times[] = { -1, -2, INT64_MIN };

	(void)state;
	dispatch_until_quiet(loop);
	for (unsigned i = 0; i < 3; i++) {
		assert_success(snt_timer_start(loop, &timer, 1000000));
		assert_int_equal(snt_loop_wait(loop, times[i]), 1);
		assert_success(loop_write(pair, 0, &op, 0, 8));
		loop_pair_run(pair);
		assert_int_equal(snt_op_wait(&op, times[i]), 0);
	}
	loop_pair_close(pair);
}

static void spinning_needs_no_fd(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };
	unsigned fds = count_fds();

	(void)state;
	assert_success(snt_loop_set_spin(pair->end[0].loop, 1000000));
	for (int i = 0; i < 10; i++) {
		assert_success(loop_write(pair, 0, &op, 0, 8));
		loop_pair_run(pair);
		assert_int_equal(snt_op_wait(&op, -1), 0);
	}
	assert_int_equal(count_fds(), fds);
	loop_pair_close(pair);
}

/*
 * What goes wrong
 */

static void never(struct snt_timer *timer)
{
	fail_msg("%p", (void *)timer);
}

/* On the parent's devices. */
static int makes_something(struct snt_ctx *ctx)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts) };
	struct snt_srq_opts srq_opts = { .size = sizeof(srq_opts) };
	struct snt_mem *mem;
	struct snt_srq *srq;
	struct snt_cq *cq;
	struct snt_qp *qp;
	char byte;
	int wrong = 0;

	wrong |= snt_mem_register(ctx, &byte, 1, 0, &mem) != -ECHILD;
	wrong |= snt_mem_alloc(ctx, 1, 0, &mem) != -ECHILD;
	wrong |= snt_mem_register_dmabuf(ctx, 0, 0, 1, 0, 0, &mem) != -ECHILD;
	wrong |= snt_cq_create(ctx, &cq_opts, &cq) != -ECHILD;
	wrong |= snt_qp_create(ctx, &qp_opts, &qp) != -ECHILD;
	wrong |= snt_qp_create_with_cq(ctx, &cq_opts, &qp_opts, &cq, &qp) != -ECHILD;
	wrong |= snt_srq_create(ctx, &srq_opts, &srq) != -ECHILD;
	return wrong;
}

static int in_child(struct loop_pair *pair, struct snt_op *op)
{
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_timer timer = { .fired = never };
	int wrong = 0;

	wrong |= snt_loop_fd(loop) != -ECHILD;
	wrong |= snt_loop_dispatch(loop, 0) != -ECHILD;
	wrong |= snt_loop_poll(loop, 0) != -ECHILD;
	wrong |= snt_loop_arm(loop) != -ECHILD;
	wrong |= snt_loop_wait(loop, 0) != -ECHILD;
	wrong |= snt_loop_timeout(loop) != -ECHILD;
	wrong |= snt_loop_wake(loop) != -ECHILD;
	wrong |= snt_timer_start(loop, &timer, 1) != -ECHILD;
	wrong |= loop_write(pair, 0, op, 0, 8) != -ECHILD;
	wrong |= !strstr(snt_err_text(), "forked");
	wrong |= makes_something(snt_loop_ctx(loop));
	return wrong;
}

static void a_fork_is_noticed(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };
	int status;
	pid_t child;

	(void)state;
	dispatch_until_quiet(pair->end[0].loop);
	child = fork();
	if (!child)
		_exit(in_child(pair, &op));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_false(loop_readable(pair->end[0].loop));
	/* The parent goes on. */
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	assert_true(loop_readable(pair->end[0].loop));
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	loop_pair_close(pair);
}

static void a_broken_cq_does_not_stop_the_others(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = end->loop,
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_cq *own = end->cq, *broken;
	struct snt_qp *qp[2];
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(snt_cq_create(end->ctx, &cq_opts, &broken));
	opts.cq = broken;
	assert_success(snt_qp_create(end->ctx, &opts, &qp[0]));
	end->cq = own;
	assert_success(snt_loop_fd(end->loop));
	scripted_fail_poll(snt_cq_physical(broken, 0, NULL), 1);
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	assert_error(snt_loop_dispatch(end->loop, 0), EIO, "cannot be polled");
	assert_int_equal(loop_done_count, 1);
	dispatch_until_quiet(end->loop);
	assert_success(snt_qp_destroy(qp[0]));
	assert_success(snt_cq_destroy(broken));
	loop_pair_close(pair);
}

/* Also if it is found out before sleeping. */
static void a_broken_cq_is_told_of_once(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;
	struct ibv_cq *physical = snt_cq_physical(pair->end[0].cq, 0, NULL);
	struct snt_op op = { 0 };

	(void)state;
	assert_success(snt_loop_fd(loop));
	scripted_fail_poll(physical, 1);
	assert_error(snt_loop_arm(loop), EIO, "cannot be polled");
	scripted_fail_poll(physical, 1);
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_int_equal(snt_loop_arm(loop), 0);
	assert_success(snt_op_close(pair->end[0].qp, &op));
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	assert_int_equal(snt_op_wait(&op, -1), -ECANCELED);
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	loop_pair_close(pair);
}

static void options_that_do_not_go_together(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct ibv_cq *adopted[] = { scripted_cq_at(pair->end[0].device[0], 0) };
	struct snt_cq_opts opts = { .size = sizeof(opts), .adopted = adopted };
	struct snt_cq *cq = NULL;

	(void)state;
	opts.loop = pair->end[0].loop;
	assert_error(snt_cq_create(pair->end[0].ctx, &opts, &cq), EINVAL, "adopted");
	opts.ops = SNT_CQ_OPS_EVENTS;
	assert_error(snt_cq_create(pair->end[0].ctx, &opts, &cq), EINVAL, "adopted");
	opts.ops = 3;
	assert_error(snt_cq_create(pair->end[0].ctx, &opts, &cq), EINVAL, "ops is 3");
	opts.ops = SNT_CQ_OPS_POLLED;
	assert_success(snt_cq_create(pair->end[0].ctx, &opts, &cq));
	assert_success(snt_cq_destroy(cq));
	opts.loop = NULL;
	assert_error(snt_cq_create(pair->end[0].ctx, &opts, &cq), EINVAL,
		     "needs a loop");
	opts.loop = pair->end[1].loop;
	assert_error(snt_cq_create(pair->end[0].ctx, &opts, &cq), EINVAL,
		     "of another context");
	assert_error(snt_loop_dispatch(pair->end[0].loop, -1), EINVAL, "budget");
	loop_pair_close(pair);
}

static void a_device_without_channels_says_so(void **state)
{
	struct null_device *device = null_device_create("null0");
	struct snt_adopted adopted = null_adopted(device);
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .adopted = &adopted,
					 .adopted_count = 1 };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts) };
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_ctx_create(&ctx_opts, &ctx));
	assert_success(snt_loop_create(ctx, NULL, &cq_opts.loop));
	assert_success(snt_cq_create(ctx, &cq_opts, &cq));
	qp_opts.cq = cq;
	assert_error(snt_qp_create(ctx, &qp_opts, &qp), EOPNOTSUPP,
		     "null0 has no completion channels");
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_loop_destroy(cq_opts.loop));
	assert_success(snt_ctx_destroy(ctx));
	null_device_destroy(device);
}

/* Each control call on the way to the first CQ with events fails once. */
static void a_channel_that_cannot_be_made(void **state)
{
	unsigned nth;

	(void)state;
	for (nth = 1; nth < 100; nth++) {
		struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
		struct loop_end *end = &pair->end[0];
		struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
					       .loop = end->loop };
		struct snt_qp_opts opts = { .size = sizeof(opts) };
		struct snt_cq *cq;
		struct snt_qp *qp;
		int ret;

		assert_success(snt_cq_create(end->ctx, &cq_opts, &cq));
		opts.cq = cq;
		scripted_fail_control(end->device[0], nth, ENOSPC);
		ret = snt_qp_create(end->ctx, &opts, &qp);
		scripted_fail_control(end->device[0], 0, 0);
		if (ret)
			assert_int_equal(ret, -ENOSPC);
		else
			assert_success(snt_qp_destroy(qp));
		assert_success(snt_cq_destroy(cq));
		loop_pair_close(pair);
		if (!ret)
			break;
	}
	assert_in_range(nth, 3, 50);
}

/*
 * Watching
 */

static unsigned watched;

static void take_one(void *arg, struct snt_cq *cq)
{
	struct snt_wc wc;

	(void)arg;
	watched++;
	assert_int_equal(snt_cq_poll(cq, &wc, 1), 1);
}

static void stop_watching(void *arg, struct snt_cq *cq)
{
	struct snt_wc wc[4];

	(void)arg;
	watched++;
	assert_int_equal(snt_cq_poll(cq, wc, 4), 1);
	assert_success(snt_cq_set_ready_handler(cq, NULL, NULL));
}

static void post_writes(struct loop_pair *pair, unsigned count)
{
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &pair->end[1].token,
				  .remote_addr = pair->end[1].token.addr };

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	loop_pair_run(pair);
}

static void watching_is_by_level(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ .events = 1 });
	struct loop_end *end = &pair->end[0];

	(void)state;
	watched = 0;
	assert_success(snt_cq_set_ready_handler(end->cq, take_one, NULL));
	dispatch_until_quiet(end->loop);
	assert_int_equal(watched, 0);
	post_writes(pair, 5);
	/* It takes one at a time, and is called until there is none. */
	assert_int_equal(snt_loop_dispatch(end->loop, 2), 2);
	assert_true(loop_readable(end->loop));
	dispatch_until_quiet(end->loop);
	assert_int_equal(watched, 5);
	/* The same without dispatch. */
	post_writes(pair, 2);
	assert_int_equal(snt_loop_poll(end->loop, 0), 1);
	assert_int_equal(snt_loop_poll(end->loop, 0), 1);
	assert_int_equal(snt_loop_poll(end->loop, 0), 0);
	assert_int_equal(snt_loop_arm(end->loop), 0);
	assert_success(snt_cq_set_ready_handler(end->cq, stop_watching, NULL));
	post_writes(pair, 1);
	dispatch_until_quiet(end->loop);
	assert_int_equal(watched, 8);
	post_writes(pair, 1);
	dispatch_until_quiet(end->loop);
	assert_int_equal(watched, 8);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cq_without_a_loop_makes_no_fd),
		cmocka_unit_test(a_loop_has_one_fd_and_closes_it),
		cmocka_unit_test(the_race_of_the_seed),
		cmocka_unit_test(all_events_of_an_edge_are_taken),
		cmocka_unit_test(completions_behind_the_awaited_one_are_kept),
		cmocka_unit_test(a_budget_of_1_with_1000_ready),
		cmocka_unit_test(a_burst_is_one_wake_up),
		cmocka_unit_test(an_idle_second_wakes_no_thread),
		cmocka_unit_test(what_finishes_in_a_post_wakes),
		cmocka_unit_test(what_finishes_in_a_post_wakes_an_armed_fd),
		cmocka_unit_test(a_refused_marker_is_tried_again),
		cmocka_unit_test(made_before_the_fd_or_after),
		cmocka_unit_test(events_are_acknowledged),
		cmocka_unit_test(wakes_are_one),
		cmocka_unit_test(waits_end_in_time),
		cmocka_unit_test(a_negative_time_is_for_ever),
		cmocka_unit_test(spinning_needs_no_fd),
		cmocka_unit_test(a_fork_is_noticed),
		cmocka_unit_test(a_broken_cq_does_not_stop_the_others),
		cmocka_unit_test(a_broken_cq_is_told_of_once),
		cmocka_unit_test(options_that_do_not_go_together),
		cmocka_unit_test(a_device_without_channels_says_so),
		cmocka_unit_test(a_channel_that_cannot_be_made),
		cmocka_unit_test(watching_is_by_level),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
