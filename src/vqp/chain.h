/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CHAIN_H
#define SNT_VQP_CHAIN_H

#include "vqp/lane.h"

/* The chain of a lane: WRs that are built, and posted as one list. */

/* The last WR of the chain, which is not empty. */
static inline struct ibv_send_wr *snt__lane_last(const struct snt__lane *lane)
{
	return &lane->chain[lane->chained - 1];
}

/* Posts the first WRs of the chain up to this one, which is the end of the list
 * meanwhile. */
static inline int snt__lane_post(struct snt__lane *lane, struct ibv_send_wr *last,
				 struct ibv_send_wr **bad)
{
	int ret;

	*bad = NULL;
	last->next = NULL;
	last->send_flags |= IBV_SEND_SIGNALED;
	lane->doorbells++;
	ret = ibv_post_send(lane->qp, lane->chain, bad);
	last->next = last + 1;
	return ret;
}

/* The device refused its chain from `bad` on, or claims so. Its errno is not an
 * argument, since that would cost a register where chains are built. */
__attribute__((cold)) void snt__lane_refused(struct snt__lane *lane,
					     struct ibv_send_wr *bad);

/* Posts the chain. What the device refuses dies with the lane; either way
 * fragments become completions. */
static inline void snt__lane_ring(struct snt__lane *lane)
{
	struct ibv_send_wr *bad;

	if (!lane->alive)
		lane->chained = 0; /* the marker retires them */
	if (!lane->chained)
		return;
	lane->fragments += lane->chained;
	if (__builtin_expect(snt__lane_post(lane, snt__lane_last(lane), &bad) == 0, 1))
		lane->chained = 0;
	else
		snt__lane_refused(lane, bad);
}

/*
 * The next WR of the chain, for the caller to fill in except wr_id, next and sg_list.
 * There must be room.
 */
static inline struct ibv_send_wr *snt__lane_add(struct snt__lane *lane, uint32_t slot,
						uint32_t sequence, uint64_t bytes)
{
	struct ibv_send_wr *wr;

	if (lane->chained == SNT__CHAIN_MAX)
		snt__lane_ring(lane);
	wr = &lane->chain[lane->chained++];
	wr->wr_id = snt__wr_id(lane->tag, lane->built++);
	snt__lane_add_run(lane, slot, lane->built, sequence, bytes);
	return wr;
}

#endif
