/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/libev.h>
#include <stdlib.h>

#include "loop/adapters/driver.h"

static _Thread_local struct ev_loop *loop;
static _Thread_local unsigned added;

/* The program's own watchers. */
struct own {
	ev_io io;
	ev_timer timer;
	void (*happened)(void *arg);
	void *arg;
};

static int start(void)
{
	loop = ev_loop_new(EVFLAG_NOENV);
	return loop ? 0 : -ENOMEM;
}

static void stop(void)
{
	driver_must(added ? -EBUSY : 0, "something is left in the loop");
	ev_loop_destroy(loop);
}

static void turn(bool may_sleep)
{
	ev_run(loop, may_sleep ? EVRUN_ONCE : EVRUN_NOWAIT);
}

static void failed(struct snt_libev *sennit, int error)
{
	(void)sennit;
	driver_dispatched(error);
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct snt_libev *sennit = calloc(1, sizeof(*sennit));

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	sennit->failed = failed;
	driver_must(snt_libev_attach(sennit, inner, loop), "attach");
	driver_refused(snt_libev_attach(sennit, inner, loop));
	added++;
	return sennit;
}

static void detach(void *attached)
{
	snt_libev_detach(attached);
	free(attached);
	added--;
}

static struct own *new_own(void (*happened)(void *arg), void *arg)
{
	struct own *own = calloc(1, sizeof(*own));

	driver_must(own ? 0 : -ENOMEM, "a watcher");
	own->happened = happened;
	own->arg = arg;
	added++;
	return own;
}

static void io_ready(struct ev_loop *of, ev_io *io, int events)
{
	struct own *own = io->data;

	(void)of;
	(void)events;
	own->happened(own->arg);
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct own *own = new_own(ready, arg);

	ev_io_init(&own->io, io_ready, fd, EV_READ);
	own->io.data = own;
	ev_io_start(loop, &own->io);
	return own;
}

static void timed(struct ev_loop *of, ev_timer *timer, int events)
{
	struct own *own = timer->data;

	(void)of;
	(void)events;
	own->happened(own->arg);
}

static void *tick(unsigned period_ms, void (*ticked)(void *arg), void *arg)
{
	struct own *own = new_own(ticked, arg);

	ev_timer_init(&own->timer, timed, period_ms / 1000.0, period_ms / 1000.0);
	own->timer.data = own;
	ev_now_update(loop);
	ev_timer_start(loop, &own->timer);
	return own;
}

/* To stop what was never started is nothing. */
static void take_away(void *arg)
{
	struct own *own = arg;

	ev_io_stop(loop, &own->io);
	ev_timer_stop(loop, &own->timer);
	free(own);
	added--;
}

static const struct driver driver = {
	.name = "libev",
	.start = start,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = take_away,
	.tick = tick,
	.untick = take_away,
};

const struct driver *const drivers[] = { &driver, NULL };
