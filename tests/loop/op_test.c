/* SPDX-License-Identifier: MIT */
/*
 * Every verb as an op, on every kind of QP: results, order, which calls are legal when.
 */
#include "lib/fds.h"
#include "lib/test.h"

#include "lib/loop_kit.h"

/* Each kind of QP once: passing on, SPRAY, DQPLB. */
static struct loop_pair *open_kind(int kind)
{
	if (kind == 0)
		return loop_pair_simple();
	return loop_pair_lanes(kind == 1 ? SNT_SCHEME_SPRAY : SNT_SCHEME_DQPLB,
			       SNT_CQ_OPS_EVENTS);
}

#define KINDS 3

static void send_and_receive(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_pair *pair = open_kind(kind);
		struct snt_op send = { .done = loop_done },
			      recv = { .done = loop_done };
		struct snt_sge from = loop_sge(pair, 0, 0, 100);
		struct snt_sge to = loop_sge(pair, 1, 4096, 200);

		memset(pair->end[0].buffer, 0x5a, 100);
		assert_success(snt_op_recv(pair->end[1].qp, &recv, &to));
		assert_success(
			snt_op_post(pair->end[0].qp, &send,
				    &(struct snt_send_wr){ .opcode = SNT_OP_SEND_IMM,
							   .imm = 0xabcdef01,
							   .sge = &from,
							   .sge_count = 1 }));
		assert_int_equal(loop_done_count, 0);
		assert_int_equal(snt_op_pending(&send), 1);
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 2);
		assert_int_equal(send.result, 0);
		assert_int_equal(recv.result, 0);
		assert_int_equal(snt_op_pending(&send), 0);
		assert_int_equal(recv.wc.length, 100);
		assert_int_equal(recv.wc.imm, 0xabcdef01);
		assert_true(recv.wc.flags & SNT_WC_WITH_IMM);
		assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer + 4096,
				    100);
		/* The same ops again, without an immediate. */
		assert_success(snt_op_recv(pair->end[1].qp, &recv, &to));
		assert_success(snt_op_send(pair->end[0].qp, &send, &from));
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 4);
		assert_int_equal(recv.wc.flags, 0);
		loop_pair_close(pair);
	}
}

static void write_and_read(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_pair *pair = open_kind(kind);
		struct snt_op op = { .done = loop_done };
		struct snt_sge back = loop_sge(pair, 0, 16384, 3000);
		const struct snt_token *token = &pair->end[1].token;

		for (int i = 0; i < 3000; i++)
			pair->end[0].buffer[i] = i * 7;
		assert_success(loop_write(pair, 0, &op, 0, 3000));
		loop_pair_settle(pair);
		assert_int_equal(op.result, 0);
		assert_int_equal(op.wc.opcode, SNT_OP_WRITE);
		assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, 3000);
		assert_success(
			snt_op_read(pair->end[0].qp, &op, &back, token, token->addr));
		loop_pair_settle(pair);
		assert_int_equal(op.result, 0);
		assert_memory_equal(pair->end[0].buffer + 16384, pair->end[1].buffer,
				    3000);
		assert_int_equal(loop_done_count, 2);
		loop_pair_close(pair);
	}
}

static void write_with_notification(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_pair *pair = open_kind(kind);
		struct snt_op op = { .done = loop_done }, recv = { .done = loop_done };
		struct snt_sge from = loop_sge(pair, 0, 0, 1500);
		const struct snt_token *token = &pair->end[1].token;

		pair->end[0].buffer[1499] = 9;
		assert_success(snt_op_recv(pair->end[1].qp, &recv, NULL));
		assert_success(snt_op_post(pair->end[0].qp, &op,
					   &(struct snt_send_wr){
						   .opcode = SNT_OP_WRITE_IMM,
						   .imm = 77,
						   .sge = &from,
						   .sge_count = 1,
						   .remote = token,
						   .remote_addr = token->addr }));
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 2);
		assert_int_equal(recv.result, 0);
		assert_int_equal(recv.wc.opcode, SNT_OP_RECV_NOTIFY);
		assert_int_equal(recv.wc.imm, 77);
		assert_int_equal(pair->end[1].buffer[1499], 9);
		loop_pair_close(pair);
	}
}

static void atomics_tell_what_was_there(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_pair *pair = open_kind(kind);
		struct snt_op op = { .done = loop_done };
		struct snt_sge result = loop_sge(pair, 0, 64, 8);
		const struct snt_token *token = &pair->end[1].token;
		struct snt_qp *qp = pair->end[0].qp;
		uint64_t *there = (uint64_t *)(pair->end[1].buffer + 8);

		*there = 10;
		assert_success(snt_op_post(qp, &op,
					   &(struct snt_send_wr){
						   .opcode = SNT_OP_FETCH_ADD,
						   .sge = &result,
						   .sge_count = 1,
						   .remote = token,
						   .remote_addr = token->addr + 8,
						   .compare_add = 5 }));
		loop_pair_settle(pair);
		assert_int_equal(op.result, 0);
		assert_int_equal(op.old, 10);
		assert_int_equal(*there, 15);
		assert_success(snt_op_post(qp, &op,
					   &(struct snt_send_wr){
						   .opcode = SNT_OP_CMP_SWAP,
						   .sge = &result,
						   .sge_count = 1,
						   .remote = token,
						   .remote_addr = token->addr + 8,
						   .compare_add = 15,
						   .swap = 99 }));
		loop_pair_settle(pair);
		assert_int_equal(op.old, 15);
		assert_int_equal(*there, 99);
		assert_success(snt_op_post(qp, &op,
					   &(struct snt_send_wr){
						   .opcode = SNT_OP_CMP_SWAP,
						   .sge = &result,
						   .sge_count = 1,
						   .remote = token,
						   .remote_addr = token->addr + 8,
						   .compare_add = 15,
						   .swap = 1 }));
		loop_pair_settle(pair);
		assert_int_equal(op.old, 99);
		assert_int_equal(*there, 99);
		loop_pair_close(pair);
	}
}

#define MANY 150

static void batch_has_a_result_each(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_pair *pair = open_kind(kind);
		static struct snt_op op[MANY];
		struct snt_op *ops[MANY];
		struct snt_send_wr wr[MANY];
		struct snt_sge sge[MANY];
		const struct snt_token *token = &pair->end[1].token;
		int taken;

		memset(op, 0, sizeof(op));
		for (int i = 0; i < MANY; i++) {
			op[i].done = loop_done;
			ops[i] = &op[i];
			sge[i] = loop_sge(pair, 0, i * 8, 8);
			wr[i] = (struct snt_send_wr){ .wr_id = 12345,
						      .opcode = SNT_OP_WRITE,
						      .sge_count = 1,
						      .sge = &sge[i],
						      .remote = token,
						      .remote_addr =
							      token->addr + i * 8 };
			pair->end[0].buffer[i * 8] = i + 1;
		}
		/* The 40th is malformed: the rest is not taken. */
		wr[40].opcode = 99;
		taken = snt_op_post_batch(pair->end[0].qp, ops, wr, MANY);
		assert_int_equal(taken, 40);
		assert_int_equal(snt_op_pending(&op[39]), 1);
		assert_int_equal(snt_op_pending(&op[40]), 0);
		assert_error(snt_op_post_batch(pair->end[0].qp, ops + 39, wr + 39, 1),
			     EALREADY, "in use");
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 40);
		for (int i = 0; i < 40; i++)
			assert_ptr_equal(loop_done_log[i], &op[i]);
		wr[40].opcode = SNT_OP_WRITE;
		taken = snt_op_post_batch(pair->end[0].qp, ops, wr, MANY);
		assert_int_equal(taken, kind == 0 ? 128 : 64); /* the QP's depth */
		assert_int_equal(snt_op_post_batch(pair->end[0].qp, ops + taken,
						   wr + taken, 1),
				 -EAGAIN);
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, 40 + taken);
		for (int i = 0; i < taken; i++)
			assert_int_equal(pair->end[1].buffer[i * 8], i + 1);
		loop_pair_close(pair);
	}
}

static void batch_rings_few_doorbells(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op[16] = { 0 }, *ops[16];
	struct snt_send_wr wr[16];
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	uint64_t before;

	(void)state;
	for (int i = 0; i < 16; i++) {
		ops[i] = &op[i];
		wr[i] = (struct snt_send_wr){ .opcode = SNT_OP_WRITE,
					      .sge_count = 1,
					      .sge = &sge,
					      .remote = &pair->end[1].token,
					      .remote_addr = pair->end[1].token.addr };
	}
	before = scripted_counters(pair->end[0].device[0]).send_calls;
	assert_int_equal(snt_op_post_batch(pair->end[0].qp, ops, wr, 16), 16);
	assert_int_equal(scripted_counters(pair->end[0].device[0]).send_calls,
			 before + 1);
	loop_pair_settle(pair);
	loop_pair_close(pair);
}

static void batch_of_receives(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op[4] = { { .done = loop_done },
				{ .done = loop_done },
				{ .done = loop_done },
				{ .done = loop_done } };
	struct snt_op *ops[4] = { &op[0], &op[1], &op[2], &op[0] };
	struct snt_sge sge = loop_sge(pair, 1, 0, 64);
	struct snt_recv_wr wr[4] = { { .sge = &sge, .sge_count = 1 },
				     { .sge = &sge, .sge_count = 1 },
				     { .sge = &sge, .sge_count = 1 },
				     { .sge = &sge, .sge_count = 1 } };
	struct snt_op send = { 0 };
	struct snt_sge from = loop_sge(pair, 0, 0, 64);

	(void)state;
	assert_int_equal(snt_op_post_recv_batch(pair->end[1].qp, ops, wr, 4), 3);
	for (int i = 0; i < 3; i++) {
		assert_success(snt_op_send(pair->end[0].qp, &send, &from));
		loop_pair_settle(pair);
		assert_int_equal(loop_done_count, i + 1);
		assert_ptr_equal(loop_done_log[i], &op[i]);
	}
	loop_pair_close(pair);
}

static void statuses_are_errnos(void **state)
{
	static const struct {
		enum ibv_wc_status status;
		int error;
	} cases[] = {
		{ IBV_WC_RETRY_EXC_ERR, -EHOSTUNREACH },
		{ IBV_WC_RNR_RETRY_EXC_ERR, -ENOBUFS },
		{ IBV_WC_REM_ACCESS_ERR, -EACCES },
		{ IBV_WC_LOC_PROT_ERR, -EACCES },
		{ IBV_WC_LOC_LEN_ERR, -EMSGSIZE },
		{ IBV_WC_REM_OP_ERR, -EREMOTEIO },
		{ IBV_WC_BAD_RESP_ERR, -EPROTO },
		{ IBV_WC_FATAL_ERR, -EIO },
		{ IBV_WC_WR_FLUSH_ERR, -ESHUTDOWN },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct loop_pair *pair = loop_pair_simple();
		struct snt_op first = { .done = loop_done },
			      second = { .done = loop_done };
		struct ibv_qp *lane = scripted_qp_at(pair->end[0].device[0], 0);

		assert_success(loop_write(pair, 0, &first, 0, 8));
		assert_success(loop_write(pair, 0, &second, 0, 8));
		assert_int_equal(scripted_complete(lane, cases[i].status), 0);
		assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 2);
		assert_int_equal(first.result, cases[i].error);
		assert_int_equal(first.wc.status, cases[i].status);
		assert_int_equal(first.wc.opcode, SNT_OP_WRITE);
		assert_int_equal(second.result, -ESHUTDOWN);
		assert_int_equal(loop_write(pair, 0, &first, 0, 8), -ESHUTDOWN);
		assert_int_equal(snt_op_pending(&first), 0);
		loop_pair_close(pair);
	}
}

static void refused_ops_are_untouched(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done, .result = 42 }, copy;
	struct snt_sge outside = loop_sge(pair, 0, LOOP_BUFFER, 8);
	struct snt_sge inside = loop_sge(pair, 0, 0, 8);

	(void)state;
	memcpy(&copy, &op, sizeof(op));
	assert_int_equal(snt_op_send(pair->end[0].qp, &op, &outside), -ERANGE);
	/* Numbers whose lower bits would do. */
	assert_int_equal(snt_op_post(pair->end[0].qp, &op,
				     &(struct snt_send_wr){ .opcode = SNT_OP_SEND,
							    .flags = 128,
							    .sge = &inside,
							    .sge_count = 1 }),
			 -EINVAL);
	assert_memory_equal(&copy, &op, sizeof(op));
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_error(loop_write(pair, 0, &op, 0, 8), EALREADY, "in use");
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	loop_pair_close(pair);
}

static void polling_and_posting_belong_to_the_ops(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	struct snt_wc wc;
	struct snt_send_wr send = { 0 };
	struct snt_recv_wr recv = { 0 };

	(void)state;
	assert_error(snt_cq_poll(end->cq, &wc, 1), EINVAL, "snt_cq_opts.ops");
	assert_error(snt_cq_poll_one(end->cq, &wc), EINVAL, "snt_cq_opts.ops");
	assert_error(snt_cq_poll_index(end->cq, 0, &wc, 1), EINVAL, "snt_cq_opts.ops");
	assert_error(snt_qp_post_send(end->qp, &send, 1), EINVAL, "post ops");
	assert_error(snt_qp_post_recv(end->qp, &recv, 1), EINVAL, "post ops");
	assert_error(snt_qp_close(end->qp, 1), EINVAL, "post ops");
	assert_error(snt_cq_set_ready_handler(end->cq, NULL, NULL), EINVAL, "has ops");
	loop_pair_close(pair);
	pair = loop_pair_open(&(struct loop_opts){ .events = 1 });
	{
		struct snt_op op = { 0 };

		assert_error(loop_write(pair, 0, &op, 0, 8), EINVAL, "snt_cq_opts.ops");
		assert_error(snt_op_recv(pair->end[0].qp, &op, NULL), EINVAL,
			     "snt_cq_opts.ops");
		assert_error(snt_op_close(pair->end[0].qp, &op), EINVAL,
			     "snt_cq_opts.ops");
	}
	loop_pair_close(pair);
}

static struct loop_pair *current;
static unsigned again;

static void post_again(struct snt_op *op)
{
	loop_done(op);
	if (again && again--)
		assert_success(loop_write(current, 0, op, 0, 8));
}

static void callbacks_may_post_the_same_op(void **state)
{
	struct loop_pair *pair = current = loop_pair_simple();
	struct snt_op op = { .done = post_again };

	(void)state;
	again = 10;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 11);
	loop_pair_close(pair);
}

static void try_everything(struct snt_op *op)
{
	struct snt_loop *loop = op->arg;

	loop_done(op);
	assert_error(snt_loop_dispatch(loop, 0), EBUSY, "callbacks cannot");
	assert_error(snt_loop_poll(loop, 0), EBUSY, "callbacks cannot");
	assert_error(snt_loop_wait(loop, 0), EBUSY, "callbacks cannot");
	assert_int_equal(snt_loop_wake(loop), 0);
	assert_success(snt_loop_timeout(loop));
}

static void callbacks_cannot_dispatch(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = try_everything, .arg = pair->end[0].loop };

	(void)state;
	assert_success(snt_loop_fd(pair->end[0].loop));
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	loop_pair_close(pair);
}

static void wait_for_it_in_vain(struct snt_op *op)
{
	struct snt_op *other = op->arg;

	loop_done(op);
	assert_error(snt_op_wait(other, 0), EBUSY, "callbacks cannot");
	assert_int_equal(snt_op_pending(other), 1);
}

static void callbacks_cannot_wait(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op other = { .done = loop_done };
	struct snt_op op = { .done = wait_for_it_in_vain, .arg = &other };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(loop_write(pair, 0, &other, 0, 8));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	loop_pair_close(pair);
}

/* One that tries to does not take the op away from the waiting thread. */
static void a_wait_in_vain_harms_no_other(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op other = { .done = loop_done };
	struct snt_op op = { .done = wait_for_it_in_vain, .arg = &other };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	assert_success(loop_write(pair, 0, &other, 0, 8));
	loop_pair_run(pair);
	assert_int_equal(snt_op_wait(&other, 0), 0);
	assert_int_equal(loop_done_count, 2);
	loop_pair_close(pair);
}

/* The QP, its CQ, its memory, its loop and its context, all of them in the last
 * callback. */
static void end_it_all(struct snt_op *op)
{
	struct loop_end *end = op->arg;

	loop_done(op);
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_ctx_destroy(end->ctx));
	free(end->buffer);
	end->ctx = NULL;
}

static void close_in_callbacks(bool with_fd, bool waits)
{
	struct loop_pair *pair = loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS);
	struct loop_end *end = &pair->end[0];
	struct snt_op op[3] = { { .done = loop_done }, { .done = loop_done } };
	struct snt_sge sge = loop_sge(pair, 0, 0, 64);

	op[2] = (struct snt_op){ .done = end_it_all, .arg = end };
	if (with_fd)
		assert_success(snt_loop_fd(end->loop));
	assert_success(snt_op_recv(end->qp, &op[0], &sge));
	assert_success(loop_write(pair, 0, &op[1], 0, 3000));
	assert_success(snt_op_close(end->qp, &op[2]));
	for (int i = 0; end->ctx && i < 100; i++) {
		loop_pair_run(pair);
		if (waits)
			assert_success(snt_loop_wait(end->loop, 0));
		else
			assert_success(snt_loop_dispatch(end->loop, 0));
	}
	assert_null(end->ctx);
	assert_int_equal(loop_done_count, 3);
	assert_ptr_equal(loop_done_log[2], &op[2]);
	assert_int_equal(op[0].result, -ESHUTDOWN);
	/* The other end as usual. */
	pair->end[0] = pair->end[1];
	{
		struct loop_end *other = &pair->end[1];
		struct snt_op last = { .done = loop_done };

		assert_success(snt_op_close(other->qp, &last));
		for (int i = 0; snt_op_pending(&last) && i < 100; i++) {
			loop_pair_run(pair);
			assert_success(snt_loop_dispatch(other->loop, 0));
		}
		assert_success(snt_qp_destroy(other->qp));
		assert_success(snt_cq_destroy(other->cq));
		assert_success(snt_mem_release(other->mem));
		assert_success(snt_loop_destroy(other->loop));
		assert_success(snt_ctx_destroy(other->ctx));
		free(other->buffer);
	}
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

static void callbacks_may_destroy_everything(void **state)
{
	(void)state;
	close_in_callbacks(false, false);
	close_in_callbacks(true, false);
	close_in_callbacks(true, true);
}

/* Two QPs on one CQ have finished; the callback of one destroys the other and the
 * CQ. */
static struct snt_qp *both[2];

static void destroy_both(struct snt_op *op)
{
	loop_done(op);
	for (int i = 0; i < 2; i++) {
		if (both[i])
			assert_success(snt_qp_destroy(both[i]));
		both[i] = NULL;
	}
	if (current->end[0].cq)
		assert_success(snt_cq_destroy(current->end[0].cq));
	current->end[0].cq = NULL;
}

static void finished_ops_get_their_callback(void **state)
{
	struct loop_pair *pair = current = loop_pair_simple();
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_qp *added[2];
	struct snt_op op[2] = { { .done = destroy_both }, { .done = destroy_both } };
	struct snt_op last = { .done = loop_done };

	(void)state;
	loop_pair_add(pair, &opts, added);
	assert_success(snt_loop_fd(pair->end[0].loop));
	both[0] = pair->end[0].qp;
	both[1] = added[0];
	assert_success(snt_op_close(both[0], &op[0]));
	assert_success(snt_op_close(both[1], &op[1]));
	loop_pair_run(pair);
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 2);
	assert_int_equal(loop_done_count, 2);
	assert_null(pair->end[0].cq);
	pair->end[0].qp = NULL;
	assert_success(snt_op_close(added[1], &last));
	loop_pair_settle(pair);
	assert_success(snt_qp_destroy(added[1]));
	loop_pair_close(pair);
}

static void early_receives_end_with_their_qp(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		struct loop_opts opts = {
			.ops = SNT_CQ_OPS_EVENTS,
			.unconnected = true,
			.qp = { .lanes = kind ? 2 : 1,
				.scheme = kind == 2 ? SNT_SCHEME_DQPLB
						    : SNT_SCHEME_SPRAY }
		};
		struct loop_pair *pair = loop_pair_open(&opts);
		struct loop_end *end = &pair->end[0];
		struct snt_op op[3] = { { .done = loop_done },
					{ .done = loop_done },
					{ .done = loop_done } };
		struct snt_sge sge = loop_sge(pair, 0, 0, 64);

		for (int i = 0; i < 3; i++)
			assert_success(snt_op_recv(end->qp, &op[i], &sge));
		if (kind == 1)
			assert_success(snt_qp_reset(end->qp));
		assert_success(snt_qp_destroy(end->qp));
		end->qp = NULL;
		assert_int_equal(loop_done_count, 0);
		assert_success(snt_cq_destroy(end->cq));
		end->cq = NULL;
		assert_success(snt_mem_release(end->mem));
		end->mem = NULL;
		assert_error(snt_loop_destroy(end->loop), EBUSY, "dispatch before");
		assert_int_equal(snt_loop_dispatch(end->loop, 0), 3);
		for (int i = 0; i < 3; i++)
			assert_int_equal(op[i].result, -ECANCELED);
		loop_pair_close(pair);
	}
}

/* It may be waited for when its QP is no more. */
static void an_early_receive_outlives_its_qp(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .unconnected = true };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_sge sge = loop_sge(pair, 0, 0, 64);
	struct snt_op op = { 0 };

	(void)state;
	assert_success(snt_op_recv(pair->end[0].qp, &op, &sge));
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	assert_int_equal(snt_op_wait(&op, -1), -ECANCELED);
	loop_pair_close(pair);
}

/* What a device refuses it may have taken, so all that it has is forgotten. */
static void a_refused_receive_ends_those_before_it(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .unconnected = true };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct loop_end *end = &pair->end[0];
	struct snt_op op[3] = { { .done = loop_done },
				{ .done = loop_done },
				{ .done = loop_done } };
	struct snt_sge sge = loop_sge(pair, 0, 0, 64);
	struct scripted_post_fault fault = { .kind = SCRIPTED_POST_RECV,
					     .nth = 3,
					     .error = EIO };

	(void)state;
	scripted_fail_post(end->device[0], &fault);
	for (int i = 0; i < 2; i++)
		assert_success(snt_op_recv(end->qp, &op[i], &sge));
	assert_error(snt_op_recv(end->qp, &op[2], &sge), EIO, "forgotten");
	assert_int_equal(snt_op_pending(&op[2]), 0);
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 2);
	assert_int_equal(op[0].result, -ECANCELED);
	assert_int_equal(op[1].result, -ECANCELED);
	/* And it goes on. */
	assert_success(snt_op_recv(end->qp, &op[2], &sge));
	assert_success(snt_qp_destroy(end->qp));
	end->qp = NULL;
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 1);
	loop_pair_close(pair);
}

static void early_receives_work_once_connected(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .unconnected = true };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_op recv[2] = { { .done = loop_done }, { .done = loop_done } };
	struct snt_op send = { .done = loop_done };
	struct snt_sge to = loop_sge(pair, 1, 0, 64), from = loop_sge(pair, 0, 0, 64);
	struct snt_card card[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_success(snt_op_recv(pair->end[1].qp, &recv[i], &to));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(pair->end[i].qp, &card[!i]));
	assert_success(snt_op_send(pair->end[0].qp, &send, &from));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	assert_int_equal(recv[0].result, 0);
	assert_int_equal(snt_op_pending(&recv[1]), 1);
	loop_pair_close(pair);
	assert_int_equal(recv[1].result, -ESHUTDOWN);
}

static void without_events_ops_are_polled(void **state)
{
	unsigned fds = count_fds();
	struct loop_pair *pair = loop_pair_open(
		&(struct loop_opts){ .ops = SNT_CQ_OPS_POLLED, .devices = 1 });
	unsigned open_fds = count_fds();
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_int_equal(snt_loop_poll(pair->end[0].loop, 0), 0);
	loop_pair_run(pair);
	assert_int_equal(snt_loop_poll(pair->end[0].loop, 0), 1);
	/* Waiting is to look, then. */
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_int_equal(snt_op_wait(&op, 0), -ETIME);
	assert_int_equal(snt_op_wait(&op, 1000000), -ETIME);
	loop_pair_run(pair);
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_int_equal(count_fds(), open_fds);
	assert_int_equal(scripted_live(pair->end[0].device[0], SCRIPTED_CHANNEL), 0);
	/* With an fd, for something else, dispatch serves them as well. */
	assert_success(snt_loop_fd(pair->end[0].loop));
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_run(pair);
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 0);
	assert_false(loop_readable(pair->end[0].loop));
	assert_int_equal(snt_loop_wake(pair->end[0].loop), 0);
	assert_int_equal(snt_loop_wait(pair->end[0].loop, -1), 0);
	loop_pair_close(pair);
	assert_int_equal(count_fds(), fds);
}

/* Sends are ops, receives are polled. */
static void the_two_cqs_of_a_qp_may_differ(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[1];
	struct snt_cq *polled;
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_qp *qp[2];
	struct snt_op op = { .done = loop_done }, close[2] = { { 0 } };
	struct snt_sge to = loop_sge(pair, 1, 0, 64), from = loop_sge(pair, 0, 0, 64);
	struct snt_recv_wr recv = { .wr_id = 5, .sge = &to, .sge_count = 1 };
	struct snt_card card[2];
	struct snt_wc wc;

	(void)state;
	assert_success(snt_cq_create(end->ctx, NULL, &polled));
	opts.cq = pair->end[0].cq;
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &qp[0]));
	opts.cq = end->cq;
	opts.recv_cq = polled;
	assert_success(snt_qp_create(end->ctx, &opts, &qp[1]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(qp[i], &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(qp[i], &card[!i]));
	assert_int_equal(snt_qp_post_recv(qp[1], &recv, 1), 1);
	assert_error(snt_op_recv(qp[1], &op, &to), EINVAL, "snt_cq_opts.ops");
	assert_success(snt_op_send(qp[0], &op, &from));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(snt_cq_poll(polled, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 5);
	for (int i = 0; i < 2; i++)
		assert_success(snt_op_close(qp[i], &close[i]));
	for (int i = 0; i < 100 && snt_op_pending(&close[1]); i++) {
		loop_pair_settle(pair);
		assert_success(snt_cq_poll(polled, &wc, 1));
	}
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_destroy(qp[i]));
	assert_success(snt_cq_destroy(polled));
	loop_pair_close(pair);
}

static void waiting_makes_a_blocking_call(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { 0 }, other = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(loop_write(pair, 0, &other, 0, 8));
	assert_int_equal(snt_op_wait(&op, 0), -ETIME);
	assert_int_equal(snt_op_wait(&op, 1000000), -ETIME);
	assert_int_equal(snt_op_pending(&op), 1);
	loop_pair_run(pair);
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_int_equal(snt_op_wait(&other, -1), 0);
	assert_int_equal(loop_done_count, 1);
	scripted_complete(scripted_qp_at(pair->end[0].device[0], 0), IBV_WC_SUCCESS);
	assert_success(loop_write(pair, 0, &op, 0, 8));
	scripted_complete(scripted_qp_at(pair->end[0].device[0], 0),
			  IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(snt_op_wait(&op, -1), -EHOSTUNREACH);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(write_and_read),
		cmocka_unit_test(write_with_notification),
		cmocka_unit_test(atomics_tell_what_was_there),
		cmocka_unit_test(batch_has_a_result_each),
		cmocka_unit_test(batch_rings_few_doorbells),
		cmocka_unit_test(batch_of_receives),
		cmocka_unit_test(statuses_are_errnos),
		cmocka_unit_test(refused_ops_are_untouched),
		cmocka_unit_test(polling_and_posting_belong_to_the_ops),
		cmocka_unit_test(callbacks_may_post_the_same_op),
		cmocka_unit_test(callbacks_cannot_dispatch),
		cmocka_unit_test(callbacks_cannot_wait),
		cmocka_unit_test(a_wait_in_vain_harms_no_other),
		cmocka_unit_test(callbacks_may_destroy_everything),
		cmocka_unit_test(finished_ops_get_their_callback),
		cmocka_unit_test(early_receives_end_with_their_qp),
		cmocka_unit_test(an_early_receive_outlives_its_qp),
		cmocka_unit_test(a_refused_receive_ends_those_before_it),
		cmocka_unit_test(early_receives_work_once_connected),
		cmocka_unit_test(without_events_ops_are_polled),
		cmocka_unit_test(the_two_cqs_of_a_qp_may_differ),
		cmocka_unit_test(waiting_makes_a_blocking_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
