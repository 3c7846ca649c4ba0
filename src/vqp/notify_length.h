/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_NOTIFY_LENGTH_H
#define SNT_VQP_NOTIFY_LENGTH_H

#include "vqp/qp.h"

/* Lengths of notifications: creating mailboxes (mailbox.h), and writing to the peer's. */

/* Creates our mailbox, if it was asked for. */
int snt__mailbox_open(struct snt_qp *qp);

/* Frees both arrays. After a failure it may be repeated. */
int snt__mailbox_close(struct snt_qp *qp);

void snt__mailbox_describe(const struct snt_qp *qp, struct snt_card *card);

/* Stores the peer's mailbox; creates what is needed to write to it. */
int snt__mailbox_agree(struct snt_qp *qp, const struct snt_card *peer);

/* Puts the length into the QP's next notification, of which this is the write on the
 * first notify lane. */
void snt__mailbox_tell(const struct snt_qp *qp, uint64_t length,
		       struct ibv_send_wr *wr);

#endif
