/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_QP_H
#define SNT_VQP_QP_H

#include <sennit/card.h>
#include <sennit/qp.h>

#include "dev/ctx.h"
#include "dev/mem.h"
#include "vqp/lane.h"
#include "vqp/mailbox.h"
#include "vqp/ready.h"
#include "vqp/refused_wr.h"

/*
 * The send ring. Accepted WRs are added at tail, cut into fragments in order by
 * next, and reported in order from head. `ordered` runs between: all before it is
 * acknowledged, and notified where the scheme has notifications of its own.
 * Positions are counters that wrap; a slot is position & mask.
 */

/* One accepted WR, on one cache line. */
struct snt__slot {
	uint64_t wr_id;
	uint64_t length;
	uint64_t sent; /* bytes that have been cut into fragments */
	uint64_t remote_addr;
	uint64_t addr;		   /* of the only SGE */
	const struct snt_mem *mem; /* of the only SGE; NULL: see the ring's sge */
	uint32_t pending; /* physical WRs to retire, also those not yet built */
	uint32_t imm;
	uint32_t vendor_err;
	uint8_t opcode;
	uint8_t flags;
	uint8_t status;
	uint8_t lane; /* of the fragment that failed */
};

_Static_assert(sizeof(struct snt__slot) == 64, "one cache line");

/* Beyond the public flags. */
#define SNT__SLOT_COPIED  0x80 /* the payload lies in the ring's inline buffer */
#define SNT__SLOT_NOTIFY  0x40 /* SPRAY: the notification is yet to be sent */
#define SNT__SLOT_VOID	  0x20 /* taken back: neither sent nor reported */
#define SNT__SLOT_EXPRESS 0x10 /* SPRAY: its data, if any, go with the notification */

struct snt__atomic {
	uint64_t compare_add;
	uint64_t swap;
};

/* An SGE list, and how far it has been cut into fragments. */
struct snt__sges {
	uint32_t count;
	uint32_t current;
	uint64_t offset; /* into the current SGE */
};

/* A receive of the program. */
struct snt__recv {
	uint64_t wr_id;
	uint64_t length;
	uint32_t imm;
	uint32_t vendor_err;
	uint32_t pending; /* completions to come; not 0 before it is posted */
	uint8_t status;
	uint8_t flags;
	uint8_t lane;
	uint8_t sge_count;
};

/* Receives of one class: posted at tail, reported from head. */
struct snt__recv_ring {
	struct snt__recv *recv;
	struct ibv_sge *sge; /* recv_sge_max for each */
	uint32_t mask;
	uint32_t depth;
	uint32_t head;
	uint32_t done; /* of DQPLB notifications: the next to be matched */
	uint32_t tail;
	int32_t refusal; /* why nothing can be posted, or 0 */
};

/* The program's wr_ids of one queue of a pass-through lane, a ring by sequence number. */
struct snt__ids {
	uint64_t *id;
	uint32_t mask;
};

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
	uint32_t lane_limit;   /* the smallest of the data lanes' */
	uint32_t lane_count;
	uint32_t lanes_alive;	/* data lanes */
	uint32_t picks;		/* of lanes, by time */
	struct snt__ids ids[2]; /* pass-through, by enum snt__queue */
	uint32_t asked_end;	/* pass-through: position after the last WR that was
				 * asked for */
	bool lanes_ended;	/* some are killed or closed, and have markers */
	uint64_t fragment_size;
	uint32_t message_max; /* bytes that go out in one piece */
	uint64_t simple_max;  /* most bytes of a WR on the fast path; 0: none may take
			       * it */
	uint32_t *rkey;	      /* remote_count for each slot */
	uint32_t remote_count;
	uint8_t notify_count; /* SPRAY: notify lanes in use, of those in extra */
	uint8_t express_turn; /* the notify lane that takes the next data */
	uint8_t message_lane; /* takes SENDs */
	uint8_t scheme;
	int16_t refusal; /* why nothing can be posted, or 0 */
	bool pass_through;
	bool send_served; /* served by the loop's ops: programs do not post directly */
	bool recv_served;
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
	/* Of src/loop: receives that were posted before it was connected, and the
	 * function that ends them if it never is. */
	struct snt_op *early;
	void (*abandon)(struct snt_qp *qp);
	/* Of src/conn: called when the QP has broken, unless it is being closed. */
	void (*broke)(struct snt_qp *qp);
	void *broke_arg;
	void *memory;			       /* one block for all rings */
	struct snt__deferred_release deferred; /* used if the QP could not be created */
};

/* post.c, recv.c, connect.c: the public calls, for ops as well. */
int snt__qp_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count);
int snt__qp_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count);
int snt__qp_close(struct snt_qp *qp, uint64_t wr_id);

/* -EINVAL if only ops may be posted to this QP. */
int snt__qp_wants_ops(const struct snt_qp *qp);

/* The QP is about to end, or to begin again, without having been connected. */
static inline void snt__qp_abandon(struct snt_qp *qp)
{
	if (qp->abandon)
		qp->abandon(qp);
}

/* It can be used for nothing but to be closed. */
static inline bool snt__qp_is_broken(const struct snt_qp *qp)
{
	return qp->connected && !qp->closing && (qp->broken || !qp->lanes_alive);
}

static inline void snt__qp_tell_broken(struct snt_qp *qp)
{
	if (qp->broke && snt__qp_is_broken(qp))
		qp->broke(qp);
}

static inline struct snt__slot *snt__qp_slot(struct snt_qp *qp, uint32_t position)
{
	return &qp->slot[position & qp->mask];
}

/* Stores what is always kept of a WR until it is reported. */
static inline struct snt__slot *snt__qp_take_slot(struct snt_qp *qp,
						  const struct snt_send_wr *wr,
						  uint64_t length, uint32_t fragments)
{
	struct snt__slot *slot = snt__qp_slot(qp, qp->tail);

	slot->wr_id = wr->wr_id;
	slot->length = length;
	slot->pending = fragments;
	slot->opcode = wr->opcode;
	slot->flags = wr->flags;
	slot->status = SNT_WC_SUCCESS;
	if (wr->opcode == SNT_OP_READ)
		qp->read_end = qp->tail + 1;
	return slot;
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

/* Is anything in flight that is not of DQPLB's sequence? */
static inline bool snt__qp_has_plain(const struct snt_qp *qp)
{
	return qp->under_way != qp->sequenced_under_way;
}

/* Is position a before b? */
static inline bool snt__before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Adds the cause to a flushed completion: what ended its lane or, if that is not known,
 * the QP. Inline, since a call would cost where successes are reported. */
static inline void snt__qp_tell_cause(const struct snt_qp *qp, struct snt_wc *wc)
{
	const struct snt__cause *cause = &qp->lane[wc->lane].cause;

	if (!cause->what)
		cause = &qp->cause;
	if (!cause->what)
		return;
	wc->cause = cause->status;
	wc->vendor_err = cause->vendor_err;
	wc->lane = cause->lane;
	wc->device = qp->lane[cause->lane].device;
}

/* reset.c: refuses all posts from now on, with this errno; 0: no longer. */
void snt__qp_refuse(struct snt_qp *qp, int why);

/* reset.c: sets the error text of posts that are refused whatever the WR is. Each
 * returns the errno: `why`, -EAGAIN for a full queue of sends or of receives, -EINVAL
 * for an empty list. */
int snt__qp_refusal(const struct snt_qp *qp, int why);
int snt__qp_full(const struct snt_qp *qp);
int snt__qp_recv_full(const struct snt_qp *qp);
int snt__qp_no_wrs(const struct snt_qp *qp);

/* send.c: cuts waiting WRs as far as they can be sent, and adds the fragments to the
 * chains of their lanes. */
void snt__qp_send_waiting(struct snt_qp *qp);

/* send.c: posts all chains. */
void snt__qp_post_chains(struct snt_qp *qp);

/* send.c: both. */
void snt__qp_dispatch(struct snt_qp *qp);

/* balance.c: the lanes' shares. */
int snt__balance_check(const struct snt_qp *qp, const struct snt_qp_opts *opts);
void snt__balance_set(struct snt_qp *qp);
struct snt__lane *snt__balance_pick(struct snt_qp *qp, uint32_t count, uint64_t size);
void snt__balance_learn(struct snt_qp *qp, struct snt__lane *lane, uint64_t bytes);

static inline void snt__qp_count_marker(struct snt_qp *qp, bool *due)
{
	qp->markers -= *due;
	*due = false;
}

/* complete.c: one physical completion of one of its lanes. False: not ours. */
bool snt__qp_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc);
/*
 * CQEs of one device, the first of which is this lane's: as many as are successes of sends
 * of one QP. Returns how many were taken. 0, with nothing done, if the first is to go
 * through snt__qp_take().
 */
struct snt__route;
int snt__qp_take_sends(struct snt__lane *lane, const struct snt__route *route,
		       unsigned device, const struct ibv_wc *wc, int count);

/* complete.c: a WR fails; its first status is kept. */
void snt__qp_fail_slot(struct snt_qp *qp, uint32_t position, unsigned status,
		       uint32_t vendor_err, unsigned lane);

/* complete.c: stops the QP; everything in flight is flushed. */
void snt__qp_break(struct snt_qp *qp);

/* complete.c: the same, because of something that the peer sent to this lane. */
__attribute__((cold)) void snt__qp_break_for_peer(struct snt__lane *lane);

/* complete.c: reports, in order, what has finished. Returns how many. */
int snt__qp_report_sends(struct snt_qp *qp, struct snt_wc *wc, int max);
int snt__qp_report_recvs(struct snt_qp *qp, struct snt_wc *wc, int max);

/* complete.c: is there more to report? */
bool snt__qp_has_sends(const struct snt_qp *qp);
bool snt__qp_has_recvs(const struct snt_qp *qp);

/* recv.c */
void snt__recv_take(struct snt_qp *qp, struct snt__lane *lane, const struct ibv_wc *wc);
void snt__recv_flush(struct snt_qp *qp);
/* After lanes have died, or the QP as a whole. */
void snt__recv_update(struct snt_qp *qp);
void snt__recv_end(struct snt_qp *qp, struct snt__lane *lane);
int snt__recv_post_all(struct snt_qp *qp);

/* dqplb.c */
struct snt__reorder;
uint32_t snt__dqplb_window(const struct snt_qp *qp);
size_t snt__dqplb_size(uint32_t window);
/* Resets both directions; both ends begin with the same number. */
void snt__dqplb_init(struct snt_qp *qp, uint32_t first);
void snt__dqplb_take(struct snt_qp *qp, struct snt__lane *lane,
		     const struct ibv_wc *wc);
/*
 * CQEs of one device, the first of which is this lane's: as many as are in order and of
 * one QP, of which those that end a message are reported at once. Returns how many were
 * taken. 0, with nothing done, if the first is to go through snt__qp_take().
 */
int snt__dqplb_take_run(struct snt__lane *lane, const struct snt__route *route,
			const struct ibv_wc *physical, int count, struct snt_wc *wc,
			int *reported);
void snt__dqplb_match(struct snt_qp *qp);
void snt__dqplb_break(struct snt_qp *qp);
int snt__dqplb_fill(struct snt_qp *qp, struct snt__lane *lane);
/* Is there room for so many more? */
bool snt__dqplb_window_open(struct snt_qp *qp, uint32_t count);

#endif
