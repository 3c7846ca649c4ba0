/* SPDX-License-Identifier: MIT */
/* Streams: their functions are called, and nothing is forgotten, in any loop. */
#include <errno.h>

#include "loop/adapters/cases.h"
#include "loop/adapters/pipe.h"
#include "loop/adapters/tcp.h"
#include "loop/adapters/ticker.h"

#define BYTES	(5 * PIPE_RING + 123)
#define STREAMS 6
#define MOMENTS 6

static void run_pipes(struct world *world, struct pipe *pipe, unsigned count)
{
	unsigned over = 0;

	for (unsigned i = 0; i < count; i++) {
		pipe[i].all = &over;
		pipe_open(&pipe[i], world, BYTES + i, NULL);
	}
	world_until(world, &over, 2 * count);
	for (unsigned i = 0; i < count; i++) {
		pipe_expect_done(&pipe[i]);
		pipe_close(&pipe[i]);
	}
}

static void echo(struct world *world)
{
	struct pipe pipe = { 0 };

	world_open(world, &(struct world_opts){ 0 });
	run_pipes(world, &pipe, 1);
	world_close(world);
}

static void many(struct world *world)
{
	struct pipe pipe[STREAMS] = { 0 };

	world_open(world, &(struct world_opts){ 0 });
	run_pipes(world, pipe, STREAMS);
	world_close(world);
}

static void by_address(struct world *world)
{
	struct pipe pipe = { 0 };

	world_open(world, &(struct world_opts){ 0 });
	pipe_open_by_address(&pipe, world, BYTES);
	pipe_expect_done(&pipe);
	pipe_close(&pipe);
	world_close(world);
}

static void count_up(void *arg)
{
	++*(unsigned *)arg;
}

/* Neither ends before the other has had its turn. */
static void beside_tcp(struct world *world)
{
	struct pipe pipe = { 0 };
	struct tcp tcp = { 0 };
	unsigned ticks = 0;
	void *ticker;

	world_open(world, &(struct world_opts){ 0 });
	tcp_open(&tcp, world->driver);
	ticker = ticker_start(world->driver, 1, count_up, &ticks);
	pipe_open(&pipe, world, BYTES, NULL);
	world_until_other(world, &pipe.progress, 2);
	world_until_other(world, &tcp.rounds, tcp.rounds + 50);
	world_until_other(world, &ticks, ticks + 3);
	world_until_other(world, &pipe.over, 2);
	pipe_expect_done(&pipe);
	pipe_close(&pipe);
	ticker_stop(world->driver, ticker);
	tcp_close(&tcp);
	world_close(world);
}

/*
 * Half-closed
 */

/* A request, its end, and only then an answer that is longer than any ring. */
static void ask_and_listen(struct pipe_end *end)
{
	if (end->sent < 100) {
		while (pipe_write(end, 100))
			;
		must(end->sent == 100 ? snt_stream_shutdown(end->stream) : 0,
		     "shut down");
	}
	while (pipe_read(end))
		;
}

static void listen_and_answer(struct pipe_end *end)
{
	unsigned char byte;

	while (pipe_read(end))
		;
	if (snt_stream_read(end->stream, &byte, 1))
		return;
	expect(end->received == 100, "the end came behind %llu bytes",
	       (unsigned long long)end->received);
	while (pipe_write(end, end->pipe->bytes))
		;
	if (end->sent == end->pipe->bytes)
		snt_stream_shutdown(end->stream);
}

static void half_closed(struct world *world)
{
	static void (*const work[2])(struct pipe_end *) = { ask_and_listen,
							    listen_and_answer };
	struct pipe pipe = { 0 };

	world_open(world, &(struct world_opts){ 0 });
	pipe_open(&pipe, world, BYTES, work);
	world_until(world, &pipe.over, 2);
	pipe_expect_done(&pipe);
	pipe_close(&pipe);
	world_close(world);
}

/*
 * Cancelled
 */

/* Its end 0 goes in its own function, after so many calls, by aborting or at once. */
static void send_until_the_moment(struct pipe_end *end)
{
	struct pipe *pipe = end->pipe;

	if (!end->stream)
		return;
	pipe_send(end);
	if (pipe->progress < pipe->moment / 2)
		return;
	if (pipe->moment % 2)
		pipe_destroy_end(end);
	else
		snt_stream_abort(end->stream, "enough");
}

/* The other stream beside it ends as if it had been alone. */
static void cancel_at(struct world *world, unsigned moment)
{
	static void (*const work[2])(struct pipe_end *) = { send_until_the_moment,
							    NULL };
	struct pipe pipe = { .moment = moment }, other = { 0 };
	unsigned over = 0;

	pipe.all = other.all = &over;
	pipe_open(&other, world, BYTES, NULL);
	pipe_open(&pipe, world, UINT64_MAX, work);
	world_until(world, &over, 4);
	pipe_expect_done(&other);
	if (!(moment % 2))
		expect(pipe.end[0].status == -ECANCELED, "aborted: %d",
		       pipe.end[0].status);
	expect(pipe.end[1].status == -ECONNABORTED, "the peer: %d", pipe.end[1].status);
	pipe_close(&pipe);
	pipe_close(&other);
}

static void cancelled(struct world *world)
{
	world_open(world, &(struct world_opts){ 0 });
	for (unsigned moment = 0; moment < MOMENTS; moment++)
		cancel_at(world, moment);
	world_close(world);
}

const struct loop_case cases_stream[] = {
	{ "a stream's echo", ON_ALL, 0, echo },
	{ "many streams", ON_ALL, 0, many },
	{ "a stream by address", ON_ALL, 0, by_address },
	{ "a stream beside TCP and a timer", ON_ALL, 0, beside_tcp },
	{ "half-closed streams", ON_ALL, 0, half_closed },
	{ "cancelled streams", ON_ALL, 0, cancelled },
	{ 0 },
};
