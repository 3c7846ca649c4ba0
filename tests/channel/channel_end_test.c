/* SPDX-License-Identifier: MIT */
/* How channels end, and what becomes of offers and fetches then. */
#include <sys/wait.h>

#include "kit.h"

static void until_over(unsigned end, int status)
{
	kit_until(kit_has(end, SNT_CHANNEL_OVER));
	assert_int_equal(kit_channel_info(end).status, status);
}

/* All that end 0 has written is in the ring of end 1, of which only the greeting may have
 * been read. */
static void until_all_arrived(void)
{
	kit_until(kit_info(0).bytes_written ==
		  kit_info(1).readable + kit_info(1).bytes_read);
}

/* The peer learns of the end behind the last message, and only when it has fetched. */
static void shutdown_waits_on(const struct kit_way *way)
{
	struct kit_offer offer;
	struct kit_fetch fetch;
	char buffer[8];

	kit_channels_open(way, NULL);
	assert_success(kit_offer(0, &offer, 1, 0, 100000));
	assert_success(kit_send(0, 2, 8));
	assert_success(snt_channel_shutdown(kit_channel[0]));
	assert_int_equal(snt_channel_shutdown(kit_channel[0]), -EALREADY);
	assert_int_equal(kit_send(0, 3, 8), -EPIPE);
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -EPIPE);
	assert_int_equal(snt_channel_flush(kit_channel[0]), -EAGAIN);
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_success(kit_fetch(1, &fetch, 0, 100000));
	kit_expect(1, 2, 8);
	assert_int_equal(snt_channel_recv(kit_channel[1], buffer, 8), -EAGAIN);
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_recv(kit_channel[1], buffer, 8), -ESHUTDOWN);
	assert_int_equal(fetch.done, 1);
	assert_int_equal(offer.released, 1);
	assert_success(kit_send(1, 4, 100));
	kit_expect(0, 4, 100);
	assert_success(snt_channel_flush(kit_channel[0]));
	kit_channels_finish();
}
KIT_EACH_WAY(shutdown_waits)

static void close_takes_two_on(const struct kit_way *way)
{
	kit_channels_open(way, NULL);
	assert_success(kit_send(0, 1, 100));
	assert_int_equal(snt_channel_close(kit_channel[0], 0), -ETIME);
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_close(kit_channel[1], 0), -ENODATA);
	until_over(0, 0);
	until_over(1, 0);
	assert_int_equal(snt_channel_close(kit_channel[1], 0), -ENODATA);
	kit_expect(1, 1, 100);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_channel_close(kit_channel[i], 0));
		kit_channel[i] = NULL;
		kit_end(i) = NULL;
	}
	kit_channels_close();
}
KIT_EACH_WAY(close_takes_two)

/* The peer does not end before its offer is fetched: closing tells so, and does not wait
 * for that. */
static void closed_before_fetching_on(const struct kit_way *way)
{
	struct kit_offer offer;

	kit_channels_open(way, NULL);
	assert_success(kit_offer(0, &offer, 1, 0, 100));
	assert_success(snt_channel_shutdown(kit_channel[0]));
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_close(kit_channel[1], -1), -ENODATA);
	assert_success(snt_channel_drop(kit_channel[1]));
	until_over(0, 0);
	until_over(1, 0);
	assert_success(snt_channel_close(kit_channel[1], 0));
	kit_channel[1] = NULL;
	kit_end(1) = NULL;
	kit_channels_close();
}
KIT_EACH_WAY(closed_before_fetching)

/* In the middle of a fetch: both ends get their memory back, with the reason. */
static void aborted_fetch_on(const struct kit_way *way)
{
	struct kit_offer offer;
	struct kit_fetch fetch;

	for (unsigned by = 0; by < 2; by++) {
		kit_channels_open(way, NULL);
		assert_success(kit_offer(0, &offer, 1, 0, KIT_MEMORY));
		kit_until(kit_has(1, SNT_CHANNEL_READABLE));
		assert_success(kit_fetch(1, &fetch, 0, KIT_MEMORY));
		assert_success(snt_channel_abort(kit_channel[by], "enough"));
		until_over(by, -ECANCELED);
		until_over(!by, -ECONNABORTED);
		kit_until(offer.released && fetch.done);
		assert_int_equal(offer.released + fetch.done, 2);
		/* Real devices may have been faster. */
		if (!kit_real()) {
			assert_true(offer.offer.result < 0);
			assert_true(fetch.fetch.result < 0);
		}
		kit_channels_close();
	}
}
KIT_EACH_WAY(aborted_fetch)

/* Either end is destroyed with offers and fetches in all states. */
static void destroyed_with_offers_on(const struct kit_way *way)
{
	enum {
		COUNT = 6
	};
	struct kit_offer offer[COUNT];
	struct kit_fetch fetch[COUNT / 2];

	for (unsigned by = 0; by < 2; by++) {
		kit_channels_open(way, NULL);
		for (unsigned i = 0; i < COUNT; i++)
			assert_success(kit_offer(0, &offer[i], i, i * 100000, 100000));
		for (unsigned i = 0; i < COUNT / 2; i++) {
			kit_until(kit_has(1, SNT_CHANNEL_READABLE));
			assert_success(kit_fetch(1, &fetch[i], i * 100000, 100000));
		}
		kit_channel_destroy(by);
		kit_until(kit_has(!by, SNT_CHANNEL_OVER));
		kit_until(offer[COUNT - 1].released && fetch[COUNT / 2 - 1].done);
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(offer[i].released, 1);
		for (unsigned i = 0; i < COUNT / 2; i++)
			assert_int_equal(fetch[i].done, 1);
		kit_channels_close();
	}
}
KIT_EACH_WAY(destroyed_with_offers)

/* Messages that arrived before the failure are received first, and offers are not
 * fetched any more, but can be dropped. */
static void error_after_messages_on(const struct kit_way *way)
{
	struct kit_offer offer;
	struct kit_fetch fetch;
	char buffer[8];
	ssize_t ret;

	kit_channels_open(way, NULL);
	assert_success(kit_send(0, 1, 8));
	assert_success(kit_offer(0, &offer, 2, 0, 1000));
	assert_success(kit_send(0, 3, 8));
	until_all_arrived();
	assert_success(snt_channel_abort(kit_channel[0], NULL));
	kit_until(kit_has(1, SNT_CHANNEL_OVER));
	kit_expect(1, 1, 8);
	assert_int_equal(kit_fetch(1, &fetch, 0, 1000), -ECONNABORTED);
	assert_success(snt_channel_drop(kit_channel[1]));
	kit_expect(1, 3, 8);
	ret = snt_channel_recv(kit_channel[1], buffer, 8);
	assert_int_equal(ret, -ECONNABORTED);
	kit_until(offer.released);
	assert_true(offer.offer.result < 0);
	kit_channels_close();
}
KIT_EACH_WAY(error_after_messages)

static void destroy_inside(struct snt_fetch *fetch)
{
	struct kit_fetch *at = fetch->arg;

	at->done++;
	if (kit_channel[1])
		kit_channel_destroy(1);
}

/* Destroyed in the callback of its first fetch, while others are pending. */
static void destroyed_inside_on(const struct kit_way *way)
{
	struct kit_offer offer[3];
	struct kit_fetch fetch[3];

	kit_channels_open(way, NULL);
	for (unsigned i = 0; i < 3; i++)
		assert_success(kit_offer(0, &offer[i], i, i * 300000, 300000));
	until_all_arrived();
	for (unsigned i = 0; i < 3; i++) {
		assert_success(kit_fetch(1, &fetch[i], i * 300000, 300000));
		fetch[i].fetch.done = destroy_inside;
	}
	kit_until(fetch[2].done);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fetch[i].done, 1);
	kit_until(kit_has(0, SNT_CHANNEL_OVER) && offer[2].released);
	kit_channels_close();
}
KIT_EACH_WAY(destroyed_inside)

/* The peer's cable is cut in the middle of a fetch, and it is never heard of again. */
static void peer_vanishes(void **state)
{
	struct kit_offer offer;
	struct kit_fetch fetch;

	(void)state;
	if (kit_real())
		return; /* cables are simulated */
	kit_channels_open(&kit_ways[0], NULL);
	assert_success(kit_offer(0, &offer, 1, 0, KIT_MEMORY));
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_success(kit_fetch(1, &fetch, 0, KIT_MEMORY));
	snt__sim_device_cut(world.end[0].device[0], true);
	kit_until(kit_has(1, SNT_CHANNEL_OVER) && fetch.done);
	assert_true(fetch.fetch.result < 0);
	assert_true(kit_channel_info(1).status < 0);
	kit_until(kit_has(0, SNT_CHANNEL_OVER) && offer.released);
	assert_true(offer.offer.result < 0);
	kit_channels_close();
}

static void waits_time_out_on(const struct kit_way *way)
{
	const int64_t short_ns = kit_real() ? 1000000 : 0;
	struct snt_channel *channel;
	char bytes[8] = { 0 };

	kit_channels_open(way, NULL);
	channel = kit_channel[0];
	kit_until(kit_has(0, SNT_CHANNEL_OPEN));
	assert_int_equal(snt_channel_recv_wait(channel, bytes, 8, short_ns), -ETIME);
	assert_int_equal(snt_channel_wait(channel, SNT_CHANNEL_READABLE, short_ns),
			 -ETIME);
	assert_int_equal(snt_channel_wait(channel, 0, 0), -ETIME);
	assert_int_equal(snt_channel_wait(channel,
					  SNT_CHANNEL_OPEN | SNT_CHANNEL_FETCHED, 0),
			 SNT_CHANNEL_OPEN | SNT_CHANNEL_FETCHED);
	while (!snt_channel_send(channel, bytes, 8))
		;
	assert_int_equal(snt_channel_send_wait(channel, bytes,
					       kit_channel_info(0).send_max, 0),
			 -ETIME);
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_recv_wait(kit_channel[1], bytes, 8, 0), 8);
	kit_channels_close();
}
KIT_EACH_WAY(waits_time_out)

/* At every step of connecting and of the first messages. */
static void destroyed_anywhere(void **state)
{
	bool received = false;

	(void)state;
	for (unsigned steps = 0; steps < 400 && !received;
	     steps += kit_real() ? 23 : 1) {
		struct snt_channel *channel[2] = { NULL, NULL };

		kit_open_world(NULL);
		assert_null(world_connect(&world));
		assert_success(snt_channel_create(kit_end(0), NULL, &channel[0]));
		for (unsigned i = 0; i < steps; i++) {
			world_step(&world, world_now(&world) + WORLD_MS);
			snt_channel_send(channel[0], "x", 1);
			if (kit_end(1) && !channel[1])
				assert_success(snt_channel_create(kit_end(1), NULL,
								  &channel[1]));
		}
		received = channel[1] && !snt__chan_look(channel[1]);
		assert_success(snt_channel_destroy(channel[steps % 2]));
		assert_success(snt_channel_destroy(channel[!(steps % 2)]));
		kit_end(0) = NULL;
		if (channel[1])
			kit_end(1) = NULL;
		kit_close_after_lie();
	}
	assert_true(received || kit_real());
}

static int result_inside;

static void wait_inside(void *arg, struct snt_channel *channel, unsigned events)
{
	char bytes[8];

	(void)arg;
	(void)events;
	snt_channel_recv(channel, bytes, 8);
	result_inside = (int)snt_channel_recv_wait(channel, bytes, 8, -1);
}

static void waits_inside_on(const struct kit_way *way)
{
	result_inside = 0;
	kit_channel_opts[1].ready = wait_inside;
	kit_channels_open(way, NULL);
	assert_success(kit_send(0, 1, 8));
	kit_until(result_inside);
	assert_int_equal(result_inside, -EBUSY);
	kit_channels_finish();
}
KIT_EACH_WAY(waits_inside)

static int use_channels_in_a_child(void)
{
	struct snt_channel *channel = kit_channel[0];
	struct snt_channel_message message;
	struct kit_offer offer;
	struct kit_fetch fetch;
	char bytes[8];

	return snt_channel_send(channel, bytes, 8) != -ECHILD ||
	       kit_offer(0, &offer, 0, 0, 8) != -ECHILD ||
	       snt_channel_peek(kit_channel[1], &message) != -ECHILD ||
	       snt_channel_recv(kit_channel[1], bytes, 8) != -ECHILD ||
	       snt_channel_drop(kit_channel[1]) != -ECHILD ||
	       kit_fetch(1, &fetch, 0, 8) != -ECHILD ||
	       snt_channel_flush(channel) != -ECHILD ||
	       snt_channel_shutdown(channel) != -ECHILD ||
	       snt_channel_abort(channel, NULL) != -ECHILD ||
	       snt_channel_close(channel, 0) != -ECHILD ||
	       snt_channel_destroy(channel) != -ECHILD ||
	       snt_channel_wait(channel, SNT_CHANNEL_READABLE, 0) != -ECHILD;
}

static void in_a_child_on(const struct kit_way *way)
{
	int status;
	pid_t child;

	kit_channels_open(way, NULL);
	assert_success(kit_send(0, 1, 100));
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	child = fork();
	if (!child)
		_exit(use_channels_in_a_child());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kit_expect(1, 1, 100);
	kit_channels_finish();
}
KIT_EACH_WAY(in_a_child)

static void used_streams(void **state)
{
	struct snt_channel *channel;

	(void)state;
	kit_open(&kit_ways[0], NULL);
	kit_write_some(0, 0, 10);
	assert_int_equal(snt_channel_create(kit_end(0), NULL, &channel), -EINVAL);
	kit_until(kit_info(1).readable == 10);
	kit_read_some(1, 0, 10);
	assert_int_equal(snt_channel_create(kit_end(1), NULL, &channel), -EINVAL);
	kit_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shutdown_waits),
		cmocka_unit_test(close_takes_two),
		cmocka_unit_test(closed_before_fetching),
		cmocka_unit_test(aborted_fetch),
		cmocka_unit_test(destroyed_with_offers),
		cmocka_unit_test(error_after_messages),
		cmocka_unit_test(destroyed_inside),
		cmocka_unit_test(peer_vanishes),
		cmocka_unit_test(waits_time_out),
		cmocka_unit_test(destroyed_anywhere),
		cmocka_unit_test(waits_inside),
		cmocka_unit_test(in_a_child),
		cmocka_unit_test(used_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
