/* SPDX-License-Identifier: MIT */
/* The echo by streams: a listener, and a client that connects to it by address. */
#include <errno.h>
#include <string.h>

#include "echo.h"

static void ask(struct stream_echo *echo)
{
	echo_check((int)snt_stream_write(echo->client, &echo->rounds,
					 sizeof(echo->rounds)),
		   "write to a stream");
}

/* One number is under way at a time, so that it is there as a whole or not at all. */
static void client_ready(void *arg, struct snt_stream *stream, unsigned events)
{
	struct stream_echo *echo = arg;
	unsigned number;
	ssize_t got;

	if (events & SNT_STREAM_OPEN)
		ask(echo);
	while ((got = snt_stream_read(stream, &number, sizeof(number))) > 0) {
		if (number != echo->rounds)
			echo_check(-EBADMSG, "the answer by stream");
		if (++echo->rounds < ECHO_ROUNDS)
			ask(echo);
		else
			echo_check(snt_stream_shutdown(stream), "shut down");
	}
	if (got && got != -EAGAIN)
		echo_check((int)got, "read from a stream");
	echo->over += !!(events & SNT_STREAM_OVER);
}

static void server_ready(void *arg, struct snt_stream *stream, unsigned events)
{
	struct stream_echo *echo = arg;
	char bytes[64];
	ssize_t got;

	while ((got = snt_stream_read(stream, bytes, sizeof(bytes))) > 0)
		echo_check((int)snt_stream_write(stream, bytes, (size_t)got),
			   "write to a stream");
	if (!got)
		snt_stream_shutdown(stream); /* as the client has */
	echo->over += !!(events & SNT_STREAM_OVER);
}

/* The first read, which finds nothing, asks to be told of more. */
static void accepted(void *arg, struct snt_stream_listener *listener,
		     struct snt_stream *stream)
{
	struct stream_echo *echo = arg;

	(void)listener;
	echo->server = stream;
	snt_stream_set_ready_handler(stream, server_ready, echo);
	server_ready(echo, stream, 0);
}

void echo_stream_open(struct stream_echo *echo, struct snt_loop *loop)
{
	char host[SNT_ADDRESS_MAX];
	struct snt_endpoint server = SNT_INIT(server, .host = host);
	struct snt_stream_listener_opts listen =
		SNT_INIT(listen, .accepted = accepted, .arg = echo);
	struct snt_stream_opts opts =
		SNT_INIT(opts, .ready = client_ready, .arg = echo);

	echo_check(snt_stream_listener_create(loop, NULL, &listen, &echo->listener),
		   "listen");
	echo_check(snt_stream_listener_address(echo->listener, 0, host, sizeof(host)),
		   "address");
	server.port = snt_stream_listener_port(echo->listener);
	echo_check(snt_stream_connect(loop, &server, &opts, &echo->client), "connect");
	client_ready(echo, echo->client, 0);
}

void echo_stream_close(struct stream_echo *echo)
{
	echo_check(snt_stream_destroy(echo->client), "destroy");
	echo_check(snt_stream_destroy(echo->server), "destroy");
	echo_check(snt_stream_listener_destroy(echo->listener), "destroy");
}
