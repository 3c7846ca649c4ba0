/* SPDX-License-Identifier: MIT */
/*
 * Waiting in virtual time: on simulated devices a context sleeps by letting the fabric go
 * on, so that blocking calls work there as well, and replay.
 */
#include "lib/test.h"

#include <poll.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"
#include "loop/loop.h"

#define ACCESS (SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE)

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	char buffer[4096];
};

static struct snt__sim *sim;
static struct end end[2];
static unsigned sleeps;

/* Until the fd is readable, a timer is due, or time is up. */
static int sleep_virtually(void *arg, int fd, int64_t timeout_ns)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	uint64_t until = timeout_ns < 0 ? UINT64_MAX : snt__sim_now(sim) + timeout_ns;

	sleeps++;
	while (!poll(&poller, 1, 0) && snt_loop_timeout(arg) &&
	       snt__sim_now(sim) < until)
		snt__sim_run(sim, snt__sim_now(sim) + 1000);
	return 0;
}

static void open_end(struct end *it)
{
	struct snt__sim_link_opts cable = { .delay_ns = 5000 };
	struct snt__sim_device_opts device_opts = { .out = &cable, .in = &cable };
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts) };
	struct snt__sim_device *device;
	struct snt__sim_host *host;

	assert_success(snt__sim_host_create(sim, &host));
	assert_success(snt__sim_device_create(host, &device_opts, &device));
	snt__sim_host_ctx_opts(host, &ctx_opts);
	assert_success(snt_ctx_create(&ctx_opts, &it->ctx));
	assert_success(snt_loop_create(it->ctx, NULL, &it->loop));
	cq_opts.loop = it->loop;
	assert_success(snt_mem_register(it->ctx, it->buffer, sizeof(it->buffer), ACCESS,
					&it->mem));
	assert_success(snt_mem_token(it->mem, &it->token));
	assert_success(
		snt_qp_create_with_cq(it->ctx, &cq_opts, &qp_opts, &it->cq, &it->qp));
	assert_success(snt_loop_fd(it->loop));
	it->loop->sleep = sleep_virtually;
	it->loop->sleep_arg = it->loop;
}

static int set_up(void **state)
{
	struct snt__sim_opts opts = { .seed = 1 };
	struct snt_card card[2];

	(void)state;
	sleeps = 0;
	assert_success(snt__sim_create(&opts, &sim));
	for (int i = 0; i < 2; i++) {
		open_end(&end[i]);
		assert_success(snt_qp_card(end[i].qp, &card[i]));
	}
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(end[i].qp, &card[!i]));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct snt_op op = { 0 };

		assert_success(snt_op_close(end[i].qp, &op));
		assert_int_equal(snt_op_wait(&op, -1), 0);
		assert_success(snt_qp_destroy(end[i].qp));
		assert_success(snt_cq_destroy(end[i].cq));
		assert_success(snt_mem_release(end[i].mem));
		assert_success(snt_loop_destroy(end[i].loop));
		assert_success(snt_ctx_destroy(end[i].ctx));
	}
	return snt__sim_destroy(sim);
}

static int write_op(struct snt_op *op)
{
	struct snt_sge sge = { end[0].mem, end[0].buffer, 64 };

	return snt_op_write(end[0].qp, op, &sge, &end[1].token, end[1].token.addr);
}

static void waits_take_virtual_time(void **state)
{
	struct snt_op op = { 0 };
	uint64_t begin = snt__sim_now(sim);

	(void)state;
	end[0].buffer[0] = 77;
	assert_success(write_op(&op));
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_int_equal(end[1].buffer[0], 77);
	/* Four cables, there and back. */
	assert_int_equal(snt__sim_now(sim) - begin, 20000);
	assert_in_range(sleeps, 1, 3);
}

static void time_is_up_virtually(void **state)
{
	struct snt_op op = { 0 };
	uint64_t begin = snt__sim_now(sim);

	(void)state;
	assert_success(write_op(&op));
	assert_int_equal(snt_op_wait(&op, 12000), -ETIME);
	assert_int_equal(snt__sim_now(sim) - begin, 12000);
	assert_int_equal(snt_op_wait(&op, -1), 0);
}

static void deadlines_pass_virtually(void **state)
{
	struct snt_op op = { 0 };
	uint64_t begin = snt__sim_now(sim);

	(void)state;
	assert_success(write_op(&op));
	assert_success(snt_op_timeout(&op, 15000, SNT_CANCEL_DETACH));
	assert_int_equal(snt_op_wait(&op, -1), -ETIMEDOUT);
	assert_int_equal(op.wc.status, SNT_WC_SUCCESS);
	assert_int_equal(snt__sim_now(sim) - begin, 20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waits_take_virtual_time, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(time_is_up_virtually, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(deadlines_pass_virtually, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
