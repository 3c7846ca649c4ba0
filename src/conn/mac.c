/* SPDX-License-Identifier: MIT */
#include "conn/mac.h"

#ifdef SNT_HAVE_CRYPTO

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "conn/message.h"

/* Both parts are copied to one buffer, since libcrypto deprecates the functions that
 * take parts. */
#define INPUT_MAX (2 * SNT__MESSAGE_MAX)

bool snt__mac_available(void)
{
	return true;
}

bool snt__mac(const void *key, size_t key_length, const void *first,
	      size_t first_length, const void *second, size_t second_length,
	      uint8_t out[SNT__MAC_SIZE])
{
	uint8_t input[INPUT_MAX];
	unsigned length = SNT__MAC_SIZE;

	if (key_length > INT_MAX || first_length > INPUT_MAX ||
	    second_length > INPUT_MAX - first_length)
		return false;
	for (size_t i = 0; i < first_length; i++)
		input[i] = ((const uint8_t *)first)[i];
	for (size_t i = 0; i < second_length; i++)
		input[first_length + i] = ((const uint8_t *)second)[i];
	return HMAC(EVP_sha256(), key, (int)key_length, input,
		    first_length + second_length, out, &length) &&
	       length == SNT__MAC_SIZE;
}

bool snt__mac_equal(const uint8_t a[SNT__MAC_SIZE], const uint8_t b[SNT__MAC_SIZE])
{
	return !CRYPTO_memcmp(a, b, SNT__MAC_SIZE);
}

#else

bool snt__mac_available(void)
{
	return false;
}

bool snt__mac(const void *key, size_t key_length, const void *first,
	      size_t first_length, const void *second, size_t second_length,
	      uint8_t out[SNT__MAC_SIZE])
{
	(void)key;
	(void)key_length;
	(void)first;
	(void)first_length;
	(void)second;
	(void)second_length;
	(void)out;
	return false;
}

bool snt__mac_equal(const uint8_t a[SNT__MAC_SIZE], const uint8_t b[SNT__MAC_SIZE])
{
	(void)a;
	(void)b;
	return false;
}

#endif
