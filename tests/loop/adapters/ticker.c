/* SPDX-License-Identifier: MIT */
#include "loop/adapters/ticker.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct ticker {
	int fd;
	void (*ticked)(void *arg);
	void *arg;
	void *watched;
};

static void ready(void *arg)
{
	struct ticker *ticker = arg;
	uint64_t count;

	if (read(ticker->fd, &count, sizeof(count)) == sizeof(count))
		ticker->ticked(ticker->arg);
}

void *ticker_start(const struct driver *driver, unsigned period_ms,
		   void (*ticked)(void *arg), void *arg)
{
	struct timespec period = { .tv_sec = period_ms / 1000,
				   .tv_nsec = period_ms % 1000 * 1000000 };
	struct itimerspec when = { .it_interval = period, .it_value = period };
	struct ticker *ticker;

	if (driver->tick)
		return driver->tick(period_ms, ticked, arg);
	ticker = malloc(sizeof(*ticker));
	driver_must(ticker ? 0 : -ENOMEM, "a ticker");
	ticker->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	driver_must(ticker->fd < 0 ? -errno : 0, "timerfd_create");
	driver_must(timerfd_settime(ticker->fd, 0, &when, NULL), "timerfd_settime");
	ticker->ticked = ticked;
	ticker->arg = arg;
	ticker->watched = driver->watch(ticker->fd, ready, ticker);
	return ticker;
}

void ticker_stop(const struct driver *driver, void *started)
{
	struct ticker *ticker = started;

	if (driver->tick) {
		driver->untick(started);
		return;
	}
	driver->unwatch(ticker->watched);
	close(ticker->fd);
	free(ticker);
}
