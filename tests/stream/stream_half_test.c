/* SPDX-License-Identifier: MIT */
/* Streams: halves with owners of their own. */
#include <sennit/stream_half.h>

#include "lib/stream_kit.h"

#define BYTES 200000u

/* One of the two owners of a stream's halves. */
struct owner {
	struct snt_stream_half *half;
	void (*work)(struct owner *owner);
	uint64_t done;	 /* bytes */
	unsigned events; /* all that it was told */
	unsigned calls;
	bool goes;		   /* destroys its half when it has done all */
	struct owner *takes_along; /* whose half it destroys as well */
};

static struct snt_stream *stream_of(const struct owner *owner)
{
	return snt_stream_half_stream(owner->half);
}

static void drop_half(struct owner *owner)
{
	assert_success(snt_stream_half_destroy(owner->half));
	owner->half = NULL;
}

static void ready(void *arg, struct snt_stream_half *half, unsigned events)
{
	struct owner *owner = arg;

	assert_ptr_equal(half, owner->half);
	owner->events |= events;
	owner->calls++;
	owner->work(owner);
	if (owner->done < BYTES || !owner->goes)
		return;
	drop_half(owner);
	if (owner->takes_along && owner->takes_along->half)
		drop_half(owner->takes_along);
}

static unsigned char byte_at(uint64_t position)
{
	return position * 13 + (position >> 8);
}

static void read_all(struct owner *owner)
{
	unsigned char bytes[3000];
	ssize_t got;

	while ((got = snt_stream_read(stream_of(owner), bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < got; i++)
			assert_int_equal(bytes[i], byte_at(owner->done++));
}

static void write_all(struct owner *owner)
{
	unsigned char bytes[3000];

	while (owner->done < BYTES) {
		uint64_t length = BYTES - owner->done;
		ssize_t ret;

		if (length > sizeof(bytes))
			length = sizeof(bytes);
		for (uint64_t i = 0; i < length; i++)
			bytes[i] = byte_at(owner->done + i);
		ret = snt_stream_write(stream_of(owner), bytes, length);
		if (ret < 0)
			return;
		owner->done += (uint64_t)ret;
	}
}

/* Both ends, split: [end][0] reads, [end][1] writes. */
static struct owner owners[2][2];

static void split_end(unsigned end)
{
	struct snt_stream_half_opts opts[2];

	for (unsigned i = 0; i < 2; i++)
		opts[i] = (struct snt_stream_half_opts){ .size = sizeof(opts[i]),
							 .ready = ready,
							 .arg = &owners[end][i] };
	owners[end][0].work = read_all;
	owners[end][1].work = write_all;
	assert_success(snt_stream_split(kit_end(end), &opts[0], &opts[1],
					&owners[end][0].half, &owners[end][1].half));
	assert_ptr_equal(stream_of(&owners[end][0]), kit_end(end));
	assert_ptr_equal(stream_of(&owners[end][1]), kit_end(end));
}

static void open_split(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 16384, 16384 }, .send_size = 16384 };

	memset(owners, 0, sizeof(owners));
	kit_open(way, &opts);
	for (unsigned end = 0; end < 2; end++)
		split_end(end);
}

/* What is left of the halves; the kit destroys no stream that was split. */
static void close_split(void)
{
	for (unsigned i = 0; i < 4; i++)
		if (owners[i / 2][i % 2].half)
			drop_half(&owners[i / 2][i % 2]);
	world.end[0].stream = world.end[1].stream = NULL;
	kit_close();
}

static void work_all(void)
{
	for (unsigned i = 0; i < 4; i++)
		owners[i / 2][i % 2].work(&owners[i / 2][i % 2]);
}

static void shut_down(unsigned end)
{
	assert_success(snt_stream_shutdown(stream_of(&owners[end][1])));
}

static void each_half_has_its_events(void **state)
{
	(void)state;
	open_split(&kit_ways[0]);
	work_all();
	kit_until(owners[0][0].done == BYTES && owners[1][0].done == BYTES);
	for (unsigned end = 0; end < 2; end++)
		shut_down(end);
	kit_until(owners[0][0].events & owners[0][1].events & owners[1][0].events &
		  owners[1][1].events & SNT_STREAM_OVER);
	for (unsigned end = 0; end < 2; end++) {
		assert_int_equal(kit_info(end).status, 0);
		assert_true(owners[end][0].events & SNT_STREAM_READABLE);
		assert_true(owners[end][1].events & SNT_STREAM_WRITABLE);
		assert_false(owners[end][0].events &
			     (SNT_STREAM_WRITABLE | SNT_STREAM_FLUSHED));
		assert_false(owners[end][1].events & SNT_STREAM_READABLE);
	}
	close_split();
}

/* The writer goes when it has written all; its peer reads all, and the end, while the reader
 * goes on. */
static void a_writer_goes_first(void **state)
{
	(void)state;
	for (unsigned way = 0; way < KIT_WAYS; way++) {
		open_split(&kit_ways[way]);
		owners[0][1].goes = true;
		work_all();
		kit_until(!owners[0][1].half);
		kit_until(owners[1][0].done == BYTES && owners[0][0].done == BYTES);
		kit_until(kit_info(1).peer_shut_down);
		shut_down(1);
		kit_until(owners[0][0].events & owners[1][0].events & SNT_STREAM_OVER);
		assert_int_equal(kit_info(0).status, 0);
		assert_int_equal(kit_info(1).status, 0);
		close_split();
	}
}

/* What comes for a reader that has gone is dropped: the peer's writer is not held up, though
 * it writes many times what the ring holds. */
static void a_reader_goes_first(void **state)
{
	(void)state;
	for (unsigned way = 0; way < KIT_WAYS; way++) {
		open_split(&kit_ways[way]);
		drop_half(&owners[0][0]);
		owners[0][1].work(&owners[0][1]);
		owners[1][0].work(&owners[1][0]);
		owners[1][1].work(&owners[1][1]);
		kit_until(owners[1][1].done == BYTES && owners[1][0].done == BYTES);
		for (unsigned end = 0; end < 2; end++)
			shut_down(end);
		kit_until(owners[0][1].events & owners[1][1].events & SNT_STREAM_OVER);
		assert_int_equal(kit_info(0).status, 0);
		close_split();
	}
}

/* The second half ends the stream; both go in a function of one of them. */
static void both_go_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_split(&kit_ways[0]);
		owners[0][i].goes = true;
		owners[0][i].takes_along = &owners[0][!i];
		work_all();
		kit_until(!owners[0][0].half && !owners[0][1].half);
		kit_until(owners[1][0].events & SNT_STREAM_OVER);
		close_split();
	}
}

static void splitting_is_checked(void **state)
{
	struct snt_stream_half *half[2] = { NULL, NULL };
	struct snt_stream_half_opts opts = { .size = 3 };

	(void)state;
	memset(owners, 0, sizeof(owners));
	kit_open(&kit_ways[0], NULL);
	assert_error(snt_stream_split(kit_end(0), &opts, NULL, &half[0], &half[1]),
		     EINVAL, "snt_stream_half_opts");
	assert_null(half[0]);
	assert_success(snt_stream_split(kit_end(0), NULL, NULL, &half[0], &half[1]));
	assert_error(snt_stream_split(kit_end(0), NULL, NULL, &half[0], &half[1]),
		     EALREADY, "split already");
	assert_success(snt_stream_half_destroy(NULL));
	assert_success(snt_stream_half_destroy(half[0]));
	assert_success(snt_stream_half_destroy(half[1]));
	world.end[0].stream = NULL;
	kit_until(kit_is_over(1));
	kit_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_half_has_its_events),
		cmocka_unit_test(a_writer_goes_first),
		cmocka_unit_test(a_reader_goes_first),
		cmocka_unit_test(both_go_at_once),
		cmocka_unit_test(splitting_is_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
