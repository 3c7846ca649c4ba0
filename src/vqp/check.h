/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CHECK_H
#define SNT_VQP_CHECK_H

#include <endian.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "vqp/qp.h"

/*
 * The conditions that a send WR must meet. Nearly all WRs are of one kind, so there is
 * a fast check for those, and a complete one that knows every reason.
 */

enum snt__shape {
	SNT__SHAPE_NONE,
	SNT__SHAPE_SPREAD,  /* cut into fragments over all lanes */
	SNT__SHAPE_MESSAGE, /* one piece, on one lane */
	SNT__SHAPE_ATOMIC,
};

/* 8 bytes, so that the address of an entry is computed within the load. */
struct snt__rule {
	_Alignas(8) uint8_t shape;
	uint8_t verb;	       /* of a fragment */
	uint8_t whole_verb;    /* of a WR that is passed on as it is */
	uint8_t remote_access; /* SNT_ACCESS_* that the token must grant */
	uint8_t local_access;  /* and the memory */
};

/* By opcode, from SNT_OP_WRITE to SNT_OP_FETCH_ADD. */
extern const struct snt__rule snt__rules[];

#define SNT__FLAGS_KNOWN \
	(SNT_SEND_SIGNALED | SNT_SEND_FENCE | SNT_SEND_SOLICITED | SNT_SEND_INLINE)

/* qp->simple_max is at most this, so that sums of lengths cannot overflow. */
#define SNT__SIMPLE_MAX (1u << 30)

/* A WR has fewer fragments than 2 to the power of this, so that counters cannot
 * wrap. */
#define SNT__FRAGMENTS_BITS 30

/* After a change of refusal or even: updates which WRs may take the fast path. */
void snt__check_update(struct snt_qp *qp);

/* The memory and token that were checked last; programs mostly post to the same ones.
 * Valid for one call only, during which nothing can change. */
struct snt__known {
	const struct snt_mem *mem;
	const struct snt_token *token;
	uint64_t length_max; /* the longest WR: simple_max, or less if both hold less */
	uint32_t local_key;  /* on the first lane */
	uint32_t remote_key;
	uint32_t form;
	uint8_t verb, whole_verb; /* of its rule */
};

/*
 * Opcode, flags and number of SGEs in one word, without the flags that make no
 * difference here: most WRs of a call have the same form.
 */
static inline uint32_t snt__wr_form(const struct snt_send_wr *wr)
{
	uint32_t form;

	memcpy(&form, (const char *)wr + offsetof(struct snt_send_wr, opcode),
	       sizeof(form));
	return form & ~htole32((SNT_SEND_SIGNALED | SNT_SEND_SOLICITED) << 8);
}

_Static_assert(offsetof(struct snt_send_wr, flags) ==
			       offsetof(struct snt_send_wr, opcode) + 1 &&
		       offsetof(struct snt_send_wr, imm) ==
			       offsetof(struct snt_send_wr, opcode) + sizeof(uint32_t),
	       "a word");

/* No WR is of this form. */
#define SNT__KNOWN_NONE          \
	{                        \
		.form = UINT_MAX \
	}

/* Is it a plain write or read of one SGE, permitted by this memory and this token? If
 * so, `known` is set to them. */
bool snt__check_rights(const struct snt_qp *qp, const struct snt_send_wr *wr,
		       struct snt__known *known);

/* The same, and is the WR valid? If not, it is not refused yet: snt__check_wr()
 * decides. */
static inline bool snt__check_simple(const struct snt_qp *qp,
				     const struct snt_send_wr *wr,
				     struct snt__known *known)
{
	const struct snt_sge *sge = wr->sge;
	const struct snt_token *token = wr->remote;
	uint64_t length;

	if (__builtin_expect(snt__wr_form(wr) != known->form ||
				     sge->mem != known->mem || token != known->token,
			     0) &&
	    !snt__check_rights(qp, wr, known))
		return false;
	/* Neither difference of lengths can wrap. */
	length = sge->length;
	return length - 1 < known->length_max &&
	       (uintptr_t)sge->addr - known->mem->addr <= known->mem->length - length &&
	       wr->remote_addr - token->addr <= token->length - length;
}

/*
 * The same for a WR that is posted alone, where remembering gains nothing. Returns its
 * rule; NULL as above.
 */
static inline const struct snt__rule *snt__check_single(const struct snt_qp *qp,
							const struct snt_send_wr *wr)
{
	const struct snt_sge *sge = wr->sge;
	const struct snt_token *token = wr->remote;
	const struct snt__rule *rule;

	/* One SGE, and a write or read. */
	if (le32toh(snt__wr_form(wr)) - (1u << 16 | SNT_OP_WRITE) >
		    SNT_OP_READ - SNT_OP_WRITE ||
	    sge->length - 1 >= qp->simple_max || !sge->mem || !token)
		return NULL;
	rule = &snt__rules[wr->opcode];
	if (sge->mem->ctx != qp->ctx || token->key_count < qp->remote_count ||
	    !snt__mem_holds(sge->mem, (uintptr_t)sge->addr, sge->length) ||
	    !snt__token_holds(token, wr->remote_addr, sge->length) ||
	    snt__access_lacks(sge->mem->access, rule->local_access) ||
	    snt__access_lacks(token->access, rule->remote_access))
		return NULL;
	return rule;
}

/* Is the WR valid? If not, snt__wr_fault() tells why. */
bool snt__check_wr(const struct snt_qp *qp, const struct snt_send_wr *wr,
		   uint64_t *length_out);

/*
 * wr_fault.c: why a WR is refused, as a negative errno of snt_qp_post_send() with its
 * sentence. For a token alone, 0 if it can be the peer's; for a receive, about one of
 * its SGEs or their number.
 */
int snt__wr_fault(const struct snt_qp *qp, const struct snt_send_wr *wr);
int snt__token_fault(const struct snt_qp *qp, const struct snt_token *token);
int snt__recv_sge_fault(const struct snt_ctx *ctx, const struct snt_sge *sge);
int snt__recv_count_fault(uint32_t count, uint32_t max);
/* Why memory that is not of the context is refused, as the end of a sentence. */
const char *snt__foreign_mem_text(const struct snt_mem *mem);

static inline int snt__check_recv_sge(const struct snt_ctx *ctx,
				      const struct snt_sge *sge)
{
	const struct snt_mem *mem = sge->mem;

	if (__builtin_expect(mem && mem->ctx == ctx && sge->length <= UINT32_MAX &&
				     snt__mem_holds(mem, (uintptr_t)sge->addr,
						    sge->length) &&
				     mem->access & SNT_ACCESS_LOCAL_WRITE,
			     1))
		return 0;
	return snt__recv_sge_fault(ctx, sge);
}

#endif
