/* SPDX-License-Identifier: MIT */
#include "loop/slot.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loop/driver.h"

struct slot *slot_add(struct slot **slots)
{
	struct slot *slot = calloc(1, sizeof(*slot));

	driver_must(slot ? 0 : -ENOMEM, "a slot");
	slot->next = *slots;
	*slots = slot;
	return slot;
}

void slot_sweep(struct slot **slots)
{
	while (*slots) {
		struct slot *slot = *slots;

		if (!slot->is_gone || slot->pending) {
			slots = &slot->next;
			continue;
		}
		*slots = slot->next;
		free(slot);
	}
}

struct ticker {
	int fd;
	void (*ticked)(void *arg);
	void *arg;
	void *watched;
};

static void ticker_ready(void *arg)
{
	struct ticker *ticker = arg;
	uint64_t count;

	if (read(ticker->fd, &count, sizeof(count)) == sizeof(count))
		ticker->ticked(ticker->arg);
}

void *slot_tick(unsigned period_ms, void (*ticked)(void *arg), void *arg,
		void *(*watch)(int fd, void (*ready)(void *arg), void *arg))
{
	struct ticker *ticker = malloc(sizeof(*ticker));
	struct timespec period = { .tv_sec = period_ms / 1000,
				   .tv_nsec = period_ms % 1000 * 1000000 };
	struct itimerspec when = { .it_interval = period, .it_value = period };

	driver_must(ticker ? 0 : -ENOMEM, "a ticker");
	ticker->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	driver_must(ticker->fd < 0 ? -errno : 0, "timerfd_create");
	driver_must(timerfd_settime(ticker->fd, 0, &when, NULL), "timerfd_settime");
	ticker->ticked = ticked;
	ticker->arg = arg;
	ticker->watched = watch(ticker->fd, ticker_ready, ticker);
	return ticker;
}

void slot_untick(void *ticker_arg, void (*unwatch)(void *watched))
{
	struct ticker *ticker = ticker_arg;

	unwatch(ticker->watched);
	close(ticker->fd);
	free(ticker);
}
