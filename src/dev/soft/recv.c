/* SPDX-License-Identifier: MIT */
#include "dev/soft/recv.h"

#include <errno.h>
#include <string.h>

#include "dev/soft/core.h"

int snt__soft_recv_queue_init(struct snt__soft_recv_queue *queue, struct ibv_pd *pd,
			      unsigned depth, unsigned sge_max)
{
	uint32_t slots = snt__soft_ring_size(depth);

	queue->slots = snt__soft_alloc(slots, sizeof(*queue->slots));
	queue->sges = snt__soft_alloc((size_t)slots * sge_max, sizeof(*queue->sges));
	if (!queue->slots || !queue->sges) {
		snt__soft_recv_queue_finish(queue);
		return -ENOMEM;
	}
	queue->pd = pd;
	queue->mask = slots - 1;
	queue->depth = depth;
	queue->sge_max = sge_max;
	return 0;
}

void snt__soft_recv_queue_finish(struct snt__soft_recv_queue *queue)
{
	snt__soft_free(queue->slots);
	snt__soft_free(queue->sges);
}

static struct ibv_sge *slot_sges(struct snt__soft_recv_queue *queue, uint32_t position)
{
	return &queue->sges[(size_t)(position & queue->mask) * queue->sge_max];
}

bool snt__soft_recv_take(struct snt__soft_recv_queue *queue,
			 struct snt__soft_recv *recv)
{
	const struct snt__soft_recv_slot *slot;
	uint32_t i;

	if (queue->head == queue->tail)
		return false;
	slot = &queue->slots[queue->head & queue->mask];
	recv->taken = true;
	recv->wr_id = slot->wr_id;
	recv->sge_count = slot->sge_count;
	recv->cursor = (struct snt__soft_cursor){ 0 };
	recv->room = 0;
	for (i = 0; i < slot->sge_count; i++) {
		recv->sges[i] = slot_sges(queue, queue->head)[i];
		recv->room += recv->sges[i].length;
	}
	queue->head++;
	return true;
}

static int add_recv(struct snt__soft_recv_queue *queue, const struct ibv_recv_wr *wr)
{
	struct snt__soft_recv_slot *slot = &queue->slots[queue->tail & queue->mask];

	if (wr->num_sge < 0 || (unsigned)wr->num_sge > queue->sge_max)
		return EINVAL;
	if (queue->tail - queue->head == queue->depth)
		return ENOMEM;
	slot->wr_id = wr->wr_id;
	slot->sge_count = wr->num_sge;
	if (wr->num_sge)
		memcpy(slot_sges(queue, queue->tail), wr->sg_list,
		       wr->num_sge * sizeof(*wr->sg_list));
	queue->tail++;
	return 0;
}

int snt__soft_recv_add(struct snt__soft_recv_queue *queue, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		int error = add_recv(queue, wr);

		if (error) {
			*bad_wr = wr;
			return error;
		}
	}
	return 0;
}

/*
 * Shared receive queues
 */

void snt__soft_srq_taken(struct snt__soft_srq *srq)
{
	if (srq->queue.tail - srq->queue.head >= srq->limit)
		return;
	srq->limit = 0;
	snt__soft_raise(&srq->object, IBV_EVENT_SRQ_LIMIT_REACHED);
}

static int enter_srq(struct snt__soft_device *device, struct ibv_pd *pd)
{
	int err = 0;

	snt__soft_lock(device);
	if (device->dead) {
		err = -EIO;
	} else if (device->srq_count == device->limits.srq_max) {
		err = -ENOMEM;
	} else {
		device->srq_count++;
		device->object_count++;
		snt__soft_pd(pd)->users++;
	}
	snt__soft_unlock(device);
	return err;
}

static void free_srq(struct snt__soft_srq *srq)
{
	snt__soft_recv_queue_finish(&srq->queue);
	snt__soft_free(srq);
}

int snt__soft_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
			 struct ibv_srq **srq_out)
{
	struct snt__soft_device *device = snt__soft_device_of(pd->context);
	struct snt__soft_srq *srq;
	int err;

	if (attr->attr.max_wr < 1 || attr->attr.max_wr > device->limits.srq_wr_max ||
	    attr->attr.max_sge > SNT__SOFT_SGE_MAX)
		return -EINVAL;
	srq = snt__soft_alloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	err = snt__soft_recv_queue_init(&srq->queue, pd, attr->attr.max_wr,
					attr->attr.max_sge);
	if (err) {
		snt__soft_free(srq);
		return err;
	}
	srq->object.device = device;
	srq->object.context = snt__soft_context_of(pd->context);
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	err = enter_srq(device, pd);
	if (err) {
		free_srq(srq);
		return err;
	}
	*srq_out = &srq->ibv;
	return 0;
}

/* Changes only the limit; a queue's depth is fixed. */
int snt__soft_modify_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr, int mask)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_srq->context);
	struct snt__soft_srq *srq = snt__soft_srq(ibv_srq);
	int err = 0;

	snt__soft_lock(device);
	if (device->dead)
		err = -EIO;
	else if ((mask & ~IBV_SRQ_LIMIT) || attr->srq_limit > srq->queue.depth)
		err = -EINVAL;
	else if (mask)
		srq->limit = attr->srq_limit;
	snt__soft_unlock(device);
	return err;
}

int snt__soft_query_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr_out)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_srq->context);
	struct snt__soft_srq *srq = snt__soft_srq(ibv_srq);

	snt__soft_lock(device);
	attr_out->max_wr = srq->queue.depth;
	attr_out->max_sge = srq->queue.sge_max;
	attr_out->srq_limit = srq->limit;
	snt__soft_unlock(device);
	return 0;
}

int snt__soft_destroy_srq(struct ibv_srq *ibv_srq)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_srq->context);
	struct snt__soft_srq *srq = snt__soft_srq(ibv_srq);
	bool busy;

	snt__soft_lock(device);
	busy = snt__soft_object_busy(&srq->object);
	if (!busy) {
		snt__soft_forget(&srq->object);
		snt__soft_pd(ibv_srq->pd)->users--;
		device->srq_count--;
		device->object_count--;
	}
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	free_srq(srq);
	return 0;
}

int snt__soft_post_srq_recv(struct ibv_srq *ibv_srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_srq->context);
	int error;

	snt__soft_lock(device);
	error = snt__soft_recv_add(&snt__soft_srq(ibv_srq)->queue, wr, bad_wr);
	snt__soft_unlock(device);
	return error;
}
