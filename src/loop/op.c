/* SPDX-License-Identifier: MIT */
/*
 * The end of ops: by a completion, or without one.
 */
#include "loop/op.h"
#include "vqp/view.h"

#include <errno.h>
#include <stdio.h>

static int error_of_status(unsigned status)
{
	switch (status) {
	case SNT_WC_SUCCESS:
		return 0;
	case SNT_WC_FLUSHED:
		return -ESHUTDOWN;
	case SNT_WC_RETRY_EXC_ERR:
		return -EHOSTUNREACH;
	case SNT_WC_RNR_RETRY_EXC_ERR:
		return -ENOBUFS;
	case SNT_WC_LOC_PROT_ERR:
	case SNT_WC_LOC_ACCESS_ERR:
	case SNT_WC_REM_ACCESS_ERR:
		return -EACCES;
	case SNT_WC_LOC_LEN_ERR:
		return -EMSGSIZE;
	case SNT_WC_REM_INV_REQ_ERR:
	case SNT_WC_REM_OP_ERR:
		return -EREMOTEIO;
	case SNT_WC_BAD_RESP_ERR:
		return -EPROTO;
	default:
		return -EIO;
	}
}

static void tell_op_waiter(struct snt_op *op)
{
	struct snt__waiter *waiter = op->waiter;

	op->flags &= ~SNT__OP_WAITED;
	waiter->done = true;
	waiter->result = op->result;
	if (op->result < 0)
		snprintf(waiter->why.text, sizeof(waiter->why.text), "%s",
			 snt_op_text(op));
}

/* Without `released`, its callback may reuse the op, or free it. */
static void tell_done(struct snt_op *op)
{
	struct snt_op_group *group = NULL;

	if (op->flags & SNT__OP_WAITED)
		tell_op_waiter(op);
	if (op->flags & SNT__OP_GROUPED)
		group = snt__group_leave(op);
	if (op->done)
		op->done(op);
	if (group)
		snt__group_left(group);
}

/* From the beginning of `released` on the op is the program's again. */
static void tell_and_release(struct snt_op *op)
{
	op->state = SNT__OP_OVER;
	if (!(op->flags & SNT__OP_TOLD)) {
		op->flags |= SNT__OP_TOLD;
		tell_done(op);
	}
	op->state = SNT__OP_UNUSED;
	op->released(op);
}

static __attribute__((noinline)) void finish_special(struct snt_op *op)
{
	if (op->released) {
		tell_and_release(op);
		return;
	}
	op->state = SNT__OP_UNUSED;
	tell_done(op);
}

void snt__op_unlist(struct snt_op *op)
{
	if (!(op->flags & SNT__OP_EARLY))
		return;
	*op->to = op->next;
	if (op->next)
		op->next->to = op->to;
	op->flags &= ~SNT__OP_EARLY;
}

static __attribute__((noinline)) void complete_special(struct snt_op *op)
{
	snt__op_unlist(op);
	if (op->flags & SNT__OP_ATOMIC && !op->wc.status)
		op->old = *op->old_from;
	/* Its callback is due already: snt__op_run_over() goes on. */
	if (op->flags & SNT__OP_QUEUED)
		op->state = SNT__OP_OVER;
	else
		finish_special(op);
}

void snt__op_complete(struct snt_op *op, const struct snt_wc *wc)
{
	uint8_t opcode = op->wc.opcode;

	op->wc = *wc;
	/* A lane in pass-through does not know which WR failed. */
	if (__builtin_expect(wc->status, 0))
		op->wc.opcode = opcode;
	op->result = op->reason ? op->reason : error_of_status(wc->status);
	if (__builtin_expect(op->flags & SNT__OP_TIMED, 0))
		snt_timer_stop(&op->timer);
	if (__builtin_expect(op->flags & SNT__OP_SPECIAL || op->released, 0)) {
		complete_special(op);
		return;
	}
	op->state = SNT__OP_UNUSED;
	if (op->done)
		op->done(op);
}

void snt__op_forget_qp(const struct snt_wc *wc)
{
	struct snt_op *op = (struct snt_op *)(uintptr_t)wc->wr_id;

	/* Others share CQs with ops, and have no QP. */
	if (op->complete != snt__op_complete)
		return;
	op->qp = NULL;
	op->flags |= SNT__OP_LEFT;
}

/*
 * Callbacks without a completion
 */

static void queue_callback(struct snt_op *op)
{
	struct snt_loop *loop = op->loop;

	if (op->flags & SNT__OP_QUEUED)
		return;
	op->flags |= SNT__OP_QUEUED;
	op->over_next = NULL;
	*loop->over_end = op;
	loop->over_end = &op->over_next;
	if (!loop->run)
		snt__loop_ring_fd(loop);
}

static void set_result(struct snt_op *op, int reason)
{
	op->result = reason;
	op->wc = (struct snt_wc){ .wr_id = (uintptr_t)op,
				  .qp_num = op->qp ? snt_qp_num(op->qp) : 0,
				  .opcode = op->wc.opcode,
				  .status = reason ? SNT_WC_FLUSHED : SNT_WC_SUCCESS };
}

void snt__op_end(struct snt_op *op, int reason)
{
	snt_timer_stop(&op->timer);
	op->state = SNT__OP_OVER;
	set_result(op, reason);
	queue_callback(op);
}

void snt__op_tell(struct snt_op *op)
{
	/* A deadline that is still set would end an op whose end has been reported. */
	snt_timer_stop(&op->timer);
	if (op->flags & SNT__OP_TOLD)
		return;
	set_result(op, op->reason);
	queue_callback(op);
}

static void run_callback(struct snt_op *op)
{
	op->flags &= ~SNT__OP_QUEUED;
	if (op->state == SNT__OP_OVER) {
		finish_special(op);
		return;
	}
	op->flags |= SNT__OP_TOLD;
	tell_done(op);
}

void snt__op_run_over(struct snt__round *run, int reserve)
{
	struct snt_loop *loop = run->loop;

	while (!run->gone && run->left > reserve && loop->over) {
		struct snt_op *op = loop->over;

		loop->over = op->over_next;
		if (!loop->over)
			loop->over_end = &loop->over;
		run->count++;
		run->left--;
		run_callback(op);
	}
}

static void ignore_completion(struct snt_op *op, const struct snt_wc *wc)
{
	(void)op;
	(void)wc;
}

struct snt_op snt__op_nobody = { .complete = ignore_completion };

int snt_op_pending(const struct snt_op *op)
{
	return op->state != SNT__OP_UNUSED;
}
