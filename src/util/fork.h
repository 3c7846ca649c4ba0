/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_FORK_H
#define SNT_UTIL_FORK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "util/list.h"

/*
 * Contexts and loops keep the mark of the process that made them. A child of it has a
 * different mark.
 */
extern atomic_uint snt__fork_mark;

/* Starts watching for forks; returns this process's mark. */
unsigned snt__fork_watch(void);

static inline bool snt__fork_passed(unsigned mark)
{
	return mark != atomic_load_explicit(&snt__fork_mark, memory_order_relaxed);
}

/*
 * A socket that a child of the process closes (and then has an fd of -1). No fork may
 * come between the call that makes an fd and snt__socket_add(): the thread that makes
 * one holds off forks meanwhile, for calls that do not block.
 */
struct snt__socket {
	int fd;
	struct snt__link all;
};

void snt__fork_hold(void);
void snt__fork_release(void);
void snt__socket_add(struct snt__socket *socket, int fd);
void snt__socket_close(struct snt__socket *socket);

#endif
