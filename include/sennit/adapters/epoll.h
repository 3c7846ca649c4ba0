/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_EPOLL_H
#define SENNIT_ADAPTERS_EPOLL_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of epoll(7).
 *
 *	struct snt_epoll sennit = { 0 };
 *
 *	snt_epoll_attach(&sennit, loop, epoll_fd, 0);
 *	for (;;) {
 *		count = epoll_wait(epoll_fd, events, 16, -1);
 *		for (int i = 0; i < count; i++)
 *			if (events[i].data.ptr == &sennit)
 *				snt_epoll_ready(&sennit);
 *			else
 *				...the program's own...
 *	}
 *
 * Programs that keep something other than a pointer in epoll_event::data need no
 * adapter: they add snt_loop_fd() themselves and call snt_loop_dispatch().
 *
 * One object for each loop; it must not move while attached. Detach before the
 * loop is closed; both are legal in callbacks, as is freeing the object afterwards.
 * After detaching, do not pass events that epoll_wait() returned before.
 *
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. */
struct snt_epoll {
	/* The program's. */
	int budget; /* callbacks in one turn; 0: as snt_loop_dispatch() */

	/* The adapter's. */
	struct snt_loop *loop; /* NULL: not attached */
	int epoll_fd;
	int fd;
};

/**
 * snt_epoll_attach - start watching a loop
 * @flags: EPOLLET, EPOLLWAKEUP, EPOLLEXCLUSIVE, or 0. Sennit works edge-triggered and
 *	level-triggered; EPOLLONESHOT is not supported here.
 *
 * Returns: 0; -EALREADY if it is attached; the errno of snt_loop_fd() or epoll_ctl(2).
 */
static inline int snt_epoll_attach(struct snt_epoll *self, struct snt_loop *loop,
				   int epoll_fd, uint32_t flags)
{
	struct epoll_event event;

	if (self->loop)
		return -EALREADY;
	self->fd = snt_loop_fd(loop);
	if (self->fd < 0)
		return self->fd;
	memset(&event, 0, sizeof(event));
	event.events = EPOLLIN | flags;
	event.data.ptr = self;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, self->fd, &event))
		return -errno;
	self->epoll_fd = epoll_fd;
	self->loop = loop;
	return 0;
}

/**
 * snt_epoll_ready - handle an event of the loop: callbacks run
 *
 * Returns: as snt_loop_dispatch(); 0 if it is not attached.
 */
static inline int snt_epoll_ready(struct snt_epoll *self)
{
	return self->loop ? snt_loop_dispatch(self->loop, self->budget) : 0;
}

/**
 * snt_epoll_detach - stop watching the loop
 *
 * Nothing is lost: later events are reported when the loop is attached again, anywhere.
 */
static inline void snt_epoll_detach(struct snt_epoll *self)
{
	if (self->loop)
		epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, self->fd, NULL);
	self->loop = NULL;
}

#endif
