/* SPDX-License-Identifier: MIT */
/* Messages of a connection from a hostile peer: what is accepted packs to the same
 * bytes. The first byte says which kind of body. */
#include <stdlib.h>
#include <string.h>

#include "conn/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_same(const uint8_t *a, size_t a_size, const uint8_t *b,
			size_t b_size)
{
	if (a_size != b_size || memcmp(a, b, a_size))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SNT__MESSAGE_MAX];
	union {
		struct snt__hello hello;
		struct snt__offer offer;
		struct snt__probe probe;
		struct snt__plan plan;
		struct snt__end end;
		struct snt__header header;
	} u;
	size_t rest;
	uint8_t kind;

	if (!size)
		return 0;
	kind = *data++ % 6;
	size--;
	if (size > SNT__MESSAGE_MAX)
		return 0;
	if (kind == 0 && !snt__hello_unpack(data, size, &u.hello))
		expect_same(data, size, again, snt__hello_pack(&u.hello, again));
	if (kind == 1 && !snt__offer_unpack(data, size, &u.offer))
		expect_same(data, size, again, snt__offer_pack(&u.offer, again));
	if (kind == 2 && !snt__probe_unpack(data, size, &u.probe))
		expect_same(data, size, again, snt__probe_pack(&u.probe, again));
	if (kind == 3 && !snt__plan_unpack(data, size, &u.plan, &rest))
		expect_same(data, rest, again, snt__plan_pack(&u.plan, again));
	if (kind == 4 && !snt__end_unpack(data, size, &u.end))
		expect_same(data, size, again, snt__end_pack(&u.end, again));
	if (kind == 5 && !snt__header_unpack(data, size, &u.header)) {
		snt__header_pack(&u.header, again);
		expect_same(data, SNT__HEADER_SIZE, again, SNT__HEADER_SIZE);
	}
	return 0;
}
