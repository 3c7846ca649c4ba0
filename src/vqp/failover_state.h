/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_FAILOVER_STATE_H
#define SNT_VQP_FAILOVER_STATE_H

#include "vqp/qp.h"
#include "vqp/receipt.h"
#include "vqp/ring.h"

/*
 * Failover: what a QP keeps between the lives of its lanes. Its parts: what a slot keeps
 * (keep.h), the fence (fence.h), the QPs of a life (life.h), what is proven and what is sent
 * again (settle.h), receipts (receipt.h), and what follows from what is heard (failover.c).
 */

/* How far the fence of a lane is: each step once the one before has worked. */
enum snt__fence_step {
	SNT__FENCE_NONE,
	SNT__FENCE_RECV_MARKED,
	SNT__FENCE_IN_ERROR,
	SNT__FENCE_MARKED,
};

struct snt__lane_life {
	struct ibv_qp *old; /* of the life before, to be destroyed */
	uint32_t lives;
	struct snt__cause cause; /* of the end of its last life */
	bool paired;		 /* has a counterpart at the peer */
	bool failed;		 /* left out, until the program suspends the QP */
	bool offered;		 /* its QP is for the next life, or of this one */
	bool frozen;		 /* has had an error: the rest of its FIFO is settled */
	bool send_due, recv_due; /* markers to be polled */
	uint8_t step;		 /* enum snt__fence_step */
};

struct snt__failover {
	uint32_t life;	     /* that is going on, or was the last */
	uint32_t offer_life; /* that the lanes' QPs were made for */
	uint32_t due;	     /* markers, of all lanes */
	bool notice;	     /* SNT_OP_RECEIPT is to be reported */
	bool new_offer;	     /* the program wants failed lanes to be tried again */
	bool heard;	     /* the peer's receipt below is there */
	bool has_failed_send;
	uint32_t failed_send; /* the last SEND that a receive of ours failed with */
	/* WRs before this position have been cut, so that none of them can be taken back. */
	uint32_t cut_end;
	/* SENDs and notifications are numbered as they are sent. The receiver's count is
	 * the position of its first receive that is not taken. */
	uint32_t sends_sent;
	uint32_t atomic_at; /* the position of the last atomic that was sent */
	uint32_t *send_at;  /* by number: the position of the WR */
	uint32_t *notify_at;
	const struct snt_mem **recv_mem; /* of data receives, recv_sge_max for each */
	struct snt__receipt peer;	 /* the newest that came with an offer */
	struct snt_card card;		 /* the peer's */
	uint64_t generation;		 /* the peer's */
	uint64_t stopped_ns;
	/* For snt_qp_query(). */
	uint32_t suspends;
	uint64_t resent_fragments, resent_bytes, indeterminate, suspended_ns;
	struct snt__lane_life lane[SNT_LANES_MAX];
};

static inline struct snt__lane_life *snt__lane_life(const struct snt__lane *lane)
{
	return &lane->owner->failover->lane[lane->index];
}

static inline bool snt__failover_has_notice(const struct snt_qp *qp)
{
	return qp->failover->notice;
}

/* Memory of a QP that was asked for failover. 0 or -ENOMEM. */
int snt__failover_create(struct snt_qp *qp);
void snt__failover_free(struct snt_qp *qp);
/* The QP begins unconnected. */
void snt__failover_reset(struct snt_qp *qp);

/* Connected: failover is on if both ends asked for it. */
void snt__failover_agree(struct snt_qp *qp, const struct snt_card *peer);

#endif
