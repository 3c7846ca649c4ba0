/* SPDX-License-Identifier: MIT */
/*
 * There is one connection manager for all soft devices of the process. A thread takes
 * its events and queues them in the channels of their ids, because the manager has one
 * fd and programs may have many.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sennit/device.h>

#include "dev/soft/cm_address.h"
#include "cm.h"
#include "util/thread.h"

/* Per device; programs cannot choose. */
#define CONNECTIONS 4096
#define LISTENERS   256

pthread_mutex_t snt__preload_cm_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t snt__preload_cm_acked = PTHREAD_COND_INITIALIZER;

static struct snt__cm *manager;
static pid_t opened_by;
static struct ibv_pd *pds[SNT_DEVICES_MAX]; /* for programs that have none */

/*
 * Public members of ids
 */

static void set_device(struct snt__preload_id *id, unsigned device)
{
	id->rdma.verbs = snt__preload_devices().context[device];
	id->rdma.port_num = 1;
	if (!pds[device])
		snt__preload_control()->alloc_pd(id->rdma.verbs, &pds[device]);
	id->rdma.pd = pds[device];
}

static void gid_of(const struct sockaddr *address, union ibv_gid *gid_out)
{
	uint16_t port;

	snt__soft_cm_read_address(address, gid_out->raw, &port);
}

static void update_path(struct snt__preload_id *id)
{
	struct rdma_addr *route = &id->rdma.route.addr;
	struct rdma_ib_addr *address = &route->addr.ibaddr;
	struct ibv_port_attr port = { .active_mtu = IBV_MTU_1024 };

	gid_of(&route->src_addr, &address->sgid);
	gid_of(&route->dst_addr, &address->dgid);
	address->pkey = htobe16(0xffff);
	snt__preload_control()->query_port(id->rdma.verbs, 1, &port);
	id->path = (struct ibv_sa_path_rec){
		.dgid = address->dgid,
		.sgid = address->sgid,
		.hop_limit = 64,
		.reversible = 1,
		.numb_path = 1,
		.pkey = address->pkey,
		.mtu_selector = 2, /* exactly */
		.mtu = (uint8_t)port.active_mtu,
	};
	id->rdma.route.path_rec = &id->path;
	id->rdma.route.num_paths = 1;
}

void snt__preload_id_update(struct snt__preload_id *id)
{
	struct rdma_addr *address = &id->rdma.route.addr;

	id->soft->cm->table->addresses(id->soft, &address->src_storage,
				       &address->dst_storage);
	if (id->backlog)
		return; /* there may be several devices */
	set_device(id, id->soft->device);
	update_path(id);
}

void snt__preload_id_bind(struct snt__preload_id *id, unsigned device)
{
	snt__preload_cm();
	set_device(id, device);
}

/*
 * Events
 */

static void set_conn(struct snt__preload_event *event)
{
	const struct snt__cm_event *soft = &event->soft;

	event->rdma.param.conn = (struct rdma_conn_param){
		.private_data = soft->data_length ? soft->data : NULL,
		.private_data_len = soft->data_length,
		.responder_resources = soft->responder_resources,
		.initiator_depth = soft->initiator_depth,
		.rnr_retry_count = soft->rnr_retry_count,
		.srq = soft->srq,
		.qp_num = soft->qpn,
	};
}

static void translate_soft_event(struct snt__preload_event *event)
{
	struct rdma_cm_event *rdma = &event->rdma;

	switch (event->soft.type) {
	case SNT__CM_EVENT_RESOLVED:
		rdma->event = RDMA_CM_EVENT_ADDR_RESOLVED;
		return;
	case SNT__CM_EVENT_REQUEST:
		rdma->event = RDMA_CM_EVENT_CONNECT_REQUEST;
		break;
	case SNT__CM_EVENT_RESPONSE:
		rdma->event = RDMA_CM_EVENT_CONNECT_RESPONSE;
		break;
	case SNT__CM_EVENT_ESTABLISHED:
		rdma->event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	case SNT__CM_EVENT_ADDRESS:
		rdma->event = RDMA_CM_EVENT_ADDR_CHANGE;
		return;
	case SNT__CM_EVENT_REJECTED:
		rdma->event = RDMA_CM_EVENT_REJECTED;
		rdma->status = (int)event->soft.reason;
		break;
	case SNT__CM_EVENT_FAILED:
		rdma->event = event->soft.status == -ETIMEDOUT
				      ? RDMA_CM_EVENT_UNREACHABLE
				      : RDMA_CM_EVENT_CONNECT_ERROR;
		rdma->status = event->soft.status;
		return;
	case SNT__CM_EVENT_DISCONNECTED:
		rdma->event = RDMA_CM_EVENT_DISCONNECTED;
		return;
	}
	set_conn(event);
}

/* Returns whether there is an id for it now. */
static bool add_requested_id(struct snt__preload_event *event)
{
	struct snt__preload_id *listener = event->soft.listener->user;
	struct snt__preload_id *id = NULL;

	if (listener->waiting < listener->backlog)
		id = snt__preload_id_alloc(snt__preload_channel(listener->rdma.channel),
					   listener->rdma.context, listener->rdma.ps);
	if (!id) {
		event->soft.id->cm->table->destroy(event->soft.id);
		return false;
	}
	listener->waiting++;
	id->is_soft = true;
	id->soft = event->soft.id;
	id->soft->user = id;
	event->rdma.listen_id = &listener->rdma;
	event->owner = listener;
	return true;
}

static void queue_for_id(struct snt__preload_event *event)
{
	struct snt__preload_id *id = event->soft.id->user;

	event->rdma.id = &id->rdma;
	if (!event->owner)
		event->owner = id;
	if (event->soft.type == SNT__CM_EVENT_RESOLVED ||
	    event->soft.type == SNT__CM_EVENT_REQUEST)
		snt__preload_id_update(id);
	translate_soft_event(event);
	snt__preload_queue(snt__preload_channel(id->rdma.channel), event);
}

/* Takes ownership of the event. */
static void deliver_soft_event(struct snt__preload_event *event)
{
	if (event->soft.type == SNT__CM_EVENT_REQUEST && !add_requested_id(event)) {
		free(event);
		return;
	}
	if (snt__preload_retry_resolved(event)) {
		free(event);
		return;
	}
	if (snt__preload_retry(event))
		return;
	snt__preload_retry_forget(event->soft.id->user);
	queue_for_id(event);
}

/* Returns the time until the next retry in ms; -1: for ever. */
static int deliver_all(struct snt__cm *cm)
{
	int timeout = -1;

	for (;;) {
		struct snt__preload_event *event = calloc(1, sizeof(*event));

		if (!event)
			return 10;
		if (cm->table->next_event(cm, &event->soft)) {
			free(event);
			break;
		}
		deliver_soft_event(event);
	}
	for (;;) {
		struct snt__preload_event *refused = snt__preload_retry_due(&timeout);

		if (!refused)
			return timeout;
		queue_for_id(refused);
	}
}

static void *take_events(void *arg)
{
	struct snt__cm *cm = arg;
	struct pollfd wait = { .fd = cm->table->fd(cm), .events = POLLIN };
	int timeout = -1;

	for (;;) {
		poll(&wait, 1, timeout);
		pthread_mutex_lock(&snt__preload_cm_lock);
		timeout = deliver_all(cm);
		pthread_mutex_unlock(&snt__preload_cm_lock);
	}
	return NULL;
}

/*
 * Opening
 */

static int open_manager(void)
{
	struct snt__preload_devices devices = snt__preload_devices();
	struct snt__cm_device on[SNT_DEVICES_MAX];
	struct snt__cm_opts opts = {
		.devices = on,
		.device_count = devices.count,
		.connection_max = CONNECTIONS,
		.listener_max = LISTENERS,
	};
	int ret;

	for (unsigned i = 0; i < devices.count; i++)
		on[i] = (struct snt__cm_device){ devices.context[i], 1 };
	if (!devices.count)
		return -ENODEV;
	ret = snt__preload_control()->cm->open(&opts, &manager);
	if (ret)
		return ret;
	ret = snt__thread_start(NULL, "for events of connections", take_events,
				manager);
	if (ret) {
		manager->table->close(manager);
		manager = NULL;
	}
	return ret;
}

/* A child of the process has its own devices, and a manager for them. */
struct snt__cm *snt__preload_cm(void)
{
	int ret;

	if (opened_by != getpid()) {
		opened_by = getpid();
		manager = NULL;
		memset(pds, 0, sizeof(pds));
	}
	if (manager)
		return manager;
	ret = open_manager();
	return AS_POINTER(ret, manager);
}
