/* SPDX-License-Identifier: MIT */
/* Datagrams from anybody. Whatever comes, the device lives on, and so do its QPs. */
#include "lib/udp_side.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

static struct side sides[2];

static int set_up(void **state)
{
	(void)state;
	side_timeout = SIDE_PATIENT;
	/* One datagram for each packet, to be written down. */
	sides_open(sides, &(struct snt__udp_opts){ .no_gso = true });
	side_check(&sides[0], &sides[1], 10000);
	return 0;
}

/* Whatever happened, they still understand each other. */
static int tear_down(void **state)
{
	(void)state;
	side_check(&sides[0], &sides[1], 100000);
	side_check(&sides[1], &sides[0], 100000);
	sides_close(sides);
	return 0;
}

/* A socket on one of our addresses, with any port. */
static int socket_at(unsigned number, uint16_t *port_out)
{
	struct snt__udp_address address = side_address(number);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mode = IP_PMTUDISC_DO;
	union snt__udp_sockaddr local;
	socklen_t size = snt__udp_sockaddr(address.gid, 0, 0, &local);

	assert_int_equal(bind(fd, &local.any, size), 0);
	assert_int_equal(getsockname(fd, &local.any, &size), 0);
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof(mode));
	*port_out = ntohs(local.v4.sin_port);
	return fd;
}

static void send_to(const struct side *side, int fd, const void *bytes, size_t size)
{
	union snt__udp_sockaddr to;
	socklen_t to_size =
		snt__udp_sockaddr(side->device->address.gid, 0, SNT__WIRE_PORT, &to);

	assert_int_equal(sendto(fd, bytes, size, 0, &to.any, to_size), size);
}

struct counts {
	uint64_t packets, damaged, dropped, duplicates, out_of_order;
};

static struct counts counts_of(struct side *side)
{
	struct counts counts;

	snt__udp_lock(side->device);
	counts.packets = side->device->receiver.stats.packets;
	counts.damaged = side->device->receiver.stats.damaged;
	counts.dropped = snt__soft_device_stats(side->device->core)->dropped;
	counts.duplicates = snt__soft_device_stats(side->device->core)->duplicates;
	counts.out_of_order = snt__soft_device_stats(side->device->core)->out_of_order;
	snt__udp_unlock(side->device);
	return counts;
}

/* Until the device has seen so many. No device sends more than a buffer has room for
 * without having waited. */
static struct counts await(struct side *side, uint64_t packets)
{
	struct counts counts = counts_of(side);

	while (counts.packets < packets) {
		sched_yield();
		counts = counts_of(side);
	}
	return counts;
}

/* Seals a packet to B as one from that address and port. Returns its size. */
static size_t seal(unsigned number, uint16_t port,
		   const struct snt__wire_packet *packet, const void *data,
		   uint8_t *bytes)
{
	struct snt__udp_address from = side_address(number);
	struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };
	struct iovec payload = { .iov_base = (void *)data,
				 .iov_len = packet->payload_length };
	uint8_t header[SNT__WIRE_HEADER_MAX];
	struct snt__icrc_flow flow;
	size_t size = snt__wire_encode(packet, header);

	snt__icrc_flow_init(&flow, from.gid, sides[1].device->address.gid, port,
			    SNT__WIRE_PORT);
	memcpy(bytes, header, size);
	memcpy(bytes + size, data, packet->payload_length);
	return size + packet->payload_length +
	       snt__icrc_seal(&flow, ipv4, header, size, &payload, 1,
			      bytes + size + packet->payload_length);
}

/* A WRITE of 8 bytes to B, as if it came from A, with all that only A knows. */
static size_t forge(unsigned number, uint16_t port, uint32_t psn, uint8_t *bytes)
{
	static const uint8_t data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const struct snt__wire_packet packet = {
		.opcode = SNT__WIRE_WRITE_ONLY,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = sides[1].qp->qp_num,
		.psn = psn,
		.payload_length = sizeof(data),
		.reth = { (uintptr_t)sides[1].bytes, sides[1].mr->rkey, sizeof(data) },
	};

	return seal(number, port, &packet, data, bytes);
}

/* The next PSN that B expects: set_up() has sent three packets. */
#define NEXT_PSN 3

static void forged_source(void **state)
{
	struct counts before = counts_of(&sides[1]), after;
	uint8_t bytes[128], none[8] = { 0 };
	uint16_t port;
	int fd = socket_at(5, &port);

	(void)state;
	send_to(&sides[1], fd, bytes, forge(5, port, NEXT_PSN, bytes));
	after = await(&sides[1], before.packets + 1);
	assert_int_equal(after.damaged, before.damaged);
	assert_int_equal(after.dropped, before.dropped + 1);
	assert_memory_equal(sides[1].bytes, none, sizeof(none));
	close(fd);
}

/* The forgery is a good one: from the peer's own address it would do. */
static void forgery_is_good(void **state)
{
	struct counts before = counts_of(&sides[1]), after;
	uint8_t bytes[128];
	uint16_t port;
	int fd = socket_at(1, &port);

	(void)state;
	send_to(&sides[1], fd, bytes, forge(1, port, 0, bytes));
	after = await(&sides[1], before.packets + 1);
	assert_int_equal(after.damaged, before.damaged);
	assert_int_equal(after.dropped, before.dropped);
	assert_int_equal(after.duplicates, before.duplicates + 1);
	close(fd);
}

/* What was executed is not executed again, and nothing is before its time. */
static void replayed(void **state)
{
	struct counts before = counts_of(&sides[1]), after;
	uint8_t bytes[128], none[8] = { 0 };
	uint16_t port;
	int fd = socket_at(1, &port);

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		send_to(&sides[1], fd, bytes, forge(1, port, i % NEXT_PSN, bytes));
		after = await(&sides[1], before.packets + i + 1);
	}
	assert_int_equal(after.duplicates, before.duplicates + 100);
	send_to(&sides[1], fd, bytes, forge(1, port, NEXT_PSN + 1000, bytes));
	after = await(&sides[1], before.packets + 101);
	assert_int_equal(after.out_of_order, before.out_of_order + 1);
	assert_memory_equal(sides[1].bytes, none, sizeof(none));
	close(fd);
}

/* A flipped bit anywhere, but for the few that routers may write to. */
static void damaged(void **state)
{
	struct counts before = counts_of(&sides[1]), after = before;
	uint8_t bytes[128], none[8] = { 0 };
	unsigned sent = 0;
	uint16_t port;
	size_t size;
	int fd = socket_at(1, &port);

	(void)state;
	size = forge(1, port, NEXT_PSN, bytes);
	for (unsigned bit = 0; bit < 8 * size; bit++) {
		if (bit / 8 == 4)
			continue;
		bytes[bit / 8] ^= 1 << bit % 8;
		send_to(&sides[1], fd, bytes, size);
		bytes[bit / 8] ^= 1 << bit % 8;
		after = await(&sides[1], before.packets + ++sent);
	}
	assert_int_equal(after.damaged, before.damaged + sent);
	assert_memory_equal(sides[1].bytes, none, sizeof(none));
	close(fd);
}

static void garbage(void **state)
{
	static uint8_t bytes[65507];
	unsigned random = 1;
	uint16_t port;
	int fd = socket_at(1, &port);

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		size_t size = i % 10 ? i % 200 : i * 33 % sizeof(bytes);

		for (size_t j = 0; j < size; j++)
			bytes[j] = (random = random * 69069 + 1) >> 16;
		send_to(&sides[1], fd, bytes, size);
	}
	/* Nothing larger than this is a datagram. */
	send_to(&sides[1], fd, bytes, sizeof(bytes));
	close(fd);
}

/*
 * A peer that knows everything and wants more. It has a connection of its own, to a QP
 * of B that may reach a region in the middle of some memory, and nothing else.
 */

#define REGION	4096
#define AROUND	65536 /* on both sides of it */
#define PATTERN 0xa5
#define MTU	1024

struct raid {
	struct side one, other; /* A and B, with QPs of their own */
	struct ibv_mr *mr;
	uint8_t *memory, *region;
	int fd;
	uint16_t port;
};

static void raid_open(struct raid *raid)
{
	raid->one = sides[0];
	raid->other = sides[1];
	side_make_qp(&raid->one);
	side_make_qp(&raid->other);
	side_connect(&raid->one, &raid->other, IBV_MTU_1024);
	side_connect(&raid->other, &raid->one, IBV_MTU_1024);
	raid->memory = malloc(AROUND + REGION + AROUND);
	assert_non_null(raid->memory);
	memset(raid->memory, PATTERN, AROUND + REGION + AROUND);
	raid->region = raid->memory + AROUND;
	assert_success(raid->other.control->reg_mr(raid->other.pd, raid->region, REGION,
						   SIDE_ACCESS, &raid->mr));
	raid->fd = socket_at(1, &raid->port);
}

/* Nothing has changed, neither there nor around it. */
static void raid_close(struct raid *raid)
{
	assert_success(raid->one.control->destroy_qp(raid->one.qp));
	assert_success(raid->other.control->destroy_qp(raid->other.qp));
	assert_success(raid->other.control->dereg_mr(raid->mr));
	for (size_t i = 0; i < AROUND + REGION + AROUND; i++)
		if (raid->memory[i] != PATTERN)
			fail_msg("byte %zd of the region was changed",
				 (ssize_t)i - AROUND);
	free(raid->memory);
	close(raid->fd);
}

static enum ibv_qp_state state_of(const struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_success(side->control->query_qp(side->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* One packet after the other, and B has judged them all. */
static void raid_send(struct raid *raid, const struct snt__wire_packet *packets,
		      unsigned count)
{
	static uint8_t data[60000], bytes[65536];

	for (unsigned i = 0; i < count; i++) {
		uint64_t before = counts_of(&raid->other).packets;
		struct snt__wire_packet packet = packets[i];

		packet.pkey = SNT__WIRE_PKEY_DEFAULT;
		packet.flags = SNT__WIRE_ACK_REQUEST;
		if (!packet.qpn)
			packet.qpn = raid->other.qp->qp_num;
		send_to(&raid->other, raid->fd, bytes,
			seal(1, raid->port, &packet, data, bytes));
		await(&raid->other, before + 1);
	}
}

/* Each ends the connection that it came on, and only that. */
static void wrong_places(void **state)
{
	static const struct {
		int64_t at; /* from the beginning of the region */
		uint32_t wrong_key, length;
		uint16_t payload;
		uint8_t opcode;
	} raids[] = {
		{ -1, 0, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ -8, 0, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ REGION, 0, 1, 1, SNT__WIRE_WRITE_ONLY },
		{ REGION - 7, 0, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ INT64_MIN, 0, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ 0, 0, REGION + 1, MTU, SNT__WIRE_WRITE_FIRST },
		{ 0, 0, UINT32_MAX, MTU, SNT__WIRE_WRITE_FIRST },
		{ REGION - MTU, 0, MTU + 1, MTU, SNT__WIRE_WRITE_FIRST },
		{ 0, 1, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ 0, 0x100, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ 0, UINT32_MAX, 8, 8, SNT__WIRE_WRITE_ONLY },
		{ 0, 1, 2 * MTU, MTU, SNT__WIRE_WRITE_FIRST },
		/* Larger than packets may be. */
		{ 0, 0, 2 * MTU, 2 * MTU, SNT__WIRE_WRITE_ONLY },
		{ 0, 0, 60000, 60000, SNT__WIRE_WRITE_ONLY },
		{ 0, 0, 60000, 60000, SNT__WIRE_WRITE_FIRST },
		/* Not of the length that it says. */
		{ 0, 0, 7, 8, SNT__WIRE_WRITE_ONLY },
		{ 0, 0, 9, 8, SNT__WIRE_WRITE_ONLY },
		/* Without a beginning. */
		{ 0, 0, 0, MTU, SNT__WIRE_WRITE_MIDDLE },
		{ 0, 0, 0, 8, SNT__WIRE_WRITE_LAST },
		{ 0, 0, 0, 8, SNT__WIRE_SEND_LAST },
		/* What is not the peer's is not read either. */
		{ -8, 0, 8, 0, SNT__WIRE_READ_REQUEST },
		{ 0, 0, REGION + 1, 0, SNT__WIRE_READ_REQUEST },
		{ 0, 0, UINT32_MAX, 0, SNT__WIRE_READ_REQUEST },
		{ 0, 1, 8, 0, SNT__WIRE_READ_REQUEST },
		{ -8, 0, 0, 0, SNT__WIRE_FETCH_ADD },
		{ REGION, 0, 0, 0, SNT__WIRE_FETCH_ADD },
		{ 4, 0, 0, 0, SNT__WIRE_FETCH_ADD },
		{ 0, 1, 0, 0, SNT__WIRE_FETCH_ADD },
		{ REGION - 4, 0, 0, 0, SNT__WIRE_COMPARE_SWAP },
		{ 0, 1, 0, 0, SNT__WIRE_COMPARE_SWAP },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(raids); i++) {
		struct snt__wire_packet packet = { .opcode = raids[i].opcode,
						   .payload_length = raids[i].payload };
		struct raid raid;
		uint64_t addr;
		uint32_t key;

		raid_open(&raid);
		addr = (uintptr_t)raid.region + raids[i].at;
		key = raid.mr->rkey ^ raids[i].wrong_key;
		if (snt__wire_opcodes[packet.opcode].parts & SNT__WIRE_ATOMIC_ETH) {
			packet.atomic.addr = addr;
			packet.atomic.key = key;
			packet.atomic.swap_add = 1;
		} else {
			packet.reth.addr = addr;
			packet.reth.key = key;
			packet.reth.length = raids[i].length;
		}
		raid_send(&raid, &packet, 1);
		side_check(&sides[0], &sides[1], 20000);
		if (state_of(&raid.other) != IBV_QPS_ERR)
			fail_msg("number %u was not refused", i);
		raid_close(&raid);
	}
}

/* A message that begins well and does not end when it should. */
static void endless_message(void **state)
{
	struct snt__wire_packet packets[6] = {
		{ .opcode = SNT__WIRE_WRITE_FIRST, .payload_length = MTU },
	};
	struct raid raid;

	(void)state;
	raid_open(&raid);
	packets[0].reth.addr = (uintptr_t)raid.region + REGION - 2 * MTU;
	packets[0].reth.key = raid.mr->rkey;
	packets[0].reth.length = 2 * MTU;
	for (unsigned i = 1; i < ARRAY_SIZE(packets); i++)
		packets[i] =
			(struct snt__wire_packet){ .opcode = SNT__WIRE_WRITE_MIDDLE,
						   .psn = i,
						   .payload_length = MTU };
	raid_send(&raid, packets, ARRAY_SIZE(packets));
	assert_int_equal(state_of(&raid.other), IBV_QPS_ERR);
	/* Packets are written as they come, so those that were good have been. */
	memset(raid.region + REGION - 2 * MTU, PATTERN, 2 * MTU);
	raid_close(&raid);
}

/* Answers that were not asked for, and what is not for an RC QP, or for no QP at
 * all. */
static void out_of_place(void **state)
{
	static const struct snt__wire_packet packets[] = {
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .psn = 0 },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .psn = 0xffffff },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .psn = 5000 },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .ack.syndrome = 0x60 },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .ack.syndrome = 0x62 },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .ack.syndrome = 0x20 },
		{ .opcode = SNT__WIRE_ACKNOWLEDGE, .ack.syndrome = 0xff },
		{ .opcode = SNT__WIRE_ATOMIC_ACKNOWLEDGE, .ack.original = 1 },
		{ .opcode = SNT__WIRE_READ_RESPONSE_ONLY, .payload_length = 64 },
		{ .opcode = SNT__WIRE_READ_RESPONSE_FIRST, .payload_length = MTU },
		{ .opcode = SNT__WIRE_READ_RESPONSE_MIDDLE, .payload_length = MTU },
		{ .opcode = SNT__WIRE_READ_RESPONSE_LAST, .payload_length = 60000 },
		{ .opcode = SNT__WIRE_UD_SEND_ONLY, .payload_length = 256 },
		{ .opcode = SNT__WIRE_UD_SEND_ONLY_IMM, .payload_length = 0 },
		{ .opcode = SNT__WIRE_SEND_ONLY, .qpn = 1, .payload_length = 256 },
		{ .opcode = SNT__WIRE_UD_SEND_ONLY, .qpn = 1, .payload_length = 255 },
		{ .opcode = SNT__WIRE_UD_SEND_ONLY,
		  .qpn = 1,
		  .payload_length = 256,
		  .datagram = { SNT__WIRE_GSI_QKEY, 1 } },
		{ .opcode = SNT__WIRE_UD_SEND_ONLY,
		  .qpn = 1,
		  .payload_length = 60000,
		  .datagram = { SNT__WIRE_GSI_QKEY, 1 } },
		{ .opcode = SNT__WIRE_WRITE_ONLY, .qpn = 0xffffff },
	};
	struct raid raid;

	(void)state;
	raid_open(&raid);
	raid_send(&raid, packets, ARRAY_SIZE(packets));
	side_check(&raid.one, &raid.other, 20000);
	assert_int_equal(state_of(&raid.other), IBV_QPS_RTS);
	raid_close(&raid);
}

/*
 * Packets that were good once, byte for byte, from the socket that sent them
 */

static struct {
	pthread_mutex_t lock;
	int fd; /* what this one sends is written down; -1: nothing */
	unsigned count;
	size_t size[512];
	uint8_t bytes[512][SNT__UDP_PACKET_MAX];
} tape = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

int __real_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);
int __wrap_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);

int __wrap_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	pthread_mutex_lock(&tape.lock);
	for (unsigned i = 0; fd == tape.fd && i < count; i++) {
		const struct iovec *piece = headers[i].msg_hdr.msg_iov;

		if (tape.count == ARRAY_SIZE(tape.size))
			break;
		memcpy(tape.bytes[tape.count], piece->iov_base, piece->iov_len);
		tape.size[tape.count++] = piece->iov_len;
	}
	pthread_mutex_unlock(&tape.lock);
	return __real_snt__udp_sendmmsg(fd, headers, count, flags);
}

static void record(int fd)
{
	pthread_mutex_lock(&tape.lock);
	tape.fd = fd;
	pthread_mutex_unlock(&tape.lock);
}

static void play_again(void)
{
	for (unsigned i = 0; i < tape.count; i++) {
		uint64_t before = counts_of(&sides[1]).packets;

		send_to(&sides[1], sides[0].device->socket.fd, tape.bytes[i],
			tape.size[i]);
		await(&sides[1], before + 1);
	}
}

static void add(struct side *side, const struct side *to)
{
	struct ibv_sge sge = { (uintptr_t)side->bytes, 8, side->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

	wr.wr.atomic.remote_addr = (uintptr_t)to->bytes;
	wr.wr.atomic.rkey = to->mr->rkey;
	wr.wr.atomic.compare_add = 1;
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
	assert_int_equal(side_wait(side), IBV_WC_SUCCESS);
}

static void receive(struct side *side, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)side->bytes + 64, 4096, side->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

/* Some of everything, after which two receives are left. */
static void record_everything(void)
{
	tape.count = 0;
	for (unsigned i = 0; i < 3; i++)
		receive(&sides[1], i);
	record(sides[0].device->socket.fd);
	side_check(&sides[0], &sides[1], 30000);
	for (unsigned i = 0; i < 3; i++)
		add(&sides[0], &sides[1]);
	side_post(&sides[0], &sides[1], IBV_WR_RDMA_READ, 10000);
	assert_int_equal(side_wait(&sides[0]), IBV_WC_SUCCESS);
	side_post(&sides[0], &sides[1], IBV_WR_SEND, 3000);
	assert_int_equal(side_wait(&sides[0]), IBV_WC_SUCCESS);
	record(-1);
	assert_int_equal(side_wait(&sides[1]), IBV_WC_SUCCESS);
	assert_true(tape.count >= 8 + 3 + 1 + 1);
}

/* With later traffic in between, lest the last state be all that is known. */
static void old_packets(void **state)
{
	static uint8_t before[SIDE_BYTES];
	struct ibv_wc wc;

	(void)state;
	record_everything();
	side_check(&sides[0], &sides[1], 100);
	ibv_req_notify_cq(sides[1].cq, 0);
	memcpy(before, sides[1].bytes, SIDE_BYTES);
	for (unsigned i = 0; i < 3; i++)
		play_again();
	ibv_req_notify_cq(sides[1].cq, 0);
	assert_memory_equal(before, sides[1].bytes, SIDE_BYTES);
	assert_int_equal(sides[1].bytes[0], 3);
	assert_int_equal(ibv_poll_cq(sides[1].cq, 1, &wc), 0);
}

/* The connection has ended and there is another between the same two. */
static void packets_of_another_life(void **state)
{
	static uint8_t before[SIDE_BYTES];
	struct counts counts;

	(void)state;
	record_everything();
	for (unsigned i = 0; i < 2; i++) {
		assert_success(sides[i].control->destroy_qp(sides[i].qp));
		side_make_qp(&sides[i]);
	}
	side_connect(&sides[0], &sides[1], IBV_MTU_4096);
	side_connect(&sides[1], &sides[0], IBV_MTU_4096);
	side_check(&sides[0], &sides[1], 100);
	ibv_req_notify_cq(sides[1].cq, 0);
	memcpy(before, sides[1].bytes, SIDE_BYTES);
	counts = counts_of(&sides[1]);
	play_again();
	assert_int_equal(counts_of(&sides[1]).dropped, counts.dropped + tape.count);
	ibv_req_notify_cq(sides[1].cq, 0);
	assert_memory_equal(before, sides[1].bytes, SIDE_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forged_source, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forgery_is_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(replayed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(garbage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(wrong_places, set_up, tear_down),
		cmocka_unit_test_setup_teardown(endless_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(out_of_place, set_up, tear_down),
		cmocka_unit_test_setup_teardown(old_packets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(packets_of_another_life, set_up,
						tear_down),
	};

	return cmocka_run_group_tests_name("udp_hostile", tests, NULL, NULL);
}
