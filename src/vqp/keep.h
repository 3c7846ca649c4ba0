/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_KEEP_H
#define SNT_VQP_KEEP_H

#include <string.h>

#include "vqp/failover_state.h"
#include "vqp/phase.h"
#include "vqp/ring.h"

/*
 * What a slot keeps of a WR that was sent at once, so that it can be cut again (settle.h).
 * WRs that waited in the ring have all of it. Nothing is kept without failover.
 */

static inline void snt__keep_keys(const struct snt_qp *qp, uint32_t position,
				  const struct snt_token *token)
{
	uint32_t *key = &qp->rkey[(position & qp->mask) * qp->key_stride];

	_Static_assert(SNT_DEVICES_MAX % 4 == 0, "four at once");
	for (uint32_t i = 0; i < qp->key_stride; i += 4)
		memcpy(&key[i], &token->key[i], 4 * sizeof(*key));
}

/* One SGE. */
static inline void snt__keep_wr(struct snt_qp *qp, struct snt__slot *slot,
				const struct snt_send_wr *wr)
{
	if (__builtin_expect(!qp->phase, 1))
		return;
	slot->addr = (uintptr_t)wr->sge->addr;
	slot->mem = wr->sge->mem;
	slot->remote_addr = wr->remote_addr;
	slot->imm = wr->imm;
	snt__keep_keys(qp, qp->tail, wr->remote);
}

/* A list of SGEs. */
static inline void snt__keep_list(struct snt_qp *qp, struct snt__slot *slot,
				  const struct snt_send_wr *wr)
{
	uint32_t at = qp->tail & qp->mask;

	if (__builtin_expect(!qp->phase, 1))
		return;
	slot->mem = NULL;
	slot->remote_addr = wr->remote_addr;
	for (unsigned i = 0; i < wr->sge_count; i++)
		qp->sge[at * qp->send_sge_max + i] = wr->sge[i];
	qp->sges[at] = (struct snt__sges){ .count = wr->sge_count };
	snt__keep_keys(qp, qp->tail, wr->remote);
}

/* A notification is sent, with the number that comes next. */
static inline void snt__number_notification(struct snt_qp *qp, uint32_t position)
{
	if (__builtin_expect(qp->phase != SNT__PHASE_NONE, 0))
		qp->failover->notify_at[qp->notified & qp->mask] = position;
	qp->notified++;
}

/* The same for a SEND. */
static inline void snt__number_send(struct snt_qp *qp, uint32_t position)
{
	if (__builtin_expect(qp->phase != SNT__PHASE_NONE, 0))
		qp->failover->send_at[qp->failover->sends_sent++ & qp->mask] = position;
}

#endif
