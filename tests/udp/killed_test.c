/* SPDX-License-Identifier: MIT */
/* A peer that is killed, at any moment: the other gets its errors, and whoever comes next
 * finds the address free. */
#include "lib/test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "udp/peer.h"

#define ROUNDS 12
#define WRITES 16 /* that are under way when the victim dies */

/* Long enough for somebody who only has to wait for a processor: some seconds until he is
 * given up. All victims are, so to speak, one after the other. */
#define TIMEOUT 15

/* The address of all victims, which no other process has, as in side.c. */
static const char *victims_address(pid_t process)
{
	static char address[32];

	snprintf(address, sizeof(address), "127.%u.%u.%u", 64 + (process >> 13 & 63),
		 process >> 5 & 255, (process & 31) * 8 + 1);
	return address;
}

/* Writes back, so that it dies in the middle of something of its own, too. */
static _Noreturn void be_victim(int with, pid_t parent)
{
	struct peer peer = { .name = "victim", .with = with };
	struct peer_opts opts = { .soft = victims_address(parent),
				  .mtu = IBV_MTU_4096,
				  .timeout = TIMEOUT };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	peer_open(&peer, &opts);
	for (;;) {
		peer_post(&peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 100000, 0);
		peer_wait(&peer);
	}
}

/* Connects with a victim, and kills it while much is under way. */
static void bereave(struct peer *peer, unsigned writes)
{
	struct peer_opts opts = { .soft = "", .mtu = IBV_MTU_4096, .timeout = TIMEOUT };
	pid_t child, parent = getpid();
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork();
	if (!child)
		be_victim(pair[1], parent);
	close(pair[1]);
	peer->name = "survivor";
	peer->with = pair[0];
	peer_open(peer, &opts);
	for (unsigned i = 0; i < writes; i++) {
		peer_post(peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 50000, 0);
		peer_wait_good(peer);
	}
	for (unsigned i = 0; i < WRITES; i++)
		peer_post(peer, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0,
			  PEER_AREA, 1u << 20, 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(pair[0]);
}

/* First what was done before, then an error, then what it takes with it. */
static void outlive(struct peer *peer)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < WRITES; i++) {
		struct ibv_wc wc = peer_wait(peer);

		if (failed)
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status)
			assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		failed += !!wc.status;
	}
	peer_close(peer);
}

/* What is sent to a victim goes to the next one, who has its address and does not mind. */
static void killed(void **state)
{
	static struct peer peers[ROUNDS];

	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++)
		bereave(&peers[i], i * 7 % 30);
	for (unsigned i = 0; i < ROUNDS; i++)
		outlive(&peers[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed) };

	return cmocka_run_group_tests_name("udp_killed", tests, NULL, NULL);
}
