/* SPDX-License-Identifier: MIT */
#ifndef NCCL_WIRE_H
#define NCCL_WIRE_H

#include <netinet/in.h>
#include <stdint.h>

/*
 * What peers of the plugin read, for tests that take the place of one: the parts of a handle and
 * of a frame that all versions of the protocol have. Integers are in network byte order.
 */

struct handle_head {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address;
	uint64_t nonce;
	char magic[8];
	uint32_t version;
};

struct frame_head {
	uint64_t nonce;
	char magic[8];
	uint32_t version;
	uint16_t kind, length;
};

#define KIND_CARD    1
#define KIND_REFUSED 2
#define KIND_READY   3

#endif
