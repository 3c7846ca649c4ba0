/* SPDX-License-Identifier: MIT */
/*
 * Processes that share memory, and one of them is killed, at any moment: the other gets
 * its errors, and nothing is left behind.
 *
 *	killed_test [--rounds N] [--seed N]
 */
#include "lib/test.h"

#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/seeds.h"
#include "udp/peer.h"

#define BATCH  10
#define WRITES 16 /* that are under way when the victim dies */

/* A quarter of a second and some tries, until somebody is given up. */
#define TIMEOUT 14

static unsigned rounds = 20;
static uint64_t state = 1;

/* Of all victims, by process id; as in tests/udp/killed_test.c. */
static const char *victims_address(pid_t process)
{
	static char address[32];

	snprintf(address, sizeof(address), "127.%u.%u.%u", 64 + (process >> 13 & 63),
		 process >> 5 & 255, (process & 31) * 8 + 1);
	return address;
}

/* Writes, reads and is written to, so that it dies in the middle of anything. */
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
	for (unsigned i = 0;; i++) {
		peer_post(&peer, i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0,
			  PEER_AREA, 1 + i % 5 * 50000, 0);
		peer_wait(&peer);
	}
}

static void pass(uint32_t nanoseconds)
{
	struct timespec time = { .tv_nsec = nanoseconds };

	nanosleep(&time, NULL);
}

static unsigned count_lines(const char *path, const char *with)
{
	FILE *file = fopen(path, "r");
	char line[512];
	unsigned count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += !!strstr(line, with);
	fclose(file);
	return count;
}

/* Kills a victim while much is under way, after some of it. */
static void bereave(struct peer *peer)
{
	struct peer_opts opts = { .soft = "", .mtu = IBV_MTU_4096, .timeout = TIMEOUT };
	unsigned writes = random_below(&state, 20);
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
	assert_int_not_equal(count_lines("/proc/self/maps", "sennit-shm"), 0);
	for (unsigned i = 0; i < writes; i++) {
		peer_post(peer, IBV_WR_RDMA_WRITE, 0, PEER_AREA, 50000, 0);
		peer_wait_good(peer);
	}
	for (unsigned i = 0; i < WRITES; i++)
		peer_post(peer, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0,
			  PEER_AREA, 1u << 20, 0);
	pass(random_below(&state, 2000000));
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

/*
 * What could be left
 */

struct remains {
	unsigned fds, maps, sockets;
};

/* Sockets of the victims' address; those of others come and go. */
static struct remains remains(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct remains found = { .maps = count_lines("/proc/self/maps", "sennit-shm") };
	unsigned a, b, c, d;
	char name[16];

	assert_non_null(fds);
	while (readdir(fds))
		found.fds++;
	closedir(fds);
	sscanf(victims_address(getpid()), "%u.%u.%u.%u", &a, &b, &c, &d);
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
			outlive(&peers[i]);
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
