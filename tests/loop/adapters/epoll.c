/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/epoll.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop/adapters/driver.h"
#include "loop/adapters/slot.h"

#define EVENTS 8

static _Thread_local struct {
	int fd;
	uint32_t flags; /* of adapters */
	struct slot *slots;
} loop;

static int start_by(uint32_t flags)
{
	loop.flags = flags;
	loop.fd = epoll_create1(EPOLL_CLOEXEC);
	return loop.fd < 0 ? -errno : 0;
}

static int start_level(void)
{
	return start_by(0);
}

static int start_edge(void)
{
	return start_by(EPOLLET);
}

static void stop(void)
{
	slot_sweep(&loop.slots);
	driver_must(loop.slots ? -EBUSY : 0, "something is left in the loop");
	close(loop.fd);
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct slot *slot = slot_add(&loop.slots);
	struct snt_epoll *sennit = calloc(1, sizeof(*sennit));

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	driver_must(snt_epoll_attach(sennit, inner, loop.fd, loop.flags), "attach");
	driver_refused(snt_epoll_attach(sennit, inner, loop.fd, loop.flags));
	slot->adapter = sennit;
	return slot;
}

static void detach(void *attached)
{
	struct slot *slot = attached;

	snt_epoll_detach(slot->adapter);
	free(slot->adapter);
	slot->is_gone = true;
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct slot *slot = slot_add(&loop.slots);
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = slot };

	*slot = (struct slot){
		.next = slot->next, .fd = fd, .ready = ready, .arg = arg
	};
	driver_must(epoll_ctl(loop.fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
	return slot;
}

static void unwatch(void *watched)
{
	struct slot *slot = watched;

	epoll_ctl(loop.fd, EPOLL_CTL_DEL, slot->fd, NULL);
	slot->is_gone = true;
}

/* Events that came together with one that made them void are dropped. */
static void handle(const void *data)
{
	for (struct slot *slot = loop.slots; slot; slot = slot->next) {
		if (slot->is_gone || (data != slot && data != slot->adapter))
			continue;
		if (slot->ready)
			slot->ready(slot->arg);
		else
			driver_dispatched(snt_epoll_ready(slot->adapter));
		return;
	}
}

static void turn(bool may_sleep)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(loop.fd, events, EVENTS, may_sleep ? -1 : 0);

	driver_must(count < 0 && errno != EINTR ? -errno : 0, "epoll_wait");
	for (int i = 0; i < count; i++)
		handle(events[i].data.ptr);
	slot_sweep(&loop.slots);
}

static const struct driver level = {
	.name = "epoll",
	.start = start_level,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = unwatch,
};

static const struct driver edge = {
	.name = "epoll-edge",
	.start = start_edge,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = unwatch,
};

const struct driver *const drivers[] = { &level, &edge, NULL };
