/* SPDX-License-Identifier: MIT */
/*
 * Messages between two ends, here in one loop. The client asks for some bytes; the server
 * sends short answers, and offers long ones, which the client fetches from its memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sennit/sennit.h>

#define LONG  INT64_C(10000000000)
#define SIZE  (4u << 20)
#define SHORT 4096

static char theirs[SIZE], ours[SIZE];
static struct snt_mem *their_mem, *our_mem;

static void check(ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "channel: %s\n", snt_err_text());
		exit(1);
	}
}

static void on_released(struct snt_offer *offer)
{
	printf("%u bytes have been fetched\n", (unsigned)offer->length);
}

static void on_request(void *arg, struct snt_channel *channel, unsigned events)
{
	static struct snt_offer offer;
	uint32_t length;
	ssize_t ret;

	(void)arg, (void)events;
	while ((ret = snt_channel_recv(channel, &length, sizeof(length))) > 0) {
		offer = (struct snt_offer){ .mem = their_mem,
					    .addr = theirs,
					    .length = length,
					    .released = on_released };
		if (length <= SHORT)
			check(snt_channel_send(channel, theirs, length));
		else
			check(snt_channel_offer(channel, &offer));
	}
	if (ret == -ESHUTDOWN)
		snt_channel_shutdown(channel);
}

static void on_fetched(struct snt_fetch *fetch)
{
	check(fetch->result);
}

static void ask(struct snt_channel *channel, uint32_t length)
{
	struct snt_fetch fetch = {
		.mem = our_mem, .addr = ours, .size = SIZE, .done = on_fetched
	};

	check(snt_channel_send_wait(channel, &length, sizeof(length), LONG));
	if (length <= SHORT) {
		check(snt_channel_recv_wait(channel, ours, SIZE, LONG));
		return;
	}
	check(snt_channel_wait(channel, SNT_CHANNEL_READABLE, LONG));
	check(snt_channel_fetch(channel, &fetch));
	check(snt_channel_wait(channel, SNT_CHANNEL_FETCHED, LONG));
}

int main(void)
{
	struct snt_channel_opts opts = SNT_INIT(opts, .ready = on_request);
	char host[SNT_ADDRESS_MAX];
	struct snt_endpoint endpoint = SNT_INIT(endpoint, .host = host);
	struct snt_stream_listener *listener;
	struct snt_channel *client, *server;
	struct snt_stream *stream;
	struct snt_ctx *ctx;
	struct snt_loop *loop;

	check(snt_ctx_create(NULL, &ctx));
	check(snt_loop_create(ctx, NULL, &loop));
	check(snt_mem_register(ctx, theirs, SIZE, SNT_ACCESS_REMOTE_READ, &their_mem));
	check(snt_mem_register(ctx, ours, SIZE, SNT_ACCESS_LOCAL_WRITE, &our_mem));
	check(snt_stream_listener_create(loop, NULL, NULL, &listener));
	check(snt_stream_listener_address(listener, 0, host, sizeof(host)));
	endpoint.port = snt_stream_listener_port(listener);
	check(snt_stream_connect(loop, &endpoint, NULL, &stream));
	check(snt_channel_create(stream, NULL, &client));
	check(snt_stream_listener_wait(listener, LONG, &stream));
	check(snt_channel_create(stream, &opts, &server));
	ask(client, 100);
	ask(client, SIZE);
	check(snt_channel_close(client, LONG));
	return 0; /* which ends the server as well */
}
