/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SLOT_H
#define SNT_VQP_SLOT_H

#include "vqp/spread.h"

/* Physical WRs of what the send ring has stored of a WR (struct snt__slot). */

/* One more on this lane, which has room. */
static inline struct ibv_send_wr *snt__slot_add(struct snt_qp *qp,
						struct snt__lane *lane,
						uint32_t position, uint32_t sequence,
						uint64_t size)
{
	snt__qp_touch(qp, lane);
	qp->under_way++;
	return snt__lane_add(lane, position, sequence, size);
}

/* SGEs of the next `length` bytes of an SGE list; returns how many. */
uint32_t snt__slot_cut(struct snt_qp *qp, uint32_t position, uint8_t device,
		       uint64_t length, struct ibv_sge *to);

/* SGEs of the next `length` bytes of a WR; returns how many. */
static inline uint32_t snt__slot_sges(struct snt_qp *qp, const struct snt__slot *slot,
				      uint32_t position, uint8_t device,
				      uint64_t length, struct ibv_sge *to)
{
	if (!length)
		return 0;
	if (!slot->mem && !(slot->flags & SNT__SLOT_COPIED))
		return snt__slot_cut(qp, position, device, length, to);
	snt__build_sge(to, slot->addr + slot->sent, length,
		       slot->mem ? slot->mem->local_key[device] : 0);
	return 1;
}

static inline uint32_t snt__slot_flags(const struct snt__slot *slot)
{
	return (slot->flags & SNT_SEND_SOLICITED) |
	       (slot->flags & SNT__SLOT_COPIED ? IBV_SEND_INLINE : 0);
}

static inline uint32_t snt__slot_key(const struct snt_qp *qp, uint32_t position,
				     const struct snt__lane *lane)
{
	return qp->rkey[(position & qp->mask) * qp->key_stride + lane->remote_device];
}

/* The next `length` bytes of a write or read, on this lane. */
static inline void snt__slot_build(struct snt_qp *qp, const struct snt__slot *slot,
				   uint32_t position, const struct snt__lane *lane,
				   uint64_t length, uint32_t verb, uint32_t imm,
				   struct ibv_send_wr *wr)
{
	uint32_t sges =
		snt__slot_sges(qp, slot, position, lane->device, length, wr->sg_list);

	snt__build_kind(wr, sges, verb, snt__slot_flags(slot), htonl(imm));
	snt__build_target(wr, slot->remote_addr + slot->sent,
			  snt__slot_key(qp, position, lane));
}

#endif
