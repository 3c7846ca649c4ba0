/* SPDX-License-Identifier: MIT */
/* Many streams at once, and one after the other. */
#include "lib/stream_kit.h"

#define MANY   100
#define ROUNDS 20
#define SIZE   64

/*
 * Many clients of one listener
 */

static struct snt_stream *accepted[MANY];
static unsigned accepted_count;

static void accept_one(void *arg, struct snt_stream_listener *listener,
		       struct snt_stream *stream)
{
	(void)arg;
	(void)listener;
	accepted[accepted_count++] = stream;
}

/* Each one's bytes land with it, and one that is dropped does not concern the
 * others. */
static void multi_connection(void **state)
{
	enum {
		COUNT = 6
	};
	struct snt_stream *client[COUNT];
	char text[16], got[16];

	(void)state;
	kit_open_world(NULL);
	accepted_count = 0;
	world.listen.accepted = accept_one;
	assert_null(world_listen(&world));
	for (unsigned i = 0; i < COUNT; i++) {
		assert_success(snt_stream_connect(world.end[0].loop, &world.to,
						  &world.end[0].opts, &client[i]));
		snprintf(text, sizeof(text), "client %u", i);
		assert_int_equal(snt_stream_write(client[i], text, sizeof(text)),
				 sizeof(text));
	}
	kit_until(accepted_count == COUNT);
	snt_stream_destroy(client[COUNT - 1]);
	for (unsigned i = 0; i < COUNT; i++) {
		kit_until(snt__stream_state(accepted[i]) & SNT_STREAM_READABLE);
		if (snt_stream_read(accepted[i], got, sizeof(got)) == sizeof(got))
			snt_stream_write(accepted[i], got, sizeof(got));
	}
	for (unsigned i = 0; i < COUNT - 1; i++) {
		kit_until(snt__stream_state(client[i]) & SNT_STREAM_READABLE);
		assert_int_equal(snt_stream_read(client[i], got, sizeof(got)), 16);
		snprintf(text, sizeof(text), "client %u", i);
		assert_string_equal(got, text);
		snt_stream_destroy(client[i]);
	}
	for (unsigned i = 0; i < COUNT; i++)
		snt_stream_destroy(accepted[i]);
	kit_close();
}

static void reconnect_churn(void **state)
{
	(void)state;
	kit_open_world(NULL);
	for (unsigned i = 0; i < 24; i++) {
		world.end[1].stream = NULL;
		assert_null(world_connected(&world));
		kit_transfer(0, 0, 5000, 500, 5000);
		kit_transfer(1, 0, 5000, 500, 5000);
		for (unsigned j = 0; j < 2; j++) {
			if (i % 2)
				assert_success(snt_stream_shutdown(kit_end(j)));
			else
				snt_stream_destroy(kit_end(j));
		}
		if (i % 2) {
			kit_until(kit_is_over(0) && kit_is_over(1));
			for (unsigned j = 0; j < 2; j++)
				assert_success(snt_stream_close(kit_end(j), 0));
		}
		world.end[0].stream = world.end[1].stream = NULL;
	}
	kit_close();
}

/* Streams that are not waited for, but polled all the time. */
static void spinning_echo(void **state)
{
	char text[SIZE] = "round and round", got[SIZE];

	(void)state;
	if (!kit_real())
		return;
	kit_open(&kit_ways[0], NULL);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(snt_stream_write(kit_end(0), text, SIZE), SIZE);
		while (snt_stream_read(kit_end(1), got, SIZE) == -EAGAIN)
			snt_loop_poll(world.end[1].loop, 0);
		assert_int_equal(snt_stream_write(kit_end(1), got, SIZE), SIZE);
		while (snt_stream_read(kit_end(0), got, SIZE) == -EAGAIN)
			snt_loop_poll(world.end[0].loop, 0);
		assert_memory_equal(text, got, SIZE);
	}
	kit_finish();
}

/*
 * One slow, 99 fast
 */

struct pair {
	struct snt_qp *qp[2];
	struct snt_stream *stream[2];
	uint64_t asked_at;
	unsigned rounds;
};

static struct pair pairs[MANY];
static uint64_t times[MANY * ROUNDS];
static unsigned time_count;

static void answer(void *arg, struct snt_stream *stream, unsigned events)
{
	char bytes[SIZE];
	ssize_t ret;

	(void)arg;
	(void)events;
	while ((ret = snt_stream_read(stream, bytes, SIZE)) > 0)
		assert_int_equal(snt_stream_write(stream, bytes, (size_t)ret), ret);
}

static void ask(struct pair *pair)
{
	char bytes[SIZE] = "?";

	pair->asked_at = world_now(&world);
	pair->rounds++;
	assert_int_equal(snt_stream_write(pair->stream[0], bytes, SIZE), SIZE);
}

static void answered(void *arg, struct snt_stream *stream, unsigned events)
{
	struct pair *pair = arg;
	char bytes[SIZE];
	ssize_t ret;

	(void)events;
	while ((ret = snt_stream_read(stream, bytes, SIZE)) > 0) {
		assert_int_equal(ret, SIZE);
		times[time_count++] = world_now(&world) - pair->asked_at;
		if (pair->rounds < ROUNDS)
			ask(pair);
	}
}

static void make_pair(struct pair *pair, bool slow)
{
	struct snt_stream_opts opts = { .size = sizeof(opts),
					.recv_size = 16384,
					.send_size = 16384 };
	struct snt_qp_opts qp = { .size = sizeof(qp),
				  .lane_depth = 16,
				  .recv_depth = 40 };
	uint8_t offer[2][SNT_STREAM_OFFER_MAX];
	struct snt_card card[2];
	ssize_t length[2];

	memset(pair, 0, sizeof(*pair));
	for (unsigned i = 0; i < 2; i++) {
		qp.cq = world.end[i].cq;
		opts.ready = slow ? NULL : i ? answer : answered;
		opts.arg = pair;
		assert_success(snt_qp_create(world.end[i].ctx, &qp, &pair->qp[i]));
		assert_success(snt_stream_create(pair->qp[i], &opts, &pair->stream[i]));
		assert_success(snt_qp_card(pair->qp[i], &card[i]));
		length[i] =
			snt_stream_offer(pair->stream[i], offer[i], sizeof(offer[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(pair->qp[i], &card[!i]));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_stream_start(pair->stream[i], offer[!i],
						(size_t)length[!i]));
}

static int by_value(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* The slow one's peer reads a little now and then, and its writer has always more. */
static void be_slow(struct pair *pair, unsigned turn)
{
	static uint8_t bytes[4096];

	while (snt_stream_write(pair->stream[0], bytes, sizeof(bytes)) > 0)
		;
	if (turn % 500 == 0)
		snt_stream_read(pair->stream[1], bytes, 64);
}

static uint64_t measure(bool with_slow)
{
	struct snt__sim_link_opts cable = { .delay_ns = 2000, .mbps = 100000 };
	struct snt__sim_device_opts device = { .out = &cable, .in = &cable };

	world_cq_depth = 65536;
	assert_null(world_open(&world, false, 1, NULL));
	for (unsigned i = 0; i < 2; i++)
		assert_null(world_add_device(&world, i, &device));
	assert_null(world_ready(&world));
	time_count = 0;
	for (unsigned i = 0; i < MANY; i++)
		make_pair(&pairs[i], i == 0);
	for (unsigned turn = 0; turn < 5000 && with_slow; turn++) {
		be_slow(&pairs[0], turn);
		world_step(&world, world_now(&world) + WORLD_MS);
	}
	for (unsigned i = 1; i < MANY; i++)
		ask(&pairs[i]);
	for (unsigned turn = 0; time_count < (MANY - 1) * ROUNDS; turn++) {
		if (with_slow)
			be_slow(&pairs[0], turn);
		assert_true(world_step(&world, world_now(&world) + 1000 * WORLD_MS));
	}
	assert_int_equal(world_rnr(&world), 0);
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned j = 0; j < 2; j++)
			snt_stream_destroy(pairs[i].stream[j]);
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned j = 0; j < 2; j++)
			kit_until(!snt_qp_destroy(pairs[i].qp[j]));
	kit_close();
	qsort(times, time_count, sizeof(times[0]), by_value);
	return times[time_count * 99 / 100];
}

static void one_slow_many_fast(void **state)
{
	uint64_t alone, with;

	(void)state;
	if (kit_real())
		return;
	alone = measure(false);
	with = measure(true);
	print_message("# p99 of the fast: %llu ns without, %llu ns with a slow one\n",
		      (unsigned long long)alone, (unsigned long long)with);
	assert_true(with <= alone + alone / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(multi_connection),
		cmocka_unit_test(reconnect_churn),
		cmocka_unit_test(spinning_echo),
		cmocka_unit_test(one_slow_many_fast),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
