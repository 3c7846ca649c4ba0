/* SPDX-License-Identifier: MIT */
/*
 * Every operation, of every size, in both directions, between two processes with a
 * device each, and every byte compared.
 *
 * 	udp_traffic [--a DEVICE] [--b DEVICE] [--ipv6] [--mtu BYTES] [--max BYTES]
 * 		    [--only OPCODE] [--quick] [--timeout CODE]
 * 		    [--faults LOST,DOUBLED,LATE,FULL] [--seed N]
 *
 * A DEVICE is as peer_parse() has it. Faults are in 1000 datagrams that a soft device
 * sends.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/udp_faults.h"
#include "lib/udp_peer.h"

static const uint32_t sizes[] = {
	0,	  1,
	2,	  3,
	4,	  5,
	63,	  64,
	255,	  1023,
	1024,	  1025,
	4095,	  4096,
	4097,	  8192,
	12289,	  65535,
	65536,	  100001,
	1u << 18, (1u << 20) - 1,
	1u << 20, (2u << 20) + 7,
	8u << 20,
};

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_CMP_AND_SWP,
};

static const char *const opcode_names[] = {
	[IBV_WR_SEND] = "SEND",
	[IBV_WR_SEND_WITH_IMM] = "SEND with immediate",
	[IBV_WR_RDMA_WRITE] = "WRITE",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE with immediate",
	[IBV_WR_RDMA_READ] = "READ",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWAP",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BURST	     512u
#define BURST_SIZE   16001u

struct run {
	struct peer peer;
	bool first;	/* of the two processes: it says how it went */
	unsigned tests; /* so far */
	unsigned seed;
	uint32_t max; /* of sizes */
	unsigned step;
	int only; /* this opcode; -1: all */
};

static void report(struct run *run, const char *what, const char *direction)
{
	run->tests++;
	if (!run->first)
		return;
	printf("ok %u - %s, %s\n", run->tests, what, direction);
	fflush(stdout);
}

static void check_bytes(struct run *run, const uint8_t *bytes, uint32_t length)
{
	if (!peer_filled(bytes, length, run->seed))
		peer_fail(&run->peer, "%u bytes are not as sent", length);
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void check_receive(struct run *run, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_wc wc = peer_wait_good(&run->peer);
	enum ibv_wc_opcode expected = opcode == IBV_WR_RDMA_WRITE_WITH_IMM
					      ? IBV_WC_RECV_RDMA_WITH_IMM
					      : IBV_WC_RECV;

	if (wc.opcode != expected || wc.byte_len != length)
		peer_fail(&run->peer, "received opcode %d with %u bytes, not %u",
			  wc.opcode, wc.byte_len, length);
	if (opcode != IBV_WR_SEND && wc.imm_data != htobe32(length))
		peer_fail(&run->peer, "immediate %x", be32toh(wc.imm_data));
}

/* The process that only owns the memory. */
static void be_target(struct run *run, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct peer *peer = &run->peer;

	memset(peer_in(peer), 0, length);
	if (opcode == IBV_WR_RDMA_READ)
		peer_fill(peer_out(peer), length, run->seed);
	if (takes_receive(opcode))
		peer_post_recv(peer, PEER_AREA, length);
	peer_meet(peer);
	if (takes_receive(opcode))
		check_receive(run, opcode, length);
	peer_meet(peer);
	if (opcode != IBV_WR_RDMA_READ)
		check_bytes(run, peer_in(peer), length);
	peer_meet(peer);
}

static void be_asker(struct run *run, enum ibv_wr_opcode opcode, uint32_t length)
{
	bool read = opcode == IBV_WR_RDMA_READ;
	struct peer *peer = &run->peer;

	memset(peer_in(peer), 0, length);
	peer_fill(peer_out(peer), length, run->seed);
	peer_meet(peer);
	peer_post(peer, opcode, read ? PEER_AREA : 0, read ? 0 : PEER_AREA, length, 0);
	peer_wait_good(peer);
	if (read)
		check_bytes(run, peer_in(peer), length);
	peer_meet(peer);
	peer_meet(peer);
}

/* Atomics: each of a few adds, or the first of them swaps. */
static void be_asker_of_atomics(struct run *run, enum ibv_wr_opcode opcode)
{
	bool add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct peer *peer = &run->peer;
	uint64_t before[16];

	peer_meet(peer);
	for (unsigned i = 0; i < COUNT(before); i++)
		peer_post(peer, opcode, PEER_AREA + 8 * i, 0, 8, add ? i + 1 : 1000);
	for (unsigned i = 0; i < COUNT(before); i++)
		peer_wait_good(peer);
	memcpy(before, peer_in(peer), sizeof(before));
	for (unsigned i = 0; i < COUNT(before); i++) {
		uint64_t expected = add ? 1000 + i * (i + 1) / 2 : i ? 3000 : 1000;

		if (before[i] != expected)
			peer_fail(peer, "atomic %u found %llu instead of %llu", i,
				  (unsigned long long)before[i],
				  (unsigned long long)expected);
	}
	peer_meet(peer);
}

static void be_target_of_atomics(struct run *run, enum ibv_wr_opcode opcode)
{
	uint64_t value = 1000, expected = 1000 + 16 * 17 / 2;
	struct peer *peer = &run->peer;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		expected = 3000;
	memcpy(peer_out(peer), &value, sizeof(value));
	peer_meet(peer);
	peer_meet(peer);
	memcpy(&value, peer_out(peer), sizeof(value));
	if (value != expected)
		peer_fail(peer, "after atomics it is %llu", (unsigned long long)value);
}

static void one(struct run *run, enum ibv_wr_opcode opcode, uint32_t length, bool asks)
{
	bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		      opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	run->seed++;
	if (atomic && asks)
		be_asker_of_atomics(run, opcode);
	else if (atomic)
		be_target_of_atomics(run, opcode);
	else if (asks)
		be_asker(run, opcode, length);
	else
		be_target(run, opcode, length);
}

/* Both ask at the same time, with as many requests under way as there may be. */
static void burst(struct run *run)
{
	struct peer *peer = &run->peer;
	unsigned posted = 0, done = 0;

	run->seed++;
	peer_fill(peer_out(peer), PEER_AREA, run->seed);
	memset(peer_in(peer), 0, PEER_AREA);
	peer_meet(peer);
	for (; done < BURST; done++) {
		for (; posted < BURST && posted - done < PEER_DEPTH; posted++) {
			uint64_t at = (uint64_t)posted / 2 * BURST_SIZE;

			/* The first half is written by the peer, the second read. */
			if (posted % 2)
				peer_post(peer, IBV_WR_RDMA_READ,
					  PEER_AREA + PEER_AREA / 2 + at,
					  PEER_AREA / 2 + at, BURST_SIZE, 0);
			else
				peer_post(peer, IBV_WR_RDMA_WRITE, at, PEER_AREA + at,
					  BURST_SIZE, 0);
		}
		peer_wait_good(peer);
	}
	peer_meet(peer);
	for (unsigned half = 0; half < 2; half++)
		if (memcmp(peer_in(peer) + half * (PEER_AREA / 2),
			   peer_out(peer) + half * (PEER_AREA / 2),
			   BURST / 2 * BURST_SIZE) != 0)
			peer_fail(peer, "%s bytes are not as sent",
				  half ? "read" : "written");
	peer_meet(peer);
}

static unsigned play(struct run *run)
{
	for (unsigned i = 0; i < COUNT(opcodes); i++)
		for (unsigned direction = 0; direction < 2; direction++) {
			if (run->only >= 0 && run->only != (int)opcodes[i])
				continue;
			bool asks = run->first == !direction;
			bool atomic = opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ||
				      opcodes[i] == IBV_WR_ATOMIC_CMP_AND_SWP;

			for (unsigned j = 0;
			     j < COUNT(sizes) && !(atomic && j) && sizes[j] <= run->max;
			     j += run->step)
				one(run, opcodes[i], sizes[j], asks);
			report(run, opcode_names[opcodes[i]],
			       direction ? "b asks a" : "a asks b");
		}
	if (run->only < 0 && run->max >= BURST_SIZE) {
		burst(run);
		report(run, "WRITEs and READs", "both at once");
	}
	return run->tests;
}

static void report_faults(const struct peer *peer)
{
	struct faults faults = faults_get();

	if (faults.datagrams)
		fprintf(stderr,
			"# %s: of %u datagrams %u lost, %u doubled, %u late; %u times "
			"full\n",
			peer->name, faults.datagrams, faults.lost_count,
			faults.doubled_count, faults.late_count, faults.full_count);
}

static int play_part(struct run run, char *device, const struct peer_opts *common,
		     int with, bool first)
{
	struct peer_opts opts = *common;

	run.first = first;
	run.peer.name = first ? "a" : "b";
	run.peer.with = with;
	peer_parse(device, &opts);
	peer_open(&run.peer, &opts);
	play(&run);
	peer_close(&run.peer);
	report_faults(&run.peer);
	if (first)
		printf("1..%u\n", run.tests);
	return 0;
}

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--a DEVICE] [--b DEVICE] [--ipv6] [--mtu BYTES] "
		"[--max BYTES] [--only OPCODE] [--quick] [--timeout CODE] "
		"[--faults LOST,DOUBLED,LATE,FULL] [--seed N]\n",
		program);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "a", required_argument, NULL, 'a' },
		{ "b", required_argument, NULL, 'b' },
		{ "mtu", required_argument, NULL, 'm' },
		{ "ipv6", no_argument, NULL, '6' },
		{ "max", required_argument, NULL, 'x' },
		{ "only", required_argument, NULL, 'o' },
		{ "quick", no_argument, NULL, 'q' },
		{ "timeout", required_argument, NULL, 't' },
		{ "faults", required_argument, NULL, 'f' },
		{ "seed", required_argument, NULL, 's' },
		{ 0 },
	};
	char soft_a[] = "soft", soft_b[] = "soft";
	char *a = soft_a, *b = soft_b;
	struct peer_opts opts = { .mtu = IBV_MTU_4096 };
	struct faults faults = { .seed = 1 };
	struct run run = { .max = PEER_AREA, .step = 1, .only = -1 };
	int option, pair[2], status, ret;
	pid_t child;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'a')
			a = optarg;
		else if (option == 'b')
			b = optarg;
		else if (option == 'm')
			opts.mtu = (enum ibv_mtu)(__builtin_ctz(atoi(optarg)) - 7);
		else if (option == '6')
			opts.ipv6 = true;
		else if (option == 'q')
			run.step = 4;
		else if (option == 't')
			opts.timeout = atoi(optarg);
		else if (option == 'o')
			run.only = atoi(optarg);
		else if (option == 'x')
			run.max = strtoul(optarg, NULL, 10);
		else if (option == 's')
			faults.seed = strtoull(optarg, NULL, 10);
		else if (option != 'f' ||
			 sscanf(optarg, "%u,%u,%u,%u", &faults.lost, &faults.doubled,
				&faults.late, &faults.full) < 1)
			return usage(argv[0]);
	}
	/* A segment that is sent by itself is not as the ICRC says, and rxe minds. */
	if (faults.lost || faults.doubled || faults.late)
		faults.segments_error = EIO;
	/* Where nothing gets lost, only a thread that waits for a processor is late. */
	else if (!opts.timeout)
		opts.timeout = 17;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 1;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		faults.seed += 1000003;
		faults_set(faults);
		exit(play_part(run, b, &opts, pair[1], false));
	}
	close(pair[1]);
	faults_set(faults);
	ret = play_part(run, a, &opts, pair[0], true);
	if (waitpid(child, &status, 0) != child || status)
		ret = 1;
	return ret;
}
