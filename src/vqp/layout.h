/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LAYOUT_H
#define SNT_VQP_LAYOUT_H

#include "vqp/qp.h"

/*
 * All rings, FIFOs and chains of a virtual QP in one block (qp->memory), sized by
 * its options, so that nothing is allocated after creation.
 */
int snt__layout_allocate(struct snt_qp *qp);

/* connect.c: a fresh physical QP to INIT, so that receives can be posted. */
int snt__qp_to_init(struct snt_qp *qp, struct snt__lane *lane);

/* connect.c: all lanes to INIT with nothing posted, from any state. After a failure it
 * must be repeated before they can be connected. */
int snt__qp_reset_lanes(struct snt_qp *qp);

/* reset.c: new tags for all lanes; completions under the old ones are strays. */
void snt__qp_retag(struct snt_qp *qp);

/* reset.c: the first `count` data lanes take turns. */
void snt__qp_use_lanes(struct snt_qp *qp, uint32_t count);

/* reset.c: all lanes that were created are to be used. */
void snt__qp_use_all(struct snt_qp *qp);

/* reset.c: unconnected and empty. */
int snt__qp_begin(struct snt_qp *qp);

#endif
