/* SPDX-License-Identifier: MIT */
/* Ids are created and destroyed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cm.h"

static struct snt__link all = { &all, &all };

struct snt__preload_id *snt__preload_id_alloc(struct snt__preload_channel *channel,
					      void *context, enum rdma_port_space ps)
{
	struct snt__preload_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->rdma.channel = &channel->rdma;
	id->rdma.context = context;
	id->rdma.ps = ps;
	id->rdma.qp_type = IBV_QPT_RC;
	snt__list_append(&all, &id->all);
	return id;
}

void snt__preload_id_free(struct snt__preload_id *id)
{
	snt__unlink(&id->all);
	snt__preload_retry_forget(id);
	if (id->soft)
		id->soft->cm->table->destroy(id->soft);
	free(id->qp_attr);
	free(id);
}

/* Fails if this thread holds it. */
static bool take_lock(void)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	for (unsigned tries = 0; tries < 20; tries++) {
		if (!pthread_mutex_trylock(&snt__preload_cm_lock))
			return true;
		nanosleep(&moment, NULL);
	}
	return false;
}

/* The kernel disconnects the ids of a process that ends; this does the same. */
__attribute__((destructor)) static void disconnect_all(void)
{
	if (!snt__preload_may_end() || !take_lock())
		return;
	for (struct snt__link *at = all.next; at != &all; at = at->next) {
		struct snt__preload_id *id =
			snt__container(at, struct snt__preload_id, all);

		if (id->soft)
			id->soft->cm->table->destroy(id->soft);
		id->soft = NULL;
	}
	pthread_mutex_unlock(&snt__preload_cm_lock);
}

void snt__preload_lend(struct snt__preload_id *id)
{
	struct rdma_cm_id *to = id->real;
	const struct rdma_cm_id *from = &id->rdma;

	to->qp = from->qp;
	to->send_cq_channel = from->send_cq_channel;
	to->send_cq = from->send_cq;
	to->recv_cq_channel = from->recv_cq_channel;
	to->recv_cq = from->recv_cq;
	to->srq = from->srq;
	to->pd = from->pd;
}

void snt__preload_mirror(struct snt__preload_id *id)
{
	const struct rdma_cm_id *from = id->real;
	struct rdma_cm_id *to = &id->rdma;

	to->verbs = from->verbs;
	to->qp = from->qp;
	to->route = from->route;
	to->port_num = from->port_num;
	to->send_cq_channel = from->send_cq_channel;
	to->send_cq = from->send_cq;
	to->recv_cq_channel = from->recv_cq_channel;
	to->recv_cq = from->recv_cq;
	to->srq = from->srq;
	to->pd = from->pd;
	to->qp_type = from->qp_type;
}

void snt__preload_drop_real(struct snt__preload_id *id)
{
	if (id->real)
		snt__real()->rdma_destroy_id(id->real);
	id->real = NULL;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id_out,
		   void *context, enum rdma_port_space ps)
{
	struct rdma_event_channel *own = NULL;
	struct snt__preload_channel *on;
	struct snt__preload_id *id;

	if (BYPASSED())
		return snt__real()->rdma_create_id(channel, id_out, context, ps);
	if (!channel)
		channel = own = rdma_create_event_channel();
	if (!channel)
		return -1;
	on = snt__preload_channel(channel);
	pthread_mutex_lock(&snt__preload_cm_lock);
	id = snt__preload_id_alloc(on, context, ps);
	pthread_mutex_unlock(&snt__preload_cm_lock);
	if (!id)
		goto err_channel;
	id->sync = own;
	if (on->real && snt__real()->rdma_create_id(on->real, &id->real, id, ps))
		goto err_free;
	*id_out = &id->rdma;
	return 0;

err_free:
	pthread_mutex_lock(&snt__preload_cm_lock);
	snt__preload_id_free(id);
	pthread_mutex_unlock(&snt__preload_cm_lock);
err_channel:
	if (own)
		rdma_destroy_event_channel(own);
	return -1;
}

/* Waits for threads that have taken an event of the id. */
static void end_id(struct snt__preload_id *id)
{
	pthread_mutex_lock(&snt__preload_cm_lock);
	snt__preload_purge(id);
	while (id->events_taken)
		pthread_cond_wait(&snt__preload_cm_acked, &snt__preload_cm_lock);
	/* An event that was queued meanwhile. */
	snt__preload_purge(id);
	snt__preload_id_free(id);
	pthread_mutex_unlock(&snt__preload_cm_lock);
}

int rdma_destroy_id(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	struct rdma_event_channel *own;

	if (BYPASSED())
		return snt__real()->rdma_destroy_id(rdma);
	own = id->sync ? rdma->channel : NULL;
	if (rdma->event) {
		rdma_ack_cm_event(rdma->event);
		rdma->event = NULL;
	}
	if (id->real)
		snt__preload_lend(id);
	snt__preload_drop_real(id);
	end_id(id);
	if (own)
		rdma_destroy_event_channel(own);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *rdma, struct rdma_event_channel *channel)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	struct rdma_event_channel *left = NULL, *own = NULL;
	struct snt__preload_channel *to;

	if (BYPASSED())
		return snt__real()->rdma_migrate_id(rdma, channel);
	if (id->sync && !channel)
		return AS_MINUS_ONE(-EINVAL);
	if (!channel)
		channel = own = rdma_create_event_channel();
	if (!channel)
		return -1;
	to = snt__preload_channel(channel);
	/* librdmacm waits until all events are acknowledged. */
	if (id->sync && rdma->event) {
		rdma_ack_cm_event(rdma->event);
		rdma->event = NULL;
	}
	if (id->real && snt__real()->rdma_migrate_id(id->real, to->real)) {
		if (own)
			rdma_destroy_event_channel(own);
		return -1;
	}
	if (id->sync)
		left = rdma->channel;
	pthread_mutex_lock(&snt__preload_cm_lock);
	snt__preload_move(id, to);
	pthread_mutex_unlock(&snt__preload_cm_lock);
	id->sync = own;
	if (left)
		rdma_destroy_event_channel(left);
	return 0;
}

/* Soft ids support one option; the rest concerns features that they do not have, and is
 * accepted. */
int rdma_set_option(struct rdma_cm_id *rdma, int level, int name, void *value,
		    size_t length)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_set_option(rdma, level, name, value, length);
	if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT &&
	    length == sizeof(id->ack_timeout))
		memcpy(&id->ack_timeout, value, sizeof(id->ack_timeout));
	if (id->real)
		return snt__real()->rdma_set_option(id->real, level, name, value,
						    length);
	return 0;
}
