/* SPDX-License-Identifier: MIT */
/* Programs with soft devices that fork, and that end in the middle of a verb. */
#include "lib/test.h"

#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/preload_kit.h"

#define TIMEOUT 10000 /* ms, for what should take none */

/* A child has none of its parent's devices, and gets its own. */
static void children(void **state)
{
	union ibv_gid ours, gid;
	struct ibv_pd *pd;
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(ibv_query_gid(open_soft(0), 1, 0, &ours), 0);
	child = fork();
	if (!child) {
		struct ibv_context *context = open_soft(0);

		_exit(ibv_query_gid(context, 1, 0, &gid) ||
		      !memcmp(&gid, &ours, sizeof(gid)) || !ibv_alloc_pd(context));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pd = ibv_alloc_pd(open_soft(0));
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* Returns 0 if all is well in the child. */
static int use_list_of_parent(struct ibv_device *device)
{
	struct ibv_context *own = open_soft(0);

	if (ibv_open_device(device) || errno != ENODEV)
		return 1;
	if (ibv_get_device_guid(device) || ibv_get_device_index(device) != -1)
		return 2;
	return own->device == device;
}

/* A device of the parent's is nobody's any more when the child has listed its own. */
static void list_of_parent(void **state)
{
	struct ibv_device *device = open_soft(0)->device;
	int status;
	pid_t child = fork();

	(void)state;
	if (!child)
		_exit(use_list_of_parent(device));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

struct making {
	atomic_bool over;
	atomic_uint rounds;
};

static void *make_ids(void *arg)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct making *making = arg;
	struct rdma_cm_id *id;

	while (!making->over) {
		assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_destroy_id(id), 0);
		making->rounds++;
	}
	rdma_destroy_event_channel(channel);
	return NULL;
}

/* Whatever another thread was doing when it was made, a child has ids of its own. */
static void ids_of_children(void **state)
{
	struct making making = { .over = false };
	pthread_t thread;

	(void)state;
	open_soft(0);
	assert_int_equal(pthread_create(&thread, NULL, make_ids, &making), 0);
	/* At first it has the loader's lock, too, which cannot be helped. */
	while (!making.rounds)
		;
	for (unsigned i = 0; i < 30; i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			struct rdma_event_channel *channel;
			struct rdma_cm_id *id;

			alarm(patience_s(
				20)); /* ends it, if it waits for what is not there */
			channel = rdma_create_event_channel();
			_exit(!channel ||
			      rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	making.over = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void leave(int signal)
{
	(void)signal;
	exit(0);
}

/* In the middle of a verb, whose thread has the device's lock. */
static void poll_until_signal(useconds_t delay)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_wc wc;

	signal(SIGALRM, leave);
	ualarm(delay, 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	_exit(1);
}

static void exit_by_signal(void **state)
{
	(void)state;
	for (useconds_t delay = 1000; delay < 11000; delay += 1111) {
		pid_t child = fork();
		int waited = 0;

		if (!child)
			poll_until_signal(delay);
		while (!waitpid(child, NULL, WNOHANG)) {
			poll(NULL, 0, 10);
			if (++waited < TIMEOUT / 10)
				continue;
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
			fail_msg("a process hangs in exit()");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(children),
		cmocka_unit_test(list_of_parent),
		cmocka_unit_test(ids_of_children),
		cmocka_unit_test(exit_by_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
