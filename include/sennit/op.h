/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_OP_H
#define SENNIT_OP_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/cq.h>
#include <sennit/loop.h>
#include <sennit/mem.h>
#include <sennit/qp.h>
#include <sennit/srq.h>

/*
 * Asynchronous verbs. An op is one operation on a virtual QP, in a structure that the
 * program owns; when the operation is over, the op's function is called.
 *
 *	static void written(struct snt_op *op)
 *	{
 *		show(snt_op_text(op)); // "QP 2: WRITE succeeded", or why not
 *	}
 *
 *	struct snt_cq_opts cq_opts =
 *		SNT_INIT(cq_opts, .loop = loop, .ops = SNT_CQ_OPS_EVENTS);
 *	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4);
 *	struct snt_sge sge = { mem, bytes, length };
 *	struct snt_op op = { .done = written };
 *
 *	check(snt_qp_create_with_cq(ctx, &cq_opts, &opts, &cq, &qp));
 *	connect_to_peer(qp, &token); // by cards (qp.h) or by address (conn.h)
 *	check(snt_op_write(qp, &op, &sge, &token, token.addr + length));
 *	check(snt_op_timeout(&op, 1000000000, SNT_CANCEL_ABORT));
 *	while (snt_op_pending(&op))
 *		check(snt_loop_wait(loop, -1)); // calls written(&op)
 *
 * The QP reports to a CQ (or two) made with snt_cq_opts::ops. Only ops can be posted on
 * such a QP: snt_qp_post_send(), snt_qp_post_recv(), snt_qp_close() and polling that CQ
 * fail with -EINVAL. QPs with any number of lanes and of every scheme can be used, and
 * any number of them can share a CQ.
 *
 * An op that was accepted (the call returned 0) gets its callback exactly once, in a
 * later dispatch, poll or wait, never inside the call. A refused op gets none. From the
 * call to the callback the op and the memory it names are the library's; when the
 * callback begins they are the program's again, so that it can post the same op again,
 * or free it. (With a second function, `released`, that is when `released` begins.)
 * Callbacks come in the order of qp.h's contract: sends in posting order,
 * receives in posting order within their class; only ops cancelled before they were
 * sent come earlier. There is no allocation and no lock. The only limits are the depths
 * of the QP, beyond which posting an op fails with -EAGAIN.
 *
 * Results. 0; or, by what the completion says (op.wc has it in full),
 *	-ECANCELED     cancelled, see snt_op_cancel()
 *	-ETIMEDOUT     its deadline passed first, see snt_op_deadline()
 *	-ESHUTDOWN     flushed: the QP was closed or broke, or the peer's did
 *	-EHOSTUNREACH  the peer does not answer (RETRY_EXC_ERR)
 *	-ENOBUFS       the peer had no receive buffer for too long (RNR_RETRY_EXC_ERR)
 *	-EACCES        refused by a device, mostly the peer's (REM_ACCESS_ERR,
 *	               LOC_ACCESS_ERR, LOC_PROT_ERR)
 *	-EMSGSIZE      longer than the receive (LOC_LEN_ERR)
 *	-EREMOTEIO     the peer could not do it (REM_INV_REQ_ERR, REM_OP_ERR)
 *	-EPROTO        malformed or unexpected response (BAD_RESP_ERR)
 *	-EIO           anything else
 * qp.h tells what a status means for the rest of the QP.
 *
 * Thread: loop, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* How to cancel an op that has already been sent. */
enum snt_cancel {
	/* The program no longer waits for the op. Without `released` the callback, which
	 * reports the cancellation, comes when the device no longer uses the op's
	 * memory. The QP goes on. */
	SNT_CANCEL_DETACH = 1,
	/* The op ends now. With RC this means breaking the QP, and with it all other
	 * ops. */
	SNT_CANCEL_ABORT,
};

struct snt_op_group;

/*
 * Zero it before its first use, then set `done` and, optionally, `arg` and `released`.
 *
 * With `released`, an op that is cancelled, or whose deadline passes, calls `done` at
 * once, with its result, even though a device may still use its memory; `released`
 * follows, exactly once, when op and memory are the program's again, and op->wc is then
 * the completion, if there was one. Of an op that is not cancelled both are called one
 * after the other. So an op with both functions is freed, or posted again, in `released`.
 */
struct snt_op {
	/* The library's: the completion handler. Comes first. */
	void (*complete)(struct snt_op *op, const struct snt_wc *wc);

	/* The program's. */
	void (*done)(struct snt_op *op); /* NULL: check snt_op_pending() */
	void (*released)(struct snt_op *op);
	void *arg;

	/* The result, from the callback on. */
	int32_t result;
	/* The library's. */
	int32_t reason;
	uint8_t state, cancel;
	uint16_t flags;
	uint32_t position;
	/* For CMP_SWAP and FETCH_ADD: the previous value. */
	uint64_t old;
	/* The completion as received. For an op that ended without one, and as long as
	 * there is none: wr_id, qp_num, opcode, and SNT_WC_FLUSHED as the status. */
	struct snt_wc wc;

	/* The library's. */
	struct snt_qp *qp;     /* NULL: a receive of an SRQ, not yet assigned to a QP */
	struct snt_loop *loop; /* outlives the QP, or the SRQ */
	const uint64_t *old_from;
	struct snt_op *next, **to;
	struct snt_op *over_next;
	struct snt_op_group *group;
	struct snt_op *group_next, **group_to;
	void *waiter;
	struct snt_timer timer;
	uint32_t late;
	uint32_t reserved_32;
	uint64_t reserved[4];
};

/**
 * snt_op_post - post an operation as an op
 * @wr: the operation (qp.h). It is copied, with its SGEs; the memory they name is not.
 *	wr_id is not used, and every op is signalled
 *
 * When the op is over,
 *	WRITE, WRITE_IMM     the bytes are in the peer's memory
 *	READ                 the bytes are in local memory
 *	SEND, SEND_IMM       the peer has the message in a receive buffer
 *	CMP_SWAP, FETCH_ADD  the previous value is in op->old. The device has written it
 *	                     to the memory of the one SGE, since it writes to registered
 *	                     memory only; an op in such memory can name its own member.
 *
 * Cancel: while the op waits for a lane, with nothing sent, it ends at once and has no
 * effect. Once detached it may still take effect: the peer may get the bytes, the message
 * or the notification, and until the callback READs and atomics may write local memory;
 * op->old is valid if op->wc.status is 0.
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_qp_post_send().
 */
SNT_API int snt_op_post(struct snt_qp *qp, struct snt_op *op,
			const struct snt_send_wr *wr);

/**
 * snt_op_post_recv - receive a message or a notification
 * @wr: copied, with its SGEs; wr_id is not used. Without an SGE the op receives a
 *	notification, of a peer's WRITE_IMM; on a pass-through lane both share one
 *	queue, as in verbs.
 *
 * May be posted before the QP is connected. The callback finds length and immediate in
 * op->wc.
 *
 * Cancel: receives end with their QP. Once detached, the receive stays posted and
 * consumes the next message, which is then lost: the callback has -ECANCELED, and
 * op->wc describes the message. Receives of a QP that is destroyed or reset without
 * ever having been connected end with -ECANCELED, in the next dispatch; until then the
 * loop cannot be closed.
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_qp_post_recv().
 */
SNT_API int snt_op_post_recv(struct snt_qp *qp, struct snt_op *op,
			     const struct snt_recv_wr *wr);

/**
 * snt_op_post_srq_recv - receive a message or a notification of any QP that shares receives
 * @srq: made with a CQ that has ops (srq.h)
 *
 * The callback finds the completion in op->wc, with the receiving QP in op->wc.qp_num.
 *
 * Cancel: with SNT_CANCEL_DETACH as snt_op_post_recv(): the receive consumes the next
 * message to any of the QPs, which is lost. SNT_CANCEL_ABORT fails with -EOPNOTSUPP, since
 * there is no particular QP to break. Receives left when the SRQ is destroyed end with
 * -ECANCELED.
 * Returns: 0; -EINVAL if the CQ has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_srq_post_recv().
 */
SNT_API int snt_op_post_srq_recv(struct snt_srq *srq, struct snt_op *op,
				 const struct snt_recv_wr *wr);

/**
 * snt_op_post_batch - post several ops in one call
 * @ops: @count ops, all different
 * @wr: one WR for each op, as in snt_op_post()
 *
 * Rings one doorbell for each lane rather than for each op. Ops are accepted in order
 * until one is refused; each has its own result and callback.
 *
 * Returns: how many were accepted, at least 1; or, if the first was refused, as
 * snt_op_post().
 */
SNT_API int snt_op_post_batch(struct snt_qp *qp, struct snt_op *const *ops,
			      const struct snt_send_wr *wr, unsigned count);

/**
 * snt_op_post_recv_batch - post several receives in one call
 *
 * Returns: as snt_op_post_batch().
 */
SNT_API int snt_op_post_recv_batch(struct snt_qp *qp, struct snt_op *const *ops,
				   const struct snt_recv_wr *wr, unsigned count);

/**
 * snt_op_send, snt_op_recv, snt_op_read, snt_op_write - the most frequent operations
 * @sge: NULL: none; snt_op_recv() then receives a notification
 *
 * The same as snt_op_post() and snt_op_post_recv() with at most one SGE and no flags.
 *
 * Returns: as these.
 */
SNT_API int snt_op_send(struct snt_qp *qp, struct snt_op *op,
			const struct snt_sge *sge);
SNT_API int snt_op_recv(struct snt_qp *qp, struct snt_op *op,
			const struct snt_sge *sge);
SNT_API int snt_op_read(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
			const struct snt_token *remote, uint64_t remote_addr);
SNT_API int snt_op_write(struct snt_qp *qp, struct snt_op *op,
			 const struct snt_sge *sge, const struct snt_token *remote,
			 uint64_t remote_addr);

/**
 * snt_op_close - end the traffic of a QP
 *
 * As snt_qp_close(): all other ops of the QP end first, mostly with -ESHUTDOWN; when
 * this one does, the QP can be destroyed or reset, in its callback already.
 *
 * Cancel: closing goes on, but the op ends at once, in the next dispatch, also by its
 * deadline. The QP cannot be destroyed yet; another snt_op_close() waits for the rest. It
 * ends in the next dispatch if the QP has been closed meanwhile.
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use, or if another
 * op closes or has closed the QP; -ECHILD; or as snt_qp_close().
 */
SNT_API int snt_op_close(struct snt_qp *qp, struct snt_op *op);

/**
 * snt_op_cancel - cancel an op
 *
 * An op that has not been sent ends at once: its callback comes with the next dispatch,
 * its result is -ECANCELED, and it has had no effect. An op that has been sent, even in
 * part, is owned by a device; @how says what to do about it. Either way the callback
 * comes, with -ECANCELED, and until then the op's memory is still in use: RC has no way
 * to withdraw a WR. With `released` the callback comes with the next dispatch, and the
 * memory is in use until `released`. Whether a cancelled op took effect at the peer is
 * unknown in general, but op->wc.status is 0 if it is known to have.
 *
 * If the CQ can no longer be polled and the QP is being closed (see
 * snt_loop_dispatch()), an op ends at once, including that of snt_op_close().
 *
 * SNT_CANCEL_ABORT breaks the QP, as a fatal error would: snt_qp_query() has SNT_QP_BROKEN,
 * all its other ops end with -ESHUTDOWN, and the log says so. An op that was cancelled by
 * SNT_CANCEL_DETACH can be cancelled once more, by SNT_CANCEL_ABORT.
 *
 * Returns: 0; -ENOENT if the op is not in use, because its callback has run or it was
 * never accepted; -EALREADY if it was cancelled or ended before; -EOPNOTSUPP for
 * SNT_CANCEL_ABORT on a device without a control table, and for ops of snt_op_close();
 * -ENOTCONN for SNT_CANCEL_ABORT on a QP that is not connected; -EINVAL for another @how;
 * the errno of a device that refused to move a lane to ERR.
 */
SNT_API int snt_op_cancel(struct snt_op *op, enum snt_cancel how);

/**
 * snt_op_deadline, snt_op_timeout - set a deadline at which an op is cancelled
 * @deadline_ns: by snt_loop_now()
 * @timeout_ns: from now
 * @how: as in snt_op_cancel()
 *
 * Call it after the op was posted. If the callback has not begun by the deadline the op
 * is cancelled, with -ETIMEDOUT as its result; where SNT_CANCEL_ABORT is not possible it is
 * detached. To learn of the deadline at the deadline, and not when the device has let go
 * of the memory, set `released`. Another call moves the deadline. Deadlines are cheap:
 * only the earliest one costs a system call.
 *
 * Returns: 0; -ENOENT if the op is not in use; -EALREADY if it was cancelled or ended
 * before; -EINVAL; -ECHILD; as snt_timer_start().
 */
SNT_API int snt_op_deadline(struct snt_op *op, uint64_t deadline_ns,
			    enum snt_cancel how);
SNT_API int snt_op_timeout(struct snt_op *op, uint64_t timeout_ns, enum snt_cancel how);

/**
 * snt_op_wait - wait for an op, and dispatch meanwhile
 * @timeout_ns: negative: no timeout; 0: dispatch once, and do not wait
 *
 * Turns any op into a blocking call. Callbacks run as in snt_loop_wait(), including
 * that of the op, if it has one. Waits for `done`, not for `released`.
 *
 * Returns: the op's result, at once if it is over already; -ETIME on timeout, and
 * the op goes on; -EBUSY inside a callback; otherwise as snt_loop_wait().
 */
SNT_API int snt_op_wait(struct snt_op *op, int64_t timeout_ns);

/**
 * snt_op_text - how an op ended, in words
 *
 * To be called in the callback or after it, until the op is posted again or its loop is
 * closed. Gives one sentence like snt_wc_text(), or, for an op that was cancelled or
 * timed out, whether it took effect, or that a device still has it. The QP, or SRQ, may
 * have been destroyed. If the
 * call refused the op, use snt_err_text() instead.
 *
 * Ownership: as of snt_wc_text().
 * Returns: a string, never NULL; it says so if the op is in use, or was never posted.
 */
SNT_API const char *snt_op_text(const struct snt_op *op);

/**
 * snt_op_pending - tell whether an op is in use
 *
 * Returns: 1 from the call that accepted it until its callback begins, or `released` if
 * that is set; else 0.
 */
SNT_API int snt_op_pending(const struct snt_op *op);

/*
 * Groups: many ops, one end.
 *
 *	struct snt_op_group group = { .done = all_written };
 *
 *	for (...) {
 *		snt_op_write(qp[i], &op[i], &sge[i], &token, remote_addr[i]);
 *		snt_op_group_add(&group, &op[i]);
 *	}
 *	...when the last op has ended, all_written(&group) is called; or
 *	ret = snt_op_group_wait(&group, timeout_ns);
 *
 * Owned by the program; zero it before its first use. A group belongs to the loop of its
 * ops, which may be of any QPs and kinds there. It must not move or be freed while
 * `pending` is not 0. Its ops keep their own functions, deadlines and results.
 */
struct snt_op_group {
	/* The program's. Called after the function of the last op that was pending. */
	void (*done)(struct snt_op_group *group); /* NULL: none */
	void *arg;
	/* The first error of an op in the group, or 0. It stays until the program sets it
	 * to 0. */
	int32_t result;
	uint32_t pending; /* ops that have not ended; read only */

	/* The library's. */
	uint32_t flags, held;
	struct snt_wc wc;
	struct snt_loop *loop;
	struct snt_op *first;
	void *waiter;
	uint64_t reserved[4];
};

/**
 * snt_op_group_add - let an op count in a group
 *
 * Call it after the op was posted, before the next dispatch. The op leaves the group when
 * its callback `done` has returned; it may be added again after it is posted again, also
 * in that callback.
 *
 * Returns: 0; -ENOENT if the op is not in use, or has ended; -EALREADY if it is in a
 * group; -EINVAL if the group has pending ops of another loop.
 */
SNT_API int snt_op_group_add(struct snt_op_group *group, struct snt_op *op);

/**
 * snt_op_group_wait - wait until no op of a group is pending, and dispatch meanwhile
 * @timeout_ns: as in snt_op_wait()
 *
 * Returns: the group's result, at once if none is pending, with the text of that op;
 * -ETIME on timeout, and the ops go on; -EBUSY inside a callback; otherwise as
 * snt_loop_wait().
 */
SNT_API int snt_op_group_wait(struct snt_op_group *group, int64_t timeout_ns);

/**
 * snt_op_group_cancel - cancel all pending ops of a group
 * @how: as in snt_op_cancel(); where SNT_CANCEL_ABORT is not possible an op is detached
 *
 * Returns: how many were cancelled, which leaves out those that were cancelled before;
 * -EINVAL for another @how.
 */
SNT_API int snt_op_group_cancel(struct snt_op_group *group, enum snt_cancel how);

/**
 * snt_op_group_text - how the op that gave a group its result ended, in words
 *
 * Ownership: as of snt_wc_text().
 * Returns: a string, never NULL, like that of snt_op_text().
 */
SNT_API const char *snt_op_group_text(const struct snt_op_group *group);

#ifdef __cplusplus
}
#endif

#endif
