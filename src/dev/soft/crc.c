/* SPDX-License-Identifier: MIT */
#include "dev/soft/crc.h"

#include <endian.h>
#include <string.h>
#ifdef SNT_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

/* A CRC is linear: a byte's entry is the sum of the entries of its bits. */
#define ENTRY(i, a, b, c, d, e, f, g, h)                                         \
	(((i)&1 ? a : 0) ^ ((i)&2 ? b : 0) ^ ((i)&4 ? c : 0) ^ ((i)&8 ? d : 0) ^ \
	 ((i)&16 ? e : 0) ^ ((i)&32 ? f : 0) ^ ((i)&64 ? g : 0) ^ ((i)&128 ? h : 0))
#define ENTRIES_4(i, ...)                                   \
	ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), \
		ENTRY((i) + 2, __VA_ARGS__), ENTRY((i) + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                          \
	ENTRIES_4(i, __VA_ARGS__), ENTRIES_4((i) + 4, __VA_ARGS__), \
		ENTRIES_4((i) + 8, __VA_ARGS__), ENTRIES_4((i) + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                             \
	ENTRIES_16(i, __VA_ARGS__), ENTRIES_16((i) + 16, __VA_ARGS__), \
		ENTRIES_16((i) + 32, __VA_ARGS__), ENTRIES_16((i) + 48, __VA_ARGS__)
#define TABLE(...)                                                                 \
	{                                                                          \
		ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__),           \
			ENTRIES_64(128, __VA_ARGS__), ENTRIES_64(192, __VA_ARGS__) \
	}

/* By the number of bytes that follow, then by byte. Read backwards, line by line, the
 * numbers are the powers x^32 to x^95 modulo the polynomial. */
static const uint32_t table[8][256] = {
	TABLE(0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832, 0x1db71064, 0x3b6e20c8,
	      0x76dc4190, 0xedb88320),
	TABLE(0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08, 0x4ac21251, 0x958424a2,
	      0xf0794f05, 0x3b83984b),
	TABLE(0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8, 0x1c26a370, 0x384d46e0,
	      0x709a8dc0, 0xe1351b80),
	TABLE(0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef, 0x5019579f, 0xa032af3e,
	      0x9b14583d, 0xed59b63b),
	TABLE(0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1, 0x60e09782, 0xc1c12f04,
	      0x58f35849, 0xb1e6b092),
	TABLE(0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d, 0x03d6029b, 0x07ac0536,
	      0x0f580a6c, 0x1eb014d8),
	TABLE(0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67, 0x67de9cce, 0xcfbd399c,
	      0x440b7579, 0x8816eaf2),
	TABLE(0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5, 0x7cbb312b, 0xf9766256,
	      0x299dc2ed, 0x533b85da),
};

static inline uint64_t load_64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static inline uint32_t load_32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

uint32_t snt__crc32_portable(uint32_t crc, const void *data, size_t length)
{
	const uint8_t *at = data;

	crc = ~crc;
	for (; length >= 8; at += 8, length -= 8) {
		uint64_t v = load_64(at) ^ crc;

		crc = table[7][v & 255] ^ table[6][v >> 8 & 255] ^
		      table[5][v >> 16 & 255] ^ table[4][v >> 24 & 255] ^
		      table[3][v >> 32 & 255] ^ table[2][v >> 40 & 255] ^
		      table[1][v >> 48 & 255] ^ table[0][v >> 56];
	}
	if (length >= 4) {
		crc ^= load_32(at);
		crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^
		      table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
		at += 4;
		length -= 4;
	}
	for (; length; at++, length--)
		crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
	return ~crc;
}

/*
 * Choice of the implementation
 */

static uint32_t crc32_without_copy(uint32_t crc, const void *data, size_t length)
{
#ifdef SNT_HAVE_LIBDEFLATE
	/* libdeflate takes an empty piece at NULL for a new beginning. */
	return length ? libdeflate_crc32(crc, data, length) : crc;
#else
	return snt__crc32_portable(crc, data, length);
#endif
}

static uint32_t crc32_after_copy(uint32_t crc, void *to, const void *from,
				 size_t length)
{
	if (length)
		memcpy(to, from, length);
	return crc32_without_copy(crc, to, length);
}

static const struct snt__crc32_way plain = { crc32_without_copy, crc32_after_copy };

static const struct snt__crc32_way *choose_crc32_way(void)
{
	const struct snt__crc32_way *way = snt__crc32_fold_512();

	if (!way)
		way = snt__crc32_fold_128();
	if (!way)
		way = &plain;
	atomic_store_explicit(&snt__crc32_way, way, memory_order_relaxed);
	return way;
}

static uint32_t first_only(uint32_t crc, const void *data, size_t length)
{
	return choose_crc32_way()->only(crc, data, length);
}

static uint32_t first_copy(uint32_t crc, void *to, const void *from, size_t length)
{
	return choose_crc32_way()->copy(crc, to, from, length);
}

static const struct snt__crc32_way unknown = { first_only, first_copy };

_Atomic(const struct snt__crc32_way *) snt__crc32_way = &unknown;
