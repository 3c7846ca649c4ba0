/* SPDX-License-Identifier: MIT */
/*
 * A peer that sends anything at any time: one end of a connection keeps its rules. The
 * input is a role, then messages: a type, a length of two bytes, the body. Headers are
 * made so that they fit, unless the type's highest bit is set.
 */
#include <stdlib.h>

#include "lib/conn_ends.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t wrap(const struct snt__handshake *hs, uint8_t type, const uint8_t *body,
		   size_t length, uint8_t *out)
{
	struct snt__header header = {
		.version = SNT__PROTOCOL_VERSION,
		.type = type & 0x7f,
		.length = (uint16_t)length,
		.session = hs->session,
	};

	if (type & 0x80) {
		memcpy(out, body, length);
		return length;
	}
	snt__header_pack(&header, out);
	memcpy(out + SNT__HEADER_SIZE, body, length);
	return SNT__HEADER_SIZE + length;
}

static void check(const struct snt__handshake *hs, bool was_over)
{
	if (was_over && !snt__handshake_over(hs))
		abort();
	if (snt__handshake_over(hs) && !hs->text[0])
		abort();
	if (hs->probe.count > SNT__PAIRS_MAX || hs->trials.count > SNT__PAIRS_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct snt__handshake hs;
	uint8_t bytes[SNT__MESSAGE_MAX + 1];
	struct snt__offer offer[2] = { ends_offer(0, 2), ends_offer(1, 2) };
	unsigned end;

	if (!size)
		return 0;
	end = *data++ & 1;
	size--;
	ends_init(&hs, end, 0, &offer[0], NULL);
	while (size >= 3) {
		uint8_t type = data[0];
		size_t length = ((size_t)data[1] << 8 | data[2]) % 3000;
		bool was_over = snt__handshake_over(&hs);

		data += 3;
		size -= 3;
		if (length > size)
			length = size;
		/* In a block of its own, so that reading beyond it shows. */
		uint8_t *copy = malloc(length + SNT__HEADER_SIZE);

		if (!copy)
			return 0;
		snt__handshake_input(&hs, copy, wrap(&hs, type, data, length, copy), 0);
		free(copy);
		data += length;
		size -= length;
		check(&hs, was_over);
		for (unsigned i = 0; i < 4; i++)
			ends_answer(&hs, &offer[end]);
		while (snt__handshake_output(&hs, bytes))
			;
		check(&hs, was_over);
	}
	return 0;
}
