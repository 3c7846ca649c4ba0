/* SPDX-License-Identifier: MIT */
/* Moving packets: what the device asks its driver for, in the program's threads. */
#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "dev/soft/core.h"
#include "dev/soft/cq.h"
#include "dev/soft/udp/device.h"

/* At most so many batches are received before a timer that is due: other threads wait
 * for the lock. */
#define LATE_MAX 64

/* In ns. A socket that is not expected to have anything is polled only this often: an
 * empty one costs 500 ns, as much as the way of a packet through memory. */
#define SOCKET_PAUSE UINT64_C(10000)

/* The fds that a borrower sleeps on. */
enum rx_fd {
	RX_SOCKET,
	RX_BELLS,
};

uint64_t snt__udp_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

void snt__udp_lock(struct snt__udp_device *device)
{
	snt__udp_gate_lock(&device->gate);
}

void snt__udp_unlock(struct snt__udp_device *device)
{
	snt__udp_gate_unlock(&device->gate);
}

bool snt__udp_is_free(struct snt__udp_device *device)
{
	bool busy;

	if (!snt__udp_gate_trylock(&device->gate))
		return false;
	busy = device->sender.busy || device->receiver.busy;
	snt__udp_gate_unlock(&device->gate);
	return !busy;
}

/* What arrives while a thread receives is taken by that thread. A socket that had
 * something is polled again at the next occasion. */
static unsigned receive_packets(struct snt__udp_device *device, uint64_t now)
{
	const bool edge = device->edge_taken;
	unsigned count = snt__udp_receive(&device->receiver, device->core, now);

	device->socket_at = count ? 0 : snt__udp_latest(device, now);
	if (edge && !device->receiver.busy && device->receiver.emptied)
		device->edge_taken = false;
	return count;
}

/* Asks producers to ring, once all rings are empty. False: they do not become empty. */
static bool ask_for_bells(struct snt__udp_device *device, uint64_t now)
{
	for (unsigned i = 0; i < LATE_MAX; i++) {
		if (snt__shm_sleep(&device->shm))
			return true;
		snt__shm_receive(&device->shm, now);
	}
	return false;
}

void snt__udp_hear_bells(struct snt__udp_device *device, uint64_t now)
{
	device->served_at = now;
	snt__shm_serve(&device->shm, now);
	if (!snt__progress_wants_bells(&device->progress) || ask_for_bells(device, now))
		return;
	snt__progress_take_back(&device->progress);
	snt__udp_thread_wake(device, SNT__WAKE_BELL, now);
}

/* The thread that sleeps on bells is woken for links, but a busy poller may keep it from
 * its processor, and from the lock. */
static void serve_links(struct snt__udp_device *device, uint64_t now)
{
	if (device->shm.fd >= 0 && now - device->served_at >= SNT__PROGRESS_IDLE)
		snt__udp_hear_bells(device, now);
}

/* Is there anything likely in the socket? Not while packets come through memory, nor just
 * after a program that slept on it has taken what woke it. */
static bool is_socket_due(const struct snt__udp_device *device, uint64_t now)
{
	return (!snt__shm_linked(&device->shm) &&
		!snt__progress_collects(&device->progress, now)) ||
	       now - device->socket_at >= SOCKET_PAUSE;
}

/*
 * Receives, then runs timers that are due. A thread that had to wait for a processor
 * finds both answers and timers that have expired meanwhile: the answers count, so all
 * of them are received before a timer runs.
 */
bool snt__udp_take_in(struct snt__udp_device *device, uint64_t now)
{
	bool late = snt__soft_deadline(device->core) <= now;
	bool moved = snt__shm_receive(&device->shm, now);
	unsigned count = 0;

	serve_links(device, now);
	if (late || is_socket_due(device, now)) {
		count = receive_packets(device, now);
		now = snt__udp_latest(device, now);
		moved |= count;
	}
	if (!late || device->receiver.busy || snt__soft_deadline(device->core) > now)
		return moved;
	for (unsigned i = 0; count && i < LATE_MAX; i++)
		count = receive_packets(device, now);
	now = snt__udp_latest(device, now);
	for (unsigned i = 0; i < LATE_MAX && snt__shm_receive(&device->shm, now); i++)
		;
	if (!device->receiver.busy)
		snt__soft_timer(device->core, now);
	return moved;
}

uint64_t snt__udp_deadline(struct snt__udp_device *device)
{
	uint64_t deadline = snt__soft_deadline(device->core);
	uint64_t shm = snt__shm_deadline(&device->shm);

	return shm < deadline ? shm : deadline;
}

struct snt__progress_work snt__udp_work(struct snt__udp_device *device)
{
	return (struct snt__progress_work){
		.deadline = snt__udp_deadline(device),
		.stalled = snt__udp_sender_stalled(&device->sender),
		.left = snt__udp_sender_left(&device->sender),
		.held = device->receiver.rx_hold.count,
	};
}

bool snt__udp_move(struct snt__udp_device *device, uint64_t now)
{
	bool moved = snt__udp_take_in(device, now);

	moved |= snt__udp_send(&device->sender, device->core,
			       snt__udp_latest(device, now));
	return moved;
}

/*
 * Verbs
 */

static void driver_kick(void *arg)
{
	struct snt__udp_device *device = arg;
	uint64_t now;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	/* The packets to be sent may belong to a QP that is about to be destroyed. */
	while (device->sender.busy)
		snt__udp_gate_wait(&device->gate);
	now = snt__udp_now();
	snt__udp_send(&device->sender, device->core, now);
	snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
	snt__udp_unlock(device);
}

/* Keeps acknowledgments for the reply that the program posts next. */
static bool move_and_collect(struct snt__udp_device *device, uint64_t now)
{
	const struct snt__progress *progress = &device->progress;
	bool moved = snt__udp_take_in(device, now);

	now = snt__udp_latest(device, now);
	if (snt__progress_collects(progress, now) && !device->sender.busy)
		moved |= snt__udp_send_posted(&device->sender, device->core, now);
	else
		moved |= snt__udp_send(&device->sender, device->core, now);
	if (!snt__progress_collects(progress, now) ||
	    snt__udp_sender_left(&device->sender))
		snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
	return moved;
}

/*
 * A busy poller gets its completions first: the replies to what it receives are sent at
 * its next poll. If it does not poll again, the device's thread sends them, which only
 * naps meanwhile. They are not deferred if that thread has gone to sleep for longer
 * while the gate was open, or is sending and will not look again.
 */
static bool move_for_poller(struct snt__udp_device *device, uint64_t now)
{
	const struct snt__progress *progress = &device->progress;
	bool moved;

	if (snt__progress_collects(progress, now))
		return move_and_collect(device, now);
	if (!snt__progress_defers(progress)) {
		moved = snt__udp_move(device, now);
		if (moved || snt__udp_sender_stalled(&device->sender) ||
		    snt__shm_deadline(&device->shm) != SNT__SOFT_NEVER)
			snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
		return moved;
	}
	moved = snt__udp_send(&device->sender, device->core, now);
	moved |= snt__udp_take_in(device, snt__udp_latest(device, now));
	if (!snt__progress_defers(progress) || device->sender.busy)
		moved |= snt__udp_send(&device->sender, device->core,
				       snt__udp_latest(device, now));
	if (!snt__progress_defers(progress) || snt__udp_sender_left(&device->sender))
		snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
	return moved;
}

/* A post is mostly a reply that the peer waits for: it is not delayed by
 * acknowledgments. */
static void send_posted(struct snt__udp_device *device, uint64_t now)
{
	const struct snt__progress *progress = &device->progress;

	if (snt__progress_defers(progress)) {
		snt__udp_send_posted(&device->sender, device->core, now);
		if (!snt__progress_defers(progress) ||
		    snt__udp_sender_left(&device->sender))
			snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
		return;
	}
	snt__udp_send(&device->sender, device->core, now);
	snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
}

/* Polls for a thread that does not call it a poll. */
static void poll_after_post(struct snt__udp_device *device, uint64_t begin,
			    uint64_t now)
{
	snt__progress_count_poll(&device->progress);
	move_for_poller(device, now);
	snt__progress_see_poll(&device->progress, begin, snt__udp_now());
}

/*
 * Acknowledgments arrive during a long send. The sender processes them itself, as if it
 * had polled: the device's thread would have to wait for the lock first, and then the
 * sender for that thread. But a thread that has armed a CQ will sleep rather than poll,
 * so that the device's thread has to watch.
 */
static void driver_posted(void *arg)
{
	struct snt__udp_device *device = arg;
	uint64_t begin, end;

	if (device->foreign) {
		snt__udp_unlock(device);
		return;
	}
	begin = snt__udp_now();
	send_posted(device, begin);
	end = snt__udp_now();
	if (end - begin >= device->send_long && !device->core->armed_count)
		poll_after_post(device, begin, end);
	else
		snt__progress_see_post(&device->progress, begin, end);
	snt__udp_unlock(device);
}

/* If another thread has the lock, that thread moves packets. */
static void driver_progress(void *arg)
{
	struct snt__udp_device *device = arg;
	uint64_t now;

	if (device->foreign)
		return;
	snt__progress_count_poll(&device->progress);
	if (!snt__udp_gate_trylock(&device->gate)) {
		snt__progress_set_polled_at(&device->progress, snt__udp_now());
		return;
	}
	now = snt__udp_now();
	snt__progress_see_poll(&device->progress, now, now);
	if (move_for_poller(device, now))
		snt__progress_set_polled_at(&device->progress, snt__udp_now());
	snt__udp_unlock(device);
}

static void driver_arm(void *arg)
{
	struct snt__udp_device *device = arg;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	snt__progress_arm(&device->progress);
	snt__udp_thread_wake(device, SNT__WAKE_ARMED, 0);
	snt__udp_unlock(device);
}

/*
 * Sleeping on the device
 */

static bool may_lend_socket(const struct snt__udp_device *device)
{
	return !device->receiver.busy && !snt__udp_sender_stalled(&device->sender);
}

/* The device's thread may not be notified of what has arrived by now. That is left to
 * the caller, which may not come back, so the device's thread is woken. If something
 * had arrived, the caller hardly sleeps: the socket is likely to be readable. */
static int socket_to_sleep_on(struct snt__udp_device *device, uint64_t now)
{
	int fd = snt__udp_rx_hold_sleep(&device->receiver.rx_hold, false);

	if (fd == device->socket.fd)
		return fd;
	snt__udp_thread_wake(device, SNT__WAKE_BORROWED, now);
	if (!snt__udp_take_in(device, now))
		return fd;
	snt__udp_send(&device->sender, device->core, snt__udp_latest(device, now));
	return device->socket.fd;
}

/* Replies to what the rings had go out before the caller sleeps. */
static bool lend_bells(struct snt__udp_device *device, uint64_t now)
{
	uint64_t before = device->shm.stats.packets_in;
	bool asked;

	snt__shm_take_bells(&device->shm, now);
	asked = ask_for_bells(device, now);
	if (device->shm.stats.packets_in != before)
		snt__udp_send(&device->sender, device->core,
			      snt__udp_latest(device, now));
	return asked;
}

static unsigned lend_fds(struct snt__udp_device *device, int fds[SNT__RX_FDS],
			 struct ibv_comp_channel *channel, uint64_t now)
{
	snt__soft_channel_mute(channel, true);
	fds[RX_SOCKET] = socket_to_sleep_on(device, now);
	fds[RX_BELLS] = device->shm.fd;
	if (device->shm.fd >= 0 && !lend_bells(device, now)) {
		snt__progress_take_back(&device->progress);
		snt__udp_thread_wake(device, SNT__WAKE_BELL, now);
	}
	snt__soft_channel_mute(channel, false);
	return device->shm.fd < 0 ? 1 : 2;
}

/* Sends what is pending before the caller sleeps. Returns whether it may borrow. */
static bool begin_borrow(struct snt__udp_device *device, enum snt__progress_event how,
			 uint64_t *now_out)
{
	uint64_t now = snt__udp_now();

	snt__udp_send(&device->sender, device->core, now);
	*now_out = now = snt__udp_latest(device, now);
	return snt__progress_borrow(&device->progress, how, now,
				    may_lend_socket(device));
}

unsigned snt__udp_rx_borrow(struct snt__udp_device *device, int fds[SNT__RX_FDS],
			    struct ibv_comp_channel *channel)
{
	unsigned count = 0;
	uint64_t now;

	if (device->foreign)
		return 0;
	snt__udp_lock(device);
	if (begin_borrow(device, SNT__PROGRESS_BORROWED, &now))
		count = lend_fds(device, fds, channel, now);
	snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
	snt__udp_unlock(device);
	return count;
}

/* What had made the last edge is taken; what has not been seen makes another one. False:
 * there is always more. */
static bool empty_socket(struct snt__udp_device *device, uint64_t now)
{
	bool moved = false;

	for (unsigned i = 0; device->edge_taken; i++) {
		if (i == LATE_MAX || device->receiver.busy)
			return false;
		moved |= receive_packets(device, snt__udp_latest(device, now));
	}
	if (moved)
		snt__udp_send(&device->sender, device->core,
			      snt__udp_latest(device, now));
	return true;
}

/* What is held in the socket is no matter to a thread that watches for edges. */
static void lend_edges(struct snt__udp_device *device, uint64_t now)
{
	bool asked = empty_socket(device, now);

	if (device->shm.fd >= 0)
		asked &= lend_bells(device, snt__udp_latest(device, now));
	if (asked)
		return;
	snt__progress_take_back(&device->progress);
	snt__udp_thread_wake(device, SNT__WAKE_BELL, snt__udp_latest(device, now));
}

unsigned snt__udp_rx_watch(struct snt__udp_device *device, int fds[SNT__RX_FDS],
			   unsigned readable)
{
	unsigned count = 0;
	uint64_t now;

	if (device->foreign)
		return 0;
	snt__udp_lock(device);
	device->edge_taken |= readable >> RX_SOCKET & 1;
	if (begin_borrow(device, SNT__PROGRESS_WATCHED, &now)) {
		fds[RX_SOCKET] = device->socket.fd;
		fds[RX_BELLS] = device->shm.fd;
		count = device->shm.fd < 0 ? 1 : 2;
		lend_edges(device, now);
	}
	snt__udp_thread_wake(device, SNT__WAKE_WORK, now);
	snt__udp_unlock(device);
	return count;
}

/* The packets come first: the bells themselves are taken before the next sleep, or by
 * the device's thread, which they wake. */
static void note_bells(struct snt__udp_device *device, uint64_t now)
{
	if (snt__shm_note_bells(&device->shm))
		device->served_at = now;
	else
		snt__udp_hear_bells(device, now);
}

/* A program that is awake needs no bells, unless the device's thread does. What came by
 * one leaves the socket for a later poll. */
static void return_bells(struct snt__udp_device *device, unsigned readable,
			 uint64_t now)
{
	if (device->shm.fd < 0)
		return;
	if (readable & (1u << RX_BELLS))
		note_bells(device, now);
	if (!snt__progress_wants_bells(&device->progress))
		snt__shm_wake(&device->shm);
	if (readable == 1u << RX_BELLS)
		device->socket_at = now;
}

/* What woke the caller is taken here. After a single short message the socket is hardly
 * worth another look: if it has more, the next sleep ends at once. */
static void take_what_woke(struct snt__udp_device *device, uint64_t now)
{
	const struct snt__udp_receiver *receiver = &device->receiver;
	bool moved = snt__udp_take_in(device, now);

	now = snt__udp_latest(device, now);
	if (moved && receiver->last == 1 && !receiver->rx_hold.row)
		device->socket_at = now;
	/* The device's thread does not look again if it is sending already. */
	if (moved && device->sender.busy)
		snt__udp_send(&device->sender, device->core, now);
}

void snt__udp_rx_return(struct snt__udp_device *device, unsigned readable,
			struct ibv_comp_channel *channel)
{
	uint64_t now;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	now = snt__udp_now();
	snt__progress_return(&device->progress, now);
	snt__soft_channel_mute(channel, true);
	return_bells(device, readable, now);
	/* It has something, however short a time ago it was looked at. */
	if (readable & (1u << RX_SOCKET)) {
		device->socket_at = 0;
		device->edge_taken = true;
	}
	if (readable)
		take_what_woke(device, now);
	snt__soft_channel_mute(channel, false);
	snt__udp_thread_wake(device, SNT__WAKE_RETURNED, now);
	snt__udp_unlock(device);
}

/*
 * The rest
 */

int snt__udp_random(void *buffer, size_t length)
{
	unsigned char *at = buffer;

	while (length) {
		ssize_t got = getrandom(at, length, 0);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0) {
			at += got;
			length -= got;
		}
	}
	return 0;
}

/* The system had random numbers when the device was created, so it will have them. */
static void fill_random(void *arg, void *buffer, size_t length)
{
	(void)arg;
	while (snt__udp_random(buffer, length))
		;
}

static void driver_lock(void *arg)
{
	snt__udp_lock(arg);
}

static void driver_unlock(void *arg)
{
	snt__udp_unlock(arg);
}

static uint32_t driver_reach(void *arg, const uint8_t target[16], uint32_t qpn)
{
	struct snt__udp_device *device = arg;

	return snt__shm_reach(&device->shm, target, snt__seat_of_qpn(qpn));
}

static int driver_claim(void *arg, uint16_t port)
{
	struct snt__udp_device *device = arg;

	return device->foreign ? -EIO : snt__udp_share_claim(&device->share, port);
}

static void driver_unclaim(void *arg, uint16_t port)
{
	struct snt__udp_device *device = arg;

	snt__udp_share_unclaim(&device->share, port);
}

static void driver_forget(void *arg, const void *bytes, size_t length)
{
	struct snt__udp_device *device = arg;

	if (!device->foreign)
		snt__shm_forget(&device->shm, bytes, length);
}

static int driver_route(void *arg, const struct sockaddr *target,
			uint8_t source_out[16])
{
	(void)arg;
	return snt__udp_route(target, source_out);
}

const struct snt__soft_driver snt__udp_driver = {
	.random = fill_random,
	.lock = driver_lock,
	.unlock = driver_unlock,
	.kick = driver_kick,
	.post = driver_posted,
	.progress = driver_progress,
	.arm = driver_arm,
	.reach = driver_reach,
	.forget = driver_forget,
	.route = driver_route,
	.claim = driver_claim,
	.unclaim = driver_unclaim,
};
