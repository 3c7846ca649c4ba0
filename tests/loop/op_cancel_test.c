/* SPDX-License-Identifier: MIT */
/*
 * Cancelling and deadlines, in every state that an op can be in.
 */
#include "lib/test.h"

#include "lib/seeds.h"
#include "lib/loop_kit.h"

static uint64_t now_ns;

static uint64_t virtual_clock(void *arg)
{
	(void)arg;
	return now_ns;
}

/* Four lanes for four fragments each: WRs behind 16 fragments wait. */
static struct loop_pair *open_lanes(enum snt_scheme scheme, uint32_t send_depth)
{
	struct loop_opts opts = { .devices = 2,
				  .ops = SNT_CQ_OPS_EVENTS,
				  .clock = virtual_clock,
				  .qp = { .scheme = scheme,
					  .lanes = 4,
					  .fragment_size = 256,
					  .lane_depth = 4,
					  .send_depth = send_depth } };

	now_ns = 1000000;
	return loop_pair_open(&opts);
}

static uint32_t waiting(const struct snt_qp *qp)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(qp, &info));
	return info.sends_waiting;
}

static enum snt_qp_state state_of(const struct snt_qp *qp)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(qp, &info));
	return info.state;
}

/* Sixteen fragments, so that every lane is full. */
static void fill(struct loop_pair *pair, struct snt_op *op)
{
	op->done = loop_done;
	assert_success(loop_write(pair, 0, op, 0, 16 * 256));
	assert_int_equal(waiting(pair->end[0].qp), 0);
}

static void not_in_use(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_error(snt_op_cancel(&op, SNT_CANCEL_DETACH), ENOENT, "not in use");
	assert_error(snt_op_timeout(&op, 1, SNT_CANCEL_DETACH), ENOENT, "not in use");
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_error(snt_op_cancel(&op, 0), EINVAL, "no way");
	assert_error(snt_op_cancel(&op, 3), EINVAL, "no way");
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_error(snt_op_cancel(&op, SNT_CANCEL_ABORT), ENOENT, "not in use");
	loop_pair_close(pair);
}

/* Each verb while it waits: it ends at once, in the next dispatch, and never
 * happened. */
static int post_verb(struct loop_pair *pair, unsigned verb, struct snt_op *op)
{
	struct snt_qp *qp = pair->end[0].qp;
	struct snt_sge sge = loop_sge(pair, 0, 8192, 64),
		       word = loop_sge(pair, 0, 8192, 8);
	const struct snt_token *token = &pair->end[1].token;
	uint64_t addr = token->addr + 8192;

	switch (verb) {
	case SNT_OP_WRITE:
		return snt_op_write(qp, op, &sge, token, addr);
	case SNT_OP_WRITE_IMM:
		return snt_op_post(qp, op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
							  .imm = 1,
							  .sge = &sge,
							  .sge_count = 1,
							  .remote = token,
							  .remote_addr = addr });
	case SNT_OP_READ:
		return snt_op_read(qp, op, &sge, token, addr);
	case SNT_OP_SEND:
		return snt_op_send(qp, op, &sge);
	case SNT_OP_SEND_IMM:
		return snt_op_post(qp, op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_SEND_IMM,
							  .imm = 1,
							  .sge = &sge,
							  .sge_count = 1 });
	case SNT_OP_CMP_SWAP:
		return snt_op_post(qp, op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_CMP_SWAP,
							  .sge = &word,
							  .sge_count = 1,
							  .remote = token,
							  .remote_addr = addr,
							  .compare_add = 0,
							  .swap = 1 });
	default:
		return snt_op_post(qp, op,
				   &(struct snt_send_wr){ .opcode = SNT_OP_FETCH_ADD,
							  .sge = &word,
							  .sge_count = 1,
							  .remote = token,
							  .remote_addr = addr,
							  .compare_add = 1 });
	}
}

static void cancelled_ops_that_waited_have_no_effect(void **state)
{
	static const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned verb = SNT_OP_WRITE; verb <= SNT_OP_FETCH_ADD; verb++) {
			struct loop_pair *pair = open_lanes(schemes[i], 64);
			struct snt_op first = { 0 }, second = { .done = loop_done };
			struct snt_op third = { .done = loop_done };
			struct snt_op recv[2] = { { 0 }, { 0 } };
			struct snt_sge to = loop_sge(pair, 1, 16384, 64);
			static const unsigned char zero[64];

			assert_success(snt_op_recv(pair->end[1].qp, &recv[0], &to));
			assert_success(snt_op_recv(pair->end[1].qp, &recv[1], NULL));
			memset(pair->end[0].buffer + 8192, 0xaa, 64);
			fill(pair, &first);
			assert_success(post_verb(pair, verb, &second));
			assert_success(loop_write(pair, 0, &third, 12288, 64));
			assert_int_equal(waiting(pair->end[0].qp), 2);
			assert_success(snt_op_cancel(&second, SNT_CANCEL_ABORT));
			assert_int_equal(loop_done_count, 0);
			assert_error(snt_op_cancel(&second, SNT_CANCEL_ABORT), EALREADY,
				     "before");
			assert_int_equal(snt_op_pending(&second), 1);
			assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
			assert_ptr_equal(loop_done_log[0], &second);
			assert_int_equal(second.result, -ECANCELED);
			assert_int_equal(second.wc.opcode, verb);
			assert_int_equal(state_of(pair->end[0].qp), SNT_QP_CONNECTED);
			/* It may be used again while its place is still in the ring. */
			assert_success(loop_write(pair, 0, &second, 12288, 64));
			loop_pair_settle(pair);
			assert_int_equal(loop_done_count, 4);
			assert_ptr_equal(loop_done_log[1], &first);
			assert_ptr_equal(loop_done_log[2], &third);
			assert_ptr_equal(loop_done_log[3], &second);
			assert_int_equal(third.result, 0);
			assert_memory_equal(pair->end[1].buffer + 8192, zero, 64);
			assert_int_equal(snt_op_pending(&recv[0]), 1);
			assert_int_equal(snt_op_pending(&recv[1]), 1);
			loop_pair_close(pair);
		}
	}
}

/* An ordering point waits for what is under way, and all behind it wait for it. */
static void cancelled_ops_hold_up_no_later_ones(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 64);
	struct snt_op first = { 0 }, second = { .done = loop_done }, third = { 0 };

	(void)state;
	assert_success(loop_write(pair, 0, &first, 0, 512));
	assert_success(post_verb(pair, SNT_OP_SEND, &second));
	assert_success(loop_write(pair, 0, &third, 0, 64));
	assert_int_equal(waiting(pair->end[0].qp), 2);
	assert_success(snt_op_cancel(&second, SNT_CANCEL_DETACH));
	assert_int_equal(waiting(pair->end[0].qp), 0);
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(third.result, 0);
	loop_pair_close(pair);
}

/* What is partly on its way cannot be taken back. */
static void partly_sent_ops_are_detached(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 64);
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 40 * 256));
	assert_int_equal(waiting(pair->end[0].qp), 1);
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	assert_error(snt_op_cancel(&op, SNT_CANCEL_DETACH), EALREADY, "before");
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 0);
	assert_int_equal(snt_op_pending(&op), 1);
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(op.result, -ECANCELED);
	assert_int_equal(op.wc.status, SNT_WC_SUCCESS);
	assert_int_equal(op.wc.length, 40 * 256);
	loop_pair_close(pair);
}

static void detached_is_reported_when_it_retires(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };

	(void)state;
	for (int fails = 0; fails < 2; fails++) {
		struct ibv_qp *lane = scripted_qp_at(pair->end[0].device[0], 0);

		assert_success(loop_write(pair, 0, &op, 0, 8));
		assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
		assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 0);
		scripted_complete(lane, fails ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
		assert_int_equal(op.result, -ECANCELED);
		assert_int_equal(op.wc.status,
				 fails ? SNT_WC_RETRY_EXC_ERR : SNT_WC_SUCCESS);
	}
	loop_pair_close(pair);
}

static void abort_breaks_the_qp(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct loop_pair *pair =
			kind == 0 ? loop_pair_simple()
				  : open_lanes(kind == 1 ? SNT_SCHEME_SPRAY
							 : SNT_SCHEME_DQPLB,
					       64);
		struct snt_op op[3] = { { .done = loop_done },
					{ .done = loop_done },
					{ .done = loop_done } };
		struct snt_op recv = { .done = loop_done };
		struct snt_sge sge = loop_sge(pair, 0, 0, 64);

		assert_success(snt_op_recv(pair->end[0].qp, &recv, &sge));
		for (int i = 0; i < 3; i++)
			assert_success(loop_write(pair, 0, &op[i], 0, 10 * 256));
		/* Detached first, and then in a hurry after all. */
		assert_success(snt_op_cancel(&op[1], SNT_CANCEL_DETACH));
		assert_success(snt_op_cancel(&op[0], SNT_CANCEL_ABORT));
		assert_int_equal(state_of(pair->end[0].qp), SNT_QP_BROKEN);
		if (kind == 0)
			assert_success(snt_op_cancel(&op[1], SNT_CANCEL_ABORT));
		assert_int_equal(loop_done_count, 0);
		assert_int_equal(loop_write(pair, 0, &recv, 0, 8), -EALREADY);
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 4);
		assert_int_equal(op[0].result, -ECANCELED);
		assert_int_equal(op[1].result, -ECANCELED);
		assert_int_equal(op[2].result, -ESHUTDOWN);
		assert_int_equal(recv.result, -ESHUTDOWN);
		assert_int_equal(op[2].wc.status, SNT_WC_FLUSHED);
		assert_int_equal(loop_write(pair, 0, &op[0], 0, 8), -ESHUTDOWN);
		loop_pair_close(pair);
	}
}

static void receives_end_with_their_qp(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op recv[2] = { { .done = loop_done }, { .done = loop_done } };
	struct snt_op send = { 0 };
	struct snt_sge to = loop_sge(pair, 1, 0, 64), from = loop_sge(pair, 0, 0, 33);

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_success(snt_op_recv(pair->end[1].qp, &recv[i], &to));
	assert_success(snt_op_cancel(&recv[0], SNT_CANCEL_DETACH));
	assert_success(snt_op_cancel(&recv[1], SNT_CANCEL_DETACH));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 0);
	assert_success(snt_op_send(pair->end[0].qp, &send, &from));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(recv[0].result, -ECANCELED);
	assert_int_equal(recv[0].wc.status, SNT_WC_SUCCESS);
	assert_int_equal(recv[0].wc.length, 33);
	assert_success(snt_op_cancel(&recv[1], SNT_CANCEL_ABORT));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	assert_int_equal(recv[1].result, -ECANCELED);
	assert_int_equal(recv[1].wc.status, SNT_WC_FLUSHED);
	loop_pair_close(pair);
}

static void without_a_connection(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .unconnected = true };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_op recv = { .done = loop_done };
	struct snt_sge to = loop_sge(pair, 0, 0, 64);

	(void)state;
	assert_success(snt_op_recv(pair->end[0].qp, &recv, &to));
	assert_error(snt_op_cancel(&recv, SNT_CANCEL_ABORT), ENOTCONN, "not connected");
	assert_success(snt_op_timeout(&recv, 1000, SNT_CANCEL_DETACH));
	assert_success(snt_op_cancel(&recv, SNT_CANCEL_DETACH));
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	assert_int_equal(recv.result, -ECANCELED);
	loop_pair_close(pair);
}

static void closing_cannot_be_aborted(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done }, close_op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_close(pair->end[0].qp, &close_op));
	assert_error(snt_op_cancel(&close_op, SNT_CANCEL_ABORT), EOPNOTSUPP, "closing");
	/* What else is on the QP is ending already. */
	assert_success(snt_op_cancel(&op, SNT_CANCEL_ABORT));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	assert_int_equal(op.result, -ECANCELED);
	assert_int_equal(close_op.result, 0);
	loop_pair_close(pair);
}

/* A device that refuses. */
static int refuse_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static const struct snt_control *real;

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	static struct snt_control control;

	real = adopted->control;
	control = *real;
	control.modify_qp = refuse_modify;
	return &control;
}

static bool refuses;

static int refuse_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return refuses ? -EPERM : real->modify_qp(qp, attr, mask);
}

static void an_abort_that_is_refused_has_no_effect(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .instrument = instrument,
				  .clock = virtual_clock };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_op op = { .done = loop_done };

	(void)state;
	refuses = true;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_error(snt_op_cancel(&op, SNT_CANCEL_ABORT), EPERM, "cannot go to ERR");
	assert_int_equal(state_of(pair->end[0].qp), SNT_QP_CONNECTED);
	/* A deadline has no caller to tell, so it detaches. */
	assert_success(snt_op_timeout(&op, 1000, SNT_CANCEL_ABORT));
	now_ns += 1000;
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	refuses = false;
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(op.result, -ETIMEDOUT);
	assert_int_equal(op.wc.status, SNT_WC_SUCCESS);
	loop_pair_close(pair);
}

static struct snt_op *victims;

static void cancel_victims(struct snt_op *op)
{
	loop_done(op);
	for (int i = 0; i < 3; i++)
		assert_success(snt_op_cancel(&victims[i], SNT_CANCEL_DETACH));
}

static void callbacks_may_cancel(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 64);
	struct snt_op first = { 0 }, op[3] = { { .done = loop_done },
					       { .done = loop_done },
					       { .done = loop_done } };

	(void)state;
	victims = op;
	fill(pair, &first);
	first.done = cancel_victims;
	/* Two of these are sent when the first is done, before it is reported. */
	for (int i = 0; i < 3; i++)
		assert_success(loop_write(pair, 0, &op[i], 0, 8 * 256));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 4);
	assert_ptr_equal(loop_done_log[0], &first);
	for (int i = 0; i < 3; i++)
		assert_int_equal(op[i].result, -ECANCELED);
	loop_pair_close(pair);
}

/*
 * Deadlines
 */

static void deadlines_pass_or_do_not(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 64);
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_op first = { 0 }, second = { .done = loop_done };

	(void)state;
	/* In time. */
	fill(pair, &first);
	assert_success(snt_op_timeout(&first, 1000, SNT_CANCEL_ABORT));
	loop_pair_settle(pair);
	assert_int_equal(first.result, 0);
	now_ns += 5000;
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	/* Moved, then too late: one is sent, one waits. */
	fill(pair, &first);
	assert_success(loop_write(pair, 0, &second, 0, 8));
	assert_success(snt_op_deadline(&first, now_ns + 100, SNT_CANCEL_DETACH));
	assert_success(snt_op_deadline(&first, now_ns + 1000, SNT_CANCEL_DETACH));
	assert_success(snt_op_deadline(&second, now_ns + 1000, SNT_CANCEL_DETACH));
	now_ns += 500;
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	now_ns += 500;
	assert_int_equal(snt_loop_dispatch(loop, 0), 2); /* timers */
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(second.result, -ETIMEDOUT);
	assert_error(snt_op_timeout(&first, 1, SNT_CANCEL_DETACH), EALREADY, "before");
	assert_int_equal(snt_op_pending(&first), 1);
	loop_pair_settle(pair);
	assert_int_equal(first.result, -ETIMEDOUT);
	/* Abort. */
	fill(pair, &first);
	assert_success(snt_op_timeout(&first, 10, SNT_CANCEL_ABORT));
	now_ns += 10;
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(snt_op_pending(&first), 1);
	loop_pair_settle(pair);
	assert_int_equal(first.result, -ETIMEDOUT);
	assert_int_equal(state_of(pair->end[0].qp), SNT_QP_BROKEN);
	loop_pair_close(pair);
}

/* What had come in time is not too late because the program did not look. */
static void completions_come_before_deadlines(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 64);
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_timeout(&op, 10, SNT_CANCEL_DETACH));
	loop_pair_run(pair);
	now_ns += 1000;
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	assert_int_equal(op.result, 0);
	loop_pair_close(pair);
}

#define STORM 10000

static void a_storm_of_deadlines(void **state)
{
	struct loop_pair *pair = open_lanes(SNT_SCHEME_SPRAY, 16384);
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_op *op = calloc(STORM, sizeof(*op));
	uint64_t random = 3;
	unsigned late = 0;

	(void)state;
	assert_success(snt_loop_fd(loop));
	for (int i = 0; i < STORM; i++) {
		assert_success(loop_write(pair, 0, &op[i], i % 1000 * 64, 8));
		assert_success(snt_op_timeout(&op[i], 1 + random_below(&random, 1000),
					      SNT_CANCEL_DETACH));
	}
	/* Some get through while the others run out of time. */
	for (int step = 0; step < 100; step++) {
		int count;

		scripted_step(pair->fabric, &random);
		now_ns += 10;
		do {
			count = snt_loop_dispatch(loop, 0);
			assert_success(count);
		} while (count);
	}
	loop_pair_settle(pair);
	for (int i = 0; i < STORM; i++) {
		assert_int_equal(snt_op_pending(&op[i]), 0);
		assert_true(op[i].result == 0 || op[i].result == -ETIMEDOUT);
		late += op[i].result != 0;
	}
	assert_in_range(late, STORM / 2, STORM);
	assert_int_equal(snt_loop_timeout(loop), -1);
	free(op);
	loop_pair_close(pair);
}

/*
 * At random
 */

struct slot {
	struct snt_op op;
	unsigned calls;
	bool withdrawn; /* it must not have happened */
};

#define SLOTS 40

static void count_call(struct snt_op *op)
{
	((struct slot *)op)->calls++;
}

static void cancel_at_random(enum snt_scheme scheme, uint64_t seed)
{
	struct loop_pair *pair = open_lanes(scheme, 64);
	struct slot slot[SLOTS] = { { .calls = 0 } };
	uint64_t random = seed;
	unsigned char *from = pair->end[0].buffer, *to = pair->end[1].buffer;

	for (int i = 0; i < SLOTS; i++)
		memset(from + i * 1024, i + 1, 1024);
	for (int i = 0; i < SLOTS; i++) {
		unsigned victim = random_below(&random, i + 1);

		slot[i].op.done = count_call;
		assert_success(loop_write(pair, 0, &slot[i].op, i * 1024,
					  1 + random_below(&random, 1024)));
		if (random_below(&random, 2) && snt_op_pending(&slot[victim].op) &&
		    !snt_op_cancel(&slot[victim].op, SNT_CANCEL_DETACH))
			slot[victim].withdrawn = slot[victim].op.state == 2;
		for (unsigned n = random_below(&random, 4); n; n--)
			scripted_step(pair->fabric, &random);
		if (!random_below(&random, 3))
			assert_success(snt_loop_dispatch(pair->end[0].loop, 0));
	}
	loop_pair_settle(pair);
	for (int i = 0; i < SLOTS; i++) {
		assert_int_equal(slot[i].calls, 1);
		assert_true(slot[i].op.result == 0 || slot[i].op.result == -ECANCELED);
		if (slot[i].withdrawn)
			assert_int_equal(to[i * 1024], 0);
		else
			assert_int_equal(to[i * 1024], i + 1);
	}
	loop_pair_close(pair);
}

static void every_op_has_one_end(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		cancel_at_random(SNT_SCHEME_SPRAY, seed);
		cancel_at_random(SNT_SCHEME_DQPLB, seed);
	}
}

/* As loop.h says: close, cancel, dispatch, destroy. */
static void ops_of_a_cq_that_broke(void **state)
{
	(void)state;
	for (int lanes = 1; lanes < 3; lanes++) {
		struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
					  .qp = { .lanes = lanes } };
		struct loop_pair *pair = loop_pair_open(&opts);
		struct loop_end *end = &pair->end[0];
		struct snt_sge sge = loop_sge(pair, 0, 0, 64);
		struct snt_op op[3] = { { .done = loop_done },
					{ .done = loop_done },
					{ .done = loop_done } };

		assert_success(loop_write(pair, 0, &op[0], 0, 64));
		assert_success(snt_op_recv(end->qp, &op[1], &sge));
		assert_success(snt_op_timeout(&op[0], 1000000, SNT_CANCEL_DETACH));
		scripted_fail_poll(snt_cq_physical(end->cq, 0, NULL), 1);
		loop_pair_run(pair);
		assert_error(snt_loop_dispatch(end->loop, 0), EIO, "cannot be polled");
		/* Not yet: its memory may still be in use. */
		assert_success(snt_op_cancel(&op[1], SNT_CANCEL_DETACH));
		assert_success(snt_loop_dispatch(end->loop, 0));
		assert_int_equal(loop_done_count, 0);
		assert_success(snt_op_close(end->qp, &op[2]));
		for (int i = 0; i < 3; i++)
			assert_success(snt_op_cancel(&op[i], SNT_CANCEL_DETACH));
		assert_error(snt_op_cancel(&op[0], SNT_CANCEL_ABORT), EALREADY,
			     "before");
		assert_int_equal(snt_loop_dispatch(end->loop, 0), 3);
		assert_int_equal(loop_done_count, 3);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(op[i].result, -ECANCELED);
			assert_int_equal(snt_op_pending(&op[i]), 0);
		}
		assert_success(snt_qp_destroy(end->qp));
		end->qp = NULL;
		loop_pair_close(pair);
	}
}

/* The QP whose ops end in one batch with SNT_OP_CLOSED, and those behind the first. */
static struct snt_qp *closed_qp;
static struct snt_op *last_ops;

static void destroy_and_cancel(struct snt_op *op)
{
	loop_done(op);
	assert_success(snt_qp_destroy(closed_qp));
	assert_success(snt_op_cancel(&last_ops[0], SNT_CANCEL_DETACH));
	assert_success(snt_op_cancel(&last_ops[1], SNT_CANCEL_ABORT));
	assert_error(snt_op_cancel(&last_ops[2], SNT_CANCEL_ABORT), EOPNOTSUPP,
		     "closing");
	assert_success(snt_op_cancel(&last_ops[2], SNT_CANCEL_DETACH));
}

static void ops_of_a_batch_may_outlive_their_qp(void **state)
{
	(void)state;
	for (int lanes = 0; lanes < 3; lanes++) {
		struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
					  .qp = { .lanes = lanes } };
		struct loop_pair *pair = loop_pair_open(&opts);
		struct loop_end *end = &pair->end[0];
		struct snt_op op[4] = { { .done = destroy_and_cancel },
					{ .done = loop_done },
					{ .done = loop_done },
					{ .done = loop_done } };

		closed_qp = end->qp;
		last_ops = &op[1];
		for (int i = 0; i < 3; i++)
			assert_success(loop_write(pair, 0, &op[i], 0, 64));
		assert_success(snt_op_close(end->qp, &op[3]));
		loop_pair_run(pair);
		assert_int_equal(snt_loop_dispatch(end->loop, 0), 4);
		assert_int_equal(loop_done_count, 4);
		for (int i = 1; i < 4; i++)
			assert_int_equal(op[i].result, -ECANCELED);
		end->qp = NULL;
		loop_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_in_use),
		cmocka_unit_test(cancelled_ops_that_waited_have_no_effect),
		cmocka_unit_test(cancelled_ops_hold_up_no_later_ones),
		cmocka_unit_test(partly_sent_ops_are_detached),
		cmocka_unit_test(detached_is_reported_when_it_retires),
		cmocka_unit_test(abort_breaks_the_qp),
		cmocka_unit_test(receives_end_with_their_qp),
		cmocka_unit_test(without_a_connection),
		cmocka_unit_test(closing_cannot_be_aborted),
		cmocka_unit_test(an_abort_that_is_refused_has_no_effect),
		cmocka_unit_test(callbacks_may_cancel),
		cmocka_unit_test(deadlines_pass_or_do_not),
		cmocka_unit_test(completions_come_before_deadlines),
		cmocka_unit_test(a_storm_of_deadlines),
		cmocka_unit_test(every_op_has_one_end),
		cmocka_unit_test(ops_of_a_cq_that_broke),
		cmocka_unit_test(ops_of_a_batch_may_outlive_their_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
