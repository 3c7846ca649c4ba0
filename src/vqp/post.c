/* SPDX-License-Identifier: MIT */
/* Posting sends: which of the paths a call takes. */
#include "vqp/post.h"

#include "vqp/passthrough.h"
#include "vqp/post_many.h"
#include "vqp/post_single.h"
#include "vqp/refusal.h"

int snt__qp_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	if (qp->pass_through)
		return snt__passthrough_post_send(qp, wr, count);
	if (count == 1 && (wr->opcode != SNT_OP_WRITE_IMM || qp->express_max))
		return snt__qp_post_single(qp, wr);
	return snt__qp_post_many(qp, wr, count);
}

int snt_qp_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	if (__builtin_expect(qp->send_served, 0))
		return snt__qp_wants_ops(qp);
	return snt__qp_post_send(qp, wr, count);
}
