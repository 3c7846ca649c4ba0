/* SPDX-License-Identifier: MIT */
#include "copy_digest.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#ifdef SNT_HAVE_CRYPTO
#include <openssl/evp.h>
#endif

/* ECMA-182, reflected, as xz has it. */
#define POLYNOMIAL UINT64_C(0xc96c5795d7870f42)

static void make_table(uint64_t table[256])
{
	for (unsigned i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ POLYNOMIAL
						: table[i] >> 1;
	}
}

static uint64_t crc64_update(uint64_t crc, const uint8_t *bytes, size_t length)
{
	static uint64_t table[256];

	if (!table[1])
		make_table(table);
	crc = ~crc;
	while (length--)
		crc = table[(uint8_t)crc ^ *bytes++] ^ crc >> 8;
	return ~crc;
}

uint32_t copy_digest_known(void)
{
#ifdef SNT_HAVE_CRYPTO
	return COPY_CRC64 | COPY_SHA256;
#else
	return COPY_CRC64;
#endif
}

uint32_t copy_digest_best(uint32_t digests)
{
	digests &= copy_digest_known();
	return digests & COPY_SHA256 ? COPY_SHA256 : digests & COPY_CRC64;
}

const char *copy_digest_name(uint32_t kind)
{
	return kind == COPY_SHA256 ? "SHA-256" : kind == COPY_CRC64 ? "CRC-64" : "none";
}

int copy_digest_begin(struct copy_digest *digest, uint32_t kind)
{
	digest->kind = (enum copy_digest_kind)kind;
	digest->crc = 0;
	if (kind == COPY_CRC64)
		return 0;
#ifdef SNT_HAVE_CRYPTO
	if (!digest->state)
		digest->state = EVP_MD_CTX_new();
	if (!digest->state || !EVP_DigestInit_ex(digest->state, EVP_sha256(), NULL))
		return -ENOMEM;
	return 0;
#else
	return -EOPNOTSUPP;
#endif
}

void copy_digest_add(struct copy_digest *digest, const void *bytes, size_t length)
{
	if (digest->kind == COPY_CRC64)
		digest->crc = crc64_update(digest->crc, bytes, length);
#ifdef SNT_HAVE_CRYPTO
	else
		EVP_DigestUpdate(digest->state, bytes, length);
#endif
}

int copy_digest_value(const struct copy_digest *digest, uint8_t value[COPY_DIGEST])
{
	int ret = 0;

	memset(value, 0, COPY_DIGEST);
	if (digest->kind == COPY_CRC64) {
		uint64_t crc = htobe64(digest->crc);

		memcpy(value, &crc, sizeof(crc));
	}
#ifdef SNT_HAVE_CRYPTO
	if (digest->kind == COPY_SHA256) {
		EVP_MD_CTX *copy = EVP_MD_CTX_new();

		if (!copy || !EVP_MD_CTX_copy_ex(copy, digest->state) ||
		    !EVP_DigestFinal_ex(copy, value, NULL))
			ret = -ENOMEM;
		EVP_MD_CTX_free(copy);
	}
#endif
	return ret;
}

void copy_digest_end(struct copy_digest *digest)
{
#ifdef SNT_HAVE_CRYPTO
	EVP_MD_CTX_free(digest->state);
#endif
	memset(digest, 0, sizeof(*digest));
}
