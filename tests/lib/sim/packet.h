/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_PACKET_H
#define SNT_DEV_SOFT_SIM_PACKET_H

#include <stddef.h>
#include <stdint.h>

struct snt__sim_device;

/* IPv6, UDP, BTH, the longest extension headers, 4096 bytes and ICRC. */
#define SNT__SIM_PACKET_MAX 4288
#define SNT__SIM_HOPS_MAX   4

/* A packet on its way, with all that stands on the wire. */
struct snt__sim_packet {
	struct snt__sim_packet *next; /* in the pool */
	struct snt__sim_device *from, *to;
	uint8_t hop; /* how many links it has passed */
	uint8_t flags;
	uint16_t length;
	uint32_t flow; /* the QP it goes to */
	/* So that a check of its headers reads whole words. */
	_Alignas(8) uint8_t bytes[SNT__SIM_PACKET_MAX];
};

enum snt__sim_packet_flags {
	SNT__SIM_CORRUPTED = 1 << 0,
	SNT__SIM_COPY = 1 << 1, /* a link made two of one */
};

/* Packets are used again; memory comes in blocks and goes with the pool. */
struct snt__sim_pool {
	struct snt__sim_packet *unused;
	struct snt__sim_block *blocks;
	size_t taken;
};

/* NULL if there is no memory. Its contents are undefined. */
struct snt__sim_packet *snt__sim_packet_take(struct snt__sim_pool *pool);
void snt__sim_packet_give(struct snt__sim_pool *pool, struct snt__sim_packet *packet);
void snt__sim_pool_free(struct snt__sim_pool *pool);

#endif
