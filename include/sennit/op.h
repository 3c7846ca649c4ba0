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
 * Asynchronous verbs. An op is one operation on a virtual QP, in memory that the
 * program owns; when it is over, its function is called.
 *
 *	struct snt_op op = { .done = written };
 *	...
 *	ret = snt_op_write(qp, &op, &sge, 1, &token, remote_addr, 0);
 *	...snt_loop_dispatch() calls written(&op), with op.result 0 or -errno...
 *
 * The QP reports to a CQ (or two) made with snt_cq_opts::ops. All that is posted on
 * such a QP are ops: snt_qp_post_send(), snt_qp_post_recv(), snt_qp_close() and the
 * polling of that CQ are -EINVAL there. QPs of one lane and of many, of every scheme,
 * can be used; any number of them share a CQ.
 *
 * An op that was accepted (the call returned 0) gets its callback exactly once, in a
 * later dispatch, poll or wait, never inside the call. One that was refused gets
 * none. From the call to the callback the op and the memory it names are the
 * library's; when the callback begins they are the program's again, so that it can
 * post the same op again, or free it. Callbacks come in the order of qp.h's contract:
 * those of sends in posting order, those of receives in posting order within their
 * class; only what was cancelled before it was sent comes earlier. There is no
 * allocation, no lock and no limit but the depths of the QP, beyond which an op is
 * -EAGAIN.
 *
 * Results. 0; or, by what the completion says (op.wc has it in full),
 *	-ECANCELED     cancelled, see snt_op_cancel()
 *	-ETIMEDOUT     its deadline passed first, see snt_op_deadline()
 *	-ESHUTDOWN     flushed: the QP was closed or broke, or the peer's did
 *	-EHOSTUNREACH  the peer does not answer (RETRY_EXC_ERR)
 *	-ENOBUFS       the peer had no receive for it for too long (RNR_RETRY_EXC_ERR)
 *	-EACCES        refused by a device, mostly the peer's (REM_ACCESS_ERR,
 *	               LOC_ACCESS_ERR, LOC_PROT_ERR)
 *	-EMSGSIZE      longer than the receive (LOC_LEN_ERR)
 *	-EREMOTEIO     the peer could not do it (REM_INV_REQ_ERR, REM_OP_ERR)
 *	-EPROTO        an answer that makes no sense (BAD_RESP_ERR)
 *	-EIO           anything else
 * What a status means for the rest of the QP is in qp.h.
 *
 * Thread: loop, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* What is to become of an op that has gone out already. */
enum snt_cancel {
	/* Nobody waits for it any more; its callback comes when the device has let go of it,
	 * and says so. The QP goes on. */
	SNT_DETACH = 1,
	/* It is to end now. RC knows no other way than to break the QP, and with it all
	 * other ops. */
	SNT_ABORT,
};

/* Zero it before its first use, then set `done` and, at will, `arg`. */
struct snt_op {
	/* The library's: who takes the completion. Comes first. */
	void (*complete)(struct snt_op *op, const struct snt_wc *wc);

	/* The program's. */
	void (*done)(struct snt_op *op); /* NULL: snt_op_pending() tells */
	void *arg;

	/* The result, from the callback on. */
	int32_t result;
	/* The library's. */
	int32_t reason;
	uint8_t state, cancel, late, flags;
	uint32_t position;
	/* Of CMP_SWAP and FETCH_ADD: what was there before. */
	uint64_t old;
	/* The completion as it came. Of an op that ended without one: wr_id, qp_num, opcode,
	 * and SNT_FLUSHED as its status. */
	struct snt_wc wc;

	/* The library's. */
	struct snt_qp *qp;     /* NULL: a receive of an SRQ, which is of no QP yet */
	struct snt_loop *loop; /* outlives the QP, or the SRQ */
	const uint64_t *old_from;
	struct snt_op *next, **to;
	void *waiter;
	struct snt_timer timer;
};

/**
 * snt_op_send, snt_op_send_imm - send a message
 * @sge: copied with the call, as in all of these; the memory it names is not
 * @imm: 32 bits for the receiver, host order
 * @flags: SNT_FENCE, SNT_SOLICITED, SNT_INLINE; all ops are signalled
 *
 * When it is over the peer has the message in a receive.
 *
 * Cancel: while it waits for a lane it ends at once and never was sent. Detached, it
 * may be received all the same.
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_qp_post_send().
 */
SNT_API int snt_op_send(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
			unsigned sge_count, unsigned flags);
SNT_API int snt_op_send_imm(struct snt_qp *qp, struct snt_op *op,
			    const struct snt_sge *sge, unsigned sge_count, uint32_t imm,
			    unsigned flags);

/**
 * snt_op_recv - receive a message or a notification
 * @sge_count: 0: a notification, of a peer's snt_op_write_imm(). On a single lane that
 *	passes WRs on both share one queue, as in verbs.
 *
 * May be posted before the QP is connected. The callback finds length and immediate in
 * op->wc.
 *
 * Cancel: receives end with their QP. Detached, it stays where it is and takes the
 * next message, which then is lost: its callback has -ECANCELED and op->wc tells what
 * came. Those of a QP that is destroyed or reset without ever having been connected
 * end with -ECANCELED, in the next dispatch; until then the loop cannot be closed.
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_qp_post_recv().
 */
SNT_API int snt_op_recv(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
			unsigned sge_count);

/**
 * snt_op_srq_recv - receive a message or a notification of any QP that shares receives
 * @srq: made with a CQ that has ops (srq.h)
 *
 * The callback finds in op->wc what came, and in op->wc.qp_num for which QP.
 *
 * Cancel: as with snt_op_recv() by SNT_DETACH: it takes the next message of any of them
 * with it. SNT_ABORT is -EOPNOTSUPP, since no QP would be the right one to break. Those
 * that are left when the SRQ is destroyed end with -ECANCELED.
 * Returns: 0; -EINVAL if the CQ has no ops; -EALREADY if the op is in use; -ECHILD; or
 * as snt_srq_post_recv().
 */
SNT_API int snt_op_srq_recv(struct snt_srq *srq, struct snt_op *op,
			    const struct snt_sge *sge, unsigned sge_count);

/**
 * snt_op_read - read memory of the peer
 *
 * When it is over the bytes are here.
 *
 * Cancel: while it waits for a lane it ends at once. Detached, bytes may come in
 * until its callback.
 * Returns: as snt_op_send().
 */
SNT_API int snt_op_read(struct snt_qp *qp, struct snt_op *op, const struct snt_sge *sge,
			unsigned sge_count, const struct snt_token *remote,
			uint64_t remote_addr, unsigned flags);

/**
 * snt_op_write, snt_op_write_imm - write memory of the peer
 * @imm: of the notification that follows, host order
 *
 * When it is over the bytes are there.
 *
 * Cancel: while it waits for a lane, nothing of it sent, it ends at once and the peer
 * sees neither bytes nor a notification. Detached, it may be written, and announced,
 * all the same.
 * Returns: as snt_op_send().
 */
SNT_API int snt_op_write(struct snt_qp *qp, struct snt_op *op,
			 const struct snt_sge *sge, unsigned sge_count,
			 const struct snt_token *remote, uint64_t remote_addr,
			 unsigned flags);
SNT_API int snt_op_write_imm(struct snt_qp *qp, struct snt_op *op,
			     const struct snt_sge *sge, unsigned sge_count,
			     const struct snt_token *remote, uint64_t remote_addr,
			     uint32_t imm, unsigned flags);

/**
 * snt_op_cmp_swap, snt_op_fetch_add - change 8 bytes of the peer's memory atomically
 * @result: one SGE of 8 bytes where the device writes what was there before; the
 *	callback finds it in op->old as well. An op that lies in registered memory can name
 *	its own member. It is the program's, because a device writes only to
 *	registered memory.
 *
 * Cancel: while it waits for its lane it ends at once and never happened. Detached, it
 * happens or not; its callback has -ECANCELED, and op->old if op->wc.status is 0.
 * Returns: as snt_op_send().
 */
SNT_API int snt_op_cmp_swap(struct snt_qp *qp, struct snt_op *op,
			    const struct snt_sge *result,
			    const struct snt_token *remote, uint64_t remote_addr,
			    uint64_t compare, uint64_t swap, unsigned flags);
SNT_API int snt_op_fetch_add(struct snt_qp *qp, struct snt_op *op,
			     const struct snt_sge *result,
			     const struct snt_token *remote, uint64_t remote_addr,
			     uint64_t add, unsigned flags);

/**
 * snt_op_batch - several ops in one call
 * @ops: @count of them, all different
 * @wr: what they do, one each; their wr_id is not used, and all are signalled
 *
 * One doorbell for each lane rather than for each op. They are taken in order until one
 * is refused; each has its own result and callback.
 *
 * Returns: how many were taken, at least 1; or, if the first was refused, as
 * snt_op_send().
 */
SNT_API int snt_op_batch(struct snt_qp *qp, struct snt_op *const *ops,
			 const struct snt_send_wr *wr, unsigned count);

/**
 * snt_op_recv_batch - several receives in one call
 *
 * Returns: as snt_op_batch().
 */
SNT_API int snt_op_recv_batch(struct snt_qp *qp, struct snt_op *const *ops,
			      const struct snt_recv_wr *wr, unsigned count);

/**
 * snt_op_close - end the traffic of a QP
 *
 * As snt_qp_close(): all other ops of the QP end first, mostly with -ESHUTDOWN; when
 * this one does, the QP can be destroyed or reset, in its callback already. It cannot
 * be cancelled.
 *
 * Returns: 0; -EINVAL if the QP has no ops; -EALREADY if the op is in use or the QP is
 * being closed; -ECHILD; or as snt_qp_close().
 */
SNT_API int snt_op_close(struct snt_qp *qp, struct snt_op *op);

/**
 * snt_op_cancel - do not wait for an op any more
 *
 * What has not been sent ends at once: its callback comes with the next dispatch, its
 * result is -ECANCELED, and nothing of it ever happened. What has been sent, even in
 * part, is in the hands of a device; @how says what to do about it. Either way the
 * callback comes, with -ECANCELED, and until then the op's memory is not free: RC has
 * no way to take a WR back. Of what was cancelled nobody can say whether it happened
 * at the peer, but op->wc.status is 0 if it is known to.
 *
 * Where the CQ cannot be polled any more and the QP is being closed (snt_loop_dispatch()
 * has more on it), an op ends at once, one of snt_op_close() too.
 *
 * SNT_ABORT breaks the QP, as a fatal error would: snt_qp_query() has SNT_QP_BROKEN,
 * all its other ops end with -ESHUTDOWN, and the log says so. An op that was cancelled by
 * SNT_DETACH can be cancelled once more, by SNT_ABORT.
 *
 * Returns: 0; -ENOENT if the op is not in use, because its callback has run or was
 * never to come; -EALREADY if it was cancelled before; -EOPNOTSUPP for SNT_ABORT on a
 * device without a control table, and for ops of snt_op_close(); -ENOTCONN for
 * SNT_ABORT on a QP that is not connected; -EINVAL for another @how; the errno of a
 * device that refused to be put to ERR.
 */
SNT_API int snt_op_cancel(struct snt_op *op, enum snt_cancel how);

/**
 * snt_op_deadline, snt_op_timeout - cancel an op when it takes too long
 * @deadline_ns: by snt_loop_now()
 * @timeout_ns: from now
 * @how: as in snt_op_cancel()
 *
 * After it was posted. If its callback has not begun by then it is cancelled, with
 * -ETIMEDOUT as its result; where SNT_ABORT cannot be done it is detached. Another
 * call moves the deadline. Deadlines are cheap: no system call, except for the first
 * to come.
 *
 * Returns: 0; -ENOENT if the op is not in use; -EALREADY if it was cancelled before;
 * -EOPNOTSUPP for ops of snt_op_close(); -EINVAL; -ECHILD; as snt_timer_start().
 */
SNT_API int snt_op_deadline(struct snt_op *op, uint64_t deadline_ns,
			    enum snt_cancel how);
SNT_API int snt_op_timeout(struct snt_op *op, uint64_t timeout_ns, enum snt_cancel how);

/**
 * snt_op_wait - wait for an op, and dispatch meanwhile
 * @timeout_ns: -1: for ever; 0: dispatch once, and do not wait
 *
 * Makes a blocking call of any op. Callbacks run as in snt_loop_wait(), that of the
 * op, if it has one, included.
 *
 * Returns: the op's result, at once if it is over already; -EINPROGRESS if time is up
 * first, and the op goes on; -EBUSY inside a callback; otherwise as snt_loop_wait().
 */
SNT_API int snt_op_wait(struct snt_op *op, int64_t timeout_ns);

/**
 * snt_op_text - how an op ended, in words
 *
 * For its callback, or after it, until the op is posted again or its loop is closed: one
 * sentence as of snt_wc_text(), or, of an op that was cancelled or timed out, whether it took
 * effect. The QP, or SRQ, may have been destroyed. Of a call that refused an op
 * snt_err_text() tells instead.
 *
 * Ownership: as of snt_wc_text().
 * Returns: a string, never NULL; it says so if the op is in use, or was never posted.
 */
SNT_API const char *snt_op_text(const struct snt_op *op);

/**
 * snt_op_pending - is the op in use?
 *
 * Returns: 1 from the call that accepted it until its callback begins, else 0.
 */
SNT_API int snt_op_pending(const struct snt_op *op);

#ifdef __cplusplus
}
#endif

#endif
