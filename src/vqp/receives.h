/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RECEIVES_H
#define SNT_VQP_RECEIVES_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* A receive of the program. */
struct snt__recv {
	uint64_t wr_id;
	uint64_t length;
	uint32_t imm;
	uint32_t vendor_err;
	uint32_t pending; /* completions to come; not 0 before it is posted */
	uint8_t status;
	uint8_t flags;
	uint8_t lane;
	uint8_t sge_count;
};

/* Receives of one class: posted at tail, reported from head. */
struct snt__recv_ring {
	struct snt__recv *recv;
	struct ibv_sge *sge; /* recv_sge_max for each */
	uint32_t mask;
	uint32_t depth;
	uint32_t head;
	uint32_t done; /* of DQPLB notifications: the next to be matched */
	uint32_t tail;
	int32_t refusal; /* why nothing can be posted, or 0 */
};

/* The position of the first receive that has not been taken. */
static inline uint32_t snt__recv_ring_taken(const struct snt__recv_ring *ring)
{
	uint32_t at = ring->head;

	while (at != ring->tail && !ring->recv[at & ring->mask].pending)
		at++;
	return at;
}

#endif
