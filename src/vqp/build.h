/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_BUILD_H
#define SNT_VQP_BUILD_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sennit/qp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dev/mem.h"
#include "vqp/lane.h"

/*
 * Physical WRs that carry a program's data or notify its peer are filled in here and
 * nowhere else (markers and memory windows fill in their own): runs of fragments with one
 * SGE each by snt__build_words(), all other WRs by snt__build_kind(), snt__build_sge() or
 * snt__build_list() for local memory, and snt__build_target() or snt__build_atomic() for
 * the peer's. wr_id and next are the caller's, and so is the choice of keys: local ones
 * by the lane's device, remote ones by its remote device.
 *
 * Parts of a WR are written as a whole, 16 bytes at once. Consecutive fragments on a
 * lane differ by one addition in each part, and a device that reads as much at once
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

/* Number of SGEs, opcode, flags, and the immediate as it is on the wire. */
static inline snt__quarters snt__kind_words(uint32_t sge_count, uint32_t verb,
					    uint32_t flags, uint32_t imm)
{
	_Static_assert(offsetof(struct ibv_send_wr, opcode) ==
				       offsetof(struct ibv_send_wr, num_sge) + 4 &&
			       offsetof(struct ibv_send_wr, send_flags) ==
				       offsetof(struct ibv_send_wr, num_sge) + 8 &&
			       offsetof(struct ibv_send_wr, imm_data) ==
				       offsetof(struct ibv_send_wr, num_sge) + 12,
		       "four fields of 32 bits");
	return (snt__quarters){ sge_count, verb, flags, imm };
}

/* Several fragments in a row differ by little: all words are given. */
static inline void snt__build_words(struct ibv_send_wr *wr, snt__quarters kind,
				    snt__words local, snt__words remote)
{
	memcpy(&wr->num_sge, &kind, sizeof(kind));
	snt__sge_set(wr->sg_list, local);
	snt__remote_set(wr, remote);
}

/* The same, field by field, which is faster where they have just been loaded. */
static inline void snt__build_kind(struct ibv_send_wr *wr, uint32_t sge_count,
				   uint32_t verb, uint32_t flags, uint32_t imm)
{
	wr->num_sge = sge_count;
	wr->opcode = verb;
	wr->send_flags = flags;
	wr->imm_data = imm;
}

/* The target of anything but an atomic. */
static inline void snt__build_target(struct ibv_send_wr *wr, uint64_t addr,
				     uint32_t key)
{
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = key;
}

static inline void snt__build_sge(struct ibv_sge *sge, uint64_t addr, uint32_t length,
				  uint32_t key)
{
	sge->addr = addr;
	sge->length = length;
	sge->lkey = key;
}

/* An empty write with an immediate. */
static inline void snt__build_empty(struct ibv_send_wr *wr, uint32_t flags,
				    uint32_t imm, uint64_t addr, uint32_t key)
{
	snt__build_kind(wr, 0, IBV_WR_RDMA_WRITE_WITH_IMM, flags, htonl(imm));
	snt__build_target(wr, addr, key);
}

static inline void snt__build_atomic(struct ibv_send_wr *wr, uint64_t addr,
				     uint32_t key, uint64_t compare_add, uint64_t swap)
{
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
	wr->wr.atomic.rkey = key;
}

/* SGEs of a program's list, without the empty ones, of which some devices believe that
 * they have 2^31 bytes. Inline data has no keys. Returns how many there are. */
static inline uint32_t snt__build_list(struct ibv_sge *to, const struct snt_sge *from,
				       uint32_t count, uint8_t device, bool inlined)
{
	const struct ibv_sge *first = to;

	for (uint32_t i = 0; i < count; i++, from++) {
		if (!from->length)
			continue;
		snt__build_sge(to++, (uintptr_t)from->addr, from->length,
			       inlined ? 0 : from->mem->local_key[device]);
	}
	return to - first;
}

/* The only fragment of a checked WR of one SGE, on this lane. */
static inline void snt__single_build(const struct snt_send_wr *wr,
				     const struct snt__lane *lane, uint32_t verb,
				     uint32_t flags, uint32_t imm,
				     struct ibv_send_wr *physical, struct ibv_sge *sge)
{
	physical->sg_list = sge;
	snt__build_kind(physical, 1, verb, flags, imm);
	snt__sge_set(sge, snt__sge_words((uintptr_t)wr->sge->addr, wr->sge->length,
					 wr->sge->mem->local_key[lane->device]));
	snt__build_target(physical, wr->remote_addr,
			  wr->remote->key[lane->remote_device]);
}

#endif
