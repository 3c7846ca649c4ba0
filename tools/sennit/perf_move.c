/* SPDX-License-Identifier: MIT */
#include "perf_move.h"

#include <errno.h>
#include <string.h>

#include "perf_control.h"
#include "perf_error.h"
#include "perf_pattern.h"

#define FIRST_INTERVAL_NS UINT64_C(2000000)
#define PROGRESS_NS	  UINT64_C(100000000)
#define SIGN_NS		  UINT64_C(1000000000)

/*
 * Messages
 */

/* The server's slot to read. It changes with each use of a slot here, so that bytes
 * from the last time are never the expected ones. */
static uint64_t read_slot(const struct perf_end *end, uint64_t message)
{
	return (message + message / end->shape.slots) % end->shape.slots;
}

struct snt_send_wr perf_wr(struct perf_end *end, struct snt_sge *sge, uint64_t message)
{
	static const uint8_t opcode[] = { [PERF_WRITE] = SNT_OP_WRITE,
					  [PERF_WRITE_IMM] = SNT_OP_WRITE_IMM,
					  [PERF_READ] = SNT_OP_READ,
					  [PERF_SEND] = SNT_OP_SEND,
					  [PERF_FETCH_ADD] = SNT_OP_FETCH_ADD,
					  [PERF_CMP_SWAP] = SNT_OP_CMP_SWAP };
	const struct perf_case *c = &end->c;
	struct snt_send_wr wr = { .wr_id = message,
				  .opcode = opcode[c->op],
				  .flags = SNT_SEND_SIGNALED,
				  .sge = sge,
				  .sge_count = 1,
				  .remote = &end->peer,
				  .remote_addr = perf_end_remote_in(end, message) };

	*sge = (struct snt_sge){ end->mem, perf_end_out(end, message), c->size };
	if (c->op == PERF_READ)
		wr.remote_addr = perf_end_remote_out(end, read_slot(end, message));
	if (c->op == PERF_READ || perf_case_is_atomic(c))
		sge->addr = perf_end_in(end, message);
	if (perf_case_is_atomic(c)) {
		wr.remote_addr = perf_end_remote_out(end, 0);
		wr.compare_add = c->op == PERF_FETCH_ADD ? 1 : message;
		wr.swap = message + 1;
	}
	/* With DQPLB an immediate costs a write of its own, if it is not 0. */
	if (c->op == PERF_WRITE_IMM && c->verify)
		wr.imm = (uint32_t)message & ~PERF_CREDIT;
	return wr;
}

void perf_fill(struct perf_end *end, uint64_t message)
{
	const struct perf_case *c = &end->c;

	if (c->verify && c->op != PERF_READ && !perf_case_is_atomic(c))
		pattern_fill(perf_end_out(end, message), c->size, c->seed, message);
}

/* Each atomic adds one to the result of the previous one. */
void perf_landed(struct perf_end *end, uint64_t message)
{
	const struct perf_case *c = &end->c;
	uint64_t old;

	if (!c->verify)
		return;
	if (c->op == PERF_READ)
		perf_end_verify(end, perf_end_in(end, message),
				read_slot(end, message));
	if (!perf_case_is_atomic(c))
		return;
	memcpy(&old, perf_end_in(end, message), sizeof(old));
	end->use.checked_bytes += sizeof(old);
	if (old != message)
		perf_end_wrong(end, message);
}

/*
 * Flow
 */

int perf_announce(struct perf_end *end, bool all)
{
	uint64_t new = end->posted - end->announced;

	if (end->c.op != PERF_WRITE || !perf_case_flows(&end->c) || !new)
		return 0;
	if (!all && new < end->shape.credit)
		return 0;
	end->announced = end->posted;
	return perf_end_tell(end, (uint32_t)end->posted & ~PERF_CREDIT);
}

int perf_credit(struct perf_end *end, uint32_t taken)
{
	uint64_t before = end->credited - end->shape.window;
	uint32_t more = (taken - (uint32_t)before) & ~PERF_CREDIT;

	if (more > end->posted - before)
		return perf_fail(EPROTO, "the other end received %u messages of %u",
				 more, (unsigned)(end->posted - before));
	end->credited += more;
	return perf_end_recv_credit(end);
}

/*
 * Time
 */

/* Bytes that a lane has carried, of those that it was given: fragments in flight count
 * as whole ones. */
static uint64_t bytes_carried(const struct perf_end *end,
			      const struct snt_lane_info *lane, uint64_t fragment_size)
{
	uint64_t piece = end->c.size < fragment_size ? end->c.size : fragment_size,
		 under_way = lane->under_way * piece;

	return lane->bytes > under_way ? lane->bytes - under_way : 0;
}

/* A pass-through lane does not count bytes; it is the only lane. */
static void take_sample(struct perf_end *end, struct perf_timeline *line,
			const struct perf_clock *clock, uint64_t now_ns)
{
	struct perf_sample *sample = &line->sample[line->count++];
	struct snt_qp_info qp = { .size = sizeof(qp) };

	snt_qp_query(end->qp, &qp);
	sample->at_ns = now_ns - line->begin_ns;
	line->lanes = snt_qp_lane_count(end->qp);
	if (line->lanes > PERF_SAMPLE_LANES)
		line->lanes = PERF_SAMPLE_LANES;
	for (unsigned i = 0; i < line->lanes; i++) {
		struct snt_lane_info lane = { .size = sizeof(lane) };

		snt_qp_query_lane(end->qp, i, &lane);
		sample->bytes[i] = line->lanes > 1
					   ? bytes_carried(end, &lane, qp.fragment_size)
					   : (end->done - clock->first) * end->c.size;
	}
}

static void drop_every_second(struct perf_timeline *line)
{
	for (unsigned i = 0; i < PERF_SAMPLES / 2; i++)
		line->sample[i] = line->sample[2 * i];
	line->count = PERF_SAMPLES / 2;
	line->interval_ns *= 2;
}

void perf_clock_start(struct perf_clock *clock, struct perf_end *end,
		      const struct perf_goal *goal)
{
	perf_end_begin(end);
	*clock = (struct perf_clock){ .begin_ns = end->begin_ns, .first = end->posted };
	clock->next_progress_ns = clock->begin_ns + PROGRESS_NS;
	clock->next_sign_ns = clock->begin_ns + SIGN_NS;
	end->idle_polls = 0;
	if (!goal->timeline)
		return;
	*goal->timeline = (struct perf_timeline){ .begin_ns = clock->begin_ns,
						  .interval_ns = FIRST_INTERVAL_NS };
	take_sample(end, goal->timeline, clock, clock->begin_ns);
	goal->timeline->next_ns = clock->begin_ns + FIRST_INTERVAL_NS;
}

bool perf_clock_open(const struct perf_clock *clock, const struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns)
{
	if (goal->messages)
		return end->posted - clock->first < goal->messages;
	return now_ns - clock->begin_ns < goal->duration_ns ||
	       end->posted == clock->first;
}

/* It would give up a client of which it hears nothing. That it is gone itself is found
 * when the run ends. */
static void give_sign_of_life(struct perf_end *end)
{
	if (!end->serves && !perf_case_takes(&end->c, true))
		perf_send_word(end->control, PERF_RUNNING);
}

void perf_clock_tick(struct perf_clock *clock, struct perf_end *end,
		     const struct perf_goal *goal, uint64_t now_ns)
{
	struct perf_timeline *line = goal->timeline;

	if (line && now_ns >= line->next_ns) {
		if (line->count == PERF_SAMPLES)
			drop_every_second(line);
		take_sample(end, line, clock, now_ns);
		line->next_ns = now_ns + line->interval_ns;
	}
	if (goal->progress && now_ns >= clock->next_progress_ns) {
		goal->progress(goal->arg, end->done - clock->first,
			       now_ns - clock->begin_ns);
		clock->next_progress_ns = now_ns + PROGRESS_NS;
	}
	if (now_ns >= clock->next_sign_ns) {
		give_sign_of_life(end);
		clock->next_sign_ns = now_ns + SIGN_NS;
	}
}
