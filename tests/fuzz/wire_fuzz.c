/* SPDX-License-Identifier: MIT */
/* Packets from a hostile peer: whatever is accepted must go round, except for reserved
 * bits, and sealed by us it must be right. */
#include <stdlib.h>
#include <string.h>

#include "dev/soft/icrc.h"
#include "dev/soft/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };
static const uint8_t gid[2][16] = {
	{ [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 },
	{ 0xfd, [15] = 1 },
};

/* The packet with its trailer passes; the flow decides on the version of IP. */
static void expect_sealed(struct snt__icrc_flow *flow, const uint8_t *data, size_t size,
			  const struct snt__wire_packet *packet)
{
	size_t header = packet->payload - data;
	const struct iovec payload = { (void *)packet->payload,
				       packet->payload_length };
	uint8_t *sealed = malloc(size + SNT__ICRC_TRAILER_MAX + SNT__WIRE_HEADER_MAX);
	struct snt__icrc_ipv4 guess = { 77, ipv4.fragment };

	if (!sealed)
		return;
	memcpy(sealed, data, size);
	size = header + payload.iov_len;
	size += snt__icrc_seal(flow, ipv4, sealed, header, &payload, 1, sealed + size);
	if (snt__icrc_check(flow, ipv4, sealed, size) ||
	    snt__icrc_check_any(flow, &guess, sealed, size))
		abort();
	sealed[size - 1] ^= 1;
	if (!snt__icrc_check(flow, ipv4, sealed, size))
		abort();
	free(sealed);
}

static void expect_round(const uint8_t *data, const struct snt__wire_packet *packet)
{
	uint8_t first[SNT__WIRE_HEADER_MAX], second[SNT__WIRE_HEADER_MAX];
	size_t size = snt__wire_encode(packet, first);
	struct snt__wire_packet again;

	if (data + size != packet->payload)
		abort();
	memcpy(second, data, size);
	second[4] = 0;
	second[8] &= 0x80;
	if (snt__wire_opcodes[packet->opcode].parts & SNT__WIRE_DETH)
		second[16] = 0;
	if (memcmp(first, second, size))
		abort();
	/* Without its payload, whose pad makes no sense then. */
	first[1] &= 0xcf;
	if (snt__wire_decode(first, size, &again) || again.psn != packet->psn ||
	    again.qpn != packet->qpn || again.flags != packet->flags)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct snt__wire_packet packet;
	bool is_good = !snt__wire_decode(data, size, &packet);

	if (is_good)
		expect_round(data, &packet);
	for (int i = 0; i < 2; i++) {
		struct snt__icrc_ipv4 guess = ipv4;
		struct snt__icrc_flow flow;

		snt__icrc_flow_init(&flow, gid[i], gid[i], SNT__WIRE_PORT,
				    SNT__WIRE_PORT);
		snt__icrc_check_any(&flow, &guess, data, size);
		if (is_good && size < 60000)
			expect_sealed(&flow, data, size, &packet);
	}
	return 0;
}
