/* SPDX-License-Identifier: MIT */
/*
 * What soft devices cost beside time: memory for each of 1,000 connected QPs, processor
 * time while nothing happens, and processor time for each byte on one device and on two.
 */
#include <malloc.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "soft/resources.h"

#define QPS	1000
#define DEPTH	64
#define WRITES	256
#define AHEAD	2
#define DEVICES 2

static size_t heap_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static struct snt_ctx *open_soft_devices(void)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };
	struct snt_ctx *ctx;

	if (snt_ctx_create(&opts, &ctx))
		die("open");
	return ctx;
}

/* Pairs of them, between the two devices of one context. */
static void measure_memory(struct bench *bench)
{
	struct snt_ctx *ctx = open_soft_devices();
	struct end one, other;
	size_t before;

	end_make(&one, snt_ctx_device(ctx, 0), 1, aligned_alloc(4096, END_BYTES));
	end_make(&other, snt_ctx_device(ctx, 1), 1, aligned_alloc(4096, END_BYTES));
	before = heap_in_use();
	for (unsigned i = 0; i < QPS / 2; i++) {
		end_add_qp(&one, DEPTH);
		end_add_qp(&other, DEPTH);
		end_pair(&one, &other);
	}
	bench_value(bench, "udp-qp-memory-1000", (double)(heap_in_use() - before) / QPS,
		    "bytes", NULL);
}

static void measure_idleness(struct bench *bench)
{
	uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	sleep(1);
	bench_value(bench, "udp-idle-second",
		    (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin),
		    "ns of processor time", NULL);
}

/* The peer is another process, whose time counts as well. */
struct pipes {
	unsigned count;
	clockid_t peer;
	struct end end[DEVICES];
};

void resources_be_peer(int control)
{
	struct snt_ctx *ctx = open_soft_devices();
	struct end end[DEVICES];
	pid_t pid = getpid();
	char never;

	for (unsigned i = 0; i < DEVICES; i++) {
		end_make(&end[i], snt_ctx_device(ctx, i), 1,
			 aligned_alloc(4096, END_BYTES));
		end_add_qp(&end[i], END_DEPTH);
		end_meet(&end[i], control);
	}
	if (write(control, &pid, sizeof(pid)) < 0 || read(control, &never, 1) < 0)
		die("the other process is gone");
}

static void open_pipes(struct pipes *pipes, int control)
{
	struct snt_ctx *ctx = open_soft_devices();
	pid_t pid;

	for (unsigned i = 0; i < DEVICES; i++) {
		end_make(&pipes->end[i], snt_ctx_device(ctx, i), 1,
			 aligned_alloc(4096, END_BYTES));
		end_add_qp(&pipes->end[i], END_DEPTH);
		end_meet(&pipes->end[i], control);
	}
	if (read(control, &pid, sizeof(pid)) != sizeof(pid) ||
	    clock_getcpuclockid(pid, &pipes->peer))
		die("the other process is gone");
}

static uint64_t time_of_both(const struct pipes *pipes)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) + clock_ns(pipes->peer);
}

/* Returns ns of processor time for each byte written over so many devices, all of which are
 * polled in turn. */
static double write_over(struct pipes *pipes, unsigned devices)
{
	uint64_t begin = time_of_both(pipes);
	unsigned posted = 0, done = 0;

	for (; posted < AHEAD * devices; posted++)
		end_post_write(&pipes->end[posted % devices], END_BYTES, 1);
	for (unsigned i = 0; done < WRITES; i++) {
		struct end *end = &pipes->end[i % devices];

		if (!end_poll(end))
			continue;
		done++;
		if (posted++ < WRITES)
			end_post_write(end, END_BYTES, 1);
	}
	return (double)(time_of_both(pipes) - begin) / WRITES / END_BYTES;
}

static void measure_devices(struct bench *bench, int control)
{
	struct pipes pipes;
	double best[DEVICES + 1] = { 0 };

	open_pipes(&pipes, control);
	for (unsigned pass = 0; pass < 5; pass++)
		for (unsigned devices = 1; devices <= DEVICES; devices++) {
			double cost = write_over(&pipes, devices);

			if (!pass || cost < best[devices])
				best[devices] = cost;
		}
	bench_value(bench, "udp-cpu-1-device", best[1], "ns/byte", NULL);
	bench_value(bench, "udp-cpu-2-devices", best[2], "ns/byte", "udp-cpu-1-device");
}

void resources_measure(struct bench *bench, int control)
{
	if (bench_wants(bench, "udp-cpu"))
		measure_devices(bench, control);
	if (bench_wants(bench, "udp-qp-memory"))
		measure_memory(bench);
	if (bench_wants(bench, "udp-idle"))
		measure_idleness(bench);
}
