/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_SPREAD_H
#define SNT_VQP_SPREAD_H

#include <arpa/inet.h>

#include "vqp/build.h"
#include "vqp/chain.h"
#include "vqp/dqplb.h"
#include "vqp/ring.h"

/*
 * The fast path: all fragments of a WR with one SGE, at once, in turn over the lanes.
 * It goes lane by lane, so that each lane's state is loaded once and not for each
 * fragment.
 */

/* What the fragments of a WR have in common, and the first of them. */
struct snt__cut {
	uint64_t addr;
	uint64_t remote_addr;
	uint64_t length; /* of all */
	uint32_t count;
	const uint32_t *local_key;  /* by device */
	const uint32_t *remote_key; /* by remote device */
	uint32_t position;
	uint32_t sequence; /* DQPLB, of the first */
	uint32_t verb;
	uint32_t flags;
	struct ibv_send_wr *last; /* once it is built */
};

static inline uint32_t snt__fragment_count(const struct snt_qp *qp, uint64_t length)
{
	/* It is almost always one fragment, and a division costs more than all the
	 * rest. */
	if (length <= qp->fragment_size)
		return 1;
	return (length + qp->fragment_size - 1) / qp->fragment_size;
}

/* This lane's chain is to be posted before the call returns. */
static inline void snt__qp_touch(struct snt_qp *qp, struct snt__lane *lane)
{
	if (lane->touched)
		return;
	lane->touched = true;
	qp->touched[qp->touched_count++] = lane->index;
}

/* Fragments `first`, `first` + `step`, ... of the WR, `count` of them, each `size` bytes, from
 * `wr` on in the lane's chain. Returns the last. */
static inline __attribute__((always_inline)) struct ibv_send_wr *snt__lane_build_at(
	struct ibv_send_wr *wr, struct snt__lane *lane, const struct snt__cut *cut,
	uint64_t size, uint32_t first, uint32_t step, uint32_t count, bool sequenced)
{
	struct ibv_send_wr *end = wr + count;
	const snt__words stride = { step * size, 0 };
	const uint32_t verb = cut->verb, flags = cut->flags;
	snt__words local = snt__sge_words(cut->addr + first * size, size,
					  cut->local_key[lane->device]);
	snt__words remote = snt__remote_words(cut->remote_addr + first * size,
					      cut->remote_key[lane->remote_device]);
	uint32_t sequence = sequenced ? cut->sequence + first : 0;
	uint64_t wr_id = snt__wr_id(lane->tag, lane->built);

	lane->built += count;
	snt__lane_add_run(lane, cut->position, lane->built, sequence, count * size);
	do {
		wr->wr_id = wr_id;
		snt__build_words(wr,
				 snt__kind_words(1, verb, flags,
						 sequenced ? htonl(sequence &
								   SNT__IMM_SEQUENCE)
							   : 0),
				 local, remote);
		wr++;
		local += stride;
		remote += stride;
		sequence += step;
		wr_id += snt__wr_id(0, 1);
	} while (wr != end);
	return end - 1;
}

/* The same, appended to the chain, which has room. */
static inline __attribute__((always_inline)) void snt__lane_build(
	struct snt__lane *lane, const struct snt__cut *cut, uint64_t size,
	uint32_t first, uint32_t step, uint32_t count, bool sequenced)
{
	struct ibv_send_wr *wr = &lane->chain[lane->chained];

	snt__lane_build_at(wr, lane, cut, size, first, step, count, sequenced);
	lane->chained += count;
}

/* The lane so many turns later. */
static inline struct snt__lane *snt__lane_later(struct snt__lane *lane, uint32_t turns)
{
	for (; turns; turns--)
		lane = lane->after;
	return lane;
}

/* Do all lanes have room for their shares, and the last for `extra` more? */
static inline bool snt__spread_fits(const struct snt_qp *qp, uint32_t each,
				    uint32_t more, uint32_t extra)
{
	struct snt__lane *lane = qp->turn;
	uint32_t shares = each ? qp->in_turn : more;

	/* So little is in flight that it could all be on one lane. */
	if (__builtin_expect(qp->under_way + each + 1 + extra <= qp->lane_limit, 1))
		return true;
	for (uint32_t i = 0; i < shares; i++) {
		if (!snt__lane_has_room(lane, each + (i < more) + extra))
			return false;
		lane = lane->after;
	}
	return true;
}

/* The last fragment of a WR is mostly shorter than the rest. */
static inline void snt__lane_trim(struct snt__lane *lane, struct ibv_send_wr *last,
				  uint64_t excess)
{
	last->sg_list->length -= excess;
	lane->run[(lane->run_tail - 1) & lane->run_mask].bytes -= excess;
	lane->bytes -= excess;
}

/* The only fragment of a WR, in the same way as snt__spread(). */
static inline __attribute__((always_inline)) struct snt__lane *snt__spread_one(
	struct snt_qp *qp, struct snt__cut *cut, uint32_t extra, bool sequenced)
{
	struct snt__lane *lane = qp->turn;

	if (!snt__lane_has_room(lane, 1 + extra))
		return NULL;
	snt__qp_touch(qp, lane);
	if (__builtin_expect(lane->chained == SNT__CHAIN_MAX, 0))
		snt__lane_ring(lane);
	snt__lane_build(lane, cut, cut->length, 0, 0, 1, sequenced);
	cut->last = snt__lane_last(lane);
	qp->turn = lane->after;
	return lane;
}

/* Not inline, since most WRs are one fragment, and what is here would need registers there. */
struct snt__lane *snt__spread_many(struct snt_qp *qp, struct snt__cut *cut,
				   uint32_t extra, bool sequenced);

/*
 * All fragments of a WR. Returns the lane of the last one; NULL, with nothing done, if
 * there is no room for all of them in turn. A lane that dies meanwhile keeps its share,
 * which then comes back flushed.
 */
static inline __attribute__((always_inline)) struct snt__lane *snt__spread(
	struct snt_qp *qp, struct snt__cut *cut, uint32_t extra, bool sequenced)
{
	return __builtin_expect(cut->count == 1, 1)
		       ? snt__spread_one(qp, cut, extra, sequenced)
		       : snt__spread_many(qp, cut, extra, sequenced);
}

#endif
