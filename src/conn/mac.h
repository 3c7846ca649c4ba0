/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_MAC_H
#define SNT_CONN_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A keyed hash, HMAC-SHA-256 by OpenSSL's libcrypto, if the library was built with it.
 * Only this file depends on which hash it is.
 */
#define SNT__MAC_SIZE 32

bool snt__mac_available(void);

/* The hash of two concatenated parts; the second may be empty. False: it failed. */
bool snt__mac(const void *key, size_t key_length, const void *first,
	      size_t first_length, const void *second, size_t second_length,
	      uint8_t out[SNT__MAC_SIZE]);

/* Constant time. */
bool snt__mac_equal(const uint8_t a[SNT__MAC_SIZE], const uint8_t b[SNT__MAC_SIZE]);

#endif
