/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_LIBEV_H
#define SENNIT_ADAPTERS_LIBEV_H

#include <errno.h>
#include <stddef.h>
#include <ev.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of libev.
 *
 *	struct snt_libev sennit = { 0 };
 *
 *	snt_libev_attach(&sennit, loop, EV_DEFAULT);
 *	ev_run(EV_DEFAULT, 0);
 *
 * Callbacks then run inside ev_run(). They must not call it themselves. This header and
 * libevent's cannot be included in the same file.
 *
 * One object for each loop; it must not move while attached. Detach before the
 * loop is closed; both are legal in callbacks, as is freeing the object afterwards.
 *
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. */
struct snt_libev {
	/* The program's. */
	int budget; /* callbacks in one turn; 0: as snt_loop_dispatch() */
	/* What snt_loop_dispatch() returned, if negative; -EBADF if libev gave up the fd,
	 * which is not watched any more then; NULL: none. */
	void (*failed)(struct snt_libev *self, int error);
	void *arg;

	/* The adapter's. */
	struct snt_loop *loop; /* NULL: not attached */
	struct ev_loop *ev;
	ev_io io;
	int *gone; /* set to 1 by detach, for the code that runs callbacks */
};

static inline void snt_libev_ready(struct ev_loop *ev, ev_io *io, int events)
{
	struct snt_libev *self = (struct snt_libev *)io->data;
	int gone = 0;
	int ret = -EBADF;

	(void)ev;
	self->gone = &gone;
	if (!(events & EV_ERROR))
		ret = snt_loop_dispatch(self->loop, self->budget);
	if (gone)
		return;
	self->gone = NULL;
	if (ret < 0 && self->failed)
		self->failed(self, ret);
}

/**
 * snt_libev_attach - start watching a loop
 *
 * Returns: 0; -EALREADY if it is attached; the errno of snt_loop_fd().
 */
static inline int snt_libev_attach(struct snt_libev *self, struct snt_loop *loop,
				   struct ev_loop *ev)
{
	int fd = self->loop ? -EALREADY : snt_loop_fd(loop);

	if (fd < 0)
		return fd;
	ev_io_init(&self->io, snt_libev_ready, fd, EV_READ);
	self->io.data = self;
	self->ev = ev;
	self->loop = loop;
	ev_io_start(ev, &self->io);
	return 0;
}

/**
 * snt_libev_detach - stop watching the loop
 *
 * Nothing is lost: later events are reported when the loop is attached again, anywhere.
 */
static inline void snt_libev_detach(struct snt_libev *self)
{
	if (!self->loop)
		return;
	ev_io_stop(self->ev, &self->io);
	self->loop = NULL;
	if (self->gone)
		*self->gone = 1;
	self->gone = NULL;
}

#endif
