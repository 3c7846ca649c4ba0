/* SPDX-License-Identifier: MIT */
/*
 * One message at a time. If the receiver notices (write-imm, send), it answers each
 * with one of the same kind, and the latency is half of the round trip; otherwise it is
 * the time until the message is complete, that is, a whole round trip.
 */
#include "perf_control.h"
#include "perf_move.h"

struct echo {
	struct perf_end *end;
	bool echoes;
	uint64_t answered_ns; /* when the last answer was seen */
};

static int take_echo_completion(struct echo *echo, const struct snt_wc *wc)
{
	struct perf_end *end = echo->end;

	if (wc->wr_id == PERF_ASIDE)
		return 0;
	if (wc->opcode != SNT_OP_RECV && wc->opcode != SNT_OP_RECV_NOTIFY) {
		for (; end->done <= wc->wr_id; end->done++)
			perf_landed(end, end->done);
		if (!echo->echoes)
			echo->answered_ns = perf_now_ns();
		return 0;
	}
	if (!echo->echoes)
		return perf_credit(end, wc->imm);
	echo->answered_ns = perf_now_ns();
	if (end->c.verify)
		perf_end_verify(end, perf_end_in(end, end->received), end->received);
	end->received++;
	return perf_end_recv(end);
}

/* A slot for the next message is waited for, too, but that does not count as its
 * time. */
static bool is_echo_over(const struct echo *echo, uint64_t message)
{
	const struct perf_end *end = echo->end;

	if (end->done <= message)
		return false;
	if (echo->echoes)
		return end->received > message;
	return !perf_case_flows(&end->c) || end->credited > message + 1;
}

static int wait_for_echo(struct echo *echo, uint64_t message)
{
	struct perf_end *end = echo->end;
	struct perf_message said;
	int ret = 0;

	while (!ret && !is_echo_over(echo, message)) {
		struct snt_wc wc[PERF_POLL_MAX];
		int count = perf_end_poll(end, wc);

		if (count < 0)
			return count;
		for (int i = 0; i < count && !ret; i++)
			ret = take_echo_completion(echo, &wc[i]);
		if (!ret)
			ret = perf_end_idle(end, count);
		if (ret == 1)
			ret = perf_expect(end->control, PERF_FAILED, &said);
	}
	return ret;
}

static int post_next_message(struct perf_end *end)
{
	struct snt_sge sge;
	struct snt_send_wr wr = perf_wr(end, &sge, end->posted);

	end->posted++;
	return perf_end_post(end, &wr, 1);
}

int perf_echo_send(struct perf_end *end, const struct perf_goal *goal,
		   struct perf_clock *clock)
{
	struct echo echo = { .end = end, .echoes = perf_case_echoes(&end->c) };
	int ret = 0;

	perf_clock_start(clock, end, goal);
	echo.answered_ns = clock->begin_ns;
	while (!ret && perf_clock_open(clock, end, goal, echo.answered_ns)) {
		uint64_t begin_ns, message = end->posted;

		perf_fill(end, message);
		begin_ns = perf_now_ns();
		ret = post_next_message(end);
		if (!ret)
			ret = perf_announce(end, false);
		if (!ret)
			ret = wait_for_echo(&echo, message);
		if (!ret && goal->latency)
			histogram_record(goal->latency, (echo.answered_ns - begin_ns) /
								(echo.echoes ? 2 : 1));
		perf_clock_tick(clock, end, goal, echo.answered_ns);
	}
	if (!ret)
		ret = perf_announce(end, true);
	perf_end_finish(end);
	clock->end_ns = clock->begin_ns + end->use.elapsed_ns;
	return ret;
}

int perf_echo_take(struct perf_end *end, const struct snt_wc *wc)
{
	uint64_t message = end->received;
	int ret;

	if (wc->opcode != SNT_OP_RECV && wc->opcode != SNT_OP_RECV_NOTIFY) {
		end->done = wc->wr_id + 1;
		return 0;
	}
	end->received++;
	ret = perf_end_recv(end);
	if (ret)
		return ret;
	if (end->c.verify)
		perf_end_verify(end, perf_end_in(end, message), message);
	perf_fill(end, message);
	return post_next_message(end);
}
