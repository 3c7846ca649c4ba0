/* SPDX-License-Identifier: MIT */
/*
 * Streams between two processes, each case beside the same program on TCP. Values are
 * times, so that a ratio below 1 means that the stream is faster.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/bench.h"
#include "stream/link.h"

#define MIB		  (1u << 20)
#define SMALL		  64
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define CPU_SAMPLES	  15
#define DEPTH_ROUNDS	  5
#define PER_DEPTH	  20000
#define APART_NS	  1000000
#define APART_SAMPLES	  9
#define APART_COUNT	  50

static unsigned char bytes[MIB];

/* What the other process is to do. */
struct order {
	enum {
		SINK,
		ECHO,
		CPU
	} kind;
	uint64_t length; /* bytes in all */
	bool spins;
};

struct end {
	struct link link;
	int control;
	/* The shape of the next echo. */
	unsigned depth;
	bool spins;
};

static uint64_t cpu_ns(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000 +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

/*
 * The other process
 */

static void sink_bytes(struct link *link, uint64_t length)
{
	while (length)
		length -= link->table->read(link, bytes,
					    length < MIB ? (size_t)length : MIB, false);
	link_write_all(link, "!", 1, false);
}

static void echo_bytes(struct link *link, uint64_t length, bool spins)
{
	while (length) {
		size_t part = link->table->read(link, bytes, MIB, spins);

		link_write_all(link, bytes, part, spins);
		length -= part;
	}
}

static void serve_orders(struct link *link, int control)
{
	struct order order;

	while (read(control, &order, sizeof(order)) == sizeof(order)) {
		uint64_t spent = cpu_ns();

		if (order.kind == SINK)
			sink_bytes(link, order.length);
		else if (order.kind == ECHO)
			echo_bytes(link, order.length, order.spins);
		link->table->flush(link);
		if (order.kind == CPU && write(control, &spent, sizeof(spent)) < 0)
			die("control");
	}
}

static void start_stream_end(struct end *end,
			     void (*listen)(struct link *link, int control),
			     void (*connect)(struct link *link, int control))
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		bench_other_core();
		listen(&end->link, pair[1]);
		serve_orders(&end->link, pair[1]);
		_exit(0);
	}
	close(pair[1]);
	end->control = pair[0];
	connect(&end->link, pair[0]);
}

static void give_order(const struct end *end, struct order order)
{
	if (write(end->control, &order, sizeof(order)) < 0)
		die("control");
}

/*
 * Cases
 */

static void run_throughput(void *arg, unsigned count)
{
	struct end *end = arg;
	char done;

	give_order(end, (struct order){ SINK, (uint64_t)count * MIB, false });
	for (unsigned i = 0; i < count; i++)
		link_write_all(&end->link, bytes, MIB, false);
	link_read_all(&end->link, &done, 1, false);
}

/* One question after the other. */
static void run_latency(void *arg, unsigned count)
{
	struct end *end = arg;
	unsigned char answer[SMALL];

	give_order(end, (struct order){ ECHO, (uint64_t)count * SMALL, true });
	for (unsigned i = 0; i < count; i++) {
		link_write_all(&end->link, bytes, SMALL, true);
		link_read_all(&end->link, answer, SMALL, true);
	}
}

/* The same, and both ends sleep until something comes, without spinning. */
static void run_asleep(void *arg, unsigned count)
{
	struct end *end = arg;
	unsigned char answer[SMALL];

	give_order(end, (struct order){ ECHO, (uint64_t)count * SMALL, false });
	for (unsigned i = 0; i < count; i++) {
		link_write_all(&end->link, bytes, SMALL, false);
		link_read_all(&end->link, answer, SMALL, false);
	}
}

/* So many questions are under way at a time, each written by itself. */
static void run_rate(void *arg, unsigned count)
{
	struct end *end = arg;
	static unsigned char answers[65536];
	const struct link_table *table = end->link.table;
	uint64_t out = 0, in = 0, all = (uint64_t)count * SMALL;
	uint64_t window = (uint64_t)end->depth * SMALL;

	give_order(end, (struct order){ ECHO, all, true });
	while (in < all) {
		if (out < all && out - in < window)
			out += table->try_write(&end->link, bytes, SMALL - out % SMALL);
		if (out == all || out - in >= window)
			in += table->try_read(&end->link, answers, sizeof(answers));
	}
}

static uint64_t cpu_of_both(const struct end *end)
{
	uint64_t other;

	give_order(end, (struct order){ CPU, 0, false });
	if (read(end->control, &other, sizeof(other)) != sizeof(other))
		die("control");
	return other + cpu_ns();
}

static double cpu_per_kib(struct end *end, unsigned count)
{
	uint64_t begin = cpu_of_both(end);

	run_throughput(end, count);
	return (double)(cpu_of_both(end) - begin) / (count * 1024.0);
}

/* In turns, as times are taken: one sample says little on a machine with others. */
static void compare_cpu(struct bench *bench, struct end *tcp, struct end *stream)
{
	double of_tcp[CPU_SAMPLES], of_stream[CPU_SAMPLES];

	for (unsigned i = 0; i < CPU_SAMPLES; i++) {
		of_tcp[i] = cpu_per_kib(tcp, 32);
		of_stream[i] = cpu_per_kib(stream, 32);
	}
	bench_value(bench, "tcp-cpu", bench_median(of_tcp, CPU_SAMPLES), "ns/KiB",
		    NULL);
	bench_value(bench, "cpu", bench_median(of_stream, CPU_SAMPLES), "ns/KiB",
		    "tcp-cpu");
}

static double monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The time of one question, in ns, when there is a pause before each. */
static double time_apart(struct end *end)
{
	const struct timespec pause = { .tv_nsec = APART_NS };
	unsigned char answer[SMALL];
	double spent = 0;

	give_order(end, (struct order){ ECHO, APART_COUNT * SMALL, false });
	for (unsigned i = 0; i < APART_COUNT; i++) {
		double begin;

		nanosleep(&pause, NULL);
		begin = monotonic_seconds();
		link_write_all(&end->link, bytes, SMALL, false);
		link_read_all(&end->link, answer, SMALL, false);
		spent += monotonic_seconds() - begin;
	}
	return spent * 1e9 / APART_COUNT;
}

/* In turns, as the cases are. */
static void measure_apart(struct bench *bench, struct end *tcp, struct end *shm,
			  struct end *udp)
{
	double of_tcp[APART_SAMPLES], of_shm[APART_SAMPLES], of_udp[APART_SAMPLES];

	for (unsigned i = 0; i < APART_SAMPLES; i++) {
		of_tcp[i] = time_apart(tcp);
		of_shm[i] = time_apart(shm);
		of_udp[i] = time_apart(udp);
	}
	bench_value(bench, "tcp-apart-64b-sleeping",
		    bench_median(of_tcp, APART_SAMPLES), "ns", NULL);
	bench_value(bench, "apart-64b-sleeping-shm",
		    bench_median(of_shm, APART_SAMPLES), "ns",
		    "tcp-apart-64b-sleeping");
	bench_value(bench, "apart-64b-sleeping-udp",
		    bench_median(of_udp, APART_SAMPLES), "ns",
		    "tcp-apart-64b-sleeping");
}

static double rate_at(struct end *end, unsigned depth)
{
	unsigned count = depth < 16 ? PER_DEPTH / 10 : PER_DEPTH;
	double begin = monotonic_seconds();

	end->depth = depth;
	run_rate(end, count);
	return count / (monotonic_seconds() - begin);
}

/* The most that throughput ever falls while depth grows. */
static void measure_depths(struct bench *bench, struct end *end)
{
	static const char *const names[] = { "rate-depth-1",   "rate-depth-4",
					     "rate-depth-16",  "rate-depth-64",
					     "rate-depth-256", "rate-depth-1024",
					     "rate-depth-4096" };
	double speed[ARRAY_SIZE(names)] = { 0 }, best = 0, least = 1;

	/* In turns: the machine's own speed changes from one moment to the next. */
	for (unsigned i = 0; i < DEPTH_ROUNDS * ARRAY_SIZE(names); i++) {
		double *at = &speed[i % ARRAY_SIZE(names)];
		double now = rate_at(end, 1u << 2 * (i % ARRAY_SIZE(names)));

		if (now > *at)
			*at = now;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		bench_value(bench, names[i], speed[i], "messages/s", NULL);
		if (best && speed[i] / best < least)
			least = speed[i] / best;
		if (speed[i] > best)
			best = speed[i];
	}
	bench_value(bench, "rate-depth-worst", least, "of the best before", NULL);
}

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("stream", argc, argv);
	static struct end tcp, stream, udp;

	/* Nothing of a device is in the processes that are forked. */
	start_stream_end(&tcp, tcp_listen, tcp_connect);
	setenv("SENNIT_SOFT_SHM", "on", 0);
	start_stream_end(&stream, stream_listen, stream_connect);
	setenv("SENNIT_SOFT_SHM", "off", 1);
	start_stream_end(&udp, stream_listen, stream_connect);
	tcp.depth = stream.depth = 64;
	bench_case(bench, "tcp-throughput-1m", run_throughput, &tcp, 32, NULL);
	bench_case(bench, "throughput-1m", run_throughput, &stream, 32,
		   "tcp-throughput-1m");
	bench_case(bench, "tcp-echo-64b-latency", run_latency, &tcp, 200, NULL);
	bench_case(bench, "echo-64b-latency", run_latency, &stream, 200,
		   "tcp-echo-64b-latency");
	bench_case(bench, "tcp-echo-64b-sleeping", run_asleep, &tcp, 200, NULL);
	bench_case(bench, "echo-64b-sleeping-shm", run_asleep, &stream, 200,
		   "tcp-echo-64b-sleeping");
	bench_case(bench, "echo-64b-sleeping-udp", run_asleep, &udp, 200,
		   "tcp-echo-64b-sleeping");
	if (bench_wants(bench, "tcp-apart") || bench_wants(bench, "apart"))
		measure_apart(bench, &tcp, &stream, &udp);
	bench_case(bench, "tcp-echo-64b-rate", run_rate, &tcp, 2000, NULL);
	bench_case(bench, "echo-64b-rate", run_rate, &stream, 2000,
		   "tcp-echo-64b-rate");
	if (bench_wants(bench, "tcp-cpu") || bench_wants(bench, "cpu"))
		compare_cpu(bench, &tcp, &stream);
	if (bench_wants(bench, "rate-depth"))
		measure_depths(bench, &stream);
	stream.depth = 64;
	if (bench_wants(bench, "memory"))
		bench_value(bench, "memory", stream_memory(), "bytes/idle stream",
			    NULL);
	return bench_end(bench);
}
