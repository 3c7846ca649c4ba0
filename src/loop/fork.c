/* SPDX-License-Identifier: MIT */
/*
 * A child of the process shares the epoll instance, so that whatever it took or armed
 * would be its parent's loss.
 */
#include <pthread.h>

#include "loop/loop.h"

atomic_uint snt__fork_mark = 1;

static void in_child(void)
{
	atomic_fetch_add_explicit(&snt__fork_mark, 1, memory_order_relaxed);
}

static void watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void snt__fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch);
}
