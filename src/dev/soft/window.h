/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_WINDOW_H
#define SNT_DEV_SOFT_WINDOW_H

#include <stdbool.h>
#include <infiniband/verbs.h>
#include "dev/soft/memory.h"

/*
 * Memory windows of type 2B.
 *
 * A window has a slot among the regions, so that a peer's key is looked up once. Bound,
 * the slot says which bytes, what rights and which QP; the bytes stay those of the MR,
 * which cannot be deregistered meanwhile. A bind and an invalidation are executed when
 * the requester comes to their WR (requester.c), an invalidation by the peer with the
 * last packet of its SEND (execute.c).
 *
 * A window belongs to its QP only while that is connected: RESET and destruction unbind
 * it, because the next peer of that QP number may be another one.
 */

struct snt__soft_qp;
struct snt__soft_send;

/* IBV_MW_TYPE_2 only. Returns 0; -EOPNOTSUPP for type 1; -EIO; -ENOMEM. */
int snt__soft_alloc_mw_type(struct ibv_pd *pd, enum ibv_mw_type type,
			    struct ibv_mw **mw_out);
int snt__soft_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw_out);
/* Bound or not. Returns 0. */
int snt__soft_dealloc_mw(struct ibv_mw *mw);

/* May a WR that binds a window be posted? What depends on keys is found out later. */
bool snt__soft_bind_valid(const struct ibv_qp *qp, const struct ibv_send_wr *wr);

/* With the lock. False: the keys, the range or the rights do not permit it. */
bool snt__soft_window_bind(struct snt__soft_qp *qp, const struct snt__soft_send *send);
bool snt__soft_window_invalidate(struct snt__soft_qp *qp, uint32_t rkey);

/* Is there a window with this key that is bound to this QP? */
bool snt__soft_window_bound(const struct snt__soft_qp *qp, uint32_t rkey);

/* The QP leaves its peer. */
void snt__soft_windows_unbind(struct snt__soft_qp *qp);

#endif
