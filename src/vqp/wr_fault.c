/* SPDX-License-Identifier: MIT */
/*
 * Why a WR was refused. The checks (check.h) only decide; the reason is found here,
 * afterwards, so that an accepted WR does not pay for an error text.
 */
#include <errno.h>
#include <inttypes.h>

#include "util/err.h"
#include "vqp/check.h"

static const char *right_name(unsigned access)
{
	switch (access) {
	case SNT_ACCESS_LOCAL_WRITE:
		return "SNT_ACCESS_LOCAL_WRITE";
	case SNT_ACCESS_REMOTE_WRITE:
		return "SNT_ACCESS_REMOTE_WRITE";
	case SNT_ACCESS_REMOTE_READ:
		return "SNT_ACCESS_REMOTE_READ";
	default:
		return "SNT_ACCESS_REMOTE_ATOMIC";
	}
}

const char *snt__foreign_mem_text(const struct snt_mem *mem)
{
	if (!mem)
		return "no memory";
	return mem->ctx ? "memory of another context" : "memory that has been released";
}

/* Each of these returns 0 if its part of the WR is valid. */

static int form_fault(const struct snt_qp *qp, const struct snt_send_wr *wr)
{
	if (wr->opcode < SNT_OP_WRITE || wr->opcode > SNT_OP_FETCH_ADD)
		return snt__fail(EINVAL, "QP %u: %u is not an opcode of a send",
				 qp->num, wr->opcode);
	if (wr->flags & ~SNT__FLAGS_KNOWN)
		return snt__fail(EINVAL, "QP %u: unknown send flags 0x%x", qp->num,
				 wr->flags & ~SNT__FLAGS_KNOWN);
	if (wr->sge_count > qp->send_sge_max)
		return snt__fail(EINVAL,
				 "QP %u: a WR has %u SGEs, and send_sge_max is %u",
				 qp->num, wr->sge_count, qp->send_sge_max);
	return 0;
}

static int sge_fault(const struct snt_qp *qp, const struct snt_sge *sge, unsigned index,
		     const struct snt__rule *rule)
{
	const struct snt_mem *mem = sge->mem;

	if (!mem || mem->ctx != qp->ctx)
		return snt__fail(EINVAL, "QP %u: SGE %u has %s", qp->num, index,
				 snt__foreign_mem_text(mem));
	if (!snt__mem_holds(mem, (uintptr_t)sge->addr, sge->length))
		return snt__fail(ERANGE,
				 "QP %u: SGE %u, %" PRIu64
				 " bytes at %p, is outside of "
				 "its memory, %zu bytes at 0x%" PRIx64,
				 qp->num, index, sge->length, sge->addr, mem->length,
				 mem->addr);
	if (snt__access_lacks(mem->access, rule->local_access))
		return snt__fail(EACCES,
				 "QP %u: the memory of SGE %u is registered without %s",
				 qp->num, index, right_name(rule->local_access));
	return 0;
}

static int sges_fault(const struct snt_qp *qp, const struct snt_send_wr *wr,
		      const struct snt__rule *rule, uint64_t *length_out)
{
	uint64_t length = 0;

	for (unsigned i = 0; i < wr->sge_count; i++) {
		int ret = wr->flags & SNT_SEND_INLINE
				  ? 0
				  : sge_fault(qp, &wr->sge[i], i, rule);

		if (ret)
			return ret;
		if (__builtin_add_overflow(length, wr->sge[i].length, &length))
			return snt__fail(EINVAL,
					 "QP %u: the lengths of a WR's SGEs add up to "
					 "more than 64 bits",
					 qp->num);
	}
	*length_out = length;
	return 0;
}

int snt__token_fault(const struct snt_qp *qp, const struct snt_token *token)
{
	if (!token)
		return snt__fail(EINVAL, "QP %u: the WR has no token (remote is NULL)",
				 qp->num);
	if (token->key_count < qp->remote_count)
		return snt__fail(
			EINVAL,
			"QP %u: the token has keys of %u devices, and the peer "
			"has %u: is it another peer's?",
			qp->num, token->key_count, qp->remote_count);
	return 0;
}

static int remote_fault(const struct snt_qp *qp, const struct snt_send_wr *wr,
			const struct snt__rule *rule, uint64_t length)
{
	const struct snt_token *token = wr->remote;
	int ret = rule->remote_access ? snt__token_fault(qp, token) : 0;

	if (ret || !rule->remote_access)
		return ret;
	if (!snt__token_holds(token, wr->remote_addr, length))
		return snt__fail(ERANGE,
				 "QP %u: %" PRIu64 " bytes at remote address 0x%" PRIx64
				 " are outside of the token, %" PRIu64
				 " bytes at 0x%" PRIx64,
				 qp->num, length, wr->remote_addr, token->length,
				 token->addr);
	if (snt__access_lacks(token->access, rule->remote_access))
		return snt__fail(EACCES, "QP %u: the token does not grant %s", qp->num,
				 right_name(rule->remote_access));
	return 0;
}

static int inline_fault(const struct snt_qp *qp, const struct snt__rule *rule,
			uint64_t length)
{
	if (rule->local_access)
		return snt__fail(
			EINVAL,
			"QP %u: SNT_SEND_INLINE is for data to send; READs and "
			"atomics write to local memory",
			qp->num);
	if (length > qp->inline_max)
		return snt__fail(EINVAL,
				 "QP %u: %" PRIu64
				 " inline bytes, and inline_max is %u",
				 qp->num, length, qp->inline_max);
	return 0;
}

/* The remaining checks. */
static int length_fault(const struct snt_qp *qp, const struct snt_send_wr *wr,
			const struct snt__rule *rule, uint64_t length)
{
	bool spread = rule->shape == SNT__SHAPE_SPREAD;
	int ret = wr->flags & SNT_SEND_INLINE ? inline_fault(qp, rule, length) : 0;

	if (ret)
		return ret;
	if (rule->shape == SNT__SHAPE_ATOMIC && (length != 8 || wr->remote_addr & 7))
		return snt__fail(EINVAL,
				 "QP %u: an atomic is 8 bytes at a remote address that "
				 "is a multiple of 8, not %" PRIu64 " at 0x%" PRIx64,
				 qp->num, length, wr->remote_addr);
	if (length > qp->message_max && (!spread || qp->pass_through))
		return snt__fail(
			EMSGSIZE,
			"QP %u: %" PRIu64 " bytes do not fit one message of %u%s",
			qp->num, length, qp->message_max,
			spread ? "; without SNT_QP_PASS_THROUGH longer WRs are cut"
			       : "");
	return snt__fail(EINVAL,
			 "QP %u: %" PRIu64 " bytes are too many fragments of %" PRIu64
			 " bytes for one WR",
			 qp->num, length, qp->fragment_size);
}

int snt__wr_fault(const struct snt_qp *qp, const struct snt_send_wr *wr)
{
	const struct snt__rule *rule;
	uint64_t length = 0;
	int ret = form_fault(qp, wr);

	if (ret)
		return ret;
	rule = &snt__rules[wr->opcode];
	ret = sges_fault(qp, wr, rule, &length);
	if (!ret)
		ret = remote_fault(qp, wr, rule, length);
	return ret ? ret : length_fault(qp, wr, rule, length);
}

int snt__recv_sge_fault(const struct snt_ctx *ctx, const struct snt_sge *sge)
{
	const struct snt_mem *mem = sge->mem;

	if (!mem || mem->ctx != ctx)
		return snt__fail(EINVAL, "an SGE of a receive has %s",
				 snt__foreign_mem_text(mem));
	if (sge->length > UINT32_MAX)
		return snt__fail(EMSGSIZE,
				 "an SGE of a receive has %" PRIu64
				 " bytes, and 4 GiB - 1 is the most",
				 sge->length);
	if (!snt__mem_holds(mem, (uintptr_t)sge->addr, sge->length))
		return snt__fail(ERANGE,
				 "an SGE of a receive (%" PRIu64
				 " bytes at %p) is outside "
				 "of its memory (%zu bytes at 0x%" PRIx64 ")",
				 sge->length, sge->addr, mem->length, mem->addr);
	return snt__fail(EACCES, "the memory of a receive is registered without "
				 "SNT_ACCESS_LOCAL_WRITE");
}

int snt__recv_count_fault(uint32_t count, uint32_t max)
{
	return snt__fail(EINVAL, "a receive has %u SGEs, and recv_sge_max is %u", count,
			 max);
}
