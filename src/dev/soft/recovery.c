/* SPDX-License-Identifier: MIT */
/* Recovery from loss: go-back-N, timeouts, probes, receivers that are not ready. */
#include "dev/soft/qp.h"

/* A timeout may back off to four times the QP's, which InfiniBand allows. */
#define BACKOFF_MAX 2

/* The time between probes is doubled so often at most. */
#define PROBES_MAX 10

#define RNR_RETRY_FOREVER 7

/* Sets `next` back to `una`. */
static void restart_at_una(struct snt__soft_qp *qp)
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
	restart_at_una(qp);
}

void snt__soft_timer_halt(struct snt__soft_qp *qp)
{
	qp->requester.expires = SNT__SOFT_NEVER;
	snt__soft_timer_stop(&qp->timer);
}

/* Until the peer has been silent for too long, or the timeout is over. */
static void arm_recovery_timer(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;
	uint64_t probe_at = now + (requester->trip.wait << requester->probes);

	snt__soft_timer_set(&qp->device->timers, &qp->timer,
			    probe_at < requester->expires ? probe_at
							  : requester->expires);
}

void snt__soft_timer_start(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (!requester->timeout || requester->una == requester->next)
		return;
	if (requester->expires == SNT__SOFT_NEVER)
		requester->expires = now + (requester->timeout << requester->backoff);
	arm_recovery_timer(qp, now);
}

/* If the peer answers only after probes, either may be slow: the wait was too short, or the
 * probes were lost. It stays as long as it is until an answer comes without. */
static void note_answer(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (!requester->probed)
		requester->probes = 0;
	requester->probed = false;
	requester->probe = SNT__SOFT_PROBE_NONE;
	if (requester->una <= requester->trip.timed)
		return;
	snt__soft_round_trip_take(&requester->trip, now);
	snt__soft_adapt_window(qp);
}

/* Late answers from before a rewind may acknowledge packets beyond `next`. */
void snt__soft_progress(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->next < requester->una)
		restart_at_una(qp);
	note_answer(qp, now);
	requester->retry_left = qp->attr.retry_cnt;
	requester->rnr_left = qp->attr.rnr_retry;
	requester->backoff = 0;
	requester->rnr_wait = false;
	snt__soft_timer_halt(qp);
	snt__soft_timer_start(qp, now);
	snt__soft_qp_activate(qp);
}

/* What a NAK asks for, the peer has discarded if it came before. Otherwise, what is sent
 * again may have arrived. */
static void go_back(struct snt__soft_qp *qp, bool told, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	requester->rewound_once = true;
	requester->rewound = requester->una;
	requester->rewound_at = now;
	snt__soft_round_trip_doubt(&requester->trip,
				   told ? requester->una : requester->sent,
				   requester->sent);
	qp->device->stats.rewinds++;
	snt__soft_rewind(qp);
	snt__soft_qp_activate(qp);
}

/* The timer is restarted by the first packet. */
static void retry_request(struct snt__soft_qp *qp, bool told, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (!requester->retry_left) {
		snt__soft_send_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	requester->retry_left--;
	snt__soft_timer_halt(qp);
	go_back(qp, told, now);
}

/* Could a NAK at the place of the last rewind be about what was sent since? */
static bool is_lost_again(const struct snt__soft_requester *requester, uint64_t now)
{
	return requester->next != requester->una && requester->trip.min != UINT64_MAX &&
	       now >= requester->rewound_at + requester->trip.min;
}

/* A peer that is not ready drops everything that follows, so that this loss is expected.
 * A loss at the same place neither uses up a retry nor restarts the timeout, so that a peer
 * cannot keep a QP from failing by NAKs. */
void snt__soft_lost(struct snt__soft_qp *qp, bool told, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->rnr_wait)
		return;
	if (!requester->rewound_once || requester->rewound != requester->una)
		retry_request(qp, told, now);
	else if (told && is_lost_again(requester, now))
		go_back(qp, told, now);
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
	requester->probe = SNT__SOFT_PROBE_NONE;
	snt__soft_round_trip_doubt(&requester->trip, requester->una, requester->sent);
	snt__soft_rewind(qp);
	requester->rnr_wait = true;
	snt__soft_timer_halt(qp);
	snt__soft_timer_set(&qp->device->timers, &qp->timer,
			    now + snt__rnr_timer_ns(code));
}

static void start_probe(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	qp->device->stats.probes++;
	qp->stats.probes++;
	requester->probe = SNT__SOFT_PROBE_FIRST;
	if (requester->probes < PROBES_MAX)
		requester->probes++;
	arm_recovery_timer(qp, now);
	snt__soft_qp_activate(qp);
}

/* The timer has been taken out of the heap. */
void snt__soft_timeout(struct snt__soft_qp *qp, uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->rnr_wait) {
		requester->rnr_wait = false;
		/* A loss from now on is a new one. */
		requester->rewound_once = false;
		snt__soft_qp_activate(qp);
		return;
	}
	if (now < requester->expires) {
		start_probe(qp, now);
		return;
	}
	qp->device->stats.timeouts++;
	qp->stats.timeouts++;
	if (requester->backoff < BACKOFF_MAX)
		requester->backoff++;
	retry_request(qp, false, now);
}
