/* SPDX-License-Identifier: MIT */
/* Ends that get no processor for longer than the detection time, while their peer lives. */
#include "lib/conn_kit.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "conn/conn.h"
#include "dev/soft/udp/device.h"

#define DETECT_NS UINT64_C(400000000)

/*
 * Threads of devices that are not scheduled: they stay in their sleep, without the lock,
 * whatever happens there.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const struct snt__udp_device *starved[2];

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

static bool is_starved(int wake_fd)
{
	for (unsigned i = 0; i < 2; i++)
		if (starved[i] && starved[i]->wake_fd == wake_fd)
			return true;
	return false;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	int ret = __real_ppoll(fds, count, timeout, mask);

	pthread_mutex_lock(&lock);
	while (is_starved(fds[0].fd))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return ret;
}

static void starve(unsigned number, const struct snt__udp_device *device)
{
	pthread_mutex_lock(&lock);
	starved[number] = device;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void starve_end(struct kit *kit, unsigned number)
{
	struct snt_ctx *ctx = kit->end[number].ctx;

	starve(number, snt__udp_device_of(snt_device_context(snt_ctx_device(ctx, 0))));
}

static void feed_all(void)
{
	for (unsigned i = 0; i < 2; i++)
		starve(i, NULL);
}

static enum snt_carrier carrier_of(void **state)
{
	return *(enum snt_carrier *)*state;
}

static void open_pair(struct kit *kit, enum snt_carrier carrier)
{
	kit_open(kit, carrier, 1);
	kit->to.detect_ns = kit->at.detect_ns = DETECT_NS;
	kit_listen(kit);
	kit_connect(kit);
	kit_until(kit, kit_both_up);
}

static void expect_alive(struct kit *kit)
{
	for (unsigned i = 0; i < 2; i++)
		if (kit->end[i].events[SNT_CONN_OVER])
			fail_msg("end %u: %s", i, kit_text(kit, i));
}

static void turn_for(struct kit *kit, uint64_t time_ns)
{
	uint64_t begin = snt__udp_now();

	while (snt__udp_now() - begin < time_ns)
		kit_turn(kit);
}

/* What the peer asks and answers stays in sockets until another thread takes it. Neither device
 * has a clock of its own meanwhile, so that all goes at the pace of this loop. */
static void answers_that_wait_in_the_socket_count(void **state)
{
	struct kit kit;

	open_pair(&kit, carrier_of(state));
	for (unsigned i = 0; i < 2; i++)
		starve_end(&kit, i);
	turn_for(&kit, 3 * DETECT_NS);
	feed_all();
	expect_alive(&kit);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* As if their machine had stood still: the peer had no more time to answer than this end had
 * to look. */
static void a_pause_of_both_ends_is_not_silence(void **state)
{
	const struct timespec pause = { .tv_nsec = 2 * DETECT_NS };
	struct snt_conn *conn;
	struct kit kit;
	uint64_t ping_at;

	open_pair(&kit, carrier_of(state));
	for (unsigned i = 0; i < 2; i++)
		starve_end(&kit, i);
	conn = kit.end[0].conn;
	ping_at = conn->hs.ping_at;
	while (conn->hs.ping_at == ping_at)
		kit_turn(&kit);
	nanosleep(&pause, NULL);
	kit_turn(&kit);
	feed_all();
	turn_for(&kit, 2 * DETECT_NS);
	expect_alive(&kit);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* The trials of pairs as well: time is up for them before anything was taken. */
static void trials_that_wait_in_the_socket_count(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.to.setup_ns = UINT64_C(4000000000);
	kit_listen(&kit);
	starve_end(&kit, 0);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	feed_all();
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* For longer than lanes would try, but not for longer than trials may take. */
static void a_peer_that_is_late_for_the_trials(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.to.detect_ns = kit.at.detect_ns = UINT64_C(1000000000);
	kit_listen(&kit);
	starve_end(&kit, 1);
	kit_connect(&kit);
	turn_for(&kit, UINT64_C(800000000));
	feed_all();
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
	const struct CMUnitTest tests[] = {
		{ "answers_that_wait_in_the_socket_count (TCP)",
		  answers_that_wait_in_the_socket_count, NULL, NULL, &tcp },
		{ "answers_that_wait_in_the_socket_count (CM)",
		  answers_that_wait_in_the_socket_count, NULL, NULL, &cm },
		{ "a_pause_of_both_ends_is_not_silence (TCP)",
		  a_pause_of_both_ends_is_not_silence, NULL, NULL, &tcp },
		{ "a_pause_of_both_ends_is_not_silence (CM)",
		  a_pause_of_both_ends_is_not_silence, NULL, NULL, &cm },
		/* By CM the connection's own messages would wait there, too. */
		{ "trials_that_wait_in_the_socket_count (TCP)",
		  trials_that_wait_in_the_socket_count, NULL, NULL, &tcp },
		{ "a_peer_that_is_late_for_the_trials (TCP)",
		  a_peer_that_is_late_for_the_trials, NULL, NULL, &tcp },
	};

	/* Through memory there would be no socket. */
	setenv("SENNIT_SOFT_SHM", "off", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
