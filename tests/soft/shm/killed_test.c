/* SPDX-License-Identifier: MIT */
/*
 * Processes that share memory, and one of them is killed, at any moment: the other gets
 * its errors, and nothing is left behind.
 *
 *	killed_test [--rounds N] [--seed N]
 */
#include "lib/fds.h"
#include "lib/test.h"

#include <getopt.h>
#include <time.h>
#include <unistd.h>

#include "lib/seeds.h"
#include "lib/shm_kit.h"
#include "lib/udp_victim.h"

#define BATCH 10

/* A quarter of a second and some tries, until a peer is given up. */
#define TIMEOUT 14

static unsigned rounds = 20;
static uint64_t state = 1;

/* Writes, reads and is written to, so that it dies in the middle of anything. */
static void write_and_read(struct peer *victim, unsigned count)
{
	peer_post(victim, count % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0,
		  PEER_AREA, 1 + count % 5 * 50000, 0);
	peer_wait(victim);
}

static void pass(uint32_t nanoseconds)
{
	struct timespec time = { .tv_nsec = nanoseconds };

	nanosleep(&time, NULL);
}

/* Kills a victim while much is under way, after some of it. */
static void bereave(struct peer *peer)
{
	unsigned writes = random_below(&state, 20);
	pid_t victim = victim_start(peer, TIMEOUT, write_and_read);

	assert_int_not_equal(count_lines("/proc/self/maps", "sennit-shm"), 0);
	survivor_post(peer, writes);
	pass(random_below(&state, 2000000));
	victim_kill(victim, peer);
}

/*
 * What could be left
 */

struct remains {
	unsigned fds, maps, sockets;
};

/* Sockets of the victims' address; those of others come and go. */
static struct remains remains(void)
{
	struct remains found = { .maps = count_lines("/proc/self/maps", "sennit-shm"),
				 .fds = count_fds() };
	unsigned a, b, c, d;
	char name[16];

	sscanf(victim_address(), "%u.%u.%u.%u", &a, &b, &c, &d);
	snprintf(name, sizeof(name), "ffff%02x%02x%02x%02x", a, b, c, d);
	found.sockets = count_lines("/proc/net/unix", name);
	return found;
}

static void killed(void **test_state)
{
	static struct peer peers[BATCH];
	struct remains before = remains(), after;

	(void)test_state;
	for (unsigned done = 0; done < rounds; done += BATCH) {
		unsigned count = rounds - done < BATCH ? rounds - done : BATCH;

		for (unsigned i = 0; i < count; i++)
			bereave(&peers[i]);
		for (unsigned i = 0; i < count; i++)
			survivor_close(&peers[i]);
		after = remains();
		assert_int_equal(after.fds, before.fds);
		assert_int_equal(after.maps, 0);
		assert_int_equal(after.sockets, 0);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 's' },
		{ 0 },
	};
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed) };
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'r')
			rounds = atoi(optarg);
		else if (option == 's')
			state = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	return cmocka_run_group_tests_name("shm_killed", tests, NULL, NULL);
}
