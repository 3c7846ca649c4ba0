/* SPDX-License-Identifier: MIT */
/*
 * The server has no options: the client chooses what is measured. The client is not
 * trusted; its requests are checked against the limits of perf_case.h before anything
 * is made.
 */
#include "perf_server.h"

#include <errno.h>
#include <string.h>

#include "perf_control.h"
#include "perf_end.h"
#include "perf_error.h"
#include "perf_move.h"
#include "perf_stream.h"

/* A client that is silent for so long was abandoned by its user. */
#define SESSION_PATIENCE_NS (UINT64_C(60) * 1000000000)

static int exchange_hellos(struct perf_end *end)
{
	struct perf_message message;
	int ret = perf_expect(end->control, PERF_HELLO, &message);

	if (ret)
		return ret;
	end->peer_devices = message.hello.device_count;
	message = (struct perf_message){ .type = PERF_HELLO };
	perf_end_hello(end, &message.hello);
	return perf_send(end->control, &message);
}

static int set_up_server_case(struct perf_end *end, const struct perf_case *c)
{
	struct perf_message message = { .type = PERF_READY };
	int ret = perf_end_make(end, c, true);

	if (ret)
		return ret;
	ret = perf_end_address(end, &message.address);
	if (!ret)
		ret = perf_send(end->control, &message);
	if (!ret)
		ret = perf_expect(end->control, PERF_CONNECT, &message);
	if (!ret)
		ret = perf_end_connect(end, &message.address);
	if (!ret && end->stream)
		ret = perf_stream_start(end);
	return ret ? ret : perf_send_word(end->control, PERF_CONNECTED);
}

/* Until everything that the client has sent has arrived; STOP says how much that is. */
static int take_part(struct perf_end *end)
{
	int ret = 0;

	while (!ret && end->received < end->expected) {
		int count = perf_take_some(end);

		ret = count < 0 ? count : perf_end_idle(end, count);
		if (ret == 1)
			ret = perf_end_hear(end);
	}
	return ret;
}

/* This end only waits; devices do the rest. */
static int look_on(struct perf_end *end)
{
	struct perf_message message;
	int ret;

	do
		ret = perf_receive(end->control, SESSION_PATIENCE_NS, &message);
	while (!ret && message.type == PERF_RUNNING);
	if (!ret && message.type != PERF_STOP)
		ret = perf_fail(EPROTO, "unexpected message %u during a run",
				message.type);
	if (!ret)
		end->expected = message.messages;
	return ret;
}

/* Does what the client does, at the same time. */
static int send_back(struct perf_end *end, const struct perf_limit *limit)
{
	struct perf_goal goal = { .messages = limit->messages,
				  .duration_ns = limit->duration_ns };
	struct perf_clock clock;

	return end->stream ? perf_stream_send(end, &goal, &clock)
			   : perf_flow_send(end, &goal, &clock);
}

static int receive_all(struct perf_end *end)
{
	int ret = 0;

	if (perf_case_takes(&end->c, true))
		return take_part(end);
	if (end->expected == UINT64_MAX)
		ret = look_on(end);
	end->received = end->expected;
	return ret;
}

static int run_on_server(struct perf_end *end, const struct perf_limit *limit)
{
	struct perf_message message = { .type = PERF_RESULT };
	int ret = perf_send_word(end->control, PERF_RUNNING);

	if (ret)
		return ret;
	end->expected = UINT64_MAX;
	perf_end_begin(end);
	end->idle_polls = 0;
	if (end->c.bidirectional)
		ret = send_back(end, limit);
	if (!ret)
		ret = receive_all(end);
	if (!end->c.bidirectional)
		perf_end_finish(end);
	if (ret)
		return ret;
	perf_end_verify_counter(end, end->received);
	end->use.messages = end->received;
	end->use.sent = end->posted;
	message.use = end->use;
	return perf_send(end->control, &message);
}

static int serve_case(struct perf_end *end, const struct perf_case *c)
{
	struct perf_message message;
	int ret = set_up_server_case(end, c);

	while (!ret) {
		ret = perf_receive(end->control, SESSION_PATIENCE_NS, &message);
		if (ret || message.type == PERF_DONE)
			break;
		ret = message.type == PERF_RUN
			      ? run_on_server(end, &message.limit)
			      : perf_fail(EPROTO, "unexpected message %u between runs",
					  message.type);
	}
	if (!ret && end->stream)
		ret = perf_stream_end(end);
	perf_end_unmake(end);
	return ret ? ret : perf_send_word(end->control, PERF_DONE);
}

/* A failed case is reported to the client, which may go on with another; a failure to
 * report, or a message that was not understood, ends the session. */
static bool may_go_on(int ret)
{
	return ret != -ECONNRESET && ret != -ETIMEDOUT && ret != -EBADMSG &&
	       ret != -EPROTO && ret != -EPROTONOSUPPORT;
}

int perf_serve_client(struct snt_loop *loop, int control)
{
	struct perf_end end = { .ctx = snt_loop_ctx(loop),
				.loop = loop,
				.control = control };
	struct perf_message message;
	bool failed = false;
	int ret = exchange_hellos(&end);

	while (!ret) {
		ret = perf_receive(control, SESSION_PATIENCE_NS, &message);
		if (ret == -ECONNRESET) /* the normal end */
			return 0;
		/* The client may have ended its run before it learned of the failure. */
		if (!ret && failed && message.type == PERF_STOP) {
			failed = false;
			continue;
		}
		if (!ret && message.type != PERF_CASE)
			ret = perf_fail(EPROTO, "unexpected message %u between cases",
					message.type);
		failed = false;
		if (!ret)
			ret = serve_case(&end, &message.c);
		if (!ret)
			continue;
		if (perf_send_failed(control) || !may_go_on(ret))
			return ret;
		failed = true;
		ret = 0;
	}
	perf_send_failed(control);
	return ret;
}
