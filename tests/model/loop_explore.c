/* SPDX-License-Identifier: MIT */
/*
 * Every interleaving of a few completions with everything that the loop does before
 * somebody sleeps on its fd: a completion may arrive before and after each call that the
 * loop makes to the device (taking an event, arming, polling, acknowledging) or to the
 * kernel (waiting, ringing), and between any two steps of the program. The code that
 * runs is the library's own; the search goes through all places for each completion.
 *
 * Whoever would sleep while a completion is there that nobody tells of has lost a
 * wake-up. Whoever is woken again and again for nothing spins.
 */
#include "lib/test.h"

#include <inttypes.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unit/loop_kit.h"

#define COMPLETIONS_MAX 4

enum program {
	BY_LEVEL,    /* ops; sleeps while the fd is not readable */
	BY_EDGE,     /* the same, but only edges wake it */
	BY_EDGE_ONE, /* with a budget of one callback */
	WATCHED,     /* polls in the function of snt_cq_watch() */
	OWN_POLLS,   /* polls by itself, arms, sleeps */
	SPINS,	     /* snt_loop_poll() a few times, arms, sleeps */
	WAITS,	     /* snt_loop_wait() */
	PROGRAMS,
};

static const char *const names[] = { "by level", "by edge",   "by edge, budget 1",
				     "watched",	 "own polls", "spins",
				     "waits" };

/* The search as a whole. */
static struct {
	enum program program;
	bool own_cqs; /* a CQ for each completion; they share the channel */
	struct loop_pair *pair;
	struct snt_cq *cq[COMPLETIONS_MAX];
	struct snt_qp *qp[COMPLETIONS_MAX][2];
	struct ibv_qp *lane[COMPLETIONS_MAX];
	struct snt_op op[COMPLETIONS_MAX];
	unsigned count;		      /* of completions */
	unsigned at[COMPLETIONS_MAX]; /* the place where each arrives */
	bool slept[COMPLETIONS_MAX];  /* there is no such place: it arrived in sleep */
	unsigned arrived, done, places;
	bool exploring;
	int outer; /* waits for edges of the fd */
	uint64_t runs;
	unsigned places_max, wakes_max;
} x;

/*
 * Where completions arrive
 */

static void arrive(bool slept)
{
	x.exploring = false;
	assert_int_equal(scripted_complete(x.lane[x.arrived], IBV_WC_SUCCESS), 0);
	x.exploring = true;
	x.slept[x.arrived++] = slept;
}

static void place(void)
{
	if (!x.exploring)
		return;
	while (x.arrived < x.count && x.at[x.arrived] == x.places)
		arrive(false);
	x.places++;
}

int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	int ret;

	place();
	ret = __real_epoll_wait(fd, events, max, timeout);
	place();
	return ret;
}

ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
	ssize_t ret;

	place();
	ret = __real_write(fd, bytes, length);
	place();
	return ret;
}

static const struct snt_control *real;
static int (*real_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
static int (*real_notify)(struct ibv_cq *cq, int solicited);

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int ret;

	place();
	ret = real_poll(cq, max, wc);
	place();
	return ret;
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	int ret;

	place();
	ret = real_notify(cq, solicited);
	place();
	return ret;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			void **context)
{
	int ret;

	place();
	ret = real->get_cq_event(channel, cq, context);
	place();
	return ret;
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	static struct snt_control control;
	struct ibv_context_ops *ops = &adopted->context->ops;

	real = adopted->control;
	control = *real;
	control.get_cq_event = get_cq_event;
	real_poll = ops->poll_cq;
	real_notify = ops->req_notify_cq;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify;
	return &control;
}

/*
 * Programs
 */

static void count_done(struct snt_op *op)
{
	(void)op;
	place();
	x.done++;
}

static void poll_one(void *arg, struct snt_cq *cq)
{
	struct snt_wc wc;

	(void)arg;
	place();
	while (snt_cq_poll(cq, &wc, 1) == 1) {
		place();
		x.done++;
	}
}

static void poll_own(void)
{
	for (unsigned i = 0; i < (x.own_cqs ? x.count : 1); i++)
		poll_one(NULL, x.cq[i]);
}

static bool would_sleep(void)
{
	struct snt_ctx *ctx = x.pair->end[0].ctx;
	struct epoll_event event;

	place();
	switch (x.program) {
	case BY_EDGE:
	case BY_EDGE_ONE:
		return __real_epoll_wait(x.outer, &event, 1, 0) == 0;
	case OWN_POLLS:
		poll_own();
		place();
		if (snt_loop_arm(ctx))
			return false;
		break;
	case SPINS:
		for (int i = 0; i < 2; i++) {
			assert_success(snt_loop_poll(ctx, 0));
			place();
		}
		if (snt_loop_arm(ctx))
			return false;
		break;
	default:
		break;
	}
	place();
	return !loop_readable(ctx);
}

static void work(void)
{
	struct snt_ctx *ctx = x.pair->end[0].ctx;

	place();
	if (x.program == WAITS)
		assert_success(snt_loop_wait(ctx, 0));
	else
		assert_success(
			snt_loop_dispatch(ctx, x.program == BY_EDGE_ONE ? 1 : 0));
	if (x.program == OWN_POLLS)
		poll_own();
	place();
}

/*
 * The search
 */

static void post(unsigned i)
{
	struct loop_end *here = &x.pair->end[0], *there = &x.pair->end[1];
	struct snt_sge sge = { here->mem, here->buffer, 8 };
	struct snt_send_wr wr = { .opcode = SNT_WRITE,
				  .flags = SNT_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &there->token,
				  .remote_addr = there->token.addr };

	x.op[i].done = count_done;
	if (x.pair->opts.ops)
		assert_success(snt_op_write(x.qp[i][0], &x.op[i], &sge, 1, wr.remote,
					    wr.remote_addr, 0));
	else
		assert_int_equal(snt_qp_post_send(x.qp[i][0], &wr, 1), 1);
}

/* One way for it to go. */
static void run(void)
{
	unsigned wakes = 0, vain = 0, before;

	for (unsigned i = 0; i < x.count; i++)
		post(i);
	x.arrived = x.done = x.places = 0;
	x.exploring = true;
	work(); /* for another reason */
	for (;;) {
		if (would_sleep()) {
			if (x.arrived == x.count)
				break;
			arrive(true);
			continue;
		}
		wakes++;
		before = x.done;
		work();
		vain += x.done == before;
		/* With a budget of 1 the last one finds nothing left. */
		if (vain > (x.program == BY_EDGE_ONE ? x.count : 0))
			fail_msg(
				"%s: woken %u times, %u in vain, for %u completions at "
				"%u %u %u %u",
				names[x.program], wakes, vain, x.count, x.at[0],
				x.at[1], x.at[2], x.at[3]);
	}
	x.exploring = false;
	if (x.done != x.count)
		fail_msg("%s: asleep, with %u of %u completions at %u %u %u %u",
			 names[x.program], x.done, x.count, x.at[0], x.at[1], x.at[2],
			 x.at[3]);
	x.runs++;
	x.places_max = x.places > x.places_max ? x.places : x.places_max;
	x.wakes_max = wakes > x.wakes_max ? wakes : x.wakes_max;
}

/* All places for completion i, and for each of them all for those behind it. */
static void explore(unsigned i, unsigned from)
{
	for (x.at[i] = from;; x.at[i]++) {
		if (i + 1 == x.count)
			run();
		else
			explore(i + 1, x.at[i]);
		if (x.slept[i])
			return;
	}
}

/*
 * The world of a search
 */

static void connect_one(unsigned i)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .events = x.pair->opts.events,
				       .ops = x.pair->opts.ops };
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_lane_info info = { .size = sizeof(info) };
	struct snt_card card[2];

	x.cq[i] = x.pair->end[0].cq;
	if (x.own_cqs)
		assert_success(snt_cq_create(x.pair->end[0].ctx, &cq_opts, &x.cq[i]));
	if (x.program == WATCHED)
		assert_success(snt_cq_watch(x.cq[i], poll_one, NULL));
	for (int end = 0; end < 2; end++) {
		opts.cq = end ? x.pair->end[1].cq : x.cq[i];
		assert_success(
			snt_qp_create(x.pair->end[end].ctx, &opts, &x.qp[i][end]));
		assert_success(snt_qp_card(x.qp[i][end], &card[end]));
	}
	for (int end = 0; end < 2; end++)
		assert_success(snt_qp_connect(x.qp[i][end], &card[!end]));
	assert_success(snt_qp_lane(x.qp[i][0], 0, &info));
	x.lane[i] = info.qp;
}

static void open_world(enum program program, bool own_cqs, unsigned count)
{
	struct loop_opts opts = { .events = 1, .instrument = instrument };
	struct epoll_event edges = { .events = EPOLLIN | EPOLLET };
	struct snt_ctx *ctx;

	if (program != WATCHED && program != OWN_POLLS)
		opts.ops = SNT_OPS_EVENTS;
	memset(&x, 0, sizeof(x));
	x.program = program;
	x.own_cqs = own_cqs;
	x.count = count;
	x.pair = loop_pair_open(&opts);
	ctx = x.pair->end[0].ctx;
	for (unsigned i = 0; i < count; i++)
		connect_one(i);
	x.outer = epoll_create1(EPOLL_CLOEXEC);
	assert_success(epoll_ctl(x.outer, EPOLL_CTL_ADD, snt_loop_fd(ctx), &edges));
	while (loop_readable(ctx))
		assert_success(snt_loop_dispatch(ctx, 0));
	__real_epoll_wait(x.outer, &edges, 1, 0);
}

static void close_one(unsigned i)
{
	struct snt_op op[2] = { { 0 } };
	struct snt_wc wc = { 0 };

	for (int end = 0; end < 2; end++) {
		if (x.pair->opts.ops)
			assert_success(snt_op_close(x.qp[i][end], &op[end]));
		else
			assert_success(snt_qp_close(x.qp[i][end], 1));
		loop_pair_run(x.pair);
		for (int n = 0; x.pair->opts.ops && n < 10; n++)
			assert_success(snt_loop_dispatch(x.pair->end[end].ctx, 0));
		for (int n = 0; !x.pair->opts.ops && n < 10; n++)
			assert_success(
				snt_cq_poll(end ? x.pair->end[1].cq : x.cq[i], &wc, 1));
		assert_success(snt_qp_destroy(x.qp[i][end]));
	}
	if (x.own_cqs)
		assert_success(snt_cq_destroy(x.cq[i]));
}

static void search(enum program program, unsigned count)
{
	for (int own_cqs = 0; own_cqs < 2; own_cqs++) {
		open_world(program, own_cqs, count);
		explore(0, 0);
		for (unsigned i = 0; i < count; i++)
			close_one(i);
		close(x.outer);
		print_message("# %s, %u completions, %s: %" PRIu64 " interleavings of "
			      "up to %u places, at most %u wake-ups\n",
			      names[program], count, own_cqs ? "a CQ each" : "one CQ",
			      x.runs, x.places_max, x.wakes_max);
		/* Or else nothing was searched. */
		assert_true(count == 1 || x.runs >= count * x.places_max);
		loop_pair_close(x.pair);
	}
}

static unsigned completions = 3;

static void search_all(enum program program)
{
	for (unsigned count = 1; count <= completions; count++)
		search(program, count);
}

#define TEST(name, program)            \
	static void name(void **state) \
	{                              \
		(void)state;           \
		search_all(program);   \
	}

TEST(nothing_is_lost_by_level, BY_LEVEL)
TEST(nothing_is_lost_by_edge, BY_EDGE)
TEST(nothing_is_lost_by_edge_with_a_budget_of_1, BY_EDGE_ONE)
TEST(nothing_is_lost_by_those_who_watch, WATCHED)
TEST(nothing_is_lost_by_those_who_poll_and_arm, OWN_POLLS)
TEST(nothing_is_lost_by_those_who_spin_and_arm, SPINS)
TEST(nothing_is_lost_by_those_who_wait, WAITS)

/* usage: loop_explore [COMPLETIONS]; 4 of them take a quarter of an hour. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_by_level),
		cmocka_unit_test(nothing_is_lost_by_edge),
		cmocka_unit_test(nothing_is_lost_by_edge_with_a_budget_of_1),
		cmocka_unit_test(nothing_is_lost_by_those_who_watch),
		cmocka_unit_test(nothing_is_lost_by_those_who_poll_and_arm),
		cmocka_unit_test(nothing_is_lost_by_those_who_spin_and_arm),
		cmocka_unit_test(nothing_is_lost_by_those_who_wait),
	};

	if (argc > 1)
		completions = strtoul(argv[1], NULL, 10);
	if (completions < 1 || completions > COMPLETIONS_MAX)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
