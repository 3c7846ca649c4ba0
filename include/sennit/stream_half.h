/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_STREAM_HALF_H
#define SENNIT_STREAM_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/stream.h>

/*
 * Halves: a stream whose two directions belong to different parts of a program, in one
 * loop. Each half has a function of its own for events, and is destroyed on its own.
 *
 *	check(snt_stream_split(stream, &parser, &printer, &reader, &writer));
 *	...the one reads snt_stream_half_stream(reader) and destroys its half...
 *	...the other writes snt_stream_half_stream(writer), and destroys its own...
 *
 * The owner of the reading half makes the calls that read and peek, that of the writing
 * half those that write, flush and shut down; neither sees the events of the other.
 * Calls that wait, and snt_stream_abort(), which ends both directions, are for either.
 *
 * A writing half that is destroyed has shut down its direction: what was written is still
 * sent, for as long as the other half is there. After a reading half has been destroyed
 * bytes that arrive are dropped, so that a peer that still writes is not held up. The
 * second one to go destroys the stream, as snt_stream_destroy() does: if the stream is
 * not over, it is aborted, and what has not arrived may be lost. So an owner who cares
 * goes after SNT_STREAM_OVER, which both halves are told of.
 *
 * Thread: loop, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_stream_half;

struct snt_stream_half_opts {
	size_t size;
	/* Called as snt_stream_opts::ready, with SNT_STREAM_READABLE for the reading half,
	 * SNT_STREAM_WRITABLE and SNT_STREAM_FLUSHED for the writing one, SNT_STREAM_OPEN
	 * and SNT_STREAM_OVER for both. It may destroy either half. */
	void (*ready)(void *arg, struct snt_stream_half *half, unsigned events);
	void *arg;
};

/**
 * snt_stream_split - give the directions of a stream to two owners
 * @reader: for the reading half; NULL: no function
 * @writer: the same for the writing half
 *
 * Replaces the stream's own function. Interest that was registered before is reported to
 * the halves; events that were reported before are not reported again.
 *
 * Ownership: each half is its owner's. The stream is theirs together: it must not be
 * closed or destroyed otherwise, nor get another function.
 * Returns: 0; -EALREADY if it is split already; -EINVAL for options of an unknown size, or
 * if the stream is a channel's;
 * -ECHILD after a fork; -ENOMEM.
 */
SNT_API int snt_stream_split(struct snt_stream *stream,
			     const struct snt_stream_half_opts *reader,
			     const struct snt_stream_half_opts *writer,
			     struct snt_stream_half **reader_out,
			     struct snt_stream_half **writer_out);

/**
 * snt_stream_half_stream - the stream of a half, for the calls of its direction
 */
SNT_API struct snt_stream *snt_stream_half_stream(const struct snt_stream_half *half);

/**
 * snt_stream_half_destroy - give up a direction
 *
 * None of its functions is called any more. NULL is legal and does nothing.
 *
 * Returns: 0; -ECHILD after a fork.
 */
SNT_API int snt_stream_half_destroy(struct snt_stream_half *half);

#ifdef __cplusplus
}
#endif

#endif
