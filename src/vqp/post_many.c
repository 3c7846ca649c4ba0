/* SPDX-License-Identifier: MIT */
/*
 * Posting sends: each WR is checked as a whole, then takes a slot. Once it has its slot
 * it can no longer be refused, only fail. Most WRs find room on every lane, and are
 * sent at once; all other WRs wait in the ring, with all that send.c needs to send them
 * later.
 */
#include "vqp/post_many.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/check.h"
#include "vqp/keep.h"
#include "vqp/refusal.h"
#include "vqp/send.h"
#include "vqp/spray.h"
#include "vqp/spread.h"

/* What a WRITE_IMM takes besides its fragments, or instead of them. */
static inline void expect_notification(const struct snt_qp *qp, struct snt__slot *slot)
{
	if (qp->scheme == SNT_SCHEME_DQPLB) {
		slot->pending += slot->imm != 0;
		return;
	}
	snt__spray_expect(qp, slot);
}

static inline void copy_keys(struct snt_qp *qp, uint32_t position,
			     const struct snt_token *token)
{
	uint32_t *key = &qp->rkey[(position & qp->mask) * qp->key_stride];

	for (uint32_t i = 0; i < qp->remote_count; i++)
		key[i] = token->key[i];
}

/*
 * At once
 */

/* Marks the last fragment as such, and announces the raw immediate that follows. */
static inline void announce_immediate(const struct snt__cut *cut,
				      struct snt__lane *lane, uint32_t imm)
{
	struct ibv_send_wr *wr;

	cut->last->imm_data |= htonl(SNT__IMM_LAST | (imm ? SNT__IMM_FOLLOWED : 0));
	if (!imm)
		return;
	wr = snt__lane_add(lane, cut->position, cut->sequence + cut->count - 1, 0);
	snt__build_empty(wr, cut->flags, imm, cut->remote_addr,
			 cut->remote_key[lane->remote_device]);
}

static inline __attribute__((always_inline)) bool post_sequenced(
	struct snt_qp *qp, const struct snt_send_wr *wr, struct snt__cut *cut)
{
	uint32_t extra = wr->imm != 0;
	struct snt__lane *last;

	if (snt__qp_has_plain(qp) || !snt__dqplb_window_open(qp, cut->count))
		return false;
	cut->sequence = qp->sequence_next;
	cut->verb = IBV_WR_RDMA_WRITE_WITH_IMM;
	last = snt__spread(qp, cut, extra, true);
	if (!last)
		return false;
	announce_immediate(cut, last, wr->imm);
	qp->sequence_next += cut->count;
	qp->under_way += cut->count + extra;
	qp->sequenced_under_way += cut->count + extra;
	snt__qp_take_slot(qp, wr, cut->length, cut->count + extra);
	return true;
}

static inline __attribute__((always_inline)) bool post_plain(
	struct snt_qp *qp, const struct snt_send_wr *wr, struct snt__cut *cut)
{
	if (!snt__spread(qp, cut, 0, false))
		return false;
	qp->under_way += cut->count;
	snt__keep_wr(qp, snt__qp_take_slot(qp, wr, cut->length, cut->count), wr);
	return true;
}

/* SPRAY: the notification follows when all is acknowledged. */
static inline bool send_notified(struct snt_qp *qp, const struct snt_send_wr *wr,
				 struct snt__cut *cut)
{
	struct snt__slot *slot = snt__qp_slot(qp, cut->position);

	if (!post_plain(qp, wr, cut))
		return false;
	slot->imm = wr->imm;
	slot->remote_addr = wr->remote_addr;
	copy_keys(qp, cut->position, wr->remote);
	expect_notification(qp, slot);
	qp->notifies_due++;
	return true;
}

/* Appends an express message to the chains of the notify lanes. */
static inline bool send_express(struct snt_qp *qp, const struct snt_send_wr *wr)
{
	const uint32_t flags = wr->flags & SNT_SEND_SOLICITED;
	uint32_t data;

	if (qp->tells_length || !snt__spray_is_clear(qp))
		return false;
	data = snt__spray_turn(qp);
	for (unsigned i = 0; i < qp->notify_count; i++) {
		struct snt__lane *lane = qp->notifier[i];
		uint32_t key = wr->remote->key[lane->remote_device];
		struct ibv_send_wr *physical;

		snt__qp_touch(qp, lane);
		physical = snt__lane_add(lane, qp->tail, 0,
					 i == data ? wr->sge->length : 0);
		if (i != data) {
			snt__build_empty(physical, flags, wr->imm, wr->remote_addr,
					 key);
			continue;
		}
		snt__build_kind(physical, 1, IBV_WR_RDMA_WRITE_WITH_IMM, flags,
				htonl(wr->imm));
		snt__build_sge(physical->sg_list, (uintptr_t)wr->sge->addr,
			       wr->sge->length, wr->sge->mem->local_key[lane->device]);
		snt__build_target(physical, wr->remote_addr, key);
	}
	snt__express_sent(qp, wr);
	return true;
}

static inline __attribute__((always_inline)) void set_cut(
	const struct snt_qp *qp, const struct snt_send_wr *wr,
	const struct snt__known *known, struct snt__cut *cut)
{
	cut->addr = (uintptr_t)wr->sge->addr;
	cut->remote_addr = wr->remote_addr;
	cut->length = wr->sge->length;
	cut->count = snt__fragment_count(qp, cut->length);
	cut->local_key = wr->sge->mem->local_key;
	cut->remote_key = wr->remote->key;
	cut->position = qp->tail;
	cut->verb = known->verb;
	cut->flags = wr->flags & SNT_SEND_SOLICITED;
	cut->last = NULL;
}

/* SPRAY: an express message, or fragments whose notification follows when they are
 * acknowledged. */
static __attribute__((noinline)) bool spray_at_once(struct snt_qp *qp,
						    const struct snt_send_wr *wr,
						    const struct snt__known *known)
{
	struct snt__cut cut;

	if (snt__spray_is_express(qp, wr->sge->length))
		return send_express(qp, wr);
	set_cut(qp, wr, known, &cut);
	if (!send_notified(qp, wr, &cut))
		return false;
	qp->tail++;
	qp->next++;
	return true;
}

/* Sends if no WR waits and all lanes take turns. False: nothing was done. */
static inline __attribute__((always_inline)) bool send_at_once(
	struct snt_qp *qp, const struct snt_send_wr *wr, struct snt__known *known)
{
	struct snt__cut cut;
	bool sent;

	if (qp->next != qp->tail || !snt__check_simple(qp, wr, known))
		return false;
	if (wr->opcode == SNT_OP_WRITE_IMM && qp->scheme == SNT_SCHEME_SPRAY)
		return spray_at_once(qp, wr, known);
	set_cut(qp, wr, known, &cut);
	sent = wr->opcode == SNT_OP_WRITE_IMM ? post_sequenced(qp, wr, &cut)
					      : post_plain(qp, wr, &cut);
	if (!sent)
		return false;
	qp->tail++;
	qp->next++;
	return true;
}

/*
 * Into the ring
 */

static void copy_inline(struct snt_qp *qp, const struct snt_send_wr *wr,
			struct snt__slot *slot)
{
	uint8_t *to =
		qp->inline_buffer + (size_t)(qp->tail & qp->mask) * qp->inline_max;

	slot->addr = (uintptr_t)to;
	slot->flags |= SNT__SLOT_COPIED;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		if (!wr->sge[i].length)
			continue; /* whatever its address */
		memcpy(to, wr->sge[i].addr, wr->sge[i].length);
		to += wr->sge[i].length;
	}
}

static void copy_local(struct snt_qp *qp, const struct snt_send_wr *wr,
		       struct snt__slot *slot)
{
	uint32_t at = qp->tail & qp->mask;

	slot->mem = NULL;
	if (wr->flags & SNT_SEND_INLINE && slot->length) {
		copy_inline(qp, wr, slot);
	} else if (wr->sge_count == 1) {
		slot->addr = (uintptr_t)wr->sge->addr;
		slot->mem = wr->sge->mem;
	} else {
		for (unsigned i = 0; i < wr->sge_count; i++)
			qp->sge[at * qp->send_sge_max + i] = wr->sge[i];
		qp->sges[at] = (struct snt__sges){ .count = wr->sge_count };
	}
}

/* Several SGEs in one fragment, while no WR waits: they need not be stored. */
static inline bool goes_at_once(const struct snt_qp *qp, const struct snt_send_wr *wr,
				uint64_t length)
{
	return wr->sge_count > 1 && length - 1 < qp->fragment_size && qp->even &&
	       qp->next == qp->tail &&
	       (wr->opcode == SNT_OP_WRITE || wr->opcode == SNT_OP_READ) &&
	       !(wr->flags & ~(SNT_SEND_SIGNALED | SNT_SEND_SOLICITED)) &&
	       snt__lane_has_room(qp->turn, 1);
}

static inline void send_list(struct snt_qp *qp, const struct snt_send_wr *wr,
			     uint64_t length)
{
	struct snt__lane *lane = qp->turn;
	struct ibv_send_wr *physical;

	snt__qp_touch(qp, lane);
	physical = snt__lane_add(lane, qp->tail, 0, length);
	snt__build_kind(physical,
			snt__build_list(physical->sg_list, wr->sge, wr->sge_count,
					lane->device, false),
			snt__rules[wr->opcode].verb, wr->flags & SNT_SEND_SOLICITED, 0);
	snt__build_target(physical, wr->remote_addr,
			  wr->remote->key[lane->remote_device]);
	qp->turn = lane->after;
	qp->under_way++;
	snt__keep_list(qp, snt__qp_take_slot(qp, wr, length, 1), wr);
	qp->tail++;
	qp->next++;
}

static __attribute__((noinline)) int enqueue_wr(struct snt_qp *qp,
						const struct snt_send_wr *wr)
{
	struct snt__slot *slot;
	uint64_t length;
	bool spread;

	if (!snt__check_wr(qp, wr, &length))
		return snt__wr_fault(qp, wr);
	if (goes_at_once(qp, wr, length)) {
		send_list(qp, wr, length);
		return 0;
	}
	spread = snt__rules[wr->opcode].shape == SNT__SHAPE_SPREAD;
	slot = snt__qp_take_slot(qp, wr, length,
				 spread ? snt__fragment_count(qp, length) : 1);
	slot->sent = 0;
	slot->remote_addr = wr->remote_addr;
	slot->imm = wr->imm;
	copy_local(qp, wr, slot);
	if (wr->opcode == SNT_OP_WRITE_IMM)
		expect_notification(qp, slot);
	else if (wr->opcode >= SNT_OP_CMP_SWAP)
		qp->atomic[qp->tail & qp->mask] =
			(struct snt__atomic){ wr->compare_add, wr->swap };
	if (snt__rules[wr->opcode].remote_access)
		copy_keys(qp, qp->tail, wr->remote);
	qp->tail++;
	snt__qp_send_waiting(qp);
	return 0;
}

int snt__qp_post_many(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	struct snt__known known = SNT__KNOWN_NONE;
	uint32_t room;
	unsigned taken;
	int ret = 0;

	if (__builtin_expect(qp->refusal, 0))
		return snt__qp_refusal(qp, qp->refusal);
	room = qp->depth - (qp->tail - qp->head);
	for (taken = 0; taken < count; taken++) {
		if (taken >= room) {
			ret = snt__qp_full(qp);
			break;
		}
		if (__builtin_expect(send_at_once(qp, &wr[taken], &known), 1))
			continue;
		ret = enqueue_wr(qp, &wr[taken]);
		if (ret)
			break;
	}
	if (!taken)
		return ret ? ret : snt__qp_no_wrs(qp);
	snt__qp_post_chains(qp);
	return taken;
}
