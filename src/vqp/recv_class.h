/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RECV_CLASS_H
#define SNT_VQP_RECV_CLASS_H

#include "vqp/qp.h"

/*
 * Classes of receives: those with SGEs, and those of notifications. Each can be posted to
 * while the lanes that take it live.
 */

/* After lanes have died, or the QP as a whole. */
void snt__recv_update(struct snt_qp *qp);

/* After the QP has broken: receives that are on no lane. */
void snt__recv_flush(struct snt_qp *qp);

/* As snt__qp_fail_slot(): the first error that is not a flush. */
void snt__recv_fail(struct snt__recv *recv, unsigned status, uint32_t vendor_err,
		    unsigned lane);

#endif
