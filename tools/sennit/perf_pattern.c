/* SPDX-License-Identifier: MIT */
#include "perf_pattern.h"

#include <endian.h>
#include <string.h>

/* Odd, so that no two words of a message are the same. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

/* splitmix64: neighbouring messages have nothing in common. */
static uint64_t first_word(uint64_t seed, uint64_t message)
{
	uint64_t z = seed + (message + 1) * STEP;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

void pattern_fill(void *memory, size_t length, uint64_t seed, uint64_t message)
{
	unsigned char *at = memory;
	uint64_t word = first_word(seed, message), little;

	for (; length >= sizeof(word); length -= sizeof(word), at += sizeof(word)) {
		little = htole64(word);
		memcpy(at, &little, sizeof(little));
		word += STEP;
	}
	little = htole64(word);
	memcpy(at, &little, length);
}

static void count_wrong(const unsigned char *is, uint64_t word, size_t length,
			uint64_t offset, struct pattern_fault *fault)
{
	unsigned char should[sizeof(word)];

	word = htole64(word);
	memcpy(should, &word, sizeof(should));
	for (size_t i = 0; i < length; i++)
		if (is[i] != should[i] && !fault->wrong++)
			fault->first = offset + i;
}

struct pattern_fault pattern_check(const void *memory, size_t length, uint64_t seed,
				   uint64_t message)
{
	const unsigned char *at = memory;
	uint64_t word = first_word(seed, message), is;
	struct pattern_fault fault = { 0, 0 };
	size_t done = 0;

	for (; length - done >= sizeof(word); done += sizeof(word)) {
		memcpy(&is, at + done, sizeof(is));
		if (is != htole64(word))
			count_wrong(at + done, word, sizeof(word), done, &fault);
		word += STEP;
	}
	count_wrong(at + done, word, length - done, done, &fault);
	return fault;
}
