/* SPDX-License-Identifier: MIT */
/* The ends of a QP with failover: what they say, and what they do with what they hear. */
#include <sennit/failover.h>

#include <errno.h>

#include "util/err.h"
#include "vqp/cause.h"
#include "vqp/failure.h"
#include "vqp/fence.h"
#include "vqp/life.h"
#include "vqp/send.h"

/*
 * From one phase to the next
 */

/* The peer's receipt cannot be true. */
static void break_for_peer(struct snt_qp *qp)
{
	snt__qp_break_for_peer(qp->lane);
	snt__qp_dispatch(qp);
}

/* The peer says that there is no further life. */
static void break_with_peer(struct snt_qp *qp)
{
	snt__cause_ended(qp->lane);
	snt__cause_log_qp(qp);
	snt__qp_break(qp);
	snt__qp_dispatch(qp);
}

static uint32_t peer_offer(const struct snt_qp *qp)
{
	const struct snt__failover *failover = qp->failover;

	return failover->heard ? snt__receipt_offer_life(&failover->peer) : 0;
}

/* Without lanes in the next life, to the one after it. */
static void skip_life(struct snt_qp *qp)
{
	qp->failover->life++;
	qp->failover->new_offer = false;
	qp->phase = SNT__PHASE_DRAINED;
	snt__failover_notice(qp);
}

/* FENCED, and something was heard. */
static int try_next_life(struct snt_qp *qp)
{
	struct snt__failover *failover = qp->failover;
	uint32_t offer = peer_offer(qp);
	int ret;

	if (qp->phase != SNT__PHASE_FENCED || !failover->heard)
		return 0;
	if (offer == failover->life + 2) {
		skip_life(qp);
		return 0;
	}
	if (offer != failover->life + 1)
		return 0;
	if (failover->new_offer) {
		skip_life(qp);
		return 0;
	}
	ret = snt__life_begin(qp);
	if (ret) {
		break_for_peer(qp);
		return ret;
	}
	if (qp->phase == SNT__PHASE_ARMED && failover->peer.saying == SNT__SAYS_READY)
		snt__failover_go_up(qp);
	return 0;
}

static void hear_stop(struct snt_qp *qp, int32_t ahead)
{
	if (ahead == 0 && (qp->phase == SNT__PHASE_UP || qp->phase == SNT__PHASE_ARMED))
		snt__fence_stop(qp);
	else if (ahead == 1 && qp->phase == SNT__PHASE_FENCED)
		skip_life(qp);
}

/* With an offer for the life after the receipt's, or for its own. */
static int hear_offer(struct snt_qp *qp, const struct snt__receipt *receipt)
{
	struct snt__failover *failover = qp->failover;
	int32_t ahead = receipt->life - failover->life;

	if (receipt->saying == SNT__SAYS_READY && ahead == 0) {
		if (qp->phase == SNT__PHASE_ARMED)
			snt__failover_go_up(qp);
		else if (qp->phase == SNT__PHASE_UP && receipt->waits)
			snt__failover_notice(qp); /* ours was lost */
		return 0;
	}
	if (ahead > 1 || (ahead == 1 && qp->phase != SNT__PHASE_FENCED))
		return 0; /* no peer that keeps to the rules is so far ahead */
	if (!failover->heard ||
	    (int32_t)(snt__receipt_offer_life(receipt) - peer_offer(qp)) >= 0) {
		failover->peer = *receipt;
		failover->heard = true;
	}
	if (qp->phase == SNT__PHASE_UP || qp->phase == SNT__PHASE_ARMED)
		snt__fence_stop(qp);
	return try_next_life(qp);
}

static int hear_receipt(struct snt_qp *qp, const struct snt__receipt *receipt)
{
	int32_t ahead = receipt->life - qp->failover->life;

	if (receipt->saying == SNT__SAYS_END) {
		break_with_peer(qp);
		return 0;
	}
	/* The peer has missed something. */
	if (ahead < 0) {
		snt__failover_notice(qp);
		return 0;
	}
	if (receipt->saying != SNT__SAYS_STOP)
		return hear_offer(qp, receipt);
	hear_stop(qp, ahead);
	return 0;
}

/*
 * The program's calls
 */

static int check_agreed(const struct snt_qp *qp)
{
	if (!qp->connected)
		return snt__fail(ENOTCONN, "QP %u is not connected", qp->num);
	if (qp->phase)
		return 0;
	return snt__fail(
		EOPNOTSUPP,
		"QP %u has no failover: SNT_QP_FAILOVER is needed at both ends",
		qp->num);
}

int snt_qp_suspend(struct snt_qp *qp)
{
	int ret = check_agreed(qp);

	if (ret)
		return ret;
	if (qp->broken)
		return snt__fail(ESHUTDOWN, "QP %u is broken or being closed", qp->num);
	for (uint32_t i = 0; i < qp->lane_count; i++)
		qp->failover->lane[i].failed = false;
	if (qp->phase == SNT__PHASE_UP || qp->phase == SNT__PHASE_ARMED)
		snt__fence_stop(qp);
	else if (qp->phase == SNT__PHASE_FENCED)
		qp->failover->new_offer = true;
	return try_next_life(qp);
}

static void describe_offer(const struct snt_qp *qp, struct snt__receipt *receipt)
{
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		const struct snt__lane *lane = &qp->lane[i];

		if (qp->failover->lane[i].offered)
			receipt->lane[receipt->lane_count++] =
				(struct snt__receipt_lane){ i, lane->qp->qp_num,
							    lane->psn };
	}
}

static enum snt__saying saying_of(const struct snt_qp *qp)
{
	if (qp->broken)
		return SNT__SAYS_END;
	switch (qp->phase) {
	case SNT__PHASE_FENCED:
		return SNT__SAYS_FENCED;
	case SNT__PHASE_UP:
	case SNT__PHASE_ARMED:
		return SNT__SAYS_READY;
	default:
		return SNT__SAYS_STOP;
	}
}

ssize_t snt_qp_receipt(struct snt_qp *qp, void *buffer, size_t size)
{
	struct snt__failover *failover = qp->failover;
	struct snt__receipt receipt;
	int ret = check_agreed(qp);

	if (ret)
		return ret;
	if (qp->phase == SNT__PHASE_DRAINED && !qp->broken) {
		ret = snt__life_prepare(qp);
		if (!ret)
			ret = try_next_life(qp);
		if (ret)
			return ret;
	}
	receipt = (struct snt__receipt){
		.saying = saying_of(qp),
		.waits = qp->phase == SNT__PHASE_ARMED && !qp->broken,
		.life = failover->life,
		.generation = qp->generation,
		.peer_generation = failover->generation,
		.sends = snt__recv_ring_taken(&qp->data),
		.notifications = snt__recv_ring_taken(&qp->notify),
		.has_failed_send = failover->has_failed_send,
		.failed_send = failover->failed_send,
	};
	if (receipt.saying == SNT__SAYS_FENCED || receipt.saying == SNT__SAYS_READY)
		describe_offer(qp, &receipt);
	return snt__receipt_pack(&receipt, buffer, size);
}

int snt_qp_resume(struct snt_qp *qp, const void *buffer, size_t size)
{
	struct snt__receipt receipt;
	int ret = check_agreed(qp);

	if (!ret)
		ret = snt__receipt_unpack(buffer, size, &receipt);
	if (ret)
		return ret;
	if (receipt.generation != qp->failover->generation ||
	    receipt.peer_generation != qp->generation)
		return snt__fail(EINVAL, "QP %u: the receipt is of another connection",
				 qp->num);
	if (!qp->broken)
		return hear_receipt(qp, &receipt);
	/* It has not heard of the end. */
	if (receipt.saying != SNT__SAYS_END && !qp->closed_reported)
		snt__failover_notice(qp);
	return 0;
}
