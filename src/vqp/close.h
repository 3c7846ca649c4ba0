/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CLOSE_H
#define SNT_VQP_CLOSE_H

#include "vqp/qp.h"

/* The public call, for ops as well. */
int snt__qp_close(struct snt_qp *qp, uint64_t wr_id);

#endif
