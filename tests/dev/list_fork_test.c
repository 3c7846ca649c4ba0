/* SPDX-License-Identifier: MIT */
/* A fork while another thread lists the devices of libibverbs, which has a lock for it. */
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define PATIENCE_NS 200000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool begun, listing, forked;

/* Stays until the process has been forked, or does not fork as long as this goes on. */
struct ibv_device **ibv_get_device_list(int *count)
{
	struct timespec until;

	*count = 0;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += PATIENCE_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&lock);
	begun = listing = true;
	pthread_cond_broadcast(&changed);
	while (!forked && !pthread_cond_timedwait(&changed, &lock, &until))
		;
	listing = false;
	pthread_mutex_unlock(&lock);
	errno = ENOSYS;
	return NULL;
}

static void *open_context(void *unused)
{
	const struct snt_ctx_opts opts = { .size = sizeof(opts),
					   .soft = SNT_SOFT_NEVER };
	struct snt_ctx *ctx;

	(void)unused;
	assert_int_equal(snt_ctx_create(&opts, &ctx), -ENODEV);
	return NULL;
}

static void forks_wait_until_no_thread_lists_devices(void **state)
{
	pthread_t thread;
	pid_t child;
	int status;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, open_context, NULL), 0);
	pthread_mutex_lock(&lock);
	while (!begun)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	child = fork();
	if (!child)
		_exit(listing);
	pthread_mutex_lock(&lock);
	forked = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forks_wait_until_no_thread_lists_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
