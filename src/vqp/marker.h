/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_MARKER_H
#define SNT_VQP_MARKER_H

#include "vqp/lane.h"
#include "vqp/qp.h"

/*
 * Markers. One behind everything in a queue tells, by its CQE, that the device has
 * released all earlier WRs, whether they had CQEs or not.
 */

/* Posted behind everything on the send queue; it has this as its sequence number. */
enum snt__marker {
	SNT__MARKER_KILL = 0,
	SNT__MARKER_CLOSE = 1,
	SNT__MARKER_FENCE = 2, /* fence.h */
};

/* Sets wants_marker if it was refused. */
void snt__lane_mark(struct snt__lane *lane, enum snt__marker marker);

/* The same for the receive queue; 0 or -errno. It must go in before ERR, because rxe
 * does not flush what is posted later. */
int snt__lane_mark_recv(struct snt__lane *lane, enum snt__marker marker);

/* Puts it into ERR, if there is a control table. */
int snt__lane_to_error(struct snt__lane *lane);

static inline void snt__qp_count_marker(struct snt_qp *qp, bool *due)
{
	qp->markers -= *due;
	*due = false;
}

#endif
