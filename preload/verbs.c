/* SPDX-License-Identifier: MIT */
/* Verbs that create, modify and destroy objects. */
#include <errno.h>

#include "dev/soft/core.h"
#include "preload.h"
#include "real.h"

/* The function of the control table if the object is soft, else the real one. */
#define CONTROL()	snt__preload_control()
#define IS_SOFT(object) snt__preload_is_soft((object)->context)

/*
 * Protection domains and memory
 */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = NULL;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_alloc_pd(context);
	return AS_POINTER(CONTROL()->alloc_pd(context, &pd), pd);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (!IS_SOFT(pd))
		return snt__real()->ibv_dealloc_pd(pd);
	return -CONTROL()->dealloc_pd(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			     uint64_t iova, unsigned access)
{
	struct ibv_mr *mr = NULL;
	int ret = snt__soft_reg_mr_iova(pd, addr, length, iova, access, &mr);

	return AS_POINTER(ret, mr);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!IS_SOFT(pd))
		return snt__real()->ibv_reg_mr(pd, addr, length, access);
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	if (!IS_SOFT(pd))
		return snt__real()->ibv_reg_mr_iova(pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned access)
{
	if (!IS_SOFT(pd))
		return snt__real()->ibv_reg_mr_iova2(pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				 uint64_t iova, int fd, int access)
{
	struct ibv_mr *mr = NULL;

	if (!IS_SOFT(pd))
		return snt__real()->ibv_reg_dmabuf_mr(pd, offset, length, iova, fd,
						      access);
	/* So NCCL and UCX ask whether a GPU's memory can be registered. It cannot: only a dma-buf
	 * that the processor can map. */
	if (fd < 0)
		return AS_POINTER(-EOPNOTSUPP, NULL);
	return AS_POINTER(CONTROL()->reg_dmabuf_mr(pd, fd, offset, length, iova, access,
						   &mr),
			  mr);
}

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	if (IS_SOFT(pd) || !snt__real()->ibv_reg_mr_ex)
		return AS_POINTER(-EOPNOTSUPP, NULL);
	return snt__real()->ibv_reg_mr_ex(pd, attr);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	if (!IS_SOFT(mr))
		return snt__real()->ibv_rereg_mr(mr, flags, pd, addr, length, access);
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (!IS_SOFT(mr))
		return snt__real()->ibv_dereg_mr(mr);
	return -CONTROL()->dereg_mr(mr);
}

/* Objects of other processes belong to the kernel's devices. */
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_import_pd(context, handle);
	return AS_POINTER(-EOPNOTSUPP, NULL);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	if (!IS_SOFT(pd))
		return snt__real()->ibv_import_mr(pd, handle);
	return AS_POINTER(-EOPNOTSUPP, NULL);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_import_dm(context, handle);
	return AS_POINTER(-EOPNOTSUPP, NULL);
}

/*
 * Completion queues
 */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = NULL;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_create_comp_channel(context);
	return AS_POINTER(CONTROL()->create_channel(context, &channel), channel);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (!IS_SOFT(channel))
		return snt__real()->ibv_destroy_comp_channel(channel);
	return -CONTROL()->destroy_channel(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = NULL;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_create_cq(context, cqe, cq_context, channel,
						  vector);
	return AS_POINTER(CONTROL()->create_cq(context, cqe, cq_context, channel,
					       vector, &cq),
			  cq);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!IS_SOFT(cq))
		return snt__real()->ibv_resize_cq(cq, cqe);
	return EOPNOTSUPP;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (!IS_SOFT(cq))
		return snt__real()->ibv_destroy_cq(cq);
	return -CONTROL()->destroy_cq(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
		     void **cq_context_out)
{
	if (!IS_SOFT(channel))
		return snt__real()->ibv_get_cq_event(channel, cq_out, cq_context_out);
	return AS_MINUS_ONE(CONTROL()->get_cq_event(channel, cq_out, cq_context_out));
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	if (!IS_SOFT(cq))
		snt__real()->ibv_ack_cq_events(cq, count);
	else
		CONTROL()->ack_cq_events(cq, count);
}

/*
 * Queue pairs
 */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = NULL;

	if (!IS_SOFT(pd))
		return snt__real()->ibv_create_qp(pd, attr);
	return AS_POINTER(CONTROL()->create_qp(pd, attr, &qp), qp);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_modify_qp(qp, attr, mask);
	return -CONTROL()->modify_qp(qp, attr, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_query_qp(qp, attr, mask, init_attr);
	return -CONTROL()->query_qp(qp, attr, mask, init_attr);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_destroy_qp(qp);
	return -CONTROL()->destroy_qp(qp);
}

/* An extended QP has its own verbs for posting: soft QPs have none. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_qp_to_qp_ex(qp);
	return NULL;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode,
			       uint32_t flags)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_query_qp_data_in_order(qp, opcode, flags);
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_query_ece(qp, ece);
	return EOPNOTSUPP;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_set_ece(qp, ece);
	return EOPNOTSUPP;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_attach_mcast(qp, gid, lid);
	return EOPNOTSUPP;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!IS_SOFT(qp))
		return snt__real()->ibv_detach_mcast(qp, gid, lid);
	return EOPNOTSUPP;
}

/*
 * Shared receive queues
 */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NULL;

	if (!IS_SOFT(pd))
		return snt__real()->ibv_create_srq(pd, attr);
	return AS_POINTER(CONTROL()->create_srq(pd, attr, &srq), srq);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	if (!IS_SOFT(srq))
		return snt__real()->ibv_modify_srq(srq, attr, mask);
	return -CONTROL()->modify_srq(srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	if (!IS_SOFT(srq))
		return snt__real()->ibv_query_srq(srq, attr);
	return -CONTROL()->query_srq(srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (!IS_SOFT(srq))
		return snt__real()->ibv_destroy_srq(srq);
	return -CONTROL()->destroy_srq(srq);
}

/*
 * Events of a device
 */

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_get_async_event(context, event);
	return AS_MINUS_ONE(CONTROL()->get_async_event(context, event));
}

/* The context of the event's object; NULL: the event is of a port or a device, and
 * needs no action. */
static struct ibv_context *event_context(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq->context;
	default:
		return NULL;
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *context = event_context(event);

	if (context && !snt__preload_is_soft(context))
		snt__real()->ibv_ack_async_event(event);
	else if (context)
		CONTROL()->ack_async_event(event);
}
