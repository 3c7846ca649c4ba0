/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/device.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dev/gid.h"
#include "dev/soft/alloc.h"
#include "dev/soft/core.h"
#include "dev/soft/qp.h"
#include "util/err.h"

/* A user-space peer may have lost its processor for a while: a timeout shorter than a
 * time slice would only send everything again. */
#define ACK_TIMEOUT_MIN UINT64_C(10000000)
/* Several for each of some thousand connections. */
#define QP_MAX 16384

/* More than this in flight is not faster. */
#define WINDOW_MAX (512u << 10)

/* At most so many batches are received before a timer that is due: other threads wait
 * for the lock. */
#define LATE_MAX 64

/* In ns. While packets come through shared memory, the socket is polled only this
 * often. */
#define SOCKET_PAUSE UINT64_C(10000)
/* How often the thread that moves packets serves links, too. The device's thread is
 * woken for them, but a busy poller may keep it from its processor, and from the
 * lock. */
#define SERVE_PAUSE UINT64_C(1000000)

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

/* What arrives while a thread receives is taken by that thread. */
static unsigned receive(struct snt__udp_device *device, uint64_t now)
{
	unsigned count = snt__udp_receive(&device->receiver, device->core, now);

	device->socket_at = snt__udp_latest(device, now);
	device->socket_busy = count;
	return count;
}

/*
 * Receives, then runs timers that are due. A thread that had to wait for a processor
 * finds both answers and timers that have expired meanwhile: the answers count, so all
 * of them are received before a timer runs.
 */
static bool take_in(struct snt__udp_device *device, uint64_t now)
{
	bool late = snt__soft_deadline(device->core) <= now;
	bool moved = snt__shm_receive(&device->shm, now);
	unsigned count = 0;

	if (device->shm.fd >= 0 && now - device->served_at >= SERVE_PAUSE) {
		device->served_at = now;
		snt__shm_serve(&device->shm, now);
		snt__udp_thread_stay(device);
	}
	if (late || !snt__shm_linked(&device->shm) || device->socket_busy ||
	    now - device->socket_at >= SOCKET_PAUSE) {
		count = receive(device, now);
		now = snt__udp_latest(device, now);
		moved |= count;
	}
	if (!late || device->receiver.busy || snt__soft_deadline(device->core) > now)
		return moved;
	for (unsigned i = 0; count && i < LATE_MAX; i++)
		count = receive(device, now);
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

bool snt__udp_move(struct snt__udp_device *device, uint64_t now)
{
	bool moved = take_in(device, now);

	moved |= snt__udp_send(&device->sender, device->core,
			       snt__udp_latest(device, now));
	return moved;
}

/*
 * What the device asks its driver for
 */

static int get_random(void *buffer, size_t length)
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
	while (get_random(buffer, length))
		;
}

static void lock(void *arg)
{
	snt__udp_lock(arg);
}

static void unlock(void *arg)
{
	snt__udp_unlock(arg);
}

static void kick(void *arg)
{
	struct snt__udp_device *device = arg;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	/* The packets to be sent may belong to a QP that is about to be destroyed. */
	while (device->sender.busy)
		snt__udp_gate_wait(&device->gate);
	snt__udp_send(&device->sender, device->core, snt__udp_now());
	snt__udp_thread_hurry(device);
	snt__udp_unlock(device);
}

static void count_poll(struct snt__udp_device *device)
{
	unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);

	atomic_store_explicit(&device->polls, polls + 1, memory_order_relaxed);
}

/* Time spent asleep in snt__udp_rx_borrow() is not time away. */
static void see(struct snt__udp_device *device, uint64_t begin, uint64_t end)
{
	if (!device->asleep && begin > device->seen_at + SNT__UDP_AWAY)
		device->steady_since = begin;
	device->asleep = false;
	device->seen_at = end;
}

/*
 * A thread was in here from `begin` to `end`: that is no pause. Calls that come often
 * and without a pause for long enough are those of a busy poller.
 */
static void note_poll(struct snt__udp_device *device, uint64_t begin, uint64_t end)
{
	unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);

	see(device, begin, end);
	if (snt__udp_pause(device, begin) > SNT__UDP_POLL_PAUSE) {
		device->polling_since = begin;
		device->polls_before = polls;
	}
	snt__udp_set_polled_at(device, end);
	if (end - device->polling_since >= SNT__UDP_POLL_ENOUGH &&
	    polls - device->polls_before >= SNT__UDP_POLLS)
		device->polled = true;
}

/*
 * A busy poller gets its completions first: the replies to what it receives are sent at
 * its next poll. If it does not poll again, the device's thread sends them, which only
 * naps meanwhile. They are not deferred if that thread has gone to sleep for longer
 * while the gate was open, or is sending and will not look again.
 */
static bool move_for_poller(struct snt__udp_device *device, uint64_t now)
{
	bool moved;

	if (!device->napping) {
		moved = snt__udp_move(device, now);
		if (moved || snt__udp_sender_stalled(&device->sender) ||
		    snt__shm_deadline(&device->shm) != SNT__SOFT_NEVER)
			snt__udp_thread_hurry(device);
		return moved;
	}
	moved = snt__udp_send(&device->sender, device->core, now);
	moved |= take_in(device, snt__udp_latest(device, now));
	if (!device->napping || device->sender.busy)
		moved |= snt__udp_send(&device->sender, device->core,
				       snt__udp_latest(device, now));
	if (!device->napping || snt__udp_sender_left(&device->sender))
		snt__udp_thread_hurry(device);
	return moved;
}

/* A post is mostly a reply that the peer waits for: it is not delayed by
 * acknowledgments. */
static void send_posted(struct snt__udp_device *device, uint64_t now)
{
	if (device->napping) {
		snt__udp_send_posted(&device->sender, device->core, now);
		if (!device->napping || device->attended ||
		    snt__udp_sender_left(&device->sender))
			snt__udp_thread_hurry(device);
		return;
	}
	snt__udp_send(&device->sender, device->core, now);
	snt__udp_thread_hurry(device);
}

/* The time of a post is no pause between polls. While it was in the kernel, other threads may have
 * polled, or posted for as long. */
static void excuse(struct snt__udp_device *device, uint64_t begin, uint64_t end)
{
	uint64_t at = snt__udp_polled_at(device) + end - begin;

	snt__udp_set_polled_at(device, at < end ? at : end);
}

/*
 * Acknowledgments arrive during a long send. The sender processes them itself, as if it
 * had polled: the device's thread would have to wait for the lock first, and then the
 * sender for that thread. But a thread that has armed a CQ will sleep rather than poll,
 * so that the device's thread has to watch.
 */
static void post(void *arg)
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
	see(device, begin, end);
	if (end - begin >= device->send_long && !device->core->armed_count) {
		count_poll(device);
		move_for_poller(device, end);
		note_poll(device, begin, snt__udp_now());
	} else if (device->polled) {
		excuse(device, begin, end);
	}
	snt__udp_unlock(device);
}

/* If another thread has the lock, that thread moves packets. */
static void progress(void *arg)
{
	struct snt__udp_device *device = arg;
	uint64_t now;

	if (device->foreign)
		return;
	count_poll(device);
	if (!snt__udp_gate_trylock(&device->gate)) {
		snt__udp_set_polled_at(device, snt__udp_now());
		return;
	}
	now = snt__udp_now();
	note_poll(device, now, now);
	if (move_for_poller(device, now)) {
		device->seen_at = snt__udp_now();
		snt__udp_set_polled_at(device, device->seen_at);
	}
	snt__udp_unlock(device);
}

static void arm(void *arg)
{
	struct snt__udp_device *device = arg;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	if (!device->attended_lately)
		snt__udp_thread_watch(device);
	snt__udp_unlock(device);
}

/* One thread at a time: more would all be woken by every packet. While most packets
 * come through shared memory, the socket is not the fd to wait for. And a thread that
 * does other work between two waits would delay peers that write to its memory. */
static bool may_borrow(const struct snt__udp_device *device, uint64_t now)
{
	return !device->attended && now - device->steady_since >= SNT__UDP_STEADY &&
	       !snt__shm_linked(&device->shm) && !device->receiver.busy &&
	       !snt__udp_sender_stalled(&device->sender);
}

/* The device's thread may not be notified of what has arrived by now. That is left to
 * the caller, which may not come back, so the device's thread is woken. If something
 * had arrived, the caller hardly sleeps: the socket is likely to be readable. */
static int sleep_fd(struct snt__udp_device *device, uint64_t now)
{
	int fd = snt__udp_rx_hold_sleep(&device->receiver.rx_hold, false);

	if (fd == device->socket.fd)
		return fd;
	snt__udp_thread_part(device);
	if (!take_in(device, now))
		return fd;
	snt__udp_send(&device->sender, device->core, snt__udp_latest(device, now));
	return device->socket.fd;
}

/* Sends what is pending before the caller sleeps. */
int snt__udp_rx_borrow(struct snt__udp_device *device)
{
	uint64_t now;
	int fd = -1;

	if (device->foreign)
		return -1;
	snt__udp_lock(device);
	now = snt__udp_now();
	snt__udp_send(&device->sender, device->core, now);
	now = snt__udp_latest(device, now);
	see(device, now, now);
	device->asleep = true;
	if (may_borrow(device, now)) {
		device->attended = device->attended_lately = device->polled = true;
		fd = sleep_fd(device, now);
	} else if (!device->attended) {
		device->attended_lately = false;
	}
	snt__udp_thread_hurry(device);
	snt__udp_unlock(device);
	return fd;
}

void snt__udp_rx_return(struct snt__udp_device *device, bool readable)
{
	uint64_t now;

	if (device->foreign)
		return;
	snt__udp_lock(device);
	device->attended = false;
	now = snt__udp_now();
	see(device, now, now);
	/* The device's thread does not look again if it is sending already. */
	if (readable && take_in(device, now) && device->sender.busy)
		snt__udp_send(&device->sender, device->core,
			      snt__udp_latest(device, now));
	snt__udp_set_polled_at(device, now);
	count_poll(device);
	snt__udp_thread_mind(device, now);
	snt__udp_unlock(device);
}

static uint32_t reach(void *arg, const uint8_t target[16])
{
	struct snt__udp_device *device = arg;

	return snt__shm_reach(&device->shm, target);
}

static void forget(void *arg, const void *bytes, size_t length)
{
	struct snt__udp_device *device = arg;

	if (!device->foreign)
		snt__shm_forget(&device->shm, bytes, length);
}

static int route(void *arg, const struct sockaddr *target, uint8_t source_out[16])
{
	(void)arg;
	return snt__udp_route(target, source_out);
}

static const struct snt__soft_driver driver = {
	.random = fill_random,
	.lock = lock,
	.unlock = unlock,
	.kick = kick,
	.post = post,
	.progress = progress,
	.arm = arm,
	.reach = reach,
	.forget = forget,
	.route = route,
};

enum snt_path snt__udp_device_path(struct snt__udp_device *device, struct ibv_qp *qp)
{
	enum snt_path path = SNT_PATH_UNKNOWN;
	const struct snt__soft_qp *soft;

	if (!qp)
		return device->shm.fd >= 0 ? SNT_PATH_SHM : SNT_PATH_UDP;
	if (device->foreign)
		return path;
	soft = snt__soft_qp(qp);
	snt__udp_lock(device);
	if (soft->mtu) /* it has a peer */
		path = snt__shm_find(&device->shm, soft->path.target) ? SNT_PATH_SHM
								      : SNT_PATH_UDP;
	snt__udp_unlock(device);
	return path;
}

/*
 * Creating and destroying
 */

/*
 * How many bytes of full packets fit into half of a receive buffer; the other half is
 * for the packets of other peers. In the worst case the kernel charges twice the
 * packet, and its own structures. The size of our buffer is the best estimate of a
 * peer's.
 */
static uint32_t window(const struct snt__udp_socket *socket, uint32_t mtu)
{
	uint64_t bytes = (uint64_t)socket->receive_bytes / 2 * mtu / (2 * mtu + 768);

	if (bytes > WINDOW_MAX)
		return WINDOW_MAX;
	return bytes > mtu ? bytes : mtu;
}

static int make_core(struct snt__udp_device *device, const struct snt__udp_opts *opts)
{
	struct snt__soft_config config = opts->config;
	uint32_t bytes;

	if (!config.mtu)
		config.mtu = snt__udp_mtu(device->address.ip_mtu);
	if (!config.mtu)
		return snt__fail(EMSGSIZE,
				 "%s: an interface with an MTU of %u has no room for "
				 "RDMA packets",
				 opts->name, device->address.ip_mtu);
	if (!config.qp_max)
		config.qp_max = QP_MAX;
	config.name = opts->name;
	config.driver = &driver;
	config.driver_arg = device;
	config.gids = (const uint8_t(*)[16])device->address.gid;
	config.gid_count = 1;
	config.netdev = device->address.netdev;
	bytes = window(&device->socket, snt__mtu_bytes(config.mtu));
	if (!config.request_window)
		config.request_window = bytes;
	if (!config.response_window)
		config.response_window = bytes;
	if (device->socket.gso)
		config.run_bytes = SNT__UDP_MESSAGE_MAX;
	if (!config.ack_timeout_min)
		config.ack_timeout_min = ACK_TIMEOUT_MIN;
	return snt__soft_device_create(&config, &device->core);
}

static int start(struct snt__udp_device *device, const struct snt__udp_opts *opts)
{
	int ret;

	ret = make_core(device, opts);
	if (ret)
		return ret;
	/* If that fails, peers reach the device through its socket. */
	device->shm.pull = opts->shm_pull;
	if (opts->shm)
		snt__shm_open(&device->shm, device->address.gid, device->core);
	snt__udp_fork_add(device);
	ret = snt__udp_thread_start(device, opts->name);
	if (ret) {
		snt__udp_fork_remove(device);
		snt__shm_close(&device->shm, true);
		snt__soft_device_destroy(device->core);
	}
	return ret;
}

static void free_device(struct snt__udp_device *device)
{
	snt__udp_receiver_finish(&device->receiver);
	snt__udp_sender_finish(&device->sender);
	snt__udp_gate_finish(&device->gate);
	snt__soft_free(device);
}

static int make(const struct snt__udp_opts *opts, struct snt__udp_device **device_out)
{
	struct snt__udp_device *device = snt__soft_alloc(1, sizeof(*device));
	int ret;

	if (!device)
		return -ENOMEM;
	device->address = *opts->address;
	device->users = 1;
	device->shm_wanted = opts->shm;
	device->send_long = SNT__UDP_SEND_LONG;
	snt__shm_init(&device->shm);
	device->sender.shm = &device->shm;
	ret = snt__udp_gate_init(&device->gate);
	if (ret) {
		snt__soft_free(device);
		return ret;
	}
	ret = snt__udp_sender_init(&device->sender, &device->socket, &device->address);
	if (!ret)
		ret = snt__udp_receiver_init(&device->receiver, &device->socket,
					     &device->address);
	if (ret) {
		free_device(device);
		return ret;
	}
	device->sender.gate = device->receiver.gate = &device->gate;
	*device_out = device;
	return 0;
}

/* Errors about the address are explained by the caller; -EAGAIN is that of
 * snt__thread_start(), which has explained it. */
static int complain(const struct snt__udp_opts *opts, int ret)
{
	char text[SNT__GID_TEXT];

	if (ret == -EADDRINUSE || ret == -EADDRNOTAVAIL || ret == -EMSGSIZE ||
	    ret == -EAGAIN)
		return ret;
	return snt__fail(-ret, "%s on %s: cannot be made: %s", opts->name,
			 snt__gid_text(opts->address->gid, text), strerror(-ret));
}

/* Opens what a child must not have: the socket, and everything that lets peers find the
 * device. */
static int open_device(struct snt__udp_device *device, const struct snt__udp_opts *opts)
{
	uint32_t bytes = opts->buffer_bytes ? opts->buffer_bytes : SNT__UDP_BUFFER;
	int ret = snt__udp_socket_open(&device->address, bytes, &device->socket);

	if (ret)
		return ret;
	device->socket.gso &= !opts->no_gso;
	snt__udp_rx_hold_init(&device->receiver.rx_hold, &device->socket);
	ret = start(device, opts);
	if (ret) {
		snt__udp_rx_hold_finish(&device->receiver.rx_hold);
		close(device->socket.fd);
	}
	return ret;
}

static void close_device(struct snt__udp_device *device)
{
	snt__udp_thread_stop(device);
	snt__udp_fork_remove(device);
	snt__shm_close(&device->shm, true);
	snt__udp_rx_hold_finish(&device->receiver.rx_hold);
	close(device->socket.fd);
}

/* With forks held off. */
static int make_and_open(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out)
{
	struct snt__udp_device *device;
	int ret = make(opts, &device);

	if (ret)
		return ret;
	ret = open_device(device, opts);
	if (ret)
		free_device(device);
	else
		*device_out = device;
	return ret;
}

static int check_random(const struct snt__udp_opts *opts)
{
	unsigned char random;
	int ret = get_random(&random, sizeof(random));

	return ret ? snt__fail(-ret, "%s: the system gives no random numbers: %s",
			       opts->name, strerror(-ret))
		   : 0;
}

int snt__udp_device_create(const struct snt__udp_opts *opts,
			   struct snt__udp_device **device_out)
{
	int ret = check_random(opts);

	if (ret)
		return ret;
	snt__udp_fork_hold();
	ret = make_and_open(opts, device_out);
	snt__udp_fork_release();
	return ret ? complain(opts, ret) : 0;
}

static bool has_options(const struct snt__udp_device *device,
			const struct snt__udp_opts *opts)
{
	return device->shm_wanted == opts->shm && device->shm.pull == opts->shm_pull;
}

int snt__udp_device_take(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out)
{
	int ret = check_random(opts);

	if (ret)
		return ret;
	snt__udp_fork_hold();
	*device_out = snt__udp_fork_find(opts->address);
	if (!*device_out)
		ret = make_and_open(opts, device_out);
	else if (has_options(*device_out, opts))
		(*device_out)->users++;
	else
		ret = -EADDRINUSE;
	snt__udp_fork_release();
	return ret ? complain(opts, ret) : 0;
}

void snt__udp_device_use(struct snt__udp_device *device)
{
	snt__udp_fork_hold();
	device->users++;
	snt__udp_fork_release();
}

/* The device moves no packet after this. */
static void end_device(struct snt__udp_device *device)
{
	if (!device->foreign)
		close_device(device);
	device->foreign = true;
}

static int free_ended(struct snt__udp_device *device)
{
	int ret = snt__soft_device_destroy(device->core);

	if (!ret)
		free_device(device);
	return ret;
}

void snt__udp_device_put(struct snt__udp_device *device)
{
	bool last;

	snt__udp_fork_hold();
	last = !--device->users;
	if (last)
		end_device(device);
	snt__udp_fork_release();
	if (last)
		free_ended(device);
}

int snt__udp_device_destroy(struct snt__udp_device *device)
{
	if (!device)
		return 0;
	snt__udp_fork_hold();
	end_device(device);
	snt__udp_fork_release();
	return free_ended(device);
}

struct snt__udp_device *snt__udp_device_of(struct ibv_context *context)
{
	return snt__soft_device_of(context)->driver_arg;
}
