/* SPDX-License-Identifier: MIT */
/* QPs are created, numbered and destroyed. */
#include "dev/soft/qp.h"

#include <errno.h>

#include "dev/soft/window.h"

#define PAYLOAD_UNIT 64

static bool caps_fit(const struct snt__soft_config *limits,
		     const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr <= limits->qp_wr_max &&
	       cap->max_recv_wr <= limits->qp_wr_max &&
	       cap->max_send_sge <= SNT__SOFT_SGE_MAX &&
	       cap->max_recv_sge <= SNT__SOFT_SGE_MAX &&
	       cap->max_inline_data <= limits->inline_max;
}

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	struct snt__soft_device *device = snt__soft_device_of(pd->context);

	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UD)
		return -EOPNOTSUPP;
	if (!attr->send_cq || attr->send_cq->context != pd->context || !attr->recv_cq ||
	    attr->recv_cq->context != pd->context ||
	    (attr->srq && attr->srq->context != pd->context) ||
	    !caps_fit(&device->limits, &attr->cap))
		return -EINVAL;
	return 0;
}

static void free_qp(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	snt__soft_free(qp->responder.waiting);
	snt__soft_free(qp->responder.memos);
	snt__soft_free(qp->responder.recv.sges);
	snt__soft_recv_queue_finish(&qp->recv_queue);
	snt__soft_free(requester->paths);
	snt__soft_free(requester->payloads);
	snt__soft_free(requester->slots);
	snt__soft_free(qp);
}

/*
 * Inline data takes the place of SGEs, in a slot that is a whole number of cache lines,
 * so that a QP has room for some even if none was asked for. Most devices round up like
 * this, and there are programs that rely on it.
 */
static uint32_t payload_size(const struct ibv_qp_cap *cap)
{
	uint32_t size = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);

	if (size < cap->max_inline_data)
		size = cap->max_inline_data;
	return size ? (size + PAYLOAD_UNIT - 1) / PAYLOAD_UNIT * PAYLOAD_UNIT
		    : PAYLOAD_UNIT;
}

static int alloc_requester(struct snt__soft_requester *requester,
			   const struct ibv_qp_init_attr *attr)
{
	size_t slots = snt__soft_ring_size(attr->cap.max_send_wr);

	requester->depth = attr->cap.max_send_wr;
	requester->mask = (uint32_t)slots - 1;
	requester->sge_max = attr->cap.max_send_sge;
	requester->payload_size = payload_size(&attr->cap);
	requester->slots = snt__soft_alloc(slots, sizeof(*requester->slots));
	requester->payloads = snt__soft_alloc(slots, requester->payload_size);
	if (!requester->slots || !requester->payloads)
		return -ENOMEM;
	if (attr->qp_type != IBV_QPT_UD)
		return 0;
	requester->paths = snt__soft_alloc(slots, sizeof(*requester->paths));
	return requester->paths ? 0 : -ENOMEM;
}

static int alloc_responder(struct snt__soft_qp *qp, struct ibv_pd *pd,
			   const struct ibv_qp_init_attr *attr, unsigned read_max)
{
	struct snt__soft_responder *responder = &qp->responder;
	unsigned sge_max = attr->cap.max_recv_sge;

	responder->queue = &qp->recv_queue;
	if (attr->srq) {
		responder->queue = &snt__soft_srq(attr->srq)->queue;
		sge_max = responder->queue->sge_max;
	} else if (snt__soft_recv_queue_init(&qp->recv_queue, pd, attr->cap.max_recv_wr,
					     sge_max)) {
		qp->recv_queue = (struct snt__soft_recv_queue){ 0 };
		return -ENOMEM;
	}
	responder->recv.sges = snt__soft_alloc(sge_max, sizeof(struct ibv_sge));
	responder->memos = snt__soft_alloc(read_max, sizeof(*responder->memos));
	responder->waiting = snt__soft_alloc(read_max, 1);
	if (!responder->recv.sges || !responder->memos || !responder->waiting)
		return -ENOMEM;
	return 0;
}

static struct snt__soft_qp *alloc_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct snt__soft_device *device = snt__soft_device_of(pd->context);
	struct snt__soft_qp *qp = snt__soft_alloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	if (alloc_requester(&qp->requester, attr) ||
	    alloc_responder(qp, pd, attr, device->limits.read_max)) {
		free_qp(qp);
		return NULL;
	}
	qp->device = device;
	qp->object.device = device;
	qp->object.context = snt__soft_context_of(pd->context);
	qp->signal_all = attr->sq_sig_all;
	/* Until the path's is known: WRs are cut into packets even if they are only
	 * flushed. */
	qp->mtu = snt__mtu_bytes(device->limits.mtu);
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	qp->ibv.qp_type = attr->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
	snt__soft_timer_halt(qp);
	return qp;
}

static void count_users(struct snt__soft_qp *qp, int change)
{
	snt__soft_pd(qp->ibv.pd)->users += change;
	snt__soft_cq(qp->ibv.send_cq)->object.users += change;
	snt__soft_cq(qp->ibv.recv_cq)->object.users += change;
	if (qp->ibv.srq)
		snt__soft_srq(qp->ibv.srq)->object.users += change;
	qp->device->qp_count += change;
	qp->device->object_count += change;
}

/* The lower bits are the place in the table, the upper ones are random and never 0, so
 * that QPs 0 and 1 are not given out. Places wait in a queue: a number that is used
 * again too soon would receive its predecessor's packets. */
static uint32_t new_number(struct snt__soft_device *device, uint32_t index)
{
	uint32_t number;

	do {
		number = ((uint32_t)snt__soft_random(device) & ~device->qp_mask &
			  SNT__PSN_MASK) |
			 index;
		number = snt__seat_mark(device->limits.seat, number, SNT__SEAT_IN_QPN);
	} while (number == index || number < 16 || number == SNT__PSN_MASK);
	return number;
}

static int enter_qp(struct snt__soft_device *device, struct snt__soft_qp *qp)
{
	if (device->dead)
		return -EIO;
	if (device->qp_count == device->limits.qp_max)
		return -ENOMEM;
	qp->index = device->qp_free[device->qp_free_head++ & device->qp_mask];
	qp->ibv.qp_num = new_number(device, qp->index);
	qp->source_port = 0xc000 | (snt__soft_random(device) & 0x3fff);
	device->qps[qp->index] = qp;
	count_users(qp, 1);
	return 0;
}

int snt__soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			struct ibv_qp **qp_out)
{
	struct snt__soft_device *device = snt__soft_device_of(pd->context);
	struct snt__soft_qp *qp;
	int err = check_init(pd, attr);

	if (err)
		return err;
	qp = alloc_qp(pd, attr);
	if (!qp)
		return -ENOMEM;
	snt__soft_lock(device);
	err = enter_qp(device, qp);
	snt__soft_unlock(device);
	if (err) {
		free_qp(qp);
		return err;
	}
	/* All other capabilities are as requested. */
	attr->cap.max_inline_data = qp->requester.payload_size;
	if (attr->srq) {
		attr->cap.max_recv_wr = 0;
		attr->cap.max_recv_sge = 0;
	}
	qp->init = *attr;
	*qp_out = &qp->ibv;
	return 0;
}

/* The ring holds qp_mask + 1 - qp_count free places, and has room for all. */
static void leave_qp(struct snt__soft_device *device, struct snt__soft_qp *qp)
{
	uint32_t free_count = device->qp_mask + 1 - device->qp_count;

	snt__soft_qp_quiesce(qp);
	snt__soft_windows_unbind(qp);
	snt__soft_timer_remove(&device->timers, &qp->timer);
	snt__soft_forget(&qp->object);
	device->qps[qp->index] = NULL;
	device->qp_free[(device->qp_free_head + free_count) & device->qp_mask] =
		qp->index;
	count_users(qp, -1);
}

/* Gives the driver a chance to send what the QP has left. */
static void say_goodbye(struct snt__soft_device *device, const struct snt__soft_qp *qp)
{
	bool active;

	snt__soft_lock(device);
	active = snt__linked(&qp->active);
	snt__soft_unlock(device);
	if (active)
		device->driver->kick(device->driver_arg);
}

int snt__soft_destroy_qp(struct ibv_qp *ibv_qp)
{
	struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);
	struct snt__soft_device *device = qp->device;
	bool busy;

	say_goodbye(device, qp);
	snt__soft_lock(device);
	busy = snt__soft_object_busy(&qp->object);
	if (!busy)
		leave_qp(device, qp);
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	free_qp(qp);
	return 0;
}
