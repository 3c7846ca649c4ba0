/* SPDX-License-Identifier: MIT */
/*
 * Readiness: which events the program wants, whether they are true, and which callbacks
 * or waits they end. Completions and events of the connection make them true; both come
 * from the loop and end in snt__stream_tell().
 */
#include <errno.h>

#include "stream/stream.h"
#include "util/err.h"

static inline bool is_readable(const struct snt_stream *stream)
{
	return snt__inflow_unread(&stream->in) >= stream->low || stream->in.ended ||
	       snt__stream_is_over(stream);
}

/* A quarter of the stage, which is always free sooner or later. */
static inline bool is_writable(const struct snt_stream *stream)
{
	uint64_t used = stream->staged - stream->released;

	return stream->stage_size - used >= stream->stage_size / 4 ||
	       snt__stream_has_failed(stream);
}

static inline bool is_flushed(const struct snt_stream *stream)
{
	return (stream->opened && snt__stream_all_arrived(stream)) ||
	       snt__stream_has_failed(stream);
}

unsigned snt__stream_state(const struct snt_stream *stream)
{
	return (stream->opened ? SNT_STREAM_OPEN : 0) |
	       (is_readable(stream) ? SNT_STREAM_READABLE : 0) |
	       (is_writable(stream) ? SNT_STREAM_WRITABLE : 0) |
	       (is_flushed(stream) ? SNT_STREAM_FLUSHED : 0) |
	       (snt__stream_is_over(stream) ? SNT_STREAM_OVER : 0);
}

/* Returns the wanted events that are true, and no longer wants them. */
static inline unsigned take_wanted_events(struct snt_stream *stream)
{
	unsigned events = stream->wants & snt__stream_state(stream);

	stream->wants &= (uint8_t)~events;
	return events;
}

static void release_sends(struct snt_stream *stream)
{
	while (stream->send_done) {
		struct snt_stream_send *send = stream->send_done;

		stream->send_done = send->next;
		if (!stream->send_done)
			stream->send_done_end = &stream->send_done;
		send->released(send);
	}
}

void snt__stream_tell(struct snt_stream *stream)
{
	unsigned events;

	stream->busy++;
	if (stream->send_done)
		release_sends(stream);
	if (stream->user) {
		stream->user->tell(stream);
	} else if (stream->ready && stream->holder == SNT__STREAM_PROGRAM) {
		events = take_wanted_events(stream);
		if (events)
			stream->ready(stream->arg, stream, events);
	}
	stream->busy--;
	if (stream->holder == SNT__STREAM_NOBODY && snt__stream_is_over(stream) &&
	    !stream->busy)
		snt__stream_free(stream);
}

int snt__stream_work(struct snt__worker *worker)
{
	snt__stream_tell(snt__container(worker, struct snt_stream, worker));
	return 1;
}

void snt__stream_tell_later(struct snt_stream *stream)
{
	snt__conn_loop_add_work(stream->conn_loop, &stream->worker);
}

void snt_stream_set_ready_handler(struct snt_stream *stream,
				  void (*ready)(void *arg, struct snt_stream *stream,
						unsigned events),
				  void *arg)
{
	stream->ready = ready;
	stream->arg = arg;
	if (ready)
		snt__stream_tell_later(stream);
}

/*
 * Waiting
 */

static int wait_result(const struct snt_stream *stream, unsigned found)
{
	if (found == SNT_STREAM_OVER && stream->status)
		return snt__fail(-stream->status, "%s", stream->text);
	return (int)found;
}

static unsigned found_of(const struct snt_stream *stream, unsigned events)
{
	return snt__stream_state(stream) & (events | SNT_STREAM_OVER);
}

static void forget_stream_waiter(void *arg)
{
	struct snt__stream_waiter *waiter = arg;

	waiter->stream->waiter = waiter->next;
}

/* Arming and sleeping are expensive, and often the event is there already. */
static int wait_once(struct snt_stream *stream, unsigned events, int64_t left,
		     struct snt__stream_waiter *waiter)
{
	struct snt_loop *loop = stream->conn_loop->loop;
	int ret = left ? snt_loop_poll(loop, 0) : 0;

	if (ret < 0 || waiter->gone || found_of(stream, events))
		return ret;
	return snt__loop_wait_undo(loop, left, forget_stream_waiter, waiter);
}

static int wait_stream_shielded(struct snt_stream *stream, unsigned events,
				int64_t timeout_ns, bool *gone_out)
{
	struct snt__stream_waiter waiter = { .next = stream->waiter, .stream = stream };
	uint64_t begin = timeout_ns > 0 ? snt_loop_now(stream->conn_loop->loop) : 0;
	unsigned found = found_of(stream, events);
	int64_t left = timeout_ns;
	int ret = 0;

	stream->waiter = &waiter;
	while (!found) {
		ret = wait_once(stream, events, left, &waiter);
		*gone_out = waiter.gone;
		if (waiter.gone)
			return snt__fail(ECANCELED,
					 "the stream was destroyed meanwhile");
		found = found_of(stream, events);
		if (ret < 0 || !left)
			break;
		left = snt__conn_loop_left(stream->conn_loop, timeout_ns, begin);
	}
	stream->waiter = waiter.next;
	if (found)
		return wait_result(stream, found);
	return ret < 0 ? ret : snt__fail(ETIME, "timed out waiting for the stream");
}

int snt__stream_wait(struct snt_stream *stream, unsigned events, int64_t timeout_ns,
		     bool *gone_out)
{
	struct snt__shield kept;
	int ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = wait_stream_shielded(stream, events, timeout_ns, gone_out);
	snt__shield_end(&kept);
	return ret;
}

int snt_stream_wait(struct snt_stream *stream, unsigned events, int64_t timeout_ns)
{
	bool gone;

	return snt__stream_wait(stream, events, timeout_ns, &gone);
}

/*
 * Blocking calls
 */

/* Returns 0 to continue. */
static int wait_more(struct snt_stream *stream, unsigned event, int64_t timeout_ns,
		     uint64_t begin)
{
	int64_t left = snt__conn_loop_left(stream->conn_loop, timeout_ns, begin);
	int ret;

	if (timeout_ns > 0 && !left)
		return snt__fail(ETIME, "timed out waiting for the stream");
	ret = snt_stream_wait(stream, event, left);
	return ret == -EBUSY || ret == -ECHILD || ret == -ECANCELED || ret == -ETIME
		       ? ret
		       : 0;
}

static ssize_t read_all(struct snt_stream *stream, void *buffer, size_t length,
			int64_t timeout_ns)
{
	uint64_t begin = snt_loop_now(stream->conn_loop->loop);
	uint8_t *to = buffer;
	size_t done = 0;
	ssize_t ret = 0;

	while (done < length) {
		ret = snt_stream_read(stream, to + done, length - done);
		if (ret == -EAGAIN)
			ret = wait_more(stream, SNT_STREAM_READABLE, timeout_ns, begin);
		else if (!ret)
			break;
		if (ret < 0)
			break;
		done += (size_t)ret;
	}
	return done ? (ssize_t)done : ret;
}

ssize_t snt_stream_read_all(struct snt_stream *stream, void *buffer, size_t length,
			    int64_t timeout_ns)
{
	struct snt__shield kept;
	ssize_t ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = read_all(stream, buffer, length, timeout_ns);
	snt__shield_end(&kept);
	return ret;
}

static ssize_t write_all(struct snt_stream *stream, const void *buffer, size_t length,
			 int64_t timeout_ns)
{
	uint64_t begin = snt_loop_now(stream->conn_loop->loop);
	const uint8_t *from = buffer;
	size_t done = 0;
	ssize_t ret = 0;

	while (done < length) {
		ret = snt_stream_write(stream, from + done, length - done);
		if (ret == -EAGAIN)
			ret = wait_more(stream, SNT_STREAM_WRITABLE, timeout_ns, begin);
		if (ret < 0)
			break;
		done += (size_t)ret;
	}
	return done ? (ssize_t)done : ret;
}

ssize_t snt_stream_write_all(struct snt_stream *stream, const void *buffer,
			     size_t length, int64_t timeout_ns)
{
	struct snt__shield kept;
	ssize_t ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = write_all(stream, buffer, length, timeout_ns);
	snt__shield_end(&kept);
	return ret;
}
