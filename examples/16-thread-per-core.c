/* SPDX-License-Identifier: MIT */
/*
 * An echo server with a thread per core. The threads share a context and its memory, which
 * is registered once. Each has a loop, and a listener that shares the port of the first:
 * peers are dealt out to them in turns. The main thread has the port, and is the client.
 */
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sennit/sennit.h>

#define CLIENTS 32
#define CORES	4 /* or as many as there are */
#define LENGTH	64

static struct snt_ctx *ctx;
static struct snt_mem *mem;
static atomic_int over;

static struct core {
	pthread_t thread;
	struct snt_loop *loop;
	struct snt_stream_listener *listener;
	unsigned served, open;
	struct snt_stream_send send[CLIENTS];
	char text[CLIENTS][LENGTH];
} cores[1 + CORES]; /* the first is the main thread's */

static void check(long ret)
{
	if (ret < 0)
		errx(1, "%s", snt_err_text());
}

static void released(struct snt_stream_send *send)
{
	(void)send; /* its text could be used again */
}

/* Answers with the question, from the registered memory that it was put into. */
static void echo(void *arg, struct snt_stream *stream, unsigned events)
{
	struct core *core = arg;
	struct iovec at[2];

	while (snt_stream_peek(stream, LENGTH, at) >= LENGTH) {
		char *text = core->text[core->served];
		struct snt_stream_send *send = &core->send[core->served++];

		check(snt_stream_read(stream, text, LENGTH));
		*send = (struct snt_stream_send){ mem, text, LENGTH,
						  .released = released };
		check(snt_stream_write_registered(stream, send));
		check(snt_stream_shutdown(stream));
	}
	if (events & SNT_STREAM_OVER) {
		check(snt_stream_destroy(stream));
		core->open--;
	}
}

static void accepted(void *core, struct snt_stream_listener *of,
		     struct snt_stream *stream)
{
	(void)of;
	((struct core *)core)->open++;
	snt_stream_set_ready_handler(stream, echo, core);
	echo(core, stream, 0);
}

static void *serve(void *arg)
{
	struct core *core = arg;

	while (!over || core->open)
		check(snt_loop_wait(core->loop, -1));
	return NULL;
}

int main(void)
{
	struct snt_stream_listener_opts listen = SNT_INIT(listen);
	char host[SNT_ADDRESS_MAX], text[LENGTH] = "how are you?", answer[LENGTH];
	struct snt_endpoint server = SNT_INIT(server, .host = host);
	struct snt_stream *stream;

	check(snt_ctx_create(NULL, &ctx));
	check(snt_mem_register(ctx, cores, sizeof(cores), 0, &mem));
	for (struct core *core = cores; core <= cores + CORES; core++) {
		check(snt_loop_create(ctx, NULL, &core->loop));
		listen.arg = core;
		check(snt_stream_listener_create(core->loop, NULL, &listen,
						 &core->listener));
		/* The first one has no function: it leaves all streams to the others. */
		listen.accepted = accepted;
		listen.share = cores->listener;
		if (core > cores)
			check(-pthread_create(&core->thread, NULL, serve, core));
	}
	check(snt_stream_listener_address(cores->listener, 0, host, sizeof(host)));
	server.port = snt_stream_listener_port(cores->listener);
	for (int i = 0; i < CLIENTS; i++) {
		check(snt_stream_connect(cores->loop, &server, NULL, &stream));
		check(snt_stream_write_all(stream, text, LENGTH, -1));
		check(snt_stream_read_all(stream, answer, LENGTH, -1));
		check(snt_stream_close(stream, -1));
		if (memcmp(text, answer, LENGTH) != 0)
			errx(1, "another answer");
	}
	over = 1;
	for (struct core *core = cores; core <= cores + CORES; core++) {
		if (core > cores && !snt_loop_wake(core->loop))
			pthread_join(core->thread, NULL);
		printf("%u answers\n", core->served);
		check(snt_stream_listener_destroy(core->listener));
		check(snt_loop_destroy(core->loop));
	}
	return snt_mem_release(mem) || snt_ctx_destroy(ctx);
}
