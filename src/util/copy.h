/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_COPY_H
#define SNT_UTIL_COPY_H

#include <stdint.h>
#include <string.h>

/*
 * memcpy() for payload. The C library leaves what is long to `rep movsb` if the processor
 * recommends it. For that Zen 4 takes more than twice as long where the two places are a
 * few bytes apart modulo 4096, as memory of malloc() and a page mostly are.
 */

#define SNT__COPY_LONG 2048

typedef uint64_t snt__copy_part __attribute__((vector_size(16)));

static inline snt__copy_part snt__copy_load(const uint8_t *from)
{
	snt__copy_part part;

	memcpy(&part, from, sizeof(part));
	return part;
}

static inline void snt__copy_store(uint8_t *to, snt__copy_part part)
{
	memcpy(to, &part, sizeof(part));
}

static inline void snt__copy(void *target, const void *source, size_t length)
{
	const uint8_t *from = source;
	uint8_t *to = target;

	for (size_t left = length < SNT__COPY_LONG ? 0 : length / 64; left; left--) {
		snt__copy_part a = snt__copy_load(from), b = snt__copy_load(from + 16),
			       c = snt__copy_load(from + 32),
			       d = snt__copy_load(from + 48);

		snt__copy_store(to, a);
		snt__copy_store(to + 16, b);
		snt__copy_store(to + 32, c);
		snt__copy_store(to + 48, d);
		from += 64;
		to += 64;
	}
	memcpy(to, from, length - (size_t)(to - (uint8_t *)target));
}

#endif
