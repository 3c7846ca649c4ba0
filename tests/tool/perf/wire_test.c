/* SPDX-License-Identifier: MIT */
/* Control messages of `sennit perf`: they go round, and nothing else is taken. */
#include "lib/test.h"
#include "lib/seeds.h"

#include "perf_case.h"
#include "perf_error.h"
#include "perf_wire.h"

static unsigned char frame[PERF_HEADER + PERF_BODY_MAX];

static struct perf_message make(uint16_t type)
{
	struct perf_message message = { .type = type };

	switch (type) {
	case PERF_HELLO:
		message.hello.device_count = 2;
		strcpy(message.hello.version, "0.1.0");
		strcpy(message.hello.host, "here");
		strcpy(message.hello.devices, "rxe0, rxe1");
		break;
	case PERF_CASE:
		message.c = (struct perf_case){ .kind = PERF_BANDWIDTH,
						.op = PERF_SEND,
						.scheme = 2,
						.verify = true,
						.bidirectional = true,
						.timeout = 18,
						.lanes = 4,
						.depth = 128,
						.batch = 16,
						.size = UINT64_C(1) << 20,
						.fragment = 65536,
						.seed = UINT64_MAX };
		break;
	case PERF_READY:
	case PERF_CONNECT:
		message.address.card_length = PERF_CARD_MAX;
		message.address.token_length = 28;
		message.address.offer_length = 3;
		memset(message.address.card, 0x11, PERF_CARD_MAX);
		memset(message.address.token, 0x22, 28);
		break;
	case PERF_RUN:
		message.limit = (struct perf_limit){ 7, PERF_DURATION_MAX_NS };
		break;
	case PERF_STOP:
		message.messages = UINT64_C(0x1122334455667788);
		break;
	case PERF_RESULT:
		message.use = (struct perf_use){ 1,
						 2,
						 3,
						 4,
						 5,
						 6,
						 7,
						 8,
						 9,
						 10,
						 { 11, 12, 13, 14, 15, 16, 17, 18 } };
		break;
	case PERF_FAILED:
		strcpy(message.text, "it did not work");
		break;
	default:
		break;
	}
	return message;
}

static void each_goes_round(void **state)
{
	(void)state;
	for (uint16_t type = PERF_HELLO; type <= PERF_FAILED; type++) {
		struct perf_message message = make(type), again;
		size_t length = perf_encode(&message, frame);
		unsigned char copy[sizeof(frame)];
		uint16_t is;

		assert_int_equal(perf_decode_header(frame, &is), length - PERF_HEADER);
		assert_int_equal(is, type);
		assert_int_equal(perf_decode(type, frame + PERF_HEADER,
					     length - PERF_HEADER, &again),
				 0);
		memcpy(copy, frame, length);
		assert_int_equal(perf_encode(&again, frame), length);
		assert_memory_equal(copy, frame, length);
	}
}

static void other_lengths_are_refused(void **state)
{
	(void)state;
	for (uint16_t type = PERF_HELLO; type <= PERF_FAILED; type++) {
		struct perf_message message = make(type), again;
		size_t length = perf_encode(&message, frame) - PERF_HEADER;

		frame[PERF_HEADER + length] = 0;
		assert_int_equal(perf_decode(type, frame + PERF_HEADER, length + 1,
					     &again),
				 -EBADMSG);
		for (size_t shorter = 0; shorter < length; shorter++) {
			/* An allocation of just that size, so that reading past it is
			 * seen. */
			unsigned char *exact = malloc(shorter + 1);

			assert_non_null(exact);
			memcpy(exact, frame + PERF_HEADER, shorter);
			assert_int_equal(perf_decode(type, exact, shorter, &again),
					 -EBADMSG);
			free(exact);
		}
	}
}

static void headers_are_checked(void **state)
{
	struct perf_message message = make(PERF_STOP);
	uint16_t type;

	(void)state;
	perf_encode(&message, frame);
	frame[0] = 0x7f; /* 2 GiB */
	assert_int_equal(perf_decode_header(frame, &type), -EBADMSG);
	perf_encode(&message, frame);
	frame[7] = PERF_FAILED + 1;
	assert_int_equal(perf_decode_header(frame, &type), -EBADMSG);
	perf_encode(&message, frame);
	frame[5]++;
	assert_int_equal(perf_decode_header(frame, &type), -EPROTONOSUPPORT);
	assert_non_null(strstr(perf_error_text(), "install the same"));
}

/* What is shown to people cannot carry escape sequences. */
static void texts_are_printable(void **state)
{
	struct perf_message message = make(PERF_FAILED), again;
	size_t length;

	(void)state;
	strcpy(message.text, "\x1b[2J\n\xff");
	length = perf_encode(&message, frame) - PERF_HEADER;
	assert_int_equal(perf_decode(PERF_FAILED, frame + PERF_HEADER, length, &again),
			 0);
	assert_string_equal(again.text, "?[2J??");
	frame[PERF_HEADER + 2] = 0x1b;
	assert_int_equal(perf_decode(PERF_FAILED, frame + PERF_HEADER, length, &again),
			 -EBADMSG);
	frame[PERF_HEADER + 2] = 0;
	assert_int_equal(perf_decode(PERF_FAILED, frame + PERF_HEADER, length, &again),
			 -EBADMSG);
}

/* Bytes of anybody: what is taken, goes round. */
static void random_bodies(void **state)
{
	uint64_t random = 3;
	unsigned taken = 0;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		uint16_t type =
			(uint16_t)(PERF_HELLO + random_below(&random, PERF_FAILED));
		struct perf_message message = make(type), again;
		size_t length = perf_encode(&message, frame) - PERF_HEADER;
		unsigned char *body = frame + PERF_HEADER, copy[PERF_BODY_MAX];

		for (unsigned j = random_below(&random, 4); j && length; j--)
			body[random_below(&random, (uint32_t)length)] =
				(unsigned char)random_next(&random);
		memcpy(copy, body, length);
		if (perf_decode(type, body, length, &again))
			continue;
		taken++;
		assert_int_equal(perf_encode(&again, frame), length + PERF_HEADER);
		assert_memory_equal(copy, body, length);
	}
	assert_true(taken > 1000);
}

/*
 * Cases
 */

static void values_out_of_range_are_refused(void **state)
{
	struct perf_case good = make(PERF_CASE).c, bad;

	(void)state;
	assert_int_equal(perf_case_check(&good), 0);
#define REFUSED(member, is)                                       \
	do {                                                      \
		bad = good;                                       \
		bad.member = is;                                  \
		assert_int_equal(perf_case_check(&bad), -EINVAL); \
	} while (0)
	REFUSED(kind, 0);
	REFUSED(kind, PERF_RATE + 1);
	REFUSED(op, 0);
	REFUSED(op, PERF_OP_LAST + 1);
	REFUSED(op, PERF_FETCH_ADD); /* has 8 bytes */
	REFUSED(scheme, 3);
	REFUSED(balance, 3);
	good.bidirectional = true;
	REFUSED(kind, PERF_LATENCY);
	good.bidirectional = false;
	REFUSED(lanes, 0);
	REFUSED(lanes, PERF_LANES_MAX + 1);
	REFUSED(depth, 0);
	REFUSED(depth, 15); /* less than the batch */
	REFUSED(depth, PERF_DEPTH_MAX + 1);
	REFUSED(batch, 0);
	REFUSED(batch, PERF_BATCH_MAX + 1);
	REFUSED(size, 0);
	REFUSED(size, PERF_SIZE_MAX + 1);
	REFUSED(size, UINT64_MAX);
	REFUSED(mtu, 255);
	REFUSED(mtu, 8192);
	REFUSED(mtu, UINT32_MAX);
	REFUSED(timeout, 32);
	REFUSED(fragment, 1);
	REFUSED(fragment, 96);
	REFUSED(fragment, PERF_SIZE_MAX + 64);
#undef REFUSED
}

/* Whatever a client asks for and is accepted takes no more memory than is promised. */
static void memory_has_a_limit(void **state)
{
	uint64_t random = 5;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		struct perf_case c = { .kind = (uint8_t)(1 + random_below(&random, 3)),
				       .op = (uint8_t)(1 + random_below(&random, 4)),
				       .verify = random_below(&random, 2),
				       .lanes = 1,
				       .batch = 1,
				       .depth = 1 +
						random_below(&random, PERF_DEPTH_MAX),
				       .size = 1 + (random_next(&random) >>
						    (36 + random_below(&random, 28))) };
		struct perf_shape shape = perf_case_shape(&c);

		if (perf_case_check(&c))
			continue;
		assert_true(shape.memory <= PERF_MEMORY_MAX);
		assert_true(shape.stride >= c.size && shape.stride % 64 == 0);
		assert_true(shape.slots >= 2 && shape.window >= 2);
		assert_true(!c.verify || shape.slots == shape.window);
		assert_true(shape.credit >= 1 && 4 * shape.credit <= shape.window + 3);
		assert_true(shape.signaled >= 1 && shape.signaled <= c.depth);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_goes_round),
		cmocka_unit_test(other_lengths_are_refused),
		cmocka_unit_test(headers_are_checked),
		cmocka_unit_test(texts_are_printable),
		cmocka_unit_test(random_bodies),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(memory_has_a_limit),
	};

	return cmocka_run_group_tests_name("perf-wire", tests, NULL, NULL);
}
