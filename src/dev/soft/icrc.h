/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_ICRC_H
#define SNT_DEV_SOFT_ICRC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "dev/soft/wire.h"

/*
 * The invariant CRC that ends every RoCEv2 packet. It covers everything that a router
 * leaves alone: addresses, lengths and ports of IP and UDP, and all from the BTH to the
 * pad except for its congestion bits; over IPv4 also the identification.
 */

#define SNT__ICRC_SIZE	      4
#define SNT__ICRC_TRAILER_MAX 7 /* pad and ICRC */

/* The headers below the BTH, as the ICRC sees them: once per flow. The CRC for the last
 * packet is kept, since the next one mostly has the same length. */
struct snt__icrc_flow {
	uint8_t bytes[56]; /* LRH stand-in, IP, UDP; varying fields are open */
	uint8_t size;	   /* 36 for IPv4, 56 for IPv6 */
	uint16_t fragment; /* of the last packet */
	uint16_t length;   /* of the last packet, from BTH to ICRC; 0: there was none */
	uint32_t crc;	   /* up to its BTH, for an identification of 0 */
};

/* Addresses as in a GID, both of the same family; an IPv4 address is a mapped one. */
void snt__icrc_flow_init(struct snt__icrc_flow *flow, const uint8_t source[16],
			 const uint8_t target[16], uint16_t source_port,
			 uint16_t target_port);

/* The part of an IPv4 header that the ICRC covers and a flow does not contain. IPv6 has
 * no such part and ignores it. */
struct snt__icrc_ipv4 {
	uint16_t identification;
	uint16_t fragment; /* flags and offset */
};

#define SNT__ICRC_DONT_FRAGMENT 0x4000

/*
 * The value that snt__crc32() starts from: continued with the bytes of a packet from
 * the BTH to the pad, it gives the ICRC. `length` is that from BTH to ICRC.
 */
uint32_t snt__icrc_begin(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
			 const uint8_t *bth, size_t length);

/*
 * Writes what follows the payload of a packet: pad and ICRC. `header` is what
 * snt__wire_encode() wrote, in a buffer of the full size. Returns the number of bytes
 * written, 4 to 7.
 */
size_t snt__icrc_seal(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
		      const uint8_t header[SNT__WIRE_HEADER_MAX], size_t header_length,
		      const struct iovec *payload, unsigned payload_count,
		      uint8_t trailer_out[SNT__ICRC_TRAILER_MAX]);

/*
 * Is the ICRC of a packet, from BTH to ICRC, right? Returns 0, or -EBADMSG, also for a
 * packet that is too short or too long to have one.
 */
int snt__icrc_check(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 ipv4,
		    const uint8_t *packet, size_t length);

/*
 * The same where the identification of an IPv4 packet is unknown, as behind a socket:
 * any is accepted. That leaves 16 of the ICRC's 32 bits, so that one in 2^16 of the
 * packets with random damage gets through; single flipped bits do not. A right guess
 * makes it faster; a wrong one is replaced by the value found. IPv6 is checked in full.
 */
int snt__icrc_check_any(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 *guess,
			const uint8_t *packet, size_t length);

#endif
