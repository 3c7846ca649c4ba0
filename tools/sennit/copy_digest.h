/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_DIGEST_H
#define SENNIT_TOOL_COPY_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "copy_frame.h"

/* Digests that show whether a file has arrived unchanged: SHA-256 of libcrypto, and for
 * tools built without it a 64-bit CRC, which is enough against accidents. They are bits
 * in OPEN. */
enum copy_digest_kind {
	COPY_CRC64 = 1 << 0,
	COPY_SHA256 = 1 << 1,
};

struct copy_digest {
	enum copy_digest_kind kind;
	void *state; /* of libcrypto */
	uint64_t crc;
};

/* The digests of this build. */
uint32_t copy_digest_known(void);
/* The best of these; 0: this build has none of them. */
uint32_t copy_digest_best(uint32_t digests);
const char *copy_digest_name(uint32_t kind);

/* Begins, or begins again. 0; -ENOMEM; -EOPNOTSUPP. */
int copy_digest_begin(struct copy_digest *digest, uint32_t kind);
void copy_digest_add(struct copy_digest *digest, const void *bytes, size_t length);
/* The digest of all bytes so far; more may follow. 0; -ENOMEM. */
int copy_digest_value(const struct copy_digest *digest, uint8_t value[COPY_DIGEST]);
void copy_digest_end(struct copy_digest *digest);

#endif
