/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include "scripted_internal.h"

/* splitmix64: every seed is good, zero too. */
uint64_t scripted__random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/*
 * Objects
 */

void scripted__object_add(struct scripted_device *device,
			  struct scripted_object *object, enum scripted_kind kind)
{
	struct scripted_object **end = &device->objects[kind];

	while (*end)
		end = &(*end)->next;
	*end = object;
	object->device = device;
	object->kind = kind;
	device->live[kind]++;
}

void scripted__object_remove(struct scripted_object *object)
{
	struct scripted_device *device = object->device;
	struct scripted_object **link = &device->objects[object->kind];

	while (*link != object)
		link = &(*link)->next;
	*link = object->next;
	device->live[object->kind]--;
}

/* Whether verbs would refuse to destroy the object, or hang in trying. */
bool scripted__object_busy(struct scripted_object *object)
{
	if (!object->users && object->async_taken == object->async_acked)
		return false;
	object->device->faults |= SCRIPTED_FAULT_DESTROY_BUSY;
	return true;
}

/* Frees an object that is in no list any more. */
void scripted__object_free(struct scripted_object *object)
{
	switch (object->kind) {
	case SCRIPTED_QP:
		scripted__qp_free(container_of(object, struct scripted_qp, object));
		break;
	case SCRIPTED_SRQ:
		scripted__srq_free(container_of(object, struct scripted_srq, object));
		break;
	case SCRIPTED_CQ:
		scripted__cq_free(container_of(object, struct scripted_cq, object));
		break;
	case SCRIPTED_CHANNEL:
		scripted__channel_free(
			container_of(object, struct scripted_channel, object));
		break;
	case SCRIPTED_MR:
		scripted__mr_free(container_of(object, struct scripted_mr, object));
		break;
	case SCRIPTED_PD:
		free(container_of(object, struct scripted_pd, object));
		break;
	case SCRIPTED_KIND_COUNT:
		break;
	}
}

/*
 * Fabrics
 */

struct scripted_fabric *scripted_fabric_create(uint64_t seed)
{
	struct scripted_fabric *fabric = calloc(1, sizeof(*fabric));

	if (fabric)
		fabric->random = seed;
	return fabric;
}

static unsigned device_destroy(struct scripted_device *device)
{
	unsigned leaked = 0;
	int kind;

	for (kind = 0; kind < SCRIPTED_KIND_COUNT; kind++) {
		while (device->objects[kind]) {
			struct scripted_object *object = device->objects[kind];

			scripted__object_remove(object);
			scripted__object_free(object);
			leaked++;
		}
	}
	scripted__pipe_close(&device->async);
	free(device->keys);
	free(device);
	return leaked;
}

unsigned scripted_fabric_destroy(struct scripted_fabric *fabric)
{
	unsigned leaked = 0;

	if (!fabric)
		return 0;
	while (fabric->devices) {
		struct scripted_device *device = fabric->devices;

		fabric->devices = device->next;
		leaked += device_destroy(device);
	}
	free(fabric);
	return leaked;
}

void scripted_eager(struct scripted_fabric *fabric, bool on)
{
	fabric->eager = on;
	if (on)
		scripted__settle(fabric);
}

/*
 * Devices
 */

bool scripted__gid_empty(const struct ibv_gid_entry *entry)
{
	static const union ibv_gid none;

	return memcmp(&entry->gid, &none, sizeof(none)) == 0;
}

/* The depth a queue gets: at least what was asked for, as verbs promise. */
unsigned scripted__grant(const struct scripted_device *device, unsigned asked,
			 unsigned limit)
{
	unsigned granted = asked;

	if (device->limits.round_up && asked) {
		for (granted = 1; granted < asked;)
			granted *= 2;
	}
	return granted < limit ? granted : limit;
}

#define DEFAULT(field, value)              \
	do {                               \
		if (!(field))              \
			(field) = (value); \
	} while (0)

static void fill_limits(struct scripted_device_opts *limits)
{
	DEFAULT(limits->port_state, IBV_PORT_ACTIVE);
	DEFAULT(limits->mtu, IBV_MTU_4096);
	DEFAULT(limits->link_layer, IBV_LINK_LAYER_ETHERNET);
	DEFAULT(limits->message_max, 1u << 30);
	DEFAULT(limits->mr_size_max, UINT64_MAX);
	DEFAULT(limits->qp_max, 1024);
	DEFAULT(limits->qp_wr_max, 4096);
	DEFAULT(limits->sge_max, 16);
	DEFAULT(limits->inline_max, 256);
	DEFAULT(limits->cq_max, 256);
	DEFAULT(limits->cqe_max, 65536);
	DEFAULT(limits->mr_max, 1024);
	DEFAULT(limits->srq_max, 64);
	DEFAULT(limits->srq_wr_max, 4096);
	DEFAULT(limits->read_max, 16);
	DEFAULT(limits->pkey_max, 1);
	DEFAULT(limits->vector_max, 1);
}

static void set_gid(struct scripted_device *device, unsigned index,
		    const struct ibv_gid_entry *entry)
{
	struct ibv_gid_entry *slot = &device->gids[index];

	if (entry)
		*slot = *entry;
	else
		memset(slot, 0, sizeof(*slot));
	slot->gid_index = index;
	slot->port_num = 1;
}

static void fill_gids(struct scripted_device *device,
		      const struct scripted_device_opts *opts)
{
	struct ibv_gid_entry own = { .gid_type = IBV_GID_TYPE_ROCE_V2 };
	unsigned i;

	own.gid.raw[10] = 0xff;
	own.gid.raw[11] = 0xff;
	own.gid.raw[12] = 10;
	own.gid.raw[15] = device->ordinal;
	if (device->limits.link_layer == IBV_LINK_LAYER_INFINIBAND)
		own.gid_type = IBV_GID_TYPE_IB;
	for (i = 0; i < SCRIPTED_GID_MAX; i++)
		set_gid(device, i, NULL);
	if (!opts || !opts->gids)
		set_gid(device, 0, &own);
	for (i = 0; opts && opts->gids && i < opts->gid_count; i++)
		set_gid(device, i, &opts->gids[i]);
}

/* For programs that call ibv_query_port(), an inline verb in all but name. */
static int verbs_query_port(struct ibv_context *context, uint8_t port,
			    struct ibv_port_attr *attr, size_t attr_length)
{
	struct ibv_port_attr full;
	int err = scripted__control.query_port(context, port, &full);

	if (!err)
		memcpy(attr, &full,
		       attr_length < sizeof(full) ? attr_length : sizeof(full));
	return -err;
}

static void fill_context(struct scripted_device *device)
{
	struct ibv_context *context = &device->verbs.context;

	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	if (device->limits.name)
		snprintf(device->ibv.name, sizeof(device->ibv.name), "%s",
			 device->limits.name);
	else
		snprintf(device->ibv.name, sizeof(device->ibv.name), "scripted%u",
			 device->ordinal - 1);

	device->verbs.sz = sizeof(device->verbs);
	device->verbs.query_port = verbs_query_port;
	context->abi_compat = (void *)-1;
	context->device = &device->ibv;
	context->cmd_fd = -1;
	context->async_fd = device->async.read_fd;
	context->num_comp_vectors = device->limits.vector_max;
	context->ops.post_send = scripted__post_send;
	context->ops.post_recv = scripted__post_recv;
	context->ops.post_srq_recv = scripted__post_srq_recv;
	context->ops.poll_cq = scripted__poll_cq;
	context->ops.req_notify_cq = scripted__req_notify_cq;
}

static bool limits_fit(const struct scripted_device_opts *limits)
{
	return limits->gid_count <= SCRIPTED_GID_MAX &&
	       limits->sge_max <= SCRIPTED_SGE_MAX &&
	       limits->mr_max <= SCRIPTED_KEYS_MAX;
}

/* Peers are found in the order of creation, so the newest goes last. */
static void fabric_add(struct scripted_fabric *fabric, struct scripted_device *device)
{
	struct scripted_device **end = &fabric->devices;

	while (*end)
		end = &(*end)->next;
	*end = device;
}

struct scripted_device *scripted_device_create(struct scripted_fabric *fabric,
					       const struct scripted_device_opts *opts)
{
	struct scripted_device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	if (opts)
		device->limits = *opts;
	fill_limits(&device->limits);
	if (!limits_fit(&device->limits) ||
	    fabric->device_count == SCRIPTED_DEVICES_MAX)
		goto err_free;
	device->keys = calloc(device->limits.mr_max, sizeof(*device->keys));
	if (!device->keys)
		goto err_free;
	if (scripted__pipe_open(&device->async))
		goto err_free_keys;

	device->fabric = fabric;
	device->ordinal = ++fabric->device_count;
	device->port_state = device->limits.port_state;
	device->pd.object.device = device;
	device->pd.object.kind = SCRIPTED_PD;
	device->pd.ibv.context = &device->verbs.context;
	fill_context(device);
	fill_gids(device, opts);
	/* What they point to is the caller's, and has been copied. */
	device->limits.name = NULL;
	device->limits.gids = NULL;
	fabric_add(fabric, device);
	return device;

err_free_keys:
	free(device->keys);
err_free:
	free(device);
	return NULL;
}

struct snt_adopted scripted_adopted(struct scripted_device *device)
{
	return (struct snt_adopted){
		.size = sizeof(struct snt_adopted),
		.name = device->ibv.name,
		.context = &device->verbs.context,
		.pd = &device->pd.ibv,
		.control = &scripted__control,
		.port = 1,
	};
}

void scripted_set_port_state(struct scripted_device *device, enum ibv_port_state state)
{
	struct ibv_async_event event = { .element.port_num = 1 };
	bool was_active = device->port_state == IBV_PORT_ACTIVE;
	bool is_active = state == IBV_PORT_ACTIVE;

	device->port_state = state;
	if (was_active == is_active)
		return;
	event.event_type = is_active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
	scripted_raise(device, event);
}

void scripted_set_gid(struct scripted_device *device, unsigned index,
		      const struct ibv_gid_entry *entry)
{
	struct ibv_async_event event = {
		.element.port_num = 1,
		.event_type = IBV_EVENT_GID_CHANGE,
	};

	assert(index < SCRIPTED_GID_MAX);
	set_gid(device, index, entry);
	scripted_raise(device, event);
}

/*
 * What happened
 */

unsigned scripted_live(const struct scripted_device *device, enum scripted_kind kind)
{
	return device->live[kind];
}

static struct scripted_object *object_at(const struct scripted_device *device,
					 enum scripted_kind kind, unsigned index)
{
	struct scripted_object *object = device->objects[kind];

	while (object && index--)
		object = object->next;
	return object;
}

struct ibv_qp *scripted_qp_at(const struct scripted_device *device, unsigned index)
{
	struct scripted_object *object = object_at(device, SCRIPTED_QP, index);

	return object ? &container_of(object, struct scripted_qp, object)->ibv : NULL;
}

struct ibv_cq *scripted_cq_at(const struct scripted_device *device, unsigned index)
{
	struct scripted_object *object = object_at(device, SCRIPTED_CQ, index);

	return object ? &container_of(object, struct scripted_cq, object)->ibv : NULL;
}

struct scripted_counters scripted_counters(const struct scripted_device *device)
{
	return device->counters;
}

struct scripted_counters scripted_qp_counters(struct ibv_qp *qp)
{
	return scripted__qp(qp)->counters;
}

unsigned scripted_faults(const struct scripted_device *device)
{
	return device->faults;
}
