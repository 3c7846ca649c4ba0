/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_FENCE_H
#define SNT_VQP_FENCE_H

#include "vqp/failover_state.h"
#include "vqp/phase.h"
#include "vqp/qp.h"

/*
 * The fence: what makes certain that nothing of a life can execute any more. On each lane
 * a marker behind all receives, then ERR, then a marker behind all sends. When both have been
 * polled, the device has released every WR; when the QP has been destroyed (life.h), late
 * packets of the peer reach no QP. Each of these is needed: a responder may still execute
 * a write after ERR or RESET until its receive marker has come, and writes without a
 * receive until the QP is gone.
 */

/* Ends the life: UP or ARMED to DRAIN. */
void snt__fence_stop(struct snt_qp *qp);

/* Goes on where a step was refused. True: it has to be repeated. */
bool snt__fence_retry(struct snt_qp *qp);

/* The QP is being closed: 0, or -EIO if the lane cannot go to ERR, so that its end may never
 * come. */
int snt__fence_close(struct snt__lane *lane);

/* A marker was polled. */
void snt__fence_take(struct snt__lane *lane, enum snt__queue queue);

/* Are markers still to come? */
static inline bool snt__fence_is_due(const struct snt_qp *qp)
{
	return qp->phase == SNT__PHASE_DRAIN && qp->failover->due;
}

/* The QP is broken or being closed, and devices have released everything: what was in flight
 * is to be flushed. */
static inline bool snt__fence_is_over(const struct snt_qp *qp)
{
	return qp->broken && qp->phase != SNT__PHASE_ENDED &&
	       snt__qp_is_between_lives(qp) && !qp->failover->due;
}

/* A lane failed, of a QP that is not broken: everything stops. */
void snt__failover_lane_failed(struct snt__lane *lane);

/* A receive failed by itself: so does the SEND that it took. */
void snt__failover_recv_failed(struct snt_qp *qp, const struct snt__recv_ring *ring,
			       uint32_t position);

/* Armed, and the peer is as well: the next poll sends what waits. */
void snt__failover_go_up(struct snt_qp *qp);

/* The QP has broken or is being closed: the next poll flushes what the fence allows. */
void snt__failover_end(struct snt_qp *qp);

/* This end's state has changed: to be reported as SNT_OP_RECEIPT. */
void snt__failover_notice(struct snt_qp *qp);

/* Reports it; returns how many completions that is. */
int snt__failover_report(struct snt_qp *qp, struct snt_wc *wc, int max);

#endif
