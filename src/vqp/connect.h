/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CONNECT_H
#define SNT_VQP_CONNECT_H

#include "vqp/qp.h"

/* The peer's lane that one of ours connects to, or NULL. */
const struct snt_card_lane *snt__lane_counterpart(const struct snt_qp *qp,
						  const struct snt__lane *lane,
						  const struct snt_card *peer);

/* From INIT to RTS. 0, or the errno of the device. */
int snt__lane_connect(struct snt_qp *qp, struct snt__lane *lane,
		      const struct snt_card *peer);

#endif
