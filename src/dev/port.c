/* SPDX-License-Identifier: MIT */
#include "dev/port.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/gid.h"
#include "util/err.h"

/* Tables are short in practice; the bound keeps a broken device from causing an endless
 * loop. */
#define GID_TABLE_MAX 4096

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

/* Verbs encode lanes and rate separately, each as a bit. */
static uint32_t speed_mbps(uint8_t width, uint8_t speed)
{
	static const struct {
		uint8_t code;
		uint32_t value;
	} lanes[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } },
	  rates[] = { { 1, 2500 },   { 2, 5000 },   { 4, 10000 },  { 8, 10000 },
		      { 16, 14000 }, { 32, 25000 }, { 64, 50000 }, { 128, 100000 } };
	uint32_t lane_count = 0, rate = 0;

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
		if (lanes[i].code == width)
			lane_count = lanes[i].value;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].code == speed)
			rate = rates[i].value;
	return lane_count * rate;
}

/* Some drivers report limits as negative numbers or as "all bits". */
static uint32_t sane_limit(int value)
{
	return value > 0 ? value : 0;
}

static void take_limits(const struct ibv_device_attr *attr,
			struct snt_device_info *info)
{
	info->qp_max = sane_limit(attr->max_qp);
	info->qp_depth_max = sane_limit(attr->max_qp_wr);
	info->qp_sge_max = sane_limit(attr->max_sge);
	info->cq_max = sane_limit(attr->max_cq);
	info->cq_depth_max = sane_limit(attr->max_cqe);
	info->mr_max = sane_limit(attr->max_mr);
	info->mr_size_max = attr->max_mr_size;
	info->read_in_max = sane_limit(attr->max_qp_rd_atom);
	info->read_out_max = sane_limit(attr->max_qp_init_rd_atom);
	info->srq_max = sane_limit(attr->max_srq);
	info->srq_depth_max = sane_limit(attr->max_srq_wr);
	info->atomics = attr->atomic_cap != IBV_ATOMIC_NONE;
}

static void take_port(const struct ibv_port_attr *attr, struct snt_device_info *info)
{
	info->state = attr->state <= IBV_PORT_ACTIVE ? (enum snt_port_state)attr->state
						     : SNT_PORT_UNKNOWN;
	info->mtu = mtu_bytes(attr->active_mtu);
	info->mtu_max = mtu_bytes(attr->max_mtu);
	info->speed_mbps = speed_mbps(attr->active_width, attr->active_speed);
	info->lid = attr->lid;
	info->message_size_max = attr->max_msg_sz;
	info->pkey_count = attr->pkey_tbl_len;
	/* Devices from before RoCE leave the link layer unspecified. */
	info->link = attr->link_layer == IBV_LINK_LAYER_ETHERNET ? SNT_LINK_ETHERNET
								 : SNT_LINK_INFINIBAND;
}

/* An empty slot, or one of another network namespace. */
static bool is_no_gid(int ret)
{
	return ret == -ENODATA || ret == -EINVAL || ret == -ENOENT;
}

/* A slot that cannot be read is skipped, and remembered in case none is left. */
static int read_gids(const struct snt_device *device, int table_length,
		     struct snt__port *port)
{
	int slots = table_length < GID_TABLE_MAX ? table_length : GID_TABLE_MAX;

	port->gid = calloc(slots > 0 ? slots : 1, sizeof(*port->gid));
	if (!port->gid)
		return snt__fail(ENOMEM, "%s: no memory for %d GIDs", device->name,
				 slots);
	for (int i = 0; i < slots; i++) {
		struct ibv_gid_entry entry = { .gid_index = i };
		int ret = device->control.query_gid(device->context, device->number, i,
						    &entry);

		if (ret) {
			if (!is_no_gid(ret) && !port->gid_error)
				port->gid_error = ret;
			continue;
		}
		entry.gid_index = i;
		snt__gid_judge(&entry, &port->gid[port->info.gid_count]);
		if (port->gid[port->info.gid_count].score >= 0)
			port->info.gid_count++;
	}
	return 0;
}

static bool is_auto(const struct snt_device *device)
{
	return !strcmp(device->gid_wish.text, "auto");
}

static int position_of_index(const struct snt__port *port, const char *index_text)
{
	char *end;
	unsigned long index = strtoul(index_text, &end, 10);

	for (unsigned i = 0; i < port->info.gid_count && !*end; i++)
		if (port->gid[i].index == index)
			return i;
	return -1;
}

static void choose_gid(const struct snt_device *device, struct snt__port *port)
{
	const struct snt_gid_info *gid;

	port->gid_best = is_auto(device)
				 ? snt__gid_best(port->gid, port->info.gid_count)
				 : position_of_index(port, device->gid_wish.text);
	if (port->gid_best < 0) {
		port->info.gid_index = -1;
		return;
	}
	gid = &port->gid[port->gid_best];
	port->info.gid_index = gid->index;
	if (is_auto(device))
		snprintf(port->gid_reason, sizeof(port->gid_reason),
			 "%s (%s), the best of %u", gid->text, gid->reason,
			 port->info.gid_count);
	else
		snprintf(port->gid_reason, sizeof(port->gid_reason),
			 "%s (%s), as %s asks", gid->text, gid->reason,
			 device->gid_wish.origin);
}

static int failed_to(const struct snt_device *device, int ret, const char *what)
{
	char text[SNT__DEVICE_TEXT];

	/* A table that returns positive numbers does not follow the specification. */
	if (ret > 0)
		ret = -EPROTO;
	return snt__fail(-ret, "%s: cannot query %s: %s",
			 snt__device_text(device, text), what, strerror(-ret));
}

int snt__port_probe(const struct snt_device *device, struct snt__port *port_out)
{
	const struct snt_control *control = &device->control;
	struct ibv_device_attr device_attr = { 0 };
	struct ibv_port_attr port_attr = { 0 };
	int ret;

	memset(port_out, 0, sizeof(*port_out));
	port_out->gid_best = -1;
	port_out->info.gid_index = -1;
	port_out->info.numa_node = -1;
	if (!device->has_control)
		return 0;
	if (!control->query_device || !control->query_port || !control->query_gid)
		return snt__fail(EOPNOTSUPP,
				 "%s: its control table lacks query_device, "
				 "query_port or query_gid",
				 device->name);
	ret = control->query_device(device->context, &device_attr);
	if (ret)
		return failed_to(device, ret, "the device");
	ret = control->query_port(device->context, device->number, &port_attr);
	if (ret)
		return failed_to(device, ret, "the port");
	port_out->cap_flags = device_attr.device_cap_flags;
	take_limits(&device_attr, &port_out->info);
	port_out->info.comp_vector_count =
		sane_limit(device->context->num_comp_vectors);
	take_port(&port_attr, &port_out->info);
	port_out->info.path = snt__device_path(device, NULL);
	/* The rate that its verbs report is for programs that expect one. */
	if (device->provider && device->provider->kind == SNT_DEVICE_SOFT)
		port_out->info.speed_mbps = 0;
	if (control->query_numa_node)
		control->query_numa_node(device->context, &port_out->info.numa_node);
	ret = read_gids(device, port_attr.gid_tbl_len, port_out);
	if (ret)
		return ret;
	choose_gid(device, port_out);
	return 0;
}

static const char *port_state_name(enum snt_port_state state)
{
	static const char *const text[] = { "in an unknown state", "down",
					    "initialising", "armed", "active" };

	return text[state];
}

int snt__port_usable(const struct snt_device *device, const struct snt__port *port)
{
	char text[SNT__DEVICE_TEXT];

	if (!device->has_control)
		return 0;
	snt__device_text(device, text);
	if (port->info.state != SNT_PORT_ACTIVE)
		return snt__fail(
			ENETDOWN,
			"%s is %s: check its cable and, for RoCE, that its network "
			"interface is up",
			text, port_state_name(port->info.state));
	if (port->gid_best < 0 && port->gid_error)
		return failed_to(device, port->gid_error, "the GID table");
	if (port->gid_best < 0 && !is_auto(device))
		return snt__fail(
			EADDRNOTAVAIL,
			"%s has no GID at index %s, which %s asks for; \"auto\" "
			"would choose one",
			text, device->gid_wish.text, device->gid_wish.origin);
	if (port->gid_best < 0 && port->info.link == SNT_LINK_ETHERNET)
		return snt__fail(EADDRNOTAVAIL,
				 "%s has no GID: give its network interface an address",
				 text);
	return 0;
}
