/* SPDX-License-Identifier: MIT */
#include "vqp/life.h"

#include <errno.h>
#include <string.h>

#include "util/assert.h"
#include "util/err.h"
#include "vqp/check.h"
#include "vqp/connect.h"
#include "vqp/cq.h"
#include "vqp/fence.h"
#include "vqp/lane_qp.h"
#include "vqp/lane_set.h"
#include "vqp/recv.h"
#include "vqp/recv_class.h"
#include "vqp/settle.h"
#include "vqp/spray.h"

/*
 * Before it: new QPs
 */

static int choose_psn(struct snt_qp *qp, struct snt__lane *lane)
{
	int ret = snt__ctx_random(qp->ctx, &lane->psn, sizeof(lane->psn));

	lane->psn &= 0xffffff;
	return ret ? snt__fail(-ret, "no random numbers: %s", strerror(-ret)) : 0;
}

/* A device that makes no QP may be gone: its lane is left out. */
static int renew_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	struct snt__lane_life *life = snt__lane_life(lane);

	snt__assert(!life->old);
	life->old = lane->qp;
	lane->qp = NULL;
	life->offered = life->paired && !life->failed && !snt__lane_make_qp(qp, lane);
	life->failed = !life->offered;
	return choose_psn(qp, lane);
}

static int destroy_old(struct snt_qp *qp, struct snt__lane *lane)
{
	const struct snt_device *device = snt__lane_device(qp, lane);
	struct snt__lane_life *life = snt__lane_life(lane);
	uint32_t qp_num;
	int ret;

	if (!life->old)
		return 0;
	qp_num = life->old->qp_num;
	ret = device->control.destroy_qp(life->old);
	if (ret)
		return snt__fail(-ret, "%s: lane %u cannot be destroyed: %s",
				 device->name, lane->index, strerror(-ret));
	life->old = NULL;
	snt__route_remove(&qp->cq->route, lane->device, qp_num);
	snt__route_remove(&qp->recv_cq->route, lane->device, qp_num);
	return 0;
}

int snt__life_destroy_old(struct snt_qp *qp)
{
	int ret = 0;

	for (uint32_t i = 0; qp->failover && !ret && i < qp->lane_count; i++)
		ret = destroy_old(qp, &qp->lane[i]);
	return ret;
}

int snt__life_prepare(struct snt_qp *qp)
{
	struct snt__failover *failover = qp->failover;
	int ret = 0;

	snt__assert(qp->phase == SNT__PHASE_DRAINED);
	if (failover->offer_life != failover->life + 1) {
		failover->offer_life = failover->life + 1;
		for (uint32_t i = 0; !ret && i < qp->lane_count; i++)
			ret = renew_lane(qp, &qp->lane[i]);
	}
	if (!ret)
		ret = snt__life_destroy_old(qp);
	if (ret)
		return ret;
	snt__qp_retag(qp);
	qp->phase = SNT__PHASE_FENCED;
	return 0;
}

/* One that could not go to INIT when it was made has not joined its CQs. */
static int restore_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	if (!lane->qp)
		return snt__lane_make_qp(qp, lane);
	return snt__route_find(&qp->cq->route, lane->device, lane->qp->qp_num)
		       ? 0
		       : snt__lane_join_cqs(qp, lane);
}

int snt__life_restore(struct snt_qp *qp)
{
	int ret = snt__life_destroy_old(qp);

	for (uint32_t i = 0; !ret && i < qp->lane_count; i++)
		ret = restore_lane(qp, &qp->lane[i]);
	return ret;
}

/*
 * Its lanes
 */

/* The lanes that both ends have offered. */
static void find_common(const struct snt_qp *qp, bool *common)
{
	const struct snt__failover *failover = qp->failover;
	const struct snt_card *card = &failover->card;
	bool offered[SNT_LANES_MAX] = { false };

	for (uint32_t i = 0; i < failover->peer.lane_count; i++)
		offered[failover->peer.lane[i].index] = true;
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_card_lane *to =
			snt__lane_counterpart(qp, &qp->lane[i], card);

		common[i] = to && failover->lane[i].offered && offered[to - card->lane];
	}
}

/* Does a common notify lane lead to this lane's device, at our end and at the peer's? */
static bool is_notified(const struct snt_qp *qp, const struct snt__lane *lane,
			const bool *common)
{
	bool ours = false, theirs = false;

	for (const struct snt__lane *at = qp->extra; at < qp->lane + qp->lane_count;
	     at++) {
		if (!common[at->index])
			continue;
		ours |= at->device == lane->device;
		theirs |= at->remote_device == lane->remote_device;
	}
	return ours && theirs;
}

/* Both ends leave out the same data lanes: those on devices without a notify lane. Returns
 * how many are left. */
static uint32_t leave_out_unnotified(const struct snt_qp *qp, bool *common)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		common[i] &= is_notified(qp, &qp->lane[i], common);
		count += common[i];
	}
	return count;
}

/* Where messages and atomics go. Atomics of different devices are not atomic with each
 * other, so that without a lane into the first lane's device they fail. */
static void choose_lanes(struct snt_qp *qp, const bool *common)
{
	qp->notify_count = 0;
	for (uint32_t i = qp->extra - qp->lane; i < qp->lane_count; i++)
		if (common[i])
			qp->notifier[qp->notify_count++] = &qp->lane[i];
	qp->express_turn = 0;
	qp->message_lane = 0;
	while (!common[qp->message_lane])
		qp->message_lane++;
	qp->atomic_lane = qp->lane;
	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		if (!common[i] || qp->lane[i].remote_device != qp->lane->remote_device)
			continue;
		qp->atomic_lane = &qp->lane[i];
		break;
	}
}

/* Nothing is in flight, and a receive's number on its lane is its place in the ring. */
static void begin_lane(struct snt_qp *qp, struct snt__lane *lane, bool common)
{
	struct snt__lane_life *life = snt__lane_life(lane);
	const struct snt__recv_ring *ring = lane->is_data ? &qp->data : &qp->notify;

	lane->used = lane->alive = common;
	lane->chained = 0;
	lane->retired = lane->built;
	lane->run_head = lane->run_tail;
	lane->bytes_done = lane->bytes;
	lane->recv_posted = lane->recv_retired = snt__recv_ring_taken(ring);
	lane->cause = (struct snt__cause){ 0 };
	life->frozen = false;
	life->lives += common;
}

static void begin_lanes(struct snt_qp *qp, const bool *common, uint32_t data_count)
{
	for (uint32_t i = 0; i < qp->lane_count; i++)
		begin_lane(qp, &qp->lane[i], common[i]);
	choose_lanes(qp, common);
	snt__qp_take_turns(qp);
	qp->lanes_alive = data_count;
	qp->phase = SNT__PHASE_ARMED;
	qp->failover->life++;
	qp->failover->new_offer = false;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		snt__lane_update(&qp->lane[i]);
	snt__spray_update(qp);
	snt__recv_update(qp);
}

static void connect_lanes(struct snt_qp *qp)
{
	struct snt__failover *failover = qp->failover;
	struct snt_card *card = &failover->card;

	for (uint32_t i = 0; i < failover->peer.lane_count; i++) {
		const struct snt__receipt_lane *lane = &failover->peer.lane[i];

		card->lane[lane->index].qp_num = lane->qp_num;
		card->lane[lane->index].psn = lane->psn;
	}
	for (uint32_t i = 0; qp->phase == SNT__PHASE_ARMED && i < qp->lane_count; i++)
		if (qp->lane[i].used && snt__lane_connect(qp, &qp->lane[i], card)) {
			failover->lane[i].failed = true;
			snt__fence_stop(qp);
		}
}

int snt__life_begin(struct snt_qp *qp)
{
	bool common[SNT_LANES_MAX];
	uint32_t count;
	int ret;

	snt__assert(qp->phase == SNT__PHASE_FENCED);
	find_common(qp, common);
	count = leave_out_unnotified(qp, common);
	if (!count)
		return 0;
	ret = snt__settle_check(qp, &qp->failover->peer);
	if (ret)
		return ret;
	begin_lanes(qp, common, count);
	snt__settle(qp, &qp->failover->peer);
	snt__recv_repost(qp);
	connect_lanes(qp);
	snt__failover_notice(qp);
	return 0;
}
