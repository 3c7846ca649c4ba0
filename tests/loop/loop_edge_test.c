/* SPDX-License-Identifier: MIT */
/*
 * Programs that are woken by edges of the fd, poll, arm and sleep, and never dispatch: each
 * timer, wake and event of a connection makes another edge. tests/loop/loop_explore.c has
 * the interleavings; this is the sequence itself, with the kernel's clock and sockets.
 */
#include "lib/test.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "lib/conn_kit.h"

#define ROUNDS	3
#define WAIT_MS 20000

static int outer;
static unsigned told;

static void watch_by_edge(struct kit *kit)
{
	outer = epoll_create1(EPOLL_CLOEXEC);
	assert_success(outer);
	for (unsigned i = 0; i < 2; i++) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET,
					     .data.u32 = i };

		assert_success(epoll_ctl(outer, EPOLL_CTL_ADD,
					 snt_loop_fd(kit->end[i].loop), &event));
	}
}

/* Until the program may sleep. */
static void poll_and_arm(struct snt_loop *loop)
{
	int ret;

	do {
		assert_success(snt_loop_poll(loop, 0));
		ret = snt_loop_arm(loop);
		assert_success(ret);
	} while (ret);
}

/* Sleeps until one end is woken, which then takes its turn. */
static void sleep_and_turn(struct kit *kit)
{
	struct epoll_event event;

	assert_int_equal(epoll_wait(outer, &event, 1, WAIT_MS), 1);
	poll_and_arm(kit->end[event.data.u32].loop);
}

static void open_kit(struct kit *kit)
{
	kit_open(kit, SNT_CARRIER_TCP, 1);
	kit_listen(kit);
	watch_by_edge(kit);
	for (unsigned i = 0; i < 2; i++)
		poll_and_arm(kit->end[i].loop);
	told = 0;
}

static void close_kit(struct kit *kit)
{
	close(outer);
	kit_close(kit);
}

static void fired(struct snt_timer *timer)
{
	(void)timer;
	told++;
}

static void the_second_timer_makes_an_edge(void **state)
{
	struct snt_timer timer = { .fired = fired };
	struct kit kit;

	(void)state;
	open_kit(&kit);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		assert_success(snt_timer_start(kit.end[0].loop, &timer, 1000000));
		poll_and_arm(kit.end[0].loop);
		while (told < i)
			sleep_and_turn(&kit);
	}
	close_kit(&kit);
}

/* Both started at once, so that nothing but polling and arming can set the timerfd. */
static void a_later_timer_makes_an_edge(void **state)
{
	struct snt_timer timer[ROUNDS] = { 0 };
	struct kit kit;

	(void)state;
	open_kit(&kit);
	for (unsigned i = 0; i < ROUNDS; i++) {
		timer[i].fired = fired;
		assert_success(
			snt_timer_start(kit.end[0].loop, &timer[i], (i + 1) * 5000000));
	}
	while (told < ROUNDS)
		sleep_and_turn(&kit);
	close_kit(&kit);
}

static void woken(void *arg, struct snt_loop *loop)
{
	(void)arg;
	(void)loop;
	told++;
}

static void the_second_wake_makes_an_edge(void **state)
{
	struct kit kit;

	(void)state;
	open_kit(&kit);
	assert_success(snt_loop_set_wake_handler(kit.end[0].loop, woken, NULL));
	for (unsigned i = 1; i <= ROUNDS; i++) {
		assert_success(snt_loop_wake(kit.end[0].loop));
		while (told < i)
			sleep_and_turn(&kit);
	}
	close_kit(&kit);
}

static void connections_come_and_go_by_edges(void **state)
{
	struct kit kit;

	(void)state;
	open_kit(&kit);
	kit_connect(&kit);
	while (!kit_both_up(&kit))
		sleep_and_turn(&kit);
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	while (!kit.end[1].events[SNT_CONN_PEER_DONE])
		sleep_and_turn(&kit);
	assert_success(snt_conn_disconnect(kit.end[1].conn, 0));
	while (!kit_both_over(&kit))
		sleep_and_turn(&kit);
	kit_destroy_conns(&kit);
	close_kit(&kit);
}

/* An fd that stays readable keeps a program awake that is woken by level. */
static void level_triggered_programs_fall_asleep(void **state)
{
	struct snt_timer timer = { .fired = fired };
	struct epoll_event event = { .events = EPOLLIN };
	struct snt_loop *loop;
	struct kit kit;

	(void)state;
	open_kit(&kit);
	loop = kit.end[0].loop;
	assert_success(epoll_ctl(outer, EPOLL_CTL_MOD, snt_loop_fd(loop), &event));
	assert_success(snt_timer_start(loop, &timer, 1000000));
	poll_and_arm(loop);
	while (!told)
		sleep_and_turn(&kit);
	assert_success(snt_loop_wake(loop));
	sleep_and_turn(&kit);
	assert_int_equal(epoll_wait(outer, &event, 1, 0), 0);
	close_kit(&kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_second_timer_makes_an_edge),
		cmocka_unit_test(a_later_timer_makes_an_edge),
		cmocka_unit_test(the_second_wake_makes_an_edge),
		cmocka_unit_test(connections_come_and_go_by_edges),
		cmocka_unit_test(level_triggered_programs_fall_asleep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
