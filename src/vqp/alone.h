/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_ALONE_H
#define SNT_VQP_ALONE_H

#include "vqp/qp.h"

/*
 * A WR that is posted alone: nothing is gained by chains that wait for others, or by
 * remembering what was found out about it.
 */

/* Sends a write or read of one SGE without a notification, if nothing waits and lanes have
 * room. False: nothing was done. */
bool snt__qp_send_alone(struct snt_qp *qp, const struct snt_send_wr *wr);

#endif
