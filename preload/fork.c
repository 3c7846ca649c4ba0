/* SPDX-License-Identifier: MIT */
/*
 * A child of the process has none of its threads. Their work must not be left half done
 * there, and locks that they held would stay locked for ever.
 */
#include "cm.h"

static void before_fork(void)
{
	pthread_mutex_lock(&snt__preload_cm_lock);
	pthread_mutex_lock(&snt__preload_devices_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&snt__preload_devices_lock);
	pthread_mutex_unlock(&snt__preload_cm_lock);
}

/* Retries, and waits for acknowledgments, go on in the parent only. */
static void in_child(void)
{
	static const pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;

	snt__preload_retry_forget_all();
	snt__preload_cm_acked = nobody;
	after_fork();
}

static void register_handlers(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

void snt__preload_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_handlers);
}
