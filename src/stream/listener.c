/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn/conn.h"
#include "conn/endpoint.h"
#include "conn/feed.h"
#include "stream/stream.h"
#include "util/err.h"
#include "util/opts.h"

struct snt_stream_listener {
	struct snt_loop *loop;
	struct snt_listener *listener;
	struct snt_stream_opts opts;
	uint8_t data[SNT_STREAM_DATA_MAX];
	struct snt__link coming; /* streams that are not open yet */
	/* For snt_stream_listener_wait(). Streams that have ended since, but had
	 * delivered data, stay and take up places of the backlog. */
	struct snt__link open;
	struct snt__conn_loop_waiter *waiter;
	void (*accepted)(void *arg, struct snt_stream_listener *listener,
			 struct snt_stream *stream);
	void *arg;
};

static int accept_conn(struct snt_stream_listener *listener, struct snt_conn *conn)
{
	struct snt__stream_plan plan;
	struct snt__greeting peer;
	struct snt_stream *stream;
	int ret = snt__stream_peer(conn, &peer);

	if (!ret)
		ret = snt__stream_plan(listener->loop, &listener->opts, &plan, &stream);
	if (ret)
		return ret;
	stream->conn = conn;
	ret = snt__conn_accept_stream(conn, &plan.conn);
	if (ret) {
		snt__stream_unmake(stream);
		return ret;
	}
	stream->listener = listener;
	snt__list_append(&listener->coming, &stream->in_listener);
	return 0;
}

static void accept_request(void *arg, struct snt_listener *below, struct snt_conn *conn)
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
	/* Passing it to the program tells that it is open. */
	stream->wants &= (uint8_t)~SNT_STREAM_OPEN;
	if (!listener->accepted) {
		snt__list_append(&listener->open, &stream->in_listener);
		return;
	}
	stream->listener = NULL;
	stream->holder = SNT__STREAM_PROGRAM;
	listener->accepted(listener->arg, listener, stream);
}

/* Is it open and waiting to be accepted? */
static bool is_queued(const struct snt_stream *stream)
{
	return stream->listener && !(stream->wants & SNT_STREAM_OPEN);
}

/* Bytes may arrive before the stream is known to be open. Their sender knows that they
 * have arrived, so that they must be kept. */
static bool has_delivered(const struct snt_stream *stream)
{
	return snt__inflow_unread(&stream->in) || stream->in.ended;
}

void snt__stream_listener_ended(struct snt_stream *stream)
{
	if (!is_queued(stream) && !has_delivered(stream)) {
		snt_stream_destroy(stream);
		return;
	}
	if (!stream->listener->accepted)
		snt__listener_keep_dead(stream->listener->listener);
	else
		snt__stream_tell_later(stream);
	if (!is_queued(stream))
		snt__stream_listener_tell(stream);
}

void snt__stream_listener_forget(struct snt_stream *stream)
{
	if (is_queued(stream) && snt__stream_is_over(stream))
		snt__listener_drop_dead(stream->listener->listener);
	snt__unlink(&stream->in_listener);
	stream->listener = NULL;
}

static int take_listener_opts(struct snt_stream_listener *listener,
			      const struct snt_stream_listener_opts *opts)
{
	struct snt_stream_opts *stream = &listener->opts;
	int ret = snt__opts_import(stream, sizeof(*stream), opts->stream,
				   "struct snt_stream_opts");

	if (ret)
		return ret;
	ret = snt__stream_check_for_conn(listener->loop, stream);
	if (ret)
		return ret;
	if (stream->data_length)
		memcpy(listener->data, stream->data, stream->data_length);
	stream->data = listener->data;
	listener->accepted = opts->accepted;
	listener->arg = opts->arg;
	return 0;
}

int snt_stream_listener_create(struct snt_loop *loop,
			       const struct snt_endpoint *endpoint,
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
	listener->loop = loop;
	snt__list_init(&listener->coming);
	snt__list_init(&listener->open);
	below.backlog = opts.backlog;
	below.connection_max = opts.connection_max;
	below.requested = accept_request;
	below.arg = listener;
	below.share = opts.share ? opts.share->listener : NULL;
	ret = take_listener_opts(listener, &opts);
	if (!ret)
		ret = snt__endpoint_check_stream(endpoint);
	if (!ret)
		ret = snt_listener_create(loop, endpoint, &below, &listener->listener);
	if (ret) {
		free(listener);
		return ret;
	}
	if (!opts.accepted && !opts.share)
		snt__feed_step_aside(snt__listener_member(listener->listener));
	*listener_out = listener;
	return 0;
}

uint16_t snt_stream_listener_port(const struct snt_stream_listener *listener)
{
	return snt_listener_port(listener->listener);
}

int snt_stream_listener_address(const struct snt_stream_listener *listener,
				unsigned position, char *buffer, size_t size)
{
	return snt_listener_address(listener->listener, position, buffer, size);
}

static struct snt_stream *first_of(struct snt__link *list)
{
	return snt__container(list->next, struct snt_stream, in_listener);
}

static bool has_stream(const void *what)
{
	const struct snt_stream_listener *listener = what;

	return !snt__list_empty(&listener->open);
}

int snt_stream_listener_wait(struct snt_stream_listener *listener, int64_t timeout_ns,
			     struct snt_stream **stream_out)
{
	struct snt_stream *stream;
	int ret;

	if (listener->accepted)
		return snt__fail(EINVAL,
				 "the listener has a function, "
				 "snt_stream_listener_opts.accepted, which gets them");
	ret = snt__conn_loop_wait(listener->loop->conn_loop, &listener->waiter,
				  has_stream, listener, timeout_ns);
	if (ret == -ETIME)
		return snt__fail(ETIME, "timed out waiting for a stream");
	if (ret)
		return ret;
	stream = first_of(&listener->open);
	snt__stream_listener_forget(stream);
	stream->holder = SNT__STREAM_PROGRAM;
	/* Reports what has arrived meanwhile. */
	snt__stream_tell_later(stream);
	*stream_out = stream;
	return 0;
}

int snt_stream_listener_destroy(struct snt_stream_listener *listener)
{
	int ret = listener ? snt__conn_loop_check(listener->loop->conn_loop) : 0;

	if (!listener || ret)
		return ret;
	snt__conn_loop_waiters_end(listener->waiter);
	while (!snt__list_empty(&listener->coming))
		snt_stream_destroy(first_of(&listener->coming));
	while (!snt__list_empty(&listener->open))
		snt_stream_destroy(first_of(&listener->open));
	snt_listener_destroy(listener->listener);
	free(listener);
	return 0;
}
