/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn/conn.h"
#include "stream/stream.h"
#include "util/err.h"
#include "util/opts.h"

struct snt_stream_listener {
	struct snt_ctx *ctx;
	struct snt_listener *listener;
	struct snt_stream_opts opts;
	uint8_t data[SNT_STREAM_DATA_MAX];
	struct snt__link coming; /* streams that are not open yet */
	struct snt__link open;	 /* for snt_stream_listener_wait() */
	struct snt__stream_waiter *waiter;
	void (*accepted)(void *arg, struct snt_stream_listener *listener,
			 struct snt_stream *stream);
	void *arg;
};

static int check_request(const struct snt_conn *conn)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct snt__greeting peer;
	int ret = snt_conn_query(conn, &info);

	return ret ? ret : snt__greeting_unpack(info.data, info.data_length, &peer);
}

static int accept_conn(struct snt_stream_listener *listener, struct snt_conn *conn)
{
	uint8_t offer[SNT_STREAM_OFFER_MAX];
	struct snt_conn_opts opts;
	struct snt_qp_opts qp;
	struct snt_stream *stream;
	int ret = check_request(conn);

	if (!ret)
		ret = snt__stream_make_for_conn(listener->ctx, &listener->opts,
						&stream);
	if (ret)
		return ret;
	ret = snt__stream_conn_opts(stream, &listener->opts, offer, &qp, &opts);
	stream->conn = conn;
	if (!ret)
		ret = snt_conn_accept(conn, &opts);
	if (ret) {
		snt__stream_unmake(stream);
		return ret;
	}
	stream->listener = listener;
	snt__list_append(&listener->coming, &stream->in_listener);
	return 0;
}

static void requested(void *arg, struct snt_listener *below, struct snt_conn *conn)
{
	int ret = accept_conn(arg, conn);

	(void)below;
	if (!ret)
		return;
	if (ret == -ENOTCONN)
		snt_conn_destroy(conn); /* the peer has gone */
	else
		snt_conn_reject(conn, snt_err_text(), NULL, 0);
}

void snt__stream_listener_tell(struct snt_stream *stream)
{
	struct snt_stream_listener *listener = stream->listener;

	snt__unlink(&stream->in_listener);
	/* Who gets it knows that it is open. */
	stream->told_open = true;
	if (!listener->accepted) {
		snt__list_append(&listener->open, &stream->in_listener);
		return;
	}
	stream->listener = NULL;
	stream->programs = true;
	listener->accepted(listener->arg, listener, stream);
}

void snt__stream_listener_forget(struct snt_stream *stream)
{
	snt__unlink(&stream->in_listener);
	stream->listener = NULL;
}

static int take_opts(struct snt_stream_listener *listener,
		     const struct snt_stream_listener_opts *opts)
{
	struct snt_stream_opts *stream = &listener->opts;
	int ret = snt__opts_import(stream, sizeof(*stream), opts->stream,
				   "struct snt_stream_opts");

	if (ret)
		return ret;
	if (stream->host || stream->port || stream->source || stream->carrier ||
	    stream->secret || stream->name)
		return snt__fail(EINVAL, "an option is for the end that connects only");
	ret = snt__stream_check_for_conn(listener->ctx, stream);
	if (ret)
		return ret;
	if (stream->data_length)
		memcpy(listener->data, stream->data, stream->data_length);
	stream->data = listener->data;
	listener->accepted = opts->accepted;
	listener->arg = opts->arg;
	return 0;
}

int snt_stream_listener_create(struct snt_ctx *ctx,
			       const struct snt_stream_listener_opts *user_opts,
			       struct snt_stream_listener **listener_out)
{
	struct snt_stream_listener_opts opts;
	struct snt_listener_opts below = { .size = sizeof(below) };
	struct snt_stream_listener *listener;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_stream_listener_opts");

	if (ret)
		return ret;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return snt__fail(ENOMEM, "no memory for a listener");
	listener->ctx = ctx;
	snt__list_init(&listener->coming);
	snt__list_init(&listener->open);
	below.host = opts.host;
	below.port = opts.port;
	below.carrier = opts.carrier;
	below.backlog = opts.backlog;
	below.connection_max = opts.connection_max;
	below.secret = opts.secret;
	below.secret_length = opts.secret_length;
	below.setup_ns = opts.setup_ns;
	below.requested = requested;
	below.arg = listener;
	ret = take_opts(listener, &opts);
	if (!ret)
		ret = snt_listener_create(ctx, &below, &listener->listener);
	if (ret) {
		free(listener);
		return ret;
	}
	*listener_out = listener;
	return 0;
}

uint16_t snt_stream_listener_port(const struct snt_stream_listener *listener)
{
	return snt_listener_port(listener->listener);
}

static struct snt_stream *first_of(struct snt__link *list)
{
	return snt__container(list->next, struct snt_stream, in_listener);
}

int snt_stream_listener_wait(struct snt_stream_listener *listener, int64_t timeout_ns,
			     struct snt_stream **stream_out)
{
	struct snt__hub *hub = listener->ctx->hub;
	struct snt__stream_waiter waiter = { .next = listener->waiter };
	uint64_t begin = snt__hub_now(hub);
	int64_t left = timeout_ns;
	struct snt_stream *stream;
	int ret = 0;

	if (listener->accepted)
		return snt__fail(EINVAL, "the listener has a function for streams");
	listener->waiter = &waiter;
	while (snt__list_empty(&listener->open)) {
		ret = snt_loop_wait(listener->ctx, left);
		if (waiter.gone)
			return snt__fail(ECANCELED,
					 "the listener was destroyed meanwhile");
		if (ret < 0 || !left)
			break;
		left = snt__hub_left(hub, timeout_ns, begin);
	}
	listener->waiter = waiter.next;
	if (ret < 0)
		return ret;
	if (snt__list_empty(&listener->open))
		return snt__fail(EAGAIN, "there is no stream");
	stream = first_of(&listener->open);
	snt__stream_listener_forget(stream);
	stream->programs = true;
	/* What has come meanwhile. */
	snt__stream_tell_later(stream);
	*stream_out = stream;
	return 0;
}

int snt_stream_listener_destroy(struct snt_stream_listener *listener)
{
	int ret = listener ? snt__hub_check(listener->ctx->hub) : 0;

	if (!listener || ret)
		return ret;
	for (struct snt__stream_waiter *at = listener->waiter; at; at = at->next)
		at->gone = true;
	while (!snt__list_empty(&listener->coming))
		snt_stream_destroy(first_of(&listener->coming));
	while (!snt__list_empty(&listener->open))
		snt_stream_destroy(first_of(&listener->open));
	snt_listener_destroy(listener->listener);
	free(listener);
	return 0;
}
