/* SPDX-License-Identifier: MIT */
/*
 * Cancellation. A WR that waits in the ring of its QP is taken back; for one that a
 * device has, only the meaning of its completion can change.
 */
#include <errno.h>

#include "loop/op.h"
#include "util/err.h"
#include "vqp/cancel.h"
#include "vqp/close.h"
#include "vqp/view.h"

static int abort_qp(struct snt_op *op)
{
	struct snt_qp *qp = op->qp;
	int ret;

	if (op->flags & SNT__OP_LEFT)
		return 0;
	if (!qp)
		return snt__fail(EOPNOTSUPP, "a shared receive is no QP's: there is "
					     "none to abort");
	if (!snt__qp_is_connected(qp))
		return snt__fail(ENOTCONN,
				 "QP %u is not connected: there is nothing to abort",
				 snt_qp_num(qp));
	if (snt__qp_is_ending(qp))
		return 0; /* it is ending already */
	ret = snt__qp_abort(qp);
	if (!ret)
		snt__log(&snt__loop_ctx(op->loop)->log, SNT_LOG_WARN,
			 "QP %u is broken: an op on it was aborted", snt_qp_num(qp));
	return ret;
}

/* Its completion can no longer be polled, and its QP has been told to end. */
static bool is_op_lost(const struct snt_op *op)
{
	/* An op that is over may outlive its QP. */
	const struct snt_qp *qp = op->state == SNT__OP_POSTED ? op->qp : NULL;

	if (!qp)
		return false;
	if (op->flags & SNT__OP_CLOSE)
		return snt__qp_is_lost(qp);
	return snt__qp_has_lost(qp, op->flags & SNT__OP_RECV ? SNT__QUEUE_RECV
							     : SNT__QUEUE_SEND);
}

/* Closing goes on, and the op is given back. */
static int end_close(struct snt_op *op, enum snt_cancel how, int reason)
{
	if (how == SNT_CANCEL_ABORT && !is_op_lost(op))
		return snt__fail(EOPNOTSUPP, "closing a QP cannot be aborted: it ends "
					     "everything on it already");
	op->cancel = how;
	op->reason = reason;
	/* Else its completion has been polled, and comes in this dispatch. */
	if (!(op->flags & SNT__OP_LEFT) &&
	    !snt__qp_close_hand_over(op->qp, (uintptr_t)op, (uintptr_t)&snt__op_nobody))
		snt__op_end(op, reason);
	return 0;
}

static int end_op(struct snt_op *op, enum snt_cancel how, int reason)
{
	int ret;

	if (op->flags & SNT__OP_CLOSE)
		return end_close(op, how, reason);
	if (is_op_lost(op)) {
		snt__op_unlist(op);
		snt__op_end(op, op->reason ? op->reason : reason);
		return 0;
	}
	if (!op->cancel && !(op->flags & (SNT__OP_RECV | SNT__OP_LEFT)) &&
	    snt__qp_cancel_waiting(op->qp, op->position)) {
		op->cancel = how;
		op->flags |= SNT__OP_NO_EFFECT;
		snt__op_end(op, reason);
		return 0;
	}
	ret = how == SNT_CANCEL_ABORT ? abort_qp(op) : 0;
	if (ret)
		return ret;
	op->cancel = how;
	if (!op->reason)
		op->reason = reason;
	if (op->released)
		snt__op_tell(op);
	return 0;
}

static int check_cancel(const struct snt_op *op, enum snt_cancel how)
{
	if (op->state == SNT__OP_UNUSED)
		return snt__fail(ENOENT, "the op is not in use");
	if (how != SNT_CANCEL_DETACH && how != SNT_CANCEL_ABORT)
		return snt__fail(EINVAL, "%d is no way to cancel an op", how);
	if (is_op_lost(op))
		return 0;
	if (op->state == SNT__OP_OVER || (int)how <= op->cancel)
		return snt__fail(EALREADY, "the op has been cancelled before");
	return 0;
}

int snt_op_cancel(struct snt_op *op, enum snt_cancel how)
{
	int ret = check_cancel(op, how);

	return ret ? ret : end_op(op, how, -ECANCELED);
}

static bool end_somehow(struct snt_op *op, enum snt_cancel how, int reason)
{
	return !end_op(op, how, reason) ||
	       (how == SNT_CANCEL_ABORT && !end_op(op, SNT_CANCEL_DETACH, reason));
}

bool snt__op_try_cancel(struct snt_op *op, enum snt_cancel how)
{
	struct snt__err_kept kept;
	bool ended;

	if (op->state != SNT__OP_POSTED || ((int)how <= op->cancel && !is_op_lost(op)))
		return false;
	snt__err_keep(&kept);
	ended = end_somehow(op, how, -ECANCELED);
	snt__err_restore(&kept);
	return ended;
}

static void too_late(struct snt_timer *timer)
{
	struct snt_op *op = snt__container(timer, struct snt_op, timer);

	end_somehow(op, (enum snt_cancel)op->late, -ETIMEDOUT);
}

static int set_deadline(struct snt_op *op, enum snt_cancel how)
{
	int ret = check_cancel(op, how);

	if (!ret && op->cancel)
		ret = snt__fail(EALREADY, "the op has been cancelled before");
	if (ret)
		return ret;
	op->late = how;
	op->flags |= SNT__OP_TIMED;
	op->timer.fired = too_late;
	return 0;
}

int snt_op_deadline(struct snt_op *op, uint64_t deadline_ns, enum snt_cancel how)
{
	int ret = set_deadline(op, how);

	return ret ? ret : snt_timer_start_at(op->loop, &op->timer, deadline_ns);
}

int snt_op_timeout(struct snt_op *op, uint64_t timeout_ns, enum snt_cancel how)
{
	int ret = set_deadline(op, how);

	return ret ? ret : snt_timer_start(op->loop, &op->timer, timeout_ns);
}
