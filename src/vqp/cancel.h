/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CANCEL_H
#define SNT_VQP_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

struct snt_qp;

/* Cancels a send of which nothing has been sent, so that it is never reported. False:
 * it is too late. */
bool snt__qp_cancel_waiting(struct snt_qp *qp, uint32_t position);

/* Ends everything in flight, as a fatal error would. */
int snt__qp_abort(struct snt_qp *qp);

#endif
