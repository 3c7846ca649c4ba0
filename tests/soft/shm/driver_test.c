/* SPDX-License-Identifier: MIT */
/* Devices that meet in shared memory, and those that do not: which peers are reached
 * which way. */
#include "lib/fds.h"
#include "lib/test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/soft/core.h"
#include "lib/shm_kit.h"

static const struct snt__udp_opts by_memory = { .shm = true };
static const struct snt__udp_opts by_pulling = { .shm = true, .shm_pull = true };
static const struct snt__udp_opts by_socket = { .shm = false };

/* A quarter of a second: soon enough where packets are lost on purpose, and late enough
 * for a thread that waits for a processor. */
#define LOSSY_AND_BUSY 16

/* How many packets went out through memory, and through the socket. */
struct ways {
	uint64_t memory, socket;
};

static struct ways ways_of(struct side *side)
{
	struct ways ways;

	snt__udp_lock(side->device);
	ways.memory = side->device->shm.stats.packets_out;
	ways.socket = side->device->sender.stats.packets;
	snt__udp_unlock(side->device);
	return ways;
}

/* There and back, by WRITE, READ and SEND, around the sizes of packets and bursts. */
static void exchange(struct side *one, struct side *other)
{
	static const uint32_t lengths[] = { 0,	   1,	   64,	   255,
					    4096,  4097,   65535,  65536,
					    65537, 131072, 200000, SIDE_BYTES / 2 };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint32_t length = lengths[i];
		struct ibv_sge sge = { (uintptr_t)other->bytes + SIDE_BYTES / 2,
				       SIDE_BYTES / 2, other->mr->lkey };
		struct ibv_recv_wr *bad, recv = { .sg_list = &sge, .num_sge = 1 };

		side_check(one, other, length);
		side_check(other, one, length);
		memset(one->bytes + SIDE_BYTES / 2, 0xee, SIDE_BYTES / 2);
		side_post(one, other, IBV_WR_RDMA_READ, length);
		assert_int_equal(side_wait(one), IBV_WC_SUCCESS);
		assert_memory_equal(one->bytes + SIDE_BYTES / 2, other->bytes, length);
		assert_int_equal(ibv_post_recv(other->qp, &recv, &bad), 0);
		one->bytes[0]++;
		side_post(one, other, IBV_WR_SEND, length);
		assert_int_equal(side_wait(one), IBV_WC_SUCCESS);
		assert_int_equal(side_wait(other), IBV_WC_SUCCESS);
		assert_memory_equal(other->bytes + SIDE_BYTES / 2, one->bytes, length);
	}
}

static void goes_through_memory(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, &by_memory);
	exchange(&side[0], &side[1]);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_not_equal(ways_of(&side[i]).memory, 0);
		assert_int_equal(ways_of(&side[i]).socket, 0);
		assert_int_equal(shm_stats(&side[i]).pulled, 0);
	}
	sides_close(side);
}

/* As after ulimit -f: there is no ring, so that packets go through the socket. */
static void a_file_size_limit_leaves_the_socket(void **state)
{
	struct side side[2];

	(void)state;
	file_size_limit();
	sides_open(side, &by_memory);
	exchange(&side[0], &side[1]);
	file_size_restore();
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ways_of(&side[i]).memory, 0);
		assert_int_not_equal(ways_of(&side[i]).socket, 0);
	}
	sides_close(side);
}

static void goes_by_reference(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, &by_pulling);
	exchange(&side[0], &side[1]);
	/* The first may have been sent before it was known to be allowed. */
	exchange(&side[0], &side[1]);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ways_of(&side[i]).socket, 0);
		assert_int_not_equal(shm_stats(&side[i]).pulled, 0);
	}
	sides_close(side);
}

/* A message of 2 KiB is a burst of eight packets, whose numbers are counted as such. */
static void counts_packets_of_any_mtu(void **state)
{
	struct side side[2];

	(void)state;
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_2048; mtu++) {
		side_open(&side[0], 1, &by_memory);
		side_open(&side[1], 2, &by_memory);
		side_connect(&side[0], &side[1], mtu);
		side_connect(&side[1], &side[0], mtu);
		exchange(&side[0], &side[1]);
		sides_close(side);
	}
}

/* With itself, as programs do that try something out. */
static void reaches_itself(void **state)
{
	struct side side;

	(void)state;
	side_open(&side, 1, &by_memory);
	side_connect(&side, &side, IBV_MTU_4096);
	side_check(&side, &side, 100000);
	assert_int_not_equal(ways_of(&side).memory, 0);
	assert_int_equal(ways_of(&side).socket, 0);
	side_close(&side);
}

static void falls_back_if_one_does_not_want(void **state)
{
	struct side side[2];

	(void)state;
	for (unsigned wants = 0; wants < 2; wants++) {
		side_open(&side[wants], 1 + wants, &by_memory);
		side_open(&side[!wants], 1 + !wants, &by_socket);
		side_connect(&side[0], &side[1], IBV_MTU_4096);
		side_connect(&side[1], &side[0], IBV_MTU_4096);
		exchange(&side[0], &side[1]);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(ways_of(&side[i]).memory, 0);
			assert_int_not_equal(ways_of(&side[i]).socket, 0);
		}
		sides_close(side);
	}
}

/* Another process has the name that the other device would have, and listens. */
static pid_t squat(const uint8_t gid[16], unsigned seat, uid_t name_of, uid_t user)
{
	struct sockaddr_un name;
	socklen_t size;
	int ready[2];
	char byte;
	pid_t child;

	assert_int_equal(seteuid(name_of), 0);
	size = snt__shm_name(gid, seat, &name);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresuid(user, user, user) ||
		    bind(fd, (struct sockaddr *)&name, size) || listen(fd, 4) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

#define NOBODY 65534u

/* Root can, unless it is the only user of a container. */
static bool can_become(uid_t user)
{
	pid_t child = geteuid() ? -1 : fork();
	int status;

	if (child < 0)
		return false;
	if (!child)
		_exit(setresuid(user, user, user) ? 1 : 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status == 0;
}

static void other_users_are_refused(void **state)
{
	struct side side[2];
	pid_t squatter;

	(void)state;
	if (!can_become(NOBODY))
		skip_because("this user cannot become another user");
	side_open(&side[0], 1, &by_memory);
	side_open(&side[1], 2, &by_socket);
	squatter = squat(side[1].device->address.gid, side[1].device->share.seat.number,
			 0, NOBODY);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
	assert_int_equal(shm_stats(&side[0]).links_out, 0);
	exchange(&side[0], &side[1]);
	assert_int_equal(ways_of(&side[0]).memory, 0);
	kill(squatter, SIGKILL);
	assert_int_equal(waitpid(squatter, NULL, 0), squatter);
	sides_close(side);
}

/* In a process of the user nobody, in a namespace that knows no other user. Not by
 * unshare(2), for which there must not be any thread, not even a sanitizer's. */
static pid_t connect_as_nobody(const uint8_t ours[16], const uint8_t theirs[16])
{
	static const char map[] = "65534 1001 1";
	int go[2], fd;
	char path[64], byte;
	pid_t child;

	assert_success(pipe(go));
	child = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWUSER, NULL, NULL, NULL, 0);
	if (!child) {
		if (read(go[0], &byte, 1) != 1 || setresuid(NOBODY, NOBODY, NOBODY))
			_exit(2);
		_exit(snt__shm_connect(ours, theirs, 0) != NULL);
	}
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	fd = child > 0 ? open(path, O_WRONLY) : -1;
	if (fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map)) {
		assert_int_equal(write(go[1], "", 1), 1);
	} else if (child > 0) {
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
		child = -1;
	}
	if (fd >= 0)
		close(fd);
	close(go[0]);
	close(go[1]);
	return child;
}

/* There, an unknown user is mapped to the same number, too. */
static void unknown_users_are_refused(void **state)
{
	struct snt__udp_address ours = side_address(1), theirs = side_address(2);
	pid_t squatter, child;
	int status = 0;

	(void)state;
	if (!can_become(NOBODY) || !can_become(1002))
		skip_because("this user cannot become another user");
	squatter = squat(theirs.gid, 0, NOBODY, 1002);
	child = connect_as_nobody(ours.gid, theirs.gid);
	if (child > 0)
		assert_int_equal(waitpid(child, &status, 0), child);
	kill(squatter, SIGKILL);
	assert_int_equal(waitpid(squatter, NULL, 0), squatter);
	if (child < 0)
		skip_because("no user namespace can be made, so no user is unknown");
	assert_int_equal(status, 0);
}

static void cut(struct side *side, const struct side *to)
{
	struct snt__shm_link *link;

	snt__udp_lock(side->device);
	link = snt__shm_find(&side->device->shm, to->device->address.gid,
			     to->device->share.seat.number);
	assert_non_null(link);
	snt__shm_break(&side->device->shm, link);
	snt__udp_unlock(side->device);
}

/* What was on its way through memory is sent again by the socket. */
static void falls_back_in_the_middle(void **state)
{
	struct side side[2];

	(void)state;
	side_timeout = LOSSY_AND_BUSY;
	for (unsigned round = 0; round < 4; round++) {
		sides_open(side, &by_memory);
		for (unsigned i = 0; i < 16; i++)
			side_post(&side[0], &side[1],
				  i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  SIDE_BYTES / 2 - i);
		cut(&side[round % 2], &side[!(round % 2)]);
		for (unsigned i = 0; i < 16; i++)
			assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
		exchange(&side[0], &side[1]);
		assert_int_not_equal(ways_of(&side[round % 2]).socket, 0);
		sides_close(side);
	}
	side_timeout = SIDE_PATIENT;
}

static void meets_again(void **state)
{
	struct side side[2];
	struct ibv_qp *old;
	struct ways before;

	(void)state;
	sides_open(side, &by_memory);
	cut(&side[0], &side[1]);
	side_check(&side[0], &side[1], 1000);
	assert_int_not_equal(ways_of(&side[0]).socket, 0);
	old = side[0].qp;
	side_make_qp(&side[0]);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	assert_success(side[0].control->destroy_qp(side[0].qp));
	/* All QPs to one peer share the path. */
	side[0].qp = old;
	before = ways_of(&side[0]);
	exchange(&side[0], &side[1]);
	assert_int_equal(ways_of(&side[0]).socket, before.socket);
	assert_int_equal(shm_stats(&side[0]).links_out, 2);
	sides_close(side);
}

/* A peer has left and come back, unnoticed so far. */
static void restarted_peer_is_linked_again(void **state)
{
	struct side side[2];
	uint8_t gid[16];
	unsigned seat;
	int listener;

	(void)state;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 1000);
	memcpy(gid, side[1].device->address.gid, sizeof(gid));
	seat = side[1].device->share.seat.number;
	snt__udp_lock(side[0].device);
	side_close(&side[1]);
	listener = snt__shm_listen(gid, seat);
	assert_true(listener >= 0);
	assert_int_equal(snt__shm_reach(&side[0].device->shm, gid, seat),
			 SNT__SHM_PAYLOAD_MAX);
	assert_true(snt__shm_lives(snt__shm_find(&side[0].device->shm, gid, seat)));
	snt__udp_unlock(side[0].device);
	close(listener);
	side_open(&side[1], 2, &by_memory);
	sides_close(side);
}

/* A peer that has got everything says so and leaves: what it said counts. */
static void last_message_of_a_leaving_peer_counts(void **state)
{
	struct side side[2];
	uint64_t before;

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 1);
	before = ways_of(&side[1]).memory;
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	snt__udp_lock(side[0].device);
	while (ways_of(&side[1]).memory == before)
		;
	side_close(&side[1]);
	snt__udp_unlock(side[0].device);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	side_close(&side[0]);
	side_timeout = SIDE_PATIENT;
}

static struct snt__shm_consumer *only_consumer(struct side *side)
{
	struct snt__link *first = side->device->shm.ins.next;

	return &snt__container(first, struct snt__shm_link, list)->consumer;
}

/* A polling program may take the bell that was for the thread: the next one must be
 * rung, too. */
static void bell_is_heard_by_another(void **state)
{
	struct side side[2];
	bool rests;

	(void)state;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 1);
	do {
		snt__udp_lock(side[1].device);
		rests = snt__progress_rests(&side[1].device->progress);
		if (!rests)
			snt__udp_unlock(side[1].device);
	} while (!rests);
	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	while (atomic_load(&only_consumer(&side[1])->area->sleeps))
		;
	/* Nothing opens the lock meanwhile, which would let the thread look itself. */
	side[1].device->receiver.busy = true;
	snt__udp_move(side[1].device, snt__udp_now() + 1000 * 1000 * 1000);
	side[1].device->receiver.busy = false;
	assert_int_equal(atomic_load(&only_consumer(&side[1])->area->sleeps), 1);
	snt__udp_unlock(side[1].device);
	assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	sides_close(side);
}

/* One device, with one peer each way. */
static void mixes_both(void **state)
{
	struct side side[3], other;

	(void)state;
	side_open(&side[0], 1, &by_memory);
	side_open(&side[1], 2, &by_memory);
	side_open(&side[2], 3, &by_socket);
	other = side[0];
	side_make_qp(&other);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
	side_connect(&other, &side[2], IBV_MTU_1024);
	side_connect(&side[2], &other, IBV_MTU_1024);
	for (unsigned i = 0; i < 20; i++) {
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 200000);
		side_post(&other, &side[2], IBV_WR_RDMA_WRITE, 200000);
		side_post(&side[0], &side[1], IBV_WR_RDMA_READ, 1000 * i);
		side_post(&other, &side[2], IBV_WR_RDMA_READ, 1000 * i);
		for (unsigned done = 0; done < 4; done++)
			assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_not_equal(ways_of(&side[0]).memory, 0);
	assert_int_not_equal(ways_of(&side[0]).socket, 0);
	exchange(&side[0], &side[1]);
	exchange(&other, &side[2]);
	assert_int_equal(ways_of(&side[1]).socket, 0);
	assert_int_equal(ways_of(&side[2]).memory, 0);
	assert_success(other.control->destroy_qp(other.qp));
	side_close(&side[2]);
	sides_close(side);
}

#define QPS 12

/* More than the ring holds, to a peer that does not take it for a while; others are
 * served meanwhile, and in the end everything is. */
static void stopped_peer_holds_up_no_other(void **state)
{
	/* By default the window depends on how large a buffer the host grants a
	 * socket. */
	const struct snt__udp_opts wide = { .shm = true,
					    .config.request_window = 512 << 10 };
	struct side side[3], more[QPS], there[QPS], other;

	(void)state;
	side_timeout = LOSSY_AND_BUSY;
	side_open(&side[0], 1, &wide);
	side_open(&side[1], 2, &by_memory);
	side_open(&side[2], 3, &by_memory);
	for (unsigned i = 0; i < QPS; i++) {
		more[i] = side[0];
		there[i] = side[1];
		side_make_qp(&more[i]);
		side_make_qp(&there[i]);
		side_connect(&more[i], &there[i], IBV_MTU_4096);
		side_connect(&there[i], &more[i], IBV_MTU_4096);
	}
	other = side[0];
	assert_success(
		other.control->create_cq(other.context, 64, NULL, NULL, 0, &other.cq));
	side_make_qp(&other);
	side_connect(&other, &side[2], IBV_MTU_4096);
	side_connect(&side[2], &other, IBV_MTU_4096);

	snt__udp_lock(side[1].device);
	for (unsigned i = 0; i < QPS; i++)
		side_post(&more[i], &there[i], IBV_WR_RDMA_WRITE, SIDE_BYTES / 2);
	side_check(&other, &side[2], 300000);
	assert_int_not_equal(shm_stats(&side[0]).stalls, 0);
	snt__udp_unlock(side[1].device);
	for (unsigned i = 0; i < QPS; i++)
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);

	for (unsigned i = 0; i < QPS; i++) {
		assert_success(side->control->destroy_qp(more[i].qp));
		assert_success(side->control->destroy_qp(there[i].qp));
	}
	assert_success(side->control->destroy_qp(other.qp));
	assert_success(side->control->destroy_cq(other.cq));
	side_close(&side[2]);
	sides_close(side);
	side_timeout = SIDE_PATIENT;
}

#define PATIENCE UINT64_C(50000000)

/*
 * A ring is full, and the consumer makes room for nothing, a line now and then. That is
 * waited for, and then no longer. A thread that comes late to the lock has an older
 * time.
 */
static void waits_for_room_but_not_for_long(void **state)
{
	uint64_t now = UINT64_C(1000000000000);
	struct side side[2];
	struct snt__shm_producer before;
	struct snt__shm_link *link;
	struct snt__shm *shm;
	uint64_t head;

	(void)state;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 1000);
	snt__udp_lock(side[0].device);
	shm = &side[0].device->shm;
	link = snt__shm_find(shm, side[1].device->address.gid,
			     side[1].device->share.seat.number);
	before = link->producer;
	head = link->area->head;
	assert_int_equal(snt__shm_send_max(shm, 8, now), 8);
	link->producer.head = head;
	link->producer.tail = head + SNT__SHM_RING_SIZE;
	assert_int_equal(snt__shm_send_max(shm, 8, now), 0);
	assert_int_equal(snt__shm_send_max(shm, 8, now - 1), 0);
	for (unsigned i = 1; i < 10; i++) {
		link->area->head += SNT__SHM_LINE;
		assert_int_equal(snt__shm_send_max(shm, 8, now + i * PATIENCE / 10), 0);
	}
	assert_int_equal(snt__shm_deadline(shm), now + PATIENCE);
	assert_int_equal(snt__shm_send_max(shm, 8, now + PATIENCE), 8);
	assert_int_equal(snt__shm_send_max(shm, 8, now + 10 * PATIENCE), 8);
	assert_int_equal(snt__shm_deadline(shm), SNT__SOFT_NEVER);
	link->area->head = head;
	link->producer = before;
	assert_int_equal(snt__shm_send_max(shm, 8, now + 10 * PATIENCE), 8);
	snt__udp_unlock(side[0].device);
	side_check(&side[0], &side[1], 100000);
	sides_close(side);
}

#define PACKET_ROOM (SNT__SHM_PAYLOAD_MAX + 2 * SNT__SHM_LINE)

/* Room for a packet, now and then, is not enough to hold up all others. */
static void a_consumer_of_little_holds_up_no_others(void **state)
{
	uint64_t now = UINT64_C(1000000000000);
	struct side side[2];
	struct snt__shm_producer before;
	struct snt__shm_link *link;
	struct snt__shm *shm;
	uint64_t head;
	unsigned i;

	(void)state;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 1000);
	snt__udp_lock(side[0].device);
	shm = &side[0].device->shm;
	link = snt__shm_find(shm, side[1].device->address.gid,
			     side[1].device->share.seat.number);
	before = link->producer;
	head = link->area->head;
	link->producer.head = head;
	link->producer.tail = head + SNT__SHM_RING_SIZE;
	assert_int_equal(snt__shm_send_max(shm, 8, now), 0);
	for (i = 0; i < 100; i++) {
		unsigned fit;

		link->area->head += 2 * PACKET_ROOM;
		fit = snt__shm_send_max(shm, 8, now);
		if (fit == 8)
			break;
		assert_in_range(fit, 1, 2);
		link->producer.tail += fit * PACKET_ROOM;
		now += PATIENCE / 2;
	}
	assert_in_range(i, 1, 5);
	/* One that keeps up again is waited for again. */
	link->area->head += SNT__SHM_RING_SIZE / 2;
	assert_in_range(snt__shm_send_max(shm, 100, now), 1, 30);
	assert_false(link->blocked);
	/* As is one that is slower than we are, but goes on. */
	for (i = 0; i < 20; i++) {
		link->producer.tail = link->area->head + SNT__SHM_RING_SIZE;
		assert_int_equal(snt__shm_send_max(shm, 8, now), 0);
		now += PATIENCE / 2;
		link->area->head += SNT__SHM_RING_SIZE / 4;
		assert_in_range(snt__shm_send_max(shm, 100, now), 1, 10);
	}
	link->area->head = head;
	link->producer = before;
	snt__udp_unlock(side[0].device);
	side_check(&side[0], &side[1], 100000);
	sides_close(side);
}

/* A child has nothing of it, and takes nothing away by leaving. */
static void survives_forks(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, &by_memory);
	for (unsigned i = 0; i < 3; i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			char path[] = "/proc/self/maps", line[512];
			FILE *maps = fopen(path, "r");

			while (maps && fgets(line, sizeof(line), maps))
				if (strstr(line, "sennit-shm"))
					_exit(1);
			_exit(side[0].device->shm.fd >= 0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		side_check(&side[0], &side[1], 100000);
	}
	assert_int_equal(ways_of(&side[0]).socket, 0);
	sides_close(side);
}

static void leaves_nothing(void **state)
{
	struct sockaddr_un name;
	struct side side[2];
	unsigned fds = count_fds();

	(void)state;
	sides_open(side, &by_memory);
	side_check(&side[0], &side[1], 100000);
	snt__shm_name(side[0].device->address.gid, side[0].device->share.seat.number,
		      &name);
	assert_int_not_equal(count_lines("/proc/self/maps", "sennit-shm"), 0);
	assert_int_not_equal(count_lines("/proc/net/unix", name.sun_path + 1), 0);
	sides_close(side);
	assert_int_equal(count_lines("/proc/self/maps", "sennit-shm"), 0);
	assert_int_equal(count_lines("/proc/net/unix", name.sun_path + 1), 0);
	assert_int_equal(count_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_through_memory),
		cmocka_unit_test(a_file_size_limit_leaves_the_socket),
		cmocka_unit_test(goes_by_reference),
		cmocka_unit_test(counts_packets_of_any_mtu),
		cmocka_unit_test(reaches_itself),
		cmocka_unit_test(falls_back_if_one_does_not_want),
		cmocka_unit_test(other_users_are_refused),
		cmocka_unit_test(unknown_users_are_refused),
		cmocka_unit_test(falls_back_in_the_middle),
		cmocka_unit_test(meets_again),
		cmocka_unit_test(restarted_peer_is_linked_again),
		cmocka_unit_test(last_message_of_a_leaving_peer_counts),
		cmocka_unit_test(bell_is_heard_by_another),
		cmocka_unit_test(mixes_both),
		cmocka_unit_test(stopped_peer_holds_up_no_other),
		cmocka_unit_test(waits_for_room_but_not_for_long),
		cmocka_unit_test(a_consumer_of_little_holds_up_no_others),
		cmocka_unit_test(survives_forks),
		cmocka_unit_test(leaves_nothing),
	};

	return cmocka_run_group_tests_name("shm_driver", tests, NULL, NULL);
}
