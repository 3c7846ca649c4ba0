/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CQ_POLL_H
#define SNT_VQP_CQ_POLL_H

#include "vqp/cq.h"

/* As snt_cq_poll(), also for a CQ that the layer above serves. */
int snt__cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max);

/* Of a program's inline snt_cq_poll(): the only physical CQ had this many CQEs; and
 * everything but that case. */
int snt__cq_take_first(struct snt_cq *cq, int count, struct snt_wc *wc, int max);
int snt__cq_poll_slowly(struct snt_cq *cq, struct snt_wc *wc, int max);

#endif
