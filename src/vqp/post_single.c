/* SPDX-License-Identifier: MIT */
#include "vqp/post_single.h"

#include "vqp/cause.h"
#include "vqp/check.h"
#include "vqp/failure.h"
#include "vqp/keep.h"
#include "vqp/post_many.h"
#include "vqp/send.h"
#include "vqp/spray.h"
#include "vqp/spread.h"

/* The WR takes its slot before any part of it is posted: if a device then refuses it,
 * the result is that of a later failure. */
static inline void take_single_slot(struct snt_qp *qp, const struct snt_send_wr *wr,
				    uint32_t fragments)
{
	snt__keep_wr(qp, snt__qp_take_slot(qp, wr, wr->sge->length, fragments), wr);
	qp->under_way += fragments;
	qp->tail++;
	qp->next++;
}

/* The device refused a WR, or claims to have done so. */
static __attribute__((noinline, cold)) void kill_refusing_lane(struct snt__lane *lane,
							       int err)
{
	snt__cause_refused(lane, err);
	snt__lane_kill(lane);
	snt__qp_post_chains(lane->owner);
}

/* One fragment, on the lane whose turn it is. Not inline, since the results of the
 * checks before would then be kept in registers that have to be saved. */
static __attribute__((noinline)) int post_whole(struct snt_qp *qp,
						const struct snt_send_wr *wr,
						uint32_t verb)
{
	struct snt__lane *lane = qp->turn;
	struct ibv_send_wr physical, *bad;
	struct ibv_sge sge;
	int err;

	if (!snt__lane_has_room(lane, 1))
		return snt__qp_post_many(qp, wr, 1);
	physical.wr_id = snt__wr_id(lane->tag, lane->built++);
	physical.next = NULL;
	snt__single_build(wr, lane, verb,
			  IBV_SEND_SIGNALED | (wr->flags & SNT_SEND_SOLICITED), 0,
			  &physical, &sge);
	snt__lane_add_run(lane, qp->tail, lane->built, 0, wr->sge->length);
	take_single_slot(qp, wr, 1);
	qp->turn = lane->after;
	lane->fragments++;
	lane->doorbells++;
	err = ibv_post_send(lane->qp, &physical, &bad);
	if (__builtin_expect(err, 0))
		kill_refusing_lane(lane, err);
	return 1;
}

/* Posts a chain that was built at once. */
static inline void post_built_chain(struct snt__lane *lane, uint32_t count,
				    struct ibv_send_wr *last)
{
	struct ibv_send_wr *bad;

	if (!lane->alive)
		return; /* the marker retires them */
	lane->fragments += count;
	if (__builtin_expect(snt__lane_post(lane, last, &bad) == 0, 1))
		return;
	lane->chained = count;
	snt__lane_refused(lane, bad);
}

/*
 * Fragments in turn over the lanes; each lane's share is posted as soon as it is built.
 * If a lane dies of a post, later lanes may be dead as well: they keep their shares,
 * which then come back flushed.
 */
static __attribute__((noinline)) int post_shares(struct snt_qp *qp,
						 const struct snt_send_wr *wr,
						 uint32_t verb)
{
	const uint64_t size = qp->fragment_size, length = wr->sge->length;
	const uint32_t lanes = qp->in_turn, position = qp->tail;
	uint32_t count = snt__fragment_count(qp, length);
	uint32_t each = count / lanes, more = count % lanes;
	uint32_t shares = each ? lanes : more, last = (more ? more : lanes) - 1;
	uint64_t excess = count * size - length;
	struct snt__lane *lane = qp->turn;
	struct snt__cut cut = {
		.addr = (uintptr_t)wr->sge->addr,
		.remote_addr = wr->remote_addr,
		.local_key = wr->sge->mem->local_key,
		.remote_key = wr->remote->key,
		.position = position,
		.verb = verb,
		.flags = wr->flags & SNT_SEND_SOLICITED,
	};

	if (each + !!more > SNT__CHAIN_MAX || !snt__spread_fits(qp, each, more, 0))
		return snt__qp_post_many(qp, wr, 1);
	take_single_slot(qp, wr, count);
	qp->turn = snt__lane_later(lane, more);
	for (uint32_t i = 0; i < shares; i++) {
		uint32_t part = each + (i < more);
		struct ibv_send_wr *end =
			snt__lane_build_at(lane->chain, lane, &cut, size, 0, lanes,
					   part, false);

		if (i == last)
			snt__lane_trim(lane, end, excess);
		post_built_chain(lane, part, end);
		cut.addr += size;
		cut.remote_addr += size;
		lane = lane->after;
	}
	return 1;
}

/* An express message: one post for each notify lane. If a lane dies of it, the others die
 * as well, and keep their parts, which then come back flushed. */
static __attribute__((noinline)) int post_express(struct snt_qp *qp,
						  const struct snt_send_wr *wr)
{
	const uint32_t flags = IBV_SEND_SIGNALED | (wr->flags & SNT_SEND_SOLICITED);
	const uint32_t position = qp->tail;
	uint32_t data;

	if (!snt__spray_is_express(qp, wr->sge->length) || qp->tells_length ||
	    !snt__spray_is_clear(qp))
		return snt__qp_post_many(qp, wr, 1);
	data = snt__spray_turn(qp);
	snt__express_sent(qp, wr);
	for (unsigned i = 0; i < qp->notify_count; i++) {
		struct snt__lane *lane = qp->notifier[i];
		struct ibv_send_wr physical, *bad;
		struct ibv_sge sge;
		int err;

		physical.wr_id = snt__wr_id(lane->tag, lane->built++);
		physical.next = NULL;
		if (i == data)
			snt__single_build(wr, lane, IBV_WR_RDMA_WRITE_WITH_IMM, flags,
					  htonl(wr->imm), &physical, &sge);
		else
			snt__build_empty(&physical, flags, wr->imm, wr->remote_addr,
					 wr->remote->key[lane->remote_device]);
		snt__lane_add_run(lane, position, lane->built, 0,
				  i == data ? wr->sge->length : 0);
		if (__builtin_expect(!lane->alive, 0))
			continue;
		lane->fragments++;
		lane->doorbells++;
		err = ibv_post_send(lane->qp, &physical, &bad);
		if (__builtin_expect(err, 0))
			kill_refusing_lane(lane, err);
	}
	return 1;
}

int snt__qp_post_single(struct snt_qp *qp, const struct snt_send_wr *wr)
{
	const struct snt__rule *rule;

	if (qp->next != qp->tail || qp->tail - qp->head == qp->depth)
		return snt__qp_post_many(qp, wr, 1);
	rule = snt__check_single(qp, wr);
	if (!rule)
		return snt__qp_post_many(qp, wr, 1);
	if (wr->opcode == SNT_OP_WRITE_IMM)
		return post_express(qp, wr);
	return wr->sge->length <= qp->fragment_size ? post_whole(qp, wr, rule->verb)
						    : post_shares(qp, wr, rule->verb);
}
