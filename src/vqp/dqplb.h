/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_DQPLB_H
#define SNT_VQP_DQPLB_H

#include "vqp/qp.h"

struct snt__route;

/* DQPLB: bit 31 ends a message, bit 30 announces a raw immediate. */
#define SNT__IMM_LAST	  (1u << 31)
#define SNT__IMM_FOLLOWED (1u << 30)
#define SNT__IMM_SEQUENCE 0xffffffu

/* Fragments that may be on their way at once, and the size of a struct snt__reorder for them. */
uint32_t snt__dqplb_window(const struct snt_qp *qp);
size_t snt__dqplb_size(uint32_t window);

/* Resets both directions; both ends begin with the same number. */
void snt__dqplb_init(struct snt_qp *qp, uint32_t first);

/* A fragment, or an immediate that was announced. */
void snt__dqplb_take(struct snt_qp *qp, struct snt__lane *lane,
		     const struct ibv_wc *wc);

/*
 * CQEs of one device, the first of which is this lane's: as many as are in order and of
 * one QP, of which those that end a message are reported at once. Returns how many were
 * taken. 0, with nothing done, if the first is to go through snt__qp_take().
 */
int snt__dqplb_take_run(struct snt__lane *lane, const struct snt__route *route,
			const struct ibv_wc *physical, int count, struct snt_wc *wc,
			int *reported);

/* After a receive has been posted. */
void snt__dqplb_match(struct snt_qp *qp);

/* Posts as many empty receives as the lane may have, in chains. 0 or -errno. */
int snt__dqplb_fill(struct snt_qp *qp, struct snt__lane *lane);

/* Is there room for so many more? */
bool snt__dqplb_window_open(struct snt_qp *qp, uint32_t count);

#endif
