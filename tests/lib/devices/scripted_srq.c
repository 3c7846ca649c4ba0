/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include "scripted_internal.h"

int scripted__recv_queue_init(struct scripted_recv_queue *queue, unsigned depth,
			      unsigned sge_max)
{
	unsigned i;

	queue->depth = depth;
	queue->sge_max = sge_max;
	/* One more than needed: calloc() of nothing may be NULL. */
	queue->slots = calloc(depth + 1, sizeof(*queue->slots));
	queue->sges = calloc((size_t)depth * sge_max + 1, sizeof(*queue->sges));
	if (!queue->slots || !queue->sges) {
		scripted__recv_queue_finish(queue);
		return -ENOMEM;
	}
	for (i = 0; i < depth; i++)
		queue->slots[i].sge = &queue->sges[(size_t)i * sge_max];
	return 0;
}

void scripted__recv_queue_finish(struct scripted_recv_queue *queue)
{
	free(queue->slots);
	free(queue->sges);
}

int scripted__create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
			 struct ibv_srq **srq_out)
{
	struct scripted_device *device = scripted__device(pd->context);
	const struct scripted_device_opts *limits = &device->limits;
	struct scripted_srq *srq;
	unsigned depth;

	CONTROL_ENTER(device);
	if (attr->attr.max_wr > (unsigned)limits->srq_wr_max ||
	    attr->attr.max_sge > (unsigned)limits->sge_max)
		return -EINVAL;
	if (device->live[SCRIPTED_SRQ] == (unsigned)limits->srq_max)
		return -ENOMEM;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	depth = scripted__grant(device, attr->attr.max_wr, limits->srq_wr_max);
	if (scripted__recv_queue_init(&srq->queue, depth, attr->attr.max_sge)) {
		free(srq);
		return -ENOMEM;
	}
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	scripted__pd(pd)->object.users++;
	scripted__object_add(device, &srq->object, SCRIPTED_SRQ);
	attr->attr.max_wr = depth;
	*srq_out = &srq->ibv;
	return 0;
}

/* Only the limit; a queue that is there does not change its depth. */
int scripted__modify_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr, int mask)
{
	struct scripted_srq *srq = scripted__srq(ibv_srq);

	CONTROL_ENTER(srq->object.device);
	if (mask & ~IBV_SRQ_LIMIT)
		return -EINVAL;
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit > srq->queue.depth)
			return -EINVAL;
		srq->limit = attr->srq_limit;
	}
	return 0;
}

int scripted__query_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr_out)
{
	struct scripted_srq *srq = scripted__srq(ibv_srq);

	CONTROL_ENTER(srq->object.device);
	attr_out->max_wr = srq->queue.depth;
	attr_out->max_sge = srq->queue.sge_max;
	attr_out->srq_limit = srq->limit;
	return 0;
}

/* A receive was taken; tells once when fewer than the limit are left. */
void scripted__srq_consumed(struct scripted_srq *srq)
{
	struct ibv_async_event event = {
		.element.srq = &srq->ibv,
		.event_type = IBV_EVENT_SRQ_LIMIT_REACHED,
	};

	if (srq->queue.tail - srq->queue.head >= srq->limit)
		return;
	srq->limit = 0;
	scripted_raise(srq->object.device, event);
}

void scripted__srq_free(struct scripted_srq *srq)
{
	scripted__recv_queue_finish(&srq->queue);
	free(srq);
}

int scripted__destroy_srq(struct ibv_srq *ibv_srq)
{
	struct scripted_srq *srq = scripted__srq(ibv_srq);
	struct scripted_device *device = srq->object.device;
	struct scripted_object *object;

	CONTROL_ENTER(device);
	if (scripted__object_busy(&srq->object))
		return -EBUSY;
	for (object = device->objects[SCRIPTED_CQ]; object; object = object->next)
		scripted__cq_forget_recv(container_of(object, struct scripted_cq,
						      object),
					 &srq->queue);
	scripted__async_forget(&srq->object);
	scripted__pd(ibv_srq->pd)->object.users--;
	scripted__object_remove(&srq->object);
	scripted__srq_free(srq);
	return 0;
}
