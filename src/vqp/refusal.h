/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_REFUSAL_H
#define SNT_VQP_REFUSAL_H

#include "vqp/qp.h"

/* Refused posts: the state of the QP that refuses them, and their error texts. */

/* Refuses all posts from now on, with this errno; 0: no longer. */
void snt__qp_refuse(struct snt_qp *qp, int why);

/* Sets the error text of posts that are refused whatever the WR is. Each
 * returns the errno: `why`, -EAGAIN for a full queue of sends or of receives, -EINVAL
 * for an empty list. */
int snt__qp_refusal(const struct snt_qp *qp, int why);

int snt__qp_full(const struct snt_qp *qp);
int snt__qp_recv_full(const struct snt_qp *qp);
int snt__qp_no_wrs(const struct snt_qp *qp);

/* -EINVAL if only ops may be posted to this QP. */
int snt__qp_wants_ops(const struct snt_qp *qp);

#endif
