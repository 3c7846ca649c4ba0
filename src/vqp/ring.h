/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RING_H
#define SNT_VQP_RING_H

#include "vqp/qp.h"

/*
 * The send ring. Accepted WRs are added at tail, cut into fragments in order by
 * next, and reported in order from head. `ordered` runs between: all before it is
 * acknowledged, and notified where the scheme has notifications of its own.
 * Positions are counters that wrap; a slot is position & mask.
 *
 *	head <= ordered <= next <= tail <= head + depth
 */

/* One accepted WR, on one cache line. */
struct snt__slot {
	uint64_t wr_id;
	uint64_t length;
	uint64_t sent; /* bytes that have been cut into fragments */
	uint64_t remote_addr;
	uint64_t addr;		   /* of the only SGE */
	const struct snt_mem *mem; /* of the only SGE; NULL: see the ring's sge */
	uint32_t pending; /* physical WRs to retire, also those not yet built */
	uint32_t imm;
	uint32_t vendor_err;
	uint8_t opcode;
	uint8_t flags;
	uint8_t status;
	uint8_t lane; /* of the fragment that failed */
};

_Static_assert(sizeof(struct snt__slot) == 64, "one cache line");

/* Beyond the public flags. */
#define SNT__SLOT_COPIED  0x80 /* the payload lies in the ring's inline buffer */
#define SNT__SLOT_NOTIFY  0x40 /* SPRAY: the notification is yet to be sent */
#define SNT__SLOT_VOID	  0x20 /* taken back: neither sent nor reported */
#define SNT__SLOT_EXPRESS 0x10 /* SPRAY: its data, if any, go with the notification */

struct snt__atomic {
	uint64_t compare_add;
	uint64_t swap;
};

/* An SGE list, and how far it has been cut into fragments. */
struct snt__sges {
	uint32_t count;
	uint32_t current;
	uint64_t offset; /* into the current SGE */
};

static inline bool snt__qp_ring_is_sound(const struct snt_qp *qp)
{
	return qp->ordered - qp->head <= qp->next - qp->head &&
	       qp->next - qp->head <= qp->tail - qp->head &&
	       qp->tail - qp->head <= qp->depth;
}

static inline struct snt__slot *snt__qp_slot(struct snt_qp *qp, uint32_t position)
{
	return &qp->slot[position & qp->mask];
}

/* Stores what is always kept of a WR until it is reported. */
static inline struct snt__slot *snt__qp_take_slot(struct snt_qp *qp,
						  const struct snt_send_wr *wr,
						  uint64_t length, uint32_t fragments)
{
	struct snt__slot *slot = snt__qp_slot(qp, qp->tail);

	slot->wr_id = wr->wr_id;
	slot->length = length;
	slot->pending = fragments;
	slot->opcode = wr->opcode;
	slot->flags = wr->flags;
	slot->status = SNT_WC_SUCCESS;
	if (wr->opcode == SNT_OP_READ)
		qp->read_end = qp->tail + 1;
	return slot;
}

/* Is position a before b? */
static inline bool snt__before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Is anything in flight that is not of DQPLB's sequence? */
static inline bool snt__qp_has_plain(const struct snt_qp *qp)
{
	return qp->under_way != qp->sequenced_under_way;
}

#endif
