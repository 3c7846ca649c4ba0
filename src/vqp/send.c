/* SPDX-License-Identifier: MIT */
/*
 * Sending what waits in the ring: WRs are cut into fragments in order, as lanes have
 * room, and ordering points wait for the WRs that they must not overtake.
 */
#include "vqp/balance.h"
#include "vqp/check.h"
#include "vqp/complete.h"
#include "vqp/keep.h"
#include "vqp/ready_list.h"
#include "vqp/slot.h"
#include "vqp/spray.h"

/* The first lane from this one on with room for so many; NULL if there is none. */
static __attribute__((noinline)) struct snt__lane *find_lane_with_room(
	const struct snt_qp *qp, struct snt__lane *lane, uint32_t count)
{
	for (uint32_t tries = 0; tries < qp->in_turn; tries++) {
		if (snt__lane_has_room(lane, count))
			return lane;
		lane = lane->after;
	}
	return NULL;
}

/* The lane whose turn it is, or the next one with room for so many. */
static inline struct snt__lane *pick_lane(struct snt_qp *qp, uint32_t count,
					  uint64_t size)
{
	struct snt__lane *lane = qp->turn;

	if (!qp->even)
		return snt__balance_pick(qp, count, size);
	if (__builtin_expect(!snt__lane_has_room(lane, count), 0)) {
		lane = find_lane_with_room(qp, lane, count);
		if (!lane)
			return NULL;
	}
	qp->turn = lane->after;
	return lane;
}

/* Sends one sequenced fragment and, after the last, the raw immediate. */
static bool send_sequenced(struct snt_qp *qp, struct snt__slot *slot, uint32_t position,
			   uint64_t length)
{
	bool last = slot->sent + length == slot->length;
	bool followed = last && slot->imm;
	struct snt__lane *lane;
	struct ibv_send_wr *wr;
	uint32_t sequence;

	if ((last && snt__qp_has_plain(qp)) || !snt__dqplb_window_open(qp, 1))
		return false;
	lane = pick_lane(qp, 1 + followed, length);
	if (!lane)
		return false;
	sequence = qp->sequence_next++;
	qp->sequenced_under_way += 1 + followed;
	lane->sequence_last = sequence;
	wr = snt__slot_add(qp, lane, position, sequence, length);
	snt__slot_build(qp, slot, position, lane, length, IBV_WR_RDMA_WRITE_WITH_IMM,
			(sequence & SNT__IMM_SEQUENCE) | (last ? SNT__IMM_LAST : 0) |
				(followed ? SNT__IMM_FOLLOWED : 0),
			wr);
	if (!followed)
		return true;
	wr = snt__slot_add(qp, lane, position, sequence, 0);
	snt__build_empty(wr, slot->flags & SNT_SEND_SOLICITED, slot->imm,
			 slot->remote_addr, snt__slot_key(qp, position, lane));
	return true;
}

static bool send_plain(struct snt_qp *qp, struct snt__slot *slot, uint32_t position,
		       uint64_t length)
{
	struct snt__lane *lane = pick_lane(qp, 1, length);
	struct ibv_send_wr *wr;

	if (!lane)
		return false;
	wr = snt__slot_add(qp, lane, position, 0, length);
	snt__slot_build(qp, slot, position, lane, length, snt__rules[slot->opcode].verb,
			0, wr);
	return true;
}

/*
 * The fast path: one SGE, plain fragments. Everything that is the same for all
 * fragments is kept out of the loop.
 */
static inline bool spread_simple(struct snt_qp *qp, struct snt__slot *slot,
				 uint32_t position)
{
	const uint32_t *lkey = slot->mem->local_key;
	const uint32_t *rkey = &qp->rkey[(position & qp->mask) * qp->key_stride];
	const uint64_t fragment_size = qp->fragment_size;
	const uint32_t flags = slot->flags & SNT_SEND_SOLICITED;
	const uint32_t verb = snt__rules[slot->opcode].verb;
	struct snt__lane *lane = qp->turn;
	uint64_t left = slot->length - slot->sent;
	uint64_t addr = slot->addr + slot->sent;
	uint64_t remote_addr = slot->remote_addr + slot->sent;
	uint32_t count = 0;

	do {
		uint64_t length = left < fragment_size ? left : fragment_size;
		struct ibv_send_wr *wr;

		if (__builtin_expect(!snt__lane_has_room(lane, 1), 0)) {
			struct snt__lane *other = find_lane_with_room(qp, lane, 1);

			if (!other)
				break;
			lane = other;
		}
		snt__qp_touch(qp, lane);
		wr = snt__lane_add(lane, position, 0, length);
		snt__build_kind(wr, 1, verb, flags, 0);
		snt__build_sge(wr->sg_list, addr, length, lkey[lane->device]);
		snt__build_target(wr, remote_addr, rkey[lane->remote_device]);
		addr += length;
		remote_addr += length;
		left -= length;
		count++;
		lane = lane->after;
	} while (left);
	qp->turn = lane;
	slot->sent = slot->length - left;
	qp->under_way += count;
	return !left;
}

/* All fragments of a WR, as far as lanes have room. */
static inline bool send_spread(struct snt_qp *qp, struct snt__slot *slot,
			       uint32_t position)
{
	bool sequenced =
		slot->opcode == SNT_OP_WRITE_IMM && qp->scheme == SNT_SCHEME_DQPLB;

	/* Its data, if any, go with the notification. */
	if (__builtin_expect(slot->flags & SNT__SLOT_EXPRESS, 0))
		return true;
	if (__builtin_expect(slot->mem && slot->length && !sequenced && qp->even, 1))
		return spread_simple(qp, slot, position);
	do {
		uint64_t length = slot->length - slot->sent;

		if (length > qp->fragment_size)
			length = qp->fragment_size;
		if (!(sequenced ? send_sequenced(qp, slot, position, length)
				: send_plain(qp, slot, position, length)))
			return false;
		slot->sent += length;
	} while (slot->sent < slot->length);
	return true;
}

/* Is everything in flight on this lane, with no earlier WR pending? */
static bool is_single_on(const struct snt_qp *qp, const struct snt__lane *lane)
{
	return qp->under_way == snt__lane_under_way(lane) && !qp->notifies_due;
}

/* Is a READ among the WRs that are not yet reported? Exactly 2^32 WRs after one it
 * seems so again, which costs a needless fence. */
static bool has_read(const struct snt_qp *qp)
{
	return qp->tail - qp->read_end < qp->tail - qp->head;
}

static bool is_atomic_slot(const struct snt__slot *slot)
{
	return snt__rules[slot->opcode].shape == SNT__SHAPE_ATOMIC;
}

/* With failover, atomics leave when all before is acknowledged, and nothing ordered leaves
 * before their answer: an atomic is never sent again, and if it may have been executed, no
 * ordering point behind it was. */
static __attribute__((noinline)) bool waits_for_answer(struct snt_qp *qp,
						       const struct snt__slot *slot)
{
	const struct snt__slot *last = snt__qp_slot(qp, qp->failover->atomic_at);

	if (is_atomic_slot(slot))
		return qp->under_way || qp->notifies_due;
	return qp->failover->atomic_at - qp->head < qp->next - qp->head &&
	       is_atomic_slot(last) && last->pending;
}

/* The lane that a WR in one piece goes to. Atomics never follow express messages on a notify
 * lane: if only an acknowledgement were lost, the atomic would be reported as flushed and
 * have been executed, and a program that repeats it would add twice. */
static struct snt__lane *lane_of(const struct snt_qp *qp, const struct snt__slot *slot)
{
	return is_atomic_slot(slot) ? qp->atomic_lane : &qp->lane[qp->message_lane];
}

static bool send_in_one_piece(struct snt_qp *qp, struct snt__slot *slot,
			      uint32_t position)
{
	const struct snt__rule *rule = &snt__rules[slot->opcode];
	struct snt__lane *lane = lane_of(qp, slot);
	uint32_t flags = snt__slot_flags(slot);
	struct ibv_send_wr *wr;

	if (!lane->alive) {
		/* It has just been stopped: all that is left waits for the next life. */
		if (snt__qp_is_suspended(qp) && !qp->broken)
			return false;
		snt__qp_fail_slot(qp, position, SNT_WC_FLUSHED, 0, lane->index);
		slot->pending = 0;
		return true;
	}
	if (!snt__lane_has_room(lane, 1))
		return false;
	wr = snt__slot_add(qp, lane, position, 0, slot->length);
	if (rule->shape == SNT__SHAPE_MESSAGE)
		snt__number_send(qp, position);
	/* Data of READs on this lane are still to come, and a READ whose response was
	 * lost is repeated: without a fence it would see later writes. */
	if (has_read(qp))
		flags |= IBV_SEND_FENCE;
	snt__build_kind(wr,
			snt__slot_sges(qp, slot, position, lane->device, slot->length,
				       wr->sg_list),
			rule->verb, flags, htonl(slot->imm));
	if (rule->shape == SNT__SHAPE_ATOMIC) {
		if (qp->phase)
			qp->failover->atomic_at = position;
		snt__build_atomic(wr, slot->remote_addr,
				  snt__slot_key(qp, position, lane),
				  qp->atomic[position & qp->mask].compare_add,
				  qp->atomic[position & qp->mask].swap);
	}
	slot->sent = slot->length;
	return true;
}

/* The unsent rest of a WR is never sent. */
static void give_up_rest(struct snt_qp *qp, struct snt__slot *slot, uint32_t position)
{
	uint32_t unsent = 0;

	if (snt__rules[slot->opcode].shape != SNT__SHAPE_SPREAD)
		unsent = 1;
	else if (slot->sent < slot->length || !slot->length)
		unsent = snt__fragment_count(qp, slot->length - slot->sent);
	if (slot->flags & SNT__SLOT_NOTIFY)
		unsent = snt__spray_wrs(qp, slot) +
			 (slot->flags & SNT__SLOT_EXPRESS ? 0 : unsent);
	else if (slot->opcode == SNT_OP_WRITE_IMM)
		unsent += slot->imm != 0;
	slot->pending -= unsent;
	slot->flags &= ~SNT__SLOT_NOTIFY;
	snt__qp_fail_slot(qp, position, SNT_WC_FLUSHED, 0, 0);
}

/* Sends what it can of the WR at next. True: done with it. */
static inline bool dispatch_slot(struct snt_qp *qp, struct snt__slot *slot,
				 uint32_t position)
{
	bool spread = slot->opcode <= SNT_OP_READ;

	/* Taken back, or done before the ring was rewound (settle.h). */
	if (__builtin_expect(!slot->pending, 0))
		return true;
	if (__builtin_expect(qp->broken, 0)) {
		give_up_rest(qp, slot, position);
		return true;
	}
	if (__builtin_expect(slot->flags & SNT_SEND_FENCE, 0) && !slot->sent &&
	    (qp->under_way || qp->notifies_due))
		return false;
	if (spread)
		return send_spread(qp, slot, position);
	if (!is_single_on(qp, lane_of(qp, slot)) ||
	    (qp->phase && waits_for_answer(qp, slot)))
		return false;
	switch (snt__may_order(qp, position)) {
	case 0:
		return false;
	case 1:
		return send_in_one_piece(qp, slot, position);
	default:
		give_up_rest(qp, slot, position);
		return true;
	}
}

void snt__qp_send_waiting(struct snt_qp *qp)
{
	uint32_t before;

	if (__builtin_expect(snt__qp_is_suspended(qp), 0) && !qp->broken)
		return;
	do {
		before = qp->next;
		if (qp->notifies_due)
			snt__spray_advance(qp);
		while (qp->next != qp->tail) {
			struct snt__slot *slot = snt__qp_slot(qp, qp->next);

			if (!dispatch_slot(qp, slot, qp->next))
				break;
			qp->notifies_due += (slot->flags & SNT__SLOT_NOTIFY) != 0;
			qp->next++;
		}
	} while (qp->notifies_due && qp->next != before);
}

void snt__qp_post_chains(struct snt_qp *qp)
{
	while (qp->touched_count) {
		struct snt__lane *lane = &qp->lane[qp->touched[--qp->touched_count]];

		lane->touched = false;
		snt__lane_ring(lane);
	}
	/* WRs that were flushed without having been sent have no CQE to announce
	 * them. */
	if (qp->head != qp->next && !snt__qp_slot(qp, qp->head)->pending)
		snt__cq_ready(qp->cq, &qp->send_ready);
}

void snt__qp_dispatch(struct snt_qp *qp)
{
	snt__qp_send_waiting(qp);
	snt__qp_post_chains(qp);
}
