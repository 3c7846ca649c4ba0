/* SPDX-License-Identifier: MIT */
/*
 * Sending what waits in the ring: WRs are cut into fragments in order, as lanes have
 * room, and ordering points wait for the WRs that they must not overtake.
 */
#include "vqp/spread.h"

/* The first lane from this one on with room for so many; NULL if there is none. */
static __attribute__((noinline)) struct snt__lane *find_room(const struct snt_qp *qp,
							     struct snt__lane *lane,
							     uint32_t count)
{
	for (uint32_t tries = 0; tries < qp->data_lanes; tries++) {
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
		lane = find_room(qp, lane, count);
		if (!lane)
			return NULL;
	}
	qp->turn = lane->after;
	return lane;
}

static inline struct ibv_send_wr *add_to(struct snt_qp *qp, struct snt__lane *lane,
					 uint32_t position, uint32_t sequence,
					 uint64_t size)
{
	snt__qp_touch(qp, lane);
	qp->under_way++;
	return snt__lane_add(lane, position, sequence, size);
}

/* SGEs of the next `length` bytes of an SGE list; returns how many. */
static uint32_t cut_sges(struct snt_qp *qp, uint32_t position, uint8_t device,
			 uint64_t length, struct ibv_sge *to)
{
	uint32_t at = position & qp->mask, count = 0;
	struct snt__sges *state = &qp->sges[at];
	const struct snt_sge *from = &qp->sge[at * qp->send_sge_max];

	while (length) {
		const struct snt_sge *sge = &from[state->current];
		uint64_t part = sge->length - state->offset;

		if (part > length)
			part = length;
		if (part)
			to[count++] = (struct ibv_sge){
				.addr = (uintptr_t)sge->addr + state->offset,
				.length = part,
				.lkey = sge->mem->local_key[device],
			};
		state->offset += part;
		length -= part;
		if (state->offset == sge->length) {
			state->current++;
			state->offset = 0;
		}
	}
	return count;
}

/* SGEs of the next `length` bytes of a WR; returns how many. */
static inline uint32_t build_local(struct snt_qp *qp, const struct snt__slot *slot,
				   uint32_t position, uint8_t device, uint64_t length,
				   struct ibv_sge *to)
{
	if (!length)
		return 0;
	if (!slot->mem && !(slot->flags & SNT__SLOT_COPIED))
		return cut_sges(qp, position, device, length, to);
	snt__build_sge(to, slot->addr + slot->sent, length,
		       slot->mem ? slot->mem->local_key[device] : 0);
	return 1;
}

static inline uint32_t flags_of(const struct snt__slot *slot)
{
	return (slot->flags & SNT_SEND_SOLICITED) |
	       (slot->flags & SNT__SLOT_COPIED ? IBV_SEND_INLINE : 0);
}

static inline uint32_t remote_key_of(const struct snt_qp *qp, uint32_t position,
				     const struct snt__lane *lane)
{
	return qp->rkey[(position & qp->mask) * qp->remote_count + lane->remote_device];
}

/* The next `length` bytes of a write or read, on this lane. */
static inline void build_fragment(struct snt_qp *qp, const struct snt__slot *slot,
				  uint32_t position, const struct snt__lane *lane,
				  uint64_t length, uint32_t verb, uint32_t imm,
				  struct ibv_send_wr *wr)
{
	uint32_t sges =
		build_local(qp, slot, position, lane->device, length, wr->sg_list);

	snt__build_kind(wr, sges, verb, flags_of(slot), htonl(imm));
	snt__build_target(wr, slot->remote_addr + slot->sent,
			  remote_key_of(qp, position, lane));
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
	wr = add_to(qp, lane, position, sequence, length);
	build_fragment(qp, slot, position, lane, length, IBV_WR_RDMA_WRITE_WITH_IMM,
		       (sequence & SNT__IMM_SEQUENCE) | (last ? SNT__IMM_LAST : 0) |
			       (followed ? SNT__IMM_FOLLOWED : 0),
		       wr);
	if (!followed)
		return true;
	wr = add_to(qp, lane, position, sequence, 0);
	snt__build_empty(wr, slot->flags & SNT_SEND_SOLICITED, slot->imm,
			 slot->remote_addr, remote_key_of(qp, position, lane));
	return true;
}

static bool send_plain(struct snt_qp *qp, struct snt__slot *slot, uint32_t position,
		       uint64_t length)
{
	struct snt__lane *lane = pick_lane(qp, 1, length);
	struct ibv_send_wr *wr;

	if (!lane)
		return false;
	wr = add_to(qp, lane, position, 0, length);
	build_fragment(qp, slot, position, lane, length, snt__rules[slot->opcode].verb,
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
	const uint32_t *rkey = &qp->rkey[(position & qp->mask) * qp->remote_count];
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
			struct snt__lane *other = find_room(qp, lane, 1);

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

	if (__builtin_expect(slot->mem && slot->length && !sequenced && qp->even, 1))
		return spread_simple(qp, slot, position);
	/* In SPRAY an empty WR is only a notification. */
	if (!slot->length && slot->opcode == SNT_OP_WRITE_IMM && !sequenced)
		return true;
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

/* May an ordering point take effect? 1 yes, 0 not yet, -1 never. */
static int may_order(const struct snt_qp *qp, uint32_t position)
{
	if (qp->failed_count && snt__before(qp->failed_first, position))
		return 0; /* until that failure has been reported */
	return qp->poisoned && snt__before(position, qp->poison) ? -1 : 1;
}

/* Is a READ among the WRs that are not yet reported? Exactly 2^32 WRs after one it
 * seems so again, which costs a needless fence. */
static bool has_read(const struct snt_qp *qp)
{
	return qp->tail - qp->read_end < qp->tail - qp->head;
}

static bool send_message(struct snt_qp *qp, struct snt__slot *slot, uint32_t position)
{
	const struct snt__rule *rule = &snt__rules[slot->opcode];
	struct snt__lane *lane =
		&qp->lane[rule->shape == SNT__SHAPE_ATOMIC ? 0 : qp->message_lane];
	uint32_t flags = flags_of(slot);
	struct ibv_send_wr *wr;

	if (!lane->alive) {
		snt__qp_fail_slot(qp, position, SNT_WC_FLUSHED, 0, lane->index);
		slot->pending = 0;
		return true;
	}
	if (!snt__lane_has_room(lane, 1))
		return false;
	wr = add_to(qp, lane, position, 0, slot->length);
	/* Data of READs on this lane are still to come, and a READ whose response was
	 * lost is repeated: without a fence it would see later writes. */
	if (has_read(qp))
		flags |= IBV_SEND_FENCE;
	snt__build_kind(wr,
			build_local(qp, slot, position, lane->device, slot->length,
				    wr->sg_list),
			rule->verb, flags, htonl(slot->imm));
	if (rule->shape == SNT__SHAPE_ATOMIC)
		snt__build_atomic(wr, slot->remote_addr,
				  remote_key_of(qp, position, lane),
				  qp->atomic[position & qp->mask].compare_add,
				  qp->atomic[position & qp->mask].swap);
	slot->sent = slot->length;
	return true;
}

/* The unsent rest of a WR is never sent. */
static void give_up(struct snt_qp *qp, struct snt__slot *slot, uint32_t position)
{
	uint32_t unsent = 0;

	if (snt__rules[slot->opcode].shape != SNT__SHAPE_SPREAD)
		unsent = 1;
	else if (slot->sent < slot->length || !slot->length)
		unsent = snt__fragment_count(qp, slot->length - slot->sent);
	if (slot->flags & SNT__SLOT_NOTIFY)
		unsent = (slot->length ? unsent : 0) + qp->notify_count;
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

	if (__builtin_expect(slot->flags & SNT__SLOT_VOID, 0))
		return true;
	if (__builtin_expect(qp->broken, 0)) {
		give_up(qp, slot, position);
		return true;
	}
	if (__builtin_expect(slot->flags & SNT_SEND_FENCE, 0) && !slot->sent &&
	    (qp->under_way || qp->notifies_due))
		return false;
	if (spread)
		return send_spread(qp, slot, position);
	if (!is_single_on(qp,
			  &qp->lane[snt__rules[slot->opcode].shape == SNT__SHAPE_ATOMIC
					    ? 0
					    : qp->message_lane]))
		return false;
	switch (may_order(qp, position)) {
	case 0:
		return false;
	case 1:
		return send_message(qp, slot, position);
	default:
		give_up(qp, slot, position);
		return true;
	}
}

static inline void notify_on(struct snt_qp *qp, const struct snt__slot *slot,
			     uint32_t position, struct snt__lane *lane)
{
	snt__build_empty(add_to(qp, lane, position, 0, 0),
			 slot->flags & SNT_SEND_SOLICITED, slot->imm, slot->remote_addr,
			 remote_key_of(qp, position, lane));
}

/* SPRAY: a write with the immediate on each notify lane, empty except on the first one
 * if the peer has a mailbox. */
static bool send_notify(struct snt_qp *qp, struct snt__slot *slot, uint32_t position)
{
	struct snt__lane *lane = qp->extra;
	bool alive = true;

	for (unsigned i = 0; i < qp->notify_count; i++) {
		if (__builtin_expect(snt__lane_has_room(&lane[i], 1), 1))
			continue;
		if (lane[i].alive)
			return false;
		alive = false;
	}
	slot->flags &= ~SNT__SLOT_NOTIFY;
	qp->notifies_due--;
	if (slot->status || !alive || qp->broken || may_order(qp, position) < 0) {
		slot->pending -= qp->notify_count;
		snt__qp_fail_slot(qp, position, SNT_WC_FLUSHED, 0, lane->index);
		return true;
	}
	notify_on(qp, slot, position, lane);
	if (__builtin_expect(qp->tells_length, 0))
		snt__mailbox_tell(qp, slot->length);
	for (unsigned i = 1; i < qp->notify_count; i++)
		notify_on(qp, slot, position, &lane[i]);
	return true;
}

/* Advances `ordered` over WRs that are acknowledged and, if need be, notified. */
static void advance_ordered(struct snt_qp *qp)
{
	while (qp->ordered != qp->next) {
		struct snt__slot *slot = snt__qp_slot(qp, qp->ordered);

		if (slot->flags & SNT__SLOT_NOTIFY) {
			if (slot->pending > qp->notify_count ||
			    !may_order(qp, qp->ordered) ||
			    !send_notify(qp, slot, qp->ordered))
				return;
		} else if (slot->pending) {
			return;
		}
		qp->ordered++;
	}
}

void snt__qp_send_waiting(struct snt_qp *qp)
{
	uint32_t before;

	do {
		before = qp->next;
		if (qp->notifies_due)
			advance_ordered(qp);
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
