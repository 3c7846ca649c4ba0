/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "scripted_internal.h"

#define QP_NUM_FIRST 17
/*
 * Creation
 */

static bool caps_fit(const struct scripted_device_opts *limits,
		     const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr <= (unsigned)limits->qp_wr_max &&
	       cap->max_recv_wr <= (unsigned)limits->qp_wr_max &&
	       cap->max_send_sge <= (unsigned)limits->sge_max &&
	       cap->max_recv_sge <= (unsigned)limits->sge_max &&
	       cap->max_inline_data <= limits->inline_max;
}

static int check_init(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	struct scripted_device *device = scripted__device(pd->context);

	if (attr->qp_type != IBV_QPT_RC)
		return -EOPNOTSUPP;
	if (!attr->send_cq || attr->send_cq->context != pd->context || !attr->recv_cq ||
	    attr->recv_cq->context != pd->context ||
	    (attr->srq && attr->srq->context != pd->context))
		return -EINVAL;
	if (!caps_fit(&device->limits, &attr->cap))
		return -EINVAL;
	if (device->live[SCRIPTED_QP] == (unsigned)device->limits.qp_max)
		return -ENOMEM;
	return 0;
}

static struct ibv_qp_cap granted_cap(const struct scripted_device *device,
				     const struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_cap cap = attr->cap;
	unsigned limit = device->limits.qp_wr_max;

	cap.max_send_wr = scripted__grant(device, cap.max_send_wr, limit);
	cap.max_recv_wr = scripted__grant(device, cap.max_recv_wr, limit);
	if (attr->srq) {
		cap.max_recv_wr = 0;
		cap.max_recv_sge = 0;
	}
	return cap;
}

/* The lowest free number, so that numbers come back as soon as they can. */
static uint32_t pick_qp_num(const struct scripted_device *device)
{
	struct scripted_object *object;
	uint32_t num = QP_NUM_FIRST;

restart:
	for (object = device->objects[SCRIPTED_QP]; object; object = object->next) {
		if (container_of(object, struct scripted_qp, object)->ibv.qp_num ==
		    num) {
			num++;
			goto restart;
		}
	}
	return num;
}

static int send_queue_init(struct scripted_send_queue *queue,
			   const struct ibv_qp_cap *cap)
{
	size_t depth = cap->max_send_wr;
	size_t i;

	queue->depth = depth;
	/* One more than needed: calloc() of nothing may be NULL. */
	queue->slots = calloc(depth + 1, sizeof(*queue->slots));
	queue->sges = calloc(depth * cap->max_send_sge + 1, sizeof(*queue->sges));
	queue->inline_bytes = calloc(depth * cap->max_inline_data + 1, 1);
	if (!queue->slots || !queue->sges || !queue->inline_bytes)
		return -ENOMEM;
	for (i = 0; i < depth; i++) {
		queue->slots[i].sge = &queue->sges[i * cap->max_send_sge];
		queue->slots[i].inline_bytes =
			&queue->inline_bytes[i * cap->max_inline_data];
	}
	return 0;
}

void scripted__qp_free(struct scripted_qp *qp)
{
	free(qp->send.slots);
	free(qp->send.sges);
	free(qp->send.inline_bytes);
	scripted__recv_queue_finish(&qp->recv);
	free(qp);
}

static void qp_users(struct scripted_qp *qp, int change)
{
	scripted__pd(qp->ibv.pd)->object.users += change;
	scripted__cq(qp->ibv.send_cq)->object.users += change;
	scripted__cq(qp->ibv.recv_cq)->object.users += change;
	if (qp->ibv.srq)
		scripted__srq(qp->ibv.srq)->object.users += change;
}

int scripted__create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			struct ibv_qp **qp_out)
{
	struct scripted_device *device = scripted__device(pd->context);
	struct ibv_qp_cap cap;
	struct scripted_qp *qp;
	int err;

	CONTROL_ENTER(device);
	err = check_init(pd, attr);
	if (err)
		return err;
	cap = granted_cap(device, attr);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	if (send_queue_init(&qp->send, &cap) ||
	    scripted__recv_queue_init(&qp->recv, cap.max_recv_wr, cap.max_recv_sge)) {
		memset(&qp->recv, 0, sizeof(qp->recv));
		scripted__qp_free(qp);
		return -ENOMEM;
	}
	attr->cap = cap;
	qp->init = *attr;
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	qp->ibv.qp_type = attr->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_num = pick_qp_num(device);
	qp_users(qp, 1);
	scripted__object_add(device, &qp->object, SCRIPTED_QP);
	*qp_out = &qp->ibv;
	return 0;
}

static void forget_cqes(struct scripted_qp *qp)
{
	scripted__cq_forget_qp(scripted__cq(qp->ibv.send_cq), qp);
	if (qp->ibv.recv_cq != qp->ibv.send_cq)
		scripted__cq_forget_qp(scripted__cq(qp->ibv.recv_cq), qp);
}

int scripted__destroy_qp(struct ibv_qp *ibv_qp)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);

	CONTROL_ENTER(qp->object.device);
	if (scripted__object_busy(&qp->object))
		return -EBUSY;
	forget_cqes(qp);
	scripted__async_forget(&qp->object);
	scripted__post_faults_forget(qp);
	qp_users(qp, -1);
	scripted__object_remove(&qp->object);
	scripted__qp_free(qp);
	return 0;
}

/*
 * State
 */

static const struct transition {
	enum ibv_qp_state from;
	enum ibv_qp_state to;
	int required;
	int optional;
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
};

static bool transition_legal(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	size_t i;

	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_ERR && from == IBV_QPS_RESET)
		return false;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return (mask & ~IBV_QP_CUR_STATE) == 0;
	for (i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from == from && t->to == to)
			return (mask & t->required) == t->required &&
			       !(mask & ~(t->required | t->optional));
	}
	return false;
}

/* RoCE needs a GRH, and its source GID must be there. */
static bool path_valid(const struct scripted_device *device,
		       const struct ibv_ah_attr *path)
{
	if (path->port_num > 1)
		return false;
	if (!path->is_global)
		return device->limits.link_layer == IBV_LINK_LAYER_INFINIBAND;
	return path->grh.sgid_index < SCRIPTED_GID_MAX &&
	       !scripted__gid_empty(&device->gids[path->grh.sgid_index]);
}

static bool attr_valid(const struct scripted_device *device,
		       const struct ibv_qp_attr *attr, int mask)
{
	unsigned read_max = device->limits.read_max;

	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index >= device->limits.pkey_max)
		return false;
	if ((mask & IBV_QP_AV) && !path_valid(device, &attr->ah_attr))
		return false;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > device->limits.mtu))
		return false;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > read_max)
		return false;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > read_max)
		return false;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
		return false;
	if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
		return false;
	if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7)
		return false;
	return !(mask & IBV_QP_RNR_RETRY) || attr->rnr_retry <= 7;
}

#define TAKE(bit, field)                         \
	do {                                     \
		if (mask & (bit))                \
			to->field = from->field; \
	} while (0)

static void take_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	to->sq_psn &= SCRIPTED_PSN_MASK;
	to->rq_psn &= SCRIPTED_PSN_MASK;
}

/* Queues empty without CQEs; nothing of the old connection is left. */
static void qp_reset(struct scripted_qp *qp)
{
	struct scripted_send_queue *send = &qp->send;

	forget_cqes(qp);
	send->tail = send->landed = send->head = send->freed = 0;
	qp->recv.tail = qp->recv.head = qp->recv.freed = 0;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->ibv.state = IBV_QPS_RESET;
}

/* To ERR, from where every WR comes back flushed. */
void scripted__qp_error(struct scripted_qp *qp)
{
	struct ibv_async_event event = {
		.element.qp = &qp->ibv,
		.event_type = IBV_EVENT_QP_LAST_WQE_REACHED,
	};

	if (qp->ibv.state == IBV_QPS_ERR)
		return;
	qp->ibv.state = IBV_QPS_ERR;
	scripted__flush(qp);
	/* Receives of an SRQ are not this QP's to flush: the event says instead
	 * that it takes no more of them. */
	if (qp->ibv.srq)
		scripted_raise(qp->object.device, event);
}

int scripted__modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : ibv_qp->state;

	CONTROL_ENTER(qp->object.device);
	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != ibv_qp->state)
		return -EINVAL;
	if (!transition_legal(ibv_qp->state, to, mask) ||
	    !attr_valid(qp->object.device, attr, mask))
		return -EINVAL;
	if (to == IBV_QPS_RESET) {
		qp_reset(qp);
	} else if (to == IBV_QPS_ERR) {
		scripted__qp_error(qp);
	} else {
		take_attr(&qp->attr, attr, mask);
		ibv_qp->state = to;
	}
	if (qp->object.device->fabric->eager)
		scripted__settle(qp->object.device->fabric);
	return 0;
}

int scripted__query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr_out, int mask,
		       struct ibv_qp_init_attr *init_attr_out)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);

	(void)mask; /* a hint: devices may fill in more */
	CONTROL_ENTER(qp->object.device);
	*attr_out = qp->attr;
	attr_out->qp_state = ibv_qp->state;
	attr_out->cur_qp_state = ibv_qp->state;
	attr_out->cap = qp->init.cap;
	if (init_attr_out)
		*init_attr_out = qp->init;
	return 0;
}
