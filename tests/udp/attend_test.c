/* SPDX-License-Identifier: MIT */
/* Who sleeps on the socket of a device moves its packets, and its thread does not; but for
 * what only the thread can do, and when he does not come back. */
#include "udp/side.h"

#include <poll.h>
#include <sennit/loop.h>
#include <time.h>

/* Who has been elsewhere may not at once. */
static int attend(struct side *side)
{
	uint64_t end = snt__udp_now() + UINT64_C(30000000000);
	int fd;

	do
		fd = snt__udp_attend(side->device);
	while (fd < 0 && snt__udp_now() < end);
	assert_true(fd >= 0);
	return fd;
}

static void leave(struct side *side, bool readable)
{
	snt__udp_leave(side->device, readable);
}

static bool wait_readable(int fd, int timeout_ms)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };

	return poll(&at, 1, timeout_ms) == 1;
}

/* He sleeps on it again and again, until the thread has seen that he does. */
static void attend_until_thread_naps(struct side *side, struct side *peer)
{
	uint64_t end = snt__udp_now() + UINT64_C(30000000000);
	struct ibv_wc wc;

	while (!side_naps(side)) {
		side_post(peer, side, IBV_WR_RDMA_WRITE, 100);
		while (!ibv_poll_cq(peer->cq, 1, &wc)) {
			int fd = attend(side);

			assert_true(snt__udp_now() < end);
			leave(side, wait_readable(fd, 1));
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
}

/* And then sleeps on it, with nobody else there. */
static int attend_alone(struct side *side, struct side *peer)
{
	for (;;) {
		int fd;

		attend_until_thread_naps(side, peer);
		fd = attend(side);
		if (side_naps(side))
			return fd;
		leave(side, false);
	}
}

/* Nothing moves while he only looks. Then it does, in his own thread. */
static void sleeper_moves_packets(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		int fd = attend_alone(&side[1], &side[0]);
		uint64_t before = side_stats(&side[1]).packets_in;

		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_true(wait_readable(fd, 30000));
		assert_int_equal(side_stats(&side[1]).packets_in, before);
		leave(&side[1], true);
		assert_int_equal(side_stats(&side[1]).packets_in, before + 1);
		/* The acknowledgment goes out although he does not come back. */
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

static void one_at_a_time(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	attend(&side[0]);
	assert_int_equal(snt__udp_attend(side[0].device), -1);
	attend(&side[1]);
	leave(&side[0], false);
	attend(&side[0]);
	leave(&side[0], false);
	leave(&side[1], false);
	sides_close(side);
}

/* Until nothing but a packet, or a bell, would wake its thread. */
static void wait_asleep(struct side *side)
{
	const struct timespec moment = { .tv_nsec = 500000 };
	uint64_t end = snt__udp_now() + UINT64_C(30000000000), wake_at;

	do {
		assert_true(snt__udp_now() < end);
		nanosleep(&moment, NULL);
		snt__udp_lock(side->device);
		wake_at = side->device->wake_at;
		snt__udp_unlock(side->device);
	} while (wake_at < end);
}

/* The thread finds out, also if he had slept for so long that it slept, too. */
static void sleeper_does_not_come_back(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		attend_alone(&side[1], &side[0]);
		if (i % 2)
			wait_asleep(&side[1]);
		leave(&side[1], false);
		side_check(&side[0], &side[1], 100);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* Who does other things in between would keep those waiting who write to his memory. */
static void who_was_away_may_not(void **state)
{
	const struct timespec away = { .tv_nsec = 2 * SNT__UDP_AWAY };
	struct side side;

	(void)state;
	side_open(&side, 1, NULL);
	for (unsigned i = 0; i < 10; i++) {
		attend(&side);
		leave(&side, false);
		nanosleep(&away, NULL);
		assert_int_equal(snt__udp_attend(side.device), -1);
	}
	side_close(&side);
}

/* What comes through memory is not heard at the socket. */
static void a_link_comes_up_while_he_sleeps(void **state)
{
	const struct snt__udp_opts opts = { .shm = true };
	struct side side[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		side_open(&side[0], 1, &opts);
		side_open(&side[1], 2, &opts);
		attend(&side[1]);
		if (i)
			wait_asleep(&side[1]);
		side_connect(&side[0], &side[1], IBV_MTU_4096);
		side_connect(&side[1], &side[0], IBV_MTU_4096);
		side_check(&side[0], &side[1], 100);
		leave(&side[1], false);
		assert_int_equal(snt__udp_attend(side[1].device), -1);
		assert_int_equal(side_stats(&side[0]).resent, 0);
		sides_close(side);
	}
}

/* Who had slept on the socket wants an event the next time. */
static void sleeper_waits_for_an_event(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		attend_until_thread_naps(&side[0], &side[1]);
		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_int_equal(side_wait_event(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* He hears of it if nobody answers: timers are the thread's. */
static void timers_run_while_he_sleeps(void **state)
{
	struct side side[2];

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, NULL);
	attend_until_thread_naps(&side[0], &side[1]);
	side_close(&side[1]);
	attend(&side[0]);
	sides_idle();
	assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
	side_post(&side[0], &side[0], IBV_WR_RDMA_WRITE, 100);
	assert_int_equal(side_wait_event(&side[0]), IBV_WC_RETRY_EXC_ERR);
	leave(&side[0], false);
	side_timeout = SIDE_PATIENT;
	side_close(&side[0]);
}

/*
 * Who waits in a loop
 */

static struct snt__udp_device *open_context(struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .devices = "soft0" };

	assert_success(snt_ctx_open(&opts, ctx_out));
	return snt__udp_device_of(snt_device_context(snt_ctx_device(*ctx_out, 0)));
}

/* Was the socket looked after in one of a few waits? */
static bool attends(struct snt_ctx *ctx, struct snt__udp_device *device,
		    int64_t timeout_ns)
{
	bool attended = false;

	for (unsigned i = 0; i < 50 && !attended; i++) {
		assert_int_equal(snt_loop_wait(ctx, timeout_ns), 0);
		snt__udp_lock(device);
		attended = device->attended_lately;
		snt__udp_unlock(device);
	}
	return attended;
}

/* Not if he does not sleep at all, nor if he may sleep elsewhere. */
static void loops_attend(void **state)
{
	struct snt__udp_device *device;
	struct snt_ctx *ctx;

	(void)state;
	device = open_context(&ctx);
	assert_false(attends(ctx, device, 0));
	assert_true(attends(ctx, device, 1000000));
	assert_int_equal(snt_loop_dispatch(ctx, 0), 0);
	snt__udp_lock(device);
	device->attended_lately = false;
	snt__udp_unlock(device);
	assert_false(attends(ctx, device, 1000000));
	assert_success(snt_ctx_close(ctx));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleeper_moves_packets),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(sleeper_does_not_come_back),
		cmocka_unit_test(who_was_away_may_not),
		cmocka_unit_test(a_link_comes_up_while_he_sleeps),
		cmocka_unit_test(sleeper_waits_for_an_event),
		cmocka_unit_test(timers_run_while_he_sleeps),
		cmocka_unit_test(loops_attend),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
