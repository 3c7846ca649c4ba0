/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_OP_H
#define SNT_LOOP_OP_H

#include <sennit/op.h>

#include "loop/loop.h"
#include "util/err.h"

/*
 * Ops. The wr_id of what an op posts is its address, and the first member of an op is
 * the function that takes the completion: anything that begins like an op can share a
 * CQ with ops.
 */

enum snt__op_state {
	SNT__OP_UNUSED = 0,
	SNT__OP_POSTED,
	SNT__OP_OVER, /* ended; waits for its callback, or is in `done` */
};

enum snt__op_flags {
	SNT__OP_RECV = 1 << 0,
	SNT__OP_EARLY = 1 << 1, /* a receive in its QP's list, not connected then */
	SNT__OP_ATOMIC = 1 << 2,
	SNT__OP_CLOSE = 1 << 3,
	SNT__OP_NO_EFFECT = 1 << 4, /* ended before any device executed a part of it */
	SNT__OP_TIMED = 1 << 5,	    /* has had a deadline */
	SNT__OP_WAITED = 1 << 6,    /* `waiter` waits for it */
	SNT__OP_QUEUED = 1 << 7, /* in the loop's list of ops that have callbacks due */
	SNT__OP_TOLD = 1 << 8,	 /* `done` has begun, `released` has not */
	SNT__OP_GROUPED = 1 << 9,
	SNT__OP_LEFT = 1 << 10, /* its QP is gone, its completion about to come */
};

/* What the end of an op has to look at, apart from its timer; of most ops nothing. */
#define SNT__OP_SPECIAL                                                     \
	(SNT__OP_EARLY | SNT__OP_ATOMIC | SNT__OP_WAITED | SNT__OP_QUEUED | \
	 SNT__OP_TOLD | SNT__OP_GROUPED)

/* On the stack of snt_op_wait(), since the op may be reused or freed after its
 * callback. */
struct snt__waiter {
	bool done;
	int result;
	struct snt__err_kept why; /* the error text, if the result is an error */
};

/* How an op ended. */
struct snt__op_end {
	struct snt_loop *loop;
	const struct snt_wc *wc;
	int result;
	unsigned flags;
	bool held; /* by a device */
};

/* op_text.c: in the buffer of snt_op_text(). */
const char *snt__op_end_text(const struct snt__op_end *end);

/* group.c: takes an op off its group's list, and keeps its result if it is the first
 * error. The group counts the op until it has been told. */
struct snt_op_group *snt__group_leave(struct snt_op *op);
void snt__group_left(struct snt_op_group *group);

/* cancel.c: as snt_op_cancel(), without a text; detaches where an abort is impossible. */
bool snt__op_try_cancel(struct snt_op *op, enum snt_cancel how);

/* wait.c: dispatches until the waiter is done. `forget`, of `arg`, makes the waiter
 * unknown to what it waits for. */
int snt__wait_for(struct snt_loop *loop, struct snt__waiter *waiter, const char *what,
		  int64_t timeout_ns, void (*forget)(void *arg), void *arg);

/* op.c: takes a completion that no op waits for any more. */
extern struct snt_op snt__op_nobody;

/* op.c: a completion of the op. */
void snt__op_complete(struct snt_op *op, const struct snt_wc *wc);

/* op.c: removes it from the list of early receives, if it is there. */
void snt__op_unlist(struct snt_op *op);

/* op.c: ends it without a completion, at the next dispatch, for this reason. */
void snt__op_end(struct snt_op *op, int reason);

/* op.c: `done` is called at the next dispatch, although a device still has the op. */
void snt__op_tell(struct snt_op *op);

#endif
