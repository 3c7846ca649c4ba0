/* SPDX-License-Identifier: MIT */
/*
 * The progress policy in a model of everything around it: a socket, a ring, timers, a
 * program that polls, posts, arms, borrows and returns, and the device's thread. After each
 * step the program stops for ever, in a copy of the world, and the thread alone must do all
 * there is to do in time.
 */
#include "lib/test.h"

#include "dev/soft/udp/progress.h"

#define SEEDS 1000
#define STEPS 300

#define NEVER SNT__PROGRESS_NEVER

/* Where the device's thread is. */
enum place {
	LOOKING,  /* about to take the lock */
	SLEEPING, /* as planned */
	GRACE,	  /* a packet came while it was guarding */
};

/* Times of work say since when it waits; 0: there is none. */
struct world {
	struct snt__progress progress;
	uint64_t now;
	bool linked; /* packets come through a ring as well */

	uint64_t packet_at; /* in the socket */
	uint64_t ring_at;   /* in the ring */
	uint64_t reply_at;  /* in the device, to be sent */
	uint64_t left_at;   /* left by a sending thread */
	uint64_t stalled_at;
	uint64_t timer; /* NEVER: none */

	bool held; /* messages are held in the socket */
	bool edge; /* rx_hold's fd reports */
	bool bell_asked;
	bool bell;
	bool borrowing; /* a thread of the program sleeps on the fds */
	bool borrows_apart;
	bool watching;	 /* for edges; or may compute */
	bool rx_edge;	 /* the watched socket reports */
	bool edge_taken; /* it has done so, and may not be empty since */

	enum place place;
	struct snt__progress_plan plan;
	bool called;	/* its eventfd */
	bool sees_room; /* it also sleeps until the socket has room */
	bool hears;	/* it also sleeps on the bell */
	bool heard;
	unsigned polls, polls_before;
	uint64_t until;
};

static uint64_t random_state;

/* xorshift64* */
static unsigned below(unsigned limit)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (unsigned)((random_state * UINT64_C(2685821657736338717)) >> 33) % limit;
}

static bool owner_seen[SNT__OWNER_COUNT][SNT__OWNER_COUNT];
static bool thread_seen[SNT__OWNER_COUNT][SNT__THREAD_COUNT];
static unsigned lone_wakes; /* packets that woke the borrower alone */
static unsigned lone_watch_wakes;

static struct snt__progress_work work_of(const struct world *world)
{
	return (struct snt__progress_work){
		.deadline = world->timer,
		.stalled = world->stalled_at,
		.left = world->left_at,
		.held = world->held,
	};
}

static void wake_thread(struct world *world, enum snt__progress_reason reason)
{
	struct snt__progress_work work = work_of(world);

	world->called |=
		snt__progress_wake(&world->progress, reason, &work, world->now);
}

/*
 * Moving packets
 */

/* The model's socket has room again as soon as a send tries. */
static void send_all(struct world *world)
{
	world->reply_at = world->left_at = world->stalled_at = 0;
}

/* Returns whether there was something; what arrives asks for a reply. */
static bool take_in(struct world *world)
{
	bool moved = world->packet_at || world->ring_at;

	if (moved && !world->reply_at)
		world->reply_at = world->now;
	world->packet_at = world->ring_at = 0;
	if (world->timer <= world->now)
		world->timer = NEVER;
	return moved;
}

static void record_arrives(struct world *world)
{
	if (!world->linked)
		return;
	if (!world->ring_at)
		world->ring_at = world->now;
	if (world->bell_asked)
		world->bell = true;
	world->bell_asked = false;
}

/* Now and then a peer is quicker, and the ring does not become empty. */
static bool ask_for_bells(struct world *world)
{
	if (world->linked && below(20) == 0) {
		record_arrives(world);
		return false;
	}
	if (world->ring_at && !world->reply_at)
		world->reply_at = world->now;
	world->ring_at = 0;
	world->bell_asked = true;
	return true;
}

/* Any thread may take the bell that was for another one. */
static void hear_bells(struct world *world)
{
	world->bell = false;
	if (!snt__progress_wants_bells(&world->progress) || ask_for_bells(world))
		return;
	snt__progress_take_back(&world->progress);
	wake_thread(world, SNT__WAKE_BELL);
}

static void poll_device(struct world *world, bool got_lock)
{
	struct snt__progress *progress = &world->progress;

	snt__progress_count_poll(progress);
	if (!got_lock) {
		snt__progress_set_polled_at(progress, world->now);
		return;
	}
	snt__progress_see_poll(progress, world->now, world->now);
	if (snt__progress_collects(progress, world->now)) {
		take_in(world);
		world->left_at = world->stalled_at = 0;
		return;
	}
	send_all(world);
	if (take_in(world))
		snt__progress_set_polled_at(progress, world->now);
	if (below(10) == 0) {
		record_arrives(world);
		hear_bells(world);
	}
	if (!snt__progress_defers(progress)) {
		send_all(world);
		wake_thread(world, SNT__WAKE_WORK);
	}
}

static void post_to_device(struct world *world)
{
	if (world->timer == NEVER)
		world->timer = world->now + 10000000 + 1000000 * below(100);
	if (below(4) == 0)
		world->left_at = world->now;
	else if (below(4) == 0)
		world->stalled_at = world->now;
	snt__progress_see_post(&world->progress, world->now, world->now);
	wake_thread(world, SNT__WAKE_WORK);
}

static void arm(struct world *world)
{
	snt__progress_arm(&world->progress);
	wake_thread(world, SNT__WAKE_ARMED);
}

static void borrow(struct world *world)
{
	send_all(world);
	if (snt__progress_borrow(&world->progress, SNT__PROGRESS_BORROWED, world->now,
				 true)) {
		assert_false(world->borrowing);
		world->borrowing = true;
		world->watching = false;
		world->borrows_apart = world->held;
		if (world->held) {
			world->edge = false;
			wake_thread(world, SNT__WAKE_BORROWED);
			if (take_in(world))
				world->borrows_apart = false;
		}
		world->bell = false;
		if (!ask_for_bells(world)) {
			snt__progress_take_back(&world->progress);
			wake_thread(world, SNT__WAKE_BELL);
		}
		send_all(world);
	}
	wake_thread(world, SNT__WAKE_WORK);
}

/* The edges that the program has seen by now. */
static void take_edge(struct world *world)
{
	world->edge_taken |= world->rx_edge;
	world->rx_edge = false;
}

static void watch(struct world *world)
{
	if (!world->borrowing)
		take_edge(world);
	send_all(world);
	if (snt__progress_borrow(&world->progress, SNT__PROGRESS_WATCHED, world->now,
				 true)) {
		bool asked;

		assert_false(world->borrowing);
		world->borrowing = world->watching = true;
		if (world->edge_taken)
			take_in(world);
		world->edge_taken = false;
		world->bell = false;
		asked = ask_for_bells(world);
		if (!asked || below(50) == 0) {
			snt__progress_take_back(&world->progress);
			wake_thread(world, SNT__WAKE_BELL);
		}
		send_all(world);
	}
	wake_thread(world, SNT__WAKE_WORK);
}

static bool is_readable(const struct world *world)
{
	if (world->watching)
		return world->bell || world->rx_edge;
	return world->bell ||
	       (world->borrows_apart ? world->edge : world->packet_at || world->held);
}

static void return_it(struct world *world, bool readable)
{
	if (!world->borrowing)
		return;
	world->borrowing = false;
	snt__progress_return(&world->progress, world->now);
	/* A bell that is known to be one is left where it is. */
	if (readable && world->bell && below(2))
		hear_bells(world);
	if (!snt__progress_wants_bells(&world->progress))
		world->bell_asked = false;
	take_edge(world);
	/* There may be more than a batch. */
	if (readable && take_in(world) && world->edge_taken && below(4) == 0)
		world->packet_at = world->now;
	wake_thread(world, SNT__WAKE_RETURNED);
}

static void packet_arrives(struct world *world)
{
	if (!world->packet_at)
		world->packet_at = world->now;
	world->edge = world->rx_edge = true;
	if (world->progress.owner == SNT__OWNER_BORROWER && world->place == SLEEPING &&
	    world->plan.thread == SNT__THREAD_NAPPING)
		lone_wakes++;
	if (world->progress.owner == SNT__OWNER_WATCHER && world->place == SLEEPING &&
	    world->plan.thread == SNT__THREAD_CHECKING)
		lone_watch_wakes++;
}

/*
 * The device's thread
 */

static bool plans_rest(const struct world *world)
{
	return world->plan.thread == SNT__THREAD_ASLEEP ||
	       world->plan.thread == SNT__THREAD_ASLEEP_APART;
}

static void rest(struct world *world)
{
	world->bell_asked = true;
	if (world->held) {
		world->plan.thread = SNT__THREAD_ASLEEP_APART;
		world->edge = false;
	}
	if (!world->ring_at && !(world->held && take_in(world)))
		return;
	world->bell_asked = false;
	world->plan.thread = SNT__THREAD_AWAKE;
}

static void move_own(struct world *world)
{
	bool arrived = take_in(world);

	if (arrived)
		world->progress.active_at = world->now;
	snt__progress_moved(&world->progress, arrived, world->now);
}

static void look(struct world *world)
{
	struct snt__progress *progress = &world->progress;
	struct snt__progress_work work;

	if (plans_rest(world)) {
		snt__progress_sleep(progress, (struct snt__progress_plan){ 0 });
		if (!snt__progress_wants_bells(progress))
			world->bell_asked = false;
	}
	if (world->heard)
		hear_bells(world);
	world->heard = false;
	if (!snt__progress_yields(progress, world->timer, world->now))
		move_own(world);
	send_all(world);
	if (world->now - progress->active_at >= SNT__PROGRESS_IDLE)
		world->held = false;
	work = work_of(world);
	world->plan = snt__progress_plan(progress, &work, world->now);
	if (plans_rest(world))
		rest(world);
	snt__progress_sleep(progress, world->plan);
	world->sees_room = world->stalled_at;
	world->hears = (world->plan.thread != SNT__THREAD_NAPPING &&
			world->plan.thread != SNT__THREAD_CHECKING) ||
		       (world->plan.thread == SNT__THREAD_NAPPING &&
			progress->owner == SNT__OWNER_POLLER);
	world->place = world->plan.thread == SNT__THREAD_AWAKE ? LOOKING : SLEEPING;
	world->until = world->plan.until;
	world->polls = world->polls_before = snt__progress_polls(progress);
}

/* Is the socket, or what stands for it, readable to a thread that sleeps as planned? */
static bool is_heard(const struct world *world)
{
	switch (world->plan.thread) {
	case SNT__THREAD_ASLEEP:
	case SNT__THREAD_GUARDING:
		return world->packet_at || (world->sees_room && world->stalled_at);
	case SNT__THREAD_ASLEEP_APART:
		return world->edge || (world->sees_room && world->stalled_at);
	default:
		return false;
	}
}

static bool is_runnable(const struct world *world)
{
	return world->place == LOOKING || world->called ||
	       (world->bell && world->hears) ||
	       (world->place == SLEEPING && is_heard(world)) ||
	       world->until <= world->now;
}

static void end_grace(struct world *world, bool woken)
{
	if (!woken)
		snt__progress_end_guard(&world->progress, world->polls_before,
					world->now);
	world->progress.active_at = world->now;
	world->place = LOOKING;
}

/* Does the thread see something that a borrower should come for? */
static bool is_left_lying(const struct world *world)
{
	bool lies = world->packet_at || world->bell;

	switch (world->plan.thread) {
	case SNT__THREAD_GUARDING:
		return lies;
	case SNT__THREAD_CHECKING:
		return lies && !world->held;
	default:
		return false;
	}
}

static void end_sleep(struct world *world, bool called, bool woken)
{
	struct snt__progress *progress = &world->progress;

	if (!called && is_left_lying(world)) {
		world->polls_before = world->plan.thread == SNT__THREAD_CHECKING
					      ? snt__progress_polls(progress)
					      : world->polls_before;
		world->place = GRACE;
		world->hears = false;
		world->until = world->now + SNT__PROGRESS_NAP;
		return;
	}
	if (world->plan.thread == SNT__THREAD_NAPPING && !woken) {
		if (snt__progress_naps_on(progress, &world->polls)) {
			world->until = world->now + SNT__PROGRESS_NAP;
			return;
		}
		snt__progress_end_nap(progress, world->now);
	}
	if (woken || snt__progress_polls(progress) != world->polls_before)
		progress->active_at = world->now;
	world->place = LOOKING;
}

static void run_thread(struct world *world)
{
	bool bell = world->bell && world->hears;
	bool called = world->called, woken = called || bell;

	if (!is_runnable(world))
		return;
	if (world->place == SLEEPING && bell)
		world->heard = true;
	if (world->place == LOOKING) {
		look(world);
		return;
	}
	world->called = false;
	if (world->place == GRACE)
		end_grace(world, called);
	else
		end_sleep(world, called, woken);
}

/*
 * What must hold
 */

static bool is_late(const struct world *world, uint64_t since)
{
	return since && world->now - since > SNT__PROGRESS_TAKEOVER;
}

/* A program that computes instead of sleeping in its event loop holds up what arrives for
 * four naps: the thread may have been napping twice for a busy poller, it then naps for
 * this program, and leaves it a nap's time. While messages are held it does not look. */
static bool is_held_up(const struct world *at, const struct world *world)
{
	uint64_t since = world->packet_at ? world->packet_at : world->ring_at;

	return at->progress.owner == SNT__OWNER_WATCHER && !at->held && since &&
	       world->now - since > 4 * SNT__PROGRESS_NAP + 2000;
}

static bool is_something_late(const struct world *world)
{
	return is_late(world, world->packet_at) || is_late(world, world->ring_at) ||
	       is_late(world, world->reply_at) || is_late(world, world->left_at) ||
	       is_late(world, world->stalled_at) ||
	       (world->timer <= world->now && is_late(world, world->timer));
}

static bool is_all_done(const struct world *world)
{
	return !world->packet_at && !world->ring_at && !world->reply_at &&
	       !world->left_at && !world->stalled_at && world->timer == NEVER;
}

/* Counted from now: what has waited until here was the program's. */
static void begin_wait(const struct world *world, uint64_t *since)
{
	if (*since)
		*since = world->now;
}

static void describe(const char *what, const struct world *world)
{
	const struct snt__progress *progress = &world->progress;

	print_message(
		"# %s: owner %d, thread %d, place %d, active %.0f us ago, polled %.0f "
		"us ago, until %.0f us from now, linked %d, held %d\n",
		what, progress->owner, world->plan.thread, world->place,
		(double)(world->now - progress->active_at) / 1e3,
		(double)snt__progress_pause(progress, world->now) / 1e3,
		((double)world->until - (double)world->now) / 1e3, world->linked,
		world->held);
	print_message(
		"# packet %.0f, record %.0f, reply %.0f, left %.0f, stalled %.0f\n",
		world->packet_at / 1e3, world->ring_at / 1e3, world->reply_at / 1e3,
		world->left_at / 1e3, world->stalled_at / 1e3);
}

static void begin_waits(struct world *world)
{
	begin_wait(world, &world->packet_at);
	begin_wait(world, &world->ring_at);
	begin_wait(world, &world->reply_at);
	begin_wait(world, &world->left_at);
	begin_wait(world, &world->stalled_at);
	if (world->timer < world->now)
		world->timer = world->now;
}

/* The program does nothing but poll, at times that make no busy poller. */
static void check_polled(const struct world *at)
{
	const uint64_t end = at->now + SNT__PROGRESS_TAKEOVER;
	struct world world = *at;

	return_it(&world, false);
	begin_waits(&world);
	world.timer = NEVER;
	while (!is_all_done(&world)) {
		world.now += SNT__PROGRESS_PAUSE + 10000;
		poll_device(&world, true);
		while (is_runnable(&world)) {
			run_thread(&world);
			world.now += 100;
		}
		if (world.now >= end)
			describe("the program polled from here on", at);
		assert_true(world.now < end);
	}
}

/* The program has stopped. Time passes only while the thread sleeps, apart from the lock
 * and the processor that it takes to look. */
static void check_abandoned(const struct world *at)
{
	struct world world = *at;

	begin_waits(&world);
	while (!is_all_done(&world)) {
		if (is_runnable(&world)) {
			run_thread(&world);
			world.now += 100;
		} else {
			if (world.until == NEVER)
				describe("left undone for ever", at);
			assert_true(world.until != NEVER);
			world.now = world.until;
		}
		if (is_something_late(&world) || is_held_up(at, &world)) {
			describe("the program stopped here", at);
			describe("too late", &world);
		}
		assert_false(is_something_late(&world));
		assert_false(is_held_up(at, &world));
	}
}

/* A borrower that sleeps is woken by the packet itself, unless the thread takes it. */
static void check_borrower(const struct world *world)
{
	if (world->borrowing && snt__progress_is_awaited(&world->progress) &&
	    (world->packet_at || world->ring_at))
		assert_true(is_readable(world) || is_runnable(world));
}

static void check_states(const struct world *world)
{
	const struct snt__progress *progress = &world->progress;

	assert_int_equal(world->borrowing, snt__progress_is_lent(progress));
	assert_int_equal(progress->thread == SNT__THREAD_AWAKE, !progress->wake_at);
	if (world->place == SLEEPING && progress->thread != SNT__THREAD_AWAKE)
		assert_int_equal(progress->thread, world->plan.thread);
	/* What is the thread's is not left to naps. */
	if (snt__progress_naps(progress) && !snt__progress_is_away(progress))
		assert_true(world->called || world->place != SLEEPING);
	thread_seen[progress->owner][progress->thread] = true;
}

/*
 * Steps
 */

static void pass_time(struct world *world)
{
	static const unsigned us[] = {
		1, 5, 20, 60, 120, 300, 600, 3000, 15000, 60000
	};

	world->now += 1000 * us[below(sizeof(us) / sizeof(*us))] + below(1000);
}

/* A program that does one thing for a while. */
static void poll_busily(struct world *world)
{
	for (unsigned i = 0; i < 20; i++) {
		poll_device(world, true);
		world->now += 5000;
		run_thread(world);
	}
}

static void sleep_steadily(struct world *world)
{
	bool watches = below(2);

	for (unsigned i = 0; i < 6; i++) {
		if (watches)
			watch(world);
		else
			borrow(world);
		if (below(2))
			packet_arrives(world);
		world->now += 50000;
		run_thread(world);
		return_it(world, is_readable(world));
		poll_device(world, true);
	}
}

/* The thread alone, with all the time that it wants. */
static void run_thread_long(struct world *world)
{
	for (unsigned i = 2 + below(60); i; i--) {
		if (is_runnable(world))
			run_thread(world);
		else if (world->until != NEVER)
			world->now = world->until;
	}
}

static void step(struct world *world)
{
	switch (below(17)) {
	case 0:
		poll_device(world, below(4));
		break;
	case 1:
		post_to_device(world);
		break;
	case 2:
		arm(world);
		break;
	case 3:
		borrow(world);
		break;
	case 4:
		return_it(world, is_readable(world));
		break;
	case 5:
		return_it(world, false);
		break;
	case 6:
	case 7:
		packet_arrives(world);
		break;
	case 8:
		record_arrives(world);
		break;
	case 9:
		if (!world->linked)
			world->held = true;
		packet_arrives(world);
		break;
	case 10:
		poll_busily(world);
		break;
	case 11:
		sleep_steadily(world);
		break;
	case 12:
		pass_time(world);
		break;
	case 13:
		run_thread_long(world);
		break;
	case 14:
		watch(world);
		break;
	default:
		run_thread(world);
		break;
	}
}

static void every_packet_timer_and_bell_has_an_owner(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct world world = { .now = 1000000000, .timer = NEVER };

		random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
		world.linked = below(4) == 0;
		for (unsigned i = 0; i < STEPS; i++) {
			enum snt__progress_owner before = world.progress.owner;

			step(&world);
			owner_seen[before][world.progress.owner] = true;
			check_states(&world);
			check_borrower(&world);
			check_abandoned(&world);
			if (i % 8 == 0)
				check_polled(&world);
		}
	}
}

/* The walk has been everywhere. */
static void every_state_is_reached(void **state)
{
	(void)state;
	for (unsigned owner = 0; owner < SNT__OWNER_COUNT; owner++)
		for (unsigned thread = 0; thread < SNT__THREAD_COUNT; thread++)
			if (!thread_seen[owner][thread])
				print_message("# owner %u, thread %u: never\n", owner,
					      thread);
	assert_true(owner_seen[SNT__OWNER_THREAD][SNT__OWNER_POLLER]);
	assert_true(owner_seen[SNT__OWNER_THREAD][SNT__OWNER_BORROWER]);
	assert_true(owner_seen[SNT__OWNER_POLLER][SNT__OWNER_THREAD]);
	assert_true(owner_seen[SNT__OWNER_POLLER][SNT__OWNER_BORROWER]);
	assert_true(owner_seen[SNT__OWNER_BORROWER][SNT__OWNER_RETURNED]);
	assert_true(owner_seen[SNT__OWNER_BORROWER][SNT__OWNER_OVERDUE]);
	assert_true(owner_seen[SNT__OWNER_RETURNED][SNT__OWNER_THREAD]);
	assert_true(owner_seen[SNT__OWNER_RETURNED][SNT__OWNER_POLLER]);
	assert_true(owner_seen[SNT__OWNER_RETURNED][SNT__OWNER_BORROWER]);
	assert_true(owner_seen[SNT__OWNER_OVERDUE][SNT__OWNER_THREAD]);
	assert_true(thread_seen[SNT__OWNER_BORROWER][SNT__THREAD_NAPPING]);
	assert_true(thread_seen[SNT__OWNER_BORROWER][SNT__THREAD_GUARDING]);
	assert_true(thread_seen[SNT__OWNER_THREAD][SNT__THREAD_ASLEEP_APART]);
	assert_true(owner_seen[SNT__OWNER_THREAD][SNT__OWNER_WATCHER]);
	assert_true(owner_seen[SNT__OWNER_POLLER][SNT__OWNER_WATCHER]);
	assert_true(owner_seen[SNT__OWNER_RETURNED][SNT__OWNER_WATCHER]);
	assert_true(owner_seen[SNT__OWNER_WATCHER][SNT__OWNER_RETURNED]);
	assert_true(owner_seen[SNT__OWNER_WATCHER][SNT__OWNER_OVERDUE]);
	assert_true(thread_seen[SNT__OWNER_WATCHER][SNT__THREAD_CHECKING]);
	assert_true(thread_seen[SNT__OWNER_WATCHER][SNT__THREAD_GUARDING]);
	assert_true(lone_wakes > SEEDS);
	assert_true(lone_watch_wakes > SEEDS);
}

/* A program that holds up its peers is not trusted for a while, and for longer if it does
 * so again soon. */
static uint64_t hold_up_peer(struct snt__progress *progress, uint64_t now)
{
	assert_true(snt__progress_borrow(progress, SNT__PROGRESS_WATCHED, now, true));
	snt__progress_end_guard(progress, snt__progress_polls(progress), now);
	assert_int_equal(progress->owner, SNT__OWNER_OVERDUE);
	snt__progress_return(progress, now);
	assert_false(snt__progress_borrow(progress, SNT__PROGRESS_WATCHED,
					  progress->lend_at - 1, true));
	return progress->lend_at - now;
}

static void distrust_grows_and_ends(void **state)
{
	struct snt__progress progress = { 0 };
	uint64_t now = 1000000000, expected = SNT__PROGRESS_DISTRUST;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		uint64_t distrust = hold_up_peer(&progress, now);

		assert_int_equal(distrust, expected);
		now = progress.lend_at + distrust - 1;
		expected = 2 * expected < SNT__PROGRESS_DISTRUST_MAX
				   ? 2 * expected
				   : SNT__PROGRESS_DISTRUST_MAX;
	}
	now = progress.lend_at + progress.distrust;
	assert_int_equal(hold_up_peer(&progress, now), SNT__PROGRESS_DISTRUST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_packet_timer_and_bell_has_an_owner),
		cmocka_unit_test(every_state_is_reached),
		cmocka_unit_test(distrust_grows_and_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
