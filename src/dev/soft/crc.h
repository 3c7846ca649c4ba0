/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CRC_H
#define SNT_DEV_SOFT_CRC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CRC-32 as Ethernet and zlib have it. `crc` is 0, or the CRC of what came before, so
 * that a message may come in pieces. The result is the same on every machine.
 */

/* Eight bytes at a time by table; runs anywhere. */
uint32_t snt__crc32_portable(uint32_t crc, const void *data, size_t length);

/* An implementation: the CRC alone, and together with a copy. */
struct snt__crc32_way {
	uint32_t (*only)(uint32_t crc, const void *data, size_t length);
	uint32_t (*copy)(uint32_t crc, void *to, const void *from, size_t length);
};

/* crc_fold.c: 16 and 64 bytes at a time. NULL where the processor cannot. */
const struct snt__crc32_way *snt__crc32_fold_128(void);
const struct snt__crc32_way *snt__crc32_fold_512(void);

/* The fastest one, determined on first use. */
extern _Atomic(const struct snt__crc32_way *) snt__crc32_way;

static inline uint32_t snt__crc32(uint32_t crc, const void *data, size_t length)
{
	return atomic_load_explicit(&snt__crc32_way, memory_order_relaxed)
		->only(crc, data, length);
}

/* The CRC is that of the copied bytes, even if the source changes meanwhile. */
static inline uint32_t snt__crc32_copy(uint32_t crc, void *to, const void *from,
				       size_t length)
{
	return atomic_load_explicit(&snt__crc32_way, memory_order_relaxed)
		->copy(crc, to, from, length);
}

#endif
