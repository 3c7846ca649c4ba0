/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CHECK_H
#define SNT_VQP_CHECK_H

#include <limits.h>

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
	uint8_t verb;	       /* of a fragment */
	uint8_t whole_verb;    /* of a WR that is passed on as it is */
	uint8_t remote_access; /* SNT_ACCESS_* that the token must grant */
	uint8_t local_access;  /* and the memory */
};

/* By opcode, from SNT_WRITE to SNT_FETCH_ADD. */
extern const struct snt__rule snt__rules[];

#define SNT__FLAGS_KNOWN (SNT_SIGNALED | SNT_FENCE | SNT_SOLICITED | SNT_INLINE)

/* qp->simple_max is at most this, so that sums of lengths need no care. */
#define SNT__SIMPLE_MAX (1u << 30)

/* Whose rights were looked at last; programs mostly post to the same places. Good
 * for one call only, since nothing can change meanwhile. */
struct snt__known {
	const struct snt_mem *mem;
	const struct snt_token *token;
	unsigned opcode;
	uint32_t local_key; /* on the first lane */
	uint32_t remote_key;
};

#define SNT__KNOWN_NONE            \
	{                          \
		.opcode = UINT_MAX \
	}

/* May a WR with this opcode be of this memory and this token? Then they are known. */
bool snt__check_rights(const struct snt_qp *qp, const struct snt_send_wr *wr,
		       struct snt__known *known);

/* A write or read of one SGE, with nothing else to it, and in order? Not a reason to
 * refuse if not: then snt__check_wr knows more. */
static inline bool snt__check_simple(const struct snt_qp *qp,
				     const struct snt_send_wr *wr,
				     struct snt__known *known)
{
	const struct snt_sge *sge = wr->sge;
	const struct snt_token *token = wr->remote;
	uint64_t length;

	if (wr->sge_count != 1 || wr->flags & ~(SNT_SIGNALED | SNT_SOLICITED))
		return false;
	if (__builtin_expect(sge->mem != known->mem || token != known->token ||
				     wr->opcode != known->opcode,
			     0) &&
	    !snt__check_rights(qp, wr, known))
		return false;
	length = sge->length;
	return length - 1 < qp->simple_max &&
	       snt__mem_holds(sge->mem, (uintptr_t)sge->addr, length) &&
	       snt__token_holds(token, wr->remote_addr, length);
}

/* 0, or a negative errno as of snt_qp_post_send(). */
int snt__check_wr(const struct snt_qp *qp, const struct snt_send_wr *wr,
		  uint64_t *length_out);

#endif
