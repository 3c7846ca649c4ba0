/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_POST_H
#define SNT_VQP_POST_H

#include "vqp/qp.h"

/* The public call, for ops as well. */
int snt__qp_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count);

#endif
