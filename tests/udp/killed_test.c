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

static const struct peer_opts survivor = {
	.soft = "127.78.0.1", .mtu = IBV_MTU_4096, .timeout = 8, .retries = 3
};
static const struct peer_opts victim = {
	.soft = "127.78.0.2", .mtu = IBV_MTU_4096, .timeout = 8, .retries = 3
};

/* Writes back, so that it dies in the middle of something of its own, too. */
static _Noreturn void be_victim(int with)
{
	struct peer peer = { .name = "victim", .with = with };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	peer_open(&peer, &victim);
	for (;;) {
		peer_post(&peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 100000, 0);
		peer_wait(&peer);
	}
}

static void outlive(unsigned writes)
{
	struct peer peer = { .name = "survivor" };
	unsigned flushed = 0;
	struct ibv_wc wc;
	int pair[2];
	pid_t child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork();
	if (!child)
		be_victim(pair[1]);
	close(pair[1]);
	peer.with = pair[0];
	peer_open(&peer, &survivor);
	for (unsigned i = 0; i < writes; i++) {
		peer_post(&peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 50000, 0);
		peer_wait_good(&peer);
	}
	for (unsigned i = 0; i < 16; i++)
		peer_post(&peer, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0,
			  PEER_AREA, 1u << 20, 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	for (unsigned i = 0; i < 16; i++) {
		wc = peer_wait(&peer);
		if (flushed)
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status)
			assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		flushed += !!wc.status;
	}
	close(pair[0]);
	peer_close(&peer);
}

static void killed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		outlive(i * 7 % 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed) };

	return cmocka_run_group_tests_name("udp_killed", tests, NULL, NULL);
}
