/* SPDX-License-Identifier: MIT */
#include "lib/udp_victim.h"

#include "lib/test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"

#define UNDER_WAY 16 /* WRs of the survivor when the victim dies */

const char *victim_address(void)
{
	return loopback_text(1);
}

static _Noreturn void be_victim(int with, pid_t parent, const char *address,
				uint8_t timeout,
				void (*step)(struct peer *victim, unsigned count))
{
	struct peer peer = { .name = "victim", .with = with };
	struct peer_opts opts = { .soft = address,
				  .mtu = IBV_MTU_4096,
				  .timeout = timeout };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	peer_open(&peer, &opts);
	for (unsigned i = 0;; i++)
		step(&peer, i);
}

pid_t victim_start(struct peer *survivor, uint8_t timeout,
		   void (*step)(struct peer *victim, unsigned count))
{
	struct peer_opts opts = { .soft = "", .mtu = IBV_MTU_4096, .timeout = timeout };
	/* The parent's: a child has addresses of its own. */
	const char *address = victim_address();
	pid_t child, parent = getpid();
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		be_victim(pair[1], parent, address, timeout, step);
	close(pair[1]);
	survivor->name = "survivor";
	survivor->with = pair[0];
	peer_open(survivor, &opts);
	return child;
}

void victim_kill(pid_t victim, const struct peer *survivor)
{
	kill(victim, SIGKILL);
	assert_int_equal(waitpid(victim, NULL, 0), victim);
	close(survivor->with);
}

void survivor_post(struct peer *survivor, unsigned writes)
{
	for (unsigned i = 0; i < writes; i++) {
		peer_post(survivor, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 50000, 0);
		peer_wait_good(survivor);
	}
	for (unsigned i = 0; i < UNDER_WAY; i++)
		peer_post(survivor, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0,
			  PEER_AREA, 1u << 20, 0);
}

void survivor_close(struct peer *survivor)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < UNDER_WAY; i++) {
		struct ibv_wc wc = peer_wait(survivor);

		if (failed)
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status)
			assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		failed += !!wc.status;
	}
	peer_close(survivor);
}
