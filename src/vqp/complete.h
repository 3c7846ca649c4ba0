/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_COMPLETE_H
#define SNT_VQP_COMPLETE_H

#include "vqp/qp.h"

struct snt__route;
struct snt_cq;

/* A WR fails; its first status is kept. */
void snt__qp_fail_slot(struct snt_qp *qp, uint32_t position, unsigned status,
		       uint32_t vendor_err, unsigned lane);

/* One physical completion of one of its lanes. False: not ours. */
bool snt__qp_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc);

/*
 * CQEs of one device, the first of which is this lane's: as many as are successes of sends
 * of one QP. Returns how many were taken. 0, with nothing done, if the first is to go
 * through snt__qp_take().
 */
int snt__qp_take_sends(struct snt__lane *lane, const struct snt__route *route,
		       unsigned device, const struct ibv_wc *wc, int count);

/*
 * The same for the CQEs of a poll of the only physical CQ, while no QP has anything else to
 * report. If these are all, what is done is reported at once; else the QP is on the list of
 * those that have something to report.
 */
int snt__qp_complete_sends(struct snt_cq *cq, struct snt__lane *lane, int count,
			   struct snt_wc *wc, int max, int *reported);

/* Reports, in order, what has finished. Returns how many. */
int snt__qp_report_sends(struct snt_qp *qp, struct snt_wc *wc, int max);
int snt__qp_report_recvs(struct snt_qp *qp, struct snt_wc *wc, int max);

/* Is there more to report? */
bool snt__qp_has_sends(const struct snt_qp *qp);
bool snt__qp_has_recvs(const struct snt_qp *qp);

#endif
