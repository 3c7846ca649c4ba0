/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/libevent.h>
#include <stdlib.h>

#include "loop/adapters/driver.h"

static _Thread_local struct event_base *base;

/* The program's own events. */
struct own {
	struct event *event;
	void (*happened)(void *arg);
	void *arg;
};

static int start(void)
{
	base = event_base_new();
	return base ? 0 : -ENOMEM;
}

static void stop(void)
{
	driver_must(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED) ? -EBUSY
									    : 0,
		    "something is left in the loop");
	event_base_free(base);
}

static void turn(bool may_sleep)
{
	int flags = EVLOOP_ONCE | (may_sleep ? 0 : EVLOOP_NONBLOCK);

	driver_must(event_base_loop(base, flags), "event_base_loop");
}

static void failed(struct snt_libevent *sennit, int error)
{
	(void)sennit;
	driver_dispatched(error);
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct snt_libevent *sennit = calloc(1, sizeof(*sennit));

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	sennit->failed = failed;
	driver_must(snt_libevent_attach(sennit, inner, base), "attach");
	driver_refused(snt_libevent_attach(sennit, inner, base));
	return sennit;
}

static void detach(void *attached)
{
	snt_libevent_detach(attached);
	free(attached);
}

static void happened(evutil_socket_t fd, short events, void *arg)
{
	struct own *own = arg;

	(void)fd;
	(void)events;
	own->happened(own->arg);
}

static void *add(int fd, short what, const struct timeval *period,
		 void (*function)(void *arg), void *arg)
{
	struct own *own = calloc(1, sizeof(*own));

	driver_must(own ? 0 : -ENOMEM, "an event");
	own->happened = function;
	own->arg = arg;
	own->event = event_new(base, fd, what | EV_PERSIST, happened, own);
	driver_must(own->event ? event_add(own->event, period) : -ENOMEM, "event_add");
	return own;
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	return add(fd, EV_READ, NULL, ready, arg);
}

static void *tick(unsigned period_ms, void (*ticked)(void *arg), void *arg)
{
	struct timeval period = { .tv_sec = period_ms / 1000,
				  .tv_usec = period_ms % 1000 * 1000 };

	return add(-1, 0, &period, ticked, arg);
}

static void take_away(void *arg)
{
	struct own *own = arg;

	event_free(own->event);
	free(own);
}

static const struct driver driver = {
	.name = "libevent",
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
