/* SPDX-License-Identifier: MIT */
/*
 * The server has no options: the client says what is to be measured. It is not trusted; what
 * it asks for is checked against the limits of perf_case.h before anything is made.
 */
#include "perf_server.h"

#include <errno.h>
#include <string.h>

#include "perf_control.h"
#include "perf_end.h"
#include "perf_error.h"
#include "perf_move.h"
#include "perf_pattern.h"
#include "perf_stream.h"

/* A client that says nothing for so long has been forgotten by its user. */
#define SESSION_PATIENCE_NS (UINT64_C(60) * 1000000000)

static int greet(struct perf_end *end)
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

/* READs are of what is here. */
static void fill_for_reads(struct perf_end *end)
{
	const struct perf_case *c = &end->c;

	for (uint32_t i = 0; c->verify && c->op == PERF_READ && i < end->shape.slots;
	     i++)
		pattern_fill(perf_end_out(end, i), c->size, c->seed, i);
}

static int set_up(struct perf_end *end, const struct perf_case *c)
{
	struct perf_message message = { .type = PERF_READY };
	int ret = perf_end_make(end, c, true);

	if (ret)
		return ret;
	fill_for_reads(end);
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

/* The client has stopped after so many messages, which may still be on their way. */
static int stopped(struct perf_end *end, uint64_t *messages_out)
{
	struct perf_message message;
	int ret = perf_expect(end->control, PERF_STOP, &message);

	if (ret)
		return ret;
	if (message.messages < end->received)
		return perf_fail(EPROTO, "%llu messages have come, of %llu",
				 (unsigned long long)end->received,
				 (unsigned long long)message.messages);
	*messages_out = message.messages;
	return 0;
}

/* What has come; how much that was. */
static int take_some(struct perf_end *end)
{
	bool echoes = perf_case_echoes(&end->c);
	struct snt_wc wc[PERF_POLL_MAX];
	int count, ret = 0;

	if (end->stream)
		return perf_stream_take(end);
	count = perf_end_poll(end, wc);
	for (int i = 0; i < count && !ret; i++)
		ret = echoes ? perf_echo_take(end, &wc[i])
			     : perf_flow_take(end, &wc[i]);
	return ret ? ret : count;
}

static int take_part(struct perf_end *end)
{
	uint64_t messages = UINT64_MAX;
	int ret = 0;

	while (!ret && end->received < messages) {
		int count = take_some(end);

		ret = count < 0 ? count : perf_end_idle(end, count);
		if (ret == 1)
			ret = stopped(end, &messages);
	}
	return ret;
}

/* Nothing to do but to be there; devices do the rest. */
static int look_on(struct perf_end *end)
{
	struct perf_message message;
	int ret = perf_receive(end->control, SESSION_PATIENCE_NS, &message);

	if (!ret && message.type != PERF_STOP)
		ret = perf_fail(EPROTO, "message %u during a run", message.type);
	if (!ret)
		end->received = message.messages;
	return ret;
}

/* How many times 1 was added to it is known; the client saw the values in between. */
static void verify_counter(struct perf_end *end)
{
	uint64_t counter;

	if (!end->c.verify || !perf_case_is_atomic(&end->c))
		return;
	memcpy(&counter, perf_end_in(end, 0), sizeof(counter));
	if (counter != end->received)
		perf_end_wrong(end, end->received);
}

static int run(struct perf_end *end)
{
	struct perf_message message = { .type = PERF_RESULT };
	int ret = perf_send_word(end->control, PERF_RUNNING);

	if (ret)
		return ret;
	perf_end_begin(end);
	end->idle_polls = 0;
	ret = perf_case_flows(&end->c) || perf_case_echoes(&end->c) ? take_part(end)
								    : look_on(end);
	perf_end_finish(end);
	if (ret)
		return ret;
	verify_counter(end);
	end->use.messages = end->received;
	message.use = end->use;
	return perf_send(end->control, &message);
}

static int serve_case(struct perf_end *end, const struct perf_case *c)
{
	struct perf_message message;
	int ret = set_up(end, c);

	while (!ret) {
		ret = perf_receive(end->control, SESSION_PATIENCE_NS, &message);
		if (ret || message.type == PERF_DONE)
			break;
		ret = message.type == PERF_RUN
			      ? run(end)
			      : perf_fail(EPROTO, "message %u between runs",
					  message.type);
	}
	if (!ret && end->stream)
		ret = perf_stream_end(end);
	perf_end_unmake(end);
	return ret ? ret : perf_send_word(end->control, PERF_DONE);
}

/* A case that fails is told to the client, who may go on with another; what cannot be told,
 * or was not understood, ends the session. */
static bool may_go_on(int ret)
{
	return ret != -ECONNRESET && ret != -ETIMEDOUT && ret != -EBADMSG &&
	       ret != -EPROTO && ret != -EPROTONOSUPPORT;
}

int perf_serve_client(struct snt_ctx *ctx, int control)
{
	struct perf_end end = { .ctx = ctx, .control = control };
	struct perf_message message;
	int ret = greet(&end);

	while (!ret) {
		ret = perf_receive(control, SESSION_PATIENCE_NS, &message);
		if (ret == -ECONNRESET) /* as it should end */
			return 0;
		if (!ret && message.type != PERF_CASE)
			ret = perf_fail(EPROTO, "message %u between cases",
					message.type);
		if (!ret)
			ret = serve_case(&end, &message.c);
		if (!ret)
			continue;
		if (perf_send_failed(control) || !may_go_on(ret))
			return ret;
		ret = 0;
	}
	perf_send_failed(control);
	return ret;
}
