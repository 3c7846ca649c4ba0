/* SPDX-License-Identifier: MIT */
/* Threads that are in the kernel with the packets of a device, and others meanwhile. */
#include "lib/udp_side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/udp_faults.h"

static int set_up(void **state)
{
	(void)state;
	faults_set((struct faults){ 0 });
	side_timeout = SIDE_PATIENT;
	return 0;
}

#define SECOND_AT 4096

/* A second QP on each device, with a CQ of its own at the first, and other bytes. */
struct second {
	struct side one, other;
};

static void second_open(struct second *second, struct side side[2])
{
	second->one = side[0];
	second->other = side[1];
	second->one.bytes += SECOND_AT;
	second->other.bytes += SECOND_AT;
	assert_success(side->control->create_cq(side->context, 256, NULL, NULL, 0,
						&second->one.cq));
	side_make_qp(&second->one);
	side_make_qp(&second->other);
	side_connect(&second->one, &second->other, IBV_MTU_4096);
	side_connect(&second->other, &second->one, IBV_MTU_4096);
}

static void second_close(struct second *second)
{
	if (second->one.qp)
		assert_success(second->one.control->destroy_qp(second->one.qp));
	assert_success(second->other.control->destroy_qp(second->other.qp));
	assert_success(second->one.control->destroy_cq(second->one.cq));
}

static void *post_first(void *arg)
{
	struct side *side = arg;

	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 1000);
	return NULL;
}

/* Returns when a thread has posted, and is in the kernel. */
static pthread_t detain_first(struct side side[2])
{
	pthread_t thread;

	faults_detain(side[0].device->socket.fd);
	assert_success(pthread_create(&thread, NULL, post_first, side));
	faults_await_detained();
	return thread;
}

static void a_sender_in_the_kernel_holds_up_no_thread(void **state)
{
	struct second second;
	struct side side[2];
	pthread_t thread;
	struct ibv_wc wc;

	(void)state;
	alarm(patience_s(60)); /* ends it, if one waits for the other */
	sides_open(side, NULL);
	second_open(&second, side);
	thread = detain_first(side);
	side_post(&second.one, &second.other, IBV_WR_RDMA_WRITE, 1000);
	assert_int_equal(ibv_poll_cq(second.one.cq, 1, &wc), 0);
	faults_release();
	/* What was posted meanwhile is sent by the thread that was detained. */
	assert_int_equal(side_wait(&second.one), IBV_WC_SUCCESS);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	pthread_join(thread, NULL);
	second_close(&second);
	sides_close(side);
	alarm(0);
}

static uint64_t polled_at(const struct side *side)
{
	uint64_t at;

	snt__udp_lock(side->device);
	at = atomic_load(&side->device->progress.polled_at);
	snt__udp_unlock(side->device);
	return at;
}

#define DETENTION UINT64_C(100000000)

/* While a post is in the kernel, another thread polls: the time of both counts once. The thread
 * would leave the socket alone until the time came that was noted. */
static void a_post_and_polls_take_no_time_twice(void **state)
{
	struct side side[2];
	pthread_t thread;
	struct ibv_wc wc;
	uint64_t begin;

	(void)state;
	alarm(patience_s(60));
	sides_open(side, NULL);
	side_put_to_sleep(&side[0]);
	thread = detain_first(side);
	begin = snt__udp_now();
	while (polled_at(side) < begin + DETENTION)
		assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 0);
	faults_release();
	pthread_join(thread, NULL);
	assert_true(polled_at(side) <= snt__udp_now());
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	side_wake_up(&side[0]);
	sides_close(side);
	alarm(0);
}

static void *poll_once(void *arg)
{
	struct side *side = arg;
	struct ibv_wc wc;

	ibv_poll_cq(side->cq, 0, &wc);
	return NULL;
}

/* As if the thread had found nothing to do, and no timer to wait for. */
static void put_to_long_sleep(struct side *side)
{
	snt__udp_lock(side->device);
	side->device->progress.owner = SNT__OWNER_THREAD;
	side->device->progress.thread = SNT__THREAD_ASLEEP;
	side->device->progress.wake_at = SNT__PROGRESS_NEVER;
	snt__udp_unlock(side->device);
}

/* One that polls is held up in the kernel with an acknowledgment, and the thread goes to sleep
 * meanwhile: the next acknowledgment does not wait for another poll, or for the thread. */
static void a_poller_is_held_up_and_leaves(void **state)
{
	struct pollfd request = { .events = POLLIN };
	struct side side[2];
	pthread_t thread;

	(void)state;
	alarm(patience_s(60));
	sides_open(side, NULL);
	side_put_to_sleep(&side[1]);
	side_take_request(side);
	faults_detain(side[1].device->socket.fd);
	assert_success(pthread_create(&thread, NULL, poll_once, &side[1]));
	faults_await_detained();
	put_to_long_sleep(&side[1]);
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	request.fd = side[1].device->socket.fd;
	assert_int_equal(poll(&request, 1, -1), 1);
	faults_release();
	pthread_join(thread, NULL);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	side_wake_up(&side[1]);
	sides_close(side);
	alarm(0);
}

static void *destroy_second(void *arg)
{
	struct second *second = arg;

	assert_success(second->one.control->destroy_qp(second->one.qp));
	second->one.qp = NULL;
	return NULL;
}

/* What a QP has posted is sent before it goes. */
static void a_qp_goes_after_its_packets(void **state)
{
	struct second second;
	pthread_t first, last;
	struct side side[2];
	unsigned waiting;
	bool there;

	(void)state;
	alarm(patience_s(60));
	sides_open(side, NULL);
	second_open(&second, side);
	first = detain_first(side);
	second.one.bytes[0] = 1;
	side_post(&second.one, &second.other, IBV_WR_RDMA_WRITE, 1);
	assert_success(pthread_create(&last, NULL, destroy_second, &second));
	do {
		snt__udp_lock(side->device);
		waiting = side->device->gate.waiting;
		snt__udp_unlock(side->device);
		sched_yield();
	} while (!waiting);
	faults_release();
	pthread_join(first, NULL);
	pthread_join(last, NULL);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	do {
		snt__udp_lock(side[1].device);
		there = second.other.bytes[SIDE_BYTES / 2];
		snt__udp_unlock(side[1].device);
	} while (!there);
	second_close(&second);
	sides_close(side);
	alarm(0);
}

static uint64_t processor_time(struct side *side)
{
	struct timespec used;
	clockid_t clock;

	assert_success(pthread_getcpuclockid(side->device->thread, &clock));
	assert_success(clock_gettime(clock, &used));
	return used.tv_sec * UINT64_C(1000000000) + used.tv_nsec;
}

static void set_receiving(struct side *side, bool receiving)
{
	snt__udp_lock(side->device);
	side->device->receiver.busy = receiving;
	snt__udp_unlock(side->device);
}

/* A program that is pinned shares its processor with the device's thread, which must not take it
 * while the program is about to take the packets. */
static void a_receiver_in_the_kernel_keeps_its_processor(void **state)
{
	uint64_t begin, used;
	struct side side[2];

	(void)state;
	alarm(patience_s(60));
	sides_open(side, NULL);
	set_receiving(side, true);
	begin = snt__udp_now();
	used = processor_time(side);
	while (snt__udp_now() - begin < DETENTION)
		sched_yield();
	used = processor_time(side) - used;
	set_receiving(side, false);
	/* A busy host makes each look dearer; without the pause it would be all of it. */
	assert_true(used < DETENTION / 2);
	sides_close(side);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_sender_in_the_kernel_holds_up_no_thread,
				       set_up),
		cmocka_unit_test_setup(a_qp_goes_after_its_packets, set_up),
		cmocka_unit_test_setup(a_post_and_polls_take_no_time_twice, set_up),
		cmocka_unit_test_setup(a_poller_is_held_up_and_leaves, set_up),
		cmocka_unit_test_setup(a_receiver_in_the_kernel_keeps_its_processor,
				       set_up),
	};

	return cmocka_run_group_tests_name("udp_gate", tests, NULL, NULL);
}
