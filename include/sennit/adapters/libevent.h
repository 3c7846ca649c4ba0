/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_LIBEVENT_H
#define SENNIT_ADAPTERS_LIBEVENT_H

#include <errno.h>
#include <stddef.h>
#include <event2/event.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of libevent 2.
 *
 *	struct snt_libevent sennit = { 0 };
 *
 *	snt_libevent_attach(&sennit, loop, base);
 *	event_base_dispatch(base);
 *
 * Callbacks then run inside event_base_dispatch(). They must not call it themselves.
 * This header and libev's cannot be included in the same file.
 *
 * One object for each loop; it must not move while attached. Detach before the
 * loop is closed; both are legal in callbacks, as is freeing the object afterwards.
 *
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. */
struct snt_libevent {
	/* The program's. */
	int budget; /* callbacks in one turn; 0: as snt_loop_dispatch() */
	/* What snt_loop_dispatch() returned, if negative; NULL: none. */
	void (*failed)(struct snt_libevent *self, int error);
	void *arg;

	/* The adapter's. */
	struct snt_loop *loop; /* NULL: not attached */
	struct event *event;
	int *gone; /* set to 1 by detach, for the code that runs callbacks */
};

static inline void snt_libevent_ready(evutil_socket_t fd, short events, void *arg)
{
	struct snt_libevent *self = (struct snt_libevent *)arg;
	int gone = 0;
	int ret;

	(void)fd;
	(void)events;
	self->gone = &gone;
	ret = snt_loop_dispatch(self->loop, self->budget);
	if (gone)
		return;
	self->gone = NULL;
	if (ret < 0 && self->failed)
		self->failed(self, ret);
}

/**
 * snt_libevent_attach - start watching a loop
 *
 * Returns: 0; -EALREADY if it is attached; the errno of snt_loop_fd(); -ENOMEM if
 * libevent refuses, for any reason.
 */
static inline int snt_libevent_attach(struct snt_libevent *self, struct snt_loop *loop,
				      struct event_base *base)
{
	int fd = self->loop ? -EALREADY : snt_loop_fd(loop);

	if (fd < 0)
		return fd;
	self->event =
		event_new(base, fd, EV_READ | EV_PERSIST, snt_libevent_ready, self);
	if (!self->event)
		return -ENOMEM;
	if (event_add(self->event, NULL)) {
		event_free(self->event);
		return -ENOMEM;
	}
	self->loop = loop;
	return 0;
}

/**
 * snt_libevent_detach - stop watching the loop
 *
 * Nothing is lost: later events are reported when the loop is attached again, anywhere.
 */
static inline void snt_libevent_detach(struct snt_libevent *self)
{
	if (!self->loop)
		return;
	event_free(self->event);
	self->loop = NULL;
	if (self->gone)
		*self->gone = 1;
	self->gone = NULL;
}

#endif
