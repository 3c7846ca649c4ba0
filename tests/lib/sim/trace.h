/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_TRACE_H
#define SNT_DEV_SOFT_SIM_TRACE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * A hash of all that was delivered, and when: two runs with the same one were the
 * same run. Not for adversaries.
 */

static inline uint64_t snt__sim_trace_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ hash >> 32;
}

static inline uint64_t snt__sim_trace_load(const uint8_t *bytes, size_t length)
{
	uint64_t word = 0;

	memcpy(&word, bytes, length);
	return le64toh(word);
}

/* Four at a time, each on its own: a multiplication takes long, but four of them take
 * no longer. */
static inline uint64_t snt__sim_trace(uint64_t hash, uint64_t time,
				      const uint8_t *bytes, size_t length)
{
	uint64_t lane[4] = { snt__sim_trace_word(hash, time), length, 2, 3 };

	for (; length >= 32; length -= 32, bytes += 32)
		for (unsigned i = 0; i < 4; i++)
			lane[i] = snt__sim_trace_word(lane[i],
						      snt__sim_trace_load(bytes + 8 * i,
									  8));
	for (; length >= 8; length -= 8, bytes += 8)
		lane[0] = snt__sim_trace_word(lane[0], snt__sim_trace_load(bytes, 8));
	lane[0] = snt__sim_trace_word(lane[0], snt__sim_trace_load(bytes, length));
	for (unsigned i = 1; i < 4; i++)
		lane[0] = snt__sim_trace_word(lane[0], lane[i]);
	return lane[0];
}

#endif
