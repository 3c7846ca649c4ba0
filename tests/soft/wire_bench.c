/* SPDX-License-Identifier: MIT */
/*
 * What a packet costs by itself: encoding, decoding, sealing with an ICRC and checking
 * it, per size of payload; and the CRC, ours and the library's. Internal functions, and
 * therefore not in bench/.
 */
#include <stdio.h>
#include <stdlib.h>

#include "dev/soft/crc.h"
#include "dev/soft/icrc.h"
#include "dev/soft/wire.h"
#include "lib/bench.h"

#define COUNT	   1024
#define LENGTH_MAX 4096

static uint8_t packet[SNT__WIRE_HEADER_MAX + LENGTH_MAX + SNT__ICRC_TRAILER_MAX];
static struct snt__icrc_flow flow;
static const struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };

static struct snt__wire_packet write_of(size_t length)
{
	return (struct snt__wire_packet){ .opcode = SNT__WIRE_WRITE_ONLY,
					  .flags = SNT__WIRE_MIGRATED,
					  .pkey = SNT__WIRE_PKEY_DEFAULT,
					  .qpn = 0x123456,
					  .reth = { 0x7f0011223344, 0x77, length },
					  .payload_length = length };
}

static const struct snt__wire_packet acknowledge = {
	.opcode = SNT__WIRE_ACKNOWLEDGE,
	.pkey = SNT__WIRE_PKEY_DEFAULT,
	.qpn = 0x123456,
	.ack = { .syndrome = SNT__SYNDROME_ACK_UNLIMITED },
};

static void encode(void *arg, unsigned count)
{
	struct snt__wire_packet each = *(const struct snt__wire_packet *)arg;

	for (unsigned i = 0; i < count; i++) {
		each.psn = i;
		bench_use(&each);
		snt__wire_encode(&each, packet);
		bench_use(packet);
	}
}

static void decode(void *arg, unsigned count)
{
	struct snt__wire_packet out;
	size_t length = snt__wire_encode(arg, packet);

	for (unsigned i = 0; i < count; i++) {
		bench_use(packet);
		snt__wire_decode(packet, length, &out);
		bench_use(&out);
	}
}

/* Writes of so many bytes. */
static size_t seal_once(size_t length)
{
	struct snt__wire_packet write = write_of(length);
	struct iovec payload = { packet + 28, length };
	size_t header = snt__wire_encode(&write, packet);

	return header + length +
	       snt__icrc_seal(&flow, ipv4, packet, header, &payload, 1,
			      packet + header + length);
}

static void seal(void *arg, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		seal_once(*(const size_t *)arg);
		bench_use(packet);
	}
}

static void check(void *arg, unsigned count)
{
	size_t length = seal_once(*(const size_t *)arg);

	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)snt__icrc_check(&flow, ipv4, packet, length));
}

/* With a guess that is always wrong. */
static void check_any(void *arg, unsigned count)
{
	size_t length = seal_once(*(const size_t *)arg);

	for (unsigned i = 0; i < count; i++) {
		struct snt__icrc_ipv4 guess = { 0x1234 + i, ipv4.fragment };

		snt__icrc_check_any(&flow, &guess, packet, length);
		bench_use(&guess);
	}
}

static void crc_portable(void *arg, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)snt__crc32_portable(i, packet,
							    *(const size_t *)arg));
}

static void crc(void *arg, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		bench_use((void *)(long)snt__crc32(i, packet, *(const size_t *)arg));
}

static const struct {
	const char *name;
	bench_fn fn;
	const char *baseline; /* the first letters of the case of the same size */
} cases[] = {
	{ "seal", seal, NULL },
	{ "check", check, NULL },
	{ "check-any", check_any, "check" },
	{ "crc-portable", crc_portable, NULL },
	{ "crc", crc, "crc-portable" },
};

int main(int argc, char **argv)
{
	static size_t lengths[] = { 64, 1024, LENGTH_MAX };
	static char names[sizeof(cases) / sizeof(cases[0])][3][32], baseline[32];
	static const uint8_t gid[16] = {
		[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1
	};
	struct bench *bench = bench_begin("wire", argc, argv);
	struct snt__wire_packet write = write_of(0), ack = acknowledge;

	snt__icrc_flow_init(&flow, gid, gid, 0xc000, SNT__WIRE_PORT);
	bench_case(bench, "encode-write", encode, &write, COUNT, NULL);
	bench_case(bench, "encode-ack", encode, &ack, COUNT, NULL);
	bench_case(bench, "decode-write", decode, &write, COUNT, NULL);
	bench_case(bench, "decode-ack", decode, &ack, COUNT, NULL);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (unsigned k = 0; k < 3; k++) {
			snprintf(names[i][k], sizeof(names[i][k]), "%s-%zu",
				 cases[i].name, lengths[k]);
			snprintf(baseline, sizeof(baseline), "%s-%zu",
				 cases[i].baseline ? cases[i].baseline : "",
				 lengths[k]);
			bench_case(bench, names[i][k], cases[i].fn, &lengths[k], COUNT,
				   cases[i].baseline ? baseline : NULL);
		}
	}
	return bench_end(bench);
}
