/* SPDX-License-Identifier: MIT */
/*
 * Every interleaving of what can happen to a loop (loop_happen.h) with everything that the
 * loop and the program do before the program sleeps on the fd. The code that runs is the
 * library's own; the search goes through all places for each happening.
 *
 * A program that would sleep while something is due that no event announces has lost a
 * wake-up. One that is woken again and again for nothing spins.
 */
#include "lib/test.h"

#include <inttypes.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loop/loop_happen.h"

/* What the program does when it is woken, and before it sleeps. */
enum style {
	DISPATCHES, /* snt_loop_dispatch() */
	DISPATCHES_AND_ARMS,
	POLLS_AND_ARMS, /* snt_loop_poll() and nothing else */
	SPINS_AND_ARMS, /* the same, but dispatches when it is woken */
	OWN_POLLS, /* polls its CQs by itself, arms, and dispatches when it is woken */
	WATCHES, /* dispatches, and polls in the function of snt_cq_set_ready_handler() */
	WAITS,	 /* snt_loop_wait() */
};

enum trigger {
	BY_LEVEL,
	BY_EDGE,
	ONE_SHOT, /* enabled anew before each sleep */
};

struct program {
	const char *name;
	enum style style;
	enum trigger trigger;
	int budget;
};

/* The search as a whole. */
static struct {
	const struct program *program;
	int outer; /* the program's own epoll instance */
	uint64_t runs;
	unsigned places_max, wakes_max;
} x;

int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);

/*
 * Programs
 */

static struct snt_loop *loop_of(void)
{
	return happen.pair->end[0].loop;
}

static void poll_one(void *arg, struct snt_cq *cq)
{
	struct snt_wc wc;

	(void)arg;
	happen_place();
	while (snt_cq_poll(cq, &wc, 1) == 1)
		happen_completed();
}

static void poll_own(void)
{
	for (unsigned i = 0; i < happen.count; i++)
		if (!i || happen.cq[i] != happen.cq[0])
			poll_one(NULL, happen.cq[i]);
}

static bool may_sleep(void)
{
	int ret;

	happen_place();
	ret = snt_loop_arm(loop_of());
	assert_success(ret);
	happen_place();
	return !ret;
}

/* Returns whether the program wants to sleep then. */
static bool take_turn(bool woken)
{
	const struct program *program = x.program;
	struct snt_loop *loop = loop_of();

	happen_place();
	switch (program->style) {
	case DISPATCHES:
	case WATCHES:
		assert_success(snt_loop_dispatch(loop, program->budget));
		return true;
	case DISPATCHES_AND_ARMS:
		assert_success(snt_loop_dispatch(loop, program->budget));
		return may_sleep();
	case SPINS_AND_ARMS:
		if (woken)
			assert_success(snt_loop_dispatch(loop, program->budget));
		happen_place();
		/* fall through */
	case POLLS_AND_ARMS:
		for (int i = 0; i < 2; i++) {
			assert_success(snt_loop_poll(loop, program->budget));
			happen_place();
		}
		return may_sleep();
	case OWN_POLLS:
		assert_success(snt_loop_dispatch(loop, program->budget));
		poll_own();
		return may_sleep();
	default:
		assert_success(snt_loop_wait(loop, 0));
		return true;
	}
}

static uint32_t flags_of(enum trigger trigger)
{
	if (trigger == BY_EDGE)
		return EPOLLIN | EPOLLET;
	return trigger == ONE_SHOT ? EPOLLIN | EPOLLONESHOT : EPOLLIN;
}

static void go_to_sleep(void)
{
	struct epoll_event event = { .events = flags_of(ONE_SHOT) };

	happen_place();
	if (x.program->trigger == ONE_SHOT)
		assert_success(epoll_ctl(x.outer, EPOLL_CTL_MOD, snt_loop_fd(loop_of()),
					 &event));
	happen_place();
}

static bool is_woken(void)
{
	struct epoll_event event;

	return __real_epoll_wait(x.outer, &event, 1, 0) == 1;
}

/*
 * The search
 */

static void describe(const char *what)
{
	static const char *const kinds[] = { "completion", "timer", "wake", "event",
					     "connection" };
	char text[200];
	int length = 0;

	for (unsigned i = 0; i < happen.count; i++)
		length += snprintf(text + length, sizeof(text) - length, "%s %s at %u",
				   i ? "," : "", kinds[happen.kind[i]], happen.at[i]);
	fail_msg("%s: %s:%s", x.program->name, what, text);
}

/*
 * Turns that may find nothing to do:
 * - a wake that the loop meets before its bell, and a timer that it runs before the timerfd,
 *   still make the fd readable once;
 * - polling takes no notice of events and connections until arming has found them;
 * - a budget that has come to its end together with the work is noticed one turn later.
 */
static bool may_be_vain(enum happening kind)
{
	return kind == WAKE || kind == TIMER || x.program->budget == 1 ||
	       (x.program->style == POLLS_AND_ARMS && kind != COMPLETION);
}

static unsigned vain_max(void)
{
	unsigned max = 0;

	for (unsigned i = 0; i < happen.count; i++)
		max += may_be_vain(happen.kind[i]);
	return max;
}

/* Returns false if nothing more is to happen. */
static bool sleep_until_woken(void)
{
	go_to_sleep();
	while (!is_woken()) {
		if (!happen_all_told())
			describe("asleep");
		if (happen.happened == happen.count)
			return false;
		happen_in_sleep();
	}
	return true;
}

/* One way for it to go. */
static void run(void)
{
	unsigned wakes = 0, vain = 0;
	bool wants_to_sleep;

	happen_begin();
	wants_to_sleep = take_turn(true); /* for another reason */
	for (;;) {
		bool woken = wants_to_sleep && sleep_until_woken();
		unsigned before = happen.progress;

		if (wants_to_sleep && !woken)
			break;
		wakes += woken;
		wants_to_sleep = take_turn(woken);
		vain += happen.progress == before;
		if (vain > vain_max())
			describe("woken in vain");
	}
	happen.exploring = false;
	x.runs++;
	x.places_max = happen.places > x.places_max ? happen.places : x.places_max;
	x.wakes_max = wakes > x.wakes_max ? wakes : x.wakes_max;
}

/* All places for happening i, and for each of them all for those behind it. */
static void explore(unsigned i, unsigned from)
{
	for (happen.at[i] = from;; happen.at[i]++) {
		if (i + 1 == happen.count)
			run();
		else
			explore(i + 1, happen.at[i]);
		if (happen.slept[i])
			return;
	}
}

/* All kinds for happening i and those behind it. */
static void explore_kinds(unsigned i)
{
	if (i == happen.count) {
		explore(0, 0);
		return;
	}
	for (happen.kind[i] = 0; happen.kind[i] < HAPPENINGS; happen.kind[i]++)
		explore_kinds(i + 1);
}

static void open_world(const struct program *program, bool own_cqs, unsigned count)
{
	struct loop_opts opts = { .events = 1 };
	struct epoll_event event = { .events = flags_of(program->trigger) };

	if (program->style != WATCHES && program->style != OWN_POLLS)
		opts.ops = SNT_CQ_OPS_EVENTS;
	memset(&x, 0, sizeof(x));
	x.program = program;
	happen_open(&opts, own_cqs, count);
	for (unsigned i = 0; program->style == WATCHES && i < count; i++)
		assert_success(snt_cq_set_ready_handler(happen.cq[i], poll_one, NULL));
	x.outer = epoll_create1(EPOLL_CLOEXEC);
	assert_success(
		epoll_ctl(x.outer, EPOLL_CTL_ADD, snt_loop_fd(loop_of()), &event));
	while (loop_readable(loop_of()))
		assert_success(snt_loop_dispatch(loop_of(), 0));
	is_woken();
}

static void close_world(unsigned count, const char *of_what)
{
	print_message("# %s, %u %s: %" PRIu64 " interleavings of up to %u places, at "
		      "most %u wake-ups\n",
		      x.program->name, count, of_what, x.runs, x.places_max,
		      x.wakes_max);
	/* Or else nothing was searched. */
	assert_true(count == 1 || x.runs >= count * x.places_max);
	happen_close();
	close(x.outer);
}

/* How many happenings of all kinds, and how many completions. */
static unsigned mixed_max = 2, completions_max = 3;

static void search(const struct program *program)
{
	for (unsigned count = 1; count <= mixed_max; count++) {
		open_world(program, false, count);
		explore_kinds(0);
		close_world(count, "of all kinds");
	}
	/* Where completions alone are concerned, edges are the hardest. */
	if (program->trigger != BY_EDGE)
		return;
	for (unsigned count = 2; count <= completions_max; count++) {
		for (int own_cqs = 0; own_cqs < 2; own_cqs++) {
			open_world(program, own_cqs, count);
			explore(0, 0);
			close_world(count, own_cqs ? "completions, a CQ each"
						   : "completions, one CQ");
		}
	}
}

/*
 * All programs
 */

#define BY_ALL(style, name, budget)                           \
	{ name ", by level", style, BY_LEVEL, budget },       \
		{ name ", by edge", style, BY_EDGE, budget }, \
	{                                                     \
		name ", one-shot", style, ONE_SHOT, budget    \
	}

static const struct program programs[] = {
	BY_ALL(DISPATCHES, "dispatches", 0),
	BY_ALL(DISPATCHES, "dispatches with a budget of 1", 1),
	BY_ALL(DISPATCHES_AND_ARMS, "dispatches and arms", 0),
	BY_ALL(DISPATCHES_AND_ARMS, "dispatches with a budget of 1 and arms", 1),
	BY_ALL(POLLS_AND_ARMS, "polls and arms", 0),
	BY_ALL(POLLS_AND_ARMS, "polls with a budget of 1 and arms", 1),
	BY_ALL(SPINS_AND_ARMS, "spins and arms", 0),
	BY_ALL(OWN_POLLS, "polls its own CQs and arms", 0),
	BY_ALL(WATCHES, "watches", 0),
	{ "waits", WAITS, BY_EDGE, 0 },
};

#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static void nothing_is_lost(void **state)
{
	search(*state);
}

/* usage: loop_explore [MIXED COMPLETIONS]: so many happenings of all kinds, and so many
 * completions; 3 and 4 of them take an hour. */
int main(int argc, char **argv)
{
	struct CMUnitTest tests[PROGRAMS];

	for (unsigned i = 0; i < PROGRAMS; i++)
		tests[i] = (struct CMUnitTest){ programs[i].name, nothing_is_lost, NULL,
						NULL, (void *)&programs[i] };
	if (argc > 2) {
		mixed_max = strtoul(argv[1], NULL, 10);
		completions_max = strtoul(argv[2], NULL, 10);
	}
	if (mixed_max < 1 || mixed_max > HAPPENINGS_MAX ||
	    completions_max > HAPPENINGS_MAX)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
