/* SPDX-License-Identifier: MIT */
/*
 * An echo over a stream, beside the same over TCP: two processes on this host, a
 * thousand questions of 64 bytes, each asked when the last one has been answered.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define ROUNDS 1000
#define LENGTH 64
#define LONG   INT64_C(10000000000)

static struct snt_ctx *ctx;
static struct snt_loop *loop;

struct address {
	char host[SNT_ADDRESS_MAX];
	uint16_t port;
};

static void check(long ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "stream-echo: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void tcp_serve(int tell)
{
	struct address where = { .host = "" };
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t size = sizeof(at);
	char text[LENGTH];
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
	ssize_t n;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &size))
		exit(1);
	where.port = at.sin_port;
	check(write(tell, &where, sizeof(where)), "pipe");
	fd = accept(listener, NULL, NULL);
	while ((n = recv(fd, text, LENGTH, MSG_WAITALL)) > 0)
		check(send(fd, text, (size_t)n, 0), "send");
}

static void tcp_ask(const struct address *where)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = where->port };
	char text[LENGTH] = "how are you?", answer[LENGTH];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(connect(fd, (struct sockaddr *)&at, sizeof(at)), "connect");
	for (int i = 0; i < ROUNDS; i++) {
		check(send(fd, text, LENGTH, 0), "send");
		check(recv(fd, answer, LENGTH, MSG_WAITALL), "receive");
		if (memcmp(text, answer, LENGTH) != 0)
			exit(1);
	}
	close(fd);
}

static void stream_serve(int tell)
{
	struct address where;
	struct snt_stream_listener *listener;
	struct snt_stream *stream;
	char text[LENGTH];

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	check(snt_stream_listener_create(loop, NULL, NULL, &listener), "listen");
	check(snt_stream_listener_address(listener, 0, where.host, sizeof(where.host)),
	      "address");
	where.port = snt_stream_listener_port(listener);
	check(write(tell, &where, sizeof(where)), "pipe");
	check(snt_stream_listener_wait(listener, LONG, &stream), "accept");
	while (snt_stream_read_all(stream, text, LENGTH, LONG) == LENGTH)
		check(snt_stream_write(stream, text, LENGTH), "write");
	check(snt_stream_close(stream, LONG), "close");
	check(snt_stream_listener_destroy(listener), "destroy");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
}

static void stream_ask(const struct address *where)
{
	struct snt_endpoint server =
		SNT_INIT(server, .host = where->host, .port = where->port);
	char text[LENGTH] = "how are you?", answer[LENGTH];
	struct snt_stream *stream;

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	check(snt_stream_connect(loop, &server, NULL, &stream), "connect");
	for (int i = 0; i < ROUNDS; i++) {
		check(snt_stream_write(stream, text, LENGTH), "write");
		check(snt_stream_read_all(stream, answer, LENGTH, LONG), "read");
		if (memcmp(text, answer, LENGTH) != 0)
			exit(1);
	}
	check(snt_stream_close(stream, LONG), "close");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
}

static void run(const char *name, void (*serve)(int tell),
		void (*ask)(const struct address *where))
{
	struct timespec begin, end;
	struct address where;
	int told[2], status;

	fflush(stdout);
	check(pipe(told), "pipe");
	if (!fork()) {
		serve(told[1]);
		exit(0);
	}
	close(told[1]);
	if (read(told[0], &where, sizeof(where)) != sizeof(where))
		exit(1); /* the server has said why */
	clock_gettime(CLOCK_MONOTONIC, &begin);
	ask(&where);
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (wait(&status) < 0 || status)
		exit(1);
	printf("%-8s %4.0f us for each of %d questions, connecting included\n", name,
	       ((double)(end.tv_sec - begin.tv_sec) * 1e6 +
		(double)(end.tv_nsec - begin.tv_nsec) / 1e3) /
		       ROUNDS,
	       ROUNDS);
}

int main(void)
{
	run("TCP", tcp_serve, tcp_ask);
	run("stream", stream_serve, stream_ask);
	return 0;
}
