/* SPDX-License-Identifier: MIT */
/*
 * Completions as text: which QP, lane, device and peer, what failed, and what to do.
 * Composed when a program asks, so that completions carry numbers only.
 */
#include "vqp/wc_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/err.h"
#include "vqp/cq.h"
#include "vqp/qp.h"

static _Thread_local char buffer[SNT__ERR_TEXT_MAX];

/* " on lane 2 (soft1 to 127.0.0.3)" */
#define PLACE_TEXT (SNT__LANE_TEXT + 28)

static const char *const opcodes[] = {
	[SNT_OP_WRITE] = "WRITE",
	[SNT_OP_WRITE_IMM] = "WRITE_IMM",
	[SNT_OP_READ] = "READ",
	[SNT_OP_SEND] = "SEND",
	[SNT_OP_SEND_IMM] = "SEND_IMM",
	[SNT_OP_CMP_SWAP] = "CMP_SWAP",
	[SNT_OP_FETCH_ADD] = "FETCH_ADD",
	[SNT_OP_RECV] = "RECV",
	[SNT_OP_RECV_NOTIFY] = "RECV_NOTIFY",
	[SNT_OP_CLOSED] = "CLOSED",
	[SNT_OP_BIND] = "BIND",
	[SNT_OP_INVALIDATE] = "INVALIDATE",
	[SNT_OP_RECEIPT] = "RECEIPT",
};

const char *snt__opcode_name(unsigned opcode)
{
	bool known = opcode < sizeof(opcodes) / sizeof(*opcodes) && opcodes[opcode];

	return known ? opcodes[opcode] : "WR";
}

const char *snt__owner_text(uint32_t num, char owner[SNT__OWNER_TEXT])
{
	if (num)
		snprintf(owner, SNT__OWNER_TEXT, "QP %u", num);
	else
		snprintf(owner, SNT__OWNER_TEXT, "shared receive queue");
	return owner;
}

const char *snt__text(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(buffer, sizeof(buffer), format, args);
	va_end(args);
	return buffer;
}

/* Is it in the loop, or does it report to the CQ? Other QPs may belong to another
 * thread, and nothing but this is read of them. */
static bool is_reported_here(const struct snt_qp *qp, const struct snt_loop *loop,
			     const struct snt_cq *cq)
{
	return (loop && qp->cq->loop == loop) || qp->cq == cq || qp->recv_cq == cq;
}

static const struct snt_qp *find_qp(struct snt_ctx *ctx, const struct snt_loop *loop,
				    const struct snt_cq *cq, uint32_t num)
{
	const struct snt_qp *found = NULL;

	snt__ctx_lock(ctx);
	for (const struct snt__link *at = ctx->qps.next; !found && at != &ctx->qps;
	     at = at->next) {
		const struct snt_qp *qp = snt__container(at, struct snt_qp, in_ctx);

		if (qp->num == num && is_reported_here(qp, loop, cq))
			found = qp;
	}
	snt__ctx_unlock(ctx);
	return found;
}

const char *snt__lane_text(const struct snt_qp *qp, unsigned lane,
			   char text[SNT__LANE_TEXT])
{
	static const uint8_t none[16];
	const char *device = qp->ctx->device[qp->lane[lane].device]->name;
	const uint8_t *remote = qp->remote_gid[qp->lane[lane].remote_device];
	char gid[SNT__GID_TEXT];

	if (memcmp(remote, none, sizeof(none)) == 0)
		snprintf(text, SNT__LANE_TEXT, "%s", device);
	else
		snprintf(text, SNT__LANE_TEXT, "%s to %s", device,
			 snt__gid_text(remote, gid));
	return text;
}

/* For a QP that is gone, or without one, only what is known. */
static const char *place_text(const struct snt_qp *qp, unsigned lane, char *text)
{
	char ends[SNT__LANE_TEXT];

	if (!qp || lane >= qp->lane_count)
		snprintf(text, PLACE_TEXT, " on lane %u", lane);
	else
		snprintf(text, PLACE_TEXT, " on lane %u (%s)", lane,
			 snt__lane_text(qp, lane, ends));
	return text;
}

/* " on lane 2 (mlx5_1 to 192.168.78.2) with RETRY_EXC_ERR (status 12): ..." */
static const char *failure_text(const struct snt_qp *qp, const struct snt_wc *wc,
				unsigned status, const char *what)
{
	const char *name = snt_status_name(status), *help = snt_status_help(status);
	char place[PLACE_TEXT], vendor[32] = "", owner[SNT__OWNER_TEXT];

	if (wc->vendor_err)
		snprintf(vendor, sizeof(vendor), ", vendor error 0x%x", wc->vendor_err);
	return snt__text("%s: %s %s%s with %s (status %u%s): %s",
			 snt__owner_text(wc->qp_num, owner),
			 snt__opcode_name(wc->opcode), what,
			 place_text(qp, wc->lane, place),
			 name ? name : "an unknown status", status, vendor,
			 help ? help : snt_status_text(status));
}

static const char *flush_text(const struct snt_qp *qp, const struct snt_wc *wc)
{
	const char *what = snt__opcode_name(wc->opcode);
	char owner[SNT__OWNER_TEXT];

	if (wc->cause)
		return failure_text(qp, wc, wc->cause, "was flushed after a failure");
	if (qp && qp->closing && !qp->broken)
		return snt__text("QP %u: %s was flushed, since the QP was closed",
				 wc->qp_num, what);
	return snt__text("%s: %s was flushed: %s", snt__owner_text(wc->qp_num, owner),
			 what, snt_status_help(SNT_WC_FLUSHED));
}

const char *snt__wc_text(struct snt_ctx *ctx, const struct snt_loop *loop,
			 const struct snt_cq *cq, const struct snt_wc *wc)
{
	const struct snt_qp *qp = find_qp(ctx, loop, cq, wc->qp_num);

	switch (wc->status) {
	case SNT_WC_SUCCESS:
		return snt__text("QP %u: %s succeeded", wc->qp_num,
				 snt__opcode_name(wc->opcode));
	case SNT_WC_FLUSHED:
		return flush_text(qp, wc);
	default:
		return failure_text(qp, wc, wc->status, "failed");
	}
}

const char *snt_wc_text(const struct snt_cq *cq, const struct snt_wc *wc)
{
	return snt__wc_text(cq->ctx, cq->loop, cq, wc);
}
