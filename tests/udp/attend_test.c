/* SPDX-License-Identifier: MIT */
/* Who sleeps on the socket of a device moves its packets, and its thread does not; but for
 * what only the thread can do, and when he does not come back. */
#include "udp/side.h"

#include <poll.h>

static int attend(struct side *side)
{
	return snt__udp_attend(side->device);
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

			assert_true(fd >= 0 && snt__udp_now() < end);
			snt__udp_leave(side->device, wait_readable(fd, 1));
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
}

/* Nothing moves while he only looks. Then it does, in his own thread. */
static void sleeper_moves_packets(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t before;
		int fd;

		attend_until_thread_naps(&side[1], &side[0]);
		before = side_stats(&side[1]).packets_in;
		fd = attend(&side[1]);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_true(wait_readable(fd, 30000));
		assert_int_equal(side_stats(&side[1]).packets_in, before);
		snt__udp_leave(side[1].device, true);
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
	assert_true(attend(&side[0]) >= 0);
	assert_int_equal(attend(&side[0]), -1);
	assert_true(attend(&side[1]) >= 0);
	snt__udp_leave(side[0].device, false);
	assert_true(attend(&side[0]) >= 0);
	snt__udp_leave(side[0].device, false);
	snt__udp_leave(side[1].device, false);
	sides_close(side);
}

/* The thread finds out, also if he had slept for so long that it slept, too. */
static void sleeper_does_not_come_back(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 22; i++) {
		attend_until_thread_naps(&side[1], &side[0]);
		assert_true(attend(&side[1]) >= 0);
		if (i >= 20)
			sides_idle();
		snt__udp_leave(side[1].device, false);
		side_check(&side[0], &side[1], 100);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* Who had slept on the socket wants an event the next time. */
static void sleeper_waits_for_an_event(void **state)
{
	struct side side[2];

	(void)state;
	sides_open(side, NULL);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_cq *cq;
		struct ibv_wc wc;
		void *context;

		attend_until_thread_naps(&side[0], &side[1]);
		assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
		assert_success(
			side[0].control->get_cq_event(side[0].channel, &cq, &context));
		side[0].control->ack_cq_events(cq, 1);
		assert_int_equal(ibv_poll_cq(side[0].cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_int_equal(side_stats(&side[0]).resent, 0);
	sides_close(side);
}

/* He hears of it if nobody answers: timers are the thread's. */
static void timers_run_while_he_sleeps(void **state)
{
	struct side side[2];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	(void)state;
	side_timeout = SIDE_IMPATIENT;
	sides_open(side, NULL);
	attend_until_thread_naps(&side[0], &side[1]);
	side_close(&side[1]);
	assert_true(attend(&side[0]) >= 0);
	assert_int_equal(ibv_req_notify_cq(side[0].cq, 0), 0);
	side_post(&side[0], &side[0], IBV_WR_RDMA_WRITE, 100);
	assert_success(side[0].control->get_cq_event(side[0].channel, &cq, &context));
	side[0].control->ack_cq_events(cq, 1);
	snt__udp_leave(side[0].device, false);
	assert_int_equal(ibv_poll_cq(side[0].cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	side_timeout = SIDE_PATIENT;
	side_close(&side[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleeper_moves_packets),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(sleeper_does_not_come_back),
		cmocka_unit_test(sleeper_waits_for_an_event),
		cmocka_unit_test(timers_run_while_he_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
