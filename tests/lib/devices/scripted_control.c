/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "scripted_internal.h"

int scripted__control_enter(struct scripted_device *device, const char *function)
{
	device->counters.control_calls++;
	if (!device->control_fail_nth || --device->control_fail_nth)
		return 0;
	device->control_failed = function + strlen("scripted__");
	return -device->control_fail_error;
}

void scripted_fail_control(struct scripted_device *device, unsigned nth, int error)
{
	device->control_fail_nth = nth;
	device->control_fail_error = error;
	device->control_failed = NULL;
}

const char *scripted_failed_control(const struct scripted_device *device)
{
	return device->control_failed;
}

static int scripted__query_device(struct ibv_context *context,
				  struct ibv_device_attr *attr_out)
{
	struct scripted_device *device = scripted__device(context);
	const struct scripted_device_opts *limits = &device->limits;

	CONTROL_ENTER(device);
	*attr_out = (struct ibv_device_attr){
		.fw_ver = "scripted",
		.node_guid = device->ordinal,
		.sys_image_guid = device->ordinal,
		.max_mr_size = limits->mr_size_max,
		.page_size_cap = 4096,
		.max_qp = limits->qp_max,
		.max_qp_wr = limits->qp_wr_max,
		.max_sge = limits->sge_max,
		.max_sge_rd = limits->sge_max,
		.max_cq = limits->cq_max,
		.max_cqe = limits->cqe_max,
		.max_mr = limits->mr_max,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = limits->read_max,
		.max_res_rd_atom = limits->read_max * limits->qp_max,
		.max_qp_init_rd_atom = limits->read_max,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = limits->srq_max,
		.max_srq_wr = limits->srq_wr_max,
		.max_srq_sge = limits->sge_max,
		.max_pkeys = limits->pkey_max,
		.phys_port_cnt = 1,
	};
	return 0;
}

static int scripted__query_port(struct ibv_context *context, uint8_t port,
				struct ibv_port_attr *attr_out)
{
	struct scripted_device *device = scripted__device(context);
	bool infiniband = device->limits.link_layer == IBV_LINK_LAYER_INFINIBAND;

	CONTROL_ENTER(device);
	if (port != 1)
		return -EINVAL;
	*attr_out = (struct ibv_port_attr){
		.state = device->port_state,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = device->limits.mtu,
		.gid_tbl_len = SCRIPTED_GID_MAX,
		.max_msg_sz = device->limits.message_max,
		.pkey_tbl_len = device->limits.pkey_max,
		.lid = infiniband ? device->ordinal : 0,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = device->port_state == IBV_PORT_ACTIVE ? 5 : 3,
		.link_layer = device->limits.link_layer,
	};
	return 0;
}

static int scripted__query_gid(struct ibv_context *context, uint8_t port,
			       uint32_t index, struct ibv_gid_entry *entry_out)
{
	struct scripted_device *device = scripted__device(context);

	CONTROL_ENTER(device);
	if (port != 1 || index >= SCRIPTED_GID_MAX)
		return -EINVAL;
	if (scripted__gid_empty(&device->gids[index]))
		return -ENODATA;
	*entry_out = device->gids[index];
	return 0;
}

static int scripted__query_numa_node(struct ibv_context *context, int *node_out)
{
	struct scripted_device *device = scripted__device(context);

	CONTROL_ENTER(device);
	*node_out = device->limits.numa_node;
	return 0;
}

static int scripted__alloc_pd(struct ibv_context *context, struct ibv_pd **pd_out)
{
	struct scripted_device *device = scripted__device(context);
	struct scripted_pd *pd;

	CONTROL_ENTER(device);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->ibv.context = context;
	scripted__object_add(device, &pd->object, SCRIPTED_PD);
	*pd_out = &pd->ibv;
	return 0;
}

static int scripted__dealloc_pd(struct ibv_pd *ibv_pd)
{
	struct scripted_pd *pd = scripted__pd(ibv_pd);
	struct scripted_device *device = pd->object.device;

	CONTROL_ENTER(device);
	/* The device's own PD is the device's. */
	if (pd == &device->pd)
		return -EINVAL;
	if (scripted__object_busy(&pd->object))
		return -EBUSY;
	scripted__object_remove(&pd->object);
	scripted__object_free(&pd->object);
	return 0;
}

const struct snt_control scripted__control = {
	.size = sizeof(struct snt_control),
	.query_device = scripted__query_device,
	.query_port = scripted__query_port,
	.query_gid = scripted__query_gid,
	.query_numa_node = scripted__query_numa_node,
	.alloc_pd = scripted__alloc_pd,
	.dealloc_pd = scripted__dealloc_pd,
	.reg_mr = scripted__reg_mr,
	.reg_dmabuf_mr = scripted__reg_dmabuf_mr,
	.dereg_mr = scripted__dereg_mr,
	.create_channel = scripted__create_channel,
	.destroy_channel = scripted__destroy_channel,
	.create_cq = scripted__create_cq,
	.destroy_cq = scripted__destroy_cq,
	.get_cq_event = scripted__get_cq_event,
	.ack_cq_events = scripted__ack_cq_events,
	.create_qp = scripted__create_qp,
	.modify_qp = scripted__modify_qp,
	.query_qp = scripted__query_qp,
	.destroy_qp = scripted__destroy_qp,
	.create_srq = scripted__create_srq,
	.modify_srq = scripted__modify_srq,
	.query_srq = scripted__query_srq,
	.destroy_srq = scripted__destroy_srq,
	.get_async_event = scripted__get_async_event,
	.ack_async_event = scripted__ack_async_event,
};
