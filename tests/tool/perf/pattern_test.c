/* SPDX-License-Identifier: MIT */
/* Does the verifier of `sennit perf --verify` find what is wrong? */
#include "lib/test.h"
#include "lib/seeds.h"

#include "perf_pattern.h"

#define LENGTH_MAX 300

static unsigned char memory[LENGTH_MAX + 1];

static void what_was_filled_is_right(void **state)
{
	(void)state;
	for (size_t length = 0; length < LENGTH_MAX; length++) {
		memory[length] = 0xa5;
		pattern_fill(memory, length, 7, length);
		assert_int_equal(pattern_check(memory, length, 7, length).wrong, 0);
		assert_int_equal(memory[length], 0xa5); /* and no byte more */
	}
}

static void each_wrong_byte_is_found(void **state)
{
	(void)state;
	for (size_t length = 1; length < 40; length++) {
		for (size_t at = 0; at < length; at++) {
			for (unsigned bit = 0; bit < 8; bit++) {
				struct pattern_fault fault;

				pattern_fill(memory, length, 7, 1);
				memory[at] ^= (unsigned char)(1 << bit);
				fault = pattern_check(memory, length, 7, 1);
				assert_int_equal(fault.wrong, 1);
				assert_int_equal(fault.first, at);
			}
		}
	}
}

static void several_are_counted_from_the_first(void **state)
{
	struct pattern_fault fault;

	(void)state;
	pattern_fill(memory, LENGTH_MAX, 7, 1);
	memory[17] ^= 1;
	memory[18] ^= 1;
	memory[LENGTH_MAX - 1] ^= 0x80;
	fault = pattern_check(memory, LENGTH_MAX, 7, 1);
	assert_int_equal(fault.wrong, 3);
	assert_int_equal(fault.first, 17);
}

/* Most bytes differ: about 1 of 256 is the same by chance. */
static void stale_and_misplaced_bytes_are_found(void **state)
{
	unsigned char moved[LENGTH_MAX];

	(void)state;
	pattern_fill(memory, LENGTH_MAX, 7, 1);
	assert_true(pattern_check(memory, LENGTH_MAX, 7, 2).wrong > LENGTH_MAX / 2);
	assert_true(pattern_check(memory, LENGTH_MAX, 8, 1).wrong > LENGTH_MAX / 2);
	/* Two fragments that changed places. */
	memcpy(moved, memory, LENGTH_MAX);
	memcpy(moved + 64, memory + 128, 64);
	memcpy(moved + 128, memory + 64, 64);
	assert_true(pattern_check(moved, LENGTH_MAX, 7, 1).wrong > 64);
	assert_true(pattern_check(moved, LENGTH_MAX, 7, 1).first >= 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_filled_is_right),
		cmocka_unit_test(each_wrong_byte_is_found),
		cmocka_unit_test(several_are_counted_from_the_first),
		cmocka_unit_test(stale_and_misplaced_bytes_are_found),
	};

	return cmocka_run_group_tests_name("perf-pattern", tests, NULL, NULL);
}
