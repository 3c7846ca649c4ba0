/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_LANE_H
#define SNT_VQP_LANE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct snt_qp;

/*
 * A lane: one physical QP. Fragments are first built into its chain, then posted as one
 * list of which only the last is signalled. A FIFO of runs maps the fragments in flight
 * to their WRs; a CQE with sequence number s retires everything up to s.
 *
 * Physical wr_ids are a sequence number (high bits, so that it wraps without a carry)
 * and a tag (low bits). The tag holds lane, generation and kind, so that a stray CQE is
 * recognised by one comparison.
 */

static inline uint64_t snt__wr_id(uint32_t tag, uint32_t sequence)
{
	return (uint64_t)sequence << 32 | tag;
}

static inline uint32_t snt__wr_id_tag(uint64_t wr_id)
{
	return (uint32_t)wr_id;
}

static inline uint32_t snt__wr_id_sequence(uint64_t wr_id)
{
	return wr_id >> 32;
}

enum snt__tag {
	SNT__TAG_RECV = 1u << 31,
	SNT__TAG_MARKER = 1u << 30, /* ends a queue when the QP is closed */
	SNT__TAG_ASKED = 1u << 29,  /* a send of the library's own, see passthrough.h */
};

/* A chain is posted when it is this long. */
#define SNT__CHAIN_MAX 16

/* DQPLB: an arrival that is too far ahead for the window. */
struct snt__early_arrival {
	uint32_t imm, length;
};

/* Consecutive fragments of one WR on a lane. */
struct snt__run {
	uint32_t slot;	   /* position in the send ring */
	uint32_t sequence; /* DQPLB's, of the first of them, else 0 */
	uint32_t end;	   /* the lane's sequence number after the last of them */
	uint64_t bytes;
};

enum snt__queue {
	SNT__QUEUE_SEND = 0,
	SNT__QUEUE_RECV = 1,
};

/* Why a lane or a QP ended: cause.h. */
struct snt__cause {
	uint8_t what; /* enum snt_cause; the rest is 0 without one */
	uint8_t status;
	uint8_t lane;
	uint32_t vendor_err; /* or the errno of a refused post; 0 if it was a chain */
};

struct snt__lane {
	struct ibv_qp *qp;
	struct snt_qp *owner;
	struct snt__lane
		*after; /* whose turn comes next; itself, if it never took any */
	struct ibv_send_wr *chain; /* each linked to the next, with its own SGEs */
	struct snt__run *run;	   /* a ring, from run_head to run_tail */
	uint32_t run_mask;
	uint32_t run_head;
	uint32_t run_tail;
	uint32_t depth;	  /* most fragments in flight */
	uint32_t limit;	  /* the same while it can be posted to, else 0 */
	uint32_t built;	  /* sequence number of the next fragment */
	uint32_t retired; /* of the oldest in flight */
	uint32_t chained; /* built and not yet posted */
	uint32_t tag;
	uint32_t remote_device;
	uint8_t device;
	uint8_t index;
	bool alive;
	bool is_data;
	bool used;	   /* has a counterpart at the peer */
	bool sequenced;	   /* a data lane of DQPLB */
	bool is_single;	   /* the only one of a QP that passes WRs on */
	bool passes;	   /* the same, until the lane fails or is closed; not with an
			    * SRQ */
	bool touched;	   /* on the QP's list of lanes with a chain to post */
	bool wants_marker; /* its marker was refused and is to be retried */
	bool wants_recv_marker; /* the same of its receives */
	/* Closing. A device may complete a marker that it had refused, so each is
	 * waited for once, however many come. */
	bool marked; /* the receive marker is in */
	bool ended;  /* everything is done */
	bool send_marker_due;
	bool recv_marker_due;
	bool awaits_imm; /* DQPLB: the next receive is a raw immediate */

	/* Receives: DQPLB posts its own, on other lanes they are the program's. */
	uint32_t recv_posted;
	uint32_t recv_retired;
	uint32_t refill_at;		  /* DQPLB: once so many have been retired */
	uint32_t imm_sequence;		  /* of the fragment that announced it */
	struct snt__cause cause;	  /* the first error that was not a flush */
	struct snt__early_arrival *stash; /* a ring as large as that of runs */
	uint32_t stash_head;
	uint32_t stash_tail;

	uint32_t psn;
	uint32_t flow_label;
	uint32_t send_cq_index; /* where its room is reserved */
	uint32_t recv_cq_index;

	uint64_t fragments, bytes, doorbells, completions, errors;

	/* balance.c */
	uint64_t bytes_done;
	uint64_t spent;
	uint64_t price;	     /* of a byte */
	uint64_t time;	     /* that it took for its volume, in ns, of late */
	uint64_t volume;     /* 0: nothing known yet */
	uint64_t busy_since; /* or since the last completion */
	uint32_t picked;     /* when it was last, by the QP's count */
	uint32_t sequence_last;
	uint32_t weight;
};

_Static_assert(sizeof(void *) != 8 || sizeof(struct snt__lane) == 256,
	       "a power of two, since lanes are found by index");

/* As in completions, in 8 bits; a status unknown to verbs is not success. */
static inline uint8_t snt__status_of(const struct ibv_wc *wc)
{
	return wc->status <= UINT8_MAX ? wc->status : IBV_WC_GENERAL_ERR;
}

static inline uint32_t snt__lane_under_way(const struct snt__lane *lane)
{
	return lane->built - lane->retired;
}

/* Is this sequence number in flight? */
static inline bool snt__lane_has(const struct snt__lane *lane, uint32_t sequence)
{
	return sequence - lane->retired < snt__lane_under_way(lane);
}

static inline bool snt__lane_has_room(const struct snt__lane *lane, uint32_t count)
{
	return snt__lane_under_way(lane) + count <= lane->limit;
}

/* Makes a run of the fragments before `end` that have none yet. */
static inline void snt__lane_add_run(struct snt__lane *lane, uint32_t slot,
				     uint32_t end, uint32_t sequence, uint64_t bytes)
{
	lane->run[lane->run_tail++ & lane->run_mask] =
		(struct snt__run){ slot, sequence, end, bytes };
	lane->bytes += bytes;
}

#endif
