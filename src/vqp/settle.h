/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SETTLE_H
#define SNT_VQP_SETTLE_H

#include "vqp/failover_state.h"

/*
 * Settling: what the peer's receipt proves of the WRs in the ring. A SEND or a notification
 * that was taken proves every WR before it, because it left only when all of them were
 * acknowledged, or were ahead of it on its own lanes. Everything else that is not wholly
 * acknowledged is cut again: `next` goes back to the first such WR, and from there all is
 * as if it had just been posted. Exceptions: a WR with an error of its own fails; an atomic
 * that was sent is never sent again; with SNT_QP_STRICT neither is a plain WRITE.
 */

/* Can the receipt be true? 0 or -EPROTO. */
int snt__settle_check(const struct snt_qp *qp, const struct snt__receipt *receipt);

/* Nothing is in flight, and the lanes of the next life have been chosen. */
void snt__settle(struct snt_qp *qp, const struct snt__receipt *receipt);

#endif
