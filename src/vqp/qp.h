/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_QP_H
#define SNT_VQP_QP_H

#include <sennit/card.h>
#include <sennit/qp.h>

#include "dev/ctx.h"
#include "dev/mem.h"
#include "vqp/lane.h"
#include "vqp/mailbox.h"
#include "vqp/passthrough_state.h"
#include "vqp/ready.h"
#include "vqp/receives.h"

/*
 * A virtual QP: what its parts need of one another. What each part is, its invariants and
 * its functions are in the part's own header: the send ring (ring.h), lanes (lane.h and
 * lane_set.h), receives (receives.h), notifications (spray.h), the order of DQPLB
 * (reorder.h), a single lane that passes WRs on (passthrough.h), its end (failure.h,
 * close.h).
 */

struct snt__slot;
struct snt__atomic;
struct snt__sges;
struct snt__reorder;
struct snt__failover;

struct snt_qp {
	struct snt__slot *slot;
	struct snt_ctx *ctx;
	struct snt__lane *lane;
	struct snt__lane *turn;	 /* the data lane that is next */
	struct snt__lane *extra; /* those behind the data lanes that were made */
	uint32_t mask;
	uint32_t depth;
	uint32_t head;
	uint32_t ordered;
	uint32_t next;
	uint32_t tail;
	uint32_t under_way;	      /* physical WRs, built and not retired */
	uint32_t sequenced_under_way; /* of these, those of DQPLB's sequence */
	uint32_t notifies_due; /* WRs before next whose notification is not yet sent */
	uint32_t notified;     /* SPRAY: notifications sent */
	uint32_t express_max;  /* SPRAY: bytes that go with a notification */
	uint32_t read_end;     /* position after the last READ */
	uint32_t data_lanes;   /* in use; may be fewer than were created */
	uint32_t in_turn;      /* data lanes that take turns: those alive, at least 1 */
	uint32_t lane_limit;   /* the smallest of those that take turns */
	uint32_t lane_count;
	uint32_t lanes_alive;	/* data lanes */
	uint32_t picks;		/* of lanes, by time */
	struct snt__ids ids[2]; /* pass-through, by enum snt__queue */
	uint32_t asked_end;	/* pass-through: position after the last WR that was
				 * asked for */
	bool lanes_ended; /* some were killed or closed: markers may be refused, and
				 * the end of the QP may have to be reported */
	uint64_t fragment_size;
	uint32_t message_max; /* bytes that go out in one piece */
	uint64_t simple_max;  /* most bytes of a WR on the fast path; 0: none may take
			       * it */
	uint32_t *rkey;	      /* key_stride for each slot */
	uint32_t remote_count;
	uint32_t key_stride;	       /* remote_count, or more where slots keep keys */
	struct snt__lane *atomic_lane; /* takes atomics */
	struct snt__lane *notifier[SNT_DEVICES_MAX]; /* SPRAY: notify lanes in use */
	uint8_t notify_count;
	uint8_t express_turn; /* the notify lane that takes the next data */
	uint8_t message_lane; /* takes SENDs */
	uint8_t scheme;
	int16_t refusal; /* why nothing can be posted, or 0 */
	bool pass_through;
	bool send_served; /* served by the loop's ops: programs do not post directly */
	bool recv_served;
	uint8_t phase;	   /* enum snt__phase, of failover */
	bool even;	   /* lanes take turns */
	bool by_time;	   /* lanes are chosen by their measured speed */
	bool tells_length; /* the peer has a mailbox */
	bool untidy;	   /* lanes could not be put back to where they were */
	bool connected;
	bool broken; /* no further fragment is sent */
	bool closing;
	bool all_ended; /* all lanes are ending */
	bool closed_reported;
	uint8_t touched_count;
	uint8_t touched[SNT_LANES_MAX]; /* lanes with a chain to post */

	/* Failures, which ordering points must not overtake. */
	uint32_t failed_count; /* WRs that failed and are not yet reported */
	uint32_t failed_first; /* position of the first of them */
	uint32_t poison;       /* ordering points before this position are flushed */
	bool poisoned;

	/* DQPLB, sending. */
	uint32_t sequence_next;
	uint32_t sequence_oldest; /* at least: not yet acknowledged */
	uint32_t window;	  /* ours */
	uint32_t peer_window;	  /* how far we may be ahead */

	struct snt__failover *failover; /* NULL: not asked for */
	struct snt__atomic *atomic;
	struct snt__sges *sges;
	struct snt_sge *sge; /* send_sge_max for each slot */
	uint8_t *inline_buffer;
	uint32_t inline_max;
	uint32_t send_sge_max;
	uint32_t recv_sge_max;

	struct snt__recv_ring data;
	struct snt__recv_ring notify;
	struct snt__reorder *reorder; /* DQPLB, receiving */
	uint32_t recv_batch;	      /* receives of a lane that are replaced at once */

	struct snt_cq *cq;
	struct snt_cq *recv_cq;
	struct snt__ready send_ready;
	struct snt__ready recv_ready;

	struct snt__link in_ctx; /* the context's list of QPs */
	/* The addresses of the peer's devices, for messages. */
	uint8_t remote_gid[SNT_DEVICES_MAX][16];
	uint32_t num;
	uint32_t lane_depth;
	uint32_t recv_depth;
	uint64_t close_wr_id;
	uint32_t markers; /* still to come before the QP has ended */
	uint64_t generation;
	uint32_t epoch; /* how often it was reset */
	uint32_t mtu;	/* agreed on */
	struct snt_qp_opts opts;
	struct snt__mailbox mailbox;
	struct snt__refused_wr doubt;
	struct snt__cause cause; /* of all lanes, the first */
	bool adopted;
	struct snt_srq *srq; /* takes its receives from there; NULL: has its own */
	bool draining;	     /* until the CQ of its receives is empty */
	struct snt_qp *draining_next;
	/* Of src/loop: a list of receives that were posted before it was connected, and
	 * the function that ends them if it never is. */
	struct snt_op *early;
	void (*abandon)(struct snt_op *early);
	/* Of src/conn: called when the QP has broken, unless it is being closed. */
	void (*broke)(void *arg);
	void *broke_arg;
	void *memory;			       /* one block for all rings */
	struct snt__deferred_release deferred; /* used if the QP could not be created */
};

/* The QP is about to end, or to begin again, without having been connected. */
static inline void snt__qp_abandon(struct snt_qp *qp)
{
	struct snt_op *early = qp->early;

	qp->early = NULL;
	if (early)
		qp->abandon(early);
}

/* The program's wr_id of a WR on a pass-through lane. */
static inline uint64_t snt__qp_id(const struct snt_qp *qp, enum snt__queue queue,
				  uint32_t sequence)
{
	return qp->ids[queue].id[sequence & qp->ids[queue].mask];
}

static inline void snt__qp_set_id(const struct snt_qp *qp, enum snt__queue queue,
				  uint32_t sequence, uint64_t wr_id)
{
	qp->ids[queue].id[sequence & qp->ids[queue].mask] = wr_id;
}

#endif
