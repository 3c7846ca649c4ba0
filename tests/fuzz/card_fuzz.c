/* SPDX-License-Identifier: MIT */
/* Packed cards from a hostile peer: whatever is accepted must go round, also by
 * way of JSON. */
#include <stdlib.h>
#include <string.h>
#include <sennit/card.h>

#include "vqp/card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[SNT__CARD_JSON_MAX];
	uint8_t again[SNT_CARD_PACKED_MAX];
	struct snt_card card, back;
	ssize_t length;

	if (snt_card_unpack(data, size, &card))
		return 0;
	if (snt_card_pack(&card, again, sizeof(again)) != (ssize_t)size ||
	    memcmp(again, data, size))
		abort();
	length = snt_card_to_json(&card, text, sizeof(text));
	if (length < 0 || snt_card_from_json(text, length, &back))
		abort();
	if (snt_card_pack(&back, again, sizeof(again)) != (ssize_t)size ||
	    memcmp(again, data, size))
		abort();
	return 0;
}
