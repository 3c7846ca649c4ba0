/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RESET_H
#define SNT_VQP_RESET_H

struct snt_qp;

/* Unconnected and empty. */
int snt__qp_begin(struct snt_qp *qp);

#endif
