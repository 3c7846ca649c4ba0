/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_VIEW_H
#define SNT_VQP_VIEW_H

#include "vqp/cq.h"
#include "vqp/passthrough.h"
#include "vqp/qp.h"

/*
 * What the layers above ask of a virtual QP and its CQs. They read no fields
 * (tests/check/layers.py), except for what a CQ keeps for them: cq->notify.
 */

static inline struct snt_loop *snt__cq_loop(const struct snt_cq *cq)
{
	return cq->loop;
}

/* Is it polled by its loop, for ops? */
static inline bool snt__cq_has_ops(const struct snt_cq *cq)
{
	return cq->notify.served;
}

/* Is there something that can be polled without an event? */
static inline bool snt__cq_has_ready(const struct snt_cq *cq)
{
	return cq->front.ready != NULL;
}

static inline struct snt_cq *snt__qp_cq(const struct snt_qp *qp, enum snt__queue queue)
{
	return queue == SNT__QUEUE_SEND ? qp->cq : qp->recv_cq;
}

static inline bool snt__qp_is_connected(const struct snt_qp *qp)
{
	return qp->connected;
}

/* Has everything that is in flight been told to end? */
static inline bool snt__qp_is_ending(const struct snt_qp *qp)
{
	return qp->broken || qp->closing || qp->refusal;
}

static inline bool snt__qp_is_pass_through(const struct snt_qp *qp)
{
	return qp->pass_through;
}

static inline bool snt__qp_is_dqplb(const struct snt_qp *qp)
{
	return !qp->pass_through && qp->scheme == SNT_SCHEME_DQPLB;
}

static inline bool snt__qp_is_spray(const struct snt_qp *qp)
{
	return !qp->pass_through && qp->scheme != SNT_SCHEME_DQPLB;
}

/* The position of the next WR: for snt__qp_cancel_waiting(). */
static inline uint32_t snt__qp_next_position(const struct snt_qp *qp)
{
	return qp->tail;
}

/* Has everything that was posted been acknowledged? Asks the peer, if need be. */
static inline bool snt__qp_is_drained(struct snt_qp *qp)
{
	if (!qp->pass_through)
		return qp->next == qp->tail && !qp->under_way && !qp->notifies_due;
	snt__passthrough_ask(qp);
	return snt__passthrough_is_drained(qp);
}

/* Data lanes in use, and the longest fragment. */
static inline uint32_t snt__qp_data_lanes(const struct snt_qp *qp)
{
	return qp->data_lanes;
}

static inline uint64_t snt__qp_fragment_size(const struct snt_qp *qp)
{
	return qp->fragment_size;
}

/* Bytes that are taken at the call where that saves something. */
static inline uint32_t snt__qp_worth_inline(const struct snt_qp *qp)
{
	return qp->pass_through ? qp->inline_max : 0;
}

/* How many sends it takes. */
static inline uint32_t snt__qp_send_room(const struct snt_qp *qp)
{
	return qp->pass_through ? qp->lane_depth : qp->depth;
}

/* The receives that a peer can rely on, whatever lanes its messages take. */
static inline uint32_t snt__qp_recv_room(const struct snt_qp *qp)
{
	uint32_t lane = qp->lane_depth - qp->recv_batch + 1;

	return snt__qp_is_dqplb(qp) && lane < qp->recv_depth ? lane : qp->recv_depth;
}

/* The physical QP of a QP of one lane, and its device. */
static inline struct ibv_qp *snt__qp_physical(const struct snt_qp *qp)
{
	return qp->lane[0].qp;
}

static inline struct snt_device *snt__qp_device(const struct snt_qp *qp)
{
	return qp->ctx->device[qp->lane[0].device];
}

/* The options, with nothing zero that has a default. */
static inline const struct snt_qp_opts *snt__qp_opts(const struct snt_qp *qp)
{
	return &qp->opts;
}

/* Of a pass-through QP with receives of its own: has a message arrived? */
static inline bool snt__qp_has_received(const struct snt_qp *qp)
{
	return qp->lane[0].recv_retired != 0;
}

/* The loop's list of receives that are posted before the QP is connected, newest first;
 * `abandon` ends them if it never is. */
static inline struct snt_op **snt__qp_early(struct snt_qp *qp,
					    void (*abandon)(struct snt_op *early))
{
	qp->abandon = abandon;
	return &qp->early;
}

/* Called when the QP has broken, unless it is being closed. */
static inline void snt__qp_on_broken(struct snt_qp *qp, void (*broke)(void *arg),
				     void *arg)
{
	qp->broke = broke;
	qp->broke_arg = arg;
}

#endif
