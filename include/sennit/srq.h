/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_SRQ_H
#define SENNIT_SRQ_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/cq.h>
#include <sennit/ctx.h>
#include <sennit/qp.h>

/*
 * A shared receive queue holds receives for many QPs, so that a thousand idle
 * connections need no receives of their own. It serves QPs with
 * SNT_QP_PASS_THROUGH, made with snt_qp_opts::srq, on the device of the SRQ.
 *
 * A message to any of these QPs consumes the oldest posted receive. The completion has
 * the wr_id of the receive and the number of the QP. All receives are reported to one
 * CQ, which is set when the SRQ is made; room for them is reserved there once and not
 * for each QP.
 *
 * QPs of many lanes have receives of their own. With them a message or a notification
 * consumes the oldest receive of its QP, whichever lane it comes on; but an SRQ belongs to
 * one device and gives out receives in the order in which packets arrive there. Lanes
 * overtake one another, so the receives of one QP would be consumed out of order, and a
 * notification that is complete only when it has arrived on several devices would hold a
 * receive in each SRQ meanwhile, which other QPs then lack: with few left, two QPs could
 * wait for each other for ever.
 *
 * An event reports that receives run low (snt_srq_arm()). When the SRQ is empty,
 * senders retry as their rnr_retry_count says.
 *
 * When a QP fails or is closed, only receives that a message to it had begun to fill
 * are flushed, before its SNT_OP_CLOSED. All others stay available to the other QPs.
 *
 * Thread: loop, or the owner of a CQ without one, for every call here. The QPs that take
 * receives from it report to CQs of the same loop, or have the same owner.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_srq;

#define SNT_SRQ_DEPTH_MAX (1u << 20)

struct snt_srq_opts {
	size_t size;
	/* Required: where receives are reported; the recv_cq of all its QPs. With ops
	 * (snt_cq_opts::ops) receives are ops, posted by snt_op_post_srq_recv() in op.h. */
	struct snt_cq *cq;
	uint32_t device;  /* index in the context */
	uint32_t depth;	  /* receives posted and not yet reported; 0: 1024 */
	uint32_t sge_max; /* in one receive, at most SNT_SGES_MAX; 0: 1 */
};

/**
 * snt_srq_create - make a shared receive queue, empty
 *
 * Returns: 0; -EINVAL for options out of range, or a CQ of another context; -EOPNOTSUPP
 * if the device cannot make one; -ENOSPC if the CQ has no room for @depth completions;
 * -ECHILD after a fork; -ENOMEM; the errno of the device.
 */
SNT_API int snt_srq_create(struct snt_ctx *ctx, const struct snt_srq_opts *opts,
			   struct snt_srq **srq_out);

/**
 * snt_srq_destroy - destroy a shared receive queue
 *
 * NULL is legal and does nothing. Remaining receives are dropped; ops among them end
 * with -ECANCELED, in the next dispatch.
 *
 * Returns: 0; -EBUSY while a QP uses it; the errno of the device.
 */
SNT_API int snt_srq_destroy(struct snt_srq *srq);

/**
 * snt_srq_post_recv - post receives
 * @wr: a receive without an SGE can take only empty messages and notifications
 *
 * Receives are accepted in order until one is refused. A receive that the device itself
 * refuses counts as posted, since the device may have taken it, and nothing can be
 * posted after it.
 *
 * Returns: how many were taken, at least 1; or, if the first was refused,
 *   -EAGAIN    all of depth is used up: poll
 *   -EINVAL    no receives, too many SGEs, or memory of another context; the CQ has ops
 *   -ERANGE    outside a memory
 *   -EACCES    the memory has no local write access
 *   -EMSGSIZE  an SGE of more than 32 bits
 *   -ESHUTDOWN the device refused a receive before
 */
SNT_API int snt_srq_post_recv(struct snt_srq *srq, const struct snt_recv_wr *wr,
			      unsigned count);

/**
 * snt_srq_arm - tell, once, when there are fewer receives than this
 * @limit: 0: do not
 *
 * The event is SNT_EVENT_SRQ_LIMIT of snt_loop_set_event_handler(), with this SRQ in
 * snt_event::srq. Only receives still held by the device count, not those whose
 * completions wait to be polled. If there are already fewer when it is armed, the event
 * comes with the next message.
 *
 * Returns: 0; -EINVAL if @limit is more than the depth; -EOPNOTSUPP if the device does
 * not support it; the errno of the device.
 */
SNT_API int snt_srq_arm(struct snt_srq *srq, uint32_t limit);

struct snt_srq_info {
	size_t size;
	uint32_t device;
	uint32_t depth;
	uint32_t sge_max;
	uint32_t posted; /* and not yet reported */
	uint32_t qps;	 /* that use it */
};

/**
 * snt_srq_query - get state and limits of a shared receive queue
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_srq_query(const struct snt_srq *srq, struct snt_srq_info *info_out);

#ifdef __cplusplus
}
#endif

#endif
