/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_THREAD_H
#define SNT_UTIL_THREAD_H

#include <pthread.h>

/*
 * Starts a thread of the library's own, with all signals blocked: signals are for the
 * program's threads.
 *
 * @thread_out: to be joined; NULL: detached
 * @purpose: for the sentence, "to ..."
 *
 * Returns: 0, or a negative errno with a sentence, which for -EAGAIN names the limits that
 * may have been reached.
 */
int snt__thread_start(pthread_t *thread_out, const char *purpose, void *(*run)(void *),
		      void *arg);

#endif
