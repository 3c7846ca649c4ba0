/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_POST_SINGLE_H
#define SNT_VQP_POST_SINGLE_H

#include "vqp/qp.h"

/*
 * A WR that is posted alone: chains that are posted later, or remembered results of
 * checks, would gain nothing.
 */

/* As snt_qp_post_send(). Fastest for writes and reads of one SGE while no WR waits and
 * lanes have room; anything else goes to snt__qp_post_many(). */
int snt__qp_post_single(struct snt_qp *qp, const struct snt_send_wr *wr);

#endif
