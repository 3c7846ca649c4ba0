/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LANE_QP_H
#define SNT_VQP_LANE_QP_H

#include "vqp/qp.h"

/* The physical QP of a lane that the library makes, and its completions. */

/* Completions of receives that may be queued at once, unless they are an SRQ's. */
uint32_t snt__lane_recv_room(const struct snt_qp *qp, uint32_t lane);

/* Makes one, in INIT. After a failure the lane may have one nevertheless, which is to be
 * destroyed. */
int snt__lane_create_qp(struct snt_qp *qp, struct snt__lane *lane);

/* Registers a lane with its CQs, which have reserved room for its completions. */
int snt__lane_join_cqs(struct snt_qp *qp, struct snt__lane *lane);

/* Both. */
int snt__lane_make_qp(struct snt_qp *qp, struct snt__lane *lane);

/* Completions of this QP number are strays from now on. */
void snt__lane_leave_routes(struct snt_qp *qp, const struct snt__lane *lane,
			    uint32_t qp_num);

#endif
