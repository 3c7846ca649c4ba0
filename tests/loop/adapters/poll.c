/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop/adapters/driver.h"
#include "loop/adapters/slot.h"

#define ENTRIES 16

/* An entry and the slot of the same place belong together. */
static _Thread_local struct {
	struct slot *slots;
	struct pollfd entry[ENTRIES];
	struct slot *slot[ENTRIES];
} loop;

static int start(void)
{
	for (int i = 0; i < ENTRIES; i++)
		loop.entry[i].fd = -1;
	return 0;
}

static void stop(void)
{
	slot_sweep(&loop.slots);
	driver_must(loop.slots ? -EBUSY : 0, "something is left in the loop");
}

static int free_place(void)
{
	int i = 0;

	while (i < ENTRIES && loop.slot[i])
		i++;
	driver_must(i == ENTRIES ? -ENOSPC : 0, "too much in the loop");
	return i;
}

static int place_of(const struct slot *slot)
{
	int i = 0;

	while (loop.slot[i] != slot)
		i++;
	return i;
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct slot *slot = slot_add(&loop.slots);
	struct snt_poll *sennit = calloc(1, sizeof(*sennit));
	int place = free_place();

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	driver_must(snt_poll_attach(sennit, inner, &loop.entry[place]), "attach");
	driver_refused(snt_poll_attach(sennit, inner, &loop.entry[place]));
	loop.slot[place] = slot;
	slot->adapter = sennit;
	return slot;
}

static void detach(void *attached)
{
	struct slot *slot = attached;
	int place = place_of(slot);

	snt_poll_detach(slot->adapter, &loop.entry[place]);
	free(slot->adapter);
	loop.slot[place] = NULL;
	slot->is_gone = true;
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct slot *slot = slot_add(&loop.slots);
	int place = free_place();

	slot->ready = ready;
	slot->arg = arg;
	loop.slot[place] = slot;
	loop.entry[place] = (struct pollfd){ .fd = fd, .events = POLLIN };
	return slot;
}

static void unwatch(void *watched)
{
	struct slot *slot = watched;
	int place = place_of(slot);

	loop.entry[place] = (struct pollfd){ .fd = -1 };
	loop.slot[place] = NULL;
	slot->is_gone = true;
}

static void turn(bool may_sleep)
{
	int count = poll(loop.entry, ENTRIES, may_sleep ? -1 : 0);

	driver_must(count < 0 && errno != EINTR ? -errno : 0, "poll");
	for (int i = 0; i < ENTRIES && count > 0; i++) {
		struct slot *slot = loop.slot[i];

		if (!slot || !loop.entry[i].revents)
			continue;
		if (slot->ready)
			slot->ready(slot->arg);
		else
			driver_dispatched(
				snt_poll_ready(slot->adapter, &loop.entry[i]));
	}
	slot_sweep(&loop.slots);
}

static const struct driver driver = {
	.name = "poll",
	.start = start,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = unwatch,
};

const struct driver *const drivers[] = { &driver, NULL };
