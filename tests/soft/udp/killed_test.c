/* SPDX-License-Identifier: MIT */
/* A peer that is killed, at any moment: the other gets its errors, and the next process
 * finds the address free. */
#include "lib/test.h"

#include "lib/udp_victim.h"

#define ROUNDS 12

/* Long enough for a process that only has to wait for a processor: some seconds until
 * it is given up. All victims are, so to speak, one after the other. */
#define TIMEOUT 15

/* So that it dies in the middle of something of its own, too. */
static void write_back(struct peer *victim, unsigned count)
{
	(void)count;
	peer_post(victim, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 100000, 0);
	peer_wait(victim);
}

static void bereave(struct peer *peer, unsigned writes)
{
	pid_t victim = victim_start(peer, TIMEOUT, write_back);

	survivor_post(peer, writes);
	victim_kill(victim, peer);
}

/* What is sent to a victim goes to the next one, which has its address and ignores
 * it. */
static void killed(void **state)
{
	static struct peer peers[ROUNDS];

	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++)
		bereave(&peers[i], i * 7 % 30);
	for (unsigned i = 0; i < ROUNDS; i++)
		survivor_close(&peers[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed) };

	return cmocka_run_group_tests_name("udp_killed", tests, NULL, NULL);
}
