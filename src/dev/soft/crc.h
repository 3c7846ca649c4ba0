/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CRC_H
#define SNT_DEV_SOFT_CRC_H

#include <stddef.h>
#include <stdint.h>
#ifdef SNT_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

/*
 * CRC-32 as Ethernet and zlib have it. `crc` is 0, or the CRC of what came before, so
 * that a message may come in pieces. The result is the same on every machine.
 */

/* Eight bytes at a time by table; runs anywhere. */
uint32_t snt__crc32_portable(uint32_t crc, const void *data, size_t length);

/* The fastest there is. */
static inline uint32_t snt__crc32(uint32_t crc, const void *data, size_t length)
{
#ifdef SNT_HAVE_LIBDEFLATE
	/* It takes an empty piece at NULL for a new beginning. */
	return length ? libdeflate_crc32(crc, data, length) : crc;
#else
	return snt__crc32_portable(crc, data, length);
#endif
}

#endif
