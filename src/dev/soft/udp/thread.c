/* SPDX-License-Identifier: MIT */
/* A device's own thread, for when no thread posts or polls. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dev/gid.h"
#include "dev/soft/udp/device.h"
#include "util/thread.h"

/* All in ns. How long the thread keeps polling before it sleeps: after long messages,
 * until the next one would come from a sender that had briefly lost its processor. */
#define SPIN	  UINT64_C(20000)
#define SPIN_LONG UINT64_C(50000)
/* How long it leaves the socket to a busy poller before it checks that polls still
 * come. */
#define NAP	  UINT64_C(500000)
#define POLLS_MIN 4
/* The thread of a device that was used lately wakes up by itself this often, which
 * saves waking it whenever something begins. */
#define HORIZON UINT64_C(50000000)

/* After that nothing is held. */
#define IDLE (2 * NAP)

/* After that it watches the socket together with the program that sleeps there, which
 * may be held up: a packet after such a silence wakes both. */
#define SILENCE UINT64_C(10000000)

/* However busy it is, it serves links this often. */
#define SERVE UINT64_C(1000000)

#define YIELDS_MAX 200

struct rhythm {
	uint64_t active_at; /* when there was something to do */
	uint64_t served_at; /* when links were served */
};

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A poller may have lost its processor to this thread. It looks itself; if this thread
 * kept polling, that would keep the poller off the processor and be taken for a
 * pause. */
static bool goes_on(const struct snt__udp_device *device, const struct rhythm *rhythm,
		    uint64_t now)
{
	uint64_t spin = device->receiver.rx_hold.count ? SPIN_LONG : SPIN;

	return now - rhythm->active_at < spin &&
	       snt__udp_pause(device, now) > SNT__UDP_POLL_PAUSE;
}

/* How long to sleep; `now`: not at all. */
static uint64_t sleep_end(struct snt__udp_device *device, const struct rhythm *rhythm,
			  uint64_t now)
{
	uint64_t deadline = snt__udp_deadline(device);

	if (goes_on(device, rhythm, now) || deadline <= now)
		return now;
	if (device->receiver.rx_hold.count)
		return sooner(deadline, now + IDLE);
	if (now - rhythm->active_at < HORIZON)
		return sooner(deadline, now + HORIZON);
	return deadline;
}

/* A lock that is taken again at once never goes to the threads that wait for it. */
static void let_others(struct snt__udp_device *device)
{
	for (unsigned i = 0; i < YIELDS_MAX; i++) {
		if (!atomic_load_explicit(&device->gate.waiters, memory_order_relaxed))
			return;
		sched_yield();
	}
}

/* Returns whether the thread was woken, by another thread or for its links. */
static bool sleep_on(struct snt__udp_device *device, struct rhythm *rhythm,
		     struct pollfd *fds, unsigned count, uint64_t time)
{
	struct timespec timeout = { .tv_sec = time / UINT64_C(1000000000),
				    .tv_nsec = time % UINT64_C(1000000000) };
	eventfd_t wakes;

	ppoll(fds, count, time == SNT__SOFT_NEVER ? NULL : &timeout, NULL);
	if (fds[1].revents)
		rhythm->served_at = 0;
	if (fds[0].revents)
		eventfd_read(device->wake_fd, &wakes);
	return fds[0].revents || fds[1].revents;
}

static void sleep_for(struct snt__udp_device *device, struct rhythm *rhythm,
		      uint64_t time, bool stalled)
{
	struct pollfd fds[] = {
		{ .fd = device->wake_fd, .events = POLLIN },
		{ .fd = device->shm.fd, .events = POLLIN },
		{ .fd = device->sleep_fd, .events = POLLIN },
		{ .fd = device->socket.fd, .events = POLLOUT },
	};

	if (sleep_on(device, rhythm, fds, stalled ? 4 : 3, time))
		rhythm->active_at = snt__udp_now();
}

/* Have polls come during a nap? A poller that seems to have stopped may have lost its
 * processor for a while, or be moving packets for long, for which it has the lock. */
static bool still_polled(struct snt__udp_device *device, unsigned *polls)
{
	unsigned before = *polls;

	*polls = atomic_load_explicit(&device->polls, memory_order_relaxed);
	if (*polls - before >= POLLS_MIN)
		return true;
	snt__udp_lock(device);
	if (!device->attended &&
	    snt__udp_pause(device, snt__udp_now()) > SNT__UDP_POLL_PAUSE)
		device->polled = device->attended_lately = false;
	snt__udp_unlock(device);
	return false;
}

/* Nothing has come for so long that the program may be held up rather than asleep. */
static bool is_silent(const struct snt__udp_device *device, const struct rhythm *rhythm,
		      uint64_t now)
{
	return device->attended && now - rhythm->active_at >= SILENCE;
}

/* How long to leave the socket to other threads. A thread that sleeps on it handles
 * neither timers nor packets that wait for room. */
static uint64_t nap_end(struct snt__udp_device *device, const struct rhythm *rhythm,
			uint64_t now)
{
	uint64_t deadline = snt__udp_deadline(device);

	if (!device->attended || snt__udp_sender_stalled(&device->sender))
		return now + NAP;
	if (is_silent(device, rhythm, now))
		return deadline;
	return sooner(deadline, now - rhythm->active_at < IDLE
					? now + NAP
					: rhythm->active_at + SILENCE);
}

/* While a thread polls, or sleeps on the socket. */
static void nap(struct snt__udp_device *device, struct rhythm *rhythm, uint64_t time)
{
	const unsigned before =
		atomic_load_explicit(&device->polls, memory_order_relaxed);
	unsigned polls = before;
	bool woken;
	struct pollfd fds[] = {
		{ .fd = device->wake_fd, .events = POLLIN },
		{ .fd = device->shm.fd, .events = POLLIN },
	};

	do
		woken = sleep_on(device, rhythm, fds, 2, time);
	while (!woken && time <= NAP && still_polled(device, &polls));
	if (woken || polls != before)
		rhythm->active_at = snt__udp_now();
}

/* The program has not come for its packets: the thread handles the socket as well,
 * until the program comes back. */
static void take_over(struct snt__udp_device *device, unsigned polls)
{
	snt__udp_lock(device);
	if (device->attended &&
	    atomic_load_explicit(&device->polls, memory_order_relaxed) == polls)
		device->polled = device->attended_lately = false;
	snt__udp_unlock(device);
}

/* A program that sleeps on the socket has NAP to come for its packets. In a signal
 * handler, or stopped by a debugger, it does not. */
static void watch_sleeper(struct snt__udp_device *device, struct rhythm *rhythm,
			  uint64_t time)
{
	const unsigned polls =
		atomic_load_explicit(&device->polls, memory_order_relaxed);
	struct pollfd fds[] = {
		{ .fd = device->wake_fd, .events = POLLIN },
		{ .fd = device->shm.fd, .events = POLLIN },
		{ .fd = device->socket.fd, .events = POLLIN },
	};
	bool woken = sleep_on(device, rhythm, fds, 3, time);

	if (!woken && !fds[2].revents)
		return;
	if (!woken && !sleep_on(device, rhythm, fds, 2, NAP))
		take_over(device, polls);
	rhythm->active_at = snt__udp_now();
}

/* Producers need not wake this thread while it is awake. */
static void rouse(struct snt__udp_device *device, struct rhythm *rhythm, uint64_t now)
{
	if (device->shm.fd < 0)
		return;
	if (device->resting)
		snt__shm_wake(&device->shm);
	device->resting = false;
	if (now - rhythm->served_at < SERVE)
		return;
	snt__shm_serve(&device->shm, now);
	rhythm->served_at = now;
}

/* Returns false if there is work to do instead. */
static bool rest(struct snt__udp_device *device, uint64_t now)
{
	unsigned visits;

	device->resting = !device->receiver.busy && snt__shm_sleep(&device->shm);
	if (!device->resting)
		return false;
	device->sleep_fd =
		snt__udp_rx_hold_sleep(&device->receiver.rx_hold, !device->attended);
	if (device->sleep_fd == device->socket.fd)
		return true;
	/* Another thread that took the lock meanwhile could not wake this one. */
	visits = device->gate.visits;
	return !snt__udp_receive(&device->receiver, device->core, now) &&
	       device->gate.visits == visits + 1;
}

/* Moves packets, then sleeps if there are none. False: the device is closing. */
static bool look(struct snt__udp_device *device, struct rhythm *rhythm)
{
	bool over, stalled, polled, silent;
	uint64_t now, end;

	snt__udp_lock(device);
	/* Time must not go back: this may have waited for the lock. */
	now = snt__udp_now();
	rouse(device, rhythm, now);
	/* A thread that sleeps on the socket is not woken by packets in shared
	 * memory. */
	if (device->attended_lately && snt__shm_linked(&device->shm))
		device->polled = device->attended_lately = false;
	polled = device->polled;
	if (polled && (!device->attended || snt__udp_deadline(device) > now))
		snt__udp_send(&device->sender, device->core, now);
	else if (snt__udp_move(device, now))
		/* The move may have taken longer than SPIN. */
		rhythm->active_at = now = snt__udp_now();
	/* Time that other threads gave the device while the gate was open. */
	now = snt__udp_latest(device, now);
	polled = device->polled;
	if (now - rhythm->active_at >= IDLE && !device->receiver.busy)
		snt__udp_rx_hold_clear(&device->receiver.rx_hold);
	end = polled ? nap_end(device, rhythm, now) : sleep_end(device, rhythm, now);
	if (end > now && !polled && !rest(device, now))
		end = now;
	if (snt__udp_sender_left(&device->sender))
		end = now;
	device->wake_at = end > now ? end : 0;
	device->napping = polled;
	silent = polled && is_silent(device, rhythm, now);
	over = device->over;
	stalled = snt__udp_sender_stalled(&device->sender);
	snt__udp_unlock(device);
	if (over)
		return false;
	if (end <= now)
		let_others(device);
	else if (silent)
		watch_sleeper(device, rhythm, end == SNT__SOFT_NEVER ? end : end - now);
	else if (polled)
		nap(device, rhythm, end == SNT__SOFT_NEVER ? end : end - now);
	else
		sleep_for(device, rhythm, end == SNT__SOFT_NEVER ? end : end - now,
			  stalled);
	return true;
}

static void *run(void *arg)
{
	struct rhythm rhythm = { 0 };

	while (look(arg, &rhythm))
		;
	return NULL;
}

static void wake(struct snt__udp_device *device)
{
	device->wake_at = 0;
	eventfd_write(device->wake_fd, 1);
}

/* The latest time at which it wakes up by itself: naps may follow each other. */
static uint64_t awake_at(const struct snt__udp_device *device)
{
	uint64_t nap = device->napping ? snt__udp_now() + NAP : 0;

	return device->wake_at > nap ? device->wake_at : nap;
}

/* What has arrived may be reported to the caller alone, and then would not wake this
 * thread. */
void snt__udp_thread_part(struct snt__udp_device *device)
{
	if (device->wake_at && !device->napping &&
	    device->sleep_fd != device->socket.fd)
		wake(device);
}

/* A busy poller handles timers and what did not fit, too; a thread that sleeps does
 * not. */
void snt__udp_thread_hurry(struct snt__udp_device *device)
{
	if (device->wake_at && (!device->napping || device->attended) &&
	    (snt__udp_deadline(device) < awake_at(device) ||
	     snt__udp_sender_stalled(&device->sender) ||
	     snt__udp_sender_left(&device->sender)))
		wake(device);
}

/* If a ring is not empty this thread is woken, else the next producer rings. */
void snt__udp_thread_stay(struct snt__udp_device *device)
{
	if (device->resting && !snt__shm_sleep(&device->shm))
		wake(device);
}

void snt__udp_thread_watch(struct snt__udp_device *device)
{
	device->polled = false;
	snt__udp_set_polled_at(device, 0);
	if (device->wake_at && device->napping)
		wake(device);
}

void snt__udp_thread_mind(struct snt__udp_device *device, uint64_t now)
{
	if (device->wake_at > now + NAP)
		wake(device);
}

int snt__udp_thread_start(struct snt__udp_device *device, const char *name)
{
	char purpose[SNT__GID_TEXT + 64], text[SNT__GID_TEXT];
	int ret;

	device->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->wake_fd < 0)
		return -errno;
	snprintf(purpose, sizeof(purpose), "for %.40s on %s", name,
		 snt__gid_text(device->address.gid, text));
	ret = snt__thread_start(&device->thread, purpose, run, device);
	if (ret) {
		close(device->wake_fd);
		return ret;
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
