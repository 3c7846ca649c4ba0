/* SPDX-License-Identifier: MIT */
/* The driver between a device and its socket: what is on the wire, and what if the
 * kernel does not do as it is asked. */
#include "lib/udp_side.h"

#include <fcntl.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev/soft/qp.h"
#include "lib/patience.h"
#include "lib/udp_faults.h"

#define ALL (SIDE_BYTES / 2)

static int set_up(void **state)
{
	(void)state;
	sides_leave_failed();
	faults_set((struct faults){ 0 });
	side_timeout = SIDE_PATIENT;
	return 0;
}

/*
 * On the wire
 */

/* A socket in place of a device, with the same port. */
static int listen_at(unsigned number)
{
	struct snt__udp_address address = side_address(number);
	struct timeval patience = { .tv_sec = 60 };
	union snt__udp_sockaddr local;
	socklen_t size = snt__udp_sockaddr(address.gid, 0, SNT__WIRE_PORT, &local);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(bind(fd, &local.any, size), 0);
	return fd;
}

static void check_identifications(struct side *side, int fd, bool gso)
{
	struct snt__udp_address peer = side_address(2);
	struct snt__icrc_flow flow;
	uint8_t bytes[8192];

	snt__icrc_flow_init(&flow, side->device->address.gid, peer.gid, SNT__WIRE_PORT,
			    SNT__WIRE_PORT);
	/* FIRST and a MIDDLE, which is shorter; MIDDLEs of one size and a LAST. */
	for (unsigned i = 0; i < 10; i++) {
		struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };
		ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

		assert_true(got > 0);
		if (gso)
			ipv4.identification = i < 2 ? i : i - 2;
		assert_int_equal(snt__icrc_check(&flow, ipv4, bytes, got), 0);
	}
}

/* What is sealed is what the kernel sends: 0, and k in segment k. */
static void identifications(void **state)
{
	struct snt__udp_opts opts = { 0 };
	struct side side, peer;
	int fd;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		opts.no_gso = i;
		side_open(&side, 1, &opts);
		peer = side;
		peer.device = calloc(1, sizeof(*peer.device));
		peer.device->address = side_address(2);
		side_connect(&side, &peer, IBV_MTU_4096);
		fd = listen_at(2);
		side_post(&side, &peer, IBV_WR_RDMA_WRITE, 9 * 4096 + 100);
		check_identifications(&side, fd, !opts.no_gso);
		close(fd);
		free(peer.device);
		side_close(&side);
	}
}

/* A device's thread counts as well, so its lock is needed. */
static struct snt__udp_receive_stats got_by(const struct side *side)
{
	struct snt__udp_receive_stats stats;

	snt__udp_lock(side->device);
	stats = side->device->receiver.stats;
	snt__udp_unlock(side->device);
	return stats;
}

static void offloads_are_used(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	side_check(&side[0], &side[1], ALL);
	side_check(&side[0], &side[1], ALL);
	assert_true(side_sent(&side[0]).packets > 5 * side_sent(&side[0]).messages);
	assert_true(got_by(&side[1]).packets > 5 * got_by(&side[1]).messages);
	assert_int_equal(got_by(&side[1]).damaged, 0);
	sides_close(side);
}

/* This peer never answers, and a probe would count as a message. */
static void hold_probes(struct side *side)
{
	snt__udp_lock(side->device);
	snt__soft_qp(side->qp)->requester.trip.wait = patience_ns(60);
	snt__udp_unlock(side->device);
}

/* To one that says nothing, until the window is full: the first packet is longer than
 * others, so that one more can follow it; then 15 at a time, however many are taken
 * from the device at once. */
static void messages_are_full(void **state)
{
	/* By default it depends on how large a buffer the host grants. */
	struct snt__udp_opts opts = { .config.request_window = 512 << 10 };
	struct side side, peer;
	int fd;

	(void)state;
	side_open(&side, 1, &opts);
	peer = side;
	peer.device = calloc(1, sizeof(*peer.device));
	peer.device->address = side_address(2);
	side_connect(&side, &peer, IBV_MTU_4096);
	hold_probes(&side);
	fd = listen_at(2);
	side_post(&side, &peer, IBV_WR_RDMA_WRITE, SIDE_BYTES);
	while (side_sent(&side).packets < 2 + 8 * 15)
		sched_yield();
	assert_int_equal(side_sent(&side).messages, 1 + 8);
	close(fd);
	free(peer.device);
	side_close(&side);
}

/* What speaks at QP 1: so many messages, two at a time to each of two places. */
#define MADS 200
static unsigned mads_sent;

static bool next_mad(void *arg, struct snt__soft_path *path_out,
		     uint8_t mad_out[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	struct snt__udp_device *device = arg;
	struct snt__udp_address to = side_address(2 + mads_sent / 2 % 2);

	(void)now;
	if (mads_sent == MADS)
		return false;
	*path_out = (struct snt__soft_path){ .hop_limit = 64 };
	memcpy(path_out->source, device->address.gid, 16);
	memcpy(path_out->target, to.gid, 16);
	memset(mad_out, 0, SNT__SOFT_MAD_SIZE);
	memcpy(mad_out, &mads_sent, sizeof(mads_sent));
	mads_sent++;
	return true;
}

/* The device's thread may look while the lock is open. */
static uint64_t no_deadline(void *arg)
{
	(void)arg;
	return SNT__SOFT_NEVER;
}

static void no_timer(void *arg, uint64_t now)
{
	(void)arg;
	(void)now;
}

static const struct snt__soft_agent speaker = { .output = next_mad,
						.deadline = no_deadline,
						.timer = no_timer };

/* Counts those that have come. */
static void take_mads(int fd, unsigned seen[MADS])
{
	uint8_t bytes[512];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
		unsigned number;

		memcpy(&number, bytes + 20, sizeof(number));
		assert_true(number < MADS);
		seen[number]++;
	}
}

/* What is kept for the next batch is what it was when that one is made. */
static void each_message_once(void **state)
{
	unsigned seen[MADS] = { 0 };
	int fd[2] = { listen_at(2), listen_at(3) };
	struct side side;

	(void)state;
	side_open(&side, 1, NULL);
	mads_sent = 0;
	snt__udp_lock(side.device);
	snt__soft_device_set_agent(side.device->core, &speaker, side.device);
	snt__udp_send(&side.device->sender, side.device->core, snt__udp_now());
	snt__soft_device_set_agent(side.device->core, NULL, NULL);
	snt__udp_unlock(side.device);
	for (unsigned i = 0; i < 2; i++) {
		take_mads(fd[i], seen);
		close(fd[i]);
	}
	for (unsigned i = 0; i < MADS; i++)
		assert_int_equal(seen[i], 1);
	side_close(&side);
}

/*
 * A kernel that refuses
 */

static int refused_option;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	if (level == IPPROTO_UDP && name == refused_option) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return __real_setsockopt(fd, level, name, value, size);
}

static void kernel_without(void **state)
{
	static const int options[] = { UDP_SEGMENT, UDP_GRO };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		struct side side[2];

		refused_option = options[i];
		sides_open(side, NULL);
		refused_option = 0;
		assert_int_equal(side[0].device->socket.gso, i != 0);
		assert_int_equal(side[0].device->socket.gro, i != 1);
		side_check(&side[0], &side[1], ALL);
		side_post(&side[0], &side[1], IBV_WR_RDMA_READ, ALL);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
		assert_int_equal(got_by(&side[1]).damaged, 0);
		sides_close(side);
	}
}

/* The kernel can, the interface cannot: found out by the first send. */
static void interface_without(void **state)
{
	static const int errors[] = { EIO, EINVAL, EMSGSIZE };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		struct side side[2];

		sides_open(side, NULL);
		faults_set((struct faults){ .segments_error = errors[i] });
		side_check(&side[0], &side[1], ALL);
		assert_int_equal(side_stats(&side[0]).resent, 0);
		assert_int_equal(side_sent(&side[0]).failed, 0);
		snt__udp_lock(side[0].device);
		assert_false(side[0].device->socket.gso);
		snt__udp_unlock(side[0].device);
		faults_set((struct faults){ 0 });
		sides_close(side);
	}
}

/* No route, or a firewall: as if it were lost. */
static void unroutable_packets_count_as_lost(void **state)
{
	struct side side[2];

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, NULL);
	faults_set((struct faults){ .error = ENETUNREACH });
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 1000);
	assert_int_equal(side_wait(&side[0]), IBV_WC_RETRY_EXC_ERR);
	assert_true(side_sent(&side[0]).failed >= 8);
	faults_set((struct faults){ 0 });
	sides_close(side);
}

/* However small the buffers are, windows are smaller. */
static void tiny_buffers(void **state)
{
	struct snt__udp_opts opts = { .buffer_bytes = 32 << 10 };
	struct side side[2];

	(void)state;
	sides_open(side, &opts);
	assert_true(side[0].device->socket.receive_bytes < 128 << 10);
	for (unsigned i = 0; i < 4; i++) {
		side_check(&side[0], &side[1], ALL);
		side_post(&side[0], &side[1], IBV_WR_RDMA_READ, ALL);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	assert_int_equal(side_stats(&side[1]).out_of_order, 0);
	sides_close(side);
}

static unsigned receive_buffer(int fd)
{
	socklen_t size = sizeof(int);
	int bytes = 0;

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
	return bytes;
}

/* A device that may take more than others takes it, and sends no more for that. */
static void privileged_buffers(void **state)
{
	const int bytes = 64 << 20; /* nobody's limit */
	struct snt__udp_opts opts = { .buffer_bytes = bytes };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct side side;
	bool may;

	(void)state;
	may = !setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)),
			 0);
	side_open(&side, 1, &opts);
	assert_int_equal(side.device->socket.receive_bytes, receive_buffer(fd));
	assert_int_equal(receive_buffer(side.device->socket.fd),
			 may ? 4 * (unsigned)bytes : receive_buffer(fd));
	side_close(&side);
	close(fd);
}

static void bad_network(void **state)
{
	struct side side[2];
	struct faults seen;

	(void)state;
	side_timeout = SIDE_LOSSY;
	sides_open(side, NULL);
	faults_set((struct faults){ .seed = 1, .lost = 20, .doubled = 20, .late = 20 });
	for (unsigned i = 0; i < 10; i++)
		side_check(&side[0], &side[1], ALL);
	seen = faults_get();
	assert_true(seen.lost_count && seen.doubled_count && seen.late_count);
	faults_set((struct faults){ 0 });
	sides_close(side);
}

/* A thread that comes late finds an answer and a timer that has run out. The answer
 * counts. */
static void late_but_answered(void **state)
{
	struct pollfd answer = { .events = POLLIN };
	struct side side[2];
	const struct snt__soft_stats *stats;
	uint64_t deadline, before;

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, NULL);
	side_check(&side[0], &side[1], 1000);
	answer.fd = side[0].device->socket.fd;
	snt__udp_lock(side[1].device);
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 1000);
	snt__udp_lock(side[0].device);
	deadline = snt__soft_deadline(side[0].device->core);
	assert_true(deadline != SNT__SOFT_NEVER);
	/* On a busy machine time may have run out before it was stopped. */
	stats = snt__soft_device_stats(side[0].device->core);
	before = stats->timeouts + stats->probes;
	snt__udp_unlock(side[1].device);
	assert_int_equal(poll(&answer, 1, 30000), 1);
	while (snt__udp_now() <= deadline)
		sched_yield();
	snt__udp_unlock(side[0].device);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(side_stats(&side[0]).timeouts + side_stats(&side[0]).probes,
			 before);
	sides_close(side);
}

/*
 * Memory that changes while it is sent
 */

struct restless {
	uint64_t *word;
	bool over;
};

/* A race by nature, whose result does not matter, so it is nothing to warn of. */
__attribute__((no_sanitize("thread"))) static void *change(void *arg)
{
	struct restless *restless = arg;

	while (!__atomic_load_n(&restless->over, __ATOMIC_RELAXED))
		for (unsigned i = 0; i < 64; i++)
			__atomic_fetch_add(&restless->word[i], 1, __ATOMIC_RELAXED);
	return NULL;
}

static void restless_memory(void **state)
{
	struct restless restless = { 0 };
	struct side side[2];
	pthread_t thread;

	(void)state;
	sides_open(side, NULL);
	restless.word = (void *)side[1].bytes;
	assert_int_equal(pthread_create(&thread, NULL, change, &restless), 0);
	for (unsigned i = 0; i < 200; i++) {
		side_post(&side[0], &side[1], IBV_WR_RDMA_READ, 4096);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	__atomic_store_n(&restless.over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_int_equal(got_by(&side[0]).damaged, 0);
	sides_close(side);
}

/*
 * Threads, forks, idleness
 */

/* After the last word has been spoken. */
static void idle_costs_nothing(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	side_check(&side[0], &side[1], ALL);
	sides_idle();
	sides_close(side);
}

/* Of the device that is watched: when it first looked at its socket. */
static struct {
	_Atomic(struct snt__udp_device *) device;
	uint64_t looked_at;
} watched;

int __real_snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);
int __wrap_snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);

/* The device notes the time afterwards. */
int __wrap_snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	struct snt__udp_device *device = watched.device;

	if (device && fd == device->socket.fd) {
		snt__udp_lock(device);
		if (!watched.looked_at)
			watched.looked_at = device->socket_at;
		snt__udp_unlock(device);
	}
	return __real_snt__udp_recvmmsg(fd, headers, count, flags);
}

/* Time as the thread has it that has been waiting for the lock until now. */
static uint64_t time_of_thread(struct side *side, uint64_t *now_out)
{
	uint64_t looked_at;

	snt__udp_lock(side->device);
	eventfd_write(side->device->wake_fd, 1);
	while (!atomic_load(&side->device->gate.waiters))
		sched_yield();
	*now_out = snt__udp_now();
	side->device->socket_at = 0;
	watched.device = side->device;
	watched.looked_at = 0;
	snt__udp_unlock(side->device);
	do {
		snt__udp_lock(side->device);
		looked_at = watched.looked_at;
		if (!looked_at)
			looked_at = side->device->socket_at;
		snt__udp_unlock(side->device);
	} while (!looked_at);
	return looked_at;
}

/* What it does then happens after what others did meanwhile. */
static void time_does_not_go_back(void **state)
{
	struct side side;

	(void)state;
	side_open(&side, 1, NULL);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t now, looked_at = time_of_thread(&side, &now);

		assert_true(looked_at >= now);
	}
	snt__udp_lock(side.device);
	watched.device = NULL;
	snt__udp_unlock(side.device);
	side_close(&side);
}

/*
 * A busy poller has the socket to itself
 */

/* Something has to come, so that the thread wakes up and sees the poller. */
static void poll_until_thread_naps(struct side *side, struct side *peer)
{
	uint64_t end = snt__udp_now() + patience_ns(30);
	struct ibv_wc wc;

	for (unsigned i = 0; !side_naps(side); i++) {
		assert_true(snt__udp_now() < end);
		if (i % 1000 == 0) {
			side_post(peer, side, IBV_WR_RDMA_WRITE, 100);
			assert_int_equal(side_wait(peer), IBV_WC_SUCCESS);
		}
		for (unsigned k = 0; k < 100; k++)
			assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 0);
	}
}

/* The poller takes a request and goes away with the answer: the thread finds out. */
static void poller_leaves_without_a_word(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_wc wc;
		uint64_t before;

		poll_until_thread_naps(&side[1], &side[0]);
		before = side_stats(&side[1]).packets_in;
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		while (side_stats(&side[1]).packets_in == before)
			ibv_poll_cq(side[1].cq, 1, &wc);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* A program that wants an event instead of polling gets it at once, not after a nap. */
static void poller_goes_to_sleep(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 50; i++) {
		poll_until_thread_naps(&side[0], &side[1]);
		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_int_equal(side_wait_event(&side[0]), IBV_WC_SUCCESS);
		assert_false(side_naps(&side[0]));
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static void answer(struct side side[2])
{
	side_post(&side[1], &side[0], IBV_WR_RDMA_WRITE, 100);
}

static void end_answers(struct side side[2], unsigned count)
{
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	while (count--)
		assert_int_equal(side_wait(&side[1]), IBV_WC_SUCCESS);
}

/* A busy poller posts an answer: it does not wait for the acknowledgment, which
 * goes out with the next poll. */
static void answers_do_not_wait(void **state)
{
	struct snt__udp_send_stats begin;
	struct side side[2];
	struct ibv_wc wc;

	(void)state;
	sides_open(side, NULL);
	side_put_to_sleep(&side[1]);
	side_take_request(side);
	begin = side_sent(&side[1]);
	snt__udp_lock(side[0].device);
	answer(side);
	assert_int_equal(side_sent(&side[1]).packets, begin.packets + 1);
	ibv_poll_cq(side[1].cq, 0, &wc);
	assert_int_equal(side_sent(&side[1]).packets, begin.packets + 2);
	snt__udp_unlock(side[0].device);
	end_answers(side, 1);
	side_wake_up(&side[1]);
	sides_close(side);
}

/* The poller answers and goes away with the acknowledgment: the thread finds out. */
static void poller_answers_and_leaves(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 10; i++) {
		poll_until_thread_naps(&side[1], &side[0]);
		side_take_request(side);
		answer(side);
		end_answers(side, 1);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static bool counts_as_poller(struct side *side)
{
	bool polled;

	snt__udp_lock(side->device);
	polled = snt__progress_is_away(&side->device->progress);
	snt__udp_unlock(side->device);
	return polled;
}

#define LONG_POSTS 40

/* Returns whether a thread that only posts was taken for a poller. */
static bool posts_for_long(struct side side[2])
{
	bool polled;

	for (unsigned i = 0; i < LONG_POSTS; i++)
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, ALL / 4);
	polled = counts_as_poller(&side[0]);
	for (unsigned i = 0; i < LONG_POSTS; i++)
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	return polled;
}

/* It is a poller all but in name, unless it wants to be woken. */
static void poster_takes_what_comes(void **state)
{
	uint64_t end = snt__udp_now() + patience_ns(30);
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	/* With the buffers of an ordinary user no send is long, since little is sent at
	 * once. */
	if (!side[0].device->socket.spare_bytes)
		side[0].device->send_long = 0;
	do {
		assert_true(snt__udp_now() < end);
		snt__udp_lock(side[0].device);
		snt__progress_arm(&side[0].device->progress);
		snt__udp_thread_wake(side[0].device, SNT__WAKE_ARMED, 0);
		snt__udp_unlock(side[0].device);
	} while (!posts_for_long(side));
	/* Completions are not solicited, so that it stays armed. */
	assert_int_equal(ibv_req_notify_cq(side[0].cq, 1), 0);
	assert_false(posts_for_long(side));
	sides_close(side);
}

static int use_in_child(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->bytes, 8, side->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad_recv, recv = { 0 };
	struct ibv_pd *pd;
	struct ibv_wc wc;

	if (ibv_post_send(side->qp, &wr, &bad) != EIO || bad != &wr)
		return 1;
	if (ibv_post_recv(side->qp, &recv, &bad_recv) != EIO)
		return 2;
	if (ibv_poll_cq(side->cq, 1, &wc) != -EIO)
		return 3;
	if (ibv_req_notify_cq(side->cq, 0) != EIO)
		return 4;
	if (side->control->alloc_pd(side->context, &pd) != -EIO)
		return 5;
	if (fcntl(side->device->socket.fd, F_GETFD) >= 0 ||
	    fcntl(side->device->receiver.rx_hold.epoll_fd, F_GETFD) >= 0)
		return 6;
	side_close(side);
	return 0;
}

static void child_keeps_its_hands_off(void **state)
{
	struct side side[2];
	int status;
	pid_t child;

	(void)state;
	sides_open(side, NULL);
	side_check(&side[0], &side[1], 1000);
	child = fork();
	if (!child)
		_exit(use_in_child(&side[0]));
	side_check(&side[0], &side[1], ALL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	side_check(&side[0], &side[1], ALL);
	sides_close(side);
}

static void churn(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		struct side side[2];

		sides_open(side, NULL);
		side_check(&side[0], &side[1], 10000);
		sides_close(side);
	}
}

/* What verbs made is left: the device ends, and verbs on it fail rather than crash. */
static void left_over(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	assert_int_equal(snt__udp_device_destroy(side[0].device), -EBUSY);
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	side[0].device->users = 1;
	assert_success(side[0].control->destroy_qp(side[0].qp));
	assert_success(side[0].control->destroy_cq(side[0].cq));
	assert_success(side[0].control->destroy_channel(side[0].channel));
	assert_success(side[0].control->dereg_mr(side[0].mr));
	assert_success(side[0].control->dealloc_pd(side[0].pd));
	assert_success(snt__udp_device_destroy(side[0].device));
	free(side[0].bytes);
	side_close(&side[1]);
}

/* Several threads, each with a QP and a CQ of its own on one device. */
struct worker {
	struct side one, other;
	pthread_t thread;
	unsigned number;
	unsigned failed;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct side *side = &worker->one;
	uint32_t length = 30000, at = worker->number * length;
	struct ibv_sge sge = { (uintptr_t)side->bytes + at, length, side->mr->lkey };
	struct ibv_wc wc;

	for (unsigned i = 0; i < 200; i++) {
		struct ibv_send_wr *bad, wr = { .sg_list = &sge,
						.num_sge = 1,
						.opcode = IBV_WR_RDMA_WRITE };

		wr.wr.rdma.remote_addr = (uintptr_t)worker->other.bytes + at;
		wr.wr.rdma.rkey = worker->other.mr->rkey;
		worker->failed += !!ibv_post_send(side->qp, &wr, &bad);
		while (!ibv_poll_cq(side->cq, 1, &wc))
			;
		worker->failed += wc.status != IBV_WC_SUCCESS;
	}
	return NULL;
}

static void many_threads(void **state)
{
	struct worker workers[4];
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(workers); i++) {
		struct worker *worker = &workers[i];

		*worker = (struct worker){ .one = side[0],
					   .other = side[1],
					   .number = i };
		assert_success(side->control->create_cq(side->context, 256, NULL, NULL,
							0, &worker->one.cq));
		side_make_qp(&worker->one);
		side_make_qp(&worker->other);
		side_connect(&worker->one, &worker->other, IBV_MTU_4096);
		side_connect(&worker->other, &worker->one, IBV_MTU_4096);
		pthread_create(&worker->thread, NULL, work, worker);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failed, 0);
		assert_success(side->control->destroy_qp(workers[i].one.qp));
		assert_success(side->control->destroy_qp(workers[i].other.qp));
		assert_success(side->control->destroy_cq(workers[i].one.cq));
	}
	sides_close(side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(identifications, set_up),
		cmocka_unit_test_setup(offloads_are_used, set_up),
		cmocka_unit_test_setup(each_message_once, set_up),
		cmocka_unit_test_setup(messages_are_full, set_up),
		cmocka_unit_test_setup(kernel_without, set_up),
		cmocka_unit_test_setup(interface_without, set_up),
		cmocka_unit_test_setup(unroutable_packets_count_as_lost, set_up),
		cmocka_unit_test_setup(tiny_buffers, set_up),
		cmocka_unit_test_setup(privileged_buffers, set_up),
		cmocka_unit_test_setup(bad_network, set_up),
		cmocka_unit_test_setup(late_but_answered, set_up),
		cmocka_unit_test_setup(restless_memory, set_up),
		cmocka_unit_test_setup(idle_costs_nothing, set_up),
		cmocka_unit_test_setup(time_does_not_go_back, set_up),
		cmocka_unit_test_setup(poller_leaves_without_a_word, set_up),
		cmocka_unit_test_setup(poller_goes_to_sleep, set_up),
		cmocka_unit_test_setup(answers_do_not_wait, set_up),
		cmocka_unit_test_setup(poller_answers_and_leaves, set_up),
		cmocka_unit_test_setup(poster_takes_what_comes, set_up),
		cmocka_unit_test_setup(child_keeps_its_hands_off, set_up),
		cmocka_unit_test_setup(churn, set_up),
		cmocka_unit_test_setup(left_over, set_up),
		cmocka_unit_test_setup(many_threads, set_up),
	};

	return cmocka_run_group_tests_name("udp_driver", tests, NULL, NULL);
}
