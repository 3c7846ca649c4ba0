/* SPDX-License-Identifier: MIT */
#include "util/file_limit.h"

#include <errno.h>
#include <time.h>

static void set_of_signal(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGXFSZ);
}

static bool is_pending(void)
{
	sigset_t pending;

	return !sigpending(&pending) && sigismember(&pending, SIGXFSZ) == 1;
}

void snt__file_limit_hold(struct snt__file_limit *limit)
{
	sigset_t set;

	set_of_signal(&set);
	pthread_sigmask(SIG_BLOCK, &set, &limit->before);
	limit->was_pending = is_pending();
}

void snt__file_limit_release(const struct snt__file_limit *limit)
{
	const struct timespec now = { 0 };
	int kept = errno;
	sigset_t set;

	set_of_signal(&set);
	if (!limit->was_pending && is_pending())
		sigtimedwait(&set, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &limit->before, NULL);
	errno = kept;
}
