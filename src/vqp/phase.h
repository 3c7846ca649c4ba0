/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_PHASE_H
#define SNT_VQP_PHASE_H

#include "vqp/qp.h"

/*
 * Where a QP with failover is between two lives of its lanes. A life n ends in DRAIN and is
 * over in FENCED; life n + 1 begins in ARMED. Sends leave in UP only. A QP that broke or is
 * being closed (snt_qp.broken) begins no other life.
 *
 *	UP       fault, or the peer stopped           -> DRAIN
 *	DRAIN    the last marker was polled           -> DRAINED
 *	DRAINED  new QPs made, old ones destroyed     -> FENCED
 *	FENCED   the peer is fenced, a common lane    -> ARMED of the next life
 *	FENCED   the peer is a life ahead, new offer  -> DRAINED of the next life
 *	DRAINED, FENCED  the QP is broken or closed   -> ENDED
 *	ARMED    the peer is armed, or has sent       -> UP
 *	ARMED    fault, or the peer stopped           -> DRAIN
 */
enum snt__phase {
	SNT__PHASE_NONE, /* no failover */
	SNT__PHASE_UP,
	SNT__PHASE_DRAIN,   /* lanes are in ERR, their markers are to come */
	SNT__PHASE_DRAINED, /* devices have released everything */
	SNT__PHASE_FENCED,  /* nothing of the old life can execute */
	SNT__PHASE_ENDED,   /* broken or closed meanwhile, and everything is flushed */
	SNT__PHASE_ARMED,   /* connected; the peer may not be yet */
};

/* Is sending suspended? */
static inline bool snt__qp_is_suspended(const struct snt_qp *qp)
{
	return qp->phase > SNT__PHASE_UP;
}

/* Between two lives, when no lane is of use. */
static inline bool snt__qp_is_between_lives(const struct snt_qp *qp)
{
	return qp->phase >= SNT__PHASE_DRAIN && qp->phase <= SNT__PHASE_ENDED;
}

/* Do errors of lanes leave WRs and receives to be settled, or to be flushed all at once when
 * the fence is complete? */
static inline bool snt__qp_survives(const struct snt_qp *qp)
{
	return qp->phase && (!qp->broken || snt__qp_is_between_lives(qp));
}

#endif
