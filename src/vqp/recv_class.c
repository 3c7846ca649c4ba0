/* SPDX-License-Identifier: MIT */
#include "vqp/recv_class.h"

#include <errno.h>

#include "vqp/phase.h"

/* Can this class still be received? */
static bool class_is_alive(const struct snt_qp *qp, const struct snt__recv_ring *ring)
{
	if (qp->closing || qp->broken)
		return false;
	if (snt__qp_is_suspended(qp))
		return true;
	if (ring == &qp->data)
		return qp->lane[qp->message_lane].alive;
	for (unsigned i = 0; i < qp->notify_count; i++)
		if (!qp->notifier[i]->alive)
			return false;
	return true;
}

void snt__recv_update(struct snt_qp *qp)
{
	qp->data.refusal = class_is_alive(qp, &qp->data) ? 0 : -ESHUTDOWN;
	qp->notify.refusal = class_is_alive(qp, &qp->notify) ? 0 : -ESHUTDOWN;
}

void snt__recv_fail(struct snt__recv *recv, unsigned status, uint32_t vendor_err,
		    unsigned lane)
{
	if (recv->status &&
	    (recv->status != SNT_WC_FLUSHED || status == SNT_WC_FLUSHED))
		return;
	recv->status = status;
	recv->vendor_err = vendor_err;
	recv->lane = lane;
}

/* DQPLB's notification receives, which are on no lane: they end with the lane that ended
 * the QP. All other receives come back from their lanes, some with an error that is not a
 * flush. */
void snt__recv_flush(struct snt_qp *qp)
{
	struct snt__recv_ring *ring = &qp->notify;

	if (qp->scheme != SNT_SCHEME_DQPLB)
		return;
	for (uint32_t at = ring->head; at != ring->tail; at++) {
		struct snt__recv *recv = &ring->recv[at & ring->mask];

		if (!recv->pending)
			continue;
		recv->pending = 0;
		snt__recv_fail(recv, SNT_WC_FLUSHED, 0, qp->cause.lane);
	}
	ring->done = ring->tail;
}
