/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LIFE_H
#define SNT_VQP_LIFE_H

#include "vqp/failover_state.h"

/*
 * The physical QPs of a life. Each life has new ones, with numbers and PSNs of their own, so
 * that a late packet of an earlier life reaches none of them.
 */

/* DRAINED to FENCED: makes QPs for the next life, of lanes that have not failed, then
 * destroys the old ones. 0, or the errno of the device, after which it can be repeated. */
int snt__life_prepare(struct snt_qp *qp);

/*
 * FENCED to ARMED, if the ends have a lane in common: what is not proven is to be sent again,
 * receives are posted, lanes connected. What fails of this ends the new life at once. 0;
 * -EPROTO if the peer's receipt cannot be true: nothing was changed.
 */
int snt__life_begin(struct snt_qp *qp);

/* Destroys old QPs that are left. 0, or the errno of the device. */
int snt__life_destroy_old(struct snt_qp *qp);

/* For a QP that begins again: makes QPs for lanes that have none. */
int snt__life_restore(struct snt_qp *qp);

#endif
