/* SPDX-License-Identifier: MIT */
/*
 * Ops with a second function: `done` comes at the deadline or cancellation, `released`
 * when op and memory are the program's again. And the closing of a QP, which is given up
 * and joined again.
 */
#include "lib/test.h"

#include "lib/loop_kit.h"

static uint64_t now_ns;

static uint64_t virtual_clock(void *arg)
{
	(void)arg;
	return now_ns;
}

static unsigned released_count;
static struct snt_op *released_last;

static void released(struct snt_op *op)
{
	assert_int_equal(snt_op_pending(op), 0);
	released_count++;
	released_last = op;
}

static void told(struct snt_op *op)
{
	assert_int_equal(snt_op_pending(op), 1);
	loop_done(op);
}

/* @lanes: 1: a pass-through lane */
static struct loop_pair *open_pair(
	uint32_t lanes, bool unconnected,
	const struct snt_control *(*instrument)(const struct snt_adopted *adopted))
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .clock = virtual_clock,
				  .unconnected = unconnected,
				  .instrument = instrument,
				  .qp = { .lanes = lanes > 1 ? lanes : 0,
					  .fragment_size = 256 } };

	now_ns = 1000000;
	released_count = 0;
	released_last = NULL;
	return loop_pair_open(&opts);
}

static void dispatch(struct loop_pair *pair)
{
	for (int i = 0; i < 3; i++)
		assert_success(snt_loop_dispatch(pair->end[0].loop, 0));
}

static void expect(unsigned done, unsigned let_go)
{
	assert_int_equal(loop_done_count, done);
	assert_int_equal(released_count, let_go);
}

/* A receive for which no message comes for a long time. */
static void a_deadline_is_told_at_the_deadline(void **state)
{
	struct loop_pair *pair = open_pair(1, false, NULL);
	struct snt_op recv = { .done = told, .released = released }, send = { 0 };
	struct snt_sge to = loop_sge(pair, 0, 0, 64), from = loop_sge(pair, 1, 0, 33);

	(void)state;
	assert_success(snt_op_recv(pair->end[0].qp, &recv, &to));
	assert_success(snt_op_timeout(&recv, 1000, SNT_CANCEL_DETACH));
	now_ns += 999;
	dispatch(pair);
	expect(0, 0);
	now_ns += 1;
	dispatch(pair);
	expect(1, 0);
	assert_int_equal(recv.result, -ETIMEDOUT);
	assert_int_equal(recv.wc.opcode, SNT_OP_RECV);
	assert_int_equal(recv.wc.status, SNT_WC_FLUSHED);
	assert_non_null(strstr(snt_op_text(&recv), "a device still has it"));
	assert_error(snt_op_wait(&recv, -1), ETIMEDOUT, "RECV timed out");
	assert_error(snt_op_recv(pair->end[0].qp, &recv, &to), EALREADY, "in use");
	assert_error(snt_op_timeout(&recv, 1, SNT_CANCEL_DETACH), EALREADY, "before");
	assert_success(snt_op_send(pair->end[1].qp, &send, &from));
	loop_pair_settle(pair);
	expect(1, 1);
	assert_ptr_equal(released_last, &recv);
	assert_int_equal(recv.result, -ETIMEDOUT);
	assert_int_equal(recv.wc.status, SNT_WC_SUCCESS);
	assert_int_equal(recv.wc.length, 33);
	assert_non_null(strstr(snt_op_text(&recv), "took effect all the same"));
	/* And from the beginning. */
	assert_success(snt_op_recv(pair->end[0].qp, &recv, &to));
	assert_success(snt_op_send(pair->end[1].qp, &send, &from));
	loop_pair_settle(pair);
	expect(2, 2);
	assert_int_equal(recv.result, 0);
	loop_pair_close(pair);
}

static void a_wait_ends_at_the_deadline(void **state)
{
	struct loop_pair *pair = open_pair(1, false, NULL);
	struct snt_op op = { .released = released };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_timeout(&op, 1000, SNT_CANCEL_DETACH));
	now_ns += 1000;
	assert_error(snt_op_wait(&op, -1), ETIMEDOUT, "a device still has it");
	assert_int_equal(snt_op_pending(&op), 1);
	assert_int_equal(released_count, 0);
	loop_pair_settle(pair);
	assert_int_equal(released_count, 1);
	loop_pair_close(pair);
}

static void a_cancellation_is_told_in_the_next_dispatch(void **state)
{
	(void)state;
	for (uint32_t lanes = 1; lanes <= 2; lanes++) {
		struct loop_pair *pair = open_pair(lanes, false, NULL);
		struct snt_op op = { .done = told, .released = released };

		assert_success(loop_write(pair, 0, &op, 0, 8));
		assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
		expect(0, 0);
		assert_error(snt_op_cancel(&op, SNT_CANCEL_DETACH), EALREADY, "before");
		dispatch(pair);
		expect(1, 0);
		assert_int_equal(op.result, -ECANCELED);
		/* In a hurry after all; it has been told. */
		assert_success(snt_op_cancel(&op, SNT_CANCEL_ABORT));
		loop_pair_settle(pair);
		expect(1, 1);
		assert_int_equal(op.result, -ECANCELED);
		loop_pair_close(pair);
	}
}

/* Between the cancellation and the dispatch that would tell. */
static void a_completion_may_come_before_the_cancellation_is_told(void **state)
{
	struct loop_pair *pair = open_pair(1, false, NULL);
	struct snt_op op = { .done = told, .released = released };

	(void)state;
	for (unsigned i = 1; i < 3; i++) {
		assert_success(loop_write(pair, 0, &op, 0, 8));
		assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
		loop_pair_run(pair);
		/* One callback at a time, so that in one of the rounds its completion is
		 * taken first. */
		for (int turn = 0; turn < 6; turn++)
			assert_success(snt_loop_dispatch(pair->end[0].loop, 1));
		expect(i, i);
		assert_int_equal(op.result, -ECANCELED);
		assert_int_equal(op.wc.status, SNT_WC_SUCCESS);
	}
	loop_pair_close(pair);
}

static struct snt_qp *again_qp;
static struct snt_sge again_sge;
static const struct snt_token *again_token;
static unsigned agains;

static int post_again(struct snt_op *op)
{
	return snt_op_write(again_qp, op, &again_sge, again_token, again_token->addr);
}

static void told_too_early(struct snt_op *op)
{
	told(op);
	assert_error(post_again(op), EALREADY, "in use");
	assert_error(snt_op_cancel(op, SNT_CANCEL_ABORT), EALREADY, "before");
}

static void released_and_posted(struct snt_op *op)
{
	released(op);
	if (agains++ < 3)
		assert_success(post_again(op));
}

static void both_come_when_it_ends_by_itself(void **state)
{
	struct loop_pair *pair = open_pair(2, false, NULL);
	struct snt_op op = { .done = told_too_early, .released = released_and_posted };

	(void)state;
	again_qp = pair->end[0].qp;
	again_sge = loop_sge(pair, 0, 0, 64);
	again_token = &pair->end[1].token;
	agains = 0;
	assert_success(post_again(&op));
	loop_pair_settle(pair);
	expect(4, 4);
	assert_int_equal(op.result, 0);
	loop_pair_close(pair);
}

static void unsent_ops_are_released_at_once(void **state)
{
	struct loop_pair *pair = open_pair(2, false, NULL);
	struct snt_op first = { 0 }, op = { .done = told, .released = released };

	(void)state;
	assert_success(loop_write(pair, 0, &first, 0, 40 << 10));
	assert_success(snt_op_send(pair->end[0].qp, &op, NULL));
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	dispatch(pair);
	expect(1, 1);
	assert_non_null(strstr(snt_op_text(&op), "it had no effect"));
	loop_pair_settle(pair);
	expect(1, 1);
	loop_pair_close(pair);
}

static void an_aborted_op_is_told_at_once_too(void **state)
{
	struct loop_pair *pair = open_pair(2, false, NULL);
	struct snt_op op = { .done = told, .released = released };
	struct snt_op other = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(loop_write(pair, 0, &other, 0, 8));
	assert_success(snt_op_timeout(&op, 1000, SNT_CANCEL_ABORT));
	now_ns += 1000;
	dispatch(pair);
	loop_pair_settle(pair);
	expect(2, 1);
	assert_int_equal(op.result, -ETIMEDOUT);
	assert_int_equal(other.result, -ESHUTDOWN);
	loop_pair_close(pair);
}

/* Its place in the list of early receives is not that in the list of callbacks. */
static void an_early_receive_is_told_and_ends_with_its_qp(void **state)
{
	(void)state;
	for (int dispatched = 0; dispatched < 2; dispatched++) {
		struct loop_pair *pair = open_pair(1, true, NULL);
		struct snt_op op[3] = { { .done = told, .released = released },
					{ .done = told, .released = released },
					{ .done = told, .released = released } };
		struct snt_sge to = loop_sge(pair, 0, 0, 64);

		for (int i = 0; i < 3; i++)
			assert_success(snt_op_recv(pair->end[0].qp, &op[i], &to));
		assert_success(snt_op_cancel(&op[1], SNT_CANCEL_DETACH));
		if (dispatched) {
			dispatch(pair);
			expect(1, 0);
		}
		assert_success(snt_qp_destroy(pair->end[0].qp));
		pair->end[0].qp = NULL;
		dispatch(pair);
		expect(3, 3);
		for (int i = 0; i < 3; i++)
			assert_int_equal(op[i].result, -ECANCELED);
		loop_pair_close(pair);
	}
}

/* What no completion will end any more. */
static void an_op_of_a_dead_cq_is_released_when_it_is_cancelled_again(void **state)
{
	struct loop_pair *pair = open_pair(1, false, NULL);
	struct snt_op op = { .done = told, .released = released };
	struct snt_op close_op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	scripted_fail_poll(snt_cq_physical(pair->end[0].cq, 0, NULL), 1);
	loop_pair_run(pair);
	assert_error(snt_loop_dispatch(pair->end[0].loop, 0), EIO, "polled");
	assert_success(snt_op_close(pair->end[0].qp, &close_op));
	expect(1, 0);
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	assert_success(snt_op_cancel(&close_op, SNT_CANCEL_DETACH));
	assert_success(snt_loop_dispatch(pair->end[0].loop, 0));
	expect(2, 1);
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	loop_pair_close(pair);
}

/*
 * Closing
 */

/* A device that is slow to end its QPs. */
static const struct snt_control *real;
static struct ibv_qp *ending;
static bool slow;

static int modify_slowly(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (!slow || attr->qp_state != IBV_QPS_ERR)
		return real->modify_qp(qp, attr, mask);
	ending = qp;
	return 0;
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	static struct snt_control control;

	real = adopted->control;
	control = *real;
	control.modify_qp = modify_slowly;
	return &control;
}

static void end_at_last(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	slow = false;
	assert_success(real->modify_qp(ending, &attr, IBV_QP_STATE));
}

static struct loop_pair *open_slow(void)
{
	slow = true;
	return open_pair(1, false, instrument);
}

static void closing_has_a_deadline_and_can_be_joined_again(void **state)
{
	struct loop_pair *pair = open_slow();
	struct snt_op write = { 0 }, first = { .done = loop_done }, second = { 0 };
	struct snt_qp *qp = pair->end[0].qp;

	(void)state;
	assert_success(loop_write(pair, 0, &write, 0, 8));
	assert_success(snt_op_close(qp, &first));
	assert_success(snt_op_timeout(&first, 1000, SNT_CANCEL_ABORT));
	assert_error(snt_op_close(qp, &second), EALREADY, "being closed");
	now_ns += 1000;
	dispatch(pair);
	assert_int_equal(loop_done_count, 1);
	assert_int_equal(first.result, -ETIMEDOUT);
	assert_int_equal(snt_op_pending(&first), 0);
	assert_non_null(strstr(snt_op_text(&first), "closing goes on"));
	assert_error(snt_qp_destroy(qp), EBUSY, "poll until");
	assert_success(snt_op_close(qp, &second));
	assert_error(snt_op_close(qp, &first), EALREADY, "being closed");
	assert_error(snt_op_wait(&second, 0), ETIME, "timed out");
	end_at_last();
	assert_int_equal(snt_op_wait(&second, -1), 0);
	assert_int_equal(second.wc.opcode, SNT_OP_CLOSED);
	assert_int_equal(write.result, -ESHUTDOWN);
	assert_error(snt_op_close(qp, &first), EALREADY, "closed");
	assert_success(snt_qp_destroy(qp));
	pair->end[0].qp = NULL;
	loop_pair_close(pair);
}

/* It was closed when no op waited. */
static void closing_may_end_unwatched(void **state)
{
	struct loop_pair *pair = open_slow();
	struct snt_op op = { .done = told, .released = released };
	struct snt_qp *qp = pair->end[0].qp;

	(void)state;
	assert_success(snt_op_close(qp, &op));
	assert_error(snt_op_cancel(&op, SNT_CANCEL_ABORT), EOPNOTSUPP, "aborted");
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	expect(0, 0);
	dispatch(pair);
	expect(1, 1);
	assert_int_equal(op.result, -ECANCELED);
	memset(&op, 0, sizeof(op));
	end_at_last();
	dispatch(pair);
	op = (struct snt_op){ .done = told, .released = released };
	assert_success(snt_op_close(qp, &op));
	expect(1, 1);
	dispatch(pair);
	expect(2, 2);
	assert_int_equal(op.result, 0);
	assert_int_equal(op.wc.opcode, SNT_OP_CLOSED);
	assert_int_equal(op.wc.qp_num, snt_qp_num(qp));
	assert_error(snt_op_close(qp, &op), EALREADY, "closed");
	loop_pair_close(pair);
}

static struct snt_op *closer;

static void cancel_closer(struct snt_op *op)
{
	loop_done(op);
	assert_success(snt_op_cancel(closer, SNT_CANCEL_DETACH));
}

/* Both completions are polled by one call; the callback of one cancels the other. */
static void closing_may_be_cancelled_when_it_has_ended(void **state)
{
	struct loop_pair *pair = open_pair(1, false, NULL);
	struct snt_op write = { .done = cancel_closer },
		      close_op = { .done = loop_done };

	(void)state;
	closer = &close_op;
	assert_success(loop_write(pair, 0, &write, 0, 8));
	assert_success(snt_op_close(pair->end[0].qp, &close_op));
	dispatch(pair);
	assert_int_equal(loop_done_count, 2);
	assert_int_equal(close_op.result, -ECANCELED);
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	loop_pair_close(pair);
}

/* An op that was reported as cancelled no longer has a deadline, which would break the QP. */
static void deadline_ends_with_the_report(void **state)
{
	struct loop_pair *pair = open_pair(2, false, NULL);
	struct snt_op op = { .done = told, .released = released };
	struct snt_qp_info info = SNT_INIT(info);

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_timeout(&op, 1000, SNT_CANCEL_ABORT));
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	dispatch(pair);
	expect(1, 0);
	now_ns += 1000;
	dispatch(pair);
	assert_success(snt_qp_query(pair->end[0].qp, &info));
	assert_int_equal(info.state, SNT_QP_CONNECTED);
	loop_pair_settle(pair);
	loop_pair_close(pair);
}

static struct snt_op *abandoned[3];
static unsigned abandoned_count;

static void note_abandoned(struct snt_op *op)
{
	abandoned[abandoned_count++] = op;
}

/* Of a QP that was never connected, and is gone by then: cancelling looks at the op alone. */
static void receives_end_in_posting_order(void **state)
{
	struct loop_pair *pair = open_pair(1, true, NULL);
	struct snt_op op[3] = { { .done = note_abandoned },
				{ .done = note_abandoned },
				{ .done = note_abandoned } };
	struct snt_sge to = loop_sge(pair, 0, 0, 64);

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_success(snt_op_recv(pair->end[0].qp, &op[i], &to));
	assert_success(snt_qp_destroy(pair->end[0].qp));
	pair->end[0].qp = NULL;
	assert_error(snt_op_cancel(&op[1], SNT_CANCEL_DETACH), EALREADY, "");
	dispatch(pair);
	assert_int_equal(abandoned_count, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_ptr_equal(abandoned[i], &op[i]);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_deadline_is_told_at_the_deadline),
		cmocka_unit_test(a_wait_ends_at_the_deadline),
		cmocka_unit_test(a_cancellation_is_told_in_the_next_dispatch),
		cmocka_unit_test(a_completion_may_come_before_the_cancellation_is_told),
		cmocka_unit_test(both_come_when_it_ends_by_itself),
		cmocka_unit_test(unsent_ops_are_released_at_once),
		cmocka_unit_test(an_aborted_op_is_told_at_once_too),
		cmocka_unit_test(an_early_receive_is_told_and_ends_with_its_qp),
		cmocka_unit_test(
			an_op_of_a_dead_cq_is_released_when_it_is_cancelled_again),
		cmocka_unit_test(closing_has_a_deadline_and_can_be_joined_again),
		cmocka_unit_test(closing_may_end_unwatched),
		cmocka_unit_test(closing_may_be_cancelled_when_it_has_ended),
		cmocka_unit_test(deadline_ends_with_the_report),
		cmocka_unit_test(receives_end_in_posting_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
