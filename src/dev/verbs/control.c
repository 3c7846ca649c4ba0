/* SPDX-License-Identifier: MIT */
/* libibverbs as a control table. */
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <sennit/control.h>

#include "dev/cm.h"
#include "dev/verbs/err.h"

static int verbs_query_device(struct ibv_context *context,
			      struct ibv_device_attr *attr_out)
{
	return FROM_INT(ibv_query_device(context, attr_out));
}

static int verbs_query_port(struct ibv_context *context, uint8_t port,
			    struct ibv_port_attr *attr_out)
{
	return FROM_INT(ibv_query_port(context, port, attr_out));
}

static int verbs_query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
			   struct ibv_gid_entry *entry_out)
{
	return FROM_INT(ibv_query_gid_ex(context, port, index, entry_out, 0));
}

/* Verbs do not report it; sysfs does, for devices on a bus. */
static int verbs_query_numa_node(struct ibv_context *context, int *node_out)
{
	char path[PATH_MAX];
	int node = -1;
	FILE *file;

	*node_out = -1;
	if (!context->device)
		return 0;
	if (snprintf(path, sizeof(path), "%s/device/numa_node",
		     context->device->ibdev_path) >= (int)sizeof(path))
		return 0;
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &node) == 1)
		*node_out = node;
	fclose(file);
	return 0;
}

static int verbs_alloc_pd(struct ibv_context *context, struct ibv_pd **pd_out)
{
	return FROM_POINTER(pd_out, ibv_alloc_pd(context));
}

static int verbs_dealloc_pd(struct ibv_pd *pd)
{
	return FROM_INT(ibv_dealloc_pd(pd));
}

static int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
			struct ibv_mr **mr_out)
{
	return FROM_POINTER(mr_out, ibv_reg_mr(pd, addr, length, access));
}

static int reg_dmabuf_mr(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			 uint64_t iova, unsigned access, struct ibv_mr **mr_out)
{
	return FROM_POINTER(mr_out,
			    ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access));
}

static int verbs_dereg_mr(struct ibv_mr *mr)
{
	return FROM_INT(ibv_dereg_mr(mr));
}

static int create_channel(struct ibv_context *context,
			  struct ibv_comp_channel **channel_out)
{
	return FROM_POINTER(channel_out, ibv_create_comp_channel(context));
}

static int destroy_channel(struct ibv_comp_channel *channel)
{
	return FROM_INT(ibv_destroy_comp_channel(channel));
}

static int verbs_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			   struct ibv_comp_channel *channel, int vector,
			   struct ibv_cq **cq_out)
{
	return FROM_POINTER(cq_out,
			    ibv_create_cq(context, cqe, cq_context, channel, vector));
}

static int verbs_destroy_cq(struct ibv_cq *cq)
{
	return FROM_INT(ibv_destroy_cq(cq));
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			void **cq_context_out)
{
	return FROM_INT(ibv_get_cq_event(channel, cq_out, cq_context_out));
}

static void ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	ibv_ack_cq_events(cq, count);
}

static int verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			   struct ibv_qp **qp_out)
{
	return FROM_POINTER(qp_out, ibv_create_qp(pd, attr));
}

static int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return FROM_INT(ibv_modify_qp(qp, attr, mask));
}

static int verbs_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr_out, int mask,
			  struct ibv_qp_init_attr *init_attr_out)
{
	return FROM_INT(ibv_query_qp(qp, attr_out, mask, init_attr_out));
}

static int verbs_destroy_qp(struct ibv_qp *qp)
{
	return FROM_INT(ibv_destroy_qp(qp));
}

static int create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
		      struct ibv_srq **srq_out)
{
	return FROM_POINTER(srq_out, ibv_create_srq(pd, attr));
}

static int modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return FROM_INT(ibv_modify_srq(srq, attr, mask));
}

static int query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr_out)
{
	return FROM_INT(ibv_query_srq(srq, attr_out));
}

static int destroy_srq(struct ibv_srq *srq)
{
	return FROM_INT(ibv_destroy_srq(srq));
}

static int get_async_event(struct ibv_context *context,
			   struct ibv_async_event *event_out)
{
	return FROM_INT(ibv_get_async_event(context, event_out));
}

static void ack_async_event(struct ibv_async_event *event)
{
	ibv_ack_async_event(event);
}

static int alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw_out)
{
	return FROM_POINTER(mw_out, ibv_alloc_mw(pd, IBV_MW_TYPE_2));
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return FROM_INT(ibv_dealloc_mw(mw));
}

static const struct snt_control control = {
	.size = sizeof(control),
	.query_device = verbs_query_device,
	.query_port = verbs_query_port,
	.query_gid = verbs_query_gid,
	.query_numa_node = verbs_query_numa_node,
	.alloc_pd = verbs_alloc_pd,
	.dealloc_pd = verbs_dealloc_pd,
	.reg_mr = verbs_reg_mr,
	.reg_dmabuf_mr = reg_dmabuf_mr,
	.dereg_mr = verbs_dereg_mr,
	.create_channel = create_channel,
	.destroy_channel = destroy_channel,
	.create_cq = verbs_create_cq,
	.destroy_cq = verbs_destroy_cq,
	.get_cq_event = get_cq_event,
	.ack_cq_events = ack_cq_events,
	.create_qp = verbs_create_qp,
	.modify_qp = verbs_modify_qp,
	.query_qp = verbs_query_qp,
	.destroy_qp = verbs_destroy_qp,
	.create_srq = create_srq,
	.modify_srq = modify_srq,
	.query_srq = query_srq,
	.destroy_srq = destroy_srq,
	.get_async_event = get_async_event,
	.ack_async_event = ack_async_event,
#ifdef SNT_HAVE_RDMACM
	.cm = &snt__cm_verbs,
#endif
	.alloc_mw = alloc_mw,
	.dealloc_mw = dealloc_mw,
};

const struct snt_control *snt_control_verbs(void)
{
	return &control;
}
