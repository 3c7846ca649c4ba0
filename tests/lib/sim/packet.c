/* SPDX-License-Identifier: MIT */
#include "lib/sim/packet.h"

#include <stdlib.h>

#define BLOCK 32

struct snt__sim_block {
	struct snt__sim_block *next;
	struct snt__sim_packet packet[BLOCK];
};

static void add_block(struct snt__sim_pool *pool)
{
	struct snt__sim_block *block = malloc(sizeof(*block));

	if (!block)
		return;
	block->next = pool->blocks;
	pool->blocks = block;
	for (unsigned i = BLOCK; i-- > 0;) {
		block->packet[i].next = pool->unused;
		pool->unused = &block->packet[i];
	}
}

struct snt__sim_packet *snt__sim_packet_take(struct snt__sim_pool *pool)
{
	struct snt__sim_packet *packet;

	if (!pool->unused)
		add_block(pool);
	packet = pool->unused;
	if (!packet)
		return NULL;
	pool->unused = packet->next;
	pool->taken++;
	return packet;
}

void snt__sim_packet_give(struct snt__sim_pool *pool, struct snt__sim_packet *packet)
{
	packet->next = pool->unused;
	pool->unused = packet;
	pool->taken--;
}

void snt__sim_pool_free(struct snt__sim_pool *pool)
{
	while (pool->blocks) {
		struct snt__sim_block *block = pool->blocks;

		pool->blocks = block->next;
		free(block);
	}
	*pool = (struct snt__sim_pool){ 0 };
}
