/* SPDX-License-Identifier: MIT */
#include "lib/test.h"

#include <stdlib.h>

#include "lib/loop_kit.h"

/*
 * Opening and closing loops, and several of them in one context.
 */

static void options_are_checked(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct snt_loop_opts opts = { .size = sizeof(opts) };
	struct snt_loop *loop;

	(void)state;
	opts.spin_ns = SNT_SPIN_AUTO - 1;
	assert_error(snt_loop_create(pair->end[0].ctx, &opts, &loop), EINVAL, "spin");
	opts.spin_ns = 1000000001;
	assert_error(snt_loop_create(pair->end[0].ctx, &opts, &loop), EINVAL, "spin");
	opts.spin_ns = SNT_SPIN_AUTO;
	assert_success(snt_loop_create(pair->end[0].ctx, &opts, &loop));
	assert_ptr_equal(snt_loop_ctx(loop), pair->end[0].ctx);
	assert_success(snt_loop_destroy(loop));
	assert_success(snt_loop_destroy(NULL));
	loop_pair_close(pair);
}

static void the_environment_says_how_long_to_spin(void **state)
{
	static const char *const good[] = { "auto", "5000", "0" };
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct snt_loop_opts opts = { .size = sizeof(opts), .spin_ns = 5000 };
	struct snt_loop *loop;

	(void)state;
	setenv("SENNIT_SPIN", "for ever", 1);
	assert_error(snt_loop_create(pair->end[0].ctx, NULL, &loop), EINVAL,
		     "SENNIT_SPIN");
	/* What the program says comes first. */
	assert_success(snt_loop_create(pair->end[0].ctx, &opts, &loop));
	assert_success(snt_loop_destroy(loop));
	setenv("SENNIT_SPIN", "1000000001", 1);
	assert_error(snt_loop_create(pair->end[0].ctx, NULL, &loop), EINVAL,
		     "at most a second");
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		setenv("SENNIT_SPIN", good[i], 1);
		assert_success(snt_loop_create(pair->end[0].ctx, NULL, &loop));
		assert_success(snt_loop_destroy(loop));
	}
	unsetenv("SENNIT_SPIN");
	loop_pair_close(pair);
}

static void loop_in_use_is_not_closed(void **state)
{
	struct loop_pair *pair =
		loop_pair_open(&(struct loop_opts){ .unconnected = true });
	struct loop_end *end = &pair->end[0];
	struct snt_cq_opts opts = { .size = sizeof(opts) };
	struct snt_cq *cq;

	(void)state;
	for (uint32_t ops = SNT_CQ_OPS_NONE; ops <= SNT_CQ_OPS_POLLED; ops++) {
		assert_success(snt_loop_create(end->ctx, NULL, &opts.loop));
		opts.ops = ops;
		assert_success(snt_cq_create(end->ctx, &opts, &cq));
		assert_error(snt_loop_destroy(opts.loop), EBUSY,
			     "the loop has CQs left");
		assert_success(snt_cq_destroy(cq));
		assert_success(snt_loop_destroy(opts.loop));
	}
	assert_success(snt_qp_destroy(end->qp));
	end->qp = NULL;
	assert_success(snt_cq_destroy(end->cq));
	end->cq = NULL;
	assert_success(snt_mem_release(end->mem));
	end->mem = NULL;
	assert_error(snt_ctx_destroy(end->ctx), EBUSY, "1 loops left");
	loop_pair_close(pair);
}

/* Another loop beside that of the first end, with a CQ and a QP of its own. */
static void open_second(struct loop_pair *pair, struct snt_loop **loop_out,
			struct snt_cq **cq_out, struct snt_qp *qp_out[2])
{
	struct loop_end *end = &pair->end[0];
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts) };
	struct snt_cq_opts opts = { .size = sizeof(opts), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_cq *own = end->cq;

	assert_success(snt_loop_create(end->ctx, NULL, loop_out));
	opts.loop = *loop_out;
	assert_success(snt_cq_create(end->ctx, &opts, cq_out));
	end->cq = *cq_out;
	loop_pair_add(pair, &qp_opts, qp_out);
	end->cq = own;
}

static void make_idle(struct snt_loop *loop)
{
	while (loop_readable(loop))
		assert_success(snt_loop_dispatch(loop, 0));
}

static void close_second(struct loop_pair *pair, struct snt_loop *loop,
			 struct snt_qp *const qp[2])
{
	struct snt_qp_info info = { .size = sizeof(info) };
	struct snt_op close[2] = { { 0 } };

	for (int i = 0; i < 2; i++)
		assert_success(snt_op_close(qp[i], &close[i]));
	for (int i = 0; i < 100; i++) {
		loop_pair_settle(pair);
		assert_success(snt_loop_dispatch(loop, 0));
	}
	assert_success(snt_qp_query(qp[0], &info));
	assert_int_equal(info.state, SNT_QP_CLOSED);
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_destroy(qp[i]));
}

/* A completion wakes the loop of its CQ, and its callback runs there. */
static void loops_of_a_context_are_independent(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_sge sge = loop_sge(pair, 0, 0, 8);
	const struct snt_token *token = &pair->end[1].token;
	struct snt_op op[2] = { { .done = loop_done }, { .done = loop_done } };
	struct snt_loop *loop[2] = { pair->end[0].loop };
	struct snt_cq *cq;
	struct snt_qp *qp[2];

	(void)state;
	open_second(pair, &loop[1], &cq, qp);
	for (int i = 0; i < 2; i++)
		make_idle(loop[i]);
	for (int i = 0; i < 2; i++) {
		loop_done_reset();
		assert_success(snt_op_write(i ? qp[0] : pair->end[0].qp, &op[i], &sge,
					    token, token->addr));
		loop_pair_run(pair);
		assert_true(loop_readable(loop[i]));
		assert_false(loop_readable(loop[!i]));
		assert_int_equal(snt_loop_dispatch(loop[!i], 0), 0);
		assert_int_equal(loop_done_count, 0);
		assert_int_equal(snt_loop_dispatch(loop[i], 0), 1);
		assert_int_equal(loop_done_count, 1);
		make_idle(loop[i]);
	}
	assert_success(snt_loop_wake(loop[1]));
	assert_false(loop_readable(loop[0]));
	assert_true(loop_readable(loop[1]));
	close_second(pair, loop[1], qp);
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_loop_destroy(loop[1]));
	/* The first one goes on. */
	assert_success(loop_write(pair, 0, &op[0], 0, 8));
	loop_pair_run(pair);
	assert_true(loop_readable(loop[0]));
	loop_pair_settle(pair);
	loop_pair_close(pair);
}

static unsigned wakes;

static void note_wake(void *arg, struct snt_loop *loop)
{
	assert_ptr_equal(arg, loop);
	wakes++;
}

/* Other threads wake a loop from the moment it is there, whether it ever sleeps or not. */
static void a_wake_before_the_fd_is_kept(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct snt_loop *loop = pair->end[0].loop;

	(void)state;
	wakes = 0;
	assert_success(snt_loop_set_wake_handler(loop, note_wake, loop));
	for (unsigned i = 1; i <= 3; i++) {
		assert_success(snt_loop_wake(loop));
		assert_int_equal(snt_loop_timeout(loop), 0);
		assert_int_equal(snt_loop_poll(loop, 0), 1);
		assert_int_equal(wakes, i);
		assert_int_equal(snt_loop_poll(loop, 0), 0);
	}
	assert_success(snt_loop_wake(loop));
	assert_true(loop_readable(loop));
	make_idle(loop);
	assert_int_equal(wakes, 4);
	assert_success(snt_loop_wake(loop));
	assert_int_equal(snt_loop_wait(loop, -1), 1);
	loop_pair_close(pair);
}

struct job {
	struct snt_call call;
	struct snt_loop *loop;
	unsigned runs, again;
};

static void run_job(struct snt_call *call)
{
	struct job *job = call->arg;

	job->runs++;
	if (!job->again)
		return;
	job->again--;
	assert_success(snt_loop_call(job->loop, call));
}

static void a_call_runs_in_the_loop(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_call nothing = { .arg = loop };
	struct job job = { .call = { .run = run_job, .arg = &job }, .loop = loop };

	(void)state;
	assert_int_equal(snt_loop_call(loop, &nothing), -EINVAL);
	/* Whether there is an fd or not, once for any number of calls, and in every way. */
	assert_success(snt_loop_call(loop, &job.call));
	assert_int_equal(snt_loop_call(loop, &job.call), -EALREADY);
	assert_int_equal(snt_loop_call(pair->end[1].loop, &job.call), -EALREADY);
	assert_int_equal(snt_loop_timeout(loop), 0);
	assert_int_equal(job.runs, 0);
	assert_int_equal(snt_loop_poll(loop, 0), 1);
	assert_int_equal(job.runs, 1);
	assert_success(snt_loop_call(loop, &job.call));
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	make_idle(loop);
	assert_success(snt_loop_call(loop, &job.call));
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_wait(loop, -1), 1);
	assert_int_equal(job.runs, 3);
	/* One that queues itself has its turn with the next dispatch. */
	job.again = 4;
	assert_success(snt_loop_call(loop, &job.call));
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_true(loop_readable(loop));
	make_idle(loop);
	assert_int_equal(job.runs, 8);
	loop_pair_close(pair);
}

static void a_loop_with_calls_is_not_closed(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){ 0 });
	struct job job = { .call = { .run = run_job, .arg = &job } };
	struct snt_loop *loop;

	(void)state;
	assert_success(snt_loop_create(pair->end[0].ctx, NULL, &loop));
	assert_success(snt_loop_call(loop, &job.call));
	assert_error(snt_loop_destroy(loop), EBUSY,
		     "calls of the loop have yet to run");
	assert_int_equal(snt_loop_poll(loop, 0), 1);
	assert_success(snt_loop_destroy(loop));
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(the_environment_says_how_long_to_spin),
		cmocka_unit_test(loop_in_use_is_not_closed),
		cmocka_unit_test(loops_of_a_context_are_independent),
		cmocka_unit_test(a_wake_before_the_fd_is_kept),
		cmocka_unit_test(a_call_runs_in_the_loop),
		cmocka_unit_test(a_loop_with_calls_is_not_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
