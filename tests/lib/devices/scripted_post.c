/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include "scripted_internal.h"

/*
 * Injected failures
 */

/* What a call of post_* has to pretend. */
struct pretence {
	int error;     /* 0: nothing */
	unsigned stop; /* index of the WR at which it fails; UINT_MAX: after all */
	bool bad_null;
};

void scripted_fail_post(struct scripted_device *device,
			const struct scripted_post_fault *fault)
{
	int i;

	assert(fault->error > 0);
	for (i = 0; i < SCRIPTED_POST_FAULTS_MAX; i++) {
		struct scripted_post_fault *slot = &device->post_faults[i];

		if (slot->nth)
			continue;
		*slot = *fault;
		if (!slot->nth)
			slot->nth = 1;
		return;
	}
	assert(!"too many post faults wait");
}

/* A new QP may get the address of one that is gone, but not its faults. */
void scripted__post_faults_forget(struct scripted_qp *qp)
{
	int i;

	for (i = 0; i < SCRIPTED_POST_FAULTS_MAX; i++) {
		struct scripted_post_fault *fault = &qp->object.device->post_faults[i];

		if (fault->qp == &qp->ibv)
			fault->nth = 0;
	}
}

static struct pretence pretend_to_post(const struct scripted_post_fault *fault,
				       unsigned chain_length)
{
	struct pretence pretence = { .error = fault->error, .stop = UINT_MAX };

	switch (fault->mode) {
	case SCRIPTED_REFUSE_ALL:
		pretence.stop = 0;
		break;
	case SCRIPTED_ACCEPT_SOME:
		pretence.stop = fault->accept;
		if (chain_length && pretence.stop >= chain_length)
			pretence.stop = chain_length - 1;
		break;
	case SCRIPTED_QUEUE_ALL_BAD_FIRST:
		break;
	case SCRIPTED_QUEUE_ALL_BAD_NULL:
		pretence.bad_null = true;
		break;
	}
	return pretence;
}

/* Every waiting fault counts the call; the first whose turn it is applies. */
static struct pretence next_pretence(struct scripted_device *device, struct ibv_qp *qp,
				     enum scripted_post_kind kind,
				     unsigned chain_length)
{
	struct pretence pretence = { .stop = UINT_MAX };
	int i;

	for (i = 0; i < SCRIPTED_POST_FAULTS_MAX; i++) {
		struct scripted_post_fault *fault = &device->post_faults[i];

		if (!fault->nth || fault->kind != kind ||
		    (fault->qp && fault->qp != qp))
			continue;
		if (--fault->nth == 0 && !pretence.error)
			pretence = pretend_to_post(fault, chain_length);
	}
	return pretence;
}

/*
 * Sends
 */

static bool send_opcode_known(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return true;
	default:
		return false;
	}
}

/* Reads and atomics have nothing to send. */
static bool inline_fits(const struct scripted_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	int i;

	if (!(wr->send_flags & IBV_SEND_INLINE))
		return true;
	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length <= qp->init.cap.max_inline_data &&
	       wr->opcode != IBV_WR_RDMA_READ &&
	       wr->opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
	       wr->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void copy_inline(struct scripted_send_slot *slot)
{
	int i;

	slot->inline_length = 0;
	if (!(slot->wr.send_flags & IBV_SEND_INLINE))
		return;
	for (i = 0; i < slot->wr.num_sge; i++) {
		const struct ibv_sge *sge = &slot->sge[i];

		if (!sge->length)
			continue;
		memcpy(slot->inline_bytes + slot->inline_length,
		       (const void *)(uintptr_t)sge->addr, sge->length);
		slot->inline_length += sge->length;
	}
}

static int queue_send(struct scripted_qp *qp, const struct ibv_send_wr *wr)
{
	struct scripted_send_queue *queue = &qp->send;
	struct scripted_send_slot *slot;

	if (qp->ibv.state != IBV_QPS_RTS && qp->ibv.state != IBV_QPS_ERR)
		return EINVAL;
	if (!send_opcode_known(wr->opcode) || wr->num_sge < 0 ||
	    wr->num_sge > (int)qp->init.cap.max_send_sge || !inline_fits(qp, wr))
		return EINVAL;
	if (queue->tail - queue->freed == queue->depth)
		return ENOMEM;

	slot = &queue->slots[queue->tail % queue->depth];
	slot->wr = *wr;
	slot->wr.next = NULL;
	slot->wr.sg_list = slot->sge;
	if (wr->num_sge)
		memcpy(slot->sge, wr->sg_list, wr->num_sge * sizeof(*slot->sge));
	slot->signaled = qp->init.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED);
	slot->fate = IBV_WC_SUCCESS;
	copy_inline(slot);
	queue->tail++;
	qp->counters.send_wrs++;
	qp->object.device->counters.send_wrs++;
	return 0;
}

/* What follows from new WRs without the test's doing. */
static void after_post(struct scripted_device *device, struct scripted_qp *qp)
{
	if (qp && qp->ibv.state == IBV_QPS_ERR)
		scripted__flush(qp);
	if (device->fabric->eager)
		scripted__settle(device->fabric);
}

static unsigned send_chain_length(const struct ibv_send_wr *wr)
{
	unsigned length = 0;

	for (; wr; wr = wr->next)
		length++;
	return length;
}

int scripted__post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad_wr)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	struct scripted_device *device = qp->object.device;
	struct ibv_send_wr *first = wr;
	struct pretence pretence;
	unsigned index;
	int error = 0;

	qp->counters.send_calls++;
	device->counters.send_calls++;
	pretence = next_pretence(device, ibv_qp, SCRIPTED_POST_SEND,
				 send_chain_length(wr));
	for (index = 0; wr && !error; index++) {
		error = index == pretence.stop ? pretence.error : queue_send(qp, wr);
		if (error)
			*bad_wr = wr;
		wr = wr->next;
	}
	if (!error && pretence.error) {
		error = pretence.error;
		*bad_wr = pretence.bad_null ? NULL : first;
	}
	after_post(device, qp);
	return error;
}

/*
 * Receives
 */

static int queue_recv(struct scripted_recv_queue *queue, const struct ibv_recv_wr *wr)
{
	struct scripted_recv_slot *slot;

	if (wr->num_sge < 0 || wr->num_sge > (int)queue->sge_max)
		return EINVAL;
	if (queue->tail - queue->freed == queue->depth)
		return ENOMEM;
	slot = &queue->slots[queue->tail % queue->depth];
	slot->wr_id = wr->wr_id;
	slot->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(slot->sge, wr->sg_list, wr->num_sge * sizeof(*slot->sge));
	queue->tail++;
	return 0;
}

static unsigned recv_chain_length(const struct ibv_recv_wr *wr)
{
	unsigned length = 0;

	for (; wr; wr = wr->next)
		length++;
	return length;
}

/* Returns how the call ends and counts the WRs that were queued. */
static int queue_recv_chain(struct scripted_device *device, struct ibv_qp *ibv_qp,
			    struct scripted_recv_queue *queue, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr, unsigned *queued_out)
{
	struct ibv_recv_wr *first = wr;
	struct pretence pretence;
	unsigned index;
	int error;

	pretence = next_pretence(device, ibv_qp, SCRIPTED_POST_RECV,
				 recv_chain_length(wr));
	for (index = 0; wr; wr = wr->next, index++) {
		error = index == pretence.stop ? pretence.error : queue_recv(queue, wr);
		if (error) {
			*bad_wr = wr;
			*queued_out = index;
			return error;
		}
	}
	*queued_out = index;
	if (pretence.error)
		*bad_wr = pretence.bad_null ? NULL : first;
	return pretence.error;
}

int scripted__post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	struct scripted_device *device = qp->object.device;
	unsigned queued;
	int error;

	qp->counters.recv_calls++;
	device->counters.recv_calls++;
	if (ibv_qp->state == IBV_QPS_RESET || ibv_qp->srq) {
		*bad_wr = wr;
		return EINVAL;
	}
	error = queue_recv_chain(device, ibv_qp, &qp->recv, wr, bad_wr, &queued);
	qp->counters.recv_wrs += queued;
	device->counters.recv_wrs += queued;
	after_post(device, qp);
	return error;
}

int scripted__post_srq_recv(struct ibv_srq *ibv_srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr)
{
	struct scripted_srq *srq = scripted__srq(ibv_srq);
	struct scripted_device *device = srq->object.device;
	unsigned queued;
	int error;

	device->counters.recv_calls++;
	error = queue_recv_chain(device, NULL, &srq->queue, wr, bad_wr, &queued);
	device->counters.recv_wrs += queued;
	after_post(device, NULL);
	return error;
}

/*
 * Looking at what was posted
 */

unsigned scripted_pending(struct ibv_qp *qp)
{
	const struct scripted_send_queue *queue = &scripted__qp(qp)->send;

	return queue->tail - queue->head;
}

unsigned scripted_recv_pending(struct ibv_qp *qp)
{
	const struct scripted_recv_queue *queue =
		scripted__recv_queue(scripted__qp(qp));

	return queue->tail - queue->head;
}

int scripted_peek(struct ibv_qp *qp, unsigned index, struct scripted_send *send_out)
{
	const struct scripted_send_queue *queue = &scripted__qp(qp)->send;
	const struct scripted_send_slot *slot;

	if (index >= queue->tail - queue->head)
		return -ENOENT;
	slot = &queue->slots[(queue->head + index) % queue->depth];
	memset(send_out, 0, sizeof(*send_out));
	send_out->wr = slot->wr;
	send_out->wr.sg_list = send_out->sge;
	memcpy(send_out->sge, slot->sge, slot->wr.num_sge * sizeof(*slot->sge));
	send_out->inline_bytes = slot->inline_bytes;
	send_out->inline_length = slot->inline_length;
	send_out->landed = queue->head + index < queue->landed;
	return 0;
}

int scripted_peek_recv(struct ibv_qp *qp, unsigned index,
		       struct scripted_recv *recv_out)
{
	const struct scripted_recv_queue *queue =
		scripted__recv_queue(scripted__qp(qp));
	const struct scripted_recv_slot *slot;

	if (index >= queue->tail - queue->head)
		return -ENOENT;
	slot = &queue->slots[(queue->head + index) % queue->depth];
	memset(recv_out, 0, sizeof(*recv_out));
	recv_out->wr.wr_id = slot->wr_id;
	recv_out->wr.num_sge = slot->num_sge;
	recv_out->wr.sg_list = recv_out->sge;
	memcpy(recv_out->sge, slot->sge, slot->num_sge * sizeof(*slot->sge));
	return 0;
}
