/* SPDX-License-Identifier: MIT */
#include "util/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "util/err.h"

/* The kernel does not tell which limit it was; root has none but that of the cgroup. */
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
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == EAGAIN)
		return explain_limit(purpose);
	if (error)
		return snt__fail(error, "no thread %s: %s", purpose, strerror(error));
	if (thread_out)
		*thread_out = thread;
	else
		pthread_detach(thread);
	return 0;
}
