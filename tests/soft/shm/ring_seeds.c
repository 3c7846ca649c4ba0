/* SPDX-License-Identifier: MIT */
/*
 * Rings of packets, by random operations. What is put comes out, in order and unharmed,
 * also around the end; and whatever is written over the memory, neither side reads or
 * writes outside of it, or believes what cannot be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/soft/shm/ring.h"
#include "lib/seeds.h"

#define STEPS	   400
#define QUEUE_MAX  65536
#define RECORD_MAX (SNT__SHM_PAYLOAD_MAX + 2 * SNT__SHM_LINE)

/* What is in the ring, by what it was made of. */
struct expected {
	uint32_t length;
	uint8_t seed;
	uint8_t header_length;
	bool by_reference;
};

struct test {
	uint64_t state;
	struct snt__shm_area *area;
	struct snt__shm_producer producer;
	struct snt__shm_consumer consumer;
	struct expected queue[QUEUE_MAX];
	uint32_t head, tail;
	uint8_t bytes[SNT__SHM_PAYLOAD_MAX];
};

static uint32_t choose_length(struct test *test)
{
	switch (random_below(&test->state, 4)) {
	case 0:
		return random_below(&test->state, 65);
	case 1:
		return SNT__SHM_PAYLOAD_MAX - random_below(&test->state, 3);
	default:
		return random_below(&test->state, SNT__SHM_PAYLOAD_MAX + 1);
	}
}

/* In up to three pieces. */
static void put(struct test *test)
{
	struct expected *expected = &test->queue[test->tail % QUEUE_MAX];
	struct snt__soft_packet packet = { .payload_length = choose_length(test) };
	struct snt__shm_piece pieces[3];
	uint32_t begin = 0;

	expected->length = packet.payload_length;
	expected->seed = (uint8_t)random_next(&test->state);
	expected->header_length = 12 + random_below(&test->state, 29);
	expected->by_reference =
		packet.payload_length && !random_below(&test->state, 4);
	packet.header_length = expected->header_length;
	memset(packet.header, expected->seed, packet.header_length);
	for (uint32_t i = 0; i < packet.payload_length; i++)
		test->bytes[i] = (uint8_t)(i * 3 + expected->seed);
	while (begin < packet.payload_length) {
		uint32_t part = packet.payload_length - begin;

		if (packet.payload_count < 2 && part > 1)
			part = 1 + random_below(&test->state, part);
		pieces[packet.payload_count] =
			(struct snt__shm_piece){ .addr = begin, .length = part };
		packet.payload[packet.payload_count].iov_base = test->bytes + begin;
		packet.payload[packet.payload_count++].iov_len = part;
		begin += part;
	}
	snt__shm_put(&test->producer, &packet, expected->by_reference ? pieces : NULL);
	test->tail++;
}

static bool right(const struct expected *expected, const struct snt__shm_record *record)
{
	if (record->header_length != expected->header_length ||
	    record->payload_length != expected->length ||
	    !!record->piece_count != expected->by_reference)
		return false;
	for (unsigned i = 0; i < expected->header_length; i++)
		if (record->header[i] != expected->seed)
			return false;
	for (uint32_t i = 0; !expected->by_reference && i < expected->length; i++)
		if (record->payload[i] != (uint8_t)(i * 3 + expected->seed))
			return false;
	return true;
}

/* Returns 0, or 1 if something else came than what is expected. */
static int take(struct test *test)
{
	struct snt__shm_record record;
	int got = snt__shm_take(&test->consumer, &record);

	if (got < 0)
		return 1;
	if (!got)
		return test->consumer.tail != test->producer.told;
	if (test->head == test->tail ||
	    !right(&test->queue[test->head % QUEUE_MAX], &record))
		return 1;
	test->head++;
	return 0;
}

static bool has_room(struct test *test)
{
	return snt__shm_room(&test->producer, 2 * RECORD_MAX) >= 2 * RECORD_MAX;
}

static int play(struct test *test)
{
	for (unsigned i = 0; i < STEPS; i++) {
		switch (random_below(&test->state, 5)) {
		case 0:
		case 1:
			if (has_room(test))
				put(test);
			break;
		case 2:
			snt__shm_tell(&test->producer);
			break;
		case 3:
			if (take(test))
				return 1;
			break;
		default:
			snt__shm_release(&test->consumer);
		}
	}
	snt__shm_tell(&test->producer);
	while (test->head != test->tail)
		if (take(test))
			return 1;
	return test->producer.broken;
}

/* Within a line of a number, or anything at all. */
static uint64_t near(struct test *test, uint64_t number)
{
	if (!random_below(&test->state, 4))
		return random_next(&test->state);
	return number + random_below(&test->state, 3 * SNT__SHM_RING_SIZE) -
	       SNT__SHM_RING_SIZE;
}

/* A mark that may be believed in part, or any byte. */
static void scribble(struct test *test)
{
	uint64_t lines = SNT__SHM_RING_SIZE / SNT__SHM_LINE;
	uint8_t *at = test->area->bytes +
		      random_below(&test->state, (uint32_t)lines) * SNT__SHM_LINE;
	uint32_t mark[2] = { choose_length(test), (uint32_t)random_next(&test->state) };

	switch (random_below(&test->state, 8)) {
	case 0:
		test->area->tail = near(test, test->consumer.head) & -SNT__SHM_LINE;
		break;
	case 1:
		test->area->head = near(test, test->producer.head);
		break;
	case 2:
		test->area->sleeps = (uint32_t)random_next(&test->state);
		break;
	case 3:
		at = test->area->bytes +
		     (test->consumer.head & (SNT__SHM_RING_SIZE - 1));
		/* fall through */
	case 4:
		mark[1] = (mark[1] & 0x1f2f03);
		/* fall through */
	default:
		memcpy(at, mark, sizeof(mark));
	}
}

/* The producer has room or gives up; what is taken lies within the memory. */
static int suffer(struct test *test)
{
	for (unsigned i = 0; i < STEPS; i++) {
		struct snt__shm_record record;
		int got;

		scribble(test);
		snt__shm_await_room(&test->producer);
		if (!test->producer.broken && has_room(test)) {
			put(test);
			snt__shm_tell(&test->producer);
		}
		got = snt__shm_take(&test->consumer, &record);
		snt__shm_release(&test->consumer);
		if (got < 0) {
			/* As a link that is made anew. */
			memset(&test->consumer, 0, sizeof(test->consumer));
			test->consumer.area = test->area;
		} else if (got && !record.piece_count) {
			uint64_t begin = (uint64_t)(record.payload - test->area->bytes);

			if (begin > SNT__SHM_RING_SIZE ||
			    record.payload_length > SNT__SHM_RING_SIZE - begin ||
			    record.header_length > SNT__WIRE_HEADER_MAX)
				return 1;
		}
		if (test->producer.broken) {
			memset(&test->producer, 0, sizeof(test->producer));
			test->producer.area = test->area;
			test->area->head = 0;
		}
	}
	return 0;
}

static int run(uint64_t seed)
{
	struct test *test = calloc(1, sizeof(*test));
	int ret;

	test->area = aligned_alloc(4096, sizeof(*test->area));
	memset(test->area, 0, sizeof(*test->area));
	test->state = seed;
	test->producer.area = test->consumer.area = test->area;
	ret = play(test);
	if (ret)
		printf("# what came out is not what was put\n");
	else if (suffer(test)) {
		printf("# a record lies outside of the ring\n");
		ret = 1;
	}
	free(test->area);
	free(test);
	return ret;
}

int main(int argc, char **argv)
{
	return seeds_main(argc, argv, 50, run);
}
