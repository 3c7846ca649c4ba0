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

/* The same for more than a chain holds. The last fragment stays in the chain. */
static inline __attribute__((always_inline)) void snt__lane_add_share(
	struct snt_qp *qp, struct snt__lane *lane, const struct snt__cut *cut,
	uint32_t first, uint32_t count, bool sequenced)
{
	const uint32_t step = qp->data_lanes;

	snt__qp_touch(qp, lane);
	while (__builtin_expect(lane->chained + count > SNT__CHAIN_MAX, 0)) {
		uint32_t part = SNT__CHAIN_MAX - lane->chained;

		if (part)
			snt__lane_build(lane, cut, qp->fragment_size, first, step, part,
					sequenced);
		snt__lane_ring(lane);
		first += part * step;
		count -= part;
	}
	snt__lane_build(lane, cut, qp->fragment_size, first, step, count, sequenced);
}

/* The lane so many turns later, less than there are lanes. */
static inline struct snt__lane *snt__lane_later(const struct snt_qp *qp,
						struct snt__lane *lane, uint32_t turns)
{
	uint32_t left = (uint32_t)(qp->lane + qp->data_lanes - lane);

	return turns < left ? lane + turns : qp->lane + (turns - left);
}

/* Do all lanes have room for their shares, and the last for `extra` more? */
static inline bool snt__spread_fits(const struct snt_qp *qp, uint32_t each,
				    uint32_t more, uint32_t extra)
{
	struct snt__lane *lane = qp->turn;
	uint32_t shares = each ? qp->data_lanes : more;

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

/*
 * All fragments of a WR. Returns the lane of the last one; NULL, with nothing done, if
 * there is no room for all of them in turn. A lane that dies meanwhile keeps its share,
 * which then comes back flushed.
 */
static inline __attribute__((always_inline)) struct snt__lane *snt__spread(
	struct snt_qp *qp, struct snt__cut *cut, uint32_t extra, bool sequenced)
{
	struct snt__lane *lane = qp->turn, *last = lane;
	uint32_t each, more;

	if (__builtin_expect(cut->count == 1, 1)) {
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
	each = cut->count / qp->data_lanes;
	more = cut->count % qp->data_lanes;
	if (!snt__spread_fits(qp, each, more, extra))
		return NULL;
	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		if (i == more) {
			qp->turn = lane;
			if (!each)
				break;
		}
		snt__lane_add_share(qp, lane, cut, i, each + (i < more), sequenced);
		if (i + 1 == (more ? more : qp->data_lanes)) {
			last = lane;
			cut->last = snt__lane_last(lane);
		}
		lane = lane->after;
	}
	snt__lane_trim(last, cut->last, cut->count * qp->fragment_size - cut->length);
	return last;
}

#endif
