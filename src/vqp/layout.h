/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LAYOUT_H
#define SNT_VQP_LAYOUT_H

#include "vqp/qp.h"

/*
 * All rings, FIFOs and chains of a virtual QP in one block (qp->memory), sized by
 * its options, so that nothing is allocated after creation.
 */
int snt__layout_allocate(struct snt_qp *qp);

#endif
