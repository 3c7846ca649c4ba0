/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_FAILURE_H
#define SNT_VQP_FAILURE_H

#include "vqp/lane.h"
#include "vqp/phase.h"
#include "vqp/qp.h"

/*
 * How lanes and QPs fail. A lane dies of its first error, a QP with the last data lane or,
 * where a gap cannot be repaired, with the first. What is in flight comes back flushed,
 * once the markers (marker.h) have. Closing, which the program asks for, is in close.h.
 */

/* It can be used for nothing but to be closed. */
static inline bool snt__qp_is_broken(const struct snt_qp *qp)
{
	return qp->connected && !qp->closing &&
	       (qp->broken || (!qp->lanes_alive && !snt__qp_is_suspended(qp)));
}

static inline void snt__qp_tell_broken(struct snt_qp *qp)
{
	if (qp->broke && snt__qp_is_broken(qp))
		qp->broke(qp->broke_arg);
}

/*
 * Ends the use of a lane: puts it into ERR, where the device can, and a marker behind
 * everything, whose CQE says that the device has released all earlier WRs.
 */
void snt__lane_kill(struct snt__lane *lane);

/* Stops the QP; everything in flight is flushed. */
void snt__qp_break(struct snt_qp *qp);

/* The same, because of something that the peer sent to this lane. */
__attribute__((cold)) void snt__qp_break_for_peer(struct snt__lane *lane);

/* Makes the QP unusable, after an error or because the program wants it so. */
void snt__passthrough_fail(struct snt_qp *qp);
void snt__passthrough_end(struct snt_qp *qp);

#endif
