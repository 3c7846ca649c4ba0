/* SPDX-License-Identifier: MIT */
#include "lib/devices/verbs_fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fault.h"

static struct fake_device devices[FAKE_DEVICES_MAX];
static struct ibv_device *list[FAKE_DEVICES_MAX + 1];
static unsigned device_count;
static unsigned live, opens;
static int no_support;

/* Failure as three kinds of verbs calls report it. */
static int fails_null(const char *call)
{
	if (!fault_now(call))
		return 0;
	errno = FAKE_ERRNO;
	return 1;
}

static int fails_positive(const char *call)
{
	return fault_now(call) ? FAKE_ERRNO : 0;
}

void fake_reset(void)
{
	memset(devices, 0, sizeof(devices));
	device_count = 0;
	live = 0;
	opens = 0;
	no_support = 0;
	fault_arm(0);
}

void fake_no_support(void)
{
	no_support = 1;
}

unsigned fake_live(void)
{
	return live;
}

unsigned fake_opens(void)
{
	return opens;
}

void fake_set_gid(struct fake_port *port, unsigned index, unsigned type,
		  const char *address)
{
	struct ibv_gid_entry *entry = &port->gid[index];

	while (port->gid_count <= index)
		port->gid[port->gid_count++].gid_type = -1;
	memset(entry, 0, sizeof(*entry));
	entry->gid_index = index;
	entry->gid_type = type;
	if (inet_pton(AF_INET, address, entry->gid.raw + 12) == 1)
		memset(entry->gid.raw + 10, 0xff, 2);
	else
		inet_pton(AF_INET6, address, entry->gid.raw);
}

struct fake_device *fake_add(const char *name, unsigned port_count)
{
	struct fake_device *fake = &devices[device_count++];

	snprintf(fake->device.name, sizeof(fake->device.name), "%s", name);
	fake->port_count = port_count;
	for (unsigned i = 0; i < port_count; i++) {
		char address[32];

		fake->port[i].state = IBV_PORT_ACTIVE;
		fake->port[i].link_layer = IBV_LINK_LAYER_ETHERNET;
		snprintf(address, sizeof(address), "10.%u.%u.1", device_count, i + 1);
		fake_set_gid(&fake->port[i], 0, IBV_GID_TYPE_ROCE_V2, address);
	}
	return fake;
}

static struct fake_device *fake_of(struct ibv_context *context)
{
	return (struct fake_device *)context->device;
}

static void *make_object(size_t size)
{
	live++;
	return fault_exempt_alloc(size);
}

static void object_free(void *made)
{
	free(made);
	live--;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	if (no_support) {
		errno = ENOSYS;
		return NULL;
	}
	if (fails_null("ibv_get_device_list"))
		return NULL;
	for (unsigned i = 0; i < device_count; i++)
		list[i] = &devices[i].device;
	list[device_count] = NULL;
	*count = device_count;
	live++;
	return list;
}

void ibv_free_device_list(struct ibv_device **freed)
{
	live -= freed == list;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context;

	if (fails_null("ibv_open_device"))
		return NULL;
	context = make_object(sizeof(*context));
	context->device = device;
	opens++;
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	object_free(context);
	if (fails_null("ibv_close_device"))
		return -1;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->phys_port_cnt = fake_of(context)->port_count;
	attr->max_qp = 1000;
	attr->max_qp_wr = 16384;
	attr->max_sge = 30;
	attr->max_cqe = 1 << 20;
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 8;
	attr->atomic_cap = IBV_ATOMIC_HCA;
	return fails_positive("ibv_query_device");
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t number,
		   struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)compat;
	struct fake_port *port = &fake_of(context)->port[number - 1];

	if (number < 1 || number > fake_of(context)->port_count)
		return EINVAL;
	attr->state = port->state;
	attr->max_mtu = IBV_MTU_4096;
	attr->active_mtu = IBV_MTU_1024;
	attr->gid_tbl_len = port->gid_count;
	attr->max_msg_sz = 1u << 30;
	attr->active_width = 2;
	attr->active_speed = 64;
	attr->link_layer = port->link_layer;
	attr->lid = 7;
	return fails_positive("ibv_query_port");
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t number, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct fake_port *port = &fake_of(context)->port[number - 1];

	(void)flags;
	(void)size;
	if (index >= port->gid_count)
		return EINVAL;
	if (fails_positive("ibv_query_gid"))
		return FAKE_ERRNO;
	if (port->gid[index].gid_type == (uint32_t)-1)
		return ENODATA;
	*entry = port->gid[index];
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd;

	if (fails_null("ibv_alloc_pd"))
		return NULL;
	pd = make_object(sizeof(*pd));
	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (fails_positive("ibv_dealloc_pd"))
		return FAKE_ERRNO;
	object_free(pd);
	return 0;
}

static struct ibv_mr *make_mr(struct ibv_pd *pd, void *addr, size_t length)
{
	struct ibv_mr *mr = make_object(sizeof(*mr));
	unsigned which = fake_of(pd->context) - devices;

	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = 0x100 + which;
	mr->rkey = 0x200 + which;
	return mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)access;
	return fails_null("ibv_reg_mr") ? NULL : make_mr(pd, addr, length);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned access)
{
	(void)iova;
	(void)access;
	return fails_null("ibv_reg_mr") ? NULL : make_mr(pd, addr, length);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				 uint64_t iova, int fd, int access)
{
	(void)offset;
	(void)iova;
	(void)fd;
	(void)access;
	if (!fake_of(pd->context)->has_dmabuf) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return fails_null("ibv_reg_dmabuf_mr") ? NULL : make_mr(pd, NULL, length);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (fails_positive("ibv_dereg_mr"))
		return FAKE_ERRNO;
	object_free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel;

	if (fails_null("ibv_create_comp_channel"))
		return NULL;
	channel = make_object(sizeof(*channel));
	channel->context = context;
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (fails_positive("ibv_destroy_comp_channel"))
		return FAKE_ERRNO;
	object_free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq;

	(void)vector;
	if (fails_null("ibv_create_cq"))
		return NULL;
	cq = make_object(sizeof(*cq));
	cq->context = context;
	cq->cqe = cqe;
	cq->cq_context = cq_context;
	cq->channel = channel;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (fails_positive("ibv_destroy_cq"))
		return FAKE_ERRNO;
	object_free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	(void)channel;
	(void)cq;
	(void)cq_context;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	cq->comp_events_completed += count;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	if (fails_null("ibv_create_qp"))
		return NULL;
	qp = make_object(sizeof(*qp));
	qp->context = pd->context;
	qp->pd = pd;
	attr->cap.max_send_wr += 1;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return fails_positive("ibv_modify_qp");
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	(void)mask;
	(void)init_attr;
	attr->qp_state = qp->state;
	return fails_positive("ibv_query_qp");
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (fails_positive("ibv_destroy_qp"))
		return FAKE_ERRNO;
	object_free(qp);
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	(void)attr;
	if (fails_null("ibv_create_srq"))
		return NULL;
	srq = make_object(sizeof(*srq));
	srq->context = pd->context;
	return srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq;
	(void)attr;
	(void)mask;
	return fails_positive("ibv_modify_srq");
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq;
	(void)attr;
	return fails_positive("ibv_query_srq");
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (fails_positive("ibv_destroy_srq"))
		return FAKE_ERRNO;
	object_free(srq);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	(void)event;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	event->event_type = IBV_EVENT_COMM_EST;
}
