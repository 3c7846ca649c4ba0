/* SPDX-License-Identifier: MIT */
#include "loop/adapters/pipe.h"

#include <string.h>

static unsigned char byte_at(uint64_t position)
{
	return position * 31 + (position >> 8) * 7 + (position >> 16);
}

bool pipe_write(struct pipe_end *end, uint64_t until)
{
	unsigned char bytes[3000];
	uint64_t left = until - end->sent;
	size_t length = left < sizeof(bytes) ? left : sizeof(bytes);
	ssize_t ret;

	if (!length)
		return false;
	for (size_t i = 0; i < length; i++)
		bytes[i] = byte_at(end->sent + i);
	ret = snt_stream_write(end->stream, bytes, length);
	if (ret > 0)
		end->sent += ret;
	return ret > 0;
}

bool pipe_read(struct pipe_end *end)
{
	unsigned char bytes[5000];
	ssize_t ret = snt_stream_read(end->stream, bytes, sizeof(bytes));

	for (ssize_t i = 0; i < ret; i++)
		expect(bytes[i] == byte_at(end->received + i),
		       "byte %llu of a stream is another one",
		       (unsigned long long)end->received + i);
	if (ret > 0)
		end->received += ret;
	return ret > 0;
}

void pipe_send(struct pipe_end *end)
{
	uint64_t bytes = end->pipe->bytes, before = end->sent;

	while (pipe_write(end, bytes))
		;
	if (end->sent == bytes && before != bytes)
		must(snt_stream_shutdown(end->stream), "shut down");
	while (pipe_read(end))
		;
}

void pipe_answer(struct pipe_end *end)
{
	struct iovec at[2];
	ssize_t got, sent;

	while ((got = snt_stream_peek(end->stream, 0, at)) > 0 &&
	       (sent = snt_stream_writev(end->stream, at, 2)) > 0) {
		must(snt_stream_consume(end->stream, sent), "consume");
		end->sent += sent;
		end->received += sent;
	}
	if (!got)
		snt_stream_shutdown(end->stream);
}

static void end_over(struct pipe_end *end)
{
	end->pipe->over++;
	if (end->pipe->all)
		++*end->pipe->all;
}

static void ready(void *arg, struct snt_stream *stream, unsigned events)
{
	struct pipe_end *end = arg;
	struct snt_stream_info info = SNT_INIT(info);

	end->pipe->progress++;
	end->work(end);
	/* Its function may have destroyed it. */
	if (!(events & SNT_STREAM_OVER) || !end->stream)
		return;
	must(snt_stream_query(stream, &info), "query");
	end->status = info.status;
	end_over(end);
}

void pipe_destroy_end(struct pipe_end *end)
{
	struct snt_stream_info info = SNT_INIT(info);

	must(snt_stream_query(end->stream, &info), "query");
	must(snt_stream_destroy(end->stream), "destroy a stream");
	end->stream = NULL;
	if (info.state != SNT_STREAM_ENDED)
		end_over(end);
}

static void init_end(struct pipe *pipe, unsigned index,
		     void (*const work[2])(struct pipe_end *end))
{
	static void (*const usual[2])(struct pipe_end *) = { pipe_send, pipe_answer };
	struct pipe_end *end = &pipe->end[index];

	end->pipe = pipe;
	end->work = work && work[index] ? work[index] : usual[index];
}

static struct snt_stream_opts stream_opts(struct pipe_end *end)
{
	return (struct snt_stream_opts){ .size = sizeof(struct snt_stream_opts),
					 .recv_size = PIPE_RING,
					 .send_size = PIPE_RING,
					 .depth = 8,
					 .ready = ready,
					 .arg = end };
}

static void make_stream(struct pipe *pipe, unsigned index)
{
	struct world_end *at = &pipe->world->end[index];
	struct pipe_end *end = &pipe->end[index];
	struct snt_stream_opts opts = stream_opts(end);
	struct snt_qp_opts qp_opts =
		SNT_INIT(qp_opts, .cq = at->cq[0], .lanes = 2,
			 .scheme = SNT_SCHEME_DQPLB, .send_depth = 16, .recv_depth = 64,
			 .lane_depth = 64);

	must(snt_qp_create(at->ctx, &qp_opts, &end->qp), "a QP");
	must(snt_stream_create(end->qp, &opts, &end->stream), "a stream");
}

static void connect_streams(struct pipe *pipe)
{
	char offer[2][SNT_STREAM_OFFER_MAX];
	struct snt_card card[2];
	ssize_t length[2];

	for (unsigned i = 0; i < 2; i++) {
		must(snt_qp_card(pipe->end[i].qp, &card[i]), "a card");
		length[i] = snt_stream_offer(pipe->end[i].stream, offer[i],
					     sizeof(offer[i]));
		expect(length[i] > 0, "no offer: %s", snt_err_text());
	}
	for (unsigned i = 0; i < 2; i++)
		must(snt_qp_connect(pipe->end[i].qp, &card[!i]), "connect");
	for (unsigned i = 0; i < 2; i++)
		must(snt_stream_start(pipe->end[i].stream, offer[!i], length[!i]),
		     "start");
}

void pipe_open(struct pipe *pipe, struct world *world, uint64_t bytes,
	       void (*const work[2])(struct pipe_end *end))
{
	pipe->world = world;
	pipe->bytes = bytes;
	for (unsigned i = 0; i < 2; i++) {
		init_end(pipe, i, work);
		make_stream(pipe, i);
	}
	connect_streams(pipe);
	for (unsigned i = 0; i < 2; i++)
		pipe->end[i].work(&pipe->end[i]);
}

/*
 * By address, over TCP, which needs no manager of connections in the device
 */

static void accepted(void *arg, struct snt_stream_listener *listener,
		     struct snt_stream *stream)
{
	struct pipe_end *end = arg;

	(void)listener;
	end->stream = stream;
	snt_stream_set_ready_handler(stream, ready, end);
	end->work(end);
	end->pipe->progress++;
}

void pipe_open_by_address(struct pipe *pipe, struct world *world, uint64_t bytes)
{
	struct snt_endpoint server =
		SNT_INIT(server, .host = "127.0.0.1", .carrier = SNT_CARRIER_TCP);
	struct snt_stream_opts accept_opts, opts;
	struct snt_stream_listener_opts listen_opts =
		SNT_INIT(listen_opts, .stream = &accept_opts, .accepted = accepted,
			 .arg = &pipe->end[1]);
	struct snt_stream_listener *listener;

	pipe->world = world;
	pipe->bytes = bytes;
	for (unsigned i = 0; i < 2; i++)
		init_end(pipe, i, NULL);
	accept_opts = stream_opts(&pipe->end[1]);
	opts = stream_opts(&pipe->end[0]);
	must(snt_stream_listener_create(world->end[1].loop, &server, &listen_opts,
					&listener),
	     "listen");
	server.port = snt_stream_listener_port(listener);
	must(snt_stream_connect(world->end[0].loop, &server, &opts,
				&pipe->end[0].stream),
	     "connect");
	pipe->end[0].work(&pipe->end[0]);
	world_until_other(world, &pipe->over, 2);
	must(snt_stream_listener_destroy(listener), "destroy a listener");
}

/*
 * The end
 */

/* The stream closes it, in the loop. */
static void drop_qp(struct world *world, struct snt_qp *qp)
{
	int ret;

	while ((ret = snt_qp_destroy(qp)) == -EBUSY)
		if (!world_step(world))
			world->driver->turn(false);
	must(ret, "destroy a QP");
}

void pipe_close(struct pipe *pipe)
{
	for (unsigned i = 0; i < 2; i++) {
		if (pipe->end[i].stream)
			pipe_destroy_end(&pipe->end[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		if (pipe->end[i].qp)
			drop_qp(pipe->world, pipe->end[i].qp);
}

void pipe_expect_done(const struct pipe *pipe)
{
	for (unsigned i = 0; i < 2; i++)
		expect(!pipe->end[i].status, "end %u of a stream: %s", i,
		       strerror(-pipe->end[i].status));
	expect(pipe->end[0].received == pipe->bytes, "%llu of %llu bytes came back",
	       (unsigned long long)pipe->end[0].received,
	       (unsigned long long)pipe->bytes);
}
