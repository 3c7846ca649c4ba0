/* SPDX-License-Identifier: MIT */
/* A device's own thread, for when no other thread services the device (progress.h). */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "dev/gid.h"
#include "dev/soft/udp/device.h"
#include "util/thread.h"

/* How often the thread yields to threads that wait for the lock. */
#define YIELDS_MAX 200

/* What ended a sleep. */
enum woken_by {
	WOKEN_BY_TIME,
	WOKEN_BY_PACKET, /* or by room in the socket */
	WOKEN_BY_BELL,
	WOKEN_BY_THREAD,
};

/* What the thread remembers from one turn to the next. */
struct turn {
	struct snt__progress_plan plan;
	uint64_t now;
	bool stalled;
	bool bell;     /* links have something to be served */
	bool hears;    /* bells, while it naps: they are no sleeping thread's */
	bool outpaced; /* another thread is receiving */
};

/* The other thread may have lost its processor to this one, as in a program that is
 * pinned: looking again and again would keep it from finishing. By the end of the
 * pause it has polled often enough to be known for a poller, or is gone. */
static void leave_processor(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = SNT__PROGRESS_PAUSE }, NULL);
}

/* A lock that is taken again at once never goes to the threads that wait for it. */
static void yield_to_waiters(struct snt__udp_device *device)
{
	for (unsigned i = 0; i < YIELDS_MAX; i++) {
		if (!atomic_load_explicit(&device->gate.waiters, memory_order_relaxed))
			return;
		sched_yield();
	}
}

/* The first two fds are those that wake the thread, and of bells, unless that is -1. */
static enum woken_by sleep_on_fds(struct snt__udp_device *device, struct turn *turn,
				  struct pollfd *fds, unsigned count, uint64_t time)
{
	struct timespec timeout = { .tv_sec = time / UINT64_C(1000000000),
				    .tv_nsec = time % UINT64_C(1000000000) };
	eventfd_t wakes;
	int found;

	fds[0] = (struct pollfd){ .fd = device->wake_fd, .events = POLLIN };
	fds[1].events = POLLIN;
	found = ppoll(fds, count, time == SNT__PROGRESS_NEVER ? NULL : &timeout, NULL);
	if (found <= 0)
		return WOKEN_BY_TIME;
	turn->bell |= fds[1].revents != 0;
	if (fds[0].revents) {
		eventfd_read(device->wake_fd, &wakes);
		return WOKEN_BY_THREAD;
	}
	return fds[1].revents ? WOKEN_BY_BELL : WOKEN_BY_PACKET;
}

static void sleep_on_all(struct snt__udp_device *device, struct turn *turn,
			 uint64_t time)
{
	bool apart = turn->plan.thread == SNT__THREAD_ASLEEP_APART;
	struct pollfd fds[4] = {
		[1] = { .fd = device->shm.fd },
		[2] = { .fd = apart ? device->receiver.rx_hold.epoll_fd
				    : device->socket.fd,
			.events = POLLIN },
		[3] = { .fd = device->socket.fd, .events = POLLOUT },
	};

	if (sleep_on_fds(device, turn, fds, turn->stalled ? 4 : 3, time) >=
	    WOKEN_BY_BELL)
		device->progress.active_at = snt__udp_now();
}

/* Returns whether the nap is followed by another one. While polls go on the thread
 * does not take the lock. */
static bool naps_on(struct snt__udp_device *device, unsigned *polls)
{
	if (snt__progress_naps_on(&device->progress, polls))
		return true;
	snt__udp_lock(device);
	snt__progress_end_nap(&device->progress, snt__udp_now());
	snt__udp_unlock(device);
	return false;
}

static void nap_while_polled(struct snt__udp_device *device, struct turn *turn,
			     uint64_t time)
{
	const unsigned before = snt__progress_polls(&device->progress);
	unsigned polls = before;
	enum woken_by by;
	struct pollfd fds[2] = { [1] = { .fd = turn->hears ? device->shm.fd : -1 } };

	do
		by = sleep_on_fds(device, turn, fds, 2, time);
	while (by == WOKEN_BY_TIME && time <= SNT__PROGRESS_NAP &&
	       naps_on(device, &polls));
	if (by != WOKEN_BY_TIME || polls != before)
		device->progress.active_at = snt__udp_now();
}

/* A borrower has a nap's time to come for its packets. In a signal handler, or stopped
 * by a debugger, it does not, nor while it computes. */
static void guard_borrower(struct snt__udp_device *device, struct turn *turn,
			   uint64_t time)
{
	const unsigned polls = snt__progress_polls(&device->progress);
	struct pollfd fds[3] = {
		[1] = { .fd = device->shm.fd },
		[2] = { .fd = device->socket.fd, .events = POLLIN },
	};
	enum woken_by by = sleep_on_fds(device, turn, fds, 3, time);

	if (by == WOKEN_BY_TIME)
		return;
	fds[1].fd = -1;
	if (by != WOKEN_BY_THREAD &&
	    sleep_on_fds(device, turn, fds, 2, SNT__PROGRESS_NAP) == WOKEN_BY_TIME) {
		snt__udp_lock(device);
		snt__progress_end_guard(&device->progress, polls, snt__udp_now());
		snt__udp_unlock(device);
	}
	device->progress.active_at = snt__udp_now();
}

/* Messages that are held make the socket readable; they are released when no more
 * come. */
static bool can_check(struct snt__udp_device *device)
{
	bool can;

	snt__udp_lock(device);
	can = !device->receiver.rx_hold.count;
	snt__udp_unlock(device);
	return can;
}

/* Naps first, so that packets do not wake this thread as well. */
static void check_borrower(struct snt__udp_device *device, struct turn *turn,
			   uint64_t time)
{
	const unsigned before = snt__progress_polls(&device->progress);
	struct pollfd fds[2] = { [1] = { .fd = -1 } };
	enum woken_by by = sleep_on_fds(device, turn, fds, 2, time);

	if (by != WOKEN_BY_TIME || snt__progress_polls(&device->progress) != before)
		device->progress.active_at = snt__udp_now();
	if (by == WOKEN_BY_TIME && can_check(device))
		guard_borrower(device, turn, 0);
}

static void sleep_as_planned(struct snt__udp_device *device, struct turn *turn)
{
	uint64_t until = turn->plan.until;
	uint64_t time = until == SNT__PROGRESS_NEVER ? until : until - turn->now;

	switch (turn->plan.thread) {
	case SNT__THREAD_AWAKE:
		if (turn->outpaced)
			leave_processor();
		else
			yield_to_waiters(device);
		break;
	case SNT__THREAD_ASLEEP:
	case SNT__THREAD_ASLEEP_APART:
		sleep_on_all(device, turn, time);
		break;
	case SNT__THREAD_NAPPING:
		nap_while_polled(device, turn, time);
		break;
	case SNT__THREAD_CHECKING:
		check_borrower(device, turn, time);
		break;
	case SNT__THREAD_GUARDING:
		guard_borrower(device, turn, time);
		break;
	case SNT__THREAD_COUNT:
		break;
	}
}

static bool may_rest(const struct turn *turn)
{
	return turn->plan.thread == SNT__THREAD_ASLEEP ||
	       turn->plan.thread == SNT__THREAD_ASLEEP_APART;
}

/* Producers need not ring while the thread is awake, unless another thread sleeps. */
static void rise_from_rest(struct snt__udp_device *device, struct turn *turn)
{
	struct snt__progress *progress = &device->progress;
	static const struct snt__progress_plan awake = { SNT__THREAD_AWAKE, 0 };

	if (may_rest(turn)) {
		snt__progress_sleep(progress, awake);
		if (!snt__progress_wants_bells(progress))
			snt__shm_wake(&device->shm);
	}
	if (turn->bell)
		snt__udp_hear_bells(device, turn->now);
	turn->bell = false;
}

/* Asks for bells. Returns false if there is work to do instead. */
static bool rest_on_bells(struct snt__udp_device *device, struct turn *turn)
{
	unsigned visits;

	if (device->receiver.busy || !snt__shm_sleep(&device->shm))
		return false;
	if (snt__udp_rx_hold_sleep(&device->receiver.rx_hold,
				   !snt__progress_is_lent(&device->progress)) ==
	    device->socket.fd)
		return true;
	turn->plan.thread = SNT__THREAD_ASLEEP_APART;
	/* Another thread that took the lock meanwhile could not wake this one. */
	visits = device->gate.visits;
	return !snt__udp_receive(&device->receiver, device->core, turn->now) &&
	       device->gate.visits == visits + 1 &&
	       !snt__udp_sender_left(&device->sender);
}

static void plan_turn(struct snt__udp_device *device, struct turn *turn)
{
	struct snt__progress_work work = snt__udp_work(device);

	turn->plan = snt__progress_plan(&device->progress, &work, turn->now);
	if (may_rest(turn) && !rest_on_bells(device, turn)) {
		if (!snt__progress_is_awaited(&device->progress))
			snt__shm_wake(&device->shm);
		turn->plan.thread = SNT__THREAD_AWAKE;
	}
	turn->stalled = snt__udp_sender_stalled(&device->sender);
	turn->hears = device->progress.owner == SNT__OWNER_POLLER;
	turn->outpaced = device->receiver.busy;
	snt__progress_sleep(&device->progress, turn->plan);
}

static void move_own(struct snt__udp_device *device, struct turn *turn)
{
	bool arrived = snt__udp_take_in(device, turn->now);
	bool sent = snt__udp_send(&device->sender, device->core,
				  snt__udp_latest(device, turn->now));

	/* The move may have taken longer than SNT__PROGRESS_SPIN. */
	if (arrived || sent)
		device->progress.active_at = turn->now = snt__udp_now();
	/* What arrives without a reply is one itself, and holds up no peer. */
	snt__progress_moved(&device->progress, arrived && sent, turn->now);
}

/* Moves packets, unless they are another thread's. */
static void move_own_packets(struct snt__udp_device *device, struct turn *turn)
{
	struct snt__progress *progress = &device->progress;

	if (snt__progress_yields(progress, snt__udp_deadline(device), turn->now))
		snt__udp_send(&device->sender, device->core, turn->now);
	else
		move_own(device, turn);
	/* Time that other threads gave the device while the gate was open. */
	turn->now = snt__udp_latest(device, turn->now);
	if (turn->now - progress->active_at >= SNT__PROGRESS_IDLE &&
	    !device->receiver.busy)
		snt__udp_rx_hold_clear(&device->receiver.rx_hold);
}

/* False: the device is closing. */
static bool take_turn(struct snt__udp_device *device, struct turn *turn)
{
	bool over;

	snt__udp_lock(device);
	/* Time must not go back: this may have waited for the lock. */
	turn->now = snt__udp_now();
	rise_from_rest(device, turn);
	move_own_packets(device, turn);
	plan_turn(device, turn);
	over = device->over;
	snt__udp_unlock(device);
	if (!over)
		sleep_as_planned(device, turn);
	return !over;
}

static void *run_device_thread(void *arg)
{
	struct turn turn = { 0 };

	while (take_turn(arg, &turn))
		;
	return NULL;
}

void snt__udp_thread_wake(struct snt__udp_device *device,
			  enum snt__progress_reason reason, uint64_t now)
{
	struct snt__progress_work work;

	if (device->progress.thread == SNT__THREAD_AWAKE)
		return;
	work = snt__udp_work(device);
	if (snt__progress_wake(&device->progress, reason, &work, now))
		eventfd_write(device->wake_fd, 1);
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
	ret = snt__thread_start(&device->thread, purpose, run_device_thread, device);
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
	eventfd_write(device->wake_fd, 1);
	snt__udp_unlock(device);
	pthread_join(device->thread, NULL);
	close(device->wake_fd);
}
