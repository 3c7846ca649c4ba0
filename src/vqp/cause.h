/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CAUSE_H
#define SNT_VQP_CAUSE_H

#include "vqp/lane.h"
#include "vqp/qp.h"

/*
 * Why a lane or a QP ended. A flush is only the consequence of an error, which may have
 * been reported on another lane, or to a receive that the program never sees. So the
 * first error other than a flush is kept, of each lane and of the QP as a whole, for
 * completions, snt_qp_query() and the log.
 */

/* Called before the lane is killed. Only the first cause is kept; a flush is not
 * one. */
void snt__cause_completion(struct snt__lane *lane, unsigned status,
			   uint32_t vendor_err);
void snt__cause_refused(struct snt__lane *lane, int err); /* 0: not known */
void snt__cause_peer(struct snt__lane *lane);
void snt__cause_ended(struct snt__lane *lane); /* by the peer's receipt */

/* "its first error was on lane 2 (mlx5_1 to 192.168.78.2): ...", of a QP that is broken. */
#define SNT__CAUSE_TEXT 320
const char *snt__cause_text(const struct snt_qp *qp, char buffer[SNT__CAUSE_TEXT]);

/* A negative errno for a status of a completion; 0 for a flush, which follows from another
 * error. */
int snt__status_error(unsigned status);
/* The same for the cause of a QP that is broken; 0: not known. */
int snt__cause_error(const struct snt_qp *qp);

/* Logs a line: a lane that was alive, or the QP, ends now. */
void snt__cause_log_lane(const struct snt__lane *lane);
void snt__cause_log_qp(const struct snt_qp *qp);

/* Adds the cause to a flushed completion: what ended its lane or, if that is not known,
 * the QP. Inline, since a call would cost where successes are reported. */
static inline void snt__qp_tell_cause(const struct snt_qp *qp, struct snt_wc *wc)
{
	const struct snt__cause *cause = &qp->lane[wc->lane].cause;

	if (!cause->what)
		cause = &qp->cause;
	if (!cause->what)
		return;
	wc->cause = cause->status;
	wc->vendor_err = cause->vendor_err;
	wc->lane = cause->lane;
	wc->device = qp->lane[cause->lane].device;
}

#endif
