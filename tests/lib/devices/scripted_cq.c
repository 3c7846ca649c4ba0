/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include "scripted_internal.h"

int scripted__create_cq(struct ibv_context *context, int cqe, void *cq_context,
			struct ibv_comp_channel *channel, int vector,
			struct ibv_cq **cq_out)
{
	struct scripted_device *device = scripted__device(context);
	struct scripted_cq *cq;

	CONTROL_ENTER(device);
	if (cqe < 1 || cqe > device->limits.cqe_max || vector < 0 ||
	    vector >= context->num_comp_vectors ||
	    (channel && channel->context != context))
		return -EINVAL;
	if (device->live[SCRIPTED_CQ] == (unsigned)device->limits.cq_max)
		return -ENOMEM;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->ibv.cqe = scripted__grant(device, cqe, device->limits.cqe_max);
	cq->ring = calloc(cq->ibv.cqe, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->vector = vector;
	if (channel)
		container_of(channel, struct scripted_channel, ibv)->object.users++;
	scripted__object_add(device, &cq->object, SCRIPTED_CQ);
	*cq_out = &cq->ibv;
	return 0;
}

int scripted_cq_vector(struct ibv_cq *cq)
{
	return scripted__cq(cq)->vector;
}

void scripted__cq_free(struct scripted_cq *cq)
{
	free(cq->ring);
	free(cq);
}

int scripted__destroy_cq(struct ibv_cq *ibv_cq)
{
	struct scripted_cq *cq = scripted__cq(ibv_cq);
	struct ibv_comp_channel *channel = ibv_cq->channel;

	CONTROL_ENTER(cq->object.device);
	if (scripted__object_busy(&cq->object))
		return -EBUSY;
	if (cq->events_taken != cq->events_acked) {
		cq->object.device->faults |= SCRIPTED_FAULT_DESTROY_BUSY;
		return -EBUSY;
	}
	scripted__cq_events_forget(cq);
	scripted__async_forget(&cq->object);
	if (channel)
		container_of(channel, struct scripted_channel, ibv)->object.users--;
	scripted__object_remove(&cq->object);
	scripted__cq_free(cq);
	return 0;
}

/*
 * Notification
 */

/* Tells of CQEs that have become visible, once per arming. */
static void cq_notify(struct scripted_cq *cq, bool solicited)
{
	if (!cq->armed && !(cq->armed_solicited && solicited))
		return;
	cq->armed = false;
	cq->armed_solicited = false;
	scripted__cq_event(cq);
}

int scripted__req_notify_cq(struct ibv_cq *ibv_cq, int solicited_only)
{
	struct scripted_cq *cq = scripted__cq(ibv_cq);

	/* The wider of two requests holds, in whichever order they came. */
	if (solicited_only)
		cq->armed_solicited = true;
	else
		cq->armed = true;
	return 0;
}

void scripted_hold_cq(struct ibv_cq *ibv_cq, bool hold)
{
	struct scripted_cq *cq = scripted__cq(ibv_cq);

	cq->held = hold;
	if (hold || !cq->held_news)
		return;
	cq_notify(cq, cq->held_solicited_news);
	cq->held_news = false;
	cq->held_solicited_news = false;
}

/*
 * CQEs
 */

static struct scripted_cqe *cqe_at(struct scripted_cq *cq, uint64_t position)
{
	return &cq->ring[position % cq->ibv.cqe];
}

static void cq_overrun(struct scripted_cq *cq)
{
	struct ibv_async_event event = {
		.element.cq = &cq->ibv,
		.event_type = IBV_EVENT_CQ_ERR,
	};

	cq->object.device->faults |= SCRIPTED_FAULT_CQ_OVERRUN;
	if (cq->overruns++ == 0)
		scripted_raise(cq->object.device, event);
}

void scripted__cq_push(struct scripted_cq *cq, const struct scripted_cqe *cqe,
		       bool solicited)
{
	if (cq->tail - cq->head == (uint64_t)cq->ibv.cqe) {
		cq_overrun(cq);
		return;
	}
	*cqe_at(cq, cq->tail++) = *cqe;
	cq->object.device->counters.cqes++;
	cqe->owner->counters.cqes++;
	/* Errors count as solicited. */
	solicited |= cqe->wc.status != IBV_WC_SUCCESS;
	if (cq->held) {
		cq->held_news = true;
		cq->held_solicited_news |= solicited;
	} else {
		cq_notify(cq, solicited);
	}
}

/* Gives back the queue slots that the program now knows to be done. */
static void cqe_retire(const struct scripted_cqe *cqe)
{
	if (cqe->recv)
		cqe->recv->freed++;
	else if (cqe->owner)
		cqe->owner->send.freed = cqe->send_retired;
}

int scripted__poll_cq(struct ibv_cq *ibv_cq, int num_entries, struct ibv_wc *wc)
{
	struct scripted_cq *cq = scripted__cq(ibv_cq);
	int count;

	cq->object.device->counters.polls++;
	if (cq->fail_poll && --cq->fail_poll == 0)
		return -1;
	if (cq->held)
		return 0;
	if (cq->poll_limit && num_entries > cq->poll_limit)
		num_entries = cq->poll_limit;
	for (count = 0; count < num_entries && cq->head < cq->tail; count++) {
		struct scripted_cqe *cqe = cqe_at(cq, cq->head++);

		cqe_retire(cqe);
		wc[count] = cqe->wc;
	}
	return count;
}

/* Either way of treating the CQEs of a QP that is reset or destroyed is legal for
 * a device: take them away, or leave them as orphans that free no slots. */
void scripted__cq_forget_qp(struct scripted_cq *cq, struct scripted_qp *qp)
{
	uint64_t from, to = cq->head;

	for (from = cq->head; from < cq->tail; from++) {
		struct scripted_cqe cqe = *cqe_at(cq, from);

		if (cqe.owner == qp) {
			if (qp->object.device->limits.purge_cqes) {
				cqe_retire(&cqe);
				continue;
			}
			cqe.owner = NULL;
			if (cqe.recv == &qp->recv)
				cqe.recv = NULL;
		}
		*cqe_at(cq, to++) = cqe;
	}
	cq->tail = to;
}

void scripted__cq_forget_recv(struct scripted_cq *cq,
			      const struct scripted_recv_queue *recv)
{
	uint64_t i;

	for (i = cq->head; i < cq->tail; i++) {
		if (cqe_at(cq, i)->recv == recv)
			cqe_at(cq, i)->recv = NULL;
	}
}

void scripted_poll_limit(struct ibv_cq *cq, int limit)
{
	scripted__cq(cq)->poll_limit = limit;
}

void scripted_fail_poll(struct ibv_cq *cq, unsigned nth)
{
	scripted__cq(cq)->fail_poll = nth;
}

unsigned scripted_cq_overruns(struct ibv_cq *cq)
{
	return scripted__cq(cq)->overruns;
}
