/* SPDX-License-Identifier: MIT */
#include "vqp/settle.h"

#include <errno.h>

#include "util/assert.h"
#include "util/err.h"
#include "vqp/check.h"
#include "vqp/complete.h"
#include "vqp/ready_list.h"
#include "vqp/spray.h"
#include "vqp/spread.h"

/* WRs of one kind that were numbered as they were sent. */
struct numbered {
	uint32_t *at; /* their positions, by number */
	uint32_t sent;
	uint32_t taken; /* by the peer, as it says */
};

static struct numbered numbered_sends(const struct snt_qp *qp,
				      const struct snt__receipt *receipt)
{
	return (struct numbered){ qp->failover->send_at, qp->failover->sends_sent,
				  receipt->sends };
}

static struct numbered numbered_notifications(const struct snt_qp *qp,
					      const struct snt__receipt *receipt)
{
	return (struct numbered){ qp->failover->notify_at, qp->notified,
				  receipt->notifications };
}

/* The first number that is not acknowledged. They are acknowledged in order. */
static uint32_t first_in_doubt(const struct snt_qp *qp, const struct numbered *list)
{
	uint32_t number = list->sent;

	for (uint32_t left = qp->tail - qp->head; left; left--) {
		uint32_t position = list->at[(number - 1) & qp->mask];

		if (position - qp->head >= qp->tail - qp->head ||
		    !qp->slot[position & qp->mask].pending)
			break;
		number--;
	}
	return number;
}

/* The position after the last WR that was taken; `proven` if none was that is in doubt. */
static uint32_t end_of_taken(const struct snt_qp *qp, const struct numbered *list,
			     uint32_t proven)
{
	uint32_t end;

	if (list->taken == first_in_doubt(qp, list))
		return proven;
	end = list->at[(list->taken - 1) & qp->mask] + 1;
	return snt__before(proven, end) ? end : proven;
}

static uint32_t find_proven_end(const struct snt_qp *qp,
				const struct snt__receipt *receipt)
{
	struct numbered sends = numbered_sends(qp, receipt);
	struct numbered notifications = numbered_notifications(qp, receipt);

	return end_of_taken(qp, &notifications, end_of_taken(qp, &sends, qp->head));
}

static int check_count(const struct snt_qp *qp, const struct numbered *list,
		       const char *what)
{
	uint32_t least = first_in_doubt(qp, list);

	if (list->taken - least <= list->sent - least)
		return 0;
	return snt__fail(EPROTO,
			 "QP %u: the peer's receipt says that %u %s were taken; %u "
			 "were acknowledged and %u sent",
			 qp->num, list->taken, what, least, list->sent);
}

/* Does only its own completion prove it? */
static bool needs_answer(const struct snt__slot *slot)
{
	return slot->opcode == SNT_OP_READ ||
	       snt__rules[slot->opcode].shape == SNT__SHAPE_ATOMIC;
}

/* Nothing ordered leaves before the answers of READs and atomics. */
static int check_answers(const struct snt_qp *qp, uint32_t proven)
{
	for (uint32_t at = qp->head; at != proven; at++) {
		const struct snt__slot *slot = &qp->slot[at & qp->mask];

		if (slot->pending && !slot->status && needs_answer(slot))
			return snt__fail(EPROTO,
					 "QP %u: the peer's receipt proves more than "
					 "was sent",
					 qp->num);
	}
	return 0;
}

int snt__settle_check(const struct snt_qp *qp, const struct snt__receipt *receipt)
{
	struct numbered sends = numbered_sends(qp, receipt);
	struct numbered notifications = numbered_notifications(qp, receipt);
	int ret = check_count(qp, &sends, "SENDs");

	if (!ret)
		ret = check_count(qp, &notifications, "notifications");
	return ret ? ret : check_answers(qp, find_proven_end(qp, receipt));
}

/* It is done, with the status that it has. */
static void finish_slot(struct snt__slot *slot)
{
	slot->pending = 0;
	slot->flags &= ~SNT__SLOT_NOTIFY;
}

/* As if it had just been posted. */
static void uncut_slot(struct snt_qp *qp, struct snt__slot *slot, uint32_t position)
{
	struct snt__sges *sges = &qp->sges[position & qp->mask];

	slot->sent = 0;
	sges->current = 0;
	sges->offset = 0;
	slot->flags &= ~(SNT__SLOT_NOTIFY | SNT__SLOT_EXPRESS);
	slot->pending = 1;
	if (snt__rules[slot->opcode].shape == SNT__SHAPE_SPREAD)
		slot->pending = snt__fragment_count(qp, slot->length);
	if (slot->opcode == SNT_OP_WRITE_IMM)
		snt__spray_expect(qp, slot);
}

/* May it not be sent again? */
static bool is_indeterminate(const struct snt_qp *qp, const struct snt__slot *slot)
{
	return snt__rules[slot->opcode].shape == SNT__SHAPE_ATOMIC ||
	       (slot->opcode == SNT_OP_WRITE && qp->opts.flags & SNT_QP_STRICT);
}

static void count_resent(struct snt_qp *qp, uint64_t cut)
{
	qp->failover->resent_bytes += cut;
	qp->failover->resent_fragments += snt__fragment_count(qp, cut);
}

/* One that was cut, at least in part, and is neither acknowledged nor proven. */
static void settle_cut(struct snt_qp *qp, struct snt__slot *slot, uint32_t position,
		       uint64_t cut)
{
	if (!is_indeterminate(qp, slot)) {
		count_resent(qp, cut);
		uncut_slot(qp, slot, position);
		return;
	}
	qp->failover->indeterminate++;
	snt__qp_fail_slot(qp, position, SNT_WC_INDETERMINATE, 0, 0);
	finish_slot(slot);
}

static void settle_slot(struct snt_qp *qp, uint32_t position, bool proven)
{
	struct snt__slot *slot = snt__qp_slot(qp, position);
	bool is_cut = snt__before(position, qp->next);

	if (!slot->pending)
		return;
	if (slot->status || proven)
		finish_slot(slot);
	else if (is_cut || slot->sent)
		settle_cut(qp, slot, position, is_cut ? slot->length : slot->sent);
	else
		uncut_slot(qp, slot, position);
}

/* A SEND that was taken by a receive which failed fails as well. */
static void fail_refused_send(struct snt_qp *qp, const struct snt__receipt *receipt)
{
	struct numbered sends = numbered_sends(qp, receipt);
	uint32_t first = first_in_doubt(qp, &sends);

	if (receipt->has_failed_send &&
	    receipt->failed_send - first < receipt->sends - first)
		snt__qp_fail_slot(qp, sends.at[receipt->failed_send & qp->mask],
				  SNT_WC_REM_OP_ERR, 0, 0);
}

/* What was ever cut may have taken effect. */
static void note_cut(struct snt_qp *qp)
{
	uint32_t end = qp->next;

	if (end != qp->tail && snt__qp_slot(qp, end)->sent)
		end++;
	if (snt__before(qp->failover->cut_end, end))
		qp->failover->cut_end = end;
}

/* To the first WR that is to be sent. */
static void rewind_ring(struct snt_qp *qp)
{
	qp->next = qp->head;
	while (qp->next != qp->tail && !snt__qp_slot(qp, qp->next)->pending)
		qp->next++;
	qp->ordered = qp->next;
	qp->notifies_due = 0;
	qp->under_way = qp->sequenced_under_way = 0;
}

/* What was sent and not taken is numbered anew. Its old entries may be looked up as those of
 * much older numbers, which are of no WR in the ring. */
static void forget_untaken(const struct snt_qp *qp, const struct numbered *list)
{
	for (uint32_t number = list->taken; number != list->sent; number++)
		list->at[number & qp->mask] = qp->head - 1;
}

static void renumber_untaken(struct snt_qp *qp, const struct snt__receipt *receipt)
{
	struct numbered sends = numbered_sends(qp, receipt);
	struct numbered notifications = numbered_notifications(qp, receipt);

	forget_untaken(qp, &sends);
	forget_untaken(qp, &notifications);
	qp->failover->sends_sent = receipt->sends;
	qp->notified = receipt->notifications;
}

void snt__settle(struct snt_qp *qp, const struct snt__receipt *receipt)
{
	uint32_t proven = find_proven_end(qp, receipt);

	note_cut(qp);
	fail_refused_send(qp, receipt);
	for (uint32_t at = qp->head; at != qp->tail; at++)
		settle_slot(qp, at, snt__before(at, proven));
	renumber_untaken(qp, receipt);
	rewind_ring(qp);
	snt__cq_ready(qp->cq, &qp->send_ready);
}
