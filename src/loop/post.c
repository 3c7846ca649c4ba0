/* SPDX-License-Identifier: MIT */
/*
 * Verbs as ops. An op becomes the library's when the post has succeeded, not before, so
 * that a refused one is unchanged.
 */
#include <errno.h>

#include "loop/op.h"
#include "util/err.h"
#include "vqp/cancel.h"
#include "vqp/close.h"
#include "vqp/mw.h"
#include "vqp/post.h"
#include "vqp/recv.h"
#include "vqp/srq.h"
#include "vqp/view.h"

/* WRs that are posted at once, and so the most for one doorbell. */
#define BATCH 64

static int refuse_qp(const struct snt_qp *qp)
{
	return snt__fail(EINVAL,
			 "QP %u does not report to a CQ with ops (snt_cq_opts.ops)",
			 snt_qp_num(qp));
}

/* Is this the process that created the loop? */
static inline int check_loop(const struct snt_loop *loop)
{
	return __builtin_expect(snt__loop_forked(loop), 0) ? snt__loop_check(loop) : 0;
}

static inline int check_op(const struct snt_loop *loop, const struct snt_op *op)
{
	if (__builtin_expect(op->state != SNT__OP_UNUSED, 0))
		return snt__fail(EALREADY, "the op is in use");
	return check_loop(loop);
}

static inline int check_post(const struct snt_qp *qp, const struct snt_op *op,
			     enum snt__queue queue)
{
	const struct snt_cq *cq = snt__qp_cq(qp, queue);

	if (__builtin_expect(!snt__cq_has_ops(cq), 0))
		return refuse_qp(qp);
	return check_op(snt__cq_loop(cq), op);
}

static inline void accept_for(struct snt_op *op, struct snt_loop *loop,
			      struct snt_qp *qp, uint8_t opcode, uint16_t flags,
			      uint32_t position)
{
	op->complete = snt__op_complete;
	op->reason = 0;
	op->state = SNT__OP_POSTED;
	op->cancel = 0;
	op->flags = flags;
	op->position = position;
	op->wc.opcode = opcode;
	op->qp = qp;
	op->loop = loop;
}

static inline void accept_op(struct snt_op *op, struct snt_qp *qp, uint8_t opcode,
			     uint16_t flags, uint32_t position)
{
	const struct snt_cq *cq =
		snt__qp_cq(qp,
			   flags & SNT__OP_RECV ? SNT__QUEUE_RECV : SNT__QUEUE_SEND);

	accept_for(op, snt__cq_loop(cq), qp, opcode, flags, position);
}

static inline void accept_send(struct snt_op *op, struct snt_qp *qp,
			       const struct snt_send_wr *wr, uint32_t position)
{
	bool atomic = wr->opcode >= SNT_OP_CMP_SWAP;

	accept_op(op, qp, wr->opcode, atomic ? SNT__OP_ATOMIC : 0, position);
	if (atomic)
		op->old_from = wr->sge->addr;
}

/*
 * Sends
 */

static inline int post_send_op(struct snt_qp *qp, struct snt_op *op,
			       struct snt_send_wr *wr)
{
	uint32_t position = snt__qp_next_position(qp);
	int ret = check_post(qp, op, SNT__QUEUE_SEND);

	if (ret)
		return ret;
	wr->wr_id = (uintptr_t)op;
	wr->flags |= SNT_SEND_SIGNALED;
	ret = snt__qp_post_send(qp, wr, 1);
	if (ret < 0)
		return ret;
	accept_send(op, qp, wr, position);
	return 0;
}

int snt_op_post(struct snt_qp *qp, struct snt_op *op, const struct snt_send_wr *given)
{
	struct snt_send_wr wr = *given;

	return post_send_op(qp, op, &wr);
}

int snt_op_send(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge)
{
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND,
				  .sge = sge,
				  .sge_count = sge != NULL };

	return post_send_op(qp, op, &wr);
}

int snt_op_read(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
		const struct snt_token *remote, uint64_t remote_addr)
{
	struct snt_send_wr wr = { .opcode = SNT_OP_READ,
				  .sge = sge,
				  .sge_count = sge != NULL,
				  .remote = remote,
				  .remote_addr = remote_addr };

	return post_send_op(qp, op, &wr);
}

int snt_op_write(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
		 const struct snt_token *remote, uint64_t remote_addr)
{
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .sge = sge,
				  .sge_count = sge != NULL,
				  .remote = remote,
				  .remote_addr = remote_addr };

	return post_send_op(qp, op, &wr);
}

/*
 * Memory windows
 */

int snt_op_bind(struct snt_qp *qp, struct snt_op *op, struct snt_mw *mw,
		const struct snt_sge *range, unsigned access, unsigned flags)
{
	int ret = check_post(qp, op, SNT__QUEUE_SEND);

	if (!ret)
		ret = snt__mw_bind(qp, mw, range, access, (uintptr_t)op,
				   flags | SNT_SEND_SIGNALED);
	if (!ret)
		accept_op(op, qp, SNT_OP_BIND, 0, 0);
	return ret;
}

int snt_op_invalidate(struct snt_qp *qp, struct snt_op *op, struct snt_mw *mw,
		      unsigned flags)
{
	int ret = check_post(qp, op, SNT__QUEUE_SEND);

	if (!ret)
		ret = snt__mw_invalidate(qp, mw, (uintptr_t)op,
					 flags | SNT_SEND_SIGNALED);
	if (!ret)
		accept_op(op, qp, SNT_OP_INVALIDATE, 0, 0);
	return ret;
}

int snt_op_send_inv(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
		    unsigned sge_count, const struct snt_token *window, unsigned flags)
{
	int ret = check_post(qp, op, SNT__QUEUE_SEND);

	if (!ret)
		ret = snt__mw_send_inv(qp, sge, sge_count, window, (uintptr_t)op,
				       flags | SNT_SEND_SIGNALED);
	if (!ret)
		accept_op(op, qp, SNT_OP_SEND, 0, 0);
	return ret;
}

/*
 * Batches
 */

/* At most BATCH of them. */
static int post_some(struct snt_qp *qp, struct snt_op *const *ops,
		     const struct snt_send_wr *wr, unsigned count)
{
	struct snt_send_wr batch[BATCH];
	uint32_t position = snt__qp_next_position(qp);
	unsigned good;
	int ret = 0;

	for (good = 0; good < count; good++) {
		ret = check_post(qp, ops[good], SNT__QUEUE_SEND);
		if (ret)
			break;
		batch[good] = wr[good];
		batch[good].wr_id = (uintptr_t)ops[good];
		batch[good].flags |= SNT_SEND_SIGNALED;
	}
	if (!good)
		return ret;
	ret = snt__qp_post_send(qp, batch, good);
	for (int i = 0; i < ret; i++)
		accept_send(ops[i], qp, &wr[i], position + i);
	return ret;
}

int snt_op_post_batch(struct snt_qp *qp, struct snt_op *const *ops,
		      const struct snt_send_wr *wr, unsigned count)
{
	unsigned taken = 0;

	if (!count)
		return snt__fail(EINVAL, "a batch of no ops");
	while (taken < count) {
		unsigned part = count - taken < BATCH ? count - taken : BATCH;
		int ret = post_some(qp, ops + taken, wr + taken, part);

		if (ret < 0)
			return taken ? (int)taken : ret;
		taken += ret;
		if ((unsigned)ret < part)
			break;
	}
	return taken;
}

/*
 * Receives
 */

/* The QP has never been connected and never will be; its receives do not complete. They are
 * listed newest first, and end in the order in which they were posted. */
static void abandon_receives(struct snt_op *newest_first)
{
	struct snt_op *oldest_first = NULL, *op;

	while ((op = newest_first)) {
		newest_first = op->next;
		op->next = oldest_first;
		oldest_first = op;
	}
	while ((op = oldest_first)) {
		oldest_first = op->next;
		op->flags &= ~SNT__OP_EARLY;
		op->flags |= SNT__OP_NO_EFFECT;
		snt__op_end(op, op->reason ? op->reason : -ECANCELED);
	}
}

static void list_early(struct snt_qp *qp, struct snt_op *op)
{
	struct snt_op **first = snt__qp_early(qp, abandon_receives);

	op->flags |= SNT__OP_EARLY;
	op->next = *first;
	op->to = first;
	if (op->next)
		op->next->to = &op->next;
	*first = op;
}

static int post_recv(struct snt_qp *qp, struct snt_op *op, struct snt_recv_wr *wr)
{
	int ret = check_post(qp, op, SNT__QUEUE_RECV);

	if (ret)
		return ret;
	wr->wr_id = (uintptr_t)op;
	ret = snt__qp_post_recv(qp, wr, 1);
	if (ret < 0)
		return ret;
	accept_op(op, qp, wr->sge_count ? SNT_OP_RECV : SNT_OP_RECV_NOTIFY,
		  SNT__OP_RECV, 0);
	if (__builtin_expect(!snt__qp_is_connected(qp), 0))
		list_early(qp, op);
	return 0;
}

int snt_op_post_recv(struct snt_qp *qp, struct snt_op *op,
		     const struct snt_recv_wr *given)
{
	struct snt_recv_wr wr = *given;

	return post_recv(qp, op, &wr);
}

int snt_op_recv(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge)
{
	struct snt_recv_wr wr = { .sge = sge, .sge_count = sge != NULL };

	return post_recv(qp, op, &wr);
}

int snt_op_post_recv_batch(struct snt_qp *qp, struct snt_op *const *ops,
			   const struct snt_recv_wr *wr, unsigned count)
{
	unsigned taken;
	int ret = 0;

	if (!count)
		return snt__fail(EINVAL, "a batch of no ops");
	for (taken = 0; taken < count; taken++) {
		ret = snt_op_post_recv(qp, ops[taken], &wr[taken]);
		if (ret)
			break;
	}
	return taken ? (int)taken : ret;
}

static void abandon_shared(uint64_t wr_id)
{
	struct snt_op *op = (struct snt_op *)(uintptr_t)wr_id;

	op->flags |= SNT__OP_NO_EFFECT;
	snt__op_end(op, op->reason ? op->reason : -ECANCELED);
}

int snt_op_post_srq_recv(struct snt_srq *srq, struct snt_op *op,
			 const struct snt_recv_wr *given)
{
	struct snt_recv_wr wr = { .wr_id = (uintptr_t)op,
				  .sge = given->sge,
				  .sge_count = given->sge_count };
	int ret = snt__cq_has_ops(snt__srq_cq(srq))
			  ? check_op(snt__cq_loop(snt__srq_cq(srq)), op)
			  : snt__fail(EINVAL, "the shared receive queue does "
					      "not report to a CQ with ops");

	if (ret)
		return ret;
	ret = snt__srq_post_recv(srq, &wr, 1);
	if (ret < 0)
		return ret;
	accept_for(op, snt__cq_loop(snt__srq_cq(srq)), NULL,
		   wr.sge_count ? SNT_OP_RECV : SNT_OP_RECV_NOTIFY, SNT__OP_RECV, 0);
	snt__srq_on_abandoned(srq, abandon_shared);
	return 0;
}

/*
 * Closing
 */

/* Takes over from an op that no longer waits: 0, 1 if the QP has been closed meanwhile, or
 * the errno of snt__qp_close(). */
static int close_or_rejoin(struct snt_qp *qp, const struct snt_op *op)
{
	int ret =
		snt__qp_close_hand_over(qp, (uintptr_t)&snt__op_nobody, (uintptr_t)op);

	return ret == -ENOENT ? snt__qp_close(qp, (uintptr_t)op) : ret;
}

int snt_op_close(struct snt_qp *qp, struct snt_op *op)
{
	int ret = check_post(qp, op, SNT__QUEUE_SEND);

	if (!ret)
		ret = close_or_rejoin(qp, op);
	if (ret < 0)
		return ret;
	accept_op(op, qp, SNT_OP_CLOSED, SNT__OP_CLOSE, 0);
	if (ret)
		snt__op_end(op, 0);
	return 0;
}
