/* SPDX-License-Identifier: MIT */
/* Objects that librdmacm creates for an id. */
#include <errno.h>
#include <string.h>

#include "cm.h"
#include "util/minmax.h"

int snt__preload_qp_enter(struct snt__preload_id *id, enum ibv_qp_state state,
			  const struct rdma_conn_param *limits)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, ret;

	if (!id->soft)
		return -ENOTCONN;
	ret = id->soft->cm->table->qp_attr(id->soft, &attr, &mask);
	if (ret)
		return ret;
	if (limits) {
		attr.max_dest_rd_atomic =
			(uint8_t)snt__min(attr.max_dest_rd_atomic,
					  limits->responder_resources);
		attr.max_rd_atomic =
			(uint8_t)snt__min(attr.max_rd_atomic, limits->initiator_depth);
	}
	return snt__preload_control()->modify_qp(id->rdma.qp, &attr, mask);
}

/*
 * CQs, for programs that have none
 */

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	if (id->send_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static struct ibv_cq *create_cq(struct rdma_cm_id *id, uint32_t depth,
				struct ibv_comp_channel **channel_out)
{
	*channel_out = ibv_create_comp_channel(id->verbs);
	if (!*channel_out)
		return NULL;
	return ibv_create_cq(id->verbs, depth ? (int)depth : 1, id, *channel_out, 0);
}

static int create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr)
{
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq =
			create_cq(id, attr->cap.max_recv_wr, &id->recv_cq_channel);
	if (attr->recv_cq && !attr->send_cq)
		attr->send_cq = id->send_cq =
			create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel);
	if (attr->recv_cq && attr->send_cq)
		return 0;
	destroy_cqs(id);
	return -1;
}

/*
 * QPs
 */

/* To INIT, so that receives can be posted. */
static int start_qp(struct snt__preload_id *id, struct ibv_qp *qp)
{
	int ret;

	id->rdma.qp = qp;
	pthread_mutex_lock(&snt__preload_cm_lock);
	ret = snt__preload_qp_enter(id, IBV_QPS_INIT, NULL);
	pthread_mutex_unlock(&snt__preload_cm_lock);
	if (!ret)
		return 0;
	id->rdma.qp = NULL;
	ibv_destroy_qp(qp);
	return AS_MINUS_ONE(ret);
}

/* Creates the objects that the program does not have, and stores them in the id if
 * everything succeeds. */
static int create_qp_soft(struct snt__preload_id *id, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_init_attr before = *attr;
	struct rdma_cm_id *rdma = &id->rdma;
	struct ibv_qp *qp;

	if (!pd)
		pd = rdma->pd;
	if (!id->soft || rdma->qp || !pd || pd->context != rdma->verbs)
		return AS_MINUS_ONE(-EINVAL);
	if (!attr->srq)
		attr->srq = rdma->srq;
	if (create_cqs(rdma, attr))
		goto err_attr;
	qp = ibv_create_qp(pd, attr);
	if (!qp || start_qp(id, qp))
		goto err_cqs;
	rdma->pd = pd;
	rdma->qp_type = attr->qp_type;
	return 0;

err_cqs:
	destroy_cqs(rdma);
err_attr:
	*attr = before;
	return -1;
}

int rdma_create_qp(struct rdma_cm_id *rdma, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_create_qp(rdma, pd, attr);
	if (!id->real)
		return create_qp_soft(id, pd, attr);
	snt__preload_lend(id);
	ret = snt__real()->rdma_create_qp(id->real, pd, attr);
	snt__preload_mirror(id);
	return ret;
}

/* Soft QPs support none of its additions to rdma_create_qp(). */
int rdma_create_qp_ex(struct rdma_cm_id *rdma, struct ibv_qp_init_attr_ex *attr)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	struct ibv_qp_init_attr plain;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_create_qp_ex(rdma, attr);
	if (id->real) {
		snt__preload_lend(id);
		ret = snt__real()->rdma_create_qp_ex(id->real, attr);
		snt__preload_mirror(id);
		return ret;
	}
	if (attr->comp_mask & ~IBV_QP_INIT_ATTR_PD)
		return AS_MINUS_ONE(-EOPNOTSUPP);
	/* ibv_qp_init_attr_ex begins with the members of ibv_qp_init_attr. */
	memcpy(&plain, attr, sizeof(plain));
	ret = create_qp_soft(id,
			     attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL,
			     &plain);
	memcpy(attr, &plain, sizeof(plain));
	return ret;
}

void rdma_destroy_qp(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED()) {
		snt__real()->rdma_destroy_qp(rdma);
		return;
	}
	if (id->real) {
		snt__preload_lend(id);
		snt__real()->rdma_destroy_qp(id->real);
		snt__preload_mirror(id);
		return;
	}
	if (rdma->qp)
		ibv_destroy_qp(rdma->qp);
	rdma->qp = NULL;
	destroy_cqs(rdma);
}

/*
 * SRQs
 */

static int create_srq_soft(struct rdma_cm_id *rdma, struct ibv_pd *pd,
			   struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	if (!pd)
		pd = rdma->pd;
	if (!pd || rdma->srq)
		return AS_MINUS_ONE(-EINVAL);
	srq = ibv_create_srq(pd, attr);
	if (!srq)
		return -1;
	rdma->pd = pd;
	rdma->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *rdma, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_create_srq(rdma, pd, attr);
	if (!id->real)
		return create_srq_soft(rdma, pd, attr);
	snt__preload_lend(id);
	ret = snt__real()->rdma_create_srq(id->real, pd, attr);
	snt__preload_mirror(id);
	return ret;
}

int rdma_create_srq_ex(struct rdma_cm_id *rdma, struct ibv_srq_init_attr_ex *attr)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	struct ibv_srq_init_attr plain;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_create_srq_ex(rdma, attr);
	if (id->real) {
		snt__preload_lend(id);
		ret = snt__real()->rdma_create_srq_ex(id->real, attr);
		snt__preload_mirror(id);
		return ret;
	}
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) &&
	    attr->srq_type != IBV_SRQT_BASIC)
		return AS_MINUS_ONE(-EOPNOTSUPP);
	plain.srq_context = attr->srq_context;
	plain.attr = attr->attr;
	return create_srq_soft(rdma,
			       attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL,
			       &plain);
}

void rdma_destroy_srq(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED()) {
		snt__real()->rdma_destroy_srq(rdma);
		return;
	}
	if (id->real) {
		snt__preload_lend(id);
		snt__real()->rdma_destroy_srq(id->real);
		snt__preload_mirror(id);
		return;
	}
	if (rdma->srq)
		ibv_destroy_srq(rdma->srq);
	rdma->srq = NULL;
}
