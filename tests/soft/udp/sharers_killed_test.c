/* SPDX-License-Identifier: MIT */
/*
 * Processes that share an address, in couples that write to each other all the time. Some are
 * stopped or killed, at any moment, and others come: no other couple notices.
 *
 *	sharers_killed_test [--rounds N] [--seed N]
 */
#include "lib/test.h"

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "lib/patience.h"
#include "lib/seeds.h"
#include "lib/udp_peer.h"

#define COUPLES 3

/* 4 seconds and some tries: a process may have to wait for a processor. */
#define TIMEOUT 20

/* Steps that each couple has to make while others die. */
#define STEPS 3

struct couple {
	pid_t pid[2];
	atomic_uint *steps; /* by both processes; in shared memory */
};

static unsigned rounds = 30;
static uint64_t state = 1;
static struct couple couples[COUPLES];

/* Each writes to the other, and checks what it has been written. */
static void take_step(struct peer *peer, unsigned me, unsigned count)
{
	uint32_t length = 1 + (count % 4) * 30000;

	peer_fill(peer_out(peer), length, 2 * count + me);
	peer_post(peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, length, 0);
	peer_wait_good(peer);
	peer_meet(peer);
	if (!peer_filled(peer_in(peer), length, 2 * count + !me))
		peer_fail(peer, "step %u: wrong bytes", count);
	peer_meet(peer);
}

static _Noreturn void live(int with, unsigned me, const char *address, pid_t parent,
			   atomic_uint *steps)
{
	struct peer peer = { .name = "sharer", .with = with };
	struct peer_opts opts = { .soft = address,
				  .mtu = IBV_MTU_4096,
				  .timeout = TIMEOUT };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	peer_open(&peer, &opts);
	for (unsigned i = 0;; i++) {
		take_step(&peer, me, i);
		if (!me)
			atomic_fetch_add(steps, 1);
	}
}

static void start_couple(struct couple *couple)
{
	const char *address = loopback_text(1);
	pid_t parent = getpid();
	int pair[2];

	atomic_store(couple->steps, 0);
	assert_success(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	for (unsigned i = 0; i < 2; i++) {
		couple->pid[i] = fork();
		assert_true(couple->pid[i] >= 0);
		if (!couple->pid[i]) {
			close(pair[!i]);
			live(pair[i], i, address, parent, couple->steps);
		}
	}
	close(pair[0]);
	close(pair[1]);
}

/* One dies, and its partner soon after, if not of that. */
static void kill_couple(struct couple *couple)
{
	unsigned first = random_below(&state, 2);

	for (unsigned i = 0; i < 2; i++) {
		pid_t pid = couple->pid[i ? !first : first];

		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

static void check_alive(const struct couple *couple)
{
	for (unsigned i = 0; i < 2; i++)
		if (waitpid(couple->pid[i], NULL, WNOHANG))
			fail_msg("a sharer ended that was not killed");
}

static void await_steps(const struct couple *couple, unsigned steps)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t left = patience_ns(60) / 1000000;

	while ((int)(atomic_load(couple->steps) - steps) < 0) {
		check_alive(couple);
		if (!left--)
			fail_msg("a sharer does not go on");
		nanosleep(&pause, NULL);
	}
}

/* At any time between the steps of the others, and within one. */
static void pass_some_time(void)
{
	const struct timespec time = { .tv_nsec = random_below(&state, 5000000) };

	nanosleep(&time, NULL);
}

static void stop_couple(const struct couple *couple)
{
	for (unsigned i = 0; i < 2; i++)
		assert_success(kill(couple->pid[i], SIGSTOP));
}

/* Those go on whose bit is not set. */
static void others_go_on(uint32_t which)
{
	unsigned before[COUPLES];

	for (unsigned i = 0; i < COUPLES; i++)
		before[i] = atomic_load(couples[i].steps);
	for (unsigned i = 0; i < COUPLES; i++)
		if (!(which >> i & 1))
			await_steps(&couples[i], before[i] + STEPS);
}

/* Not while it is alone at the address, when the others could not join. */
static void stop_some(uint32_t which)
{
	others_go_on(which);
	for (unsigned i = 0; i < COUPLES; i++)
		if (which >> i & 1)
			stop_couple(&couples[i]);
	others_go_on(which);
}

static void kill_some(uint32_t which)
{
	for (unsigned i = 0; i < COUPLES; i++)
		if (which >> i & 1)
			kill_couple(&couples[i]);
	others_go_on(which);
	for (unsigned i = 0; i < COUPLES; i++)
		if (which >> i & 1)
			start_couple(&couples[i]);
}

/* Mostly one; sometimes all but one, or all of them, so that the address changes hands. */
static void sharers_die(void **test_state)
{
	(void)test_state;
	for (unsigned i = 0; i < COUPLES; i++)
		start_couple(&couples[i]);
	for (unsigned round = 0; round < rounds; round++) {
		unsigned kind = random_below(&state, 8);
		uint32_t one = 1u << random_below(&state, COUPLES);
		uint32_t all = (1u << COUPLES) - 1;

		uint32_t which = kind > 1 ? one : kind ? all & ~one : all;

		pass_some_time();
		if (random_below(&state, 3) == 0)
			stop_some(which);
		kill_some(which);
	}
	for (unsigned i = 0; i < COUPLES; i++) {
		await_steps(&couples[i], STEPS);
		kill_couple(&couples[i]);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 's' },
		{ 0 },
	};
	const struct CMUnitTest tests[] = { cmocka_unit_test(sharers_die) };
	atomic_uint *steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int option;

	for (unsigned i = 0; i < COUPLES; i++)
		couples[i].steps = &steps[i];
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'r')
			rounds = atoi(optarg);
		else if (option == 's')
			state = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	return cmocka_run_group_tests_name("sharers_killed", tests, NULL, NULL);
}
