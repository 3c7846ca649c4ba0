/* SPDX-License-Identifier: MIT */
/*
 * Lives of a virtual QP. Each begins unconnected with everything empty, and ends when
 * its last completion, SNT_OP_CLOSED, has been polled; the same objects may then begin
 * another one.
 */
#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "util/opts.h"
#include "vqp/balance.h"
#include "vqp/close.h"
#include "vqp/dqplb.h"
#include "vqp/failover_state.h"
#include "vqp/lane_set.h"
#include "vqp/life.h"
#include "vqp/options.h"
#include "vqp/qp.h"
#include "vqp/ready_list.h"
#include "vqp/refusal.h"
#include "vqp/spray.h"

/* Chooses the first PSN of each lane and our generation. They are random, so that
 * packets of an earlier connection, or of a forger, are unlikely to match. */
static int choose_numbers(struct snt_qp *qp)
{
	uint64_t generation;
	uint32_t psn[SNT_LANES_MAX];
	int ret = snt__ctx_random(qp->ctx, &generation, sizeof(generation));

	if (!ret)
		ret = snt__ctx_random(qp->ctx, psn, qp->lane_count * sizeof(psn[0]));
	if (ret)
		return snt__fail(-ret, "no random numbers: %s", strerror(-ret));
	qp->generation = generation | 1;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->lane[i].psn = psn[i] & 0xffffff;
	return 0;
}

static void empty_lane(struct snt__lane *lane)
{
	lane->chained = 0;
	lane->touched = false;
	lane->retired = lane->built = 0;
	lane->run_head = lane->run_tail = 0;
	lane->recv_posted = lane->recv_retired = 0;
	lane->cause = (struct snt__cause){ 0 };
	lane->stash_head = lane->stash_tail = 0;
	lane->awaits_imm = false;
	lane->used = lane->alive = false;
	lane->limit = 0;
	lane->bytes_done = lane->bytes;
	lane->sequence_last = 0;
	lane->wants_marker = lane->wants_recv_marker = false;
	lane->marked = lane->ended = false;
	lane->send_marker_due = lane->recv_marker_due = false;
	lane->passes = lane->is_single && !lane->owner->srq;
}

static void empty_ring(struct snt__recv_ring *ring)
{
	ring->head = ring->done = ring->tail = 0;
	ring->refusal = 0;
}

int snt__qp_begin(struct snt_qp *qp)
{
	int ret = choose_numbers(qp);

	if (ret)
		return ret;
	qp->head = qp->ordered = qp->next = qp->tail = 0;
	qp->under_way = qp->sequenced_under_way = qp->notifies_due = 0;
	qp->notified = qp->express_turn = 0;
	qp->failed_count = 0;
	qp->asked_end = 0;
	qp->read_end = 0;
	qp->all_ended = false;
	qp->poisoned = false;
	qp->atomic_lane = qp->lane;
	snt__failover_reset(qp);
	qp->doubt = (struct snt__refused_wr){ 0 };
	qp->cause = (struct snt__cause){ 0 };
	qp->touched_count = 0;
	qp->markers = 0;
	qp->lanes_alive = 0;
	qp->lane_limit = 0;
	qp->lanes_ended = qp->connected = qp->broken = false;
	qp->closing = qp->closed_reported = false;
	snt__qp_refuse(qp, -ENOTCONN);
	qp->fragment_size = qp->opts.fragment_size;
	qp->remote_count = qp->key_stride = 1;
	empty_ring(&qp->data);
	empty_ring(&qp->notify);
	for (uint32_t i = 0; i < qp->lane_count; i++)
		empty_lane(&qp->lane[i]);
	snt__qp_use_all(qp);
	if (qp->reorder)
		snt__dqplb_init(qp, 0);
	snt__qp_retag(qp);
	return 0;
}

static int check_reset(const struct snt_qp *qp)
{
	if (qp->connected && !qp->closed_reported)
		return snt__fail(EBUSY,
				 "QP %u is connected; close it, and poll until "
				 "SNT_OP_CLOSED",
				 qp->num);
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt_device *device = qp->ctx->device[qp->lane[i].device];

		if (!device->control.modify_qp)
			return snt__fail(EOPNOTSUPP,
					 "%s has no control table to reset a QP with",
					 device->name);
	}
	return 0;
}

int snt_qp_reset(struct snt_qp *qp)
{
	int ret = check_reset(qp);

	if (!ret && qp->failover)
		ret = snt__life_restore(qp);
	if (!ret)
		ret = snt__qp_reset_lanes(qp);
	if (ret)
		return ret;
	snt__qp_abandon(qp);
	snt__qp_leave_passing(qp);
	snt__cq_forget(qp->cq, &qp->send_ready);
	snt__cq_forget(qp->recv_cq, &qp->recv_ready);
	ret = snt__qp_begin(qp);
	qp->epoch += !ret;
	return ret;
}

/* On lanes that are connected only the RNR timer can be changed. */
static int change_lane(struct snt_qp *qp, struct snt__lane *lane, uint8_t rnr_timer)
{
	const struct snt_device *device = qp->ctx->device[lane->device];
	struct ibv_qp_attr attr = { .min_rnr_timer = rnr_timer };
	int ret;

	if (!lane->alive)
		return 0;
	if (!device->control.modify_qp)
		return snt__fail(EOPNOTSUPP,
				 "%s has no control table to modify a QP with",
				 device->name);
	ret = device->control.modify_qp(lane->qp, &attr, IBV_QP_MIN_RNR_TIMER);
	return ret ? snt__fail(-ret, "%s: lane %u cannot be modified: %s", device->name,
			       lane->index, strerror(-ret))
		   : 0;
}

int snt_qp_modify(struct snt_qp *qp, const struct snt_qp_opts *user_change)
{
	struct snt_qp_opts change, opts = qp->opts;
	int ret = snt__opts_import(&change, sizeof(change), user_change,
				   "struct snt_qp_opts");

	if (!ret)
		ret = snt__qp_opts_change(&opts, &change, qp->connected);
	if (!ret)
		ret = snt__qp_opts_check(qp->ctx, &opts);
	for (uint32_t i = 0; !ret && i < qp->lane_count; i++)
		ret = snt__qp_opts_fit(&opts, qp->ctx->device[qp->lane[i].device]);
	if (!ret)
		ret = snt__balance_check(qp, &opts);
	for (uint32_t i = 0; !ret && change.rnr_timer && i < qp->lane_count; i++)
		ret = change_lane(qp, &qp->lane[i], change.rnr_timer);
	if (ret)
		return ret;
	qp->opts = opts;
	if (change.balance || change.weights)
		snt__balance_set(qp);
	if (!qp->connected)
		qp->fragment_size = opts.fragment_size;
	snt__spray_update(qp);
	return 0;
}
