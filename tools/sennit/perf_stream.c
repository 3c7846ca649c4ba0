/* SPDX-License-Identifier: MIT */
#include "perf_stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "perf_control.h"
#include "perf_error.h"
#include "perf_pattern.h"

int perf_stream_make(struct perf_end *end)
{
	struct snt_stream_opts opts = { .size = sizeof(opts) };
	int ret = snt_stream_create(end->qp, &opts, &end->stream);
	ssize_t length;

	if (ret)
		return perf_fail_library(ret, "making a stream");
	end->stream_at = 0;
	length = snt_stream_offer(end->stream, end->offer.bytes,
				  sizeof(end->offer.bytes));
	if (length < 0)
		return perf_fail_library((int)length, "the stream's offer");
	end->offer.length = (size_t)length;
	return 0;
}

int perf_stream_start(struct perf_end *end)
{
	int ret = snt_stream_start(end->stream, end->peer_offer.bytes,
				   end->peer_offer.length);

	return ret ? perf_fail_library(ret, "starting the stream") : 0;
}

/* Lets the loop run once; without work, and if the case has events, sleeps until there
 * is some, or the other end has sent a message, or some time has passed. */
static int make_progress(struct perf_end *end)
{
	struct pollfd watch[2] = { { .events = POLLIN },
				   { .fd = end->control, .events = POLLIN } };
	int ret;

	if (!end->c.events) {
		ret = snt_loop_poll(end->loop, 0);
		return ret < 0 ? perf_fail_library(ret, "the loop") : 0;
	}
	watch[0].fd = snt_loop_fd(end->loop);
	if (watch[0].fd < 0)
		return perf_fail_library(watch[0].fd, "the loop");
	if (poll(watch, 2, 100) < 0 && errno != EINTR)
		return perf_fail(errno, "poll: %s", strerror(errno));
	ret = snt_loop_dispatch(end->loop, 0);
	return ret < 0 ? perf_fail_library(ret, "the loop") : 0;
}

static int fail_stream_call(const struct perf_end *end, ssize_t ret)
{
	struct snt_stream_info info = { .size = sizeof(info) };

	if (!ret)
		return perf_fail(ECONNRESET, "the other end has closed the stream");
	if (snt_stream_query(end->stream, &info) || !*info.text)
		return perf_fail((int)-ret, "the stream: %s", strerror((int)-ret));
	return perf_fail((int)-ret, "the stream: %s", info.text);
}

/* One step towards the end; 1 if either end has got further. */
static int end_step(struct perf_end *end, bool *here, bool *there)
{
	struct perf_message said;
	int ret = *here ? -ETIME : snt_stream_wait(end->stream, SNT_STREAM_OVER, 0);

	if (ret < 0 && ret != -ETIME)
		return fail_stream_call(end, ret);
	if (ret != -ETIME) {
		*here = true;
		ret = perf_send_word(end->control, PERF_OVER);
		return ret ? ret : 1;
	}
	if (!*there && perf_told(end->control)) {
		*there = true;
		ret = perf_expect(end->control, PERF_OVER, &said);
		return ret ? ret : 1;
	}
	return make_progress(end);
}

int perf_stream_end(struct perf_end *end)
{
	uint64_t deadline_ns = perf_now_ns() + PERF_PATIENCE_NS;
	bool here = false, there = false;
	int ret = snt_stream_shutdown(end->stream);

	if (ret)
		return fail_stream_call(end, ret);
	while (ret >= 0 && !(here && there)) {
		ret = end_step(end, &here, &there);
		if (!ret && perf_now_ns() > deadline_ns)
			return perf_fail(ETIMEDOUT,
					 "the stream was not closed in time at %s end",
					 here ? "the other" : "this");
	}
	return ret < 0 ? ret : 0;
}

void perf_stream_unmake(struct perf_end *end)
{
	uint64_t deadline_ns = perf_now_ns() + PERF_PATIENCE_NS;

	snt_stream_destroy(end->stream);
	end->stream = NULL;
	/* It closes its QP; devices release it while the loop runs. */
	while (snt_qp_destroy(end->qp) == -EBUSY && perf_now_ns() < deadline_ns)
		snt_loop_poll(end->loop, 0);
	end->qp = NULL;
}

/* A message that has been read as a whole. */
static void count_message(struct perf_end *end)
{
	if (end->c.verify)
		perf_end_verify(end, perf_end_in(end, 0), end->received);
	end->received++;
	end->stream_at = 0;
}

/* Returns how many bytes came. */
static ssize_t read_message_bytes(struct perf_end *end)
{
	ssize_t got = snt_stream_read(end->stream, perf_end_in(end, 0) + end->stream_at,
				      end->c.size - end->stream_at);

	if (got == -EAGAIN)
		return 0;
	if (got <= 0)
		return fail_stream_call(end, got);
	end->stream_at += (size_t)got;
	return got;
}

/* What has arrived of the other direction. */
static int read_back(struct perf_end *end)
{
	ssize_t got = read_message_bytes(end);

	if (got > 0 && end->stream_at == end->c.size)
		count_message(end);
	return got < 0 ? (int)got : got > 0;
}

/* After something was done, or not. */
static int go_on(struct perf_end *end, int done)
{
	int ret = end->c.bidirectional ? read_back(end) : 0;

	if (ret < 0)
		return ret;
	done |= ret;
	ret = done ? 0 : make_progress(end);
	if (!ret)
		ret = perf_end_idle(end, done);
	if (ret == 1)
		ret = perf_end_hear(end);
	return ret;
}

static int write_message(struct perf_end *end, const unsigned char *bytes)
{
	size_t at = 0;
	int ret = 0;

	while (!ret && at < end->c.size) {
		ssize_t wrote =
			snt_stream_write(end->stream, bytes + at, end->c.size - at);

		if (wrote < 0 && wrote != -EAGAIN)
			return fail_stream_call(end, wrote);
		at += wrote > 0 ? (size_t)wrote : 0;
		ret = go_on(end, wrote > 0);
	}
	return ret;
}

/*
 * The client
 */

static int read_answer(struct perf_end *end)
{
	int ret = 0;

	while (!ret && end->stream_at < end->c.size) {
		ssize_t got = read_message_bytes(end);

		ret = got < 0 ? (int)got : go_on(end, got > 0);
	}
	return ret;
}

static int send_message(struct perf_end *end, const struct perf_goal *goal)
{
	uint64_t begin_ns;
	int ret;

	perf_fill(end, end->posted);
	begin_ns = perf_now_ns();
	ret = write_message(end, perf_end_out(end, end->posted));
	if (!ret && end->c.kind == PERF_LATENCY) {
		ret = read_answer(end);
		if (!ret && goal->latency)
			histogram_record(goal->latency, (perf_now_ns() - begin_ns) / 2);
		count_message(end);
	}
	end->posted++;
	end->done++;
	return ret;
}

/* All has arrived in the other end's memory. */
static int flush_stream(struct perf_end *end)
{
	int ret = 0, state;

	while (!ret && (state = snt_stream_flush(end->stream)))
		ret = state == -EAGAIN ? go_on(end, 0) : fail_stream_call(end, state);
	return ret;
}

int perf_stream_send(struct perf_end *end, const struct perf_goal *goal,
		     struct perf_clock *clock)
{
	uint64_t now_ns;
	int ret = 0;

	perf_clock_start(clock, end, goal);
	now_ns = clock->begin_ns;
	while (!ret && perf_clock_open(clock, end, goal, now_ns)) {
		ret = send_message(end, goal);
		now_ns = perf_now_ns();
		perf_clock_tick(clock, end, goal, now_ns);
	}
	if (!ret)
		ret = flush_stream(end);
	perf_end_finish(end);
	clock->end_ns = clock->begin_ns + end->use.elapsed_ns;
	return ret;
}

/*
 * The server
 */

int perf_stream_take(struct perf_end *end)
{
	ssize_t got = read_message_bytes(end);
	int ret;

	if (got < 0)
		return (int)got;
	if (!got) {
		ret = make_progress(end);
		return ret;
	}
	if (end->stream_at < end->c.size)
		return 1;
	count_message(end);
	if (end->c.kind != PERF_LATENCY)
		return 1;
	ret = write_message(end, perf_end_in(end, 0));
	return ret ? ret : 1;
}
