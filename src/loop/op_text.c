/* SPDX-License-Identifier: MIT */
/* How an op ended, as text. */
#include <errno.h>

#include "loop/op.h"
#include "vqp/wc_text.h"

/* Did it take effect? */
static const char *effect_text(const struct snt__op_end *end)
{
	if (end->flags & SNT__OP_CLOSE && end->wc->status != SNT_WC_SUCCESS)
		return "closing goes on, and snt_op_close() can wait for it again";
	if (end->flags & SNT__OP_NO_EFFECT)
		return "it had no effect";
	if (end->held)
		return "a device still has it, and it may still take effect";
	if (end->wc->status == SNT_WC_SUCCESS)
		return "it took effect all the same";
	return "whether it took effect is not known";
}

/* Cancelled, or timed out. */
static const char *cut_short(const struct snt__op_end *end, const char *how)
{
	const char *effect = effect_text(end);
	char owner[SNT__OWNER_TEXT];

	return snt__text("%s: %s %s; %s", snt__owner_text(end->wc->qp_num, owner),
			 snt__opcode_name(end->wc->opcode), how, effect);
}

const char *snt__op_end_text(const struct snt__op_end *end)
{
	switch (end->result) {
	case -ECANCELED:
		return cut_short(end, "was cancelled");
	case -ETIMEDOUT:
		return cut_short(end, "timed out");
	default:
		return snt__wc_text(snt__loop_ctx(end->loop), end->loop, NULL, end->wc);
	}
}

const char *snt_op_text(const struct snt_op *op)
{
	const struct snt__op_end end = { .loop = op->loop,
					 .wc = &op->wc,
					 .result = op->result,
					 .flags = op->flags,
					 .held = op->state == SNT__OP_POSTED };

	if (snt_op_pending(op) && !(op->flags & SNT__OP_TOLD))
		return snt__text("the op is in use: its callback has not begun");
	if (!op->loop)
		return snt__text("the op was never posted");
	return snt__op_end_text(&end);
}
