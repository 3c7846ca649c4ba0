/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_PATTERN_H
#define TOOL_PERF_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/*
 * The contents of messages when every byte is verified: 64-bit words, each made from
 * the seed, the message's number and the word's place, so that bytes which are wrong,
 * stale, of another message or at another place all differ from what is expected.
 */
void pattern_fill(void *memory, size_t length, uint64_t seed, uint64_t message);

struct pattern_fault {
	uint64_t wrong; /* bytes that differ; 0: none */
	uint64_t first; /* where the first is */
};

struct pattern_fault pattern_check(const void *memory, size_t length, uint64_t seed,
				   uint64_t message);

#endif
