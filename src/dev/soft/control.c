/* SPDX-License-Identifier: MIT */
/* The control table, and the device's attributes. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "dev/cm.h"
#include "dev/soft/core.h"
#include "dev/soft/qp.h"
#include "dev/soft/verbs.h"
#include "dev/soft/window.h"

static int soft_query_device(struct ibv_context *context,
			     struct ibv_device_attr *attr_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	const struct snt__soft_config *limits = &device->limits;

	*attr_out = (struct ibv_device_attr){
		.fw_ver = "sennit",
		.node_guid = device->guid,
		.sys_image_guid = device->guid,
		.max_mr_size = INT64_MAX,
		.page_size_cap = 4096,
		.max_qp = (int)limits->qp_max,
		.max_qp_wr = (int)limits->qp_wr_max,
		.device_cap_flags =
			IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
			IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_MGT_EXTENSIONS |
			IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = SNT__SOFT_SGE_MAX,
		.max_sge_rd = SNT__SOFT_SGE_MAX,
		.max_cq = (int)limits->cq_max,
		.max_cqe = (int)limits->cqe_max,
		/* Together. */
		.max_mr = (int)limits->mr_max,
		.max_mw = (int)limits->mr_max,
		.max_pd = INT_MAX, /* as many as there is memory for, like AHs */
		.max_qp_rd_atom = (int)limits->read_max,
		.max_res_rd_atom = (int)(limits->read_max * limits->qp_max),
		.max_qp_init_rd_atom = (int)limits->read_max,
		/* They are the processor's own atomics, also for a peer's requests. */
		.atomic_cap = IBV_ATOMIC_GLOB,
		.max_ah = INT_MAX,
		.max_srq = (int)limits->srq_max,
		.max_srq_wr = (int)limits->srq_wr_max,
		.max_srq_sge = SNT__SOFT_SGE_MAX,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	return 0;
}

static int soft_query_port(struct ibv_context *context, uint8_t port,
			   struct ibv_port_attr *attr_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	bool up;

	if (port != 1)
		return -EINVAL;
	snt__soft_lock(device);
	up = device->port_up;
	snt__soft_unlock(device);
	*attr_out = (struct ibv_port_attr){
		.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = device->limits.mtu,
		.gid_tbl_len = SNT__SOFT_GID_MAX,
		.port_cap_flags = IBV_PORT_CM_SUP,
		.max_msg_sz = SNT__SOFT_MESSAGE_MAX,
		.pkey_tbl_len = 1,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = up ? 5 : 3,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

static int soft_query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
			  struct ibv_gid_entry *entry_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	struct ibv_gid_entry entry = {
		.gid_index = index,
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = device->limits.netdev,
	};
	bool valid;

	if (port != 1 || index >= SNT__SOFT_GID_MAX)
		return -EINVAL;
	snt__soft_lock(device);
	valid = snt__soft_gid_valid(device, index);
	memcpy(entry.gid.raw, device->gids[index], sizeof(entry.gid.raw));
	snt__soft_unlock(device);
	if (!valid)
		return -ENODATA;
	*entry_out = entry;
	return 0;
}

static int soft_query_numa_node(struct ibv_context *context, int *node_out)
{
	(void)context;
	*node_out = -1;
	return 0;
}

static int soft_alloc_pd(struct ibv_context *context, struct ibv_pd **pd_out)
{
	struct snt__soft_device *device = snt__soft_device_of(context);
	struct snt__soft_pd *pd = snt__soft_alloc(1, sizeof(*pd));
	bool dead;

	if (!pd)
		return -ENOMEM;
	pd->ibv.context = context;
	snt__soft_lock(device);
	dead = device->dead;
	snt__soft_context_count(context, !dead);
	snt__soft_unlock(device);
	if (dead) {
		snt__soft_free(pd);
		return -EIO;
	}
	*pd_out = &pd->ibv;
	return 0;
}

static int soft_dealloc_pd(struct ibv_pd *ibv_pd)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_pd->context);
	struct snt__soft_pd *pd = snt__soft_pd(ibv_pd);
	bool busy;

	snt__soft_lock(device);
	busy = pd->users;
	snt__soft_context_count(ibv_pd->context, -!busy);
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	snt__soft_free(pd);
	return 0;
}

static const struct snt_control control = {
	.size = sizeof(struct snt_control),
	.query_device = soft_query_device,
	.query_port = soft_query_port,
	.query_gid = soft_query_gid,
	.query_numa_node = soft_query_numa_node,
	.alloc_pd = soft_alloc_pd,
	.dealloc_pd = soft_dealloc_pd,
	.reg_mr = snt__soft_reg_mr,
	.reg_dmabuf_mr = snt__soft_reg_dmabuf_mr,
	.dereg_mr = snt__soft_dereg_mr,
	.alloc_mw = snt__soft_alloc_mw,
	.dealloc_mw = snt__soft_dealloc_mw,
	.create_channel = snt__soft_create_channel,
	.destroy_channel = snt__soft_destroy_channel,
	.create_cq = snt__soft_create_cq,
	.destroy_cq = snt__soft_destroy_cq,
	.get_cq_event = snt__soft_get_cq_event,
	.ack_cq_events = snt__soft_ack_cq_events,
	.create_qp = snt__soft_create_qp,
	.modify_qp = snt__soft_modify_qp,
	.query_qp = snt__soft_query_qp,
	.destroy_qp = snt__soft_destroy_qp,
	.create_srq = snt__soft_create_srq,
	.modify_srq = snt__soft_modify_srq,
	.query_srq = snt__soft_query_srq,
	.destroy_srq = snt__soft_destroy_srq,
	.get_async_event = snt__soft_get_async_event,
	.ack_async_event = snt__soft_ack_async_event,
	.cm = &snt__cm_soft,
};

const struct snt_control *snt__soft_control(void)
{
	return &control;
}

/*
 * Inline verbs. The program's structures may have another size than ours.
 */

struct ibv_mw *snt__soft_verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;
	int err = snt__soft_alloc_mw_type(pd, type, &mw);

	if (!err)
		return mw;
	errno = -err;
	return NULL;
}

/* Only windows of type 1 are bound by it. */
int snt__soft_verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
			    struct ibv_mw_bind *bind)
{
	(void)qp;
	(void)mw;
	(void)bind;
	return EOPNOTSUPP;
}

int snt__soft_verbs_query_port(struct ibv_context *context, uint8_t port,
			       struct ibv_port_attr *attr, size_t attr_size)
{
	struct ibv_port_attr full;
	int err = soft_query_port(context, port, &full);

	if (!err)
		memcpy(attr, &full,
		       attr_size < sizeof(full) ? attr_size : sizeof(full));
	return -err;
}

int snt__soft_verbs_query_device_ex(struct ibv_context *context,
				    const struct ibv_query_device_ex_input *input,
				    struct ibv_device_attr_ex *attr, size_t attr_size)
{
	if (input && input->comp_mask)
		return EINVAL;
	if (attr_size < sizeof(attr->orig_attr))
		return EOPNOTSUPP;
	memset(attr, 0, attr_size);
	return -soft_query_device(context, &attr->orig_attr);
}
