/* SPDX-License-Identifier: MIT */
/* Halves, on top of a stream as programs see it: its events are told to their owners. */
#include <sennit/stream_half.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "stream/stream.h"
#include "util/err.h"
#include "util/opts.h"

enum {
	READER,
	WRITER,
	HALVES
};

struct halves;

struct snt_stream_half {
	struct halves *both;
	bool is_held; /* by its owner */
	struct snt_stream_half_opts opts;
};

struct halves {
	struct snt_stream *stream; /* NULL: destroyed */
	struct snt_stream_half half[HALVES];
	unsigned busy; /* depth of functions that are running */
};

static const unsigned events_of[HALVES] = {
	[READER] = SNT_STREAM_OPEN | SNT_STREAM_READABLE | SNT_STREAM_OVER,
	[WRITER] = SNT_STREAM_OPEN | SNT_STREAM_WRITABLE | SNT_STREAM_FLUSHED |
		   SNT_STREAM_OVER,
};

/* Until there is nothing, which asks to be told of more. */
static void drop_arrived(struct snt_stream *stream)
{
	struct iovec at[2];
	ssize_t got;

	while ((got = snt_stream_peek(stream, 0, at)) > 0)
		snt_stream_consume(stream, (size_t)got);
}

static void free_unheld(struct halves *both)
{
	if (!both->stream && !both->busy)
		free(both);
}

static void halves_ready(void *arg, struct snt_stream *stream, unsigned events)
{
	struct halves *both = arg;

	both->busy++;
	for (unsigned i = 0; i < HALVES; i++) {
		struct snt_stream_half *half = &both->half[i];

		if (half->is_held && half->opts.ready && events & events_of[i])
			half->opts.ready(half->opts.arg, half, events & events_of[i]);
	}
	if (both->stream && !both->half[READER].is_held)
		drop_arrived(stream);
	both->busy--;
	free_unheld(both);
}

static int set_options(struct snt_stream_half *half,
		       const struct snt_stream_half_opts *opts)
{
	return snt__opts_import(&half->opts, sizeof(half->opts), opts,
				"struct snt_stream_half_opts");
}

int snt_stream_split(struct snt_stream *stream,
		     const struct snt_stream_half_opts *reader,
		     const struct snt_stream_half_opts *writer,
		     struct snt_stream_half **reader_out,
		     struct snt_stream_half **writer_out)
{
	const struct snt_stream_half_opts *const opts[HALVES] = { reader, writer };
	int ret = snt__conn_loop_check(stream->conn_loop);
	struct halves *both;

	if (ret)
		return ret;
	if (stream->user)
		return snt__fail(EINVAL, "the stream is a channel's");
	if (stream->ready == halves_ready)
		return snt__fail(EALREADY, "the stream is split already");
	both = calloc(1, sizeof(*both));
	if (!both)
		return snt__fail(ENOMEM, "no memory for halves of a stream");
	for (unsigned i = 0; !ret && i < HALVES; i++) {
		ret = set_options(&both->half[i], opts[i]);
		both->half[i].both = both;
		both->half[i].is_held = true;
	}
	if (ret) {
		free(both);
		return ret;
	}
	both->stream = stream;
	snt_stream_set_ready_handler(stream, halves_ready, both);
	*reader_out = &both->half[READER];
	*writer_out = &both->half[WRITER];
	return 0;
}

struct snt_stream *snt_stream_half_stream(const struct snt_stream_half *half)
{
	return half->both->stream;
}

int snt_stream_half_destroy(struct snt_stream_half *half)
{
	struct halves *both = half ? half->both : NULL;
	int ret = half ? snt__conn_loop_check(both->stream->conn_loop) : 0;

	if (!half || ret)
		return ret;
	half->is_held = false;
	if (!both->half[READER].is_held && !both->half[WRITER].is_held) {
		snt_stream_destroy(both->stream);
		both->stream = NULL;
		free_unheld(both);
		return 0;
	}
	/* It may have been shut down, or have failed. */
	if (half == &both->half[WRITER])
		snt_stream_shutdown(both->stream);
	else
		drop_arrived(both->stream);
	return 0;
}
