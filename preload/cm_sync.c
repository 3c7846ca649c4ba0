/* SPDX-License-Identifier: MIT */
/* Synchronous ids, which wait for each event themselves, and the functions built on
 * them. */
#include <errno.h>
#include <stdlib.h>

#include "cm.h"

static void drop_event(struct rdma_cm_id *rdma)
{
	if (rdma->event)
		rdma_ack_cm_event(rdma->event);
	rdma->event = NULL;
}

static int event_error(const struct rdma_cm_event *event)
{
	if (!event->status)
		return 0;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	return event->status < 0 ? event->status : -event->status;
}

int snt__preload_complete(struct snt__preload_id *id)
{
	struct rdma_cm_id *rdma = &id->rdma;

	if (!id->sync)
		return 0;
	drop_event(rdma);
	if (rdma_get_cm_event(rdma->channel, &rdma->event))
		return -1;
	return AS_MINUS_ONE(event_error(rdma->event));
}

/* The new id becomes synchronous as well; it keeps the event for its data. */
static int settle_request(struct snt__preload_id *listener, struct rdma_cm_event *event)
{
	struct ibv_qp_init_attr attr;
	int ret = AS_MINUS_ONE(event_error(event));

	if (ret)
		return ret;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return AS_MINUS_ONE(-EINVAL);
	ret = rdma_migrate_id(event->id, NULL);
	if (!ret && listener->qp_attr) {
		attr = *listener->qp_attr;
		ret = rdma_create_qp(event->id, listener->qp_pd, &attr);
	}
	if (!ret)
		event->id->event = event;
	return ret;
}

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **id_out)
{
	struct rdma_cm_event *event;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_get_request(listener, id_out);
	if (!snt__preload_id(listener)->sync)
		return AS_MINUS_ONE(-EINVAL);
	drop_event(listener);
	if (rdma_get_cm_event(listener->channel, &event))
		return -1;
	ret = settle_request(snt__preload_id(listener), event);
	if (ret)
		listener->event = event;
	else
		*id_out = event->id;
	return ret;
}

/*
 * End points
 */

static int resolve_endpoint(struct rdma_cm_id *id, const struct rdma_addrinfo *info)
{
	int ret = rdma_resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, 2000);

	return ret ? ret : rdma_resolve_route(id, 2000);
}

/* Keeps the attributes for the QPs of ids that will connect. */
static int keep_attr(struct snt__preload_id *id, struct ibv_pd *pd,
		     const struct ibv_qp_init_attr *attr)
{
	if (!attr)
		return 0;
	id->qp_attr = malloc(sizeof(*attr));
	if (!id->qp_attr)
		return -1;
	*id->qp_attr = *attr;
	id->qp_pd = pd;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **id_out, struct rdma_addrinfo *info,
		   struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_create_ep(id_out, info, pd, attr);
	ret = rdma_create_id(NULL, &id, NULL,
			     (enum rdma_port_space)info->ai_port_space);
	if (ret)
		return ret;
	if (attr)
		attr->qp_type = (enum ibv_qp_type)info->ai_qp_type;
	if (info->ai_flags & RAI_PASSIVE) {
		ret = rdma_bind_addr(id, info->ai_src_addr);
		if (!ret)
			ret = keep_attr(snt__preload_id(id), pd, attr);
	} else {
		ret = resolve_endpoint(id, info);
		if (!ret && attr)
			ret = rdma_create_qp(id, pd, attr);
	}
	if (ret) {
		int error = errno;

		rdma_destroy_id(id);
		errno = error;
		return ret;
	}
	*id_out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (BYPASSED()) {
		snt__real()->rdma_destroy_ep(id);
		return;
	}
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}
