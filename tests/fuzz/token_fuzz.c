/* SPDX-License-Identifier: MIT */
/* Packed tokens from a hostile peer: whatever is accepted must go round. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/mem.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SNT_TOKEN_PACKED_MAX];
	struct snt_token token;
	unsigned right;
	uint64_t addr;
	uint32_t key;

	if (snt_token_unpack(data, size, &token))
		return 0;
	if (snt_token_pack(&token, again, sizeof(again)) != (ssize_t)size ||
	    memcmp(again, data, size))
		abort();
	right = token.access & -token.access;
	if (snt_token_target(&token, token.key_count - 1, token.length - 1, 1, right,
			     &addr, &key) ||
	    !snt_token_target(&token, 0, token.length, 1, right, &addr, &key))
		abort();
	return 0;
}
