/* SPDX-License-Identifier: MIT */
/* Recovery from loss: go-back-N, timeouts, receivers that are not ready. */
#include "dev/soft/qp.h"

/* A timeout may back off to four times the QP's, which InfiniBand allows. */
#define BACKOFF_MAX 2

#define RNR_RETRY_FOREVER 7

/* Sets `next` back to `una`. */
static void restart(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	requester->next = requester->una;
	requester->at = requester->head;
	requester->cursor = (struct snt__soft_cursor){ 0 };
	if (requester->head != requester->tail) {
		const struct snt__soft_send *send =
			snt__soft_send_at(requester, requester->head);

		if (!snt__soft_send_reads(send) && !(send->flags & SNT__SOFT_INLINE))
			requester->cursor =
				snt__soft_seek(snt__soft_send_sges(requester,
								   requester->head),
					       send->sge_count,
					       (requester->una - send->first) *
						       qp->mtu);
	}
}

void snt__soft_rewind(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	qp->device->reads_bytes -= (uint64_t)requester->reads_packets * qp->mtu;
	requester->reads_packets = 0;
	requester->reads = 0;
	restart(qp);
}

void snt__soft_timer_start(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (!requester->timeout || qp->timer.deadline != SNT__SOFT_NEVER ||
	    requester->una == requester->next)
		return;
	snt__soft_timer_set(&qp->device->timers, &qp->timer,
			    now + (requester->timeout << requester->backoff));
}

/* Late answers from before a rewind may acknowledge packets beyond `next`. */
void snt__soft_progress(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->next < requester->una)
		restart(qp);
	requester->retry_left = qp->attr.retry_cnt;
	requester->rnr_left = qp->attr.rnr_retry;
	requester->backoff = 0;
	requester->rnr_wait = false;
	snt__soft_timer_stop(&qp->timer);
	snt__soft_timer_start(qp, now);
	snt__soft_qp_activate(qp);
}

/* The timer is restarted by the first packet. */
static void retry(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (!requester->retry_left) {
		snt__soft_send_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	requester->retry_left--;
	requester->rewound_once = true;
	requester->rewound = requester->una;
	qp->device->stats.rewinds++;
	snt__soft_timer_stop(&qp->timer);
	snt__soft_rewind(qp);
	snt__soft_qp_activate(qp);
}

/* A peer that is not ready drops everything that follows, so that this loss is
 * expected. */
void snt__soft_lost(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->rnr_wait ||
	    (requester->rewound_once && requester->rewound == requester->una))
		return;
	retry(qp);
}

void snt__soft_not_ready(struct snt__soft_qp *qp, unsigned code, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	qp->device->stats.rnr_in++;
	if (requester->rnr_wait)
		return;
	if (!requester->rnr_left) {
		snt__soft_send_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (requester->rnr_left != RNR_RETRY_FOREVER)
		requester->rnr_left--;
	/* It is an answer, so that the peer is reachable. */
	requester->retry_left = qp->attr.retry_cnt;
	requester->backoff = 0;
	snt__soft_rewind(qp);
	requester->rnr_wait = true;
	snt__soft_timer_stop(&qp->timer);
	snt__soft_timer_set(&qp->device->timers, &qp->timer,
			    now + snt__rnr_timer_ns(code));
}

/* The timer has been taken out of the heap. */
void snt__soft_timeout(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->rnr_wait) {
		requester->rnr_wait = false;
		/* A loss from now on is a new one. */
		requester->rewound_once = false;
		snt__soft_qp_activate(qp);
		return;
	}
	qp->device->stats.timeouts++;
	if (requester->backoff < BACKOFF_MAX)
		requester->backoff++;
	retry(qp);
}
