/* SPDX-License-Identifier: MIT */
#include "util/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "util/err.h"

/* The kernel does not report which limit it was; root is subject only to that of the
 * cgroup. */
static int explain_limit(const char *purpose)
{
	struct rlimit limit;
	char now[40] = "";

	if (!getrlimit(RLIMIT_NPROC, &limit) && limit.rlim_cur != RLIM_INFINITY)
		snprintf(now, sizeof(now), ", now %llu",
			 (unsigned long long)limit.rlim_cur);
	return snt__fail(EAGAIN,
			 "no thread %s: the limit on threads is reached; raise "
			 "ulimit -u (RLIMIT_NPROC%s) or pids.max of the cgroup, or end "
			 "other threads and processes",
			 purpose, now);
}

int snt__thread_start(pthread_t *thread_out, const char *purpose, void *(*run)(void *),
		      void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	/* Created detached: a thread that is detached later is taken by ThreadSanitizer
	 * for a running one in the child of a fork. */
	pthread_attr_init(&attr);
	if (!thread_out)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (error == EAGAIN)
		return explain_limit(purpose);
	if (error)
		return snt__fail(error, "no thread %s: %s", purpose, strerror(error));
	if (thread_out)
		*thread_out = thread;
	return 0;
}
