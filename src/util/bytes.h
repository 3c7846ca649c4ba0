/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_BYTES_H
#define SNT_UTIL_BYTES_H

#include <stdint.h>

/* Numbers in network byte order, at any alignment. */

static inline void snt__put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void snt__put24(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	snt__put16(at + 1, value);
}

static inline void snt__put32(uint8_t *at, uint32_t value)
{
	snt__put16(at, value >> 16);
	snt__put16(at + 2, value);
}

static inline void snt__put64(uint8_t *at, uint64_t value)
{
	snt__put32(at, (uint32_t)(value >> 32));
	snt__put32(at + 4, (uint32_t)value);
}

static inline uint16_t snt__get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t snt__get24(const uint8_t *at)
{
	return (uint32_t)at[0] << 16 | snt__get16(at + 1);
}

static inline uint32_t snt__get32(const uint8_t *at)
{
	return (uint32_t)snt__get16(at) << 16 | snt__get16(at + 2);
}

static inline uint64_t snt__get64(const uint8_t *at)
{
	return (uint64_t)snt__get32(at) << 32 | snt__get32(at + 4);
}

#endif
