/* SPDX-License-Identifier: MIT */
#include "vqp/check.h"

#include "util/minmax.h"
#include "vqp/phase.h"

const struct snt__rule snt__rules[] = {
	[SNT_OP_WRITE] = { SNT__SHAPE_SPREAD, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
			   SNT_ACCESS_REMOTE_WRITE, 0 },
	[SNT_OP_WRITE_IMM] = { SNT__SHAPE_SPREAD, IBV_WR_RDMA_WRITE,
			       IBV_WR_RDMA_WRITE_WITH_IMM, SNT_ACCESS_REMOTE_WRITE, 0 },
	[SNT_OP_READ] = { SNT__SHAPE_SPREAD, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
			  SNT_ACCESS_REMOTE_READ, SNT_ACCESS_LOCAL_WRITE },
	[SNT_OP_SEND] = { SNT__SHAPE_MESSAGE, IBV_WR_SEND, IBV_WR_SEND, 0, 0 },
	[SNT_OP_SEND_IMM] = { SNT__SHAPE_MESSAGE, IBV_WR_SEND_WITH_IMM,
			      IBV_WR_SEND_WITH_IMM, 0, 0 },
	[SNT_OP_CMP_SWAP] = { SNT__SHAPE_ATOMIC, IBV_WR_ATOMIC_CMP_AND_SWP,
			      IBV_WR_ATOMIC_CMP_AND_SWP, SNT_ACCESS_REMOTE_ATOMIC,
			      SNT_ACCESS_LOCAL_WRITE },
	[SNT_OP_FETCH_ADD] = { SNT__SHAPE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD,
			       IBV_WR_ATOMIC_FETCH_AND_ADD, SNT_ACCESS_REMOTE_ATOMIC,
			       SNT_ACCESS_LOCAL_WRITE },
};

void snt__check_update(struct snt_qp *qp)
{
	uint32_t max = SNT__SIMPLE_MAX;

	if (qp->pass_through && qp->message_max < max)
		max = qp->message_max;
	qp->simple_max = !qp->refusal && !snt__qp_is_suspended(qp) &&
					 (qp->even || qp->pass_through)
				 ? max
				 : 0;
}

bool snt__check_rights(const struct snt_qp *qp, const struct snt_send_wr *wr,
		       struct snt__known *known)
{
	const struct snt__rule *rule;
	const struct snt_mem *mem;
	const struct snt_token *token = wr->remote;

	if (wr->sge_count != 1 ||
	    wr->flags & ~(SNT_SEND_SIGNALED | SNT_SEND_SOLICITED) ||
	    wr->opcode < SNT_OP_WRITE || wr->opcode > SNT_OP_READ)
		return false;
	rule = &snt__rules[wr->opcode];
	mem = wr->sge->mem;
	if (!mem || mem->ctx != qp->ctx ||
	    snt__access_lacks(mem->access, rule->local_access) || !token ||
	    token->key_count < qp->remote_count ||
	    snt__access_lacks(token->access, rule->remote_access))
		return false;
	known->mem = mem;
	known->token = token;
	known->length_max =
		snt__min(qp->simple_max, snt__min(mem->length, token->length));
	known->local_key = mem->local_key[qp->lane[0].device];
	known->remote_key = token->key[qp->lane[0].remote_device];
	known->form = snt__wr_form(wr);
	known->verb = rule->verb;
	known->whole_verb = rule->whole_verb;
	return true;
}

static inline bool sge_is_good(const struct snt_qp *qp, const struct snt_sge *sge,
			       const struct snt__rule *rule)
{
	const struct snt_mem *mem = sge->mem;

	return mem && mem->ctx == qp->ctx &&
	       snt__mem_holds(mem, (uintptr_t)sge->addr, sge->length) &&
	       !snt__access_lacks(mem->access, rule->local_access);
}

/* Inline ones need no memory. */
static bool check_send_sges(const struct snt_qp *qp, const struct snt_send_wr *wr,
			    const struct snt__rule *rule, uint64_t *length_out)
{
	uint64_t length = 0;

	if (wr->sge_count > qp->send_sge_max)
		return false;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		if (!(wr->flags & SNT_SEND_INLINE) &&
		    !sge_is_good(qp, &wr->sge[i], rule))
			return false;
		if (__builtin_add_overflow(length, wr->sge[i].length, &length))
			return false;
	}
	*length_out = length;
	return true;
}

static bool check_remote(const struct snt_qp *qp, const struct snt_send_wr *wr,
			 const struct snt__rule *rule, uint64_t length)
{
	const struct snt_token *token = wr->remote;

	return !rule->remote_access ||
	       (token && token->key_count >= qp->remote_count &&
		snt__token_holds(token, wr->remote_addr, length) &&
		!snt__access_lacks(token->access, rule->remote_access));
}

/* A pass-through lane takes at most one message, whatever the opcode. */
static bool check_length(const struct snt_qp *qp, const struct snt_send_wr *wr,
			 const struct snt__rule *rule, uint64_t length)
{
	bool one_piece = rule->shape != SNT__SHAPE_SPREAD || qp->pass_through;

	if (wr->flags & SNT_SEND_INLINE &&
	    (length > qp->inline_max || rule->local_access))
		return false;
	if (rule->shape == SNT__SHAPE_ATOMIC && (length != 8 || wr->remote_addr & 7))
		return false;
	if (one_piece && length > qp->message_max)
		return false;
	return length >> SNT__FRAGMENTS_BITS < qp->fragment_size;
}

bool snt__check_wr(const struct snt_qp *qp, const struct snt_send_wr *wr,
		   uint64_t *length_out)
{
	const struct snt__rule *rule;

	if (wr->opcode < SNT_OP_WRITE || wr->opcode > SNT_OP_FETCH_ADD ||
	    wr->flags & ~SNT__FLAGS_KNOWN)
		return false;
	rule = &snt__rules[wr->opcode];
	return check_send_sges(qp, wr, rule, length_out) &&
	       check_remote(qp, wr, rule, *length_out) &&
	       check_length(qp, wr, rule, *length_out);
}
