/* SPDX-License-Identifier: MIT */
/* A message to a program that sleeps wakes one thread: the one that sleeps. */
#include "lib/test.h"

#include <poll.h>
#include <pthread.h>
#include <sennit/sennit.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/patience.h"

#define BYTES 64
#define WARM  200
#define COUNT 1000
/* Naps and the end of one, timers, and a busy machine. */
#define WAKES_MAX (2 * COUNT * 11 / 10)

static atomic_uint wakes;

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

/* Devices' threads sleep here, too. What times out was not woken. */
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	int ret = __real_ppoll(fds, count, timeout, mask);

	if (ret > 0)
		atomic_fetch_add(&wakes, 1);
	return ret;
}

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_card card;
	struct snt_op recv[2], send;
	bool asks;
	unsigned char bytes[2 * BYTES];
};

static void open_end(struct end *end)
{
	struct snt_ctx_opts ctx = { .size = sizeof(ctx), .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 1, .devices = 1 };

	assert_success(snt_ctx_create(&ctx, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	assert_success(snt_loop_set_spin(end->loop, 0));
	cq.loop = end->loop;
	assert_success(snt_mem_register(end->ctx, end->bytes, sizeof(end->bytes),
					SNT_ACCESS_LOCAL_WRITE, &end->mem));
	assert_success(snt_qp_create_with_cq(end->ctx, &cq, &qp, &end->cq, &end->qp));
	assert_success(snt_qp_card(end->qp, &end->card));
}

static void close_end(struct end *end)
{
	struct snt_op op = { 0 };

	assert_success(snt_op_close(end->qp, &op));
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_ctx_destroy(end->ctx));
}

static void begin_recv(struct end *end, struct snt_op *op)
{
	struct snt_sge sge = { end->mem, end->bytes, BYTES };

	assert_success(snt_op_recv(end->qp, op, &sge));
}

static void send_now(struct end *end)
{
	struct snt_sge sge = { end->mem, end->bytes + BYTES, BYTES };

	if (snt_op_pending(&end->send))
		assert_true(snt_op_wait(&end->send, -1) >= 0);
	assert_success(snt_op_send(end->qp, &end->send, &sge));
}

static void *talk(void *arg)
{
	struct end *end = arg;

	begin_recv(end, &end->recv[0]);
	for (unsigned i = 0; i < WARM + COUNT; i++) {
		/* Before the answer can come. */
		begin_recv(end, &end->recv[(i + 1) % 2]);
		if (i == WARM && end->asks)
			atomic_store(&wakes, 0);
		if (end->asks)
			send_now(end);
		assert_true(snt_op_wait(&end->recv[i % 2], -1) >= 0);
		if (!end->asks)
			send_now(end);
	}
	return NULL;
}

static unsigned count_wakes(const char *shm)
{
	struct end end[2] = { 0 };
	pthread_t thread;
	unsigned count;

	setenv("SENNIT_SOFT_SHM", shm, 1);
	for (unsigned i = 0; i < 2; i++)
		open_end(&end[i]);
	assert_success(snt_qp_connect(end[0].qp, &end[1].card));
	assert_success(snt_qp_connect(end[1].qp, &end[0].card));
	end[0].asks = true;
	assert_success(pthread_create(&thread, NULL, talk, &end[1]));
	talk(&end[0]);
	count = atomic_load(&wakes);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < 2; i++)
		close_end(&end[i]);
	return count;
}

/* On a machine with others, naps of 500 us pass between a message and its answer. */
static void assert_one_wake_each(const char *shm)
{
	unsigned count = 0;

	for (unsigned i = 0; i < 30; i++) {
		count = count_wakes(shm);
		print_message("# %s: %u wake-ups for %u messages\n", shm, count,
			      2 * COUNT);
		if (count <= WAKES_MAX)
			return;
	}
	assert_true(count <= WAKES_MAX);
}

static void a_message_through_memory_wakes_one_thread(void **state)
{
	(void)state;
	assert_one_wake_each("on");
}

static void a_message_by_socket_wakes_one_thread(void **state)
{
	(void)state;
	assert_one_wake_each("off");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_through_memory_wakes_one_thread),
		cmocka_unit_test(a_message_by_socket_wakes_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
