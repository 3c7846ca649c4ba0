/* SPDX-License-Identifier: MIT */
/*
 * Soft devices between two processes, each compared with the same done by plain
 * sockets: a TCP stream, UDP with segmentation offload, a UDP ping-pong.
 */
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/bench.h"
#include "soft/end.h"
#include "soft/iperf.h"
#include "soft/resources.h"
#include "soft/shm.h"
#include "soft/virtual.h"

#define MIB   (1u << 20)
#define BATCH END_BATCH
#define SMALL 64
/* There and back, in one pass. */
#define ROUNDS	 2000
#define WARM	 50
#define WARM_MIB 4
/* Beside iperf3: in one go, and how often. */
#define LONG_MIB 64
#define TURNS	 5
/* What an RDMA packet of 64 bytes is with its headers. */
#define DATAGRAM (12 + 16 + SMALL + 4)

static unsigned char bytes[MIB];

/* What the other process does; each role has a process, and a socket to it. */
typedef void (*role_fn)(int control);

static int start_role(role_fn role)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		bench_other_core();
		role(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	return pair[0];
}

/* A socket on loopback, which the other process has told or is told of. TCP chooses the size
 * of its buffers itself: a stream whose buffer has been set takes ten times as long on some
 * hosts. */
static int bound_loopback_socket(int type, struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);
	int fd = socket(AF_INET, type, 0), buffer = 4 << 20;

	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (type == SOCK_DGRAM)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	if (bind(fd, (struct sockaddr *)address, sizeof(*address)) ||
	    getsockname(fd, (struct sockaddr *)address, &size))
		die("bind");
	return fd;
}

/* UDP, connected with that of the other process. */
static int connect_udp_sockets(int control)
{
	struct sockaddr_in ours, theirs;
	int fd = bound_loopback_socket(SOCK_DGRAM, &ours);

	if (write(control, &ours, sizeof(ours)) != sizeof(ours) ||
	    read(control, &theirs, sizeof(theirs)) != sizeof(theirs) ||
	    connect(fd, (struct sockaddr *)&theirs, sizeof(theirs)))
		die("the other process is gone");
	return fd;
}

/*
 * One stream of TCP
 */

/* Says so for every MiB that it has got. */
static void drain_stream(int control)
{
	struct sockaddr_in address;
	int fd = bound_loopback_socket(SOCK_STREAM, &address);
	size_t total = 0;
	ssize_t got;

	if (listen(fd, 1) || write(control, &address, sizeof(address)) < 0)
		die("listen");
	fd = accept(fd, NULL, NULL);
	while ((got = read(fd, bytes, sizeof(bytes))) > 0) {
		total += got;
		for (; total >= MIB; total -= MIB)
			if (write(fd, "", 1) != 1)
				die("write");
	}
}

static int connect_stream(void)
{
	int control = start_role(drain_stream), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address;

	if (read(control, &address, sizeof(address)) != sizeof(address) ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die("connect");
	return fd;
}

/* It is over when all has arrived: sockets hold many MiB. */
static void stream_mib(void *arg, unsigned count)
{
	int fd = *(int *)arg;
	char done[64];

	for (unsigned i = 0; i < count; i++)
		for (size_t sent = 0; sent < MIB;) {
			ssize_t wrote = write(fd, bytes + sent, MIB - sent);

			if (wrote <= 0)
				die("write");
			sent += wrote;
		}
	while (count) {
		ssize_t got = read(fd, done, count < 64 ? count : 64);

		if (got <= 0)
			die("read");
		count -= got;
	}
}

/*
 * UDP, cut and joined by the kernel
 */

/* Tells how many datagrams came with each message. */
static void count_datagrams(int control)
{
	int fd = connect_udp_sockets(control), on = 1;

	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	for (;;) {
		ssize_t got = recv(fd, bytes, 65536, 0);
		uint32_t datagrams = got / DATAGRAM;

		if (got < 0 || send(fd, &datagrams, sizeof(datagrams), 0) < 0)
			die("recv");
	}
}

static void send_datagrams(void *arg, unsigned count)
{
	int fd = *(int *)arg, size = DATAGRAM;
	unsigned sent = 0, done = 0;

	setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size));
	while (done < count) {
		uint32_t datagrams = 0;

		if (sent < count && sent - done < 4 * BATCH) {
			if (send(fd, bytes, BATCH * DATAGRAM, 0) < 0)
				die("send");
			sent += BATCH;
		} else if (recv(fd, &datagrams, sizeof(datagrams), 0) < 0) {
			die("recv");
		}
		done += datagrams;
	}
}

/*
 * UDP, there and back
 */

/* The echoing end spins from one word at the control socket to the next. */
static bool is_told_by_control(int control)
{
	char word;

	return recv(control, &word, 1, MSG_DONTWAIT) == 1;
}

static void echo_datagrams(int control)
{
	int fd = connect_udp_sockets(control);
	char go;

	while (read(control, &go, 1) == 1)
		for (unsigned i = 1; i % 64 || !is_told_by_control(control); i++)
			if (recv(fd, bytes, DATAGRAM, MSG_DONTWAIT) > 0)
				send(fd, bytes, DATAGRAM, 0);
}

struct partner {
	int control;
	int fd;
	struct end end;
};

static void tell_partner(void *arg)
{
	if (write(((struct partner *)arg)->control, "", 1) != 1)
		die("the other process is gone");
}

static void ping_datagrams(void *arg, unsigned count)
{
	int fd = ((struct partner *)arg)->fd;

	for (unsigned i = 0; i < count; i++) {
		send(fd, bytes, DATAGRAM, 0);
		while (recv(fd, bytes, DATAGRAM, MSG_DONTWAIT) < 0)
			;
	}
}

/* What is compared is spinning, not waking up: before a pass both have begun to. */
static void warm_datagrams(void *arg)
{
	tell_partner(arg);
	ping_datagrams(arg, WARM);
}

static void time_datagrams(void *arg, unsigned count)
{
	ping_datagrams(arg, count);
	tell_partner(arg);
}

/*
 * Soft devices
 */

static void be_written_to(int control)
{
	struct end end;
	char never;

	end_open(&end, control);
	if (read(control, &never, 1) < 0)
		die("read");
}

static void echo_writes(int control)
{
	struct end end;
	char go;

	end_open(&end, control);
	end_expect(&end);
	if (write(control, "", 1) != 1)
		die("write");
	while (read(control, &go, 1) == 1)
		for (unsigned i = 1; i % 64 || !is_told_by_control(control); i++)
			if (end_notified(&end))
				end_notify(&end, SMALL);
}

static void write_mib(void *arg, unsigned count)
{
	struct end *end = arg;
	unsigned posted = 0, done = 0;

	while (done < count) {
		for (; posted < count && posted - done < 4; posted++)
			end_post_write(end, MIB, 1);
		end_wait(end, 1);
		done++;
	}
}

static void write_small(void *arg, unsigned count)
{
	struct end *end = arg;
	unsigned posted = 0, done = 0;

	while (done < count) {
		for (; posted < count && posted - done < 4 * BATCH; posted += BATCH)
			end_post_write(end, SMALL, BATCH);
		end_wait(end, 1);
		done += BATCH;
	}
}

/* From the post to the answer. That what was sent has arrived is told by the answer: as
 * usual, completions of sends are asked for now and then only. */
static void ping_writes(void *arg, unsigned count)
{
	struct end *end = &((struct partner *)arg)->end;

	for (unsigned i = 0; i < count; i++) {
		end_notify(end, SMALL);
		while (!end_notified(end))
			;
	}
}

static void warm_writes(void *arg)
{
	tell_partner(arg);
	ping_writes(arg, WARM);
}

static void time_writes(void *arg, unsigned count)
{
	ping_writes(arg, count);
	tell_partner(arg);
}

static void open_echo(struct partner *partner)
{
	char ready;

	partner->control = start_role(echo_writes);
	end_open(&partner->end, partner->control);
	end_expect(&partner->end);
	if (read(partner->control, &ready, 1) != 1)
		die("read");
}

/*
 * Cases take turns, so that each finds caches full of the others' bytes, and a peer
 * that sleeps. What is compared is how fast they go on, not how they begin.
 */

static void warm_stream(void *arg)
{
	stream_mib(arg, WARM_MIB);
}

static void warm_mib(void *arg)
{
	write_mib(arg, WARM_MIB);
}

static void warm_copy(void *arg)
{
	shm_copy_mib(arg, WARM_MIB);
}

static void add_writes(struct bench *bench, const char *name, struct end *end,
		       const char *baseline)
{
	bench_prepared_case(bench, name, warm_mib, write_mib, end, 16, baseline);
}

static double write_for_a_second(struct end *end)
{
	struct timespec begin, now;
	unsigned count = 0;
	double ns;

	write_mib(end, WARM_MIB);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		write_mib(end, LONG_MIB);
		count += LONG_MIB;
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (now.tv_sec - begin.tv_sec) * 1e9 + (now.tv_nsec - begin.tv_nsec);
	} while (ns < 1e9);
	return ns / count;
}

/* iperf3 writes for a second, of which the mean counts, and does not wait until
 * something is known to have arrived. So do we, in turns with it. */
static void compare_with_iperf(struct bench *bench, struct end *udp, struct end *shm)
{
	double of_iperf[TURNS], of_udp[TURNS], of_shm[TURNS];

	if (!bench_wants(bench, "iperf3-write-1m"))
		return;
	for (unsigned i = 0; i < TURNS; i++) {
		of_iperf[i] = iperf_write_mib();
		if (!(of_iperf[i] > 0)) {
			fprintf(stderr, "soft: no iperf3 to compare with\n");
			return;
		}
		of_udp[i] = write_for_a_second(udp);
		of_shm[i] = write_for_a_second(shm);
	}
	bench_value(bench, "iperf3-write-1m", bench_median(of_iperf, TURNS), "ns",
		    NULL);
	bench_value(bench, "iperf3-write-1m-udp", bench_median(of_udp, TURNS), "ns",
		    "iperf3-write-1m");
	bench_value(bench, "iperf3-write-1m-shm", bench_median(of_shm, TURNS), "ns",
		    "iperf3-write-1m");
}

/*
 * Virtual QPs: four lanes on one device, beside one lane
 */

struct virtual_set {
	struct virtual_end echo, taker, target;
};

static void open_virtual(struct virtual_end *end, role_fn role, bool answers)
{
	char ready;

	virtual_open(end, start_role(role));
	if (answers && read(end->control, &ready, 1) != 1)
		die("read");
}

static void open_virtual_set(struct virtual_set *set, unsigned lanes)
{
	virtual_lanes = lanes;
	open_virtual(&set->echo, virtual_echo, true);
	open_virtual(&set->taker, virtual_take, true);
	open_virtual(&set->target, virtual_be_written_to, false);
}

/* Names of the cases of one set, in the order of its ends. */
static void add_virtual_set(struct bench *bench, struct virtual_set *set,
			    const char *const name[3], const char *const baseline[3])
{
	bench_prepared_case(bench, name[0], virtual_warm_pings, virtual_pings,
			    &set->echo, ROUNDS, baseline[0]);
	bench_prepared_case(bench, name[1], virtual_warm_notes, virtual_notes,
			    &set->taker, 4096, baseline[1]);
	bench_case(bench, name[2], virtual_writes, &set->target, 4096, baseline[2]);
}

static void add_virtual(struct bench *bench, struct virtual_set set[4])
{
	static const char *const none[3] = { NULL, NULL, NULL };
	static const char *const names[4][3] = {
		{ "imm-latency-64b-1lane", "imm-rate-64b-1lane",
		  "write-rate-64b-1lane" },
		{ "imm-latency-64b-4lane", "imm-rate-64b-4lane",
		  "write-rate-64b-4lane" },
		{ "udp-imm-latency-64b-1lane", "udp-imm-rate-64b-1lane",
		  "udp-write-rate-64b-1lane" },
		{ "udp-imm-latency-64b-4lane", "udp-imm-rate-64b-4lane",
		  "udp-write-rate-64b-4lane" },
	};

	for (unsigned i = 0; i < 4; i++)
		add_virtual_set(bench, &set[i], names[i], i % 2 ? names[i - 1] : none);
}

int main(int argc, char **argv)
{
	static struct partner datagrams, writes, shm_writes;
	static struct end target, shm_target, made_target;
	static struct virtual_set virtual_set[4];
	struct bench *bench;
	int stream, counter, control, peer;

	/* First of all, so that each process keeps to its core. */
	bench = bench_begin("soft", argc, argv);
	setenv("SENNIT_SOFT_SHM", "off", 1);
	peer = start_role(resources_be_peer);
	stream = connect_stream();
	control = start_role(count_datagrams);
	counter = connect_udp_sockets(control);
	datagrams.control = start_role(echo_datagrams);
	datagrams.fd = connect_udp_sockets(datagrams.control);
	end_open(&target, start_role(be_written_to));
	open_echo(&writes);
	setenv("SENNIT_SOFT_SHM", "on", 1);
	end_open(&shm_target, start_role(be_written_to));
	end_open_made(&made_target, start_role(be_written_to));
	open_echo(&shm_writes);
	open_virtual_set(&virtual_set[0], 1);
	open_virtual_set(&virtual_set[1], 4);
	setenv("SENNIT_SOFT_SHM", "off", 1);
	open_virtual_set(&virtual_set[2], 1);
	open_virtual_set(&virtual_set[3], 4);
	bench_prepared_case(bench, "tcp-write-1m", warm_stream, stream_mib, &stream, 16,
			    NULL);
	add_writes(bench, "udp-write-1m", &target, "tcp-write-1m");
	bench_case(bench, "gso-rate-64b", send_datagrams, &counter, 16384, NULL);
	bench_case(bench, "udp-rate-64b", write_small, &target, 16384, "gso-rate-64b");
	bench_prepared_case(bench, "ping-latency-64b", warm_datagrams, time_datagrams,
			    &datagrams, ROUNDS, NULL);
	bench_prepared_case(bench, "udp-latency-64b", warm_writes, time_writes, &writes,
			    ROUNDS, "ping-latency-64b");
	bench_prepared_case(bench, "memcpy-write-1m", warm_copy, shm_copy_mib, NULL, 16,
			    NULL);
	add_writes(bench, "shm-write-1m", &shm_target, "memcpy-write-1m");
	add_writes(bench, "shm-write-1m-made", &made_target, "memcpy-write-1m");
	add_writes(bench, "shm-write-1m-tcp", &shm_target, "tcp-write-1m");
	bench_case(bench, "shm-rate-64b", write_small, &shm_target, 4096,
		   "gso-rate-64b");
	bench_prepared_case(bench, "shm-latency-64b", warm_writes, time_writes,
			    &shm_writes, ROUNDS, "ping-latency-64b");
	add_virtual(bench, virtual_set);
	compare_with_iperf(bench, &target, &shm_target);
	resources_measure(bench, peer);
	return bench_end(bench);
}
