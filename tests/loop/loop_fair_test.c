/* SPDX-License-Identifier: MIT */
/*
 * Everything that the loop serves makes progress, whatever the budget, beside functions that
 * find more to do for themselves each time they are called.
 */
#include "lib/test.h"

#include <unistd.h>

#include "loop/op.h"
#include "lib/loop_kit.h"

enum kind {
	WAKES,
	EVENTS,
	OPS_OVER,
	COMPLETIONS_A, /* of two CQs */
	COMPLETIONS_B,
	TIMER_OF_OLD, /* starts again with a deadline in the past */
	TIMER,	      /* starts again, due with the next turn */
	KINDS,
};

#define TURNS 140

static const char *const names[] = { "wakes",
				     "events",
				     "ops that are over",
				     "completions",
				     "completions of another CQ",
				     "a timer of old",
				     "a timer" };

static struct {
	struct loop_pair *pair;
	struct snt_cq *other_cq;
	struct snt_qp *qp[2];
	struct ibv_qp *lane[2];
	struct snt_qp *peer[2];
	struct snt_op op[2], over;
	struct snt_timer timer[2];
	uint64_t now_ns;
	bool greedy[KINDS], ending;
	unsigned served[KINDS];
} fair;

static uint64_t read_clock(void *arg)
{
	(void)arg;
	return fair.now_ns++;
}

static struct snt_loop *loop_of(void)
{
	return fair.pair->end[0].loop;
}

/* Returns whether there is to be more. */
static bool serve(enum kind kind)
{
	fair.served[kind]++;
	return fair.greedy[kind] && !fair.ending;
}

static void woken(void *arg, struct snt_loop *loop)
{
	(void)arg;
	if (serve(WAKES))
		assert_success(snt_loop_wake(loop));
}

static void raise_event(void)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_PORT_ACTIVE,
					 .element.port_num = 1 };

	scripted_raise(fair.pair->end[0].device[0], event);
}

static void event_told(void *arg, const struct snt_event *event)
{
	(void)arg;
	(void)event;
	if (serve(EVENTS))
		raise_event();
}

static void end_op(void)
{
	fair.over.loop = loop_of();
	fair.over.state = SNT__OP_POSTED;
	snt__op_end(&fair.over, -ECANCELED);
}

static void op_over(struct snt_op *op)
{
	(void)op;
	if (serve(OPS_OVER))
		end_op();
}

static void post_and_complete(unsigned i)
{
	struct loop_end *here = &fair.pair->end[0], *there = &fair.pair->end[1];
	struct snt_sge sge = { here->mem, here->buffer, 8 };

	assert_success(snt_op_write(fair.qp[i], &fair.op[i], &sge, &there->token,
				    there->token.addr));
	assert_int_equal(scripted_complete(fair.lane[i], IBV_WC_SUCCESS), 0);
}

static void op_done(struct snt_op *op)
{
	unsigned i = op == &fair.op[1];

	if (serve(COMPLETIONS_A + i))
		post_and_complete(i);
}

static void fired(struct snt_timer *timer)
{
	if (timer == &fair.timer[0]) {
		if (serve(TIMER_OF_OLD))
			assert_success(snt_timer_start_at(loop_of(), timer, 0));
	} else if (serve(TIMER)) {
		assert_success(snt_timer_start(loop_of(), timer, 1));
	}
}

/*
 * The world
 */

static void connect_one(unsigned i, struct snt_cq *cq)
{
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_lane_info info = { .size = sizeof(info) };
	struct snt_card card[2];

	opts.cq = cq;
	assert_success(snt_qp_create(fair.pair->end[0].ctx, &opts, &fair.qp[i]));
	opts.cq = fair.pair->end[1].cq;
	assert_success(snt_qp_create(fair.pair->end[1].ctx, &opts, &fair.peer[i]));
	assert_success(snt_qp_card(fair.qp[i], &card[0]));
	assert_success(snt_qp_card(fair.peer[i], &card[1]));
	assert_success(snt_qp_connect(fair.qp[i], &card[1]));
	assert_success(snt_qp_connect(fair.peer[i], &card[0]));
	assert_success(snt_qp_query_lane(fair.qp[i], 0, &info));
	fair.lane[i] = info.qp;
}

static void open_world(bool with_fd)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .clock = read_clock };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };

	memset(&fair, 0, sizeof(fair));
	fair.now_ns = 1;
	fair.pair = loop_pair_open(&opts);
	cq_opts.loop = loop_of();
	assert_success(snt_cq_create(fair.pair->end[0].ctx, &cq_opts, &fair.other_cq));
	connect_one(0, fair.pair->end[0].cq);
	connect_one(1, fair.other_cq);
	for (int i = 0; i < 2; i++) {
		fair.op[i].done = op_done;
		fair.timer[i].fired = fired;
	}
	fair.over.done = op_over;
	if (with_fd)
		assert_success(snt_loop_fd(loop_of()));
	assert_success(snt_loop_set_wake_handler(loop_of(), woken, NULL));
	assert_success(snt_loop_set_event_handler(loop_of(), event_told, NULL));
}

static void start(unsigned kinds)
{
	for (int kind = 0; kind < KINDS; kind++)
		fair.greedy[kind] = kinds >> kind & 1;
	if (fair.greedy[WAKES])
		assert_success(snt_loop_wake(loop_of()));
	if (fair.greedy[EVENTS])
		raise_event();
	if (fair.greedy[OPS_OVER])
		end_op();
	for (int i = 0; i < 2; i++) {
		if (fair.greedy[COMPLETIONS_A + i])
			post_and_complete(i);
		if (fair.greedy[TIMER_OF_OLD + i])
			assert_success(
				snt_timer_start_at(loop_of(), &fair.timer[i], 0));
	}
}

static void close_world(void)
{
	struct snt_op op[4] = { { 0 } };

	fair.ending = true;
	loop_pair_settle(fair.pair);
	for (int i = 0; i < 2; i++) {
		assert_success(snt_op_close(fair.qp[i], &op[i]));
		assert_success(snt_op_close(fair.peer[i], &op[2 + i]));
	}
	loop_pair_settle(fair.pair);
	for (int i = 0; i < 2; i++) {
		assert_success(snt_qp_destroy(fair.qp[i]));
		assert_success(snt_qp_destroy(fair.peer[i]));
	}
	assert_success(snt_cq_destroy(fair.other_cq));
	loop_pair_close(fair.pair);
}

/* Events come through dispatch and arming alone, wakes need an fd. */
static void take_turn(bool dispatches, int budget)
{
	int ret;

	if (dispatches) {
		ret = snt_loop_dispatch(loop_of(), budget);
	} else {
		ret = snt_loop_arm(loop_of());
		assert_success(ret);
		ret = snt_loop_poll(loop_of(), budget);
	}
	assert_success(ret);
	assert_true(ret <= budget);
}

/* Each of them has its turn at least once while each could have had two. */
static void expect_progress(unsigned kinds, int budget, bool dispatches)
{
	open_world(true);
	start(kinds);
	for (int i = 0; i < TURNS; i++) {
		take_turn(dispatches, budget);
		/* A program by edge would sleep now. */
		if (dispatches)
			assert_true(loop_readable(loop_of()));
	}
	for (int kind = 0; kind < KINDS; kind++)
		if (fair.greedy[kind] && fair.served[kind] < TURNS / (2 * KINDS))
			fail_msg("%s: %u times in %u turns with a budget of %d, beside "
				 "0x%x",
				 names[kind], fair.served[kind], TURNS, budget, kinds);
	close_world();
}

static void a_wakes_function_that_wakes_again_starves_nothing(void **state)
{
	(void)state;
	expect_progress(1 << WAKES | 1 << TIMER, 1, true);
	expect_progress(1 << WAKES | 1 << COMPLETIONS_A, 1, true);
	expect_progress(1 << WAKES | 1 << EVENTS | 1 << OPS_OVER, 1, true);
}

static void a_timer_of_old_starves_no_other(void **state)
{
	(void)state;
	expect_progress(1 << TIMER_OF_OLD | 1 << TIMER, 1, true);
	expect_progress(1 << TIMER_OF_OLD | 1 << TIMER, 64, true);
}

/* Every set of them, with small budgets and the usual one. */
static void no_kind_starves_another(void **state)
{
	static const int budgets[] = { 1, 2, 3, 8, 64 };

	(void)state;
	for (unsigned i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
		for (unsigned kinds = 1; kinds < 1 << KINDS; kinds++)
			expect_progress(kinds, budgets[i], (kinds ^ i) & 1);
}

#define SOURCES 40

static unsigned sources_served;

static int read_source(struct snt__source *source, int budget)
{
	char byte;

	(void)budget;
	assert_int_equal(read(source->fd, &byte, 1), 1);
	sources_served++;
	return 0;
}

/* More than are taken from the kernel at once; it repeats those that were not read yet. */
static void many_readable_sources_are_all_served(void **state)
{
	struct snt__source source[SOURCES];
	int ends[SOURCES][2];

	(void)state;
	open_world(true);
	for (int i = 0; i < SOURCES; i++) {
		assert_int_equal(pipe(ends[i]), 0);
		assert_int_equal(write(ends[i][1], "", 1), 1);
		source[i] =
			(struct snt__source){ .fd = ends[i][0], .ready = read_source };
		assert_success(snt__loop_add(loop_of(), &source[i]));
	}
	sources_served = 0;
	assert_success(snt_loop_dispatch(loop_of(), 0));
	assert_int_equal(sources_served, SOURCES);
	for (int i = 0; i < SOURCES; i++) {
		snt__loop_remove(loop_of(), &source[i]);
		close(ends[i][0]);
		close(ends[i][1]);
	}
	close_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_readable_sources_are_all_served),
		cmocka_unit_test(a_wakes_function_that_wakes_again_starves_nothing),
		cmocka_unit_test(a_timer_of_old_starves_no_other),
		cmocka_unit_test(no_kind_starves_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
