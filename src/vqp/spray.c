/* SPDX-License-Identifier: MIT */
#include "vqp/spray.h"

#include "vqp/complete.h"
#include "vqp/notify_length.h"
#include "vqp/slot.h"

void snt__spray_update(struct snt_qp *qp)
{
	uint64_t max = qp->opts.express_max;

	if (max == SNT_EXPRESS_OFF || qp->pass_through || !qp->notify_count)
		max = 0;
	if (max > qp->fragment_size)
		max = qp->fragment_size;
	if (max > qp->message_max)
		max = qp->message_max;
	/* The data and the length are two WRs on one lane. */
	if (qp->tells_length && qp->extra->depth < 2)
		max = 0;
	qp->express_max = max;
}

static bool carries_data(const struct snt__slot *slot)
{
	return slot->flags & SNT__SLOT_EXPRESS && slot->length;
}

/* Empty, except that the first lane's tells a peer with a mailbox the length. */
static void notify_on(struct snt_qp *qp, const struct snt__slot *slot,
		      uint32_t position, struct snt__lane *lane)
{
	struct ibv_send_wr *wr = snt__slot_add(qp, lane, position, 0, 0);

	snt__build_empty(wr, slot->flags & SNT_SEND_SOLICITED, slot->imm,
			 slot->remote_addr, snt__slot_key(qp, position, lane));
	if (qp->tells_length && lane == qp->extra)
		snt__mailbox_tell(qp, slot->length, wr);
}

/* The lane that carries the data as well. */
static void express_on(struct snt_qp *qp, const struct snt__slot *slot,
		       uint32_t position, struct snt__lane *lane)
{
	struct ibv_send_wr *wr = snt__slot_add(qp, lane, position, 0, slot->length);

	if (!qp->tells_length) {
		snt__slot_build(qp, slot, position, lane, slot->length,
				IBV_WR_RDMA_WRITE_WITH_IMM, slot->imm, wr);
		return;
	}
	snt__slot_build(qp, slot, position, lane, slot->length, IBV_WR_RDMA_WRITE, 0,
			wr);
	notify_on(qp, slot, position, lane);
}

enum notify_room {
	ROOM,
	NO_ROOM,
	DEAD,
};

/* On all notify lanes; the one whose turn it is takes the data of an express message. */
static enum notify_room find_notify_room(const struct snt_qp *qp, bool express)
{
	for (unsigned i = 0; i < qp->notify_count; i++) {
		const struct snt__lane *lane = qp->notifier[i];
		bool two = express && qp->tells_length && i == qp->express_turn;

		if (__builtin_expect(!snt__lane_has_room(lane, 1 + two), 0))
			return lane->alive ? NO_ROOM : DEAD;
	}
	return ROOM;
}

static void send_on_all(struct snt_qp *qp, const struct snt__slot *slot,
			uint32_t position)
{
	uint32_t data = carries_data(slot) ? snt__spray_turn(qp) : qp->notify_count;

	for (unsigned i = 0; i < qp->notify_count; i++)
		(i == data ? express_on : notify_on)(qp, slot, position,
						     qp->notifier[i]);
	snt__number_notification(qp, position);
}

/* False: it has to wait for room. */
static bool send_notification(struct snt_qp *qp, struct snt__slot *slot,
			      uint32_t position)
{
	enum notify_room room = find_notify_room(qp, carries_data(slot));

	if (room == NO_ROOM ||
	    (room == DEAD && snt__qp_is_suspended(qp) && !qp->broken))
		return false;
	slot->flags &= ~SNT__SLOT_NOTIFY;
	qp->notifies_due--;
	if (slot->status || room == DEAD || qp->broken ||
	    snt__may_order(qp, position) < 0) {
		slot->pending -= snt__spray_wrs(qp, slot);
		snt__qp_fail_slot(qp, position, SNT_WC_FLUSHED, 0, qp->extra->index);
		return true;
	}
	send_on_all(qp, slot, position);
	return true;
}

void snt__spray_advance(struct snt_qp *qp)
{
	while (qp->ordered != qp->next) {
		struct snt__slot *slot = snt__qp_slot(qp, qp->ordered);

		if (slot->flags & SNT__SLOT_NOTIFY) {
			/* Its own fragments are acknowledged, and all before it. */
			if (slot->pending > snt__spray_wrs(qp, slot) ||
			    !snt__may_order(qp, qp->ordered) ||
			    !send_notification(qp, slot, qp->ordered))
				return;
		} else if (slot->pending) {
			return;
		}
		qp->ordered++;
	}
}
