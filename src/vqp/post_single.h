/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_POST_SINGLE_H
#define SNT_VQP_POST_SINGLE_H

#include "vqp/build.h"
#include "vqp/check.h"

/*
 * A WR that is posted alone: chains that are posted later, or remembered results of
 * checks, would gain nothing.
 */

/* As snt_qp_post_send(). Fastest for writes and reads of one SGE while no WR waits and
 * lanes have room; anything else goes to snt__qp_post_many(). */
int snt__qp_post_single(struct snt_qp *qp, const struct snt_send_wr *wr);

/* post.c: the path for many WRs. */
int snt__qp_post_many(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count);

/* The only fragment of a checked WR of one SGE, on this lane. */
static inline void snt__single_build(const struct snt_send_wr *wr,
				     const struct snt__lane *lane, uint32_t verb,
				     uint32_t flags, uint32_t imm,
				     struct ibv_send_wr *physical, struct ibv_sge *sge)
{
	physical->sg_list = sge;
	snt__build_kind(physical, 1, verb, flags, imm);
	snt__sge_set(sge, snt__sge_words((uintptr_t)wr->sge->addr, wr->sge->length,
					 wr->sge->mem->local_key[lane->device]));
	snt__build_target(physical, wr->remote_addr,
			  wr->remote->key[lane->remote_device]);
}

#endif
