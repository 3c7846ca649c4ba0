/* SPDX-License-Identifier: MIT */
/* Datagrams from anybody. Whatever comes, the device lives on, and so do its QPs. */
#include "udp/side.h"

#include <sys/socket.h>
#include <unistd.h>

static struct side sides[2];

static int set_up(void **state)
{
	(void)state;
	side_timeout = SIDE_PATIENT;
	sides_open(sides, NULL);
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

/* Until the device has seen so many. */
static struct counts await(struct side *side, uint64_t packets)
{
	struct counts counts = counts_of(side);

	while (counts.packets < packets)
		counts = counts_of(side);
	return counts;
}

/* A WRITE of 8 bytes to B, as if it came from A, with all that only A knows. */
static size_t forge(unsigned number, uint16_t port, uint32_t psn, uint8_t *bytes)
{
	static const uint8_t data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct snt__udp_address from = side_address(number);
	struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };
	struct iovec payload = { .iov_base = (void *)data, .iov_len = sizeof(data) };
	struct snt__wire_packet packet = {
		.opcode = SNT__WIRE_WRITE_ONLY,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = sides[1].qp->qp_num,
		.psn = psn,
		.payload_length = sizeof(data),
		.reth = { (uintptr_t)sides[1].bytes, sides[1].mr->rkey, sizeof(data) },
	};
	uint8_t header[SNT__WIRE_HEADER_MAX];
	struct snt__icrc_flow flow;
	size_t size = snt__wire_encode(&packet, header);

	snt__icrc_flow_init(&flow, from.gid, sides[1].device->address.gid, port,
			    SNT__WIRE_PORT);
	memcpy(bytes, header, size);
	memcpy(bytes + size, data, sizeof(data));
	return size + sizeof(data) +
	       snt__icrc_seal(&flow, ipv4, header, size, &payload, 1,
			      bytes + size + sizeof(data));
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
	for (unsigned i = 0; i < 100; i++)
		send_to(&sides[1], fd, bytes, forge(1, port, i % NEXT_PSN, bytes));
	after = await(&sides[1], before.packets + 100);
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
	struct counts before = counts_of(&sides[1]), after;
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
		sent++;
	}
	after = await(&sides[1], before.packets + sent);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forged_source, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forgery_is_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(replayed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(garbage, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("udp_hostile", tests, NULL, NULL);
}
