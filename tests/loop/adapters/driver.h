/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_DRIVER_H
#define SENNIT_TESTS_LOOP_DRIVER_H

#include <errno.h>
#include <stdbool.h>
#include <sennit/sennit.h>

/*
 * An event loop, as the tests see it: its adapter, and what else a program would have in
 * it. Each thread can have one. What attach, watch and tick return is undone by its
 * counterpart, which is legal in callbacks.
 */
struct driver {
	const char *name;
	/* 0; or a negative errno: -EPERM, -EACCES, -ENOSYS: not to be had on this host */
	int (*start)(void);
	void (*stop)(void);
	/* One turn: sleeps, if it may, until something is ready, and handles all that is. */
	void (*turn)(bool may_sleep);

	/* By the adapter, whose object is freed as soon as it may be. */
	void *(*attach)(struct snt_loop *loop, int budget);
	void (*detach)(void *attached);
	/* Whatever a program watches, until it is not readable any more. */
	void *(*watch)(int fd, void (*ready)(void *arg), void *arg);
	void (*unwatch)(void *watched);
	/* Again and again; both are NULL in a loop that has no timers (ticker.h). */
	void *(*tick)(unsigned period_ms, void (*ticked)(void *arg), void *arg);
	void (*untick)(void *ticker);
};

/* Those that this program has; ends with NULL. */
extern const struct driver *const drivers[];

/* The loop refused; ends the program. */
_Noreturn void driver_fail(const char *what, int error);

static inline void driver_must(int ret, const char *what)
{
	if (ret < 0)
		driver_fail(what, ret);
}

/* What is to be done about a dispatch that failed; NULL: driver_fail(). */
extern void (*driver_error)(int error);

static inline void driver_dispatched(int ret)
{
	if (ret >= 0)
		return;
	if (!driver_error)
		driver_fail("dispatch", ret);
	driver_error(ret);
}

/* Adapters refuse to be attached twice. */
static inline void driver_refused(int ret)
{
	driver_must(ret == -EALREADY ? 0 : -EPROTO, "it can be attached twice");
}

#endif
