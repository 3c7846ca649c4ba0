/* SPDX-License-Identifier: MIT */
/* Sockets that are full. */
#include "lib/udp_side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/udp_faults.h"

#define ALL (SIDE_BYTES / 2)

static int set_up(void **state)
{
	(void)state;
	faults_set((struct faults){ 0 });
	side_timeout = SIDE_PATIENT;
	return 0;
}

/* What a full socket does not take is sent when it does, and nothing twice. */
static void sent_later(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	faults_set((struct faults){ .seed = 1, .full = 300 });
	for (unsigned i = 0; i < 20; i++)
		side_check(&side[0], &side[1], ALL);
	assert_true(faults_get().full_count > 20);
	faults_set((struct faults){ 0 });
	assert_int_equal(side_stats(&side[0]).resent, 0);
	assert_int_equal(side_stats(&side[0]).timeouts, 0);
	sides_close(side);
}

/* In one list: short ones that are one message, and at the end of the batch the first
 * packet of a long one, which is kept for those that follow it. */
#define SHORT_ONES (SNT__UDP_SEND_BATCH - 1)

static void post_short_and_long(struct side *side, const struct side *to)
{
	struct ibv_sge sge[SHORT_ONES + 1];
	struct ibv_send_wr wr[SHORT_ONES + 1], *bad;

	for (unsigned i = 0; i <= SHORT_ONES; i++) {
		bool last = i == SHORT_ONES;

		sge[i] = (struct ibv_sge){ (uintptr_t)side->bytes, last ? ALL : 64,
					   side->mr->lkey };
		wr[i] = (struct ibv_send_wr){ .next = last ? NULL : &wr[i + 1],
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE };
		wr[i].wr.rdma.remote_addr = (uintptr_t)to->bytes + SIDE_BYTES / 2;
		wr[i].wr.rdma.rkey = to->mr->rkey;
	}
	assert_int_equal(ibv_post_send(side->qp, wr, &bad), 0);
}

static void while_packets_are_kept(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	faults_set((struct faults){ .seed = 1, .full = 500 });
	for (unsigned i = 0; i < 20; i++) {
		memset(side[0].bytes, (int)i, ALL);
		post_short_and_long(&side[0], &side[1]);
		for (unsigned k = 0; k <= SHORT_ONES; k++)
			assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
		assert_memory_equal(side[0].bytes, side[1].bytes + SIDE_BYTES / 2, ALL);
	}
	faults_set((struct faults){ 0 });
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* The program does not poll: the thread has to find out that there is room again. */
static void full_socket_is_tried_again_without_polls(void **state)
{
	struct side side[2];
	struct ibv_cq *cq;
	void *context;

	(void)state;
	sides_open(side, NULL);
	faults_set((struct faults){ .seed = 1, .full = 500 });
	for (unsigned i = 0; i < 10; i++) {
		struct ibv_wc wc;

		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, ALL);
		assert_success(
			side[0].control->get_cq_event(side[0].channel, &cq, &context));
		side[0].control->ack_cq_events(cq, 1);
		assert_int_equal(ibv_poll_cq(side[0].cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	faults_set((struct faults){ 0 });
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* How often a thread has waited for room on a socket. */
static struct {
	atomic_int fd; /* 0: none */
	atomic_uint count;
} waits_for_room;

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	for (nfds_t i = 0; i < count; i++)
		waits_for_room.count +=
			fds[i].fd == waits_for_room.fd && (fds[i].events & POLLOUT);
	return __real_ppoll(fds, count, timeout, mask);
}

static void await_wait_for_room(struct side *side)
{
	unsigned before = waits_for_room.count;

	waits_for_room.fd = side->device->socket.fd;
	while (waits_for_room.count == before)
		sched_yield();
	waits_for_room.fd = 0;
}

static void *post_one(void *arg)
{
	struct side *side = arg;

	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	return NULL;
}

static pthread_t detain_poster(struct side side[2])
{
	pthread_t thread;

	faults_detain(side[0].device->socket.fd);
	assert_int_equal(pthread_create(&thread, NULL, post_one, side), 0);
	faults_await_detained();
	return thread;
}

/* A thread wants the one in the kernel to send something, and that finds the socket
 * full: the device's thread sleeps until there is room. */
static void while_others_want_to_send(void **state)
{
	struct side side[2];
	pthread_t thread;

	(void)state;
	alarm(patience_s(60));
	sides_open(side, NULL);
	thread = detain_poster(side);
	post_one(side);
	faults_set((struct faults){ .full = 1000 });
	faults_release();
	pthread_join(thread, NULL);
	await_wait_for_room(side);
	faults_set((struct faults){ 0 });
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	sides_close(side);
	alarm(0);
}

/* Until its thread sleeps without a look at the socket's room. */
static void await_asleep(struct side *side)
{
	bool asleep;

	do {
		sched_yield();
		snt__udp_lock(side->device);
		asleep = snt__progress_rests(&side->device->progress);
		snt__udp_unlock(side->device);
	} while (!asleep);
}

static void *poll_one(void *arg)
{
	struct side *side = arg;
	struct ibv_wc wc;

	ibv_poll_cq(side->cq, 0, &wc);
	return NULL;
}

/* One that polls finds the socket full, still: the thread did not know when it went to
 * sleep, since that one was in the kernel. */
static void while_a_poller_tries_again(void **state)
{
	struct side side[2];
	pthread_t thread;

	(void)state;
	alarm(patience_s(60));
	side_timeout = SIDE_PATIENT + 4;
	sides_open(side, NULL);
	faults_set((struct faults){ .full = 1000 });
	snt__udp_thread_stop(side->device);
	post_one(side);
	faults_detain(side->device->socket.fd);
	assert_int_equal(pthread_create(&thread, NULL, poll_one, side), 0);
	faults_await_detained();
	side->device->over = false;
	assert_success(snt__udp_thread_start(side->device, "side1"));
	await_asleep(side);
	faults_release();
	pthread_join(thread, NULL);
	await_wait_for_room(side);
	faults_set((struct faults){ 0 });
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(side_stats(&side[0]).timeouts, 0);
	sides_close(side);
	alarm(0);
}

/* Longer than the thread waits for one that sleeps on the socket before it takes that
 * for held up. */
#define FULL_NS 40000000

static void borrow(struct side *side)
{
	int fds[SNT__RX_FDS];

	while (!snt__udp_rx_borrow(side->device, fds, NULL))
		sched_yield();
}

/* A program sleeps on the socket, which another thread finds full: only the device's
 * thread can find out that there is room again. */
static void while_one_sleeps_on_the_socket(void **state)
{
	const struct timespec full = { .tv_nsec = FULL_NS };
	struct side side[2];

	(void)state;
	alarm(patience_s(60));
	side_timeout = SIDE_PATIENT + 4;
	sides_open(side, NULL);
	borrow(side);
	faults_set((struct faults){ .full = 1000 });
	post_one(side);
	nanosleep(&full, NULL);
	faults_set((struct faults){ 0 });
	while (!side_stats(&side[1]).packets_in)
		sched_yield();
	assert_int_equal(side_stats(&side[0]).timeouts, 0);
	snt__udp_rx_return(side->device, false, NULL);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	sides_close(side);
	alarm(0);
}

/* They have been taken from the device, so that it does not lose them itself. */
static void packets_held_up_are_lost_by_a_cut(void **state)
{
	struct side side[2];

	(void)state;
	side_timeout = SIDE_LOSSY;
	sides_open(side, NULL);
	faults_set((struct faults){ .full = 1000 });
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 1000);
	assert_int_equal(side_stats(&side[0]).lost_by_fault, 0);
	assert_success(snt__udp_device_fail(side->device, SNT_FAULT_CUT_OUT, 0));
	assert_true(side_stats(&side[0]).lost_by_fault > 0);
	faults_set((struct faults){ 0 });
	assert_success(snt__udp_device_heal(side->device));
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	sides_close(side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(sent_later, set_up),
		cmocka_unit_test_setup(while_packets_are_kept, set_up),
		cmocka_unit_test_setup(full_socket_is_tried_again_without_polls,
				       set_up),
		cmocka_unit_test_setup(while_others_want_to_send, set_up),
		cmocka_unit_test_setup(while_a_poller_tries_again, set_up),
		cmocka_unit_test_setup(while_one_sleeps_on_the_socket, set_up),
		cmocka_unit_test_setup(packets_held_up_are_lost_by_a_cut, set_up),
	};

	return cmocka_run_group_tests_name("udp_full", tests, NULL, NULL);
}
