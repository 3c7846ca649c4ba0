/* SPDX-License-Identifier: MIT */
#include "dev/soft/cq.h"

#include <errno.h>

#include "dev/soft/core.h"

/*
 * Channels
 */

static struct snt__soft_channel *channel_of(struct ibv_comp_channel *channel)
{
	return snt__container(channel, struct snt__soft_channel, ibv);
}

int snt__soft_create_channel(struct ibv_context *context,
			     struct ibv_comp_channel **channel_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	struct snt__soft_channel *channel;
	int err;

	channel = snt__soft_alloc(1, sizeof(*channel));
	if (!channel)
		return -ENOMEM;
	err = snt__soft_bell_open(&channel->bell);
	if (err) {
		snt__soft_free(channel);
		return err;
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel->bell.fd;
	snt__list_init(&channel->cqs);
	snt__soft_lock(device);
	snt__soft_context_count(context, 1);
	snt__soft_unlock(device);
	*channel_out = &channel->ibv;
	return 0;
}

int snt__soft_destroy_channel(struct ibv_comp_channel *ibv_channel)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_channel->context);
	struct snt__soft_channel *channel = channel_of(ibv_channel);
	bool busy;

	snt__soft_lock(device);
	busy = channel->users;
	if (!busy)
		snt__soft_context_count(ibv_channel->context, -1);
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	snt__soft_bell_close(&channel->bell);
	snt__soft_free(channel);
	return 0;
}

static void unlink_ready(struct snt__soft_channel *channel, struct snt__soft_cq *cq)
{
	snt__unlink(&cq->ready);
	if (snt__list_empty(&channel->cqs))
		snt__soft_bell_quiet(&channel->bell);
}

static void disarm_cq(struct snt__soft_cq *cq)
{
	cq->object.device->armed_count -= cq->armed != SNT__SOFT_ARMED_NOT;
	cq->armed = SNT__SOFT_ARMED_NOT;
}

static void cq_event(struct snt__soft_cq *cq)
{
	struct snt__soft_channel *channel;

	if (!cq->ibv.channel)
		return;
	channel = channel_of(cq->ibv.channel);
	if (!cq->events++)
		snt__list_append(&channel->cqs, &cq->ready);
	if (!channel->muted)
		snt__soft_bell_ring(&channel->bell);
}

void snt__soft_channel_mute(struct ibv_comp_channel *channel, bool muted)
{
	if (channel)
		channel_of(channel)->muted = muted;
}

static struct snt__soft_cq *take_cq_event(struct snt__soft_channel *channel)
{
	struct snt__soft_cq *cq;

	if (snt__list_empty(&channel->cqs))
		return NULL;
	cq = snt__container(channel->cqs.next, struct snt__soft_cq, ready);
	cq->events_taken++;
	unlink_ready(channel, cq);
	if (--cq->events) {
		snt__list_append(&channel->cqs, &cq->ready);
		snt__soft_bell_ring(&channel->bell);
	}
	return cq;
}

/* An event that comes while this thread looks has rung by the time that it sleeps. */
int snt__soft_take_cq_event(struct ibv_comp_channel *ibv_channel,
			    struct ibv_cq **cq_out, void **cq_context_out)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_channel->context);
	struct snt__soft_cq *cq;

	snt__soft_lock(device);
	cq = take_cq_event(channel_of(ibv_channel));
	snt__soft_unlock(device);
	if (!cq)
		return -EAGAIN;
	*cq_out = &cq->ibv;
	*cq_context_out = cq->ibv.cq_context;
	return 0;
}

int snt__soft_get_cq_event(struct ibv_comp_channel *ibv_channel, struct ibv_cq **cq_out,
			   void **cq_context_out)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_channel->context);
	int err = 0;

	while (!err &&
	       snt__soft_take_cq_event(ibv_channel, cq_out, cq_context_out) == -EAGAIN)
		err = snt__soft_bell_wait(device, &channel_of(ibv_channel)->bell);
	return err;
}

void snt__soft_ack_cq_events(struct ibv_cq *ibv_cq, unsigned count)
{
	struct snt__soft_cq *cq = snt__soft_cq(ibv_cq);

	snt__soft_lock(cq->object.device);
	if (count > cq->events_taken - cq->events_acked)
		count = cq->events_taken - cq->events_acked;
	cq->events_acked += count;
	snt__soft_unlock(cq->object.device);
}

/*
 * Queues
 */

static struct snt__soft_cq *alloc_cq(unsigned cqe)
{
	struct snt__soft_cq *cq = snt__soft_alloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->mask = snt__soft_ring_size(cqe) - 1;
	cq->ring = snt__soft_alloc((size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		snt__soft_free(cq);
		return NULL;
	}
	return cq;
}

/* Adds the CQ to the device's. */
static int enter_cq(struct snt__soft_device *device, struct snt__soft_cq *cq)
{
	int err = 0;

	snt__soft_lock(device);
	if (device->dead) {
		err = -EIO;
	} else if (device->cq_count == device->limits.cq_max) {
		err = -ENOMEM;
	} else {
		device->cq_count++;
		snt__soft_context_count(cq->ibv.context, 1);
		if (cq->ibv.channel)
			channel_of(cq->ibv.channel)->users++;
	}
	snt__soft_unlock(device);
	return err;
}

static void free_cq(struct snt__soft_cq *cq)
{
	snt__soft_free(cq->ring);
	snt__soft_free(cq);
}

int snt__soft_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			struct ibv_comp_channel *channel, int vector,
			struct ibv_cq **cq_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	struct snt__soft_cq *cq;
	int err;

	if (cqe < 1 || (unsigned)cqe > device->limits.cqe_max || vector < 0 ||
	    vector >= context->num_comp_vectors ||
	    (channel && channel->context != context))
		return -EINVAL;
	cq = alloc_cq(cqe);
	if (!cq)
		return -ENOMEM;
	cq->object.device = device;
	cq->object.context = snt__soft_context_of(context);
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	err = enter_cq(device, cq);
	if (err) {
		free_cq(cq);
		return err;
	}
	*cq_out = &cq->ibv;
	return 0;
}

int snt__soft_destroy_cq(struct ibv_cq *ibv_cq)
{
	struct snt__soft_cq *cq = snt__soft_cq(ibv_cq);
	struct snt__soft_device *device = cq->object.device;
	bool busy;

	snt__soft_lock(device);
	busy = snt__soft_object_busy(&cq->object) ||
	       cq->events_taken != cq->events_acked;
	if (!busy) {
		snt__soft_forget(&cq->object);
		disarm_cq(cq);
		if (ibv_cq->channel) {
			unlink_ready(channel_of(ibv_cq->channel), cq);
			channel_of(ibv_cq->channel)->users--;
		}
		device->cq_count--;
		snt__soft_context_count(ibv_cq->context, -1);
	}
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	free_cq(cq);
	return 0;
}

void snt__soft_cq_push(struct snt__soft_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	uint32_t tail = cq->tail;

	if (tail - cq->head == (uint32_t)cq->ibv.cqe) {
		cq->object.device->stats.cq_overruns++;
		if (!cq->overrun)
			snt__soft_raise(&cq->object, IBV_EVENT_CQ_ERR);
		cq->overrun = true;
		return;
	}
	cq->ring[tail & cq->mask] = *wc;
	__atomic_store_n(&cq->tail, tail + 1, __ATOMIC_RELEASE);
	if (cq->armed == SNT__SOFT_ARMED_NOT)
		return;
	if (cq->armed == SNT__SOFT_ARMED_SOLICITED && !solicited &&
	    wc->status == IBV_WC_SUCCESS)
		return;
	disarm_cq(cq);
	cq_event(cq);
}

int snt__soft_poll_cq(struct ibv_cq *ibv_cq, int max, struct ibv_wc *wc)
{
	struct snt__soft_cq *cq = snt__soft_cq(ibv_cq);
	struct snt__soft_device *device = cq->object.device;
	int count = 0;

	if (device->driver->progress)
		device->driver->progress(device->driver_arg);
	if (__atomic_load_n(&cq->tail, __ATOMIC_RELAXED) ==
	    __atomic_load_n(&cq->head, __ATOMIC_RELAXED))
		return 0;
	snt__soft_lock(device);
	while (count < max && cq->head != cq->tail) {
		wc[count++] = cq->ring[cq->head & cq->mask];
		__atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELAXED);
	}
	snt__soft_unlock(device);
	return count;
}

/* The wider of two requests holds, in either order. */
int snt__soft_req_notify_cq(struct ibv_cq *ibv_cq, int solicited_only)
{
	struct snt__soft_cq *cq = snt__soft_cq(ibv_cq);
	struct snt__soft_device *device = cq->object.device;
	uint8_t armed =
		solicited_only ? SNT__SOFT_ARMED_SOLICITED : SNT__SOFT_ARMED_ALL;

	snt__soft_lock(device);
	device->armed_count += cq->armed == SNT__SOFT_ARMED_NOT;
	if (cq->armed < armed)
		cq->armed = armed;
	snt__soft_unlock(device);
	if (device->driver->arm)
		device->driver->arm(device->driver_arg);
	return 0;
}
