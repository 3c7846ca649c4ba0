/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_WR_STORE_H
#define SNT_VQP_WR_STORE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Parts of a WR that are written as a whole, 16 bytes at once. Consecutive fragments on
 * a lane differ by one addition in each part, and a device that reads as much at once
 * need not wait until several stores have completed.
 */

/* Element 0 comes first in memory, on every processor. */
typedef uint64_t snt__words __attribute__((vector_size(16)));
typedef uint32_t snt__quarters __attribute__((vector_size(16)));

/* Two fields of 32 bits in the order in which they lie in memory. */
static inline uint64_t snt__pair(uint32_t first, uint32_t second)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (uint64_t)second << 32 | first;
#else
	return (uint64_t)first << 32 | second;
#endif
}

/* An SGE. */
static inline snt__words snt__sge_words(uint64_t addr, uint32_t length, uint32_t key)
{
	_Static_assert(sizeof(struct ibv_sge) == sizeof(snt__words) &&
			       offsetof(struct ibv_sge, length) == 8 &&
			       offsetof(struct ibv_sge, lkey) == 12,
		       "an address and a pair");
	return (snt__words){ addr, snt__pair(length, key) };
}

static inline void snt__sge_set(struct ibv_sge *sge, snt__words words)
{
	memcpy(sge, &words, sizeof(words));
}

/* The target of a WR at the peer; the bytes after the key belong to atomics. */
static inline snt__words snt__remote_words(uint64_t addr, uint32_t key)
{
	return (snt__words){ addr, snt__pair(key, 0) };
}

static inline void snt__remote_set(struct ibv_send_wr *wr, snt__words words)
{
	_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.rkey) ==
				       offsetof(struct ibv_send_wr, wr) + 8 &&
			       sizeof(wr->wr) >= sizeof(words),
		       "an address and a key");
	memcpy(&wr->wr, &words, sizeof(words));
}

/* Opcode and flags of a WR with one SGE. */
static inline void snt__kind_set(struct ibv_send_wr *wr, uint32_t verb, uint32_t flags,
				 uint32_t imm)
{
	snt__quarters kind = { 1, verb, flags, imm };

	_Static_assert(offsetof(struct ibv_send_wr, opcode) ==
				       offsetof(struct ibv_send_wr, num_sge) + 4 &&
			       offsetof(struct ibv_send_wr, send_flags) ==
				       offsetof(struct ibv_send_wr, num_sge) + 8 &&
			       offsetof(struct ibv_send_wr, imm_data) ==
				       offsetof(struct ibv_send_wr, num_sge) + 12,
		       "four fields of 32 bits");
	memcpy(&wr->num_sge, &kind, sizeof(kind));
}

#endif
