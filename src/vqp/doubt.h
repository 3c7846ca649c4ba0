/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_DOUBT_H
#define SNT_VQP_DOUBT_H

#include "vqp/lane.h"

struct snt_wc;

/*
 * WRs which a device said it had refused, of a pass-through lane. Queues are never full
 * by our own count, so something is wrong, and some devices say this after having queued
 * them: posting them again could send them twice. So they count as posted, and the lane
 * is given up. Those that the device has come back from it. When a queue's marker has
 * come, the device has let go of all, and what has not come back never will: it is
 * reported as flushed.
 *
 * Of receives that is all that are under way then. Of sends it is those from the first
 * refused one on: one before it that has not come back was not signalled, and succeeded.
 */
struct snt__doubt {
	uint32_t first;	  /* sequence number of the first send that was refused */
	bool sends;	  /* there is one */
	bool sends_ended; /* the device has let go of all sends */
	bool recvs_ended; /* and of all receives */
};

/* From this sequence number on; the last receive that was posted. With the errno. */
void snt__doubt_sends(struct snt_qp *qp, uint32_t first, int err);
void snt__doubt_recv(struct snt_qp *qp, int err);

/* A queue is at its end. */
void snt__doubt_end(struct snt_qp *qp, enum snt__queue queue);

/* Is there something to report? */
bool snt__doubt_is_due(const struct snt_qp *qp, enum snt__queue queue);

/* Is all reported that was under way on a lane which is at its end? */
bool snt__doubt_is_settled(const struct snt_qp *qp);

/* Those that never were there, flushed. Returns how many. */
int snt__doubt_report(struct snt_qp *qp, enum snt__queue queue, struct snt_wc *wc,
		      int max);

#endif
