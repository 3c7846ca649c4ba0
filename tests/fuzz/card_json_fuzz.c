/* SPDX-License-Identifier: MIT */
/* JSON cards from a hostile peer: whatever is accepted must be a card that can be
 * packed, and come back from its own text. */
#include <stdlib.h>
#include <string.h>
#include <sennit/card.h>

#include "vqp/card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[SNT__CARD_JSON_MAX];
	uint8_t packed[SNT_CARD_PACKED_MAX], again[SNT_CARD_PACKED_MAX];
	struct snt_card card, back;
	ssize_t length, packed_size;

	if (snt_card_from_json((const char *)data, size, &card))
		return 0;
	packed_size = snt_card_pack(&card, packed, sizeof(packed));
	length = snt_card_to_json(&card, text, sizeof(text));
	if (packed_size < 0 || length < 0 || snt_card_from_json(text, length, &back))
		abort();
	if (snt_card_pack(&back, again, sizeof(again)) != packed_size ||
	    memcmp(again, packed, packed_size))
		abort();
	return 0;
}
