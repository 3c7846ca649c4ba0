/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SPRAY_H
#define SNT_VQP_SPRAY_H

#include "vqp/keep.h"
#include "vqp/lane.h"
#include "vqp/qp.h"
#include "vqp/ring.h"

/*
 * SPRAY: notifications, and the express messages that travel with them.
 *
 * A notification is one write with immediate on each notify lane, of which there is one
 * for each device of the peer that is written to. The peer counts them by lane, and
 * reports number k when the k-th receive of every notify lane has completed. A
 * notification of the ordinary kind is empty, and is sent once everything before it is
 * acknowledged. An express message, of at most express_max bytes, has its data in one of
 * these writes, so that nothing of it travels on data lanes. The lanes take turns.
 *
 * Why it may be sent while earlier notifications and express messages are under way,
 * although they are not acknowledged: let E be an express message that is posted while
 * everything before it is acknowledged or was sent on the notify lanes. When the peer
 * reports E, the receives of E have completed on every notify lane. A lane is an RC QP: it
 * executes requests in order, and completes a receive after it has placed the data of
 * that request and of all before it. So whatever the notify lanes carried before E is
 * visible at the peer; everything else was acknowledged before E was sent. A device
 * vouches only for itself, but each is vouched for by the notify lane that leads to it:
 * it carried what is written through that device. With E itself it is the same.
 * Something that is under way on a data lane could be overtaken, which is why E waits for
 * it, as any notification does.
 *
 * Failures: notify lanes end together. If a part of E fails before its receive has
 * completed, the lane ends with it; the receive of E on that lane does not complete, nor
 * does any after it, so that neither E nor anything behind it is reported at the peer,
 * whatever other lanes have carried. If only the acknowledgement of E was lost, E and what
 * was sent behind it on the notify lanes may be reported there, though they fail here.
 * What is behind E on other notify lanes may then have landed, as may fragments of any
 * WR that failed.
 *
 * If the peer has a mailbox (mailbox.h), the data are a plain write right before the
 * notification on the same lane, since the first notify lane's carries the length.
 */

/* What goes to the notify lanes in all for a WRITE_IMM. */
static inline uint32_t snt__spray_wrs(const struct snt_qp *qp,
				      const struct snt__slot *slot)
{
	return qp->notify_count +
	       (qp->tells_length && slot->length && slot->flags & SNT__SLOT_EXPRESS);
}

/* Does a WRITE_IMM of this length have nothing to send on data lanes? */
static inline bool snt__spray_is_express(const struct snt_qp *qp, uint64_t length)
{
	return length <= qp->express_max;
}

/* A WRITE_IMM is to be sent: what it takes besides its fragments, or instead of them. */
static inline void snt__spray_expect(const struct snt_qp *qp, struct snt__slot *slot)
{
	slot->flags |= SNT__SLOT_NOTIFY;
	if (snt__spray_is_express(qp, slot->length)) {
		slot->flags |= SNT__SLOT_EXPRESS;
		slot->pending = 0;
	}
	slot->pending += snt__spray_wrs(qp, slot);
}

/* May an ordering point take effect? 1 yes, 0 not yet, -1 never. */
static inline int snt__may_order(const struct snt_qp *qp, uint32_t position)
{
	if (qp->failed_count && snt__before(qp->failed_first, position))
		return 0; /* until that failure has been reported */
	return qp->poisoned && snt__before(position, qp->poison) ? -1 : 1;
}

/* Is nothing under way except on notify lanes, with room for one more on each, and no
 * failure to be waited for? Then an express message can be sent at once. No WR waits. */
static inline bool snt__spray_is_clear(const struct snt_qp *qp)
{
	uint32_t under_way = 0;

	if (qp->notifies_due || qp->failed_count || qp->poisoned)
		return false;
	for (unsigned i = 0; i < qp->notify_count; i++) {
		const struct snt__lane *lane = qp->notifier[i];

		if (!snt__lane_has_room(lane, 1))
			return false;
		under_way += snt__lane_under_way(lane);
	}
	return under_way == qp->under_way;
}

/* The number of the notify lane whose turn it is to carry data. */
static inline uint32_t snt__spray_turn(struct snt_qp *qp)
{
	uint32_t turn = qp->express_turn++;

	if (qp->express_turn == qp->notify_count)
		qp->express_turn = 0;
	return turn;
}

/* An express message was built on all notify lanes as soon as it was posted, while they
 * were clear: everything before it is ordered. */
static inline void snt__express_sent(struct snt_qp *qp, const struct snt_send_wr *wr)
{
	snt__keep_wr(qp, snt__qp_take_slot(qp, wr, wr->sge->length, qp->notify_count),
		     wr);
	qp->under_way += qp->notify_count;
	snt__number_notification(qp, qp->tail);
	qp->ordered = qp->next = ++qp->tail;
}

/* After a change of the options, or of what was agreed on with the peer. */
void snt__spray_update(struct snt_qp *qp);

/* Advances `ordered` over WRs that are acknowledged and, if need be, notified. */
void snt__spray_advance(struct snt_qp *qp);

#endif
