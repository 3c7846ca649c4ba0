/* SPDX-License-Identifier: MIT */
/*
 * Memory that one thread registers and releases while another posts and polls.
 */
#include "lib/test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "lib/loop_kit.h"

#define LENGTH 4096

/*
 * A device on which a registration takes as long as the test likes
 */

static struct {
	struct snt_control control;
	int (*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		      struct ibv_mr **mr_out);
	atomic_bool closed; /* for the next registration */
	sem_t entered, opened;
} gate;

static int reg_mr_behind_gate(struct ibv_pd *pd, void *addr, size_t length,
			      unsigned access, struct ibv_mr **mr_out)
{
	if (atomic_exchange(&gate.closed, false)) {
		sem_post(&gate.entered);
		while (sem_wait(&gate.opened))
			;
	}
	return gate.reg_mr(pd, addr, length, access, mr_out);
}

static const struct snt_control *put_gate(const struct snt_adopted *adopted)
{
	gate.control = *adopted->control;
	gate.reg_mr = gate.control.reg_mr;
	gate.control.reg_mr = reg_mr_behind_gate;
	sem_init(&gate.entered, 0, 0);
	sem_init(&gate.opened, 0, 0);
	return &gate.control;
}

/*
 * The other thread
 */

struct helper {
	pthread_t thread;
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	char bytes[LENGTH];
	int ret;
};

static void *register_memory(void *arg)
{
	struct helper *helper = arg;

	helper->ret = snt_mem_register(helper->ctx, helper->bytes, LENGTH,
				       SNT_ACCESS_LOCAL_WRITE, &helper->mem);
	return NULL;
}

static void *release_memory(void *arg)
{
	struct helper *helper = arg;

	helper->ret = snt_mem_release(helper->mem);
	return NULL;
}

static void start(struct helper *helper, void *(*work)(void *arg))
{
	assert_int_equal(pthread_create(&helper->thread, NULL, work, helper), 0);
}

static void finish(struct helper *helper)
{
	assert_int_equal(pthread_join(helper->thread, NULL), 0);
	assert_int_equal(helper->ret, 0);
}

/* Ends with the other thread inside of the device. */
static void start_long_registration(struct helper *helper)
{
	atomic_store(&gate.closed, true);
	start(helper, register_memory);
	while (sem_wait(&gate.entered))
		;
}

/*
 * Tests
 */

static void register_some_more(struct loop_end *end)
{
	struct snt_mem *mem;

	assert_success(snt_mem_register(end->ctx, end->buffer, LENGTH, 0, &mem));
	assert_success(snt_mem_release(mem));
}

static void open_another_loop(struct loop_end *end)
{
	struct snt_cq_opts opts = { .size = sizeof(opts), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_cq *cq;

	assert_success(snt_loop_create(end->ctx, NULL, &opts.loop));
	assert_success(snt_cq_create(end->ctx, &opts, &cq));
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_loop_destroy(opts.loop));
}

/* If the context were locked meanwhile this would never end. */
static void a_long_registration_delays_no_other_thread(void **state)
{
	struct loop_pair *pair = loop_pair_open(&(struct loop_opts){
		.ops = SNT_CQ_OPS_EVENTS, .instrument = put_gate });
	struct loop_end *end = &pair->end[0];
	static struct helper helper;
	struct snt_op op = { 0 };

	(void)state;
	helper.ctx = end->ctx;
	start_long_registration(&helper);
	for (unsigned i = 0; i < 100; i++) {
		assert_success(loop_write(pair, 0, &op, 64 * i, 64));
		loop_pair_settle(pair);
		assert_int_equal(snt_op_wait(&op, 0), 0);
		assert_success(snt_loop_poll(end->loop, 0));
	}
	register_some_more(end);
	open_another_loop(end);
	sem_post(&gate.opened);
	finish(&helper);
	assert_success(snt_mem_release(helper.mem));
	loop_pair_close(pair);
}

/* Also the context that it will belong to stays meanwhile. */
static void a_context_stays_while_memory_is_registered(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device = scripted_device_create(fabric, NULL);
	struct snt_adopted adopted = scripted_adopted(device);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };
	static struct helper helper;

	(void)state;
	adopted.control = put_gate(&adopted);
	assert_success(snt_ctx_create(&opts, &helper.ctx));
	start_long_registration(&helper);
	assert_error(snt_ctx_destroy(helper.ctx), EBUSY, "1 memory registrations left");
	sem_post(&gate.opened);
	finish(&helper);
	assert_error(snt_ctx_destroy(helper.ctx), EBUSY, "1 memory registrations left");
	start(&helper, release_memory);
	finish(&helper);
	assert_success(snt_ctx_destroy(helper.ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void memory_that_another_thread_released_is_refused(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	const struct snt_token *token = &pair->end[1].token;
	static struct helper helper;
	struct snt_sge sge = { .addr = helper.bytes, .length = 8 };
	struct snt_op op = { 0 };

	(void)state;
	helper.ctx = end->ctx;
	start(&helper, register_memory);
	finish(&helper);
	sge.mem = helper.mem;
	assert_success(snt_op_write(end->qp, &op, &sge, token, token->addr));
	loop_pair_settle(pair);
	start(&helper, release_memory);
	finish(&helper);
	assert_error(snt_op_write(end->qp, &op, &sge, token, token->addr), EINVAL,
		     "memory that has been released");
	assert_error(snt_op_send(end->qp, &op, &sge), EINVAL,
		     "memory that has been released");
	assert_error(snt_op_recv(end->qp, &op, &sge), EINVAL,
		     "memory that has been released");
	/* The QP is none the worse for it. */
	assert_success(loop_write(pair, 0, &op, 0, 8));
	loop_pair_settle(pair);
	assert_int_equal(snt_op_wait(&op, 0), 0);
	loop_pair_close(pair);
}

/* The device still has the WR, and checks the key when it comes to it. */
static void memory_released_in_flight_fails_the_wr(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	const struct snt_token *token = &pair->end[1].token;
	static struct helper helper;
	struct snt_sge sge = { .addr = helper.bytes, .length = 8 };
	struct snt_op op = { 0 };

	(void)state;
	helper.ctx = end->ctx;
	start(&helper, register_memory);
	finish(&helper);
	sge.mem = helper.mem;
	assert_success(snt_op_write(end->qp, &op, &sge, token, token->addr));
	start(&helper, release_memory);
	finish(&helper);
	loop_pair_settle(pair);
	assert_int_equal(snt_op_pending(&op), 0);
	assert_int_equal(op.wc.status, SNT_WC_LOC_PROT_ERR);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_registration_delays_no_other_thread),
		cmocka_unit_test(a_context_stays_while_memory_is_registered),
		cmocka_unit_test(memory_that_another_thread_released_is_refused),
		cmocka_unit_test(memory_released_in_flight_fails_the_wr),
	};

	return cmocka_run_group_tests_name("mem_threads", tests, NULL, NULL);
}
