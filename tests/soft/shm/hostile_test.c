/* SPDX-License-Identifier: MIT */
/*
 * A process of the same user that keeps to no rule: it greets with nonsense, and writes over
 * the memory that it shares with a device while others use it. The device goes on, and
 * no byte changes that was not registered for it.
 */
#include "lib/test.h"

#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dev/soft/core.h"
#include "lib/seeds.h"
#include "lib/shm_kit.h"

static const struct snt__udp_opts by_memory = { .shm = true };

#define PLACE_BYTES 16384u

/*
 * Greetings
 */

static int make_memory(size_t size, int seals)
{
	int fd = memfd_create("sennit-shm-hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int dial(const struct side *side)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t size = snt__shm_name(side->device->address.gid,
				       side->device->share.seat.number, &name);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, size), 0);
	return fd;
}

/* With so many copies of an fd. */
static void say(int fd, const void *bytes, size_t length, int memory, unsigned copies)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(4 * sizeof(int))];
	} control = { 0 };
	struct iovec piece = { (void *)(uintptr_t)bytes, length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (copies) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(copies * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(copies * sizeof(int));
		for (unsigned i = 0; i < copies; i++)
			memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &memory,
			       sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), length);
}

/* The device has hung up. */
static void expect_end(int fd)
{
	uint8_t byte;

	while (recv(fd, &byte, 1, 0) > 0)
		;
	close(fd);
}

static void refuses_bad_greetings(void **state)
{
	const size_t size = sizeof(struct snt__shm_area);
	struct snt__shm_greeting good = { .version = SNT__SHM_VERSION, .size = size };
	const struct {
		uint32_t version_off, size_off;
		size_t length;
		size_t memory;
		int seals;
		unsigned copies;
	} bad[] = {
		{ 1, 0, sizeof(good), size, SNT__SHM_SEALS, 1 },
		{ 0, 1, sizeof(good), size, SNT__SHM_SEALS, 1 },
		{ 0, 0, sizeof(good) - 1, size, SNT__SHM_SEALS, 1 },
		{ 0, 0, sizeof(good) + 1, size, SNT__SHM_SEALS, 1 },
		{ 0, 0, sizeof(good), size - 1, SNT__SHM_SEALS, 1 },
		{ 0, 0, sizeof(good), size + 4096, SNT__SHM_SEALS, 1 },
		{ 0, 0, sizeof(good), size, F_SEAL_SHRINK, 1 },
		{ 0, 0, sizeof(good), size, F_SEAL_GROW | F_SEAL_SEAL, 1 },
		{ 0, 0, sizeof(good), size, SNT__SHM_SEALS | F_SEAL_WRITE, 1 },
		{ 0, 0, sizeof(good), size, SNT__SHM_SEALS, 0 },
		{ 0, 0, sizeof(good), size, SNT__SHM_SEALS, 3 },
	};
	struct side side[2];

	(void)state;
	sides_open(side, &by_memory);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct snt__shm_greeting greeting[2] = { good, good };
		int memory = make_memory(bad[i].memory, bad[i].seals);
		int fd = dial(&side[0]);

		greeting->version += bad[i].version_off;
		greeting->size += bad[i].size_off;
		say(fd, greeting, bad[i].length, memory, bad[i].copies);
		close(memory);
		expect_end(fd);
	}
	/* No memory at all, but an fd. */
	for (unsigned i = 0; i < 2; i++) {
		int fd = dial(&side[0]);

		say(fd, &good, sizeof(good), i ? STDOUT_FILENO : fd, 1);
		expect_end(fd);
	}
	side_check(&side[0], &side[1], 100000);
	side_check(&side[1], &side[0], 100000);
	sides_close(side);
}

/* Those who connect and say nothing, or leave at once, are no harm. */
static void bears_silence(void **state)
{
	struct side side[2];
	int fds[20];

	(void)state;
	side_open(&side[0], 1, &by_memory);
	for (unsigned i = 0; i < 20; i++)
		fds[i] = dial(&side[0]);
	side_open(&side[1], 2, &by_memory);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
	side_check(&side[1], &side[0], 100000);
	for (unsigned i = 0; i < 20; i++)
		close(fds[i]);
	side_check(&side[1], &side[0], 100000);
	sides_close(side);
}

static void await_end_of(int fd)
{
	struct pollfd end = { .fd = fd, .events = POLLIN };

	if (poll(&end, 1, 60000) == 1)
		return;
	fds_restore();
	fail_msg("no end hangs up");
}

/* A peer that calls while there is no fd for it is told so, and uses the socket; it
 * would wait for ever, and the device's thread all the time. Those who come later are
 * welcome. */
static void hangs_up_without_fds(void **state)
{
	struct side side[2];
	struct sockaddr_un name;
	socklen_t size;
	int fd, ret;

	(void)state;
	side_open(&side[0], 1, &by_memory);
	side_open(&side[1], 2, &by_memory);
	size = snt__shm_name(side[0].device->address.gid,
			     side[0].device->share.seat.number, &name);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	fds_exhaust();
	ret = connect(fd, (struct sockaddr *)&name, size);
	if (!ret)
		await_end_of(fd);
	fds_restore();
	assert_int_equal(ret, 0);
	expect_end(fd);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
	side_check(&side[1], &side[0], 100000);
	assert_int_not_equal(shm_stats(&side[0]).packets_in, 0);
	sides_close(side);
}

/* By the only one. */
static void await_greeted(struct side *side)
{
	const struct snt__link *ins = &side->device->shm.ins;
	bool greeted;

	do {
		snt__udp_lock(side->device);
		greeted =
			!snt__list_empty(ins) &&
			snt__container(ins->next, struct snt__shm_link, list)->greeted;
		snt__udp_unlock(side->device);
	} while (!greeted);
}

static void await_heard(const struct snt__shm_link *link)
{
	int left;

	do
		assert_int_equal(ioctl(link->fd, SIOCOUTQ, &left), 0);
	while (left);
}

static uint64_t await_mapped(const struct snt__shm_link *link)
{
	struct snt__shm_message message;
	struct pollfd wait = { .fd = link->fd, .events = POLLIN };

	do {
		assert_int_equal(poll(&wait, 1, 60000), 1);
		assert_int_equal(recv(link->fd, &message, sizeof(message), 0),
				 sizeof(message));
	} while (message.word != SNT__SHM_WORD_MAPPED);
	return message.id;
}

/* What is offered to a peer without fds goes through the ring, and the link stays. */
static void bears_offers_without_fds(void **state)
{
	struct snt__udp_address nobody = side_address(5);
	struct snt__shm_link *link;
	struct side side;
	int memory;

	(void)state;
	side_open(&side, 1, &by_memory);
	link = snt__shm_connect(nobody.gid, side.device->address.gid,
				side.device->share.seat.number);
	assert_non_null(link);
	await_greeted(&side);
	memory = make_memory(PLACE_BYTES, SNT__SHM_SEALS);
	fds_exhaust();
	assert_true(snt__shm_say(link, SNT__SHM_WORD_OFFER, 1, memory));
	await_heard(link);
	fds_restore();
	assert_true(snt__shm_say(link, SNT__SHM_WORD_OFFER, 2, memory));
	assert_int_equal(await_mapped(link), 2);
	close(memory);
	snt__shm_link_free(link, true);
	side_close(&side);
}

/* More than the host has memory is no place, but a file of nothing: a few of them, and
 * the process has no addresses left for anything else. */
static void maps_no_more_than_there_is(void **state)
{
	struct snt__udp_address nobody = side_address(5);
	struct snt__shm_link *link;
	struct side side;
	int huge, small;

	(void)state;
	side_open(&side, 1, &by_memory);
	link = snt__shm_connect(nobody.gid, side.device->address.gid,
				side.device->share.seat.number);
	assert_non_null(link);
	huge = make_memory(UINT64_C(1) << 45, SNT__SHM_SEALS);
	small = make_memory(PLACE_BYTES, SNT__SHM_SEALS);
	assert_true(snt__shm_say(link, SNT__SHM_WORD_OFFER, 1, huge));
	assert_true(snt__shm_say(link, SNT__SHM_WORD_OFFER, 2, small));
	assert_int_equal(await_mapped(link), 2);
	close(huge);
	close(small);
	snt__shm_link_free(link, true);
	side_close(&side);
}

/*
 * Writing over the memory
 */

#define ROUNDS	60
#define FORGED	64 /* packets in a round */
#define CANARY	0xa5
#define MARGIN	65536
#define ALLOWED 65536

/* A QP whose peer is the attacker, and memory that it may write to. */
struct target {
	struct side *side;
	struct side peer; /* an address, and a QP number, that no device has */
	struct ibv_mr *mr;
	uint8_t bytes[MARGIN + ALLOWED + MARGIN];
};

static void reconnect(struct target *target)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	assert_success(target->side->control->modify_qp(target->side->qp, &attr,
							IBV_QP_STATE));
	side_connect(target->side, &target->peer, IBV_MTU_1024);
}

static uint8_t forge_opcode(uint64_t *state)
{
	static const uint8_t opcodes[] = {
		SNT__WIRE_WRITE_ONLY,	SNT__WIRE_WRITE_FIRST,
		SNT__WIRE_WRITE_MIDDLE, SNT__WIRE_WRITE_LAST,
		SNT__WIRE_SEND_ONLY,	SNT__WIRE_SEND_FIRST,
		SNT__WIRE_READ_REQUEST, SNT__WIRE_READ_RESPONSE_ONLY,
		SNT__WIRE_ACKNOWLEDGE,	SNT__WIRE_FETCH_ADD,
		SNT__WIRE_COMPARE_SWAP, SNT__WIRE_WRITE_ONLY_IMM,
	};

	if (!random_below(state, 16))
		return (uint8_t)random_next(state);
	return opcodes[random_below(state, sizeof(opcodes))];
}

/* A packet as the peer could send it, with an address on either side of the border and
 * lengths that need not agree with each other. */
static void forge(const struct target *target, uint64_t *state, uint32_t psn,
		  struct snt__soft_packet *packet)
{
	static uint8_t garbage[SNT__SHM_PAYLOAD_MAX];
	uint32_t length = random_below(state, 2) ? random_below(state, 4) * 1024
						 : random_below(state, sizeof(garbage));
	struct snt__wire_packet wire = {
		.opcode = forge_opcode(state),
		.flags = SNT__WIRE_ACK_REQUEST,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = target->side->qp->qp_num,
		.psn = psn,
		.reth = { .addr = (uintptr_t)target->bytes +
				  random_below(state, sizeof(target->bytes)),
			  .key = target->mr->rkey,
			  .length = random_below(state, 2)
					    ? length
					    : random_below(state, 1 << 18) },
	};

	memset(garbage, 0x3c, sizeof(garbage));
	packet->header_length = (uint8_t)snt__wire_encode(&wire, packet->header);
	if (!packet->header_length || !random_below(state, 20))
		packet->header_length = (uint8_t)random_below(state, 41);
	packet->payload_length = length;
	packet->payload_count = length != 0;
	packet->payload[0].iov_base = garbage;
	packet->payload[0].iov_len = length;
}

/* One that is right in every way, and does what it may. */
static void forge_right(const struct target *target, struct snt__soft_packet *packet)
{
	static uint8_t garbage[ALLOWED];
	struct snt__wire_packet wire = {
		.opcode = SNT__WIRE_WRITE_ONLY,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = target->side->qp->qp_num,
		.reth = { .addr = (uintptr_t)target->bytes + MARGIN,
			  .key = target->mr->rkey,
			  .length = ALLOWED },
		.payload_length = ALLOWED,
	};

	memset(garbage, 0x3c, sizeof(garbage));
	packet->header_length = (uint8_t)snt__wire_encode(&wire, packet->header);
	packet->payload_length = ALLOWED;
	packet->payload_count = 1;
	packet->payload[0].iov_base = garbage;
	packet->payload[0].iov_len = ALLOWED;
}

/* In the attacker's memory, or in one of the places that it has offered, or of those
 * that it has not. */
static void forge_pieces(uint64_t *state, const struct snt__soft_packet *packet,
			 struct snt__shm_piece *pieces)
{
	for (unsigned i = 0; i < packet->payload_count; i++)
		pieces[i] = (struct snt__shm_piece){
			.place = random_below(state, 4),
			.addr = random_below(state, 2)
					? random_below(state, 2 * PLACE_BYTES)
					: random_next(state),
			.length = packet->payload[i].iov_len,
		};
}

/* Some of them good, some of them not. */
static void forge_offers(const struct snt__shm_link *link, uint64_t *state)
{
	for (unsigned i = 0; i < 3; i++) {
		int fd = make_memory(PLACE_BYTES,
				     random_below(state, 2) ? SNT__SHM_SEALS : 0);

		snt__shm_say(link, SNT__SHM_WORD_OFFER, random_below(state, 4),
			     random_below(state, 8) ? fd : -1);
		close(fd);
	}
	if (!random_below(state, 4))
		snt__shm_say(link, SNT__SHM_WORD_END, random_below(state, 4), -1);
	if (!random_below(state, 8))
		snt__shm_say(link, random_below(state, 256), random_next(state), -1);
}

static void put(struct snt__shm_link *link, const struct snt__soft_packet *packet,
		const struct snt__shm_piece *pieces)
{
	snt__shm_put(&link->producer, packet, pieces);
	if (snt__shm_tell(&link->producer))
		snt__shm_ring_bell(link);
}

/* Until all was taken, or it was too much for the device. */
static void await_device(struct snt__shm_link *link)
{
	while (snt__shm_lives(link) &&
	       atomic_load(&link->area->head) != link->producer.tail)
		sched_yield();
}

/* Until the device has taken what is left, and only the honest one is connected. */
static void await_end(struct side *side)
{
	unsigned links;

	do {
		sched_yield();
		snt__udp_lock(side->device);
		links = side->device->shm.in_count;
		snt__udp_unlock(side->device);
	} while (links > 1);
}

/* Valid records, and then whatever comes to mind. */
static void attack(struct target *target, struct snt__shm_link *link, uint64_t *state)
{
	struct snt__soft_packet packet = { 0 };
	struct snt__shm_area *area = link->area;

	forge_offers(link, state);
	if (random_below(state, 2)) {
		forge_right(target, &packet);
		put(link, &packet, NULL);
	}
	for (unsigned i = 0; i < FORGED; i++) {
		struct snt__shm_piece pieces[SNT__SOFT_SGE_MAX];

		if (snt__shm_room(&link->producer, SNT__SHM_RING_SIZE / 4) <
		    SNT__SHM_RING_SIZE / 4)
			break;
		forge(target, state, random_below(state, 3) ? i / 2 : ALLOWED / 1024,
		      &packet);
		forge_pieces(state, &packet, pieces);
		put(link, &packet, random_below(state, 8) ? NULL : pieces);
	}
	if (random_below(state, 2))
		await_device(link);
	for (unsigned i = 0; i < 200; i++) {
		uint32_t at = random_below(state, SNT__SHM_RING_SIZE - 8) & -8u;
		uint64_t word = random_next(state);

		memcpy(area->bytes + at, &word, sizeof(word));
	}
	if (random_below(state, 3)) {
		await_device(link);
		return;
	}
	area->tail = random_next(state) | 1;
	snt__shm_ring_bell(link);
	while (snt__shm_lives(link))
		sched_yield();
}

static void check_canaries(const struct target *target)
{
	for (unsigned i = 0; i < MARGIN; i++) {
		assert_int_equal(target->bytes[i], CANARY);
		assert_int_equal(target->bytes[MARGIN + ALLOWED + i], CANARY);
	}
}

/* Runs beside the attack. */
static void *go_on(void *arg)
{
	struct side *side = arg;

	for (unsigned i = 0; i < 60; i++) {
		side_check(&side[0], &side[1], 1 + i * 1000);
		side_check(&side[1], &side[0], 1 + i * 1000);
	}
	return NULL;
}

/* While forged packets and garbage come in, honest ones do. */
static void survives_scribbling(void **state)
{
	static struct target target;
	uint64_t random = 7;
	struct side side[2], victim;
	struct snt__udp_address nobody = side_address(5);
	struct snt__udp_device place = { .address = nobody };
	struct ibv_qp number = { .qp_num = 1234 };
	pthread_t honest;

	(void)state;
	sides_open(side, &by_memory);
	victim = side[0];
	assert_success(victim.control->create_cq(victim.context, 256, NULL, NULL, 0,
						 &victim.cq));
	side_make_qp(&victim);
	memset(target.bytes, CANARY, sizeof(target.bytes));
	target.side = &victim;
	target.peer.device = &place;
	target.peer.qp = &number;
	assert_success(victim.control->reg_mr(victim.pd, target.bytes + MARGIN, ALLOWED,
					      SIDE_ACCESS, &target.mr));
	side_connect(&victim, &target.peer, IBV_MTU_1024);
	assert_int_equal(pthread_create(&honest, NULL, go_on, side), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct snt__shm_link *link =
			snt__shm_connect(nobody.gid, side[0].device->address.gid,
					 side[0].device->share.seat.number);

		assert_non_null(link);
		attack(&target, link, &random);
		snt__shm_link_free(link, true);
		await_end(&side[0]);
		reconnect(&target);
		check_canaries(&target);
	}
	assert_int_equal(pthread_join(honest, NULL), 0);
	check_canaries(&target);
	/* Some of it was right, and landed where it may. */
	assert_non_null(memchr(target.bytes + MARGIN, 0x3c, ALLOWED));
	assert_int_not_equal(shm_stats(&side[0]).broken, 0);
	assert_success(victim.control->destroy_qp(victim.qp));
	assert_success(victim.control->destroy_cq(victim.cq));
	assert_success(victim.control->dereg_mr(target.mr));
	sides_close(side);
}

/*
 * Messages to the device itself, which are judged as a whole
 */

struct reader {
	struct side *side;
	atomic_uint messages;
	atomic_bool shared; /* the other could have changed it meanwhile */
};

static void read_message(void *arg, const struct snt__soft_path *path,
			 const uint8_t bytes[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	struct reader *reader = arg;
	const struct snt__link *ins = &reader->side->device->shm.ins;

	(void)path;
	(void)now;
	for (struct snt__link *at = ins->next; at != ins; at = at->next) {
		const uint8_t *area =
			(uint8_t *)snt__container(at, struct snt__shm_link, list)->area;

		reader->shared |=
			bytes >= area && bytes < area + sizeof(struct snt__shm_area);
	}
	reader->messages++;
}

static bool no_output(void *arg, struct snt__soft_path *path_out,
		      uint8_t mad_out[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	(void)arg;
	(void)path_out;
	(void)mad_out;
	(void)now;
	return false;
}

static uint64_t no_deadline(void *arg)
{
	(void)arg;
	return SNT__SOFT_NEVER;
}

static void forge_message(struct snt__soft_packet *packet)
{
	static uint8_t garbage[SNT__SOFT_MAD_SIZE];
	struct snt__wire_packet wire = {
		.opcode = SNT__WIRE_UD_SEND_ONLY,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = SNT__WIRE_GSI_QPN,
		.datagram = { .qkey = SNT__WIRE_GSI_QKEY },
		.payload_length = sizeof(garbage),
	};

	packet->header_length = (uint8_t)snt__wire_encode(&wire, packet->header);
	packet->payload_length = sizeof(garbage);
	packet->payload_count = 1;
	packet->payload[0].iov_base = garbage;
	packet->payload[0].iov_len = sizeof(garbage);
}

/* One that is in the ring, then one of which only the place is: there are not as many
 * bytes in the ring as it is said to have. */
static void judges_copies_of_messages(void **state)
{
	static const struct snt__soft_agent agent = {
		.input = read_message,
		.output = no_output,
		.deadline = no_deadline,
	};
	struct snt__udp_address nobody = side_address(5);
	struct snt__soft_packet packet = { 0 };
	struct snt__shm_piece piece = { .place = 1, .length = SNT__SOFT_MAD_SIZE };
	struct side side;
	struct reader reader = { .side = &side };
	struct snt__shm_link *link;

	(void)state;
	side_open(&side, 1, &by_memory);
	snt__udp_lock(side.device);
	snt__soft_device_set_agent(side.device->core, &agent, &reader);
	snt__udp_unlock(side.device);
	link = snt__shm_connect(nobody.gid, side.device->address.gid,
				side.device->share.seat.number);
	assert_non_null(link);
	forge_message(&packet);
	put(link, &packet, NULL);
	await_device(link);
	assert_int_equal(reader.messages, 1);
	assert_false(reader.shared);
	put(link, &packet, &piece);
	await_device(link);
	assert_int_equal(reader.messages, 1);
	assert_int_equal(shm_stats(&side).broken, 1);
	snt__udp_lock(side.device);
	snt__soft_device_set_agent(side.device->core, NULL, NULL);
	snt__udp_unlock(side.device);
	snt__shm_link_free(link, true);
	side_close(&side);
}

/* No honest producer skips the whole ring; one that does could go on with it for
 * ever. */
static void refuses_a_ring_of_nothing(void **state)
{
	struct snt__udp_address nobody = side_address(5);
	const uint32_t skip[] = { SNT__SHM_RING_SIZE, 3 };
	struct snt__shm_link *link;
	struct side side;

	(void)state;
	side_open(&side, 1, &by_memory);
	link = snt__shm_connect(nobody.gid, side.device->address.gid,
				side.device->share.seat.number);
	assert_non_null(link);
	memcpy(link->area->bytes, skip, sizeof(skip));
	link->area->tail = SNT__SHM_RING_SIZE;
	snt__shm_ring_bell(link);
	while (snt__shm_lives(link))
		sched_yield();
	assert_int_equal(shm_stats(&side).broken, 1);
	snt__shm_link_free(link, true);
	side_close(&side);
}

/*
 * The consumer may lie, too
 */

/* Takes nothing, and says that it took what there never was. */
static void consumer_may_report_anything(void **state)
{
	struct side side[2];
	struct snt__shm_link *link = NULL;
	int listener;

	(void)state;
	/* A quarter of a second, for what is lost; see driver_test.c. */
	side_timeout = 16;
	side_open(&side[0], 1, &by_memory);
	side_open(&side[1], 2, NULL);
	listener = snt__shm_listen(side[1].device->address.gid,
				   side[1].device->share.seat.number);
	assert_true(listener >= 0);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
	link = snt__shm_accept(listener, side[1].device->address.gid);
	assert_non_null(link);
	assert_true(snt__shm_listen_to(link));
	link->area->head = UINT64_C(1) << 40;
	link->area->waits = 1;
	for (unsigned i = 0; i < 16; i++)
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, SIDE_BYTES / 2);
	/* The ring is given up, and the rest goes by the socket. */
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	assert_int_equal(shm_stats(&side[0]).broken, 1);
	side_check(&side[0], &side[1], 100000);
	snt__shm_link_free(link, true);
	close(listener);
	sides_close(side);
	side_timeout = SIDE_PATIENT;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_bad_greetings),
		cmocka_unit_test(bears_silence),
		cmocka_unit_test(hangs_up_without_fds),
		cmocka_unit_test(bears_offers_without_fds),
		cmocka_unit_test(maps_no_more_than_there_is),
		cmocka_unit_test(survives_scribbling),
		cmocka_unit_test(judges_copies_of_messages),
		cmocka_unit_test(refuses_a_ring_of_nothing),
		cmocka_unit_test(consumer_may_report_anything),
	};

	return cmocka_run_group_tests_name("shm_hostile", tests, NULL, NULL);
}
