/* SPDX-License-Identifier: MIT */
/* Children of a process with soft devices: what they have of them, and what they must
 * not take from it. */
#include "lib/udp_side.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev/cm.h"

static void expect_exit(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static bool readable(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	return poll(&wait, 1, 0) == 1;
}

static void await_readable(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&wait, 1, 30000), 1);
}

/*
 * Events
 */

/* An event that waits for the parent is not the child's, which lets go of
 * everything. */
static void events_stay_with_the_parent(void **state)
{
	struct side side[2];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	pid_t child;

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		await_readable(side[0].channel->fd);
		child = fork();
		if (!child) {
			sides_close(side);
			_exit(0);
		}
		expect_exit(child);
		assert_true(readable(side[0].channel->fd));
		assert_success(
			side[0].control->get_cq_event(side[0].channel, &cq, &context));
		side[0].control->ack_cq_events(cq, 1);
		assert_int_equal(ibv_poll_cq(side[0].cq, 1, &wc), 1);
		assert_false(readable(side[0].channel->fd));
	}
	sides_close(side);
}

static int wait_in_child(struct side *side)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	if (side->control->get_cq_event(side->channel, &cq, &context) != -EIO)
		return 1;
	return side->control->get_async_event(side->context, &event) == -EIO ? 0 : 2;
}

/* A wait in a child is for what only the parent can do. */
static void child_waits_in_vain(void **state)
{
	struct side side[2];
	pid_t child;

	(void)state;
	sides_open(side, NULL);
	child = fork();
	if (!child)
		_exit(wait_in_child(&side[0]));
	expect_exit(child);
	sides_close(side);
}

static struct snt__cm *open_manager(struct side *side)
{
	struct snt__cm_device device = { side->context, 1 };
	struct snt__cm_opts opts = { .devices = &device, .device_count = 1 };
	struct snt__cm *cm;

	assert_success(snt__cm_soft.open(&opts, &cm));
	return cm;
}

static struct snt__cm_id *resolve(struct snt__cm *cm, const struct side *side)
{
	union snt__udp_sockaddr target;
	struct snt__cm_id *id;

	snt__udp_sockaddr(side->device->address.gid, 0, 7000, &target);
	assert_success(snt__cm_soft.resolve(cm, NULL, &target.any, 0, &id));
	return id;
}

/* The same with those of a connection manager, that wait or that the child has made. */
static void connections_stay_with_the_parent(void **state)
{
	struct snt__cm_event event;
	struct side side;
	struct snt__cm *cm;
	struct snt__cm_id *id;
	pid_t child;

	(void)state;
	side_open(&side, 1, NULL);
	cm = open_manager(&side);
	child = fork();
	if (!child) {
		resolve(cm, &side);
		_exit(0);
	}
	expect_exit(child);
	assert_false(readable(snt__cm_soft.fd(cm)));
	id = resolve(cm, &side);
	assert_true(readable(snt__cm_soft.fd(cm)));
	child = fork();
	if (!child) {
		snt__cm_soft.destroy(id);
		_exit(snt__cm_soft.close(cm) != 0);
	}
	expect_exit(child);
	assert_true(readable(snt__cm_soft.fd(cm)));
	assert_success(snt__cm_soft.next_event(cm, &event));
	assert_int_equal(event.type, SNT__CM_EVENT_RESOLVED);
	snt__cm_soft.destroy(id);
	assert_success(snt__cm_soft.close(cm));
	side_close(&side);
}

/*
 * Forks while devices come and go
 */

/* In a child: is its standard input still there, and no socket of a device? Nothing but
 * system calls. */
static int look_around(void)
{
	if (fcntl(0, F_GETFD) < 0)
		return 1;
	for (int fd = 0; fd < 256; fd++) {
		union snt__udp_sockaddr local = { 0 };
		socklen_t size = sizeof(local);

		if (!getsockname(fd, &local.any, &size) &&
		    local.any.sa_family == AF_INET &&
		    local.v4.sin_port == htons(SNT__WIRE_PORT))
			return 2;
	}
	return 0;
}

static void *fork_once(void *result)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(look_around());
	waitpid(child, &status, 0);
	*(int *)result = status;
	return NULL;
}

#define FORKERS 64

/* Threads that fork in the middle of what the main thread does. */
static struct {
	bool at_work;
	pthread_t main;
	unsigned count;
	bool joined[FORKERS];
	pthread_t thread[FORKERS];
	int status[FORKERS];
} forkers;

/* Lets another thread fork here, if it is possible here; if not, it happens later. */
static void fork_here(void)
{
	unsigned i = forkers.count;
	struct timespec end;

	if (!forkers.at_work || !pthread_equal(pthread_self(), forkers.main))
		return;
	assert_true(forkers.count++ < FORKERS);
	assert_int_equal(pthread_create(&forkers.thread[i], NULL, fork_once,
					&forkers.status[i]),
			 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += 20000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	forkers.joined[i] = !pthread_timedjoin_np(forkers.thread[i], NULL, &end);
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __real_bind(int fd, const struct sockaddr *name, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *name, socklen_t size);
int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_eventfd(unsigned count, int flags)
{
	fork_here();
	return __real_eventfd(count, flags);
}

int __wrap_bind(int fd, const struct sockaddr *name, socklen_t size)
{
	int ret = __real_bind(fd, name, size);

	fork_here();
	return ret;
}

int __wrap_close(int fd)
{
	int ret = __real_close(fd);

	fork_here();
	return ret;
}

/* A child has neither lost an fd nor got a port, whenever it was born. */
static void forks_at_any_time(void **state)
{
	struct snt__udp_address address = side_address(1);
	struct snt__udp_opts opts = { .name = "side1", .address = &address };
	struct snt__udp_device *device;

	(void)state;
	forkers.main = pthread_self();
	for (unsigned shm = 0; shm < 2; shm++) {
		opts.shm = shm;
		forkers.count = 0;
		forkers.at_work = true;
		assert_success(snt__udp_device_create(&opts, &device));
		assert_success(snt__udp_device_destroy(device));
		forkers.at_work = false;
		assert_true(forkers.count >= 5);
		for (unsigned i = 0; i < forkers.count; i++) {
			if (!forkers.joined[i])
				pthread_join(forkers.thread[i], NULL);
			assert_int_equal(forkers.status[i], 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_stay_with_the_parent),
		cmocka_unit_test(child_waits_in_vain),
		cmocka_unit_test(connections_stay_with_the_parent),
		cmocka_unit_test(forks_at_any_time),
	};

	return cmocka_run_group_tests_name("udp_fork", tests, NULL, NULL);
}
