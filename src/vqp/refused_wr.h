/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_REFUSED_WR_H
#define SNT_VQP_REFUSED_WR_H

#include "vqp/qp.h"

/*
 * WRs of a pass-through lane that a device claims to have refused. By our own count
 * queues are never full, so something is wrong, and some devices report this after
 * having queued the WRs: posting them again could send them twice. So they count as
 * posted, and the lane is given up. WRs that the device has come back from it. When a
 * queue's marker has come, the device has released everything, and WRs that have not
 * come back never will: they are reported as flushed.
 *
 * For receives, these are all that are in flight then. For sends, they are those from
 * the first refused one on: an earlier one that has not come back was not signalled,
 * and succeeded.
 */

/* From this sequence number on; the receive that was posted last. With the errno. */
void snt__refused_wr_sends(struct snt_qp *qp, uint32_t first, int err);
void snt__refused_wr_recv(struct snt_qp *qp, int err);

/* The marker of a queue has come. */
void snt__refused_wr_end(struct snt_qp *qp, enum snt__queue queue);

/* Is there something to report? */
bool snt__refused_wr_is_due(const struct snt_qp *qp, enum snt__queue queue);

/* Has everything been reported that was in flight on a lane whose queues have ended? */
bool snt__refused_wr_is_settled(const struct snt_qp *qp);

/* Reports WRs that the device never had as flushed. Returns how many. */
int snt__refused_wr_report(struct snt_qp *qp, enum snt__queue queue, struct snt_wc *wc,
			   int max);

#endif
