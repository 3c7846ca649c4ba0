/* SPDX-License-Identifier: MIT */
#include "vqp/notify.h"

#include <errno.h>
#include <string.h>

#include "dev/ctx.h"
#include "util/err.h"
#include "vqp/cq.h"
#include "vqp/cq_physical.h"

/* Acknowledging takes a lock, so it is done for many at once. */
#define UNACKED_MAX 64

int snt__cq_arm(struct snt_cq *cq)
{
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		struct snt__physical *physical = &cq->physical[i];
		int ret;

		if (physical->armed)
			continue;
		ret = ibv_req_notify_cq(physical->cq, 0);
		if (ret)
			return snt__fail(ret, "%s: a CQ cannot be armed: %s",
					 cq->ctx->device[physical->device]->name,
					 strerror(ret));
		physical->armed = true;
	}
	return 0;
}

int snt__cq_look(struct snt_cq *cq)
{
	struct snt__notify *notify = &cq->notify;

	if (cq->front.ready || notify->has_held)
		return 1;
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		int count = ibv_poll_cq(cq->physical[i].cq, 1, &notify->held);

		if (count < 0)
			return snt__cq_cannot_poll(cq, &cq->physical[i]);
		if (!count)
			continue;
		notify->has_held = true;
		notify->held_from = i;
		cq->front.poll = NULL;
		return 1;
	}
	return 0;
}

void snt__cq_take_event(struct snt__physical *physical)
{
	physical->armed = false;
	if (++physical->unacked >= UNACKED_MAX)
		snt__cq_ack(physical);
}
