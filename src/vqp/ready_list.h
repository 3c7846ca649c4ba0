/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_READY_LIST_H
#define SNT_VQP_READY_LIST_H

#include "vqp/ready.h"

struct snt_cq;

/* QPs that may have something to report, as a list of a virtual CQ. */

/* Puts a QP on the list. */
void snt__cq_list(struct snt_cq *cq, struct snt__ready *ready);

/* The QP may have something to report. */
static inline void snt__cq_ready(struct snt_cq *cq, struct snt__ready *ready)
{
	if (!ready->listed)
		snt__cq_list(cq, ready);
}

/* Takes a QP off the list. */
void snt__cq_forget(struct snt_cq *cq, struct snt__ready *ready);

#endif
