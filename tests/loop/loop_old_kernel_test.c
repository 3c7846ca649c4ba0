/* SPDX-License-Identifier: MIT */
/*
 * Waiting where the kernel, or the policy of a container, has no epoll_pwait2(2).
 */
#include "lib/test.h"

#include <errno.h>
#include <sys/epoll.h>

#include "lib/loop_kit.h"

static unsigned calls;
static int error;

int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int max,
			const struct timespec *timeout, const sigset_t *mask);
int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int max,
			const struct timespec *timeout, const sigset_t *mask)
{
	(void)fd;
	(void)events;
	(void)max;
	(void)timeout;
	(void)mask;
	calls++;
	errno = error;
	return -1;
}

static void other_errors_are_told_of(void **state)
{
	struct loop_pair *pair = loop_pair_simple();

	(void)state;
	error = ENOMEM;
	for (unsigned i = 0; calls < 2 && i < 10; i++) {
		int ret = snt_loop_wait(pair->end[0].loop, 1000);

		assert_true(ret == 0 || ret == -ENOMEM);
	}
	/* It is tried again after them. */
	assert_int_equal(calls, 2);
	loop_pair_close(pair);
}

static void a_missing_epoll_pwait2_is_remembered(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;
	uint64_t begin = snt_loop_now(loop);

	(void)state;
	error = ENOSYS;
	calls = 0;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(snt_loop_wait(loop, 1000000), 0);
	assert_int_equal(calls, 1);
	/* At most the first one ends early, since the fd is new. */
	assert_true(snt_loop_now(loop) - begin >= 9 * 1000000);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_errors_are_told_of),
		cmocka_unit_test(a_missing_epoll_pwait2_is_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
