/* SPDX-License-Identifier: MIT */
/* Receipts from a hostile peer: whatever is accepted must go round. */
#include <stdlib.h>
#include <string.h>

#include "vqp/receipt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SNT_RECEIPT_PACKED_MAX];
	struct snt__receipt receipt;

	if (snt__receipt_unpack(data, size, &receipt))
		return 0;
	if (snt__receipt_pack(&receipt, again, sizeof(again)) != (ssize_t)size ||
	    memcmp(again, data, size))
		abort();
	return 0;
}
