/* SPDX-License-Identifier: MIT */
/*
 * Peers that do not keep to the rules: end 0 is a plain stream, on which the tests write
 * what no channel would. Each violation ends the channel at end 1, with a sentence.
 */
#include <sennit/stream_half.h>

#include "kit.h"

#include <endian.h>

static struct kit_memory target;

/* End 0 stays a stream. */
static void open_with_stream(void)
{
	kit_open(&kit_ways[0], NULL);
	kit_channel[0] = NULL;
	assert_success(snt_channel_create(kit_end(1), NULL, &kit_channel[1]));
	target.bytes = calloc(1, 4096);
	assert_success(snt_mem_register(world.end[0].ctx, target.bytes, 4096,
					SNT_ACCESS_REMOTE_READ, &target.mem));
}

static void write_record(uint32_t kind, uint32_t length, const void *body, size_t size)
{
	struct snt__record_header header = snt__record_pack(kind, length);
	uint8_t all[512] = { 0 };

	memcpy(all, &header, sizeof(header));
	if (size)
		memcpy(all + sizeof(header), body, size);
	size = snt__record_size(size);
	assert_int_equal(snt_stream_write(kit_end(0), all, size), size);
}

static void write_greeting(void)
{
	uint8_t hello[SNT__GREET_LENGTH];

	snt__greet_pack(hello);
	write_record(SNT__RECORD_HELLO, sizeof(hello), hello, sizeof(hello));
}

static void close_both(void)
{
	kit_channel_destroy(1);
	snt_stream_destroy(kit_end(0));
	kit_end(0) = NULL;
	for (unsigned i = 0; i < 2; i++)
		kit_until(!world.end[i].loop->conn_loop->lingering);
	assert_success(snt_mem_release(target.mem));
	free(target.bytes);
	kit_close_after_lie();
}

static void expect_fault(const char *phrase)
{
	struct snt_channel_message message;
	ssize_t ret = -EAGAIN;

	while (ret == -EAGAIN || !ret) {
		kit_until(kit_has(1, SNT_CHANNEL_READABLE));
		ret = snt_channel_peek(kit_channel[1], &message);
		if (!ret)
			snt_channel_drop(kit_channel[1]);
	}
	assert_error(ret, EPROTO, phrase);
	kit_until(kit_has(1, SNT_CHANNEL_OVER));
	assert_int_equal(kit_channel_info(1).status, -EPROTO);
	assert_error(snt_channel_send(kit_channel[1], "x", 1), EPROTO, phrase);
	assert_error(snt_channel_close(kit_channel[1], 0), EPROTO, phrase);
	close_both();
}

static void is_a_stream(void **state)
{
	(void)state;
	open_with_stream();
	assert_int_equal(snt_stream_write(kit_end(0), "GET / HTTP/1.1\r\n", 16), 16);
	expect_fault("no channel");
}

static void greets_otherwise(void **state)
{
	static const uint8_t other[8] = { 's', 'n', 't', 'c', 9 };
	static const uint8_t bytes[8] = { 1 };

	(void)state;
	open_with_stream();
	write_record(SNT__RECORD_HELLO, 8, other, 8);
	expect_fault("version");
	open_with_stream();
	write_record(SNT__RECORD_HELLO, 8, bytes, 8);
	expect_fault("no channel");
	open_with_stream();
	write_record(SNT__RECORD_HELLO, 16, bytes, 8);
	expect_fault("greeting");
	open_with_stream();
	write_greeting();
	write_greeting();
	expect_fault("twice");
}

static void sends_unknown(void **state)
{
	const struct snt__record_header odd = { .type = SNT__RECORD_MESSAGE,
						.zero = { 0, 1, 0 } };

	(void)state;
	for (unsigned kind = 0; kind < 256; kind += kind ? 36 : 4) {
		open_with_stream();
		write_greeting();
		write_record(kind, 0, NULL, 0);
		expect_fault("unknown kind");
	}
	open_with_stream();
	write_greeting();
	assert_int_equal(snt_stream_write(kit_end(0), &odd, 8), 8);
	expect_fault("unknown kind");
}

static void sends_too_long(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_with_stream();
		write_greeting();
		write_record(SNT__RECORD_MESSAGE,
			     i ? UINT32_MAX
			       : (uint32_t)kit_channel_info(1).recv_max + 1,
			     NULL, 0);
		expect_fault("half of the ring");
	}
}

static void ends_within(void **state)
{
	(void)state;
	open_with_stream();
	write_greeting();
	write_record(SNT__RECORD_MESSAGE, 100, "x", 1);
	assert_success(snt_stream_shutdown(kit_end(0)));
	expect_fault("within a message");
}

/*
 * Offers
 */

static size_t make_offer(uint8_t bytes[SNT__OFFER_MAX], uint64_t at, uint64_t length)
{
	struct snt__offered offered = { .addr = snt_mem_addr(target.mem) + at,
					.length = length };

	assert_success(snt_mem_token(target.mem, &offered.token));
	return (size_t)snt__offered_pack(&offered, bytes);
}

static void expect_offer_fault(uint64_t at, uint64_t length, int spoiled,
			       const char *phrase)
{
	uint8_t bytes[SNT__OFFER_MAX];
	size_t size;

	open_with_stream();
	write_greeting();
	size = make_offer(bytes, at, length);
	if (spoiled >= 0)
		bytes[spoiled] ^= 0x55;
	write_record(SNT__RECORD_OFFER, (uint32_t)size, bytes, size);
	expect_fault(phrase);
}

static void offers_falsely(void **state)
{
	static const uint8_t bytes[256];

	(void)state;
	expect_offer_fault(0, 4097, -1, "outside");
	expect_offer_fault(4096, 1, -1, "outside");
	expect_offer_fault(0, 0, -1, "invalid length");
	expect_offer_fault(0, SNT_CHANNEL_OFFER_MAX + 1, -1, "invalid length");
	expect_offer_fault(UINT64_MAX, 2, -1, "outside");
	expect_offer_fault(0, 64, 16, "invalid token");
	for (unsigned size = 1; size < 256; size += 17) {
		open_with_stream();
		write_greeting();
		write_record(SNT__RECORD_OFFER, size, bytes, size);
		expect_fault("its offer");
	}
}

/* The memory is gone when it is fetched: the fetch ends, and so does the channel. */
static void offers_what_is_gone(void **state)
{
	uint8_t bytes[SNT__OFFER_MAX], here[64];
	struct kit_fetch fetch = { 0 };
	struct snt_mem *mem;
	size_t size;

	(void)state;
	open_with_stream();
	write_greeting();
	size = make_offer(bytes, 0, 64);
	write_record(SNT__RECORD_OFFER, (uint32_t)size, bytes, size);
	assert_success(snt_mem_release(target.mem));
	assert_success(snt_mem_register(world.end[0].ctx, target.bytes, 4096,
					SNT_ACCESS_REMOTE_READ, &target.mem));
	assert_success(snt_mem_register(world.end[1].ctx, here, 64,
					SNT_ACCESS_LOCAL_WRITE, &mem));
	kit_memory[1] = (struct kit_memory){ mem, here };
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_success(kit_fetch(1, &fetch, 0, 64));
	kit_until(fetch.done);
	assert_true(fetch.fetch.result < 0);
	kit_until(kit_has(1, SNT_CHANNEL_OVER));
	assert_true(kit_channel_info(1).status < 0);
	assert_success(snt_mem_release(mem));
	close_both();
}

/* The end arrives before its offer has been fetched. */
static void ends_before_offers(void **state)
{
	uint8_t bytes[SNT__OFFER_MAX];
	size_t size;

	(void)state;
	open_with_stream();
	write_greeting();
	size = make_offer(bytes, 0, 64);
	write_record(SNT__RECORD_OFFER, (uint32_t)size, bytes, size);
	assert_success(snt_stream_shutdown(kit_end(0)));
	kit_until(kit_info(1).peer_shut_down);
	expect_fault("shut down before");
}

/*
 * Notes
 */

static void notes_too_much(void **state)
{
	(void)state;
	open_with_stream();
	write_greeting();
	snt__stream_note(kit_end(0), 1);
	kit_until(kit_has(1, SNT_CHANNEL_OVER));
	expect_fault("more offers than were made");
}

/* To a stream without a channel it means nothing. */
static void notes_to_a_stream(void **state)
{
	(void)state;
	kit_open(&kit_ways[0], NULL);
	snt__stream_note(kit_end(0), 1);
	kit_until(kit_is_over(1));
	assert_int_equal(kit_info(1).status, -EPROTO);
	kit_close_after_lie();
}

static void a_stream_of_a_channel_cannot_be_split(void **state)
{
	const struct snt_stream_half_opts opts = SNT_INIT(opts);
	struct snt_stream_half *half[2];

	(void)state;
	open_with_stream();
	assert_error(snt_stream_split(kit_end(1), &opts, &opts, &half[0], &half[1]),
		     EINVAL, "is a channel's");
	close_both();
}

/* The END arrives after the offer was looked at, and before it is fetched. */
static void ends_after_a_look(void **state)
{
	uint8_t bytes[SNT__OFFER_MAX], here[64];
	struct snt_channel_message message;
	struct kit_fetch fetch = { 0 };
	struct snt_mem *mem;
	size_t size;

	(void)state;
	open_with_stream();
	write_greeting();
	size = make_offer(bytes, 0, 64);
	write_record(SNT__RECORD_OFFER, (uint32_t)size, bytes, size);
	assert_success(snt_mem_register(world.end[1].ctx, here, 64,
					SNT_ACCESS_LOCAL_WRITE, &mem));
	kit_memory[1] = (struct kit_memory){ mem, here };
	kit_until(kit_has(1, SNT_CHANNEL_READABLE));
	assert_success(snt_channel_peek(kit_channel[1], &message));
	assert_success(snt_stream_shutdown(kit_end(0)));
	kit_until(kit_has(1, SNT_CHANNEL_OVER));
	assert_int_equal(kit_channel_info(1).status, -EPROTO);
	assert_int_equal(kit_fetch(1, &fetch, 0, 64), -EPROTO);
	assert_int_equal(kit_channel_info(1).fetches_pending, 0);
	assert_success(snt_mem_release(mem));
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_a_stream),
		cmocka_unit_test(ends_after_a_look),
		cmocka_unit_test(a_stream_of_a_channel_cannot_be_split),
		cmocka_unit_test(greets_otherwise),
		cmocka_unit_test(sends_unknown),
		cmocka_unit_test(sends_too_long),
		cmocka_unit_test(ends_within),
		cmocka_unit_test(offers_falsely),
		cmocka_unit_test(offers_what_is_gone),
		cmocka_unit_test(ends_before_offers),
		cmocka_unit_test(notes_too_much),
		cmocka_unit_test(notes_to_a_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
