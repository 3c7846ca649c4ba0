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
};

/* What the end of an op has to look at; of most ops nothing. */
#define SNT__OP_SPECIAL                                                    \
	(SNT__OP_EARLY | SNT__OP_ATOMIC | SNT__OP_TIMED | SNT__OP_WAITED | \
	 SNT__OP_QUEUED | SNT__OP_TOLD)

/* On the stack of snt_op_wait(), since the op may be reused or freed after its
 * callback. */
struct snt__waiter {
	bool done;
	int result;
	struct snt__err_kept why; /* the error text, if the result is an error */
};

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
