/* SPDX-License-Identifier: MIT */
/* Ids are connected and disconnected. */
#include <errno.h>

#include "cm.h"

/* When the process ends, ids no longer have a soft or real part (cm_id.c). */
#define SOFT_CALL(id, ret, call)                             \
	do {                                                 \
		pthread_mutex_lock(&snt__preload_cm_lock);   \
		ret = (id)->soft ? (call) : -EINVAL;         \
		pthread_mutex_unlock(&snt__preload_cm_lock); \
	} while (0)

static const struct snt__cm_table *table_of(const struct snt__preload_id *id)
{
	return id->soft->cm->table;
}

static int mirror_and_return(struct snt__preload_id *id, int ret)
{
	snt__preload_mirror(id);
	return ret;
}

/* The id has neither a soft nor a real part yet. */
static int nothing_there(void)
{
	return AS_MINUS_ONE(-EINVAL);
}

/* For programs that pass no parameters: the maximum of everything. */
static const struct rdma_conn_param param_default = {
	.responder_resources = RDMA_MAX_RESP_RES,
	.initiator_depth = RDMA_MAX_INIT_DEPTH,
	.retry_count = 7,
	.rnr_retry_count = 7,
};

static struct snt__cm_param soft_param(const struct snt__preload_id *id,
				       const struct rdma_conn_param *param)
{
	const struct ibv_qp *qp = id->rdma.qp;

	return (struct snt__cm_param){
		.data = param->private_data,
		.data_length = param->private_data ? param->private_data_len : 0,
		.qpn = qp ? qp->qp_num : param->qp_num,
		.srq = qp ? qp->srq != NULL : param->srq,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.rnr_retry_count = param->rnr_retry_count,
		.retry_count = param->retry_count,
		.ack_timeout = id->ack_timeout,
	};
}

static int connect_soft(struct snt__preload_id *id, const struct rdma_conn_param *conn)
{
	struct snt__cm_param param = soft_param(id, conn);

	snt__preload_retry_keep(id, &param);
	return table_of(id)->connect(id->soft, &param);
}

int rdma_connect(struct rdma_cm_id *rdma, struct rdma_conn_param *conn)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_connect(rdma, conn);
	if (id->real) {
		snt__preload_lend(id);
		ret = mirror_and_return(id, snt__real()->rdma_connect(id->real, conn));
	} else if (id->soft) {
		SOFT_CALL(id, ret, connect_soft(id, conn ? conn : &param_default));
		ret = AS_MINUS_ONE(ret);
	} else {
		return nothing_there();
	}
	return ret ? ret : snt__preload_complete(id);
}

static int accept_soft(struct snt__preload_id *id, const struct rdma_conn_param *conn)
{
	struct snt__cm_param param = soft_param(id, conn);
	int ret = 0;

	if (id->rdma.qp)
		ret = snt__preload_qp_enter(id, IBV_QPS_RTR, conn);
	if (!ret && id->rdma.qp)
		ret = snt__preload_qp_enter(id, IBV_QPS_RTS, conn);
	return ret ? ret : table_of(id)->accept(id->soft, &param);
}

int rdma_accept(struct rdma_cm_id *rdma, struct rdma_conn_param *conn)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_accept(rdma, conn);
	if (id->real) {
		snt__preload_lend(id);
		ret = mirror_and_return(id, snt__real()->rdma_accept(id->real, conn));
	} else if (id->soft) {
		SOFT_CALL(id, ret, accept_soft(id, conn ? conn : &param_default));
		ret = AS_MINUS_ONE(ret);
	} else {
		return nothing_there();
	}
	return ret ? ret : snt__preload_complete(id);
}

int rdma_reject(struct rdma_cm_id *rdma, const void *data, uint8_t length)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_reject(rdma, data, length);
	if (id->real)
		return snt__real()->rdma_reject(id->real, data, length);
	if (!id->soft)
		return nothing_there();
	SOFT_CALL(id, ret, table_of(id)->reject(id->soft, data, data ? length : 0));
	return AS_MINUS_ONE(ret);
}

int rdma_establish(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_establish(rdma);
	if (id->real)
		return snt__real()->rdma_establish(id->real);
	if (!id->soft || rdma->qp)
		return nothing_there();
	SOFT_CALL(id, ret, table_of(id)->establish(id->soft));
	return AS_MINUS_ONE(ret);
}

int rdma_notify(struct rdma_cm_id *rdma, enum ibv_event_type event)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_notify(rdma, event);
	if (id->real)
		return snt__real()->rdma_notify(id->real, event);
	if (!id->soft || event != IBV_EVENT_COMM_EST)
		return nothing_there();
	SOFT_CALL(id, ret, table_of(id)->notify(id->soft));
	return AS_MINUS_ONE(ret);
}

/* The QP ends first, so that nothing is sent after the disconnect. */
static int disconnect_soft(struct snt__preload_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (id->rdma.qp)
		ibv_modify_qp(id->rdma.qp, &attr, IBV_QP_STATE);
	return table_of(id)->disconnect(id->soft);
}

int rdma_disconnect(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_disconnect(rdma);
	if (id->real) {
		ret = mirror_and_return(id, snt__real()->rdma_disconnect(id->real));
	} else if (id->soft && !(id->sync && id->over)) {
		SOFT_CALL(id, ret, disconnect_soft(id));
		ret = ret == -ENOTCONN ? nothing_there() : AS_MINUS_ONE(ret);
	} else {
		return nothing_there();
	}
	return ret ? ret : snt__preload_complete(id);
}

int rdma_init_qp_attr(struct rdma_cm_id *rdma, struct ibv_qp_attr *attr, int *mask)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_init_qp_attr(rdma, attr, mask);
	if (id->real)
		return snt__real()->rdma_init_qp_attr(id->real, attr, mask);
	if (!id->soft)
		return nothing_there();
	SOFT_CALL(id, ret, table_of(id)->qp_attr(id->soft, attr, mask));
	return AS_MINUS_ONE(ret);
}

/*
 * Unsupported by soft devices
 */

static int only_real(struct snt__preload_id *id)
{
	return id->real ? 0 : AS_MINUS_ONE(-EOPNOTSUPP);
}

int rdma_join_multicast(struct rdma_cm_id *rdma, struct sockaddr *address,
			void *context)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_join_multicast(rdma, address, context);
	if (only_real(id))
		return -1;
	return snt__real()->rdma_join_multicast(id->real, address, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *rdma,
			   struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_join_multicast_ex(rdma, attr, context);
	if (only_real(id))
		return -1;
	return snt__real()->rdma_join_multicast_ex(id->real, attr, context);
}

int rdma_leave_multicast(struct rdma_cm_id *rdma, struct sockaddr *address)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_leave_multicast(rdma, address);
	if (only_real(id))
		return -1;
	return snt__real()->rdma_leave_multicast(id->real, address);
}

int rdma_set_local_ece(struct rdma_cm_id *rdma, struct ibv_ece *ece)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_set_local_ece(rdma, ece);
	if (only_real(id))
		return -1;
	return snt__real()->rdma_set_local_ece(id->real, ece);
}

int rdma_get_remote_ece(struct rdma_cm_id *rdma, struct ibv_ece *ece)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_get_remote_ece(rdma, ece);
	if (only_real(id))
		return -1;
	return snt__real()->rdma_get_remote_ece(id->real, ece);
}

int rdma_reject_ece(struct rdma_cm_id *rdma, const void *data, uint8_t length)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_reject_ece(rdma, data, length);
	if (id->real)
		return snt__real()->rdma_reject_ece(id->real, data, length);
	return rdma_reject(rdma, data, length);
}
