/* SPDX-License-Identifier: MIT */
/* The scripted device: failures on demand, and running by itself from a seed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "lib/devices/scripted_pair.h"

/* Posts three writes with one call, which is made to fail. Returns how many were
 * queued; *bad_out is the index of bad_wr, or -1 for NULL. */
static unsigned post_three(struct pair *p, const struct scripted_post_fault *fault,
			   int *bad_out)
{
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 4);
	unsigned before = scripted_pending(qp);
	struct ibv_send_wr wr[3], *bad;
	int i;

	for (i = 0; i < 3; i++) {
		wr[i] = pair_wr(p, &sge, i, IBV_WR_RDMA_WRITE);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	scripted_fail_post(p->side[0].device, fault);
	bad = &wr[2];
	assert_int_equal(ibv_post_send(qp, wr, &bad), fault->error);
	*bad_out = bad ? (int)(bad - wr) : -1;
	return scripted_pending(qp) - before;
}

static void post_can_refuse_all(void **state)
{
	struct scripted_post_fault fault = { .error = EIO };
	int bad;

	assert_int_equal(post_three(*state, &fault, &bad), 0);
	assert_int_equal(bad, 0);
}

static void post_can_accept_some(void **state)
{
	struct scripted_post_fault fault = {
		.error = ENOMEM,
		.mode = SCRIPTED_ACCEPT_SOME,
		.accept = 1,
	};
	int bad;

	assert_int_equal(post_three(*state, &fault, &bad), 1);
	assert_int_equal(bad, 1);
	fault.accept = 100;
	assert_int_equal(post_three(*state, &fault, &bad), 2);
	assert_int_equal(bad, 2);
}

static void post_can_fail_after_queueing_all(void **state)
{
	struct scripted_post_fault fault = {
		.error = EINVAL,
		.mode = SCRIPTED_QUEUE_ALL_BAD_FIRST,
	};
	int bad;

	assert_int_equal(post_three(*state, &fault, &bad), 3);
	assert_int_equal(bad, 0);
	fault.mode = SCRIPTED_QUEUE_ALL_BAD_NULL;
	assert_int_equal(post_three(*state, &fault, &bad), 3);
	assert_int_equal(bad, -1);
}

static void post_faults_wait_for_their_call(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct scripted_post_fault send = {
		.qp = here->qp[1],
		.nth = 2,
		.error = EIO,
	};
	struct scripted_post_fault recv = {
		.kind = SCRIPTED_POST_RECV,
		.error = EFAULT,
	};

	scripted_fail_post(here->device, &send);
	scripted_fail_post(here->device, &recv);
	assert_int_equal(pair_post_write(p, 1, 1), 0);
	assert_int_equal(pair_post_write(p, 0, 1), 0);
	assert_int_equal(pair_post_write(p, 1, 2), EIO);
	assert_int_equal(pair_post_write(p, 1, 2), 0);
	assert_int_equal(pair_post_recv(here, here->qp[0], 1, 4), EFAULT);
	assert_int_equal(scripted_recv_pending(here->qp[0]), 0);
	assert_int_equal(pair_post_recv(here, here->qp[0], 1, 4), 0);
}

static void receive_posts_fail_in_all_modes(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_recv_wr wr[2] = { { .wr_id = 1, .next = &wr[1] }, { .wr_id = 2 } };
	struct ibv_recv_wr *bad = NULL;
	struct scripted_post_fault fault = {
		.kind = SCRIPTED_POST_RECV,
		.error = ENOMEM,
		.mode = SCRIPTED_ACCEPT_SOME,
		.accept = 1,
	};

	scripted_fail_post(here->device, &fault);
	assert_int_equal(ibv_post_recv(here->qp[0], wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(scripted_recv_pending(here->qp[0]), 1);
	fault.mode = SCRIPTED_QUEUE_ALL_BAD_FIRST;
	scripted_fail_post(here->device, &fault);
	assert_int_equal(ibv_post_recv(here->qp[0], wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[0]);
	assert_int_equal(scripted_recv_pending(here->qp[0]), 3);
	wr[1].num_sge = 3;
	assert_int_equal(ibv_post_recv(here->qp[0], wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
}

static void post_faults_die_with_their_qp(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct scripted_post_fault fault = {
		.qp = here->qp[0],
		.kind = SCRIPTED_POST_RECV,
		.error = EIO,
	};
	int i;

	/* More than can wait at a time. */
	for (i = 0; i < 20; i++) {
		fault.qp = here->qp[0];
		scripted_fail_post(here->device, &fault);
		p->control->destroy_qp(here->qp[0]);
		here->qp[0] = pair_make_qp(p, here);
		pair_to_init(p, here->qp[0]);
		assert_int_equal(pair_post_recv(here, here->qp[0], 1, 4), 0);
	}
}

static void control_calls_fail_in_turn(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	uint64_t calls = scripted_counters(here->device).control_calls;
	struct ibv_mr *mr = NULL;
	struct ibv_pd *pd;

	scripted_fail_control(here->device, 2, ENOSPC);
	assert_int_equal(p->control->alloc_pd(here->context, &pd), 0);
	assert_null(scripted_failed_control(here->device));
	assert_int_equal(p->control->reg_mr(pd, here->buffer, 8, 0, &mr), -ENOSPC);
	assert_null(mr);
	assert_string_equal(scripted_failed_control(here->device), "reg_mr");
	scripted_fail_control(here->device, 0, 0);
	assert_null(scripted_failed_control(here->device));
	assert_int_equal(scripted_live(here->device, SCRIPTED_MR), 1);
	assert_int_equal(p->control->dealloc_pd(pd), 0);
	assert_int_equal(scripted_counters(here->device).control_calls, calls + 3);
}

/* The order in which eight writes on two QPs completed under a seed, as bits. */
static unsigned completion_order(uint64_t seed)
{
	struct pair *p = pair_open(NULL);
	unsigned order = 0;
	struct ibv_wc wc;
	int lane, i;

	for (i = 0; i < 8; i++)
		pair_post_write(p, i % 2, i);
	/* Each WR lands and completes. */
	assert_int_equal(scripted_run(p->fabric, seed), 16);
	for (i = 0; i < 8; i++) {
		wc = pair_poll_one(&p->side[0]);
		lane = wc.qp_num == p->side[0].qp[1]->qp_num;
		assert_int_equal(wc.wr_id % 2, lane);
		order = order << 1 | lane;
	}
	pair_expect_empty(&p->side[0]);
	pair_close(p);
	return order;
}

static void run_follows_the_seed(void **state)
{
	unsigned different = 0;
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 20; seed++) {
		assert_int_equal(completion_order(seed), completion_order(seed));
		different += completion_order(seed) != completion_order(seed + 1);
	}
	assert_true(different > 10);
}

static void run_skips_what_waits_for_receives(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];

	pair_post_simple(p, p->side[0].qp[0], 1, IBV_WR_SEND, IBV_SEND_SIGNALED);
	pair_post_write(p, 1, 2);
	assert_int_equal(scripted_run(p->fabric, 1), 2);
	assert_int_equal(scripted_pending(p->side[0].qp[0]), 1);
	pair_expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
	pair_post_recv(there, there->qp[0], 1, 16);
	assert_int_equal(scripted_run(p->fabric, 1), 2);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
}

static void run_gives_up_on_dead_peers(void **state)
{
	struct pair *p = *state;

	pair_post_write(p, 0, 1);
	pair_post_write(p, 0, 2);
	p->control->destroy_qp(p->side[1].qp[0]);
	p->side[1].qp[0] = NULL;
	assert_int_equal(scripted_run(p->fabric, 1), 1);
	pair_expect_wc(&p->side[0], 1, IBV_WC_RETRY_EXC_ERR);
	pair_expect_wc(&p->side[0], 2, IBV_WC_WR_FLUSH_ERR);
}

static void run_ends_with_failing_checks(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 2, IBV_WR_RDMA_WRITE);

	wr.wr.rdma.rkey = 0;
	pair_post_write(p, 0, 1);
	pair_post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_run(p->fabric, 1), 4);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	pair_expect_wc(&p->side[0], 2, IBV_WC_REM_ACCESS_ERR);
}

static void eager_needs_no_script(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];

	scripted_eager(p->fabric, true);
	pair_post_write(p, 0, 1);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	pair_post_simple(p, p->side[0].qp[0], 2, IBV_WR_SEND, IBV_SEND_SIGNALED);
	pair_expect_empty(&p->side[0]);
	pair_post_recv(there, there->qp[0], 3, 16);
	pair_expect_wc(there, 3, IBV_WC_SUCCESS);
	pair_expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
	pair_to_state(p, there->qp[0], IBV_QPS_ERR);
	pair_post_write(p, 0, 4);
	pair_expect_wc(&p->side[0], 4, IBV_WC_RETRY_EXC_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(post_can_refuse_all),
		WITH_PAIR(post_can_accept_some),
		WITH_PAIR(post_can_fail_after_queueing_all),
		WITH_PAIR(post_faults_wait_for_their_call),
		WITH_PAIR(receive_posts_fail_in_all_modes),
		WITH_PAIR(post_faults_die_with_their_qp),
		WITH_PAIR(control_calls_fail_in_turn),
		cmocka_unit_test(run_follows_the_seed),
		WITH_PAIR(run_skips_what_waits_for_receives),
		WITH_PAIR(run_gives_up_on_dead_peers),
		WITH_PAIR(run_ends_with_failing_checks),
		WITH_PAIR(eager_needs_no_script),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
