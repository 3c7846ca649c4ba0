/* SPDX-License-Identifier: MIT */
/* A device's own thread, for when nobody posts or polls. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dev/soft/udp/device.h"

/* All in ns. How long it goes on looking before it sleeps. */
#define SPIN UINT64_C(20000)
/* Programs that poll at least this often on average have the socket to themselves. That
 * is found out over some time, and lasts until it is found out again. */
#define OFTEN  UINT64_C(20000)
#define PERIOD UINT64_C(200000)
#define NAP    UINT64_C(500000)
/* If a device was in use lately, its thread wakes up so often by itself, rather than be
 * woken whenever something begins. */
#define HORIZON UINT64_C(50000000)

#define YIELDS_MAX 200

struct rhythm {
	uint64_t active_at; /* when there was something to do */
	uint64_t judged_at; /* when polls were counted */
	unsigned polls;
	bool polled; /* often */
};

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void judge_polls(struct snt__udp_device *device, struct rhythm *rhythm,
			uint64_t now)
{
	unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);
	uint64_t since = now - rhythm->judged_at;

	if (device->armed) {
		/* They are about to sleep. */
		device->armed = false;
		rhythm->polled = false;
	} else if (since >= PERIOD) {
		rhythm->polled = (polls - rhythm->polls) * OFTEN > since;
	} else {
		return;
	}
	rhythm->polls = polls;
	rhythm->judged_at = now;
}

/* How long to sleep; `now`: not at all. */
static uint64_t sleep_end(struct snt__udp_device *device, const struct rhythm *rhythm,
			  uint64_t now)
{
	uint64_t deadline = snt__soft_deadline(device->core);

	if (rhythm->polled)
		return now + NAP;
	if (now - rhythm->active_at < SPIN || deadline <= now)
		return now;
	if (now - rhythm->active_at < HORIZON)
		return sooner(deadline, now + HORIZON);
	return deadline;
}

/* A lock that is taken again at once is never given to others. */
static void let_others(struct snt__udp_device *device)
{
	for (unsigned i = 0; i < YIELDS_MAX; i++) {
		if (!atomic_load_explicit(&device->waiters, memory_order_relaxed))
			return;
		sched_yield();
	}
}

static void sleep_for(struct snt__udp_device *device, struct rhythm *rhythm,
		      uint64_t time, bool stalled)
{
	struct pollfd fds[] = {
		{ .fd = device->wake_fd, .events = POLLIN },
		{ .fd = device->socket.fd,
		  .events = stalled ? POLLIN | POLLOUT : POLLIN },
	};
	struct timespec timeout = { .tv_sec = time / UINT64_C(1000000000),
				    .tv_nsec = time % UINT64_C(1000000000) };
	eventfd_t count;

	ppoll(fds, rhythm->polled ? 1 : 2, time == SNT__SOFT_NEVER ? NULL : &timeout,
	      NULL);
	if (!fds[0].revents)
		return;
	eventfd_read(device->wake_fd, &count);
	rhythm->active_at = snt__udp_now();
}

/* Moves what there is, then sleeps if there is nothing. False: it is over. */
static bool look(struct snt__udp_device *device, struct rhythm *rhythm)
{
	uint64_t now = snt__udp_now(), end;
	bool over, stalled;

	snt__udp_lock(device);
	judge_polls(device, rhythm, now);
	if (rhythm->polled)
		snt__udp_send(&device->sender, device->core, now);
	else if (snt__udp_move(device, now))
		rhythm->active_at = now;
	end = sleep_end(device, rhythm, now);
	device->wake_at = end > now ? end : 0;
	device->napping = rhythm->polled;
	over = device->over;
	stalled = snt__udp_sender_stalled(&device->sender);
	snt__udp_unlock(device);
	if (over)
		return false;
	if (end > now)
		sleep_for(device, rhythm, end == SNT__SOFT_NEVER ? end : end - now,
			  stalled);
	else
		let_others(device);
	return true;
}

static void *run(void *arg)
{
	struct rhythm rhythm = { .judged_at = snt__udp_now() };

	while (look(arg, &rhythm))
		;
	return NULL;
}

static void wake(struct snt__udp_device *device)
{
	device->wake_at = 0;
	eventfd_write(device->wake_fd, 1);
}

/* Whoever polls sees to timers and to what did not fit, too. */
void snt__udp_thread_hurry(struct snt__udp_device *device)
{
	if (device->wake_at && !device->napping &&
	    (snt__soft_deadline(device->core) < device->wake_at ||
	     snt__udp_sender_stalled(&device->sender)))
		wake(device);
}

void snt__udp_thread_watch(struct snt__udp_device *device)
{
	device->armed = true;
	if (device->wake_at && device->napping)
		wake(device);
}

int snt__udp_thread_start(struct snt__udp_device *device, const char *name)
{
	sigset_t all, before;
	int error;

	device->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->wake_fd < 0)
		return -errno;
	/* Signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&device->thread, NULL, run, device);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		close(device->wake_fd);
		return -error;
	}
	pthread_setname_np(device->thread, name);
	return 0;
}

void snt__udp_thread_stop(struct snt__udp_device *device)
{
	snt__udp_lock(device);
	device->over = true;
	wake(device);
	snt__udp_unlock(device);
	pthread_join(device->thread, NULL);
	close(device->wake_fd);
}
