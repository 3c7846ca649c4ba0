/* SPDX-License-Identifier: MIT */
#include "vqp/spread.h"

/* snt__lane_build() for more than a chain holds. The last fragment stays in the chain. */
static inline __attribute__((always_inline)) void build_share(
	struct snt_qp *qp, struct snt__lane *lane, const struct snt__cut *cut,
	uint32_t first, uint32_t step, uint32_t count, bool sequenced)
{
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

static inline __attribute__((always_inline)) struct snt__lane *spread_in_turn(
	struct snt_qp *qp, struct snt__cut *cut, uint32_t extra, bool sequenced)
{
	const uint32_t lanes = qp->in_turn; /* one may die meanwhile */
	const uint32_t each = cut->count / lanes, more = cut->count % lanes;
	struct snt__lane *lane = qp->turn, *last = lane;

	if (!snt__spread_fits(qp, each, more, extra))
		return NULL;
	for (uint32_t i = 0; i < lanes; i++) {
		if (i == more) {
			qp->turn = lane;
			if (!each)
				break;
		}
		build_share(qp, lane, cut, i, lanes, each + (i < more), sequenced);
		if (i + 1 == (more ? more : lanes)) {
			last = lane;
			cut->last = snt__lane_last(lane);
		}
		lane = lane->after;
	}
	snt__lane_trim(last, cut->last, cut->count * qp->fragment_size - cut->length);
	return last;
}

struct snt__lane *snt__spread_many(struct snt_qp *qp, struct snt__cut *cut,
				   uint32_t extra, bool sequenced)
{
	return sequenced ? spread_in_turn(qp, cut, extra, true)
			 : spread_in_turn(qp, cut, extra, false);
}
