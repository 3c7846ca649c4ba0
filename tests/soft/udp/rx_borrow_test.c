/* SPDX-License-Identifier: MIT */
/* A program that sleeps on the socket of a device moves its packets, and its thread
 * does not, except for what only the thread can do, and when the program does not come
 * back. */
#include "lib/udp_side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sennit/sennit.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "lib/patience.h"

/* As a program that has never held up a peer. */
static void trust(struct side *side)
{
	snt__udp_lock(side->device);
	side->device->progress.lend_at = 0;
	snt__udp_unlock(side->device);
}

/* Not while the socket is full, or another thread receives. */
static int borrow(struct side *side)
{
	uint64_t end = snt__udp_now() + patience_ns(30);
	int fds[SNT__RX_FDS];
	unsigned count;

	trust(side);
	do
		count = snt__udp_rx_borrow(side->device, fds, NULL);
	while (!count && snt__udp_now() < end);
	assert_true(count);
	return fds[0];
}

static bool borrows_at_once(struct side *side)
{
	int fds[SNT__RX_FDS];

	return snt__udp_rx_borrow(side->device, fds, NULL);
}

static void give_back(struct side *side, bool readable)
{
	snt__udp_rx_return(side->device, readable, NULL);
}

static bool wait_readable(int fd, int timeout_ms)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };

	return poll(&at, 1, timeout_ms) == 1;
}

/* It sleeps on it again and again, until the thread has seen that it does. */
static void borrow_until_thread_naps(struct side *side, struct side *peer)
{
	uint64_t end = snt__udp_now() + patience_ns(30);
	struct ibv_wc wc;

	while (!side_naps(side)) {
		side_post(peer, side, IBV_WR_RDMA_WRITE, 100);
		while (!ibv_poll_cq(peer->cq, 1, &wc)) {
			int fd = borrow(side);

			assert_true(snt__udp_now() < end);
			give_back(side, wait_readable(fd, 1));
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
}

/* And then sleeps on it, with no other thread there. */
static int borrow_alone(struct side *side, struct side *peer)
{
	for (;;) {
		int fd;

		borrow_until_thread_naps(side, peer);
		fd = borrow(side);
		if (side_naps(side))
			return fd;
		give_back(side, false);
	}
}

/* Until nothing but a packet, or a bell, would wake its thread. */
static void wait_asleep(struct side *side)
{
	const struct timespec moment = { .tv_nsec = 500000 };
	uint64_t end = snt__udp_now() + patience_ns(30), wake_at;

	do {
		assert_true(snt__udp_now() < end);
		nanosleep(&moment, NULL);
		snt__udp_lock(side->device);
		wake_at = side->device->progress.wake_at;
		snt__udp_unlock(side->device);
	} while (wake_at < end);
}

/* Did the thread take the socket from one that had slept for long, and came too
 * late? */
static bool is_taken_over(struct side *side)
{
	bool taken;

	snt__udp_lock(side->device);
	taken = side->device->progress.owner == SNT__OWNER_OVERDUE;
	snt__udp_unlock(side->device);
	return taken;
}

static void wait_readable_or_taken_over(struct side *side, int fd)
{
	uint64_t end = snt__udp_now() + UINT64_C(30000000000);

	while (!wait_readable(fd, 10) && !is_taken_over(side))
		assert_true(snt__udp_now() < end);
}

/* Probes aside: on a busy machine the peer may come to doubt. */
static uint64_t requests_in(struct side *side)
{
	struct snt__soft_stats stats = side_stats(side);

	return stats.packets_in - stats.duplicates;
}

/* Nothing moves while the program only looks. Then it does, in its own thread. */
static void sleeper_moves_packets(void **state)
{
	uint64_t end = snt__udp_now() + UINT64_C(60000000000);
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20;) {
		int fd = borrow_alone(&side[1], &side[0]);
		uint64_t before = requests_in(&side[1]), after;

		assert_true(snt__udp_now() < end);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		wait_readable_or_taken_over(&side[1], fd);
		after = requests_in(&side[1]);
		if (!is_taken_over(&side[1])) {
			assert_int_equal(after, before);
			i++;
		}
		give_back(&side[1], true);
		assert_int_equal(requests_in(&side[1]), before + 1);
		/* The acknowledgment goes out although the program does not come
		 * back. */
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* A thread that was woken, but does not get a processor. ppoll(2) looks again when it
 * does, and goes on sleeping if what has come was taken meanwhile. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int wake_fd; /* of its device; 0: none */
	bool there;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Returns whether it was kept. */
static bool keep_if_wanted(const struct pollfd *fds)
{
	bool wanted;

	pthread_mutex_lock(&kept.lock);
	wanted = kept.wake_fd == fds->fd;
	if (wanted) {
		kept.there = true;
		pthread_cond_broadcast(&kept.changed);
	}
	while (kept.wake_fd == fds->fd)
		pthread_cond_wait(&kept.changed, &kept.lock);
	pthread_mutex_unlock(&kept.lock);
	return wanted;
}

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	int ret;

	do
		ret = __real_ppoll(fds, count, timeout, mask);
	while (ret > 0 && keep_if_wanted(fds));
	return ret;
}

static void keep_thread(const struct side *side)
{
	pthread_mutex_lock(&kept.lock);
	kept.wake_fd = side->device->wake_fd;
	kept.there = false;
	pthread_mutex_unlock(&kept.lock);
}

static void await_kept(void)
{
	pthread_mutex_lock(&kept.lock);
	while (!kept.there)
		pthread_cond_wait(&kept.changed, &kept.lock);
	pthread_mutex_unlock(&kept.lock);
}

static void release_thread(void)
{
	pthread_mutex_lock(&kept.lock);
	kept.wake_fd = 0;
	pthread_cond_broadcast(&kept.changed);
	pthread_mutex_unlock(&kept.lock);
}

static void sleeper_is_quicker_than_the_thread(void **state)
{
	struct side side[2];
	int fd;

	(void)state;
	sides_open(side, NULL);
	wait_asleep(&side[1]);
	keep_thread(&side[1]);
	fd = borrow(&side[1]);
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	await_kept();
	assert_true(wait_readable(fd, 0));
	give_back(&side[1], true);
	release_thread();
	/* Its acknowledgment is not sent only after the request has come again. */
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(side_stats(&side[0]).timeouts, 0);
	sides_close(side);
}

/* In a signal handler, or by a debugger: packets move all the same, whether the
 * device's thread had gone to sleep or not. */
static void sleeper_is_held_up(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		borrow_alone(&side[1], &side[0]);
		if (i % 2)
			wait_asleep(&side[1]);
		side_check(&side[0], &side[1], 100);
		give_back(&side[1], false);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static void one_at_a_time(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	borrow(&side[0]);
	assert_false(borrows_at_once(&side[0]));
	borrow(&side[1]);
	give_back(&side[0], false);
	borrow(&side[0]);
	give_back(&side[0], false);
	give_back(&side[1], false);
	sides_close(side);
}

/* The thread finds out, even if the program slept for so long that the thread did,
 * too. */
static void sleeper_does_not_come_back(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		borrow_alone(&side[1], &side[0]);
		if (i % 2)
			wait_asleep(&side[1]);
		give_back(&side[1], false);
		side_check(&side[0], &side[1], 100);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static const struct timespec away = { .tv_nsec = 2 * SNT__PROGRESS_NAP };

/* Has the thread answered a peer that waited for the program? */
static bool is_distrusted(struct side *side)
{
	bool distrusted;

	snt__udp_lock(side->device);
	distrusted = side->device->progress.lend_at > snt__udp_now();
	snt__udp_unlock(side->device);
	return distrusted;
}

/* A program that computes between two waits must not hold up peers that write to its
 * memory. It may, once: then its device's thread serves it. On a busy machine that may
 * be over before the program tries again. */
static void program_that_held_up_a_peer_may_not_borrow(void **state)
{
	uint64_t end = snt__udp_now() + patience_ns(60);
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned refused = 0; refused < 10;) {
		assert_true(snt__udp_now() < end);
		borrow(&side[1]);
		give_back(&side[1], false);
		side_check(&side[0], &side[1], 100);
		nanosleep(&away, NULL);
		if (borrows_at_once(&side[1]))
			give_back(&side[1], false);
		else
			refused += is_distrusted(&side[1]);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* One that has held up no peer. The thread may be receiving at the moment. */
static void program_that_was_away_may_borrow(void **state)
{
	struct side side;

	(void)state;
	side_open(&side, 1, NULL);
	for (unsigned i = 0; i < 10; i++) {
		const uint64_t begin = snt__udp_now();

		while (!borrows_at_once(&side))
			assert_true(snt__udp_now() < begin + patience_ns(30));
		snt__udp_lock(side.device);
		assert_int_equal(side.device->progress.lend_at, 0);
		snt__udp_unlock(side.device);
		give_back(&side, false);
		nanosleep(&away, NULL);
	}
	side_close(&side);
}

static bool watches_at_once(struct side *side)
{
	int fds[SNT__RX_FDS];

	return snt__udp_rx_watch(side->device, fds, 0);
}

/* Until the device's thread has taken what the program did not come for. */
static void compute_while_peer_writes(struct side side[2])
{
	uint64_t end = snt__udp_now() + patience_ns(30);

	do {
		assert_true(snt__udp_now() < end);
		while (!watches_at_once(&side[1]))
			assert_true(snt__udp_now() < end);
		side_check(&side[0], &side[1], 100);
		give_back(&side[1], false);
	} while (!is_distrusted(&side[1]));
}

/* A program whose event loop watches, and that computes instead of sleeping there. */
static void peers_of_a_program_that_computes_are_served(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	compute_while_peer_writes(side);
	assert_false(watches_at_once(&side[1]));
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* What comes through memory is not heard at the socket. */
static void link_comes_up_while_a_thread_sleeps_on_the_socket(void **state)
{
	const struct snt__udp_opts opts = { .shm = true };
	struct side side[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		side_open(&side[0], 1, &opts);
		side_open(&side[1], 2, &opts);
		borrow(&side[1]);
		if (i)
			wait_asleep(&side[1]);
		side_connect(&side[0], &side[1], IBV_MTU_4096);
		side_connect(&side[1], &side[0], IBV_MTU_4096);
		side_check(&side[0], &side[1], 100);
		give_back(&side[1], false);
		assert_int_equal(side_stats(&side[0]).resent, 0);
		sides_close(side);
	}
}

/* A program that had slept on the socket wants an event the next time. */
static void sleeper_waits_for_an_event(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		borrow_until_thread_naps(&side[0], &side[1]);
		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_int_equal(side_wait_event(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* It is told if no answer comes: timers are the thread's. */
static void timers_run_while_a_thread_sleeps_on_the_socket(void **state)
{
	struct side side[2];

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, NULL);
	borrow_until_thread_naps(&side[0], &side[1]);
	side_close(&side[1]);
	borrow(&side[0]);
	sides_idle();
	assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
	side_post(&side[0], &side[0], IBV_WR_RDMA_WRITE, 100);
	assert_int_equal(side_wait_event(&side[0]), IBV_WC_RETRY_EXC_ERR);
	give_back(&side[0], false);
	side_timeout = SIDE_PATIENT;
	side_close(&side[0]);
}

/*
 * Long messages stay in the socket for a while (hold.h), which is readable all the time
 * then
 */

/* The system may grant no buffer that is large enough to hold messages. */
static bool open_with_holds(struct side side[2])
{
	sides_open(side, NULL);
	if (side[1].device->receiver.rx_hold.bytes_max)
		return true;
	print_message("# no privilege for a large buffer, so nothing can be held\n");
	sides_close(side);
	return false;
}

static unsigned held(struct side *side)
{
	unsigned count;

	snt__udp_lock(side->device);
	count = side->device->receiver.rx_hold.count;
	snt__udp_unlock(side->device);
	return count;
}

static void write_long(struct side side[2])
{
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, SIDE_BYTES / 2);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
}

/* Something comes for the second of these just before it forgets what has come. Threads of
 * other devices look at it, too, with locks of their own. */
static struct side *_Atomic intruded;
static pthread_t intruded_in;
static uint64_t packets_before; /* it was */

int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);

/* A busy kernel may take its time to deliver. */
static void wait_until_there(int fd)
{
	uint64_t end = snt__udp_now() + patience_ns(30);

	while (recv(fd, NULL, 0, MSG_DONTWAIT | MSG_PEEK) < 0)
		assert_true(snt__udp_now() < end);
}

/* The caller has the device's lock. */
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	struct side *side = intruded;

	if (side && fd == side[1].device->receiver.rx_hold.epoll_fd) {
		intruded = NULL;
		intruded_in = pthread_self();
		packets_before =
			snt__soft_device_stats(side[1].device->core)->packets_in;
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		wait_until_there(side[1].device->socket.fd);
	}
	return __real_epoll_wait(fd, events, count, timeout);
}

/* Returns whether it was to be, and still is. */
static bool intrude(struct side side[2], bool now)
{
	bool before;

	snt__udp_lock(side[1].device);
	before = intruded;
	intruded = now ? side : NULL;
	snt__udp_unlock(side[1].device);
	return before;
}

static void sleeper_is_intruded(void **state)
{
	uint64_t end = snt__udp_now() + patience_ns(60);
	struct side side[2];

	(void)state;
	if (!open_with_holds(side))
		return;
	for (unsigned i = 0; i < 20;) {
		assert_true(snt__udp_now() < end);
		write_long(side);
		intrude(side, true);
		borrow(&side[1]);
		if (intrude(side, false)) {
			give_back(&side[1], true);
			continue;
		}
		if (pthread_equal(intruded_in, pthread_self())) {
			assert_true(side_stats(&side[1]).packets_in > packets_before);
			i++;
		}
		give_back(&side[1], true);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* A long message, and something when the receiver's thread goes to sleep, if it does so
 * with something held. Returns whether. */
static bool intrude_thread(struct side side[2])
{
	uint64_t end = snt__udp_now() + UINT64_C(100000000);
	bool still;

	intrude(side, true);
	write_long(side);
	do {
		sched_yield();
		snt__udp_lock(side[1].device);
		still = intruded;
		snt__udp_unlock(side[1].device);
	} while (still && snt__udp_now() < end);
	return !intrude(side, false);
}

static void thread_is_intruded(void **state)
{
	uint64_t end = snt__udp_now() + patience_ns(60);
	struct side side[2];

	(void)state;
	if (!open_with_holds(side))
		return;
	for (unsigned i = 0; i < 20;) {
		uint64_t wake_at;

		assert_true(snt__udp_now() < end);
		if (!intrude_thread(side))
			continue;
		do {
			snt__udp_lock(side[1].device);
			wake_at = side[1].device->progress.wake_at;
			snt__udp_unlock(side[1].device);
		} while (!wake_at);
		assert_true(side_stats(&side[1]).packets_in > packets_before);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
		i++;
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static void sleeper_holds_messages(void **state)
{
	uint64_t end = snt__udp_now() + patience_ns(60);
	struct side side[2];

	(void)state;
	if (!open_with_holds(side))
		return;
	for (unsigned i = 0, apart = 0; apart < 50; i++) {
		int fd;

		assert_true(snt__udp_now() < end);
		write_long(side);
		fd = borrow(&side[1]);
		apart += fd != side[1].device->socket.fd;
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, i % 2 ? 100 : 100000);
		wait_readable_or_taken_over(&side[1], fd);
		give_back(&side[1], i % 3);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* Would its thread be woken by what another thread has been told of? */
static bool sleeps_apart(struct side *side)
{
	bool apart;

	snt__udp_lock(side->device);
	apart = side->device->progress.thread == SNT__THREAD_ASLEEP_APART;
	snt__udp_unlock(side->device);
	return apart;
}

static void thread_knows_which_threads_sleep(void **state)
{
	struct side side[2];

	(void)state;
	if (!open_with_holds(side))
		return;
	for (unsigned i = 0; i < 20; i++) {
		uint64_t end = snt__udp_now() + patience_ns(30);

		while (!sleeps_apart(&side[1])) {
			assert_true(snt__udp_now() < end);
			write_long(side);
		}
		borrow(&side[1]);
		assert_false(sleeps_apart(&side[1]));
		give_back(&side[1], false);
		write_long(side);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* Whether the program sleeps, or the thread does. */
static void nothing_is_kept_for_ever(void **state)
{
	struct side side[2];

	(void)state;
	if (!open_with_holds(side))
		return;
	do
		write_long(side);
	while (!held(&side[1]));
	sides_idle();
	assert_int_equal(held(&side[1]), 0);
	for (;;) {
		write_long(side);
		borrow(&side[1]);
		if (held(&side[1]))
			break;
		give_back(&side[1], false);
	}
	sides_idle();
	assert_int_equal(held(&side[1]), 0);
	give_back(&side[1], false);
	sides_close(side);
}

/*
 * A program that waits in a loop
 */

static struct snt__udp_device *open_context(struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .devices = "soft0" };

	assert_success(snt_ctx_create(&opts, ctx_out));
	return snt__udp_device_of(snt_device_context(snt_ctx_device(*ctx_out, 0)));
}

/* Was the socket looked after in one of a few waits? */
static bool borrows(struct snt_loop *loop, struct snt__udp_device *device,
		    int64_t timeout_ns)
{
	bool lent = false;

	for (unsigned i = 0; i < 50 && !lent; i++) {
		assert_int_equal(snt_loop_wait(loop, timeout_ns), 0);
		snt__udp_lock(device);
		lent = device->progress.owner == SNT__OWNER_RETURNED;
		snt__udp_unlock(device);
	}
	return lent;
}

static bool is_watched(struct snt__udp_device *device)
{
	bool watched;

	snt__udp_lock(device);
	watched = device->progress.owner == SNT__OWNER_WATCHER;
	snt__udp_unlock(device);
	return watched;
}

/* Once the program may sleep elsewhere its loop watches, until it is closed. */
static void loops_watch(void **state)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts), .devices = 1 };
	struct snt__udp_device *device;
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	device = open_context(&ctx);
	assert_success(snt_loop_create(ctx, NULL, &loop));
	cq_opts.loop = loop;
	assert_success(snt_qp_create_with_cq(ctx, &cq_opts, &qp_opts, &cq, &qp));
	assert_true(snt_loop_fd(loop) >= 0);
	assert_false(is_watched(device));
	for (unsigned i = 0; i < 50 && !is_watched(device); i++)
		assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_true(is_watched(device));
	assert_int_equal(snt_loop_poll(loop, 0), 0);
	assert_false(is_watched(device));
	assert_int_equal(snt_loop_arm(loop), 0);
	assert_true(is_watched(device));
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_loop_destroy(loop));
	assert_false(is_watched(device));
	assert_success(snt_ctx_destroy(ctx));
}

/* Not if the program does not sleep at all, nor if it may sleep elsewhere. */
static void loops_borrow(void **state)
{
	struct snt__udp_device *device;
	struct snt_loop *loop;
	struct snt_ctx *ctx;

	(void)state;
	device = open_context(&ctx);
	assert_success(snt_loop_create(ctx, NULL, &loop));
	assert_false(borrows(loop, device, 0));
	assert_true(borrows(loop, device, 1000000));
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	snt__udp_lock(device);
	device->progress.owner = SNT__OWNER_THREAD;
	snt__udp_unlock(device);
	assert_false(borrows(loop, device, 1000000));
	assert_success(snt_loop_destroy(loop));
	assert_success(snt_ctx_destroy(ctx));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleeper_moves_packets),
		cmocka_unit_test(sleeper_is_quicker_than_the_thread),
		cmocka_unit_test(sleeper_is_held_up),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(sleeper_does_not_come_back),
		cmocka_unit_test(program_that_held_up_a_peer_may_not_borrow),
		cmocka_unit_test(program_that_was_away_may_borrow),
		cmocka_unit_test(peers_of_a_program_that_computes_are_served),
		cmocka_unit_test(link_comes_up_while_a_thread_sleeps_on_the_socket),
		cmocka_unit_test(sleeper_waits_for_an_event),
		cmocka_unit_test(timers_run_while_a_thread_sleeps_on_the_socket),
		cmocka_unit_test(sleeper_is_intruded),
		cmocka_unit_test(thread_is_intruded),
		cmocka_unit_test(sleeper_holds_messages),
		cmocka_unit_test(thread_knows_which_threads_sleep),
		cmocka_unit_test(nothing_is_kept_for_ever),
		cmocka_unit_test(loops_borrow),
		cmocka_unit_test(loops_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
