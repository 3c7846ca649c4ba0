/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RECV_H
#define SNT_VQP_RECV_H

#include "vqp/qp.h"

/* The public call, for ops as well. */
int snt__qp_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count);

/* A completion of a receive. */
void snt__recv_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc);

/* The end of a lane's receives: those that have not come back were never queued. */
void snt__recv_end(struct snt_qp *qp, struct snt__lane *lane);

/* Posts what no lane of an earlier life has taken, to the lanes of this one. Ends the life
 * if a lane refuses. */
void snt__recv_repost(struct snt_qp *qp);

/* Posts what was accepted before lanes were connected. */
int snt__recv_post_all(struct snt_qp *qp);

#endif
