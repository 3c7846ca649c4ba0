/* SPDX-License-Identifier: MIT */
/* How ops ended, in words, and what snt_op_wait() leaves in snt_err_text(). */
#include "lib/test.h"

#include "lib/loop_kit.h"

static void assert_phrase(const char *text, const char *phrase)
{
	if (strstr(text, phrase))
		return;
	print_error("\"%s\" is not in \"%s\"\n", phrase, text);
	fail();
}

static struct ibv_qp *lane_qp(struct loop_pair *pair, unsigned lane)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query_lane(pair->end[0].qp, lane, &info));
	return info.qp;
}

static void an_op_in_each_state(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_phrase(snt_op_text(&op), "never posted");
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_phrase(snt_op_text(&op), "in use");
	loop_pair_settle(pair);
	assert_phrase(snt_op_text(&op), "WRITE succeeded");
	loop_pair_close(pair);
}

/* A pass-through lane does not know what failed; its op does. */
static void a_failed_op(void **state)
{
	(void)state;
	for (int lanes = 0; lanes < 2; lanes++) {
		struct loop_pair *pair =
			lanes ? loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS)
			      : loop_pair_simple();
		struct snt_op op = { .done = loop_done };

		assert_success(loop_write(pair, 0, &op, 0, 8));
		assert_int_equal(scripted_complete(lane_qp(pair, 0),
						   IBV_WC_REM_ACCESS_ERR),
				 0);
		loop_pair_settle(pair);
		assert_int_equal(op.result, -EACCES);
		assert_phrase(snt_op_text(&op), "WRITE failed on lane 0");
		assert_phrase(snt_op_text(&op), "REM_ACCESS_ERR");
		assert_error(snt_op_wait(&op, 0), EACCES, "REM_ACCESS_ERR");
		loop_pair_close(pair);
	}
}

/* The callback uses the op for something else before the wait returns. */
static void post_again(struct snt_op *op)
{
	op->done = loop_done;
	assert_error(loop_write(op->arg, 0, op, 0, 8), ESHUTDOWN, "QP");
}

static void a_wait_tells_what_its_op_did(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = post_again, .arg = pair };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_error(snt_op_wait(&op, 0), ETIME, "timed out");
	assert_int_equal(scripted_complete(lane_qp(pair, 0), IBV_WC_RETRY_EXC_ERR), 0);
	assert_error(snt_op_wait(&op, -1), EHOSTUNREACH, "RETRY_EXC_ERR");
	loop_pair_close(pair);
}

static void cancelled(void **state)
{
	struct loop_opts opts = {
		.ops = SNT_CQ_OPS_EVENTS,
		.qp = { .lanes = 2, .fragment_size = 256, .lane_depth = 1 }
	};
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_op sent = { .done = loop_done }, waits = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &sent, 0, 512));
	assert_success(loop_write(pair, 0, &waits, 512, 512));
	assert_success(snt_op_cancel(&sent, SNT_CANCEL_DETACH));
	assert_success(snt_op_cancel(&waits, SNT_CANCEL_DETACH));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	assert_phrase(snt_op_text(&sent),
		      "WRITE was cancelled; it took effect all the same");
	assert_phrase(snt_op_text(&waits), "WRITE was cancelled; it had no effect");
	/* Nothing may be taken for a success that was none. */
	assert_int_equal(sent.wc.status, SNT_WC_SUCCESS);
	assert_int_equal(waits.wc.status, SNT_WC_FLUSHED);
	loop_pair_close(pair);
}

/* No message has taken it, so that there is no QP to name. */
static void a_shared_receive_that_was_left(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_srq_opts opts = SNT_INIT(opts, .cq = pair->end[0].cq);
	struct snt_op op = { .done = loop_done };
	struct snt_srq *srq;

	(void)state;
	assert_success(snt_srq_create(pair->end[0].ctx, &opts, &srq));
	assert_success(snt_op_post_srq_recv(srq, &op, &(struct snt_recv_wr){ 0 }));
	assert_success(snt_srq_destroy(srq));
	loop_pair_settle(pair);
	assert_int_equal(op.result, -ECANCELED);
	assert_string_equal(snt_op_text(&op), "shared receive queue: RECV_NOTIFY was "
					      "cancelled; it had no effect");
	loop_pair_close(pair);
}

static void cancelled_and_failed(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_op op = { .done = loop_done };

	(void)state;
	assert_success(loop_write(pair, 0, &op, 0, 8));
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	assert_int_equal(scripted_complete(lane_qp(pair, 0), IBV_WC_RETRY_EXC_ERR), 0);
	loop_pair_settle(pair);
	assert_phrase(snt_op_text(&op), "whether it took effect is not known");
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_op_in_each_state),
		cmocka_unit_test(a_failed_op),
		cmocka_unit_test(a_wait_tells_what_its_op_did),
		cmocka_unit_test(cancelled),
		cmocka_unit_test(a_shared_receive_that_was_left),
		cmocka_unit_test(cancelled_and_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
