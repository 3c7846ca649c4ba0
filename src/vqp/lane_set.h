/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LANE_SET_H
#define SNT_VQP_LANE_SET_H

#include "vqp/lane.h"
#include "vqp/qp.h"

/* The lanes of a QP as a whole: their tags, turns and device states. */

/* A tag that no lane has, with 0 for kind and lane. */
uint32_t snt__tag_fresh(void);

/* After a change of alive or depth. */
void snt__lane_update(struct snt__lane *lane);

/* New tags for all lanes; completions under the old ones are strays. */
void snt__qp_retag(struct snt_qp *qp);

/* The first `count` data lanes take turns. */
void snt__qp_use_lanes(struct snt_qp *qp, uint32_t count);

/* The data lanes that are alive take turns; there is one at least. */
void snt__qp_take_turns(struct snt_qp *qp);

/* A data lane that has died takes no more turns, unless it is the last one. It still
 * points to the lane after it, so that a loop over lanes in which it died can go on. */
void snt__lane_leave_turns(struct snt__lane *lane);

/* All lanes that were created are to be used. */
void snt__qp_use_all(struct snt_qp *qp);

/* The first notify_count notify lanes take notifications. */
void snt__qp_use_notifiers(struct snt_qp *qp);

static inline const struct snt_device *snt__lane_device(const struct snt_qp *qp,
							const struct snt__lane *lane)
{
	return qp->ctx->device[lane->device];
}

/* Sets the error text; returns ret. */
int snt__lane_fail_transition(const struct snt_qp *qp, const struct snt__lane *lane,
			      const char *state, int ret);

/* A fresh physical QP to INIT, so that receives can be posted. */
int snt__qp_to_init(struct snt_qp *qp, struct snt__lane *lane);

/* All lanes to INIT with nothing posted, from any state. After a failure it must be
 * repeated before they can be connected. */
int snt__qp_reset_lanes(struct snt_qp *qp);

/* As if nothing had been posted; completions of it under the old tags are strays. */
void snt__qp_forget_receives(struct snt_qp *qp);

#endif
