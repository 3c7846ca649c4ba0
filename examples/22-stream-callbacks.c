/* SPDX-License-Identifier: MIT */
/*
 * Streams with callbacks: an echo server and its 32 clients, all in one thread and one
 * loop. Each client sends 1 MiB, which is more than the streams have room for, and compares
 * what comes back. Both ends are here for the sake of brevity.
 *
 * Only snt_loop_wait() waits. A read or a write that returns -EAGAIN, or less than was
 * asked for, is a wish: the stream's function is called when there is more to be done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#define CLIENTS 32
#define BYTES	(1 << 20)
#define RING	(64 << 10)

static struct snt_loop *loop;
static unsigned streams; /* at both ends, that are not over yet */

static void check(long ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "stream-callbacks: %s: %s\n", what, snt_err_text());
	exit(1);
}

/* After the last event of a stream. */
static void end_stream(struct snt_stream *stream)
{
	struct snt_stream_info info = SNT_INIT(info);

	check(snt_stream_query(stream, &info), "query");
	if (info.status) {
		fprintf(stderr, "stream-callbacks: %s\n", info.text);
		exit(1);
	}
	check(snt_stream_destroy(stream), "destroy");
	streams--;
}

/* The server: bytes go back from where they have arrived. */
static void echo(void *arg, struct snt_stream *stream, unsigned events)
{
	struct iovec at[2];
	ssize_t got, sent;

	(void)arg;
	while ((got = snt_stream_peek(stream, 0, at)) > 0 &&
	       (sent = snt_stream_writev(stream, at, 2)) > 0)
		check(snt_stream_consume(stream, (size_t)sent), "consume");
	if (!got) /* the client has shut down, and all of its bytes are on their way back */
		snt_stream_shutdown(stream);
	if (events & SNT_STREAM_OVER)
		end_stream(stream);
}

/* The first call leaves the first wish. */
static void accepted(void *arg, struct snt_stream_listener *listener,
		     struct snt_stream *stream)
{
	(void)listener;
	streams++;
	snt_stream_set_ready_handler(stream, echo, arg);
	echo(arg, stream, 0);
}

static struct snt_stream_listener *start_server(void)
{
	struct snt_stream_opts stream =
		SNT_INIT(stream, .recv_size = RING, .send_size = RING);
	struct snt_stream_listener_opts opts =
		SNT_INIT(opts, .stream = &stream, .accepted = accepted);
	struct snt_stream_listener *listener;

	check(snt_stream_listener_create(loop, NULL, &opts, &listener), "listen");
	return listener;
}

/* The clients: each sends and receives at the same time, as far as either goes. */
struct client {
	size_t sent, received;
};

static unsigned char payload[BYTES];

static void exchange(void *arg, struct snt_stream *stream, unsigned events)
{
	struct client *client = arg;
	unsigned char bytes[4096];
	ssize_t n;

	while (client->sent < BYTES &&
	       (n = snt_stream_write(stream, payload + client->sent,
				     BYTES - client->sent)) > 0)
		if ((client->sent += (size_t)n) == BYTES)
			check(snt_stream_shutdown(stream), "shut down");
	while ((n = snt_stream_read(stream, bytes, sizeof(bytes))) > 0) {
		if (memcmp(bytes, payload + client->received, (size_t)n) != 0) {
			fputs("stream-callbacks: other bytes came back\n", stderr);
			exit(1);
		}
		client->received += (size_t)n;
	}
	if (events & SNT_STREAM_OVER)
		end_stream(stream);
}

static void start_client(struct client *client, struct snt_stream_listener *listener)
{
	char host[SNT_ADDRESS_MAX];
	struct snt_endpoint server = SNT_INIT(server, .host = host);
	struct snt_stream_opts opts =
		SNT_INIT(opts, .recv_size = RING, .send_size = RING, .ready = exchange,
			 .arg = client);
	struct snt_stream *stream;

	check(snt_stream_listener_address(listener, 0, host, sizeof(host)), "address");
	server.port = snt_stream_listener_port(listener);
	check(snt_stream_connect(loop, &server, &opts, &stream), "connect");
	streams++;
	exchange(client, stream, 0);
}

int main(void)
{
	static struct client client[CLIENTS];
	struct snt_stream_listener *listener;
	struct snt_ctx *ctx;
	size_t received = 0;

	for (size_t i = 0; i < BYTES; i++)
		payload[i] = (unsigned char)(i * i >> 8);
	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	listener = start_server();
	for (unsigned i = 0; i < CLIENTS; i++)
		start_client(&client[i], listener);
	while (streams)
		check(snt_loop_wait(loop, -1), "loop");
	check(snt_stream_listener_destroy(listener), "destroy");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
	for (unsigned i = 0; i < CLIENTS; i++)
		received += client[i].received;
	printf("%zu of %zu bytes came back\n", received, (size_t)CLIENTS * BYTES);
	return received != (size_t)CLIENTS * BYTES;
}
