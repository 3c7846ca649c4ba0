/* SPDX-License-Identifier: MIT */
/*
 * Many messages in flight. If the receiver takes part, it reports to the sender after
 * each quarter of its window how many messages it has taken, by an empty write with
 * that number as its immediate; the sender never has more than a window beyond that in
 * flight, so that there is a receive, and a slot that has been verified, for each.
 *
 * The receiver does not notice plain writes. To be verified, they are announced in the
 * same way.
 */
#include <errno.h>

#include "perf_control.h"
#include "perf_error.h"
#include "perf_move.h"
#include "perf_stream.h"

struct flow {
	struct perf_end *end;
	const struct perf_goal *goal;
	struct perf_clock *clock;
	uint32_t depth, batch;
	bool flows;
	bool last_signaled;
	uint64_t now_ns;
};

static bool is_receive(const struct snt_wc *wc)
{
	return wc->opcode == SNT_OP_RECV || wc->opcode == SNT_OP_RECV_NOTIFY;
}

/* How many messages may be posted now; a whole batch, or what is left of the goal. */
static unsigned messages_to_post(const struct flow *flow)
{
	const struct perf_end *end = flow->end;
	uint64_t room = flow->depth - (end->posted - end->done), left = UINT64_MAX;

	if (flow->flows)
		room = perf_min(room, end->credited - end->posted);
	if (flow->goal->messages)
		left = flow->clock->first + flow->goal->messages - end->posted;
	if (room < perf_min(flow->batch, left))
		return 0;
	return (unsigned)perf_min(flow->batch, left);
}

/* Every so many messages one is signalled; so is the last of a batch, because the next
 * batch may have to wait for it, and the last of all. */
static bool is_signaled(const struct flow *flow, uint64_t message, bool last)
{
	const struct perf_end *end = flow->end;

	return (message + 1) % end->shape.signaled == 0 || (last && flow->batch > 1) ||
	       message + 1 == flow->clock->first + flow->goal->messages;
}

static int post_messages(struct flow *flow, unsigned count)
{
	struct snt_send_wr wr[PERF_BATCH_MAX];
	struct snt_sge sge[PERF_BATCH_MAX];
	struct perf_end *end = flow->end;

	for (unsigned i = 0; i < count; i++) {
		uint64_t message = end->posted + i;

		perf_fill(end, message);
		wr[i] = perf_wr(end, &sge[i], message);
		flow->last_signaled = is_signaled(flow, message, i + 1 == count);
		wr[i].flags = flow->last_signaled ? SNT_SEND_SIGNALED : 0;
	}
	end->posted += count;
	return perf_end_post(end, wr, count);
}

static int take_flow_completion(struct flow *flow, const struct snt_wc *wc)
{
	struct perf_end *end = flow->end;

	if (is_receive(wc))
		return perf_flow_take(end, wc);
	if (wc->wr_id == PERF_ASIDE)
		return 0;
	for (; end->done <= wc->wr_id; end->done++)
		perf_landed(end, end->done);
	return 0;
}

static int poll_once(struct flow *flow)
{
	struct snt_wc wc[PERF_POLL_MAX];
	int count = perf_end_poll(flow->end, wc), ret = 0;

	if (count < 0)
		return count;
	for (int i = 0; i < count && !ret; i++)
		ret = take_flow_completion(flow, &wc[i]);
	if (!ret)
		ret = perf_end_idle(flow->end, count);
	if (ret == 1)
		ret = perf_end_hear(flow->end);
	if (count || flow->end->c.events || !(flow->end->idle_polls % 64))
		flow->now_ns = perf_now_ns();
	return ret;
}

/* Everything is sent and, if need be, verified. */
static bool is_flow_over(const struct flow *flow)
{
	const struct perf_end *end = flow->end;

	if (end->done < end->posted)
		return false;
	return !flow->flows ||
	       end->credited - end->shape.window + end->shape.credit > end->posted;
}

static bool is_flow_open(const struct flow *flow)
{
	return !flow->last_signaled ||
	       perf_clock_open(flow->clock, flow->end, flow->goal, flow->now_ns);
}

static int send_flow(struct flow *flow)
{
	int ret = 0;

	while (!ret && is_flow_open(flow)) {
		unsigned count = messages_to_post(flow);

		for (; !ret && count && is_flow_open(flow);
		     count = messages_to_post(flow)) {
			ret = post_messages(flow, count);
			if (!ret)
				ret = perf_announce(flow->end, false);
		}
		if (!ret)
			ret = poll_once(flow);
		perf_clock_tick(flow->clock, flow->end, flow->goal, flow->now_ns);
	}
	return ret ? ret : perf_announce(flow->end, true);
}

int perf_flow_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock)
{
	struct flow flow = { .end = end,
			     .goal = goal,
			     .clock = clock,
			     .depth = end->c.depth,
			     .batch = end->c.batch,
			     .flows = perf_case_flows(&end->c) };
	int ret;

	if (end->c.verify)
		flow.depth = (uint32_t)perf_min(flow.depth, end->shape.window);
	if (flow.flows)
		flow.batch = (uint32_t)perf_min(flow.batch, end->shape.credit);
	flow.batch = (uint32_t)perf_min(flow.batch, flow.depth);
	perf_clock_start(clock, end, goal);
	flow.now_ns = clock->begin_ns;
	ret = send_flow(&flow);
	while (!ret && !is_flow_over(&flow))
		ret = poll_once(&flow);
	perf_end_finish(end);
	clock->end_ns = clock->begin_ns + end->use.elapsed_ns;
	/* The end is a sample, also of a run shorter than an interval. */
	if (goal->timeline)
		goal->timeline->next_ns = clock->end_ns;
	perf_clock_tick(clock, end, goal, clock->end_ns);
	return ret;
}

/*
 * Receiving
 */

/* How many messages a completion stands for. */
static int messages_of(struct perf_end *end, const struct snt_wc *wc,
		       uint32_t *count_out)
{
	*count_out = 1;
	if (end->c.op != PERF_WRITE)
		return 0;
	*count_out = (wc->imm - (uint32_t)end->received) & ~PERF_CREDIT;
	if (*count_out && *count_out <= end->shape.window)
		return 0;
	return perf_fail(EPROTO,
			 "the other end announced %u messages, but its window is %u",
			 *count_out, end->shape.window);
}

static void verify_message(struct perf_end *end, const struct snt_wc *wc)
{
	const struct perf_case *c = &end->c;
	uint32_t number = (uint32_t)end->received & ~PERF_CREDIT;

	if (!c->verify)
		return;
	if (c->op == PERF_WRITE_IMM && wc->imm != number)
		perf_end_wrong(end, end->received);
	if (c->op == PERF_SEND && wc->length != c->size)
		perf_end_wrong(end, end->received);
	perf_end_verify(end, perf_end_in(end, end->received), end->received);
}

int perf_flow_take(struct perf_end *end, const struct snt_wc *wc)
{
	uint32_t count;
	int ret;

	if (!is_receive(wc))
		return 0;
	if (wc->opcode == SNT_OP_RECV_NOTIFY && wc->imm & PERF_CREDIT)
		return perf_credit(end, wc->imm);
	if (!perf_case_takes(&end->c, end->serves))
		return perf_fail(EPROTO, "a message arrived at an end that only sends");
	ret = messages_of(end, wc, &count);
	if (ret)
		return ret;
	for (; count; count--, end->received++)
		verify_message(end, wc);
	ret = perf_end_recv(end);
	if (ret || end->received - end->told < end->shape.credit)
		return ret;
	end->told = end->received;
	return perf_end_tell(end, (uint32_t)end->received | PERF_CREDIT);
}

int perf_take_some(struct perf_end *end)
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
