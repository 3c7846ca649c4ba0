/* SPDX-License-Identifier: MIT */
/*
 * Sends a file, or what comes in by a pipe, over all lanes of all devices.
 *
 *	21-send-file receive PORT > FILE       on one host; 0: any port, which it tells
 *	21-send-file send HOST PORT < FILE     on the other
 *
 * `sennit cp` does more: folders, names, checksums, and going on where it was cut off.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define SECONDS INT64_C(1000000000)

static struct snt_ctx *ctx;
static struct snt_loop *loop;

static ssize_t check(ssize_t ret, const char *what)
{
	if (ret >= 0)
		return ret;
	fprintf(stderr, "send-file: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void expect(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

/* When it returns all has arrived, at both ends. */
static int end(struct snt_stream *stream, uint64_t bytes)
{
	check(snt_stream_close(stream, 10 * SECONDS), "close");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
	fprintf(stderr, "%" PRIu64 " bytes\n", bytes);
	return 0;
}

/* Bytes are written to the file from where the peer's device has put them. */
static int receive(unsigned port)
{
	struct snt_endpoint here =
		SNT_INIT(here, .port = (uint16_t)port, .carrier = SNT_CARRIER_TCP);
	struct snt_stream_listener *listener;
	struct snt_stream *stream;
	struct iovec at[2];
	uint64_t bytes = 0;
	ssize_t got;

	check(snt_stream_listener_create(loop, &here, NULL, &listener), "listen");
	fprintf(stderr, "port %u\n", snt_stream_listener_port(listener));
	check(snt_stream_listener_wait(listener, -1, &stream), "accept");
	check(snt_stream_listener_destroy(listener), "listen");
	while (check(snt_stream_wait(stream, SNT_STREAM_READABLE, -1), "receive") > 0 &&
	       (got = check(snt_stream_peek(stream, 0, at), "receive")) > 0) {
		got = writev(STDOUT_FILENO, at, at[1].iov_len ? 2 : 1);
		expect(got > 0, "write");
		check(snt_stream_consume(stream, got), "receive");
		bytes += got;
	}
	return end(stream, bytes);
}

static int send_to(const char *host, unsigned port)
{
	struct snt_endpoint to = SNT_INIT(to, .host = host, .port = (uint16_t)port,
					  .carrier = SNT_CARRIER_TCP);
	static char buffer[256 << 10];
	struct snt_stream *stream;
	uint64_t bytes = 0;
	ssize_t got;

	check(snt_stream_connect(loop, &to, NULL, &stream), "connect");
	check(snt_stream_wait(stream, SNT_STREAM_OPEN, 10 * SECONDS), "connect");
	while ((got = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0) {
		check(snt_stream_write_all(stream, buffer, got, -1) - got, "send");
		bytes += got;
	}
	expect(!got, "read");
	return end(stream, bytes);
}

int main(int argc, char **argv)
{
	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	if (argc == 3 && !strcmp(argv[1], "receive"))
		return receive(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "send"))
		return send_to(argv[2], atoi(argv[3]));
	fprintf(stderr, "usage: %s receive PORT | send HOST PORT\n", argv[0]);
	return 2;
}
