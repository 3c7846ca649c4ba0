/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_POST_MANY_H
#define SNT_VQP_POST_MANY_H

#include "vqp/qp.h"

/* As snt_qp_post_send(), for any WRs of a QP with a ring. */
int snt__qp_post_many(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count);

#endif
