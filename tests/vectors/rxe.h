/* SPDX-License-Identifier: MIT */
#ifndef RXE_H
#define RXE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Packets that the kernel's rxe sent, taken apart. Both IP versions and every opcode
 * are there. */

static const struct {
	const char *name, *hex;
} rxe_packets[] = {
#include "rxe.inc"
};

#define RXE_PACKETS (sizeof(rxe_packets) / sizeof(rxe_packets[0]))

struct rxe_packet {
	uint8_t source[16], target[16]; /* GIDs */
	uint16_t source_port, target_port;
	uint16_t identification, fragment;
	unsigned version;
	size_t length;	    /* from BTH to ICRC */
	uint8_t bytes[512]; /* the same */
};

static inline uint16_t rxe_get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

/* From an IPv4 address, or from a longer one. */
static inline void rxe_gid(uint8_t gid[16], const uint8_t *address, size_t length)
{
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 16 - length, address, length);
}

static inline struct rxe_packet rxe_packet(size_t index)
{
	const char *hex = rxe_packets[index].hex;
	size_t length = strlen(hex) / 2, size, udp;
	struct rxe_packet packet = { 0 };
	uint8_t ip[600];

	for (size_t i = 0; i < length; i++) {
		char digits[3] = { hex[2 * i], hex[2 * i + 1] };

		ip[i] = strtoul(digits, NULL, 16);
	}
	packet.version = ip[0] >> 4;
	size = packet.version == 4 ? 4 : 16;
	udp = packet.version == 4 ? 20 : 40;
	packet.identification = rxe_get16(ip + 4);
	packet.fragment = rxe_get16(ip + 6);
	rxe_gid(packet.source, ip + udp - 2 * size, size);
	rxe_gid(packet.target, ip + udp - size, size);
	packet.source_port = rxe_get16(ip + udp);
	packet.target_port = rxe_get16(ip + udp + 2);
	packet.length = length - udp - 8;
	memcpy(packet.bytes, ip + udp + 8, packet.length);
	return packet;
}

#endif
