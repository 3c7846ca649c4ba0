/* SPDX-License-Identifier: MIT */
#include <string.h>
#include "scripted_internal.h"

#define VENDOR_ERROR	   0x5c
#define VENDOR_ERROR_FLUSH 0xf9

/* Programs tend to look at the opcode of an error. Zero is what most devices leave
 * there, a valid one misleads best, and noise is what verbs allow. */
static enum ibv_wc_opcode garbage_opcode(uint64_t *random)
{
	static const enum ibv_wc_opcode misleading[] = {
		IBV_WC_SEND,
		IBV_WC_RDMA_WRITE,
		IBV_WC_RDMA_READ,
		IBV_WC_COMP_SWAP,
		IBV_WC_FETCH_ADD,
		IBV_WC_RECV,
		IBV_WC_RECV_RDMA_WITH_IMM,
	};
	uint64_t dice = scripted__random(random);

	switch (dice % 3) {
	case 0:
		return 0;
	case 1:
		return misleading[(dice >> 32) %
				  (sizeof(misleading) / sizeof(misleading[0]))];
	default:
		return (enum ibv_wc_opcode)(dice >> 32);
	}
}

/* A CQE of which nothing is defined yet. */
static struct scripted_cqe garbage_cqe(struct scripted_qp *qp)
{
	uint64_t *random = &qp->object.device->fabric->random;
	uint64_t noise[(sizeof(struct ibv_wc) + 7) / 8];
	struct scripted_cqe cqe = { .owner = qp };
	size_t i;

	for (i = 0; i < sizeof(noise) / sizeof(noise[0]); i++)
		noise[i] = scripted__random(random);
	memcpy(&cqe.wc, noise, sizeof(cqe.wc));
	cqe.wc.opcode = garbage_opcode(random);
	cqe.wc.qp_num = qp->ibv.qp_num;
	return cqe;
}

static void set_error(struct ibv_wc *wc, enum ibv_wc_status status)
{
	wc->status = status;
	wc->vendor_err =
		status == IBV_WC_WR_FLUSH_ERR ? VENDOR_ERROR_FLUSH : VENDOR_ERROR;
}

enum ibv_wc_opcode scripted__wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

static uint32_t send_length(const struct scripted_send_slot *slot)
{
	uint32_t length = 0;
	int i;

	for (i = 0; i < slot->wr.num_sge; i++)
		length += slot->sge[i].length;
	return length;
}

/* Takes the oldest WR out of the send queue and reports it, if there is a need. */
void scripted__retire_send(struct scripted_qp *qp, enum ibv_wc_status status)
{
	struct scripted_send_queue *queue = &qp->send;
	struct scripted_send_slot *slot = &queue->slots[queue->head++ % queue->depth];
	struct scripted_cqe cqe;

	if (queue->landed < queue->head)
		queue->landed = queue->head;
	if (status == IBV_WC_SUCCESS && !slot->signaled)
		return;
	cqe = garbage_cqe(qp);
	cqe.send_retired = queue->head;
	cqe.wc.wr_id = slot->wr.wr_id;
	if (status == IBV_WC_SUCCESS) {
		cqe.wc.status = IBV_WC_SUCCESS;
		cqe.wc.opcode = scripted__wc_opcode(slot->wr.opcode);
		cqe.wc.byte_len = send_length(slot);
		cqe.wc.wc_flags = 0;
	} else {
		set_error(&cqe.wc, status);
	}
	scripted__cq_push(scripted__cq(qp->ibv.send_cq), &cqe, false);
}

/* Takes the oldest receive that the QP can have; its CQE is yet to be defined. */
struct scripted_cqe scripted__retire_recv(struct scripted_qp *qp)
{
	struct scripted_recv_queue *queue = scripted__recv_queue(qp);
	struct scripted_cqe cqe = garbage_cqe(qp);

	cqe.recv = queue;
	cqe.wc.wr_id = queue->slots[queue->head++ % queue->depth].wr_id;
	return cqe;
}

void scripted__fail_recv(struct scripted_qp *qp, enum ibv_wc_status status)
{
	struct scripted_cqe cqe = scripted__retire_recv(qp);

	set_error(&cqe.wc, status);
	scripted__cq_push(scripted__cq(qp->ibv.recv_cq), &cqe, true);
}

void scripted__flush(struct scripted_qp *qp)
{
	while (qp->send.head < qp->send.tail)
		scripted__retire_send(qp, IBV_WC_WR_FLUSH_ERR);
	while (!qp->ibv.srq && qp->recv.head < qp->recv.tail)
		scripted__fail_recv(qp, IBV_WC_WR_FLUSH_ERR);
}
