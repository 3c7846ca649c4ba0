/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_MW_H
#define SENNIT_MW_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/ctx.h>
#include <sennit/mem.h>
#include <sennit/qp.h>

/*
 * Memory windows (type 2) give a peer access to part of a memory, for a limited time
 * and through one QP only; revoking the access costs a WR and no registration.
 *
 *	snt_mw_bind(qp, mw, &range, SNT_ACCESS_REMOTE_WRITE, wr_id, SNT_SEND_SIGNALED);
 *	snt_mw_token(mw, &token);
 *	...pack the token and send it on the same QP, which orders it after the bind...
 *	...the peer writes, then says so, by snt_mw_send_inv() at best...
 *	snt_mw_invalidate(qp, mw, wr_id, SNT_SEND_SIGNALED); unless the peer did
 *
 * Windows are bound and used through QPs with SNT_QP_PASS_THROUGH, on the device
 * of the window. The memory must have been registered with SNT_ACCESS_WINDOW, and with
 * SNT_ACCESS_LOCAL_WRITE if the window is for writing; it needs no remote rights of its
 * own. A bound window must be invalidated before it is bound again; otherwise the
 * device puts the QP into the error state. WRs posted on the same QP after a bind or an
 * invalidation take effect after it.
 *
 * The library checks ranges and rights; the device checks the current binding, and
 * against a peer that forges a token the range and the rights as well. Windows of rxe in
 * Linux 6.1 grant access to the whole memory, at any of its addresses, and rxe does not
 * set SNT_WC_WITH_INV. Memory to which a window is bound cannot be released.
 *
 * READs through a window must have completed, or be fenced, before snt_mw_send_inv() is
 * posted behind them, since a device may still have to read what they ask for.
 *
 * There are no windows for QPs of many lanes. A window belongs to one physical QP, so it
 * would take one for each lane, a token with a key for each lane instead of each device,
 * and as many binds and invalidations as there are lanes, of which each may fail alone;
 * and after a lane has been replaced its window has another key, which the peer must
 * learn before it may write. Registering a range for one peer, and releasing it, does the
 * same for a token that works on every lane.
 *
 * Thread: any for snt_mw_alloc() and snt_mw_free(); for all others loop, or the owner of a
 * CQ without one, of the QP that the window is bound to.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_mw;
struct snt_op;

/**
 * snt_mw_alloc - make a window, not yet bound
 * @device: index in the context
 *
 * Returns: 0; -EOPNOTSUPP if the device, which the text names, has no windows of type 2;
 * -EINVAL if there is no such device; -ENOMEM; the errno of the device.
 */
SNT_API int snt_mw_alloc(struct snt_ctx *ctx, unsigned device, struct snt_mw **mw_out);

/**
 * snt_mw_free - free a window, bound or not
 *
 * NULL is legal and does nothing. All WRs posted with it must have completed, or the QP
 * must have failed or be closed. Free or invalidate the window before the QP to which
 * it is bound is destroyed: a device may refuse to destroy the QP, or wait for the
 * window.
 *
 * Returns: 0; the errno of the device.
 */
SNT_API int snt_mw_free(struct snt_mw *mw);

/**
 * snt_mw_bind - bind a window to a range, for the peer of this QP
 * @range: bytes of a memory
 * @access: SNT_ACCESS_REMOTE_* bits, at least one
 * @flags: SNT_SEND_SIGNALED, SNT_SEND_FENCE
 *
 * The completion's opcode is SNT_OP_BIND. The key changes with each bind.
 *
 * Returns: 0; -EINVAL for another kind of QP, or one on another device, or unknown bits;
 * -ERANGE outside of the memory, or no bytes; -EACCES if the memory has no
 * SNT_ACCESS_WINDOW, or is not for writing; or as snt_qp_post_send().
 */
SNT_API int snt_mw_bind(struct snt_qp *qp, struct snt_mw *mw,
			const struct snt_sge *range, unsigned access, uint64_t wr_id,
			unsigned flags);

/**
 * snt_mw_token - get the token that the peer needs to use the latest binding
 *
 * Returns: 0; -ENOENT if it was never bound.
 */
SNT_API int snt_mw_token(const struct snt_mw *mw, struct snt_token *token_out);

/**
 * snt_mw_invalidate - revoke a window's access
 * @flags: SNT_SEND_SIGNALED, SNT_SEND_FENCE
 *
 * The completion's opcode is SNT_OP_INVALIDATE. From then on the key is invalid.
 *
 * Returns: 0; -EINVAL as snt_mw_bind(); -ENOENT if it was never bound; or as
 * snt_qp_post_send().
 */
SNT_API int snt_mw_invalidate(struct snt_qp *qp, struct snt_mw *mw, uint64_t wr_id,
			      unsigned flags);

/**
 * snt_mw_send_inv - send a message that invalidates a window of the peer
 * @window: the window's token, as received from the peer
 *
 * The receive's completion has SNT_WC_WITH_INV, and the key in `imm`.
 *
 * Returns: 0; -EINVAL for another kind of QP; -EOPNOTSUPP if the device, which the text
 * names, does not support it; or as snt_qp_post_send().
 */
SNT_API int snt_mw_send_inv(struct snt_qp *qp, const struct snt_sge *sge,
			    unsigned sge_count, const struct snt_token *window,
			    uint64_t wr_id, unsigned flags);

/**
 * snt_op_bind, snt_op_invalidate, snt_op_send_inv - the calls above as ops
 *
 * Cancel: as snt_op_post(), by SNT_CANCEL_DETACH or SNT_CANCEL_ABORT.
 * Returns: as the calls above; and as snt_op_post().
 */
SNT_API int snt_op_bind(struct snt_qp *qp, struct snt_op *op, struct snt_mw *mw,
			const struct snt_sge *range, unsigned access, unsigned flags);
SNT_API int snt_op_invalidate(struct snt_qp *qp, struct snt_op *op, struct snt_mw *mw,
			      unsigned flags);
SNT_API int snt_op_send_inv(struct snt_qp *qp, struct snt_op *op,
			    const struct snt_sge *sge, unsigned sge_count,
			    const struct snt_token *window, unsigned flags);

#ifdef __cplusplus
}
#endif

#endif
