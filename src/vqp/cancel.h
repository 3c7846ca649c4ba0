/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CANCEL_H
#define SNT_VQP_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

struct snt_qp;

/* Cancels a send of which nothing has been sent, so that it is never reported. False:
 * it is too late. */
bool snt__qp_cancel_waiting(struct snt_qp *qp, uint32_t position);

/* The end of a QP that is being closed is reported with another wr_id. 0; 1: it has been
 * reported already; -ENOENT, without a text: it is not reported with `from`. */
int snt__qp_close_hand_over(struct snt_qp *qp, uint64_t from, uint64_t to);

/* Ends everything in flight, as a fatal error would. */
int snt__qp_abort(struct snt_qp *qp);

#endif
