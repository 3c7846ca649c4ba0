/* SPDX-License-Identifier: MIT */
/*
 * Sleeping: on the loop's fd, and on those of devices whose packets any thread that
 * wakes up may move. A thread that waits for them itself needs no other thread in
 * between.
 */
#include "loop/sleep.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "util/err.h"

/* A program with an event loop of its own may sleep there the next time: its devices are
 * lent to the loop (rx_watch.c), whose fd reports packets. */
static bool may_borrow_sockets(const struct snt_loop *loop)
{
	bool simulated = loop->sleep;

	return !simulated && !loop->dispatched;
}

void snt__sleep_borrow(struct snt_loop *loop, struct snt__sleep *sleep,
		       int64_t timeout_ns)
{
	sleep->count = sleep->fd_count = 0;
	if (!timeout_ns)
		return;
	if (!may_borrow_sockets(loop)) {
		snt__rx_lend(loop);
		return;
	}
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		const struct snt_device *device = loop->base.ctx->device[i];
		unsigned first = sleep->fd_count;
		unsigned count = snt__device_rx_borrow(device, &sleep->fd[first],
						       snt__channel_find(loop, device));

		if (!count)
			continue;
		sleep->device[sleep->count++] =
			(struct snt__sleep_device){ device, first, count };
		sleep->fd_count += count;
	}
}

/* Which of a device's fds are readable, as a set of bits. */
static unsigned find_readable(const struct snt__sleep_device *device,
			      const struct pollfd *fds)
{
	unsigned readable = 0;

	for (unsigned i = 0; fds && i < device->count; i++)
		readable |= (fds[device->first + i].revents != 0) << i;
	return readable;
}

/* A device whose fd was readable probably has completions for its CQs. */
static void return_all(struct snt_loop *loop, struct snt__sleep *sleep,
		       const struct pollfd *fds)
{
	bool found = false;

	for (unsigned i = 0; i < sleep->count; i++) {
		const struct snt__sleep_device *device = &sleep->device[i];
		unsigned readable = find_readable(device, fds);

		snt__channel_rx_return(loop, device->device, readable);
		found |= readable != 0;
	}
	sleep->count = 0;
	if (found)
		snt__serve_list_later(&loop->base.event_cqs);
}

void snt__sleep_not(struct snt_loop *loop, struct snt__sleep *sleep)
{
	return_all(loop, sleep, NULL);
}

static int watch_all(struct snt_loop *loop, struct snt__sleep *sleep,
		     int64_t timeout_ns)
{
	struct timespec timeout = { .tv_sec = timeout_ns / 1000000000,
				    .tv_nsec = timeout_ns % 1000000000 };
	struct pollfd fds[SNT_DEVICES_MAX * SNT__RX_FDS + 1];
	const unsigned last = sleep->fd_count;
	int count, error;

	for (unsigned i = 0; i < last; i++)
		fds[i] = (struct pollfd){ .fd = sleep->fd[i], .events = POLLIN };
	fds[last] = (struct pollfd){ .fd = loop->fd, .events = POLLIN };
	pthread_setcancelstate(loop->cancel_state, NULL);
	count = ppoll(fds, last + 1, timeout_ns < 0 ? NULL : &timeout, NULL);
	error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return_all(loop, sleep, count > 0 ? fds : NULL);
	if (count < 0 && error != EINTR)
		return snt__fail(error, "ppoll: %s", strerror(error));
	return count > 0 && fds[last].revents ? snt__loop_collect(loop, 0) : 0;
}

/* The thread was cancelled while it slept. Edges that the kernel had reported by then
 * are lost with it, so that the next thread checks everything. */
static void return_after_cancel(void *arg)
{
	struct snt__sleep *sleep = arg;
	struct snt_loop *loop = sleep->loop;

	return_all(loop, sleep, NULL);
	if (loop->undo)
		loop->undo(loop->undo_arg);
	loop->undo = NULL;
	loop->clock_set_ns = SNT__NEVER;
	atomic_store(&loop->rung, false);
	snt__loop_suspect_all(loop);
	snt__loop_ring(loop);
	snt__timer_set(loop);
}

static int sleep_on_loop(struct snt_loop *loop, struct snt__sleep *sleep,
			 int64_t timeout_ns)
{
	int ret;

	if (sleep->count && timeout_ns)
		return watch_all(loop, sleep, timeout_ns);
	return_all(loop, sleep, NULL);
	if (!loop->sleep || !timeout_ns)
		return snt__loop_collect(loop, timeout_ns);
	ret = loop->sleep(loop->sleep_arg, loop->fd, timeout_ns);
	return ret ? ret : snt__loop_collect(loop, 0);
}

int snt__sleep_on(struct snt_loop *loop, struct snt__sleep *sleep, int64_t timeout_ns)
{
	int ret;

	if (!timeout_ns)
		return sleep_on_loop(loop, sleep, 0);
	sleep->loop = loop;
	pthread_cleanup_push(return_after_cancel, sleep);
	ret = sleep_on_loop(loop, sleep, timeout_ns);
	pthread_cleanup_pop(0);
	return ret;
}
