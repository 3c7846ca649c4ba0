/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CLOSE_H
#define SNT_VQP_CLOSE_H

#include "vqp/qp.h"

/* The public call, for ops as well. */
int snt__qp_close(struct snt_qp *qp, uint64_t wr_id);

/* It is destroyed, or reset: completions that the layer above is passing on outlive it. */
void snt__qp_leave_passing(const struct snt_qp *qp);

/* It was to be closed, but a device is gone, and its end will never be reported. */
bool snt__qp_is_lost(const struct snt_qp *qp);

/* The same for what it has posted. */
bool snt__qp_has_lost(const struct snt_qp *qp, enum snt__queue queue);

/* Nothing of it is in use any more, or it is not known when: it can be destroyed. */
static inline bool snt__qp_is_over(const struct snt_qp *qp)
{
	return !qp->connected || qp->closed_reported || snt__qp_is_lost(qp);
}

#endif
