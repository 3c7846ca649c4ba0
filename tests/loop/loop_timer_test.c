/* SPDX-License-Identifier: MIT */
/*
 * Timers: in virtual time against a model, in real time through the fd.
 */
#include "lib/fds.h"
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "lib/seeds.h"
#include "lib/loop_kit.h"

static uint64_t now_ns;

static uint64_t virtual_clock(void *arg)
{
	(void)arg;
	return now_ns;
}

static struct snt_loop *open_loop(snt_clock_fn clock,
				  struct scripted_fabric **fabric_out)
{
	struct snt_adopted adopted;
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1,
				     .clock = clock };
	struct snt_loop *loop;
	struct snt_ctx *ctx;

	*fabric_out = scripted_fabric_create(1);
	adopted = scripted_adopted(scripted_device_create(*fabric_out, NULL));
	assert_success(snt_ctx_create(&opts, &ctx));
	assert_success(snt_loop_create(ctx, NULL, &loop));
	now_ns = 1000;
	return loop;
}

static void close_loop(struct snt_loop *loop, struct scripted_fabric *fabric)
{
	struct snt_ctx *ctx = snt_loop_ctx(loop);

	assert_success(snt_loop_destroy(loop));
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

#define TIMERS 500

static struct snt_timer timers[TIMERS];
static uint64_t expected[TIMERS]; /* when it is to fire; 0: it is not */
static uint64_t last_fired;
static unsigned fired_count;

static void note_fired(struct snt_timer *timer)
{
	unsigned i = timer - timers;

	assert_true(expected[i] && expected[i] <= now_ns);
	assert_true(expected[i] >= last_fired);
	last_fired = expected[i];
	expected[i] = 0;
	fired_count++;
	assert_int_equal(snt_timer_stop(timer), 0);
}

static unsigned count_due(void)
{
	unsigned count = 0;

	for (int i = 0; i < TIMERS; i++)
		count += expected[i] && expected[i] <= now_ns;
	return count;
}

/* Starts, moves and stops at random; what fires does so in order and in time. */
static void timers_agree_with_a_model(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(virtual_clock, &fabric);
	uint64_t random = 7;

	(void)state;
	memset(timers, 0, sizeof(timers));
	memset(expected, 0, sizeof(expected));
	fired_count = 0;
	for (int i = 0; i < TIMERS; i++)
		timers[i].fired = note_fired;
	for (int step = 0; step < 100000; step++) {
		unsigned i = random_below(&random, TIMERS), due;

		switch (random_below(&random, 8)) {
		case 0:
			assert_int_equal(snt_timer_stop(&timers[i]), expected[i] != 0);
			expected[i] = 0;
			break;
		case 1:
			now_ns += random_below(&random, 300);
			due = count_due();
			last_fired = 0;
			assert_int_equal(snt_loop_dispatch(loop, 1000), due);
			assert_int_equal(count_due(), 0);
			break;
		default:
			expected[i] = now_ns + 1 + random_below(&random, 1000);
			assert_success(
				snt_timer_start_at(loop, &timers[i], expected[i]));
			break;
		}
	}
	assert_true(fired_count > 10000);
	close_loop(loop, fabric);
	for (int i = 0; i < TIMERS; i++)
		assert_null(timers[i].loop); /* forgotten */
}

static unsigned ticks;
static struct snt_timer *other;

static void tick(struct snt_timer *timer)
{
	ticks++;
	assert_success(snt_timer_start(timer->arg, timer, 0));
}

static void a_timer_that_starts_itself_does_not_hang(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(virtual_clock, &fabric);
	struct snt_timer timer = { .fired = tick, .arg = loop };

	(void)state;
	ticks = 0;
	assert_success(snt_timer_start(loop, &timer, 0));
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	now_ns++;
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	now_ns++;
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(ticks, 2);
	assert_int_equal(snt_timer_stop(&timer), 1);
	close_loop(loop, fabric);
}

static void stop_other(struct snt_timer *timer)
{
	(void)timer;
	ticks++;
	assert_int_equal(snt_timer_stop(other), 1);
}

static void timers_may_stop_each_other(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(virtual_clock, &fabric);
	struct snt_timer a = { .fired = stop_other }, b = { .fired = tick };

	(void)state;
	ticks = 0;
	other = &b;
	assert_success(snt_timer_start(loop, &a, 5));
	assert_success(snt_timer_start(loop, &b, 6));
	now_ns += 10;
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_int_equal(snt_loop_timeout(loop), -1);
	close_loop(loop, fabric);
}

static void misuse(void **state)
{
	struct scripted_fabric *fabric[2];
	struct snt_loop *loop[2];
	struct snt_timer timer = { 0 };

	(void)state;
	for (int i = 0; i < 2; i++)
		loop[i] = open_loop(virtual_clock, &fabric[i]);
	assert_error(snt_timer_start(loop[0], &timer, 1), EINVAL,
		     "the timer has no function");
	timer.fired = tick;
	assert_success(snt_timer_start(loop[0], &timer, UINT64_MAX));
	assert_error(snt_timer_start(loop[1], &timer, 1), EBUSY, "another loop");
	assert_int_equal(snt_loop_timeout(loop[0]), INT64_MAX);
	assert_int_equal(snt_timer_stop(&timer), 1);
	assert_int_equal(snt_timer_stop(&timer), 0);
	for (int i = 0; i < 2; i++)
		close_loop(loop[i], fabric[i]);
}

static void timeouts_are_exact(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(virtual_clock, &fabric);
	struct snt_timer timer = { .fired = tick };

	(void)state;
	assert_int_equal(snt_loop_timeout(loop), -1);
	assert_success(snt_timer_start(loop, &timer, 1));
	assert_int_equal(snt_loop_timeout(loop), 1);
	assert_success(snt_timer_start(loop, &timer, 1000001));
	assert_int_equal(snt_loop_timeout(loop), 1000001);
	now_ns += 1;
	assert_int_equal(snt_loop_timeout(loop), 1000000);
	assert_success(snt_timer_start(loop, &timer, INT64_C(1) << 40));
	assert_int_equal(snt_loop_timeout(loop), INT64_C(1) << 40);
	assert_success(snt_timer_start(loop, &timer, 1000001));
	now_ns += 1000001;
	assert_int_equal(snt_loop_timeout(loop), 0);
	assert_int_equal(snt_timer_stop(&timer), 1);
	close_loop(loop, fabric);
}

static void count_tick(struct snt_timer *timer)
{
	(void)timer;
	ticks++;
}

/* One timerfd for all of them, made with the first; the fd wakes for each in time. */
static void the_fd_wakes_for_timers(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(NULL, &fabric);
	struct pollfd poller = { .fd = snt_loop_fd(loop), .events = POLLIN };
	struct snt_timer timer[3] = { { .fired = count_tick },
				      { .fired = count_tick },
				      { .fired = count_tick } };
	unsigned fds = count_fds(), wakes = 0;
	uint64_t begin;

	(void)state;
	ticks = 0;
	assert_success(snt_loop_dispatch(loop, 0));
	begin = snt_loop_now(loop);
	for (int i = 2; i >= 0; i--)
		assert_success(snt_timer_start(loop, &timer[i], (i + 1) * 5000000));
	assert_int_equal(count_fds(), fds + 1);
	while (ticks < 3) {
		assert_int_equal(poll(&poller, 1, 20000), 1);
		wakes++;
		assert_success(snt_loop_dispatch(loop, 0));
		assert_true(snt_loop_now(loop) - begin >= ticks * 5000000);
	}
	assert_in_range(wakes, 1, 5);
	assert_int_equal(poll(&poller, 1, 0), 0);
	/* One that is stopped leaves at most one wake-up behind. */
	assert_success(snt_timer_start(loop, &timer[0], 2000000));
	assert_int_equal(snt_timer_stop(&timer[0]), 1);
	for (wakes = 0; poll(&poller, 1, 20) == 1; wakes++)
		assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_in_range(wakes, 0, 1);
	close_loop(loop, fabric);
}

/* Timers started before there is an fd, and by one that fires. */
static struct snt_timer chained = { .fired = count_tick };

static void start_chained(struct snt_timer *timer)
{
	ticks++;
	assert_success(snt_timer_start(timer->arg, &chained, 1000000));
}

static void timers_outlive_the_making_of_the_fd(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(NULL, &fabric);
	struct snt_timer timer = { .fired = start_chained, .arg = loop };

	(void)state;
	ticks = 0;
	assert_success(snt_timer_start(loop, &timer, 1000000));
	while (ticks < 2)
		assert_success(snt_loop_wait(loop, 2000000000));
	close_loop(loop, fabric);
}

/* With nothing else to do a budget of one is good for a timer, each time. */
static void a_budget_of_one_is_enough(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(virtual_clock, &fabric);
	struct snt_timer timer = { .fired = count_tick };

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_success(snt_timer_start_at(loop, &timer, 0));
		assert_int_equal(snt_loop_dispatch(loop, 1), 1);
	}
	close_loop(loop, fabric);
}

/* A timerfd that could not be watched once is watched when the next timer starts. */
static void a_timer_that_could_not_start_harms_no_other(void **state)
{
	struct scripted_fabric *fabric;
	struct snt_loop *loop = open_loop(NULL, &fabric);
	struct snt_timer timer = { .fired = count_tick };
	struct pollfd poller = { .fd = snt_loop_fd(loop), .events = POLLIN };
	int kept = dup(poller.fd), none = open("/dev/null", O_RDONLY);
	unsigned fds = count_fds();

	(void)state;
	assert_success(snt_loop_dispatch(loop, 0));
	/* What is no epoll instance cannot watch anything. */
	assert_success(dup2(none, poller.fd));
	assert_error(snt_timer_start(loop, &timer, 1), EINVAL, "cannot be watched");
	assert_success(dup2(kept, poller.fd));
	assert_int_equal(count_fds(), fds);
	assert_success(snt_timer_start(loop, &timer, 1));
	assert_int_equal(poll(&poller, 1, 20000), 1);
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	close(kept);
	close(none);
	close_loop(loop, fabric);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_agree_with_a_model),
		cmocka_unit_test(a_timer_that_starts_itself_does_not_hang),
		cmocka_unit_test(timers_may_stop_each_other),
		cmocka_unit_test(misuse),
		cmocka_unit_test(timeouts_are_exact),
		cmocka_unit_test(the_fd_wakes_for_timers),
		cmocka_unit_test(timers_outlive_the_making_of_the_fd),
		cmocka_unit_test(a_budget_of_one_is_enough),
		cmocka_unit_test(a_timer_that_could_not_start_harms_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
