/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SRQ_H
#define SNT_VQP_SRQ_H

#include <infiniband/verbs.h>
#include <sennit/srq.h>

#include "util/list.h"

/*
 * A shared receive queue. The device knows its receives by the number of their slot and
 * a tag of the queue's own (lane.h): a failed completion defines nothing but the wr_id,
 * and no lane has the same tag.
 */

struct snt_qp;
struct snt_qp_opts;
struct snt__physical;

struct snt__srq_slot {
	uint64_t wr_id;
	struct snt__srq_slot *next; /* if it is free */
	bool used;
};

struct snt_srq {
	struct ibv_srq *srq;
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt__srq_slot *slot, *free;
	uint32_t tag;
	uint32_t cq_index; /* where room for all of them is reserved */
	uint32_t depth;
	uint32_t sge_max;
	uint32_t used;
	uint32_t qp_count;
	uint8_t device;
	bool failed; /* the device refused a receive although it had room */
	struct snt__link all;
	/* Of src/loop: ends a receive that is left when it is destroyed. */
	void (*abandon)(uint64_t wr_id);
};

static inline struct snt_cq *snt__srq_cq(const struct snt_srq *srq)
{
	return srq->cq;
}

static inline void snt__srq_on_abandoned(struct snt_srq *srq,
					 void (*abandon)(uint64_t wr_id))
{
	srq->abandon = abandon;
}

/* For ops as well. */
int snt__srq_post_recv(struct snt_srq *srq, const struct snt_recv_wr *wr,
		       unsigned count);

/* Checks a QP's options for use with an SRQ and sets those that follow from it; before
 * defaults are set. */
int snt__srq_settle(const struct snt_ctx *ctx, struct snt_qp_opts *opts);

/* A completion: true if it belongs to a receive of this SRQ, whose slot is then
 * free. */
bool snt__srq_take(struct snt_srq *srq, uint64_t physical_id, uint64_t *wr_id_out);

/* The same for a QP that is gone, for all SRQs that report to this CQ. */
bool snt__srq_take_late(const struct snt_cq *cq, const struct ibv_wc *physical,
			struct snt_wc *wc);

/* NULL: none of ours. */
struct snt_srq *snt__srq_find(const struct snt_cq *cq, const struct ibv_srq *srq);

/*
 * Closing. Receives end without a marker, since they are not the QP's. But once the
 * send queue's marker has come, and the CQ of receives was found empty after that, no
 * more will come.
 */
void snt__srq_drain(struct snt_qp *qp);
void snt__srq_drained(struct snt__physical *physical);
/* The QP ends without it. */
void snt__srq_leave(struct snt_qp *qp);

#endif
