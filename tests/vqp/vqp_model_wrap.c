/* SPDX-License-Identifier: MIT */
/*
 * Rings, lanes and sequence numbers count on for ever and wrap: by 2^32, and the
 * numbers of DQPLB by 2^24 on the wire. Here all of them begin shortly before that,
 * by the hand of a test that knows the library's insides.
 */
#include "vqp_model.h"

#include "vqp/dqplb.h"
#include "vqp/failover_state.h"
#include "vqp/qp.h"

static uint32_t shortly_before(struct world *world, uint32_t end)
{
	return end - 1 - dice(world, 24);
}

static void wrap_ring(struct snt__recv_ring *ring, uint32_t start)
{
	ring->head = ring->done = ring->tail = start;
}

static void wrap_qp(struct world *world, struct snt_qp *qp)
{
	uint32_t data = shortly_before(world, 0), notify = shortly_before(world, 0);

	qp->head = qp->ordered = qp->next = qp->tail = shortly_before(world, 0);
	wrap_ring(&qp->data, data);
	wrap_ring(&qp->notify, notify);
	for (uint32_t i = 0; i < qp->lane_count; i++) {
		struct snt__lane *lane = &qp->lane[i];

		lane->built = lane->retired = shortly_before(world, 0);
		/* A receive's number on its lane is its place in the ring. */
		lane->recv_posted = i == qp->message_lane ? data : notify;
		lane->recv_retired = lane->recv_posted;
	}
}

/* Nothing but numbers of WRs on the lane. */
static void wrap_single(struct world *world, struct snt__lane *lane)
{
	lane->built = lane->retired = shortly_before(world, 0);
	lane->recv_posted = lane->recv_retired = shortly_before(world, 0);
}

/* The place of a length in the mailbox is the number of its notification, on which
 * both ends agree; with failover they agree on the number of a SEND as well. */
static void match_mailboxes(struct snt_qp *one, struct snt_qp *other)
{
	one->notified = other->notify.tail;
	other->notified = one->notify.tail;
	if (one->failover && other->failover) {
		one->failover->sends_sent = other->data.tail;
		other->failover->sends_sent = one->data.tail;
	}
}

void wrap_counters(struct link *link)
{
	struct world *world = link->world;
	const uint32_t ends[] = { 0, 1 << 24 };
	uint32_t first = shortly_before(world, ends[dice(world, 2)]);

	for (unsigned i = 0; i < 2; i++) {
		if (link->pass) {
			wrap_single(world, link->end[i].qp->lane);
			continue;
		}
		wrap_qp(world, link->end[i].qp);
		if (is_sequenced(link))
			snt__dqplb_init(link->end[i].qp, first);
	}
	if (lacks_length(link))
		match_mailboxes(link->end[0].qp, link->end[1].qp);
}
