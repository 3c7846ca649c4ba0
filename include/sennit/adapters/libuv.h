/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_LIBUV_H
#define SENNIT_ADAPTERS_LIBUV_H

#include <errno.h>
#include <stdlib.h>
#include <uv.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of libuv.
 *
 *	struct snt_libuv sennit = { 0 };
 *
 *	snt_libuv_attach(&sennit, loop, uv_default_loop());
 *	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
 *
 * Callbacks then run inside uv_run(). They must not call it themselves.
 *
 * One object for each loop; it must not move while attached. Detach before the
 * loop is closed; both are legal in callbacks, as is freeing the object afterwards.
 * The loop forgets its handle in a later turn, so uv_loop_close() needs one more
 * uv_run(), as after any uv_close(). While attached the handle keeps uv_run() going,
 * unless uv_unref() is called on it.
 *
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. */
struct snt_libuv {
	/* The program's. */
	int budget; /* callbacks in one turn; 0: as snt_loop_dispatch() */
	/* What snt_loop_dispatch() returned, or libuv, if negative; NULL: none. */
	void (*failed)(struct snt_libuv *self, int error);
	void *arg;

	/* The adapter's. */
	struct snt_loop *loop; /* NULL: not attached */
	uv_poll_t *handle;
	int *gone; /* set to 1 by detach, for the code that runs callbacks */
};

static inline void snt_libuv_ready(uv_poll_t *handle, int status, int events)
{
	struct snt_libuv *self = (struct snt_libuv *)handle->data;
	int gone = 0;

	(void)events;
	self->gone = &gone;
	if (!status)
		status = snt_loop_dispatch(self->loop, self->budget);
	if (gone)
		return;
	self->gone = NULL;
	if (status < 0 && self->failed)
		self->failed(self, status);
}

static inline void snt_libuv_free(uv_handle_t *handle)
{
	free(handle);
}

/**
 * snt_libuv_detach - stop watching the loop
 *
 * Nothing is lost: later events are reported when the loop is attached again, anywhere.
 */
static inline void snt_libuv_detach(struct snt_libuv *self)
{
	if (!self->loop)
		return;
	uv_close((uv_handle_t *)self->handle, snt_libuv_free);
	self->loop = NULL;
	self->handle = NULL;
	if (self->gone)
		*self->gone = 1;
	self->gone = NULL;
}

/**
 * snt_libuv_attach - start watching a loop
 *
 * Returns: 0; -EALREADY if it is attached; -ENOMEM; the errno of snt_loop_fd(),
 * uv_poll_init() or uv_poll_start().
 */
static inline int snt_libuv_attach(struct snt_libuv *self, struct snt_loop *loop,
				   uv_loop_t *uv)
{
	int fd = self->loop ? -EALREADY : snt_loop_fd(loop);
	int ret;

	if (fd < 0)
		return fd;
	self->handle = (uv_poll_t *)malloc(sizeof(*self->handle));
	if (!self->handle)
		return -ENOMEM;
	ret = uv_poll_init(uv, self->handle, fd);
	if (ret) {
		free(self->handle);
		return ret;
	}
	self->handle->data = self;
	self->loop = loop;
	ret = uv_poll_start(self->handle, UV_READABLE, snt_libuv_ready);
	if (ret)
		snt_libuv_detach(self);
	return ret;
}

#endif
