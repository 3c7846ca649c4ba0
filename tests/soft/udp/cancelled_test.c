/* SPDX-License-Identifier: MIT */
/* A thread that is cancelled where it sleeps leaves no device to itself. */
#include "lib/udp_side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sennit/sennit.h>

#include "lib/patience.h"

struct world {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt__udp_device *device;
};

static void open_world(struct world *world)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .devices = "soft0" };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts), .devices = 1 };

	assert_success(snt_ctx_create(&opts, &world->ctx));
	world->device =
		snt__udp_device_of(snt_device_context(snt_ctx_device(world->ctx, 0)));
	assert_success(snt_loop_create(world->ctx, NULL, &world->loop));
	cq_opts.loop = world->loop;
	assert_success(snt_qp_create_with_cq(world->ctx, &cq_opts, &qp_opts, &world->cq,
					     &world->qp));
	assert_true(snt_loop_fd(world->loop) >= 0);
}

static void close_world(struct world *world)
{
	assert_success(snt_qp_destroy(world->qp));
	assert_success(snt_cq_destroy(world->cq));
	assert_success(snt_loop_destroy(world->loop));
	assert_success(snt_ctx_destroy(world->ctx));
}

static enum snt__progress_owner owner_of(struct world *world)
{
	enum snt__progress_owner owner;

	snt__udp_lock(world->device);
	owner = world->device->progress.owner;
	snt__udp_unlock(world->device);
	return owner;
}

static void await_owner(struct world *world, enum snt__progress_owner owner)
{
	uint64_t end = snt__udp_now() + patience_ns(30);

	while (owner_of(world) != owner) {
		assert_true(snt__udp_now() < end);
		sched_yield();
	}
}

static void cancel_in(void *(*sleep)(void *arg), struct world *world,
		      enum snt__progress_owner asleep)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, sleep, world), 0);
	await_owner(world, asleep);
	pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

static void *wait_for_ever(void *arg)
{
	struct world *world = arg;

	for (;;)
		snt_loop_wait(world->loop, -1);
	return NULL;
}

static void a_cancelled_wait_returns_its_devices(void **state)
{
	struct world world;

	(void)state;
	open_world(&world);
	for (unsigned i = 0; i < 10; i++) {
		cancel_in(wait_for_ever, &world, SNT__OWNER_BORROWER);
		assert_false(snt__progress_is_lent(&world.device->progress));
	}
	close_world(&world);
}

/* Its own epoll_wait(2), so to say. */
static void *watch_for_ever(void *arg)
{
	struct world *world = arg;
	struct pollfd at = { .fd = snt_loop_fd(world->loop), .events = POLLIN };

	for (;;) {
		snt_loop_dispatch(world->loop, 0);
		poll(&at, 1, -1);
	}
	return NULL;
}

/* The library is not told. The device's thread serves it (progress_test.c), and the next
 * thread goes on. */
static void the_next_thread_watches_instead(void **state)
{
	struct world world;

	(void)state;
	open_world(&world);
	for (unsigned i = 0; i < 10; i++) {
		cancel_in(watch_for_ever, &world, SNT__OWNER_WATCHER);
		assert_int_equal(snt_loop_poll(world.loop, 0), 0);
		assert_false(snt__progress_is_lent(&world.device->progress));
	}
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cancelled_wait_returns_its_devices),
		cmocka_unit_test(the_next_thread_watches_instead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
