/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_FAILOVER_H
#define SENNIT_FAILOVER_H

#include <stddef.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/qp.h>

/*
 * Failover of QPs with SNT_QP_FAILOVER: what qp.h promises about them needs the two ends to
 * talk to each other beside their lanes. They do so by receipts, which the program carries
 * over a channel of its own, such as a TCP connection:
 *
 *	char receipt[SNT_RECEIPT_PACKED_MAX];
 *
 *	if (wc.opcode == SNT_OP_RECEIPT) {
 *		length = snt_qp_receipt(qp, receipt, sizeof(receipt));
 *		... send it to the peer ...
 *	}
 *	... when a receipt has come from the peer ...
 *	ret = snt_qp_resume(qp, receipt, length);
 *
 * That is all: each completion SNT_OP_RECEIPT says that this end's state has changed. A
 * receipt is an end's whole state, so that the newest is all that the peer needs; older ones
 * may be lost, come twice or come late. The channel must deliver the newest in the end: on
 * one that loses messages, repeat it while snt_qp_info.state is SNT_QP_SUSPENDED. After
 * SNT_OP_CLOSED an end can say nothing more: deliver the last receipt before, or the peer,
 * if it is suspended, waits until its program closes it.
 *
 * What happens: an end whose lane fails stops all its lanes and says so; the other stops as
 * well. When an end's devices have released everything, it makes new physical QPs, destroys
 * the old ones, and tells what it has received and which lanes it offers. When it knows the
 * same of its peer it sends again what is not proven to have arrived, over the lanes that
 * both ends offered. A failure meanwhile is one more round of this.
 *
 * Lanes. A lane that failed (by a retry that ran out, a device that refused a post, or one
 * that made no QP) is left out until the program calls snt_qp_suspend(), which tries all
 * lanes again. Ends that have no lane in common wait for that.
 *
 * Receipts are not trusted: every field is checked. One that cannot be true breaks the QP,
 * and a peer that lies in one can only lie about what it received itself.
 *
 * Thread: loop, or the owner of a CQ without one, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* Maximum size of a receipt. */
#define SNT_RECEIPT_PACKED_MAX (64 + 8 * SNT_LANES_MAX)

/**
 * snt_qp_suspend - stop all lanes, and begin again with all that work
 *
 * For lanes that were left out, or before a device is taken out of service. The peer hears
 * of it by the receipt that this makes due. While the QP is suspended already, all its lanes
 * are offered again. WRs are accepted meanwhile.
 *
 * Returns: 0;
 *   -EOPNOTSUPP  one end has not asked for failover
 *   -ENOTCONN    not connected
 *   -ESHUTDOWN   broken, closing or closed
 *   -EPROTO      the peer's last receipt cannot be true; the QP is broken
 */
SNT_API int snt_qp_suspend(struct snt_qp *qp);

/**
 * snt_qp_receipt - get this end's state, as bytes for the peer
 *
 * Makes and destroys physical QPs when the devices have released the old ones: no other
 * call of a connected QP does.
 *
 * Returns: the number of bytes; -EOPNOTSUPP or -ENOTCONN as snt_qp_suspend(); -ENOSPC if
 * size is too small (SNT_RECEIPT_PACKED_MAX always suffices); -EPROTO as snt_qp_resume();
 * or the errno of a device that did not destroy a QP, after which the call is to be repeated:
 * until it succeeds, nothing is sent again.
 */
SNT_API ssize_t snt_qp_receipt(struct snt_qp *qp, void *buffer, size_t size);

/**
 * snt_qp_resume - take a receipt of the peer
 * @size: exactly its size
 *
 * Any receipt may be given at any time, also one that was given before or is old: it then
 * changes nothing.
 *
 * Returns: 0; -EOPNOTSUPP or -ENOTCONN as snt_qp_suspend(); or
 *   -EPROTONOSUPPORT  a receipt of another version; nothing was changed
 *   -EBADMSG     not a receipt; nothing was changed
 *   -EINVAL      a receipt of another QP or of an earlier connection; nothing was changed
 *   -EPROTO      it cannot be true; the QP is broken
 */
SNT_API int snt_qp_resume(struct snt_qp *qp, const void *receipt, size_t size);

#ifdef __cplusplus
}
#endif

#endif
