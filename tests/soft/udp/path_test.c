/* SPDX-License-Identifier: MIT */
/* Paths that change, or are reported to have changed. */
#include "lib/udp_side.h"

#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/udp_faults.h"

#define ALL (SIDE_BYTES / 2)

static int set_up(void **state)
{
	(void)state;
	faults_set((struct faults){ 0 });
	side_timeout = SIDE_IMPATIENT;
	return 0;
}

/* What a router sends for a packet that is too long. */
struct too_long {
	struct icmphdr icmp;
	struct iphdr ip;
	uint16_t udp[4];
};

static uint16_t checksum(const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint32_t sum = 0;

	for (size_t i = 0; i < size; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t) ~(sum + (sum >> 16)));
}

/* Any host that can send to us can say so, and port numbers are no secret. */
static void forge(int raw, const struct side *from, const struct side *to)
{
	struct too_long message = {
		.icmp = { .type = ICMP_DEST_UNREACH,
			  .code = ICMP_FRAG_NEEDED,
			  .un.frag.mtu = htons(552) },
		.ip = { .version = 4,
			.ihl = 5,
			.tot_len = htons(1200),
			.frag_off = htons(IP_DF),
			.ttl = 64,
			.protocol = IPPROTO_UDP },
		.udp = { htons(SNT__WIRE_PORT), htons(SNT__WIRE_PORT), htons(1180) },
	};
	union snt__udp_sockaddr us;

	memcpy(&message.ip.saddr, from->device->address.gid + 12, 4);
	memcpy(&message.ip.daddr, to->device->address.gid + 12, 4);
	message.icmp.checksum = checksum(&message, sizeof(message));
	snt__udp_sockaddr(from->device->address.gid, 0, 0, &us);
	assert_int_equal(sendto(raw, &message, sizeof(message), 0, &us.any,
				sizeof(us.v4)),
			 sizeof(message));
}

/* A device knows how long its packets may be, and does not believe a router that says
 * less. */
static void forged_too_long(void **state)
{
	int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	struct side side[2];

	(void)state;
	if (raw < 0)
		skip_because("no raw socket: %s", strerror(errno));
	sides_open(side, NULL);
	side_check(&side[0], &side[1], ALL);
	forge(raw, &side[0], &side[1]);
	side_check(&side[0], &side[1], ALL);
	assert_int_equal(side_sent(&side[0]).failed, 0);
	sides_close(side);
	close(raw);
}

/* For a while nothing gets through, whole or cut: an interface's MTU was too small, or
 * its address is gone. That is not for want of offloads. */
static void offloads_come_back(void **state)
{
	static const int errors[] = { EINVAL, EMSGSIZE, EIO };

	(void)state;
	side_timeout = SIDE_LOSSY;
	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		struct side side[2];

		sides_open(side, NULL);
		faults_set((struct faults){ .error = errors[i] });
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, ALL);
		while (!side_sent(&side[0]).failed)
			sched_yield();
		faults_set((struct faults){ 0 });
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
		snt__udp_lock(side[0].device);
		assert_true(side[0].device->socket.gso);
		snt__udp_unlock(side[0].device);
		sides_close(side);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(forged_too_long, set_up),
		cmocka_unit_test_setup(offloads_come_back, set_up),
	};

	return cmocka_run_group_tests_name("udp_path", tests, NULL, NULL);
}
