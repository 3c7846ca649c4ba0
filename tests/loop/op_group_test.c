/* SPDX-License-Identifier: MIT */
/* Groups of ops: one end for many. */
#include "lib/test.h"

#include "lib/loop_kit.h"

#define OPS 8

static unsigned groups_done;

static void group_done(struct snt_op_group *group)
{
	assert_int_equal(group->pending, 0);
	groups_done++;
}

static struct loop_pair *open_pair(void)
{
	groups_done = 0;
	return loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS);
}

static void write_all(struct loop_pair *pair, struct snt_op_group *group,
		      struct snt_op *op)
{
	for (unsigned i = 0; i < OPS; i++) {
		op[i].done = loop_done;
		assert_success(loop_write(pair, 0, &op[i], 64 * i, 64));
		assert_success(snt_op_group_add(group, &op[i]));
	}
	assert_int_equal(group->pending, OPS);
}

static void the_last_op_ends_its_group(void **state)
{
	struct loop_pair *pair = open_pair();
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[OPS] = { { 0 } };

	(void)state;
	for (unsigned round = 1; round < 3; round++) {
		write_all(pair, &group, op);
		assert_error(snt_op_group_wait(&group, 0), ETIME, "the group");
		assert_int_equal(groups_done, round - 1);
		loop_pair_settle(pair);
		assert_int_equal(groups_done, round);
		assert_int_equal(loop_done_count, round * OPS);
		assert_int_equal(group.result, 0);
		assert_int_equal(snt_op_group_wait(&group, -1), 0);
	}
	assert_non_null(strstr(snt_op_group_text(&group), "no op of the group"));
	loop_pair_close(pair);
}

static void what_cannot_be_added(void **state)
{
	struct loop_pair *pair = open_pair(), *other = open_pair();
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[2] = { { 0 } }, far = { 0 };

	(void)state;
	assert_error(snt_op_group_add(&group, &op[0]), ENOENT, "not in use");
	assert_success(loop_write(pair, 0, &op[0], 0, 64));
	assert_success(loop_write(pair, 0, &op[1], 0, 64));
	assert_success(loop_write(other, 0, &far, 0, 64));
	assert_success(snt_op_group_add(&group, &op[0]));
	assert_error(snt_op_group_add(&group, &op[0]), EALREADY, "in a group");
	assert_error(snt_op_group_add(&group, &far), EINVAL, "another loop");
	assert_error(snt_op_group_cancel(&group, 0), EINVAL, "no way");
	/* Cancelled, with its callback to come, it may still be waited for. */
	assert_success(snt_op_cancel(&op[1], SNT_CANCEL_DETACH));
	assert_success(snt_op_group_add(&group, &op[1]));
	loop_pair_settle(pair);
	loop_pair_settle(other);
	assert_int_equal(groups_done, 1);
	assert_int_equal(group.result, -ECANCELED);
	assert_error(snt_op_group_add(&group, &op[0]), ENOENT, "not in use");
	loop_pair_close(pair);
	loop_pair_close(other);
}

/* The first to fail, not the first in the list; and its text, even if the op is posted
 * again. */
static void the_first_error_is_kept(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct ibv_qp *lane = scripted_qp_at(pair->end[0].device[0], 0);
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[3] = { { 0 } };

	(void)state;
	groups_done = 0;
	for (int i = 0; i < 3; i++) {
		assert_success(loop_write(pair, 0, &op[i], 0, 64));
		assert_success(snt_op_group_add(&group, &op[i]));
	}
	scripted_complete(lane, IBV_WC_SUCCESS);
	scripted_complete(lane, IBV_WC_RETRY_EXC_ERR);
	loop_pair_settle(pair);
	assert_int_equal(groups_done, 1);
	assert_int_equal(op[0].result, 0);
	assert_int_equal(op[2].result, -ESHUTDOWN);
	assert_int_equal(group.result, -EHOSTUNREACH);
	memset(op, 0, sizeof(op));
	assert_non_null(strstr(snt_op_group_text(&group), "RETRY_EXC_ERR"));
	assert_error(snt_op_group_wait(&group, -1), EHOSTUNREACH, "RETRY_EXC_ERR");
	loop_pair_close(pair);
}

static void a_wait_ends_with_the_last_op(void **state)
{
	struct loop_pair *pair = open_pair();
	struct snt_op_group group = { 0 };
	struct snt_op op[OPS] = { { 0 } };

	(void)state;
	write_all(pair, &group, op);
	loop_pair_run(pair);
	assert_int_equal(snt_op_group_wait(&group, -1), 0);
	assert_int_equal(loop_done_count, OPS);
	write_all(pair, &group, op);
	for (unsigned i = 0; i < OPS; i++)
		assert_success(snt_op_timeout(&op[i], 1 + i, SNT_CANCEL_ABORT));
	assert_error(snt_op_group_wait(&group, -1), ETIMEDOUT, "WRITE timed out");
	assert_int_equal(loop_done_count, 2 * OPS);
	loop_pair_close(pair);
}

static void all_of_a_group_can_be_cancelled(void **state)
{
	static const enum snt_cancel hows[] = { SNT_CANCEL_DETACH, SNT_CANCEL_ABORT };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct loop_pair *pair = open_pair();
		struct snt_op_group group = { .done = group_done };
		struct snt_op op[OPS] = { { 0 } };

		write_all(pair, &group, op);
		assert_success(snt_op_cancel(&op[3], hows[i]));
		assert_int_equal(snt_op_group_cancel(&group, hows[i]), OPS - 1);
		assert_int_equal(snt_op_group_cancel(&group, hows[i]), 0);
		assert_int_equal(groups_done, 0);
		loop_pair_settle(pair);
		assert_int_equal(groups_done, 1);
		assert_int_equal(group.result, -ECANCELED);
		for (unsigned n = 0; n < OPS; n++)
			assert_int_equal(op[n].result, -ECANCELED);
		loop_pair_close(pair);
	}
}

/* A group of detached ops ends when all have been told, not when all are released. */
static unsigned releases;

static void released(struct snt_op *op)
{
	(void)op;
	releases++;
}

static void a_group_ends_when_its_ops_are_told(void **state)
{
	struct loop_pair *pair = open_pair();
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[OPS] = { { 0 } };

	(void)state;
	releases = 0;
	for (unsigned i = 0; i < OPS; i++)
		op[i].released = released;
	write_all(pair, &group, op);
	assert_int_equal(snt_op_group_cancel(&group, SNT_CANCEL_DETACH), OPS);
	assert_error(snt_op_group_wait(&group, -1), ECANCELED, "a device still has it");
	assert_int_equal(groups_done, 1);
	assert_int_equal(releases, 0);
	assert_error(snt_op_group_add(&group, &op[0]), ENOENT, "has ended");
	loop_pair_settle(pair);
	assert_int_equal(releases, OPS);
	assert_int_equal(groups_done, 1);
	loop_pair_close(pair);
}

static struct loop_pair *chain_pair;
static struct snt_op_group *chain_group;
static unsigned chain_left;

static void post_again(struct snt_op *op)
{
	loop_done(op);
	if (!chain_left)
		return;
	chain_left--;
	assert_success(loop_write(chain_pair, 0, op, 0, 64));
	assert_success(snt_op_group_add(chain_group, op));
}

/* An op that is added again in its callback keeps the group from ending. */
static void an_op_may_stay_in_its_group(void **state)
{
	struct loop_pair *pair = open_pair();
	struct snt_op_group group = { .done = group_done };
	struct snt_op op = { .done = post_again };

	(void)state;
	chain_pair = pair;
	chain_group = &group;
	chain_left = 5;
	assert_success(loop_write(pair, 0, &op, 0, 64));
	assert_success(snt_op_group_add(&group, &op));
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 6);
	assert_int_equal(groups_done, 1);
	loop_pair_close(pair);
}

/* Nothing of a group, nor of its ops, is touched after its function. */
struct owned {
	struct snt_op_group group;
	struct snt_op op[OPS];
};

static void free_all(struct snt_op_group *group)
{
	groups_done++;
	free(group);
}

static void a_group_may_be_freed_with_its_ops(void **state)
{
	struct loop_pair *pair = open_pair();
	struct owned *owned = calloc(1, sizeof(*owned));

	(void)state;
	owned->group.done = free_all;
	write_all(pair, &owned->group, owned->op);
	loop_pair_settle(pair);
	assert_int_equal(groups_done, 1);
	loop_pair_close(pair);
}

static void wait_inside(struct snt_op *op)
{
	assert_error(snt_op_group_wait(chain_group, -1), EBUSY, "callbacks");
	loop_done(op);
}

static void callbacks_cannot_wait_for_groups(void **state)
{
	struct loop_pair *pair = open_pair();
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[2] = { { .done = wait_inside }, { .done = wait_inside } };

	(void)state;
	chain_group = &group;
	for (int i = 0; i < 2; i++) {
		assert_success(loop_write(pair, 0, &op[i], 0, 64));
		assert_success(snt_op_group_add(&group, &op[i]));
	}
	loop_pair_settle(pair);
	assert_int_equal(loop_done_count, 2);
	assert_int_equal(groups_done, 1);
	loop_pair_close(pair);
}

/* As loop.h says: close, cancel, dispatch, destroy. */
static void a_group_of_a_cq_that_broke(void **state)
{
	struct loop_pair *pair = open_pair();
	struct loop_end *end = &pair->end[0];
	struct snt_op_group group = { .done = group_done };
	struct snt_op op[OPS] = { { 0 } }, close = { .done = loop_done };

	(void)state;
	write_all(pair, &group, op);
	assert_int_equal(snt_op_group_cancel(&group, SNT_CANCEL_DETACH), OPS);
	scripted_fail_poll(snt_cq_physical(end->cq, 0, NULL), 1);
	loop_pair_run(pair);
	assert_error(snt_loop_dispatch(end->loop, 0), EIO, "cannot be polled");
	assert_success(snt_op_close(end->qp, &close));
	assert_int_equal(snt_op_group_cancel(&group, SNT_CANCEL_DETACH), OPS);
	assert_int_equal(snt_op_group_cancel(&group, SNT_CANCEL_DETACH), 0);
	assert_success(snt_op_cancel(&close, SNT_CANCEL_DETACH));
	assert_int_equal(snt_loop_dispatch(end->loop, 0), OPS + 1);
	assert_int_equal(groups_done, 1);
	assert_int_equal(group.result, -ECANCELED);
	assert_success(snt_qp_destroy(end->qp));
	end->qp = NULL;
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_op_ends_its_group),
		cmocka_unit_test(what_cannot_be_added),
		cmocka_unit_test(the_first_error_is_kept),
		cmocka_unit_test(a_wait_ends_with_the_last_op),
		cmocka_unit_test(all_of_a_group_can_be_cancelled),
		cmocka_unit_test(a_group_ends_when_its_ops_are_told),
		cmocka_unit_test(an_op_may_stay_in_its_group),
		cmocka_unit_test(a_group_may_be_freed_with_its_ops),
		cmocka_unit_test(callbacks_cannot_wait_for_groups),
		cmocka_unit_test(a_group_of_a_cq_that_broke),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
