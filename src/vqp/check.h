/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CHECK_H
#define SNT_VQP_CHECK_H

#include "vqp/qp.h"

/*
 * What a send WR must fulfil. Nearly all are of one kind, so there is a question
 * with a short answer for those, and a long one which knows every reason.
 */

enum snt__shape {
	SNT__SHAPE_NONE,
	SNT__SHAPE_SPREAD,  /* cut into fragments over all lanes */
	SNT__SHAPE_MESSAGE, /* one piece, on one lane */
	SNT__SHAPE_ATOMIC,
};

struct snt__rule {
	uint8_t shape;
	uint8_t verb; /* of a fragment */
	uint8_t remote_access;
	uint8_t local_access;
};

/* By opcode, from SNT_WRITE to SNT_FETCH_ADD. */
extern const struct snt__rule snt__rules[];

#define SNT__FLAGS_KNOWN (SNT_SIGNALED | SNT_FENCE | SNT_SOLICITED | SNT_INLINE)

/* Longer WRs are simple too, but their fragments may have to be counted. */
#define SNT__SIMPLE_MAX (1u << 30)

/* A write or read of one SGE, and nothing else to it? */
static inline bool snt__is_simple(const struct snt_send_wr *wr)
{
	return (unsigned)wr->opcode - SNT_WRITE <= SNT_READ - SNT_WRITE &&
	       wr->sge_count == 1 && !(wr->flags & ~(SNT_SIGNALED | SNT_SOLICITED)) &&
	       wr->sge->length - 1 < SNT__SIMPLE_MAX - 1;
}

/* Is all of it in order? Otherwise snt__check_wr says what is not. */
static inline bool snt__simple_is_good(const struct snt_qp *qp,
				       const struct snt_send_wr *wr)
{
	const struct snt__rule *rule = &snt__rules[wr->opcode];
	const struct snt_mem *mem = wr->sge->mem;
	const struct snt_token *token = wr->remote;
	uint64_t length = wr->sge->length;

	return mem && token && mem->ctx == qp->ctx &&
	       token->key_count >= qp->remote_count &&
	       snt__mem_holds(mem, (uintptr_t)wr->sge->addr, length) &&
	       snt__token_holds(token, wr->remote_addr, length) &&
	       !(rule->remote_access & ~token->access) &&
	       !(rule->local_access & ~mem->access);
}

/* 0, or a negative errno as of snt_qp_post_send(). */
int snt__check_wr(const struct snt_qp *qp, const struct snt_send_wr *wr,
		  uint64_t *length_out);

#endif
