/* SPDX-License-Identifier: MIT */
/* Soft devices and their connection manager are opened on a host that has run out of
 * something: each call that can fail does so once. */
#include "lib/fds.h"
#include "lib/test.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sennit/ctx.h>

#include "dev/cm.h"
#include "dev/provider.h"
#include "lib/fault.h"
#include "util/err.h"

static bool refused(const char *call)
{
	if (!fault_now(call))
		return false;
	errno = EMFILE;
	return true;
}

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
ssize_t __real_getrandom(void *buffer, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg);

int __wrap_socket(int domain, int type, int protocol)
{
	return refused("socket") ? -1 : __real_socket(domain, type, protocol);
}

int __wrap_eventfd(unsigned count, int flags)
{
	return refused("eventfd") ? -1 : __real_eventfd(count, flags);
}

int __wrap_epoll_create1(int flags)
{
	return refused("epoll_create1") ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	return refused("epoll_ctl") ? -1 : __real_epoll_ctl(epoll, what, fd, event);
}

/* A device asks for a byte, to see whether it could have more. */
ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags)
{
	if (length == 1 && refused("getrandom"))
		return -1;
	return __real_getrandom(buffer, length, flags);
}

static bool threads_refused;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg)
{
	if (threads_refused || fault_now("pthread_create"))
		return EAGAIN;
	return __real_pthread_create(thread, attr, run, arg);
}

static int open_manager(const struct snt__listing *listing)
{
	struct snt__cm_device devices[2] = { { .port = 1 }, { .port = 1 } };
	struct snt__cm_opts opts = { .devices = devices, .device_count = 2 };
	struct snt__cm *cm;
	int ret;

	for (unsigned i = 0; i < 2; i++)
		assert_success(
			snt__provider_soft.open(listing, i, &devices[i].context));
	ret = snt__cm_soft.open(&opts, &cm);
	if (!ret)
		assert_success(snt__cm_soft.close(cm));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt__provider_soft.close(devices[i].context));
	return ret;
}

static int open_all(void)
{
	struct snt__value nowhere = { .text = "", .origin = "test" };
	struct snt__listing listing;
	int ret = snt__provider_soft.list(nowhere, &listing);

	if (ret)
		return ret;
	assert_int_equal(listing.count, 2);
	ret = open_manager(&listing);
	snt__provider_soft.unlist(&listing);
	return ret;
}

/* There is a sentence and nothing is left behind. Where a device can do without, it does. */
static void each_call_fails(void **state)
{
	unsigned nth = 0, failed = 0, fds = count_fds();
	bool hit;

	(void)state;
	do {
		int ret;

		snt__fail(EPERM, "of before");
		fault_arm(++nth);
		ret = open_all();
		hit = fault_was_hit();
		if (ret && strstr(snt_err_text(), "of before"))
			fail_msg("no sentence when %s fails", fault_name());
		if (ret && ret != -ENOMEM && ret != -EMFILE && ret != -EAGAIN)
			fail_msg("%s fails: %s", fault_name(), snt_err_text());
		fault_arm(0);
		failed += !!ret;
		assert_int_equal(count_fds(), fds);
	} while (hit);
	assert_true(failed > 20);
}

/* A thread limit is -EAGAIN, of which strerror() says nothing that helps. Which of the calls
 * creates a thread is not counted: how many sockets come before it depends on the addresses
 * that other programs use at that moment. */
static void a_thread_limit_is_named(void **state)
{
	const struct snt_ctx_opts opts = { .size = sizeof(opts),
					   .soft = SNT_SOFT_ONLY };
	struct snt_ctx *ctx;
	int ret;

	(void)state;
	threads_refused = true;
	ret = snt_ctx_create(&opts, &ctx);
	threads_refused = false;
	assert_error(ret, EAGAIN, "no thread for soft");
	assert_non_null(strstr(snt_err_text(), "RLIMIT_NPROC"));
	assert_non_null(strstr(snt_err_text(), "pids.max"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_fails),
		cmocka_unit_test(a_thread_limit_is_named),
	};

	return cmocka_run_group_tests_name("udp_open", tests, NULL, NULL);
}
