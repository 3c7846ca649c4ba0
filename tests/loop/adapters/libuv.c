/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/libuv.h>
#include <stdlib.h>

#include "loop/adapters/driver.h"

static _Thread_local uv_loop_t loop;

/* The program's own handles. */
struct handle {
	union {
		uv_handle_t any;
		uv_poll_t poll;
		uv_timer_t timer;
	} uv;
	void (*happened)(void *arg);
	void *arg;
};

static int start(void)
{
	return uv_loop_init(&loop);
}

/* Handles are forgotten in a later turn than they are closed. */
static void stop(void)
{
	while (uv_run(&loop, UV_RUN_NOWAIT))
		;
	driver_must(uv_loop_close(&loop), "something is left in the loop");
}

static void turn(bool may_sleep)
{
	uv_run(&loop, may_sleep ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

static void failed(struct snt_libuv *sennit, int error)
{
	(void)sennit;
	driver_dispatched(error);
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct snt_libuv *sennit = calloc(1, sizeof(*sennit));

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	sennit->failed = failed;
	driver_must(snt_libuv_attach(sennit, inner, &loop), "attach");
	driver_refused(snt_libuv_attach(sennit, inner, &loop));
	return sennit;
}

static void detach(void *attached)
{
	snt_libuv_detach(attached);
	free(attached);
}

static struct handle *new_handle(void (*happened)(void *arg), void *arg)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	driver_must(handle ? 0 : -ENOMEM, "a handle");
	handle->happened = happened;
	handle->arg = arg;
	handle->uv.any.data = handle;
	return handle;
}

static void free_handle(uv_handle_t *uv)
{
	free(uv->data);
}

static void close_handle(void *arg)
{
	struct handle *handle = arg;

	uv_close(&handle->uv.any, free_handle);
}

static void polled(uv_poll_t *poll, int status, int events)
{
	struct handle *handle = poll->data;

	(void)events;
	driver_must(status, "uv_poll");
	handle->happened(handle->arg);
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct handle *handle = new_handle(ready, arg);

	driver_must(uv_poll_init(&loop, &handle->uv.poll, fd), "uv_poll_init");
	driver_must(uv_poll_start(&handle->uv.poll, UV_READABLE, polled),
		    "uv_poll_start");
	return handle;
}

static void timed(uv_timer_t *timer)
{
	struct handle *handle = timer->data;

	handle->happened(handle->arg);
}

static void *tick(unsigned period_ms, void (*ticked)(void *arg), void *arg)
{
	struct handle *handle = new_handle(ticked, arg);

	driver_must(uv_timer_init(&loop, &handle->uv.timer), "uv_timer_init");
	uv_update_time(&loop);
	driver_must(uv_timer_start(&handle->uv.timer, timed, period_ms, period_ms),
		    "uv_timer_start");
	return handle;
}

static const struct driver driver = {
	.name = "libuv",
	.start = start,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = close_handle,
	.tick = tick,
	.untick = close_handle,
};

const struct driver *const drivers[] = { &driver, NULL };
