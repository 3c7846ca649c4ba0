/* SPDX-License-Identifier: MIT */
/*
 * Many connections: all at once to one listener, and one after the other for long.
 *
 * usage: conn_storm [--tcp] [--storm COUNT] [--limit SECONDS] [--cycles COUNT]
 */
#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "lib/loopback.h"
#include "lib/patience.h"

struct side {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	const char *address;
};

struct one {
	struct snt_conn *conn[2];
	bool up[2], over[2];
	uint64_t took_ns;
};

static struct side sides[2];
static struct snt_listener *listener;
static struct snt_qp_opts qp_opts[2];
static struct snt_endpoint endpoint = { .size = sizeof(endpoint) };
static struct one *ones;
static unsigned count, up, over, requests;
static unsigned test_number, failures;

static _Noreturn void give_up(const char *what)
{
	printf("Bail out! %s: %s\n", what, snt_err_text());
	exit(1);
}

static void must(int ret, const char *what)
{
	if (ret < 0)
		give_up(what);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void open_side(unsigned number)
{
	struct side *side = &sides[number];
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };

	side->address = loopback_text(number);
	opts.soft_addresses = side->address;
	must(snt_ctx_create(&opts, &side->ctx), "a context");
	must(snt_loop_create(side->ctx, NULL, &side->loop), "a loop");
	cq.loop = side->loop;
	cq.per_device = 64;
	must(snt_cq_create(side->ctx, &cq, &side->cq), "a CQ");
	qp_opts[number] = (struct snt_qp_opts){ .size = sizeof(qp_opts[0]),
						.cq = side->cq,
						.lanes = 1,
						.lane_depth = 16,
						.send_depth = 16,
						.recv_depth = 16 };
}

static void happened(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct one *one = arg;
	unsigned end = conn == one->conn[1];
	struct snt_conn_info info = { .size = sizeof(info) };

	if (event == SNT_CONN_CONNECTED) {
		snt_conn_query(conn, &info);
		one->up[end] = true;
		if (!end)
			one->took_ns = info.setup_took_ns;
		up++;
	} else if (event == SNT_CONN_PEER_DONE) {
		snt_conn_disconnect(conn, 0);
	} else if (event == SNT_CONN_OVER) {
		snt_conn_query(conn, &info);
		if (info.status && ++failures <= 3)
			printf("# connection %u, end %u: %s\n", (unsigned)(one - ones),
			       end, info.text);
		one->over[end] = true;
		over++;
	}
}

static void requested(void *arg, struct snt_listener *from, struct snt_conn *conn)
{
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &qp_opts[1],
				      .event = happened };
	struct snt_conn_info info = { .size = sizeof(info) };
	uint32_t number;

	(void)arg;
	(void)from;
	snt_conn_query(conn, &info);
	memcpy(&number, info.data, sizeof(number));
	requests++;
	ones[number].conn[1] = conn;
	opts.arg = &ones[number];
	must(snt_conn_accept(conn, &opts), "accept");
}

static void begin(uint32_t number)
{
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &qp_opts[0],
				      .event = happened,
				      .arg = &ones[number],
				      .data = &number,
				      .data_length = sizeof(number) };
	struct snt_endpoint to = endpoint;

	to.port = snt_listener_port(listener);
	must(snt_conn_connect(sides[0].loop, &to, &opts, &ones[number].conn[0]),
	     "connect");
}

static void turn(void)
{
	struct pollfd fds[2];

	for (unsigned i = 0; i < 2; i++)
		fds[i] = (struct pollfd){ snt_loop_fd(sides[i].loop), POLLIN, 0 };
	poll(fds, 2, 10);
	for (unsigned i = 0; i < 2; i++)
		must(snt_loop_dispatch(sides[i].loop, 0), "dispatch");
}

static int by_time(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	return x->took_ns < y->took_ns ? -1 : x->took_ns > y->took_ns;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void end_all(void)
{
	uint64_t start = now();

	for (unsigned i = 0; i < count; i++)
		if (ones[i].up[0])
			must(snt_conn_disconnect(ones[i].conn[0], 0), "disconnect");
	while (over < 2 * count && now() - start < patience_ns(30))
		turn();
	for (unsigned i = 0; i < count; i++)
		for (unsigned end = 0; end < 2; end++)
			must(snt_conn_destroy(ones[i].conn[end]), "destroy");
}

static void report(bool good, const char *format, double value, const char *rest)
{
	printf("%sok %u - ", good ? "" : "not ", ++test_number);
	printf(format, count, value);
	printf("%s\n", rest);
}

static void storm(unsigned wanted, double limit)
{
	uint64_t start = now();
	double took;

	count = wanted;
	up = over = requests = 0;
	ones = calloc(count, sizeof(*ones));
	if (!ones)
		give_up("memory");
	for (unsigned i = 0; i < count; i++)
		begin(i);
	while (up + over < 2 * count && now() - start < patience_ns(60))
		turn();
	took = (double)(now() - start) / 1e9;
	report(up == 2 * count && took <= limit, "%u connections at once in %.3f s",
	       took, "");
	printf("# %u ends up, %u over\n", up, over);
	end_all();
	qsort(ones, count, sizeof(*ones), by_time);
	printf("# setup took %.1f ms in the median, %.1f ms at most\n",
	       (double)ones[count / 2].took_ns / 1e6,
	       (double)ones[count - 1].took_ns / 1e6);
	report(over == 2 * count && !failures, "%u connections ended%.0s", 0, "");
	free(ones);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned fds = 0;

	if (!dir)
		give_up("fds");
	while (readdir(dir))
		fds++;
	closedir(dir);
	return fds;
}

/* Of what was allocated. What is resident grows for longer, as pools that were made at the
 * beginning are used for the first time; connection managers remember what is over. */
static long allocated_kib(void)
{
	struct mallinfo2 info = mallinfo2();

	return (long)((info.uordblks + info.hblkhd) / 1024);
}

static void one_cycle(void)
{
	memset(ones, 0, sizeof(*ones));
	up = over = 0;
	begin(0);
	while (up < 2 && !over)
		turn();
	must(snt_conn_disconnect(ones[0].conn[0], 0), "disconnect");
	while (over < 2)
		turn();
	for (unsigned end = 0; end < 2; end++)
		must(snt_conn_destroy(ones[0].conn[end]), "destroy");
}

static void cycle(unsigned cycles)
{
	uint64_t start;
	uint64_t *took = calloc(cycles, sizeof(*took));
	unsigned warm = cycles / 4, fds = 0;
	long kib = 0, grown;
	char rest[96];

	ones = calloc(1, sizeof(*ones));
	count = cycles;
	if (!ones || !took)
		give_up("memory");
	start = now();
	for (unsigned i = 0; i < cycles; i++) {
		if (i == warm) {
			kib = allocated_kib();
			fds = count_fds();
		}
		one_cycle();
		took[i] = ones[0].took_ns;
	}
	grown = allocated_kib() - kib;
	snprintf(rest, sizeof(rest), "; memory grew by %ld KiB, fds by %d", grown,
		 (int)(count_fds() - fds));
	report(grown < 256 && count_fds() == fds, "%u cycles in %.3f s",
	       (double)(now() - start) / 1e9, rest);
	qsort(took, cycles, sizeof(*took), by_number);
	printf("# setup took %.2f ms in the median, %.2f ms for 99 in 100\n",
	       (double)took[cycles / 2] / 1e6, (double)took[cycles * 99 / 100] / 1e6);
	free(took);
	free(ones);
}

int main(int argc, char **argv)
{
	struct snt_listener_opts opts = { .size = sizeof(opts),
					  .requested = requested };
	unsigned wanted = 1000, cycles = 10000;
	double limit = 2;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--tcp"))
			endpoint.carrier = SNT_CARRIER_TCP;
		else if (!strcmp(argv[i], "--storm") && i + 1 < argc)
			wanted = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--cycles") && i + 1 < argc)
			cycles = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--limit") && i + 1 < argc)
			limit = strtod(argv[++i], NULL);
		else
			give_up("usage: conn_storm [--tcp] [--storm COUNT] [--limit "
				"SECONDS] [--cycles COUNT]");
	}
	printf("1..3\n");
	for (unsigned i = 0; i < 2; i++)
		open_side(i);
	endpoint.host = sides[1].address;
	must(snt_listener_create(sides[1].loop, &endpoint, &opts, &listener), "listen");
	storm(wanted, limit);
	cycle(cycles);
	snt_listener_destroy(listener);
	for (unsigned i = 0; i < 2; i++) {
		must(snt_cq_destroy(sides[i].cq), "the CQ");
		must(snt_loop_destroy(sides[i].loop), "the loop");
		must(snt_ctx_destroy(sides[i].ctx), "the context");
	}
	return 0;
}
