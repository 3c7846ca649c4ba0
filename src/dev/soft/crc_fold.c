/* SPDX-License-Identifier: MIT */
/*
 * CRC-32 by multiplication of polynomials, on x86 processors that have an instruction
 * for it.
 *
 * A message is a polynomial, and its CRC is its remainder modulo another one. A block
 * that is followed by `n` bits counts as itself times x^n, so that it can be replaced
 * by anything with the same remainder, at a place behind it: it is "folded" over the
 * distance. Blocks are 128 bits, one for each lane of a vector; several vectors are
 * folded at a time, so that one multiplication need not wait for another. In the end
 * 128 bits are left that have the remainder of the whole.
 *
 * The CRC of what came before a message, 32 bits, is added to the first four bytes.
 * Otherwise zeros before a message change nothing, so that it may begin in the middle
 * of a vector: of 16 bytes where that makes an odd length even, of 64 so that all the
 * others are whole cache lines.
 */
#include "dev/soft/crc.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define TARGET_128 __attribute__((target("pclmul,sse4.1")))
#define TARGET_512 __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))
#define INLINE	   static inline __attribute__((always_inline))

/* To fold over n bits, a lane's halves are multiplied by x^(n + 32) and x^(n - 32)
 * modulo the polynomial; here all bits are mirrored, and shifted by one. */
#define FOLD_128  0x00ccaa009e, 0x01751997d0
#define FOLD_256  0x015a546366, 0x00f1da05aa
#define FOLD_384  0x0174359406, 0x003db1ecdc
#define FOLD_512  0x01c6e41596, 0x0154442bd4
#define FOLD_2048 0x01322d1430, 0x011542778a

/* The source of a message and the destination of its copy; NULL: no copy. */
struct message {
	const uint8_t *from;
	uint8_t *to;
	size_t length;
};

TARGET_128 INLINE __m128i take_128(struct message *message)
{
	__m128i block = _mm_loadu_si128((const __m128i *)(const void *)message->from);

	if (message->to) {
		_mm_storeu_si128((__m128i *)(void *)message->to, block);
		message->to += sizeof(block);
	}
	message->from += sizeof(block);
	message->length -= sizeof(block);
	return block;
}

TARGET_128 INLINE __m128i fold_128(__m128i block, __m128i by)
{
	return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00),
			     _mm_clmulepi64_si128(block, by, 0x11));
}

/* The remainder of 128 bits: with x^96 and x^64 to 64 bits, from there with the inverse
 * of the polynomial, of which only the upper half is needed (Barrett). */
TARGET_128 INLINE uint32_t remainder_of(__m128i block)
{
	const __m128i by_96 = _mm_set_epi64x(0, 0x00ccaa009e);
	const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
	const __m128i inverse_and_polynomial =
		_mm_set_epi64x(0x01f7011641, 0x01db710641);
	const __m128i low = _mm_set_epi32(0, 0, 0, -1);
	__m128i quotient;

	block = _mm_xor_si128(_mm_srli_si128(block, 8),
			      _mm_clmulepi64_si128(block, by_96, 0x00));
	block = _mm_xor_si128(_mm_srli_si128(block, 4),
			      _mm_clmulepi64_si128(_mm_and_si128(block, low), by_64,
						   0x00));
	quotient = _mm_clmulepi64_si128(_mm_and_si128(block, low),
					inverse_and_polynomial, 0x10);
	quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low),
					inverse_and_polynomial, 0x00);
	return _mm_extract_epi32(_mm_xor_si128(block, quotient), 1);
}

/* Takes the first 4, 8 or 12 bytes of a longer message, as a block with zeros before
 * them. */
TARGET_128 INLINE __m128i take_odd(struct message *message, __m128i before)
{
	/* From `odd` on: the source of each byte of the block; 128: zero. */
	static const uint8_t places[32] = {
		128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
		128, 128, 128, 128, 128, 0,   1,   2,	3,   4,	  5,
		6,   7,	  8,   9,   10,	 11,  12,  13,	14,  15,
	};
	size_t odd = message->length % 16;
	struct message rest = { message->from + odd, NULL, message->length - odd };
	__m128i block;

	rest.to = message->to ? message->to + odd : NULL;
	block = _mm_xor_si128(take_128(message), before);
	*message = rest;
	return _mm_shuffle_epi8(block,
				_mm_loadu_si128(
					(const __m128i *)(const void *)(places + odd)));
}

/* Takes all blocks of 64 bytes. The result stands in for the last 16 bytes. */
TARGET_128 INLINE __m128i take_bulk_128(struct message *message, __m128i before)
{
	const __m128i by_512 = _mm_set_epi64x(FOLD_512);
	const __m128i by_128 = _mm_set_epi64x(FOLD_128);
	__m128i block[4];

	for (int i = 0; i < 4; i++)
		block[i] = take_128(message);
	block[0] = _mm_xor_si128(block[0], before);
	while (message->length >= 64)
		for (int i = 0; i < 4; i++)
			block[i] = _mm_xor_si128(fold_128(block[i], by_512),
						 take_128(message));
	for (int i = 1; i < 4; i++)
		block[i] = _mm_xor_si128(block[i], fold_128(block[i - 1], by_128));
	return block[3];
}

/*
 * 64 bytes at a time
 */

#define LINE  64
#define WORDS 16

/* Lines are prefetched so many bytes ahead, and lines to be written as well: otherwise
 * each store would stall when its turn comes. */
#define AHEAD 768

TARGET_512 INLINE void fetch_ahead(const struct message *message)
{
	for (int i = 0; i < 4; i++) {
		__builtin_prefetch(message->from + AHEAD + i * LINE);
		if (message->to)
			__builtin_prefetch(message->to + AHEAD + i * LINE, 1);
	}
}

TARGET_512 INLINE __m512i take_512(struct message *message)
{
	__m512i blocks = _mm512_loadu_si512(message->from);

	if (message->to) {
		_mm512_storeu_si512(message->to, blocks);
		message->to += LINE;
	}
	message->from += LINE;
	message->length -= LINE;
	return blocks;
}

/* Takes up to 16 words of four bytes, followed by zeros. */
TARGET_512 INLINE __m512i take_words(struct message *message, unsigned count)
{
	const __mmask16 some = (1u << count) - 1;
	__m512i words = _mm512_maskz_loadu_epi32(some, message->from);

	if (message->to) {
		_mm512_mask_storeu_epi32(message->to, some, words);
		message->to += (size_t)count * 4;
	}
	message->from += (size_t)count * 4;
	message->length -= (size_t)count * 4;
	return words;
}

/* 16 of the 32 words in two vectors, from `first` on. */
TARGET_512 INLINE __m512i words_from(unsigned first, __m512i low, __m512i high)
{
	const __m512i all =
		_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	const __m512i chosen = _mm512_add_epi32(all, _mm512_set1_epi32((int)first));

	return _mm512_permutex2var_epi32(low, chosen, high);
}

/* Folds, and adds the blocks at the destination. */
TARGET_512 INLINE __m512i fold_512(__m512i blocks, __m512i by, __m512i onto)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(blocks, by, 0x00),
					 _mm512_clmulepi64_epi128(blocks, by, 0x11),
					 onto, 0x96);
}

/* Folds each of four blocks over those behind it, onto the last one. */
TARGET_512 INLINE __m128i join_512(__m512i blocks)
{
	const __m512i by = _mm512_set_epi64(0, 0, FOLD_128, FOLD_256, FOLD_384);
	const __m512i last = _mm512_maskz_mov_epi64(0xc0, blocks);
	const __m512i all = fold_512(blocks, by, last);

	return _mm_xor_si128(_mm_xor_si128(_mm512_castsi512_si128(all),
					   _mm512_extracti32x4_epi32(all, 1)),
			     _mm_xor_si128(_mm512_extracti32x4_epi32(all, 2),
					   _mm512_extracti32x4_epi32(all, 3)));
}

/* Up to the end of a cache line: of the destination or, without one, of the source. Not
 * worth it for a few lines. */
TARGET_512 INLINE __m512i take_first(struct message *message, uint32_t crc)
{
	const __m512i before = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
	const uint8_t *at = message->to ? message->to : message->from;
	const unsigned count = WORDS - (uintptr_t)at % LINE / 4;

	if (message->length < 4 * LINE)
		return _mm512_xor_si512(take_512(message), before);
	return words_from(count, _mm512_setzero_si512(),
			  _mm512_xor_si512(take_words(message, count), before));
}

/* Four vectors at a time, while there are four; perhaps none. */
TARGET_512 INLINE __m512i take_many(struct message *message, __m512i first)
{
	const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_2048));
	const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_512));
	__m512i blocks[4] = { first };

	if (message->length < 192)
		return first;
	for (int i = 1; i < 4; i++)
		blocks[i] = take_512(message);
	while (message->length >= 256) {
		fetch_ahead(message);
		for (int i = 0; i < 4; i++)
			blocks[i] = fold_512(blocks[i], by_2048, take_512(message));
	}
	for (int i = 1; i < 4; i++)
		blocks[i] = fold_512(blocks[i - 1], by_512, blocks[i]);
	return blocks[3];
}

/* A partial vector: the blocks move by its length. */
TARGET_512 INLINE __m512i take_last(struct message *message, __m512i blocks)
{
	const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_512));
	const unsigned count = message->length / 4;
	const __m512i words = take_words(message, count);

	return fold_512(words_from(count, _mm512_setzero_si512(), blocks), by_512,
			words_from(count, blocks, words));
}

/*
 * The whole, of at least 16 bytes and a multiple of 4
 */

/* The value to be added to the next 16 bytes; there are at least that many. */
TARGET_128 INLINE __m128i begin(struct message *message, uint32_t crc)
{
	const __m128i by_128 = _mm_set_epi64x(FOLD_128);
	__m128i before = _mm_cvtsi32_si128((int)~crc);

	if (message->length % 16)
		before = fold_128(take_odd(message, before), by_128);
	return before;
}

TARGET_128 INLINE uint32_t finish(struct message *message, __m128i block)
{
	const __m128i by_128 = _mm_set_epi64x(FOLD_128);

	while (message->length)
		block = _mm_xor_si128(fold_128(block, by_128), take_128(message));
	return ~remainder_of(block);
}

TARGET_128 INLINE uint32_t crc_128(uint32_t crc, struct message message)
{
	__m128i block = begin(&message, crc);

	if (message.length >= 64)
		block = take_bulk_128(&message, block);
	else
		block = _mm_xor_si128(take_128(&message), block);
	return finish(&message, block);
}

TARGET_512 INLINE uint32_t crc_512(uint32_t crc, struct message message)
{
	const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_512));
	__m512i blocks;

	if (message.length < LINE)
		return crc_128(crc, message);
	blocks = take_many(&message, take_first(&message, crc));
	while (message.length >= LINE)
		blocks = fold_512(blocks, by_512, take_512(&message));
	if (message.length)
		blocks = take_last(&message, blocks);
	return ~remainder_of(join_512(blocks));
}

/*
 * Any length
 */

/* Takes up to three bytes, or all of a message that is too short for blocks. */
INLINE uint32_t take_bytes(struct message *message, uint32_t crc)
{
	size_t count = message->length < 16 ? message->length : message->length % 4;

	if (!count)
		return crc;
	crc = snt__crc32_portable(crc, message->from, count);
	if (message->to) {
		memcpy(message->to, message->from, count);
		message->to += count;
	}
	message->from += count;
	message->length -= count;
	return crc;
}

TARGET_128 static uint32_t only_128(uint32_t crc, const void *data, size_t length)
{
	struct message message = { data, NULL, length };

	crc = take_bytes(&message, crc);
	return message.length ? crc_128(crc, message) : crc;
}

TARGET_128 static uint32_t copy_128(uint32_t crc, void *to, const void *from,
				    size_t length)
{
	struct message message = { from, to, length };

	crc = take_bytes(&message, crc);
	return message.length ? crc_128(crc, message) : crc;
}

TARGET_512 static uint32_t only_512(uint32_t crc, const void *data, size_t length)
{
	struct message message = { data, NULL, length };

	crc = take_bytes(&message, crc);
	return message.length ? crc_512(crc, message) : crc;
}

TARGET_512 static uint32_t copy_512(uint32_t crc, void *to, const void *from,
				    size_t length)
{
	struct message message = { from, to, length };

	crc = take_bytes(&message, crc);
	return message.length ? crc_512(crc, message) : crc;
}

static const struct snt__crc32_way way_128 = { only_128, copy_128 };
static const struct snt__crc32_way way_512 = { only_512, copy_512 };

const struct snt__crc32_way *snt__crc32_fold_128(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")
		       ? &way_128
		       : NULL;
}

const struct snt__crc32_way *snt__crc32_fold_512(void)
{
	return snt__crc32_fold_128() && __builtin_cpu_supports("avx512f") &&
			       __builtin_cpu_supports("vpclmulqdq")
		       ? &way_512
		       : NULL;
}

#else

const struct snt__crc32_way *snt__crc32_fold_128(void)
{
	return NULL;
}

const struct snt__crc32_way *snt__crc32_fold_512(void)
{
	return NULL;
}

#endif
