/* SPDX-License-Identifier: MIT */
/* Messages, offers and room, on every kind of stream. */
#include "kit.h"

#define KIB 1024u

static void lengths_on(const struct kit_way *way)
{
	static const size_t lengths[] = {
		0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 100000
	};

	kit_channels_open(way, NULL);
	for (unsigned from = 0; from < 2; from++) {
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			assert_success(kit_send(from, i, lengths[i]));
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			kit_expect(!from, i, lengths[i]);
	}
	assert_int_equal(kit_channel_info(0).messages_sent, 11);
	assert_int_equal(kit_channel_info(1).messages_received, 11);
	assert_int_equal(kit_channel_info(0).bytes_sent,
			 kit_channel_info(1).bytes_received);
	kit_channels_finish();
}
KIT_EACH_WAY(lengths)

/* In small rings, so that messages lie across their ends in all ways. */
static void boundaries_on(const struct kit_way *way)
{
	const struct kit_opts opts = { .recv_size = { 1024, 4096 }, .send_size = 2048 };
	uint64_t sent = 0, received = 0;

	kit_channels_open(way, &opts);
	while (received < 2000) {
		struct snt_channel_message message;
		size_t length = sent * 37 % 500;
		bool again = sent == 2000 || kit_send(1, sent, length) == -EAGAIN;

		sent += !again;
		if (snt_channel_peek(kit_channel[0], &message)) {
			if (again)
				kit_until(kit_has(0, SNT_CHANNEL_READABLE));
			continue;
		}
		assert_int_equal(message.length, received * 37 % 500);
		assert_int_equal(message.bytes[0].iov_len + message.bytes[1].iov_len,
				 message.length);
		assert_int_equal((uintptr_t)message.bytes[0].iov_base % 8, 0);
		if (received % 3) {
			kit_expect(0, received, message.length);
		} else {
			uint8_t whole[500];

			memcpy(whole, message.bytes[0].iov_base,
			       message.bytes[0].iov_len);
			memcpy(whole + message.bytes[0].iov_len,
			       message.bytes[1].iov_base, message.bytes[1].iov_len);
			kit_compare_message(1, received, whole, message.length);
			assert_success(snt_channel_drop(kit_channel[0]));
		}
		received++;
	}
	kit_channels_finish();
}
KIT_EACH_WAY(boundaries)

static void longest_on(const struct kit_way *way)
{
	const struct kit_opts opts = { .recv_size = { 8192, 8192 },
				       .send_size = 16384 };
	char buffer[8];

	kit_channels_open(way, &opts);
	assert_int_equal(kit_channel_info(0).send_max, 4088);
	assert_int_equal(kit_channel_info(0).recv_max, 4088);
	assert_int_equal(kit_send(0, 1, 4089), -EMSGSIZE);
	assert_success(kit_send(0, 1, 4088));
	assert_success(kit_send(0, 2, 3));
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_recv(kit_channel[1], buffer, 8), -EMSGSIZE);
	kit_expect(1, 1, 4088);
	kit_expect(1, 2, 3);
	kit_channels_finish();
}
KIT_EACH_WAY(longest)

static void pieces_on(const struct kit_way *way)
{
	uint8_t bytes[600];
	const struct iovec iov[] = { { bytes, 100 },
				     { NULL, 0 },
				     { bytes + 100, 500 } };

	kit_channels_open(way, NULL);
	kit_fill_message(0, 5, bytes, sizeof(bytes));
	assert_success(snt_channel_sendv(kit_channel[0], iov, 3));
	assert_success(snt_channel_sendv(kit_channel[0], NULL, 0));
	assert_int_equal(snt_channel_sendv(kit_channel[0], iov, -1), -EINVAL);
	kit_expect(1, 5, 600);
	kit_expect(1, 6, 0);
	kit_channels_finish();
}
KIT_EACH_WAY(pieces)

/*
 * Room
 */

/* No completion will come by itself. */
static bool nothing_moves(unsigned end)
{
	return kit_end(end)->send_batch_head == kit_end(end)->send_batch_tail;
}

/* Until the peer's ring and the stage are full, and nothing moves. Returns the number of
 * messages. */
static unsigned fill_rings(unsigned end, size_t length)
{
	unsigned sent = 0;

	do {
		while (!kit_send(end, sent, length))
			sent++;
		kit_until(kit_has(end, SNT_CHANNEL_WRITABLE) || nothing_moves(end));
	} while (kit_has(end, SNT_CHANNEL_WRITABLE));
	return sent;
}

static unsigned told[2];

static void on_ready(void *arg, struct snt_channel *channel, unsigned events)
{
	(void)channel;
	told[(uintptr_t)arg] |= events;
}

/* The sender is told when there is room for what was refused, and not earlier. */
static void room_on(const struct kit_way *way)
{
	const struct kit_opts opts = { .recv_size = { 4096, 4096 }, .send_size = 4096 };
	unsigned sent;

	for (uintptr_t i = 0; i < 2; i++)
		kit_channel_opts[i] = (struct snt_channel_opts){ .ready = on_ready,
								 .arg = (void *)i };
	kit_channels_open(way, &opts);
	sent = fill_rings(0, 200);
	told[0] = 0;
	assert_in_range(sent, 30, 40); /* both rings are full */
	assert_int_equal(kit_send(0, sent, 2000), -EAGAIN);
	assert_true(kit_channel_info(0).stalls >= 2);
	assert_true(kit_channel_info(0).room < 2000);
	for (unsigned i = 0; i < sent; i++) {
		if (told[0] & SNT_CHANNEL_WRITABLE)
			assert_true(kit_channel_info(0).room >= 2000);
		kit_expect(1, i, 200);
	}
	kit_until(told[0] & SNT_CHANNEL_WRITABLE);
	assert_success(kit_send(0, sent, 2000));
	kit_expect(1, sent, 2000);
	kit_channels_finish();
}
KIT_EACH_WAY(room)

/*
 * Offers
 */

static void offer_on(const struct kit_way *way)
{
	static const uint64_t lengths[] = { 1, 4096, 700000 };
	struct kit_offer offer;
	struct kit_fetch fetch;
	struct snt_channel_message message;
	char buffer[8];

	kit_channels_open(way, NULL);
	for (unsigned i = 0; i < 3; i++) {
		assert_success(kit_offer(i % 2, &offer, i, 3, lengths[i]));
		kit_until(kit_has(!(i % 2), SNT_CHANNEL_READABLE));
		assert_success(snt_channel_peek(kit_channel[!(i % 2)], &message));
		assert_true(message.is_offer);
		assert_int_equal(message.length, lengths[i]);
		assert_int_equal(snt_channel_recv(kit_channel[!(i % 2)], buffer, 8),
				 -EMSGSIZE);
		assert_int_equal(kit_fetch(!(i % 2), &fetch, 0, lengths[i] - 1),
				 -EMSGSIZE);
		assert_success(kit_fetch(!(i % 2), &fetch, 0, KIT_MEMORY));
		assert_int_equal(fetch.done, 0);
		kit_until(fetch.done && offer.released);
		assert_int_equal(fetch.fetch.result, 0);
		assert_int_equal(fetch.fetch.length, lengths[i]);
		assert_int_equal(offer.offer.result, 0);
		assert_true(fetch.turn < offer.turn);
		kit_compare_message(i % 2, i, kit_memory[!(i % 2)].bytes, lengths[i]);
	}
	kit_channels_finish();
}
KIT_EACH_WAY(offer)

/* What is sent behind an offer is received before it has been fetched. */
static void small_behind_large_on(const struct kit_way *way)
{
	struct kit_offer offer;
	struct kit_fetch fetch;

	kit_channels_open(way, NULL);
	assert_success(kit_offer(0, &offer, 1, 0, KIT_MEMORY));
	for (unsigned i = 0; i < 10; i++)
		assert_success(kit_send(0, i, 64));
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_success(kit_fetch(1, &fetch, 0, KIT_MEMORY));
	for (unsigned i = 0; i < 10; i++) {
		if (kit_real())
			kit_until(kit_has(1, SNT_CHANNEL_READABLE));
		kit_expect(1, i, 64);
	}
	if (!kit_real())
		assert_int_equal(fetch.done, 0);
	kit_until(fetch.done && offer.released);
	kit_compare_message(0, 1, kit_memory[1].bytes, KIT_MEMORY);
	kit_channels_finish();
}
KIT_EACH_WAY(small_behind_large)

/* Fetched, dropped, all at once: released in order, each once. */
static void released_in_order_on(const struct kit_way *way)
{
	enum {
		COUNT = 40
	};
	struct kit_offer offer[COUNT];
	struct kit_fetch fetch[COUNT] = { 0 };
	unsigned last = 0;

	kit_channels_open(way, NULL);
	for (unsigned i = 0; i < COUNT; i++)
		assert_success(kit_offer(0, &offer[i], i, i * 20000, 20000));
	for (unsigned i = 0; i < COUNT; i++) {
		kit_until(kit_has(1, SNT_CHANNEL_READABLE));
		if (i % 4 == 1 || i % 4 == 2)
			assert_success(snt_channel_drop(kit_channel[1]));
		else
			assert_success(kit_fetch(1, &fetch[i], i * 20000, 20000));
	}
	kit_until(offer[COUNT - 1].released);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(offer[i].released, 1);
		assert_int_equal(offer[i].offer.result, 0);
		assert_true(offer[i].turn > last);
		last = offer[i].turn;
		if (i % 4 != 1 && i % 4 != 2) {
			assert_int_equal(fetch[i].done, 1);
			kit_compare_message(0, i, kit_memory[1].bytes + i * 20000,
					    20000);
		}
	}
	assert_int_equal(kit_channel_info(1).messages_dropped, 20);
	assert_int_equal(kit_channel_info(1).messages_fetched, 20);
	assert_int_equal(kit_channel_info(1).bytes_fetched, 20 * 20000);
	assert_int_equal(kit_channel_info(0).offers_pending, 0);
	kit_channels_finish();
}
KIT_EACH_WAY(released_in_order)

/* Neither program receives anything before its own offer is released, and both rings
 * are full of messages. */
static void both_wait_for_release_on(const struct kit_way *way)
{
	const struct kit_opts opts = { .recv_size = { 2048, 2048 }, .send_size = 2048 };
	struct kit_offer offer[2];
	struct kit_fetch fetch[2];
	unsigned sent[2];

	kit_channels_open(way, &opts);
	for (unsigned i = 0; i < 2; i++)
		assert_success(kit_offer(i, &offer[i], i, 0, 300000));
	kit_until(kit_has(0, SNT_CHANNEL_READABLE) && kit_has(1, SNT_CHANNEL_READABLE));
	for (unsigned i = 0; i < 2; i++)
		sent[i] = fill_rings(i, 100);
	for (unsigned i = 0; i < 2; i++)
		assert_success(kit_fetch(i, &fetch[i], 400000, 300000));
	kit_until(offer[0].released && offer[1].released);
	for (unsigned i = 0; i < 2; i++) {
		kit_compare_message(!i, !i, kit_memory[i].bytes + 400000, 300000);
		for (unsigned j = 0; j < sent[!i]; j++)
			kit_expect(i, j, 100);
	}
	kit_channels_finish();
}
KIT_EACH_WAY(both_wait_for_release)

static void refused(void **state)
{
	struct kit_offer offer;
	struct kit_fetch fetch;
	struct snt_channel *other;
	struct snt_mem *closed;
	static uint8_t bytes[64];

	(void)state;
	kit_channels_open(&kit_ways[0], NULL);
	assert_int_equal(snt_channel_create(kit_end(0), NULL, &other), -EINVAL);
	assert_success(snt_mem_register(world.end[0].ctx, bytes, 64, 0, &closed));
	offer.offer = (struct snt_offer){ .mem = closed, .addr = bytes, .length = 64 };
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -EINVAL);
	assert_int_equal(kit_offer(0, &offer, 0, 0, 0), -EINVAL);
	offer.offer.mem = closed;
	offer.offer.addr = bytes;
	offer.offer.length = 64;
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -EACCES);
	offer.offer.mem = kit_memory[0].mem;
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -ERANGE);
	offer.offer.length = SNT_CHANNEL_OFFER_MAX + 1;
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -EMSGSIZE);
	offer.offer.length = 64;
	offer.offer.mem = kit_memory[1].mem;
	assert_int_equal(snt_channel_offer(kit_channel[0], &offer.offer), -EINVAL);
	assert_int_equal(kit_fetch(0, &fetch, 0, 10), -EAGAIN);
	assert_success(kit_send(1, 0, 10));
	kit_until(kit_has(0, SNT_CHANNEL_READABLE));
	assert_int_equal(kit_fetch(0, &fetch, 0, 10), -EINVAL);
	kit_expect(0, 0, 10);
	assert_success(kit_offer(1, &offer, 0, 0, 64));
	kit_until(kit_has(0, SNT_CHANNEL_READABLE));
	fetch.fetch.addr = bytes;
	fetch.fetch.size = 64;
	assert_int_equal(snt_channel_fetch(kit_channel[0], &fetch.fetch), -ERANGE);
	fetch.fetch.mem = closed;
	assert_int_equal(snt_channel_fetch(kit_channel[0], &fetch.fetch), -EACCES);
	assert_success(snt_channel_drop(kit_channel[0]));
	kit_until(offer.released);
	assert_success(snt_mem_release(closed));
	kit_channels_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths),
		cmocka_unit_test(boundaries),
		cmocka_unit_test(longest),
		cmocka_unit_test(pieces),
		cmocka_unit_test(room),
		cmocka_unit_test(offer),
		cmocka_unit_test(small_behind_large),
		cmocka_unit_test(released_in_order),
		cmocka_unit_test(both_wait_for_release),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
