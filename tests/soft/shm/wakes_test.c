/* SPDX-License-Identifier: MIT */
/* A message to a program that sleeps wakes one thread, the one that sleeps, whether in a
 * wait of ours or in an event loop of its own; and costs few system calls. */
#include "lib/test.h"

#include <poll.h>
#include <pthread.h>
#include <sennit/sennit.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dev/soft/udp/socket.h"
#include "lib/patience.h"

#define BYTES 64
#define WARM  200
#define COUNT 1000
/* Naps and the end of one, timers, and a busy machine. */
#define WAKES_MAX 1.1

static atomic_uint wakes, calls;

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

/* Devices' threads sleep here, too. What times out was not woken, and a thread that looks
 * has not slept. */
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	bool sleeps = !timeout || timeout->tv_sec || timeout->tv_nsec;
	int ret = __real_ppoll(fds, count, timeout, mask);

	atomic_fetch_add(&calls, 1);
	if (ret > 0 && sleeps)
		atomic_fetch_add(&wakes, 1);
	return ret;
}

int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);

int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	int ret = __real_epoll_wait(fd, events, count, timeout);

	atomic_fetch_add(&calls, 1);
	if (ret > 0 && timeout)
		atomic_fetch_add(&wakes, 1);
	return ret;
}

/* Calls that are only counted. */
#define COUNT_CALLS(type, name, params, args) \
	type __real_##name params;            \
	type __wrap_##name params;            \
	type __wrap_##name params             \
	{                                     \
		atomic_fetch_add(&calls, 1);  \
		return __real_##name args;    \
	}

COUNT_CALLS(int, epoll_ctl, (int fd, int how, int at, struct epoll_event *event),
	    (fd, how, at, event))
COUNT_CALLS(ssize_t, sendmsg, (int fd, const struct msghdr *header, int flags),
	    (fd, header, flags))
COUNT_CALLS(ssize_t, recvmsg, (int fd, struct msghdr *header, int flags),
	    (fd, header, flags))
COUNT_CALLS(int, snt__udp_sendmmsg,
	    (int fd, struct mmsghdr *headers, unsigned count, int flags),
	    (fd, headers, count, flags))
COUNT_CALLS(int, snt__udp_recvmmsg,
	    (int fd, struct mmsghdr *headers, unsigned count, int flags),
	    (fd, headers, count, flags))
COUNT_CALLS(int, eventfd_write, (int fd, eventfd_t value), (fd, value))
COUNT_CALLS(int, eventfd_read, (int fd, eventfd_t *value), (fd, value))
COUNT_CALLS(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size))

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_mem *mem;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_card card;
	struct snt_op recv[2], send[2];
	int epoll; /* the program's own, with the loop's fd; -1: it waits */
	unsigned received;
	bool asks;
	unsigned char bytes[2 * BYTES];
};

/* Where a message comes from, and where a program sleeps. */
struct way {
	const char *shm;
	bool event_loop;
	uint32_t edge;
	double calls_max; /* system calls for a message, of all threads */
};

static void watch_loop(struct end *end, const struct way *way)
{
	struct epoll_event event = { .events = EPOLLIN | way->edge };

	end->epoll = -1;
	if (!way->event_loop)
		return;
	end->epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_true(end->epoll >= 0);
	assert_success(
		epoll_ctl(end->epoll, EPOLL_CTL_ADD, snt_loop_fd(end->loop), &event));
}

static void open_end(struct end *end, const struct way *way)
{
	struct snt_ctx_opts ctx = { .size = sizeof(ctx), .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 1, .devices = 1 };

	assert_success(snt_ctx_create(&ctx, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	assert_success(snt_loop_set_spin(end->loop, 0));
	watch_loop(end, way);
	cq.loop = end->loop;
	assert_success(snt_mem_register(end->ctx, end->bytes, sizeof(end->bytes),
					SNT_ACCESS_LOCAL_WRITE, &end->mem));
	assert_success(snt_qp_create_with_cq(end->ctx, &cq, &qp, &end->cq, &end->qp));
	assert_success(snt_qp_card(end->qp, &end->card));
}

static void close_end(struct end *end)
{
	struct snt_op op = { 0 };

	if (end->epoll >= 0)
		close(end->epoll);
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
	struct snt_op *op = &end->send[snt_op_pending(&end->send[0])];

	if (snt_op_pending(op))
		assert_true(snt_op_wait(op, -1) >= 0);
	assert_success(snt_op_send(end->qp, op, &sge));
}

static void begin_count(void)
{
	atomic_store(&wakes, 0);
	atomic_store(&calls, 0);
}

static void talk_in_waits(struct end *end)
{
	begin_recv(end, &end->recv[0]);
	for (unsigned i = 0; i < WARM + COUNT; i++) {
		/* Before the answer can come. */
		begin_recv(end, &end->recv[(i + 1) % 2]);
		if (i == WARM && end->asks)
			begin_count();
		if (end->asks)
			send_now(end);
		assert_true(snt_op_wait(&end->recv[i % 2], -1) >= 0);
		if (!end->asks)
			send_now(end);
	}
}

/* Programs with event loops answer in callbacks. The last message but one has been
 * acknowledged. */
static void answer_in_callback(struct snt_op *op)
{
	struct end *end = op->arg;

	/* The last receives end with the QP. */
	if (end->received == WARM + COUNT)
		return;
	assert_int_equal(op->result, 0);
	if (++end->received == WARM && end->asks)
		begin_count();
	begin_recv(end, op);
	if (end->received == WARM + COUNT && end->asks)
		return;
	assert_false(snt_op_pending(&end->send[0]) && snt_op_pending(&end->send[1]));
	send_now(end);
}

static void talk_in_event_loop(struct end *end)
{
	struct epoll_event event;

	for (unsigned i = 0; i < 2; i++) {
		end->recv[i].done = answer_in_callback;
		end->recv[i].arg = end;
		begin_recv(end, &end->recv[i]);
	}
	if (end->asks)
		send_now(end);
	while (end->received < WARM + COUNT) {
		assert_true(epoll_wait(end->epoll, &event, 1, -1) >= 0);
		assert_true(snt_loop_dispatch(end->loop, 0) >= 0);
	}
}

static void *talk(void *arg)
{
	struct end *end = arg;

	if (end->epoll < 0)
		talk_in_waits(end);
	else
		talk_in_event_loop(end);
	return NULL;
}

struct counts {
	double wakes, calls; /* for a message */
};

static struct counts count_both(const struct way *way)
{
	struct end end[2] = { 0 };
	struct counts counts;
	pthread_t thread;

	setenv("SENNIT_SOFT_SHM", way->shm, 1);
	for (unsigned i = 0; i < 2; i++)
		open_end(&end[i], way);
	assert_success(snt_qp_connect(end[0].qp, &end[1].card));
	assert_success(snt_qp_connect(end[1].qp, &end[0].card));
	end[0].asks = true;
	assert_success(pthread_create(&thread, NULL, talk, &end[1]));
	talk(&end[0]);
	counts.wakes = atomic_load(&wakes) / (2.0 * COUNT);
	counts.calls = atomic_load(&calls) / (2.0 * COUNT);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < 2; i++)
		close_end(&end[i]);
	return counts;
}

/* On a machine with others, naps of 500 us pass between a message and its answer, and
 * acknowledgments go out by themselves. Without lent fds an event loop makes 11 system calls
 * a message through memory, and 21 by socket. */
static void assert_one_wake_each(const struct way *way)
{
	struct counts counts = { 0 };

	for (unsigned i = 0; i < 30; i++) {
		counts = count_both(way);
		print_message("# %.2f wake-ups and %.2f system calls a message\n",
			      counts.wakes, counts.calls);
		if (counts.wakes <= WAKES_MAX && counts.calls <= way->calls_max)
			return;
	}
	assert_true(counts.wakes <= WAKES_MAX);
	assert_true(counts.calls <= way->calls_max);
}

static void a_message_through_memory_wakes_one_thread(void **state)
{
	(void)state;
	assert_one_wake_each(&(struct way){ .shm = "on", .calls_max = 7 });
}

static void a_message_by_socket_wakes_one_thread(void **state)
{
	(void)state;
	assert_one_wake_each(&(struct way){ .shm = "off", .calls_max = 10 });
}

static void a_message_through_memory_wakes_an_event_loop(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_one_wake_each(&(struct way){ .shm = "on",
						    .event_loop = true,
						    .edge = i ? EPOLLET : 0,
						    .calls_max = 7 });
}

static void a_message_by_socket_wakes_an_event_loop(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_one_wake_each(&(struct way){ .shm = "off",
						    .event_loop = true,
						    .edge = i ? EPOLLET : 0,
						    .calls_max = 11 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_through_memory_wakes_one_thread),
		cmocka_unit_test(a_message_by_socket_wakes_one_thread),
		cmocka_unit_test(a_message_through_memory_wakes_an_event_loop),
		cmocka_unit_test(a_message_by_socket_wakes_an_event_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
