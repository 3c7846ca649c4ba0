/* SPDX-License-Identifier: MIT */
#include "dev/soft/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dev/soft/core.h"
#include "dev/soft/qp.h"
#include "dev/soft/verbs.h"

/*
 * Creation
 */

#define DEFAULT(field, value)              \
	do {                               \
		if (!(field))              \
			(field) = (value); \
	} while (0)

static void fill_limits(struct snt__soft_config *limits)
{
	DEFAULT(limits->mtu, IBV_MTU_4096);
	DEFAULT(limits->request_window, 512 << 10);
	DEFAULT(limits->far_window, 2 * limits->request_window);
	DEFAULT(limits->response_window, 256 << 10);
	DEFAULT(limits->qp_max, 1024);
	DEFAULT(limits->qp_wr_max, 16384);
	DEFAULT(limits->inline_max, 512);
	DEFAULT(limits->cq_max, 1024);
	DEFAULT(limits->cqe_max, 1 << 20);
	DEFAULT(limits->mr_max, 4096);
	DEFAULT(limits->srq_max, 256);
	DEFAULT(limits->srq_wr_max, 16384);
	DEFAULT(limits->read_max, 16);
}

static bool is_valid_device_config(const struct snt__soft_config *config)
{
	return config->driver && config->driver->random && config->driver->kick &&
	       config->name && config->gid_count <= SNT__SOFT_GID_MAX &&
	       snt__mtu_bytes(config->mtu) && config->qp_max <= 1 << 16 &&
	       config->qp_wr_max <= 1 << 20 && config->inline_max <= 4096 &&
	       config->cqe_max <= 1 << 24 && config->mr_max <= 1 << 20 &&
	       config->srq_wr_max <= 1 << 20 && config->read_max <= 128;
}

#define DICE 64

/* The numbers below a count, in an unpredictable order: places in tables are parts of
 * QP numbers and keys. NULL: no memory. */
static uint32_t *shuffled_places(struct snt__soft_device *device, uint32_t count)
{
	uint32_t *order = snt__soft_alloc(count, sizeof(*order));
	uint32_t dice[DICE];

	for (uint32_t i = 0; order && i < count; i++) {
		uint32_t other;

		if (i % DICE == 0)
			device->driver->random(device->driver_arg, dice, sizeof(dice));
		other = (uint64_t)dice[i % DICE] * (i + 1) >> 32;
		order[i] = order[other];
		order[other] = i;
	}
	return order;
}

static int alloc_regions(struct snt__soft_device *device)
{
	uint32_t *order = shuffled_places(device, device->limits.mr_max);
	int err = order ? snt__soft_memory_init(&device->memory, device->limits.mr_max,
						order)
			: -ENOMEM;

	snt__soft_free(order);
	return err;
}

static int alloc_tables(struct snt__soft_device *device)
{
	uint32_t slots = snt__soft_ring_size(device->limits.qp_max);
	int err;

	device->qp_mask = slots - 1;
	device->qps = snt__soft_alloc(slots, sizeof(struct snt__soft_qp *));
	device->qp_free = shuffled_places(device, slots);
	if (!device->qps || !device->qp_free)
		return -ENOMEM;
	err = alloc_regions(device);
	if (!err)
		err = snt__soft_timers_init(&device->timers, device->limits.qp_max);
	if (!err)
		err = snt__soft_mads_init(&device->mads);
	return err;
}

static void free_device_parts(struct snt__soft_device *device)
{
	snt__soft_mads_finish(&device->mads);
	snt__soft_timers_finish(&device->timers);
	snt__soft_memory_finish(&device->memory);
	snt__soft_free(device->qp_free);
	snt__soft_free(device->qps);
	snt__soft_free(device);
}

int snt__soft_device_create(const struct snt__soft_config *config,
			    struct snt__soft_device **device_out)
{
	struct snt__soft_config limits = *config;
	struct snt__soft_device *device;
	int err;

	fill_limits(&limits);
	if (!is_valid_device_config(&limits))
		return -EINVAL;
	device = snt__soft_alloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	device->limits = limits;
	device->driver = config->driver;
	device->driver_arg = config->driver_arg;
	device->port_up = !config->port_down;
	device->burst_max = 1;
	snt__list_init(&device->active);
	snt__list_init(&device->contexts);
	if (config->gid_count)
		memcpy(device->gids, config->gids, (size_t)config->gid_count * 16);
	err = alloc_tables(device);
	if (!err)
		err = snt__soft_context_init(&device->first, device, config->name);
	if (err) {
		free_device_parts(device);
		return err;
	}
	device->guid = snt__soft_random(device);
	*device_out = device;
	return 0;
}

int snt__soft_device_destroy(struct snt__soft_device *device)
{
	if (!device)
		return 0;
	if (device->object_count)
		return -EBUSY;
	snt__soft_context_finish(&device->first);
	free_device_parts(device);
	return 0;
}

struct ibv_context *snt__soft_device_context(struct snt__soft_device *device)
{
	return &device->first.verbs.context;
}

struct snt__soft_device *snt__soft_device_of(struct ibv_context *context)
{
	return snt__soft_context_of(context)->device;
}

const struct snt__soft_stats *snt__soft_device_stats(
	const struct snt__soft_device *device)
{
	return &device->stats;
}

/*
 * Calls from below
 */

void snt__soft_device_set_port(struct snt__soft_device *device, bool up)
{
	if (device->port_up == up || device->dead)
		return;
	device->port_up = up;
	snt__soft_raise_all(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void snt__soft_device_set_gid(struct snt__soft_device *device, unsigned index,
			      const uint8_t gid[16])
{
	if (index >= SNT__SOFT_GID_MAX)
		return;
	if (gid)
		memcpy(device->gids[index], gid, 16);
	else
		memset(device->gids[index], 0, 16);
	snt__soft_raise_all(device, IBV_EVENT_GID_CHANGE);
}

void snt__soft_device_kill(struct snt__soft_device *device)
{
	uint32_t i;

	if (device->dead)
		return;
	device->dead = true;
	device->port_up = false;
	snt__soft_raise_all(device, IBV_EVENT_DEVICE_FATAL);
	for (i = 0; i <= device->qp_mask; i++) {
		struct snt__soft_qp *qp = device->qps[i];

		if (qp && qp->ibv.state != IBV_QPS_RESET)
			snt__soft_qp_error(qp);
	}
	if (device->mads.agent && device->mads.agent->killed)
		device->mads.agent->killed(device->mads.arg);
}

/*
 * Addresses
 */

bool snt__soft_gid_valid(const struct snt__soft_device *device, unsigned index)
{
	static const uint8_t empty[16];

	return index < SNT__SOFT_GID_MAX &&
	       memcmp(device->gids[index], empty, sizeof(empty)) != 0;
}

bool snt__soft_is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* As the kernel derives a port from a flow label, so that the label selects a route. */
static uint16_t flow_port(uint32_t label)
{
	return 0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f));
}

int snt__soft_path_init(const struct snt__soft_device *device,
			const struct ibv_ah_attr *attr, uint16_t source_port,
			struct snt__soft_path *path_out)
{
	const struct ibv_global_route *route = &attr->grh;

	if (attr->port_num > 1 || !attr->is_global ||
	    !snt__soft_gid_valid(device, route->sgid_index) ||
	    snt__soft_is_ipv4(device->gids[route->sgid_index]) !=
		    snt__soft_is_ipv4(route->dgid.raw))
		return -EINVAL;
	memcpy(path_out->source, device->gids[route->sgid_index], 16);
	memcpy(path_out->target, route->dgid.raw, 16);
	path_out->flow_label = route->flow_label & 0xfffff;
	path_out->source_port =
		path_out->flow_label ? flow_port(path_out->flow_label) : source_port;
	path_out->traffic_class = route->traffic_class;
	path_out->hop_limit = route->hop_limit ? route->hop_limit : 64;
	return 0;
}
