/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SEND_H
#define SNT_VQP_SEND_H

#include "vqp/qp.h"

/* Cuts waiting WRs as far as they can be sent, and adds the fragments to the
 * chains of their lanes. */
void snt__qp_send_waiting(struct snt_qp *qp);

/* Posts all chains. */
void snt__qp_post_chains(struct snt_qp *qp);

/* Both. */
void snt__qp_dispatch(struct snt_qp *qp);

#endif
