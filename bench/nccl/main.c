/* SPDX-License-Identifier: MIT */

/*
 * The network plugin for NCCL without NCCL: messages between two processes, through the
 * plugin's tables, beside TCP on the loopback device. A case is the time of one message: of
 * 8 in flight, as in NCCL's rings, or of a round trip.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/bench.h"
#include "nccl/net_kit.h"

#define IN_FLIGHT   8
#define MESSAGE_MAX (4 * 1024 * 1024)

/* What the other process is to do. A size of 0 ends it. */
struct order {
	int tcp, ping;
	unsigned count;
	size_t size;
};

static struct {
	int orders, tcp;
	void *out, *in; /* comms */
	char *data;
	void *out_memory, *in_memory;
} here;

static void check_result(int ret, const char *what)
{
	if (!ret)
		return;
	fprintf(stderr, "%s: %d, %s\n", what, ret, net_last_warning());
	exit(1);
}

static void move_all(ssize_t (*call)(int, void *, size_t), int fd, void *data,
		     size_t size)
{
	for (size_t done = 0; done < size;) {
		const ssize_t count = call(fd, (char *)data + done, size - done);

		if (count <= 0)
			exit(0); /* the other process has ended */
		done += count;
	}
}

static ssize_t write_some(int fd, void *data, size_t size)
{
	return write(fd, data, size);
}

/*
 * Messages
 */

static char *place_of(unsigned k, size_t size)
{
	return here.data + k % IN_FLIGHT * size;
}

static void post_message(int sends, unsigned k, size_t size, void **request)
{
	for (;;) {
		*request = NULL;
		if (sends)
			check_result(net_isend(here.out, place_of(k, size), size,
					       here.out_memory, request),
				     "isend");
		else
			check_result(net_irecv(here.in, place_of(k, size), size,
					       here.in_memory, request),
				     "irecv");
		if (*request)
			return;
		sched_yield();
	}
}

/* As NCCL's thread, which yields when nothing has happened. */
static void await_message(void *request)
{
	int done = 0;

	while (!done) {
		check_result(net_test(request, &done, NULL), "test");
		if (!done)
			sched_yield();
	}
}

static void stream_by_plugin(int sends, unsigned count, size_t size)
{
	void *request[IN_FLIGHT];

	for (unsigned k = 0; k < count + IN_FLIGHT; k++) {
		if (k >= IN_FLIGHT && k - IN_FLIGHT < count)
			await_message(request[k % IN_FLIGHT]);
		if (k < count)
			post_message(sends, k, size, &request[k % IN_FLIGHT]);
	}
}

/* One end sends first. */
static void ping_by_plugin(int first, unsigned count, size_t size)
{
	void *received, *sent;

	post_message(0, 0, size, &received);
	for (unsigned k = 1; k <= count; k++) {
		if (!first)
			await_message(received);
		post_message(1, k, size, &sent);
		if (first)
			await_message(received);
		if (k < count)
			post_message(0, k, size, &received);
		await_message(sent);
	}
}

static void stream_by_tcp(int sends, unsigned count, size_t size)
{
	for (unsigned k = 0; k < count; k++)
		move_all(sends ? write_some : read, here.tcp, place_of(k, size), size);
}

static void ping_by_tcp(int first, unsigned count, size_t size)
{
	for (unsigned k = 0; k < count; k++) {
		if (first)
			move_all(write_some, here.tcp, here.data, size);
		move_all(read, here.tcp, here.data, size);
		if (!first)
			move_all(write_some, here.tcp, here.data, size);
	}
}

static void carry_out(const struct order *order, int first)
{
	if (order->tcp && order->ping)
		ping_by_tcp(first, order->count, order->size);
	else if (order->tcp)
		stream_by_tcp(first, order->count, order->size);
	else if (order->ping)
		ping_by_plugin(first, order->count, order->size);
	else
		stream_by_plugin(first, order->count, order->size);
}

/*
 * The two processes
 */

static void connect_comms(void)
{
	char mine[NCCL_HANDLE_BYTES], theirs[NCCL_HANDLE_BYTES];
	void *listener;

	net_load(11);
	check_result(net_init(), "init");
	check_result(net_listen(0, mine, &listener), "listen");
	move_all(write_some, here.orders, mine, sizeof(mine));
	move_all(read, here.orders, theirs, sizeof(theirs));
	while (!here.out || !here.in) {
		if (!here.out)
			check_result(net_connect(0, theirs, &here.out), "connect");
		if (!here.in)
			check_result(net_accept(listener, &here.in), "accept");
	}
	net_close_listen(listener);
	here.data = aligned_alloc(4096, IN_FLIGHT * MESSAGE_MAX);
	if (!here.data)
		check_result(1, "memory");
	memset(here.data, 1, IN_FLIGHT * MESSAGE_MAX);
	check_result(net_reg(here.out, here.data, IN_FLIGHT * MESSAGE_MAX,
			     &here.out_memory),
		     "reg");
	check_result(net_reg(here.in, here.data, IN_FLIGHT * MESSAGE_MAX,
			     &here.in_memory),
		     "reg");
}

/* A pair of connected sockets. */
static void connect_tcp(int fd[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, length) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(fd[0], (struct sockaddr *)&address, length))
		check_result(1, "TCP");
	fd[1] = accept(listener, NULL, NULL);
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

static void carry_out_orders(void)
{
	struct order order;

	connect_comms();
	for (;;) {
		move_all(read, here.orders, &order, sizeof(order));
		if (!order.size)
			exit(0);
		carry_out(&order, 0);
	}
}

static void run_case(void *arg, unsigned count)
{
	struct order order = *(struct order *)arg;

	order.count = count;
	move_all(write_some, here.orders, &order, sizeof(order));
	carry_out(&order, 1);
}

static void add_cases(struct bench *bench)
{
	static const struct {
		const char *size;
		int ping;
		size_t bytes;
		unsigned count;
	} cases[] = {
		{ "round-trip-8", 1, 8, 50 },
		{ "round-trip-32k", 1, 32 << 10, 25 },
		{ "stream-32k", 0, 32 << 10, 100 },
		{ "stream-128k", 0, 128 << 10, 50 },
		{ "stream-512k", 0, 512 << 10, 20 },
		{ "stream-1m", 0, 1 << 20, 15 },
		{ "stream-4m", 0, 4 << 20, 5 },
	};
	static struct order order[2][sizeof(cases) / sizeof(cases[0])];
	static char name[2][sizeof(cases) / sizeof(cases[0])][32];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int tcp = 1; tcp >= 0; tcp--) {
			order[tcp][i] = (struct order){ .tcp = tcp,
							.ping = cases[i].ping,
							.size = cases[i].bytes };
			snprintf(name[tcp][i], sizeof(name[tcp][i]), "%s%s",
				 cases[i].size, tcp ? "-tcp" : "");
			bench_case(bench, name[tcp][i], run_case, &order[tcp][i],
				   cases[i].count, tcp ? NULL : name[1][i]);
		}
	}
}

int main(int argc, char **argv)
{
	struct bench *bench = bench_begin("nccl", argc, argv);
	struct order end = { .size = 0 };
	int orders[2], tcp[2], status;
	pid_t other;

	setenv("SENNIT_SOFT", "only", 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, orders))
		check_result(1, "socketpair");
	connect_tcp(tcp);
	other = fork();
	here.orders = orders[!other];
	here.tcp = tcp[!other];
	close(orders[!!other]);
	close(tcp[!!other]);
	if (!other) {
		bench_other_core();
		carry_out_orders();
	}
	connect_comms();
	add_cases(bench);
	status = bench_end(bench);
	move_all(write_some, here.orders, &end, sizeof(end));
	waitpid(other, NULL, 0);
	return status;
}
