/* SPDX-License-Identifier: MIT */
#include "vqp/lane_set.h"

#include <stdatomic.h>
#include <string.h>

#include "util/err.h"
#include "vqp/phase.h"

/* A generation, with room for the number of a lane. */
uint32_t snt__tag_fresh(void)
{
	static atomic_uint generation;

	return (atomic_fetch_add(&generation, 1) << 8) &
	       ~(SNT__TAG_RECV | SNT__TAG_MARKER | SNT__TAG_ASKED);
}

/* So that a CQE of an earlier life is recognised. */
void snt__qp_retag(struct snt_qp *qp)
{
	uint32_t fresh = snt__tag_fresh();

	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->lane[i].tag = fresh | i;
}

void snt__lane_update(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;
	const struct snt__lane *each = qp->turn;

	lane->limit = lane->alive && !snt__qp_is_suspended(qp) ? lane->depth : 0;
	qp->lane_limit = each->limit;
	while ((each = each->after) != qp->turn)
		if (each->limit < qp->lane_limit)
			qp->lane_limit = each->limit;
}

void snt__qp_use_lanes(struct snt_qp *qp, uint32_t count)
{
	qp->data_lanes = qp->in_turn = count;
	qp->turn = qp->lane;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->lane[i].after = &qp->lane[i];
	for (uint32_t i = 0; i < count; i++)
		qp->lane[i].after = &qp->lane[i + 1 < count ? i + 1 : 0];
}

void snt__qp_take_turns(struct snt_qp *qp)
{
	struct snt__lane *first = qp->lane, *last;

	while (!first->alive)
		first++;
	last = qp->turn = first;
	qp->in_turn = 1;
	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		struct snt__lane *lane = &qp->lane[i];

		lane->after = first;
		if (!lane->alive || lane == first)
			continue;
		last->after = lane;
		last = lane;
		qp->in_turn++;
	}
}

void snt__lane_leave_turns(struct snt__lane *lane)
{
	struct snt_qp *qp = lane->owner;
	struct snt__lane *before = lane;

	if (qp->in_turn == 1)
		return;
	while (before->after != lane)
		before = before->after;
	before->after = lane->after;
	if (qp->turn == lane)
		qp->turn = lane->after;
	qp->in_turn--;
}

/* The lanes that were created are in use, until a peer has fewer. */
void snt__qp_use_all(struct snt_qp *qp)
{
	snt__qp_use_lanes(qp, qp->extra - qp->lane);
	qp->notify_count = qp->pass_through || qp->scheme != SNT_SCHEME_SPRAY
				   ? 0
				   : qp->lane_count - qp->data_lanes;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->lane[i].used = false;
	snt__qp_use_notifiers(qp);
}

void snt__qp_use_notifiers(struct snt_qp *qp)
{
	for (unsigned i = 0; i < qp->notify_count; i++)
		qp->notifier[i] = &qp->extra[i];
}

int snt__lane_fail_transition(const struct snt_qp *qp, const struct snt__lane *lane,
			      const char *state, int ret)
{
	return snt__fail(-ret, "%s: lane %u cannot go to %s: %s",
			 snt__lane_device(qp, lane)->name, lane->index, state,
			 strerror(-ret));
}

int snt__qp_to_init(struct snt_qp *qp, struct snt__lane *lane)
{
	const struct snt_device *device = snt__lane_device(qp, lane);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = device->number,
		.pkey_index = qp->opts.pkey_index,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int ret = device->control.modify_qp(lane->qp, &attr,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	return ret ? snt__lane_fail_transition(qp, lane, "INIT", ret) : 0;
}

/* By way of RESET, which drops receives without completions. */
static int reset_lane(struct snt_qp *qp, struct snt__lane *lane)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int ret = snt__lane_device(qp, lane)->control.modify_qp(lane->qp, &attr,
								IBV_QP_STATE);

	return ret ? snt__lane_fail_transition(qp, lane, "RESET", ret)
		   : snt__qp_to_init(qp, lane);
}

void snt__qp_forget_receives(struct snt_qp *qp)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		qp->lane[i].alive = false;
		qp->lane[i].recv_posted = 0;
		qp->lane[i].recv_retired = 0;
	}
	snt__qp_use_all(qp);
	snt__qp_retag(qp);
}

int snt__qp_reset_lanes(struct snt_qp *qp)
{
	struct snt__err_kept kept;
	int first = 0;

	for (uint32_t i = 0; i < qp->lane_count; i++) {
		int ret = reset_lane(qp, &qp->lane[i]);

		if (ret && !first) {
			first = ret;
			snt__err_keep(&kept);
		}
	}
	if (first)
		snt__err_restore(&kept);
	snt__qp_forget_receives(qp);
	qp->untidy = first != 0;
	/* Otherwise they might be mixed with old ones that are still posted. */
	if (qp->pass_through)
		qp->data.refusal = first ? -ENOTCONN : 0;
	return first;
}
