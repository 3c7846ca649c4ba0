/* SPDX-License-Identifier: MIT */
/*
 * Handling refusals by a device. A post that fails may have taken none,
 * some or all of its chain, and bad_wr may be wrong.
 */
#include "vqp/chain.h"

#include <string.h>

#include "vqp/cause.h"
#include "vqp/failure.h"

/* Moves the rest of a chain to its front, each with its SGEs. */
static void drop_front(struct snt__lane *lane, uint32_t count)
{
	for (uint32_t i = count; i < lane->chained; i++) {
		struct ibv_send_wr *to = &lane->chain[i - count],
				   *from = &lane->chain[i];
		struct ibv_send_wr *next = to->next;
		struct ibv_sge *sge = to->sg_list;

		memcpy(sge, from->sg_list, from->num_sge * sizeof(*sge));
		*to = *from;
		to->next = next;
		to->sg_list = sge;
	}
	lane->chained -= count;
}

/* How many of the chain the device took, as far as bad_wr can be trusted. */
static uint32_t taken_by_device(const struct snt__lane *lane,
				const struct ibv_send_wr *bad)
{
	if (bad < lane->chain || bad >= lane->chain + lane->chained)
		return 0;
	return bad - lane->chain;
}

/*
 * Part of a chain was taken: the rest follows, beginning with a signalled WR, so
 * that those which went unsignalled are reported. Nothing was taken, or so it
 * seems: queues are never full by our own count, so something is wrong, and some
 * devices say this after having queued all of it. Posting again could send twice;
 * the lane is given up.
 */
void snt__lane_refused(struct snt__lane *lane, struct ibv_send_wr *bad)
{
	uint32_t count;

	while ((count = taken_by_device(lane, bad))) {
		drop_front(lane, count);
		lane->chain[0].send_flags |= IBV_SEND_SIGNALED;
		if (!snt__lane_post(lane, snt__lane_last(lane), &bad)) {
			lane->chained = 0;
			return;
		}
	}
	snt__cause_refused(lane, 0);
	snt__lane_kill(lane);
}
