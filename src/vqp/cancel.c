/* SPDX-License-Identifier: MIT */
/*
 * Taking back WRs. A WR that waits in the ring, with nothing of it sent, can be
 * cancelled; its slot stays where it is, as a void one. What has been sent can only be
 * ended together with everything else on its lanes.
 */
#include "vqp/cancel.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/failover_state.h"
#include "vqp/failure.h"
#include "vqp/marker.h"
#include "vqp/qp.h"
#include "vqp/ring.h"
#include "vqp/send.h"

/* In an earlier life of the lanes: it may have taken effect. */
static bool was_cut(const struct snt_qp *qp, uint32_t position)
{
	return qp->phase && snt__before(position, qp->failover->cut_end);
}

static bool waits_for_lanes(struct snt_qp *qp, uint32_t position)
{
	return position - qp->next < qp->tail - qp->next && !was_cut(qp, position) &&
	       !(position == qp->next && snt__qp_slot(qp, position)->sent);
}

/* An express message has no fragments of its own: all of it waits for its turn. */
static bool waits_for_notify_lanes(struct snt_qp *qp, uint32_t position)
{
	const uint8_t express = SNT__SLOT_EXPRESS | SNT__SLOT_NOTIFY;
	const struct snt__slot *slot = snt__qp_slot(qp, position);

	return position - qp->ordered < qp->next - qp->ordered &&
	       !was_cut(qp, position) && (slot->flags & express) == express &&
	       !slot->status;
}

bool snt__qp_cancel_waiting(struct snt_qp *qp, uint32_t position)
{
	struct snt__slot *slot;

	if (qp->pass_through)
		return false;
	slot = snt__qp_slot(qp, position);
	if (waits_for_notify_lanes(qp, position))
		qp->notifies_due--;
	else if (!waits_for_lanes(qp, position))
		return false;
	slot->pending = 0;
	slot->flags = SNT__SLOT_VOID;
	/* Later WRs may have waited for this one only. */
	snt__qp_dispatch(qp);
	return true;
}

int snt__qp_close_hand_over(struct snt_qp *qp, uint64_t from, uint64_t to)
{
	if (!qp->closing || qp->close_wr_id != from)
		return -ENOENT;
	qp->close_wr_id = to;
	return qp->closed_reported;
}

/* Can everything in flight be ended? */
static int check_control(const struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_device *device = qp->ctx->device[qp->lane[i].device];

		if (!device->control.modify_qp)
			return snt__fail(EOPNOTSUPP,
					 "%s has no control table to put a QP to ERR "
					 "with",
					 device->name);
	}
	return 0;
}

int snt__qp_abort(struct snt_qp *qp)
{
	int ret = check_control(qp);

	if (ret)
		return ret;
	if (!qp->pass_through) {
		snt__qp_break(qp);
		snt__qp_dispatch(qp);
		return 0;
	}
	ret = snt__lane_to_error(qp->lane);
	if (ret)
		return snt__fail(-ret, "%s: QP %u cannot go to ERR: %s",
				 qp->ctx->device[qp->lane->device]->name, qp->num,
				 strerror(-ret));
	snt__passthrough_end(qp);
	return 0;
}
