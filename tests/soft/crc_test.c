/* SPDX-License-Identifier: MIT */
/* CRC-32 against its definition, in every way that this machine can compute it. */
#include "lib/test.h"

#include "dev/soft/crc.h"
#include "lib/seeds.h"

/* Bit by bit, as it is defined. */
static uint32_t definition(uint32_t crc, const uint8_t *data, size_t length)
{
	crc = ~crc;
	while (length--) {
		crc ^= *data++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return ~crc;
}

static uint8_t *random_bytes(size_t length, uint64_t *random)
{
	uint8_t *bytes = malloc(length ? length : 1);

	assert_non_null(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = random_next(random);
	return bytes;
}

static void check_value_is_the_known_one(void **state)
{
	(void)state;
	assert_int_equal(snt__crc32_portable(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(snt__crc32(0, "123456789", 9), 0xcbf43926);
}

/* Every byte at every distance meets every entry of the tables. */
static void single_bytes_are_as_defined(void **state)
{
	(void)state;
	for (unsigned value = 0; value < 256; value++) {
		for (unsigned at = 0; at < 16; at++) {
			uint8_t bytes[16] = { 0 };
			uint32_t crc;

			bytes[at] = value;
			crc = definition(0, bytes, sizeof(bytes));
			assert_int_equal(snt__crc32_portable(0, bytes, 16), crc);
			assert_int_equal(snt__crc32(0, bytes, 16), crc);
		}
	}
}

/* Allocations of just that size, so that reading past them is seen. */
static void all_lengths_and_alignments_are_as_defined(void **state)
{
	uint64_t random = 1;

	(void)state;
	for (size_t length = 0; length < 300; length++) {
		for (size_t skip = 0; skip < 9; skip++) {
			uint8_t *bytes = random_bytes(skip + length, &random);
			uint32_t before = random_next(&random);
			uint32_t crc = definition(before, bytes + skip, length);

			assert_int_equal(snt__crc32_portable(before, bytes + skip,
							     length),
					 crc);
			assert_int_equal(snt__crc32(before, bytes + skip, length), crc);
			free(bytes);
		}
	}
}

static void pieces_make_a_whole(void **state)
{
	const size_t length = 65536;
	uint64_t random = 2;
	uint8_t *bytes = random_bytes(length, &random);

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		size_t size = random_below(&random, length), at = 0;
		uint32_t ours = 0, fast = 0;

		while (at < size) {
			size_t piece = 1 + random_below(&random, size - at);

			ours = snt__crc32_portable(ours, bytes + at, piece);
			fast = snt__crc32(fast, bytes + at, piece);
			at += piece;
		}
		assert_int_equal(ours, snt__crc32_portable(0, bytes, size));
		assert_int_equal(fast, ours);
	}
	free(bytes);
}

/* What is copied is written, and nothing before it; nor behind it, where its memory ends. */
static void check_copy(const struct snt__crc32_way *way, size_t skip,
		       const uint8_t *from, size_t length, uint64_t *random)
{
	uint8_t *to = random_bytes(skip + length, random);
	uint8_t *kept = malloc(skip + 1);
	uint32_t before = random_next(random);

	assert_non_null(kept);
	memcpy(kept, to, skip);
	assert_int_equal(way->copy(before, to + skip, from, length),
			 definition(before, from, length));
	assert_int_equal(memcmp(to, kept, skip), 0);
	assert_int_equal(memcmp(to + skip, from, length), 0);
	free(kept);
	free(to);
}

/* Beyond the sizes at which a way begins to take several blocks at a time; wherever that
 * begins and ends in a line. */
static void check_way(const struct snt__crc32_way *way)
{
	uint64_t random = 3;

	for (size_t length = 0; length < 1200; length += length < 600 ? 1 : 7) {
		size_t skip = random_below(&random, 65);
		uint8_t *from = random_bytes(skip + length, &random);
		uint32_t before = random_next(&random);

		assert_int_equal(way->only(before, from + skip, length),
				 definition(before, from + skip, length));
		check_copy(way, random_below(&random, 65), from + skip, length,
			   &random);
		free(from);
	}
}

static void fold_128_is_as_defined(void **state)
{
	(void)state;
	if (!snt__crc32_fold_128())
		skip_because("this processor has no PCLMULQDQ");
	check_way(snt__crc32_fold_128());
}

static void fold_512_is_as_defined(void **state)
{
	(void)state;
	if (!snt__crc32_fold_512())
		skip_because("this processor has no VPCLMULQDQ with AVX-512");
	check_way(snt__crc32_fold_512());
}

/* What is chosen, from the first use on. */
static void copies_are_as_defined(void **state)
{
	const struct snt__crc32_way way = { snt__crc32, snt__crc32_copy };

	(void)state;
	check_way(&way);
}

/* libdeflate would begin anew. */
static void empty_input_at_null_keeps_the_crc(void **state)
{
	(void)state;
	assert_int_equal(snt__crc32(0x12345678, NULL, 0), 0x12345678);
	assert_int_equal(snt__crc32_portable(0x12345678, NULL, 0), 0x12345678);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_value_is_the_known_one),
		cmocka_unit_test(single_bytes_are_as_defined),
		cmocka_unit_test(all_lengths_and_alignments_are_as_defined),
		cmocka_unit_test(pieces_make_a_whole),
		cmocka_unit_test(fold_128_is_as_defined),
		cmocka_unit_test(fold_512_is_as_defined),
		cmocka_unit_test(copies_are_as_defined),
		cmocka_unit_test(empty_input_at_null_keeps_the_crc),
	};

	return cmocka_run_group_tests_name("crc", tests, NULL, NULL);
}
