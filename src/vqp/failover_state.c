/* SPDX-License-Identifier: MIT */
#include "vqp/failover_state.h"

#include <errno.h>
#include <stdlib.h>

#include "util/err.h"
#include "util/lines.h"
#include "vqp/phase.h"
#include "vqp/ring.h"

int snt__failover_create(struct snt_qp *qp)
{
	struct snt__failover *failover;
	size_t slots = qp->mask + 1;
	size_t sges = (size_t)(qp->data.mask + 1) * qp->recv_sge_max;

	if (!(qp->opts.flags & SNT_QP_FAILOVER))
		return 0;
	failover = snt__lines_alloc(1, sizeof(*failover));
	if (!failover)
		return snt__fail(ENOMEM, "no memory for failover");
	qp->failover = failover;
	failover->send_at = snt__lines_alloc(slots, sizeof(*failover->send_at));
	failover->notify_at = snt__lines_alloc(slots, sizeof(*failover->notify_at));
	failover->recv_mem = snt__lines_alloc(sges, sizeof(*failover->recv_mem));
	if (failover->send_at && failover->notify_at && failover->recv_mem)
		return 0;
	return snt__fail(ENOMEM, "no memory for failover of %zu sends", slots);
}

void snt__failover_free(struct snt_qp *qp)
{
	if (!qp->failover)
		return;
	free(qp->failover->send_at);
	free(qp->failover->notify_at);
	free(qp->failover->recv_mem);
	free(qp->failover);
	qp->failover = NULL;
}

void snt__failover_reset(struct snt_qp *qp)
{
	qp->phase = SNT__PHASE_NONE;
	if (!qp->failover)
		return;
	qp->message_lane = 0;
	qp->failover->sends_sent = 0;
	qp->failover->heard = false;
	qp->failover->notice = false;
	qp->failover->new_offer = false;
	qp->failover->has_failed_send = false;
	qp->failover->failed_send = 0;
}

static void pair_lane(struct snt__lane *lane)
{
	struct snt__lane_life *life = snt__lane_life(lane);

	*life = (struct snt__lane_life){ .lives = life->lives + lane->used,
					 .paired = lane->used,
					 .offered = lane->used };
}

void snt__failover_agree(struct snt_qp *qp, const struct snt_card *peer)
{
	struct snt__failover *failover = qp->failover;

	if (!failover || !(peer->flags & SNT_QP_FAILOVER))
		return;
	qp->phase = SNT__PHASE_UP;
	failover->life = failover->offer_life = 1;
	failover->card = *peer;
	failover->generation = peer->generation;
	failover->cut_end = failover->atomic_at = qp->head;
	/* Positions that no WR in the ring has. */
	for (uint32_t i = 0; i <= qp->mask; i++)
		failover->send_at[i] = failover->notify_at[i] = qp->head - 1;
	for (uint32_t i = 0; i < qp->lane_count; i++)
		pair_lane(&qp->lane[i]);
}
