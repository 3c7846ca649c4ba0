/* SPDX-License-Identifier: MIT */
/* Posting: a malformed WR is refused, everything else fails when it is executed. */
#include <errno.h>
#include <string.h>

#include "dev/soft/datagram.h"
#include "dev/soft/qp.h"
#include "dev/soft/window.h"

/* -1: not supported by the transport. */
static int kind_of_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return SNT__WIRE_KIND_SEND;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return SNT__WIRE_KIND_WRITE;
	case IBV_WR_RDMA_READ:
		return SNT__WIRE_KIND_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return SNT__WIRE_KIND_COMPARE_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return SNT__WIRE_KIND_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return SNT__SOFT_KIND_BIND;
	case IBV_WR_LOCAL_INV:
		return SNT__SOFT_KIND_INVALIDATE;
	default:
		return -1;
	}
}

static uint64_t total_length(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length;
}

static uint8_t flags_of(const struct snt__soft_qp *qp, const struct ibv_send_wr *wr)
{
	uint8_t flags = 0;

	if (qp->signal_all || (wr->send_flags & IBV_SEND_SIGNALED))
		flags |= SNT__SOFT_SIGNALED;
	if (wr->send_flags & IBV_SEND_FENCE)
		flags |= SNT__SOFT_FENCED;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		flags |= SNT__SOFT_WANTS_EVENT;
	if (wr->send_flags & IBV_SEND_INLINE)
		flags |= SNT__SOFT_INLINE;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM ||
	    wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= SNT__SOFT_WITH_IMM;
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		flags |= SNT__SOFT_WITH_INV;
	return flags;
}

static int check_wr(const struct snt__soft_qp *qp, const struct ibv_send_wr *wr,
		    int kind, uint64_t length)
{
	const struct snt__soft_requester *requester = &qp->requester;

	if (kind < 0 || wr->num_sge < 0 || (unsigned)wr->num_sge > requester->sge_max)
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) &&
	    (length > requester->payload_size || kind >= SNT__WIRE_KIND_READ))
		return EINVAL;
	if (qp->ibv.qp_type == IBV_QPT_UD &&
	    (kind != SNT__WIRE_KIND_SEND || wr->opcode == IBV_WR_SEND_WITH_INV ||
	     length > qp->mtu || !wr->wr.ud.ah))
		return EINVAL;
	if (kind == SNT__SOFT_KIND_BIND && !snt__soft_bind_valid(&qp->ibv, wr))
		return EINVAL;
	if (requester->tail - requester->head == requester->depth)
		return ENOMEM;
	return 0;
}

static void copy_inline_data(struct snt__soft_requester *requester, uint32_t position,
			     const struct ibv_send_wr *wr)
{
	uint8_t *to;
	int i;

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (wr->num_sge)
			memcpy(snt__soft_send_sges(requester, position), wr->sg_list,
			       wr->num_sge * sizeof(*wr->sg_list));
		return;
	}
	to = snt__soft_send_inline(requester, position);
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length)
			memcpy(to, (const void *)(uintptr_t)sge->addr, sge->length);
		to += sge->length;
	}
}

static bool is_atomic(const struct snt__soft_send *send)
{
	return snt__soft_send_reads(send) && send->kind != SNT__WIRE_KIND_READ;
}

/* Errors that are certain already and are reported when the WR's turn comes. */
static enum ibv_wc_status foresee_status(const struct snt__soft_qp *qp,
					 const struct snt__soft_send *send,
					 uint64_t length)
{
	if (snt__soft_send_reads(send) && !qp->requester.reads_max)
		return IBV_WC_LOC_QP_OP_ERR;
	if (is_atomic(send) && length < sizeof(uint64_t))
		return IBV_WC_LOC_LEN_ERR;
	return length > SNT__SOFT_MESSAGE_MAX ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* Atomics have 8 bytes, however long the SGE is. */
static uint32_t wire_length(const struct snt__soft_send *send, uint64_t length)
{
	if (send->status != IBV_WC_SUCCESS || snt__soft_send_local(send))
		return 0;
	return is_atomic(send) ? sizeof(uint64_t) : (uint32_t)length;
}

static void set_remote_address(struct snt__soft_send *send,
			       const struct ibv_send_wr *wr)
{
	if (send->kind <= SNT__WIRE_KIND_READ) {
		send->remote_addr = wr->wr.rdma.remote_addr;
		send->rkey = wr->wr.rdma.rkey;
		return;
	}
	send->remote_addr = wr->wr.atomic.remote_addr;
	send->rkey = wr->wr.atomic.rkey;
	/* FETCH_ADD's operand is in the compare field. */
	send->atomic.swap_add = send->kind == SNT__WIRE_KIND_FETCH_ADD
					? wr->wr.atomic.compare_add
					: wr->wr.atomic.swap;
	send->atomic.compare =
		send->kind == SNT__WIRE_KIND_FETCH_ADD ? 0 : wr->wr.atomic.compare_add;
}

static uint32_t count_numbers(const struct snt__soft_qp *qp,
			      const struct snt__soft_send *send)
{
	if (snt__soft_send_local(send))
		return 0;
	return is_atomic(send) ? 1 : snt__soft_packets(send->length, qp->mtu);
}

static void set_local(struct snt__soft_send *send, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	send->sge_count = 0;
	if (send->kind == SNT__SOFT_KIND_INVALIDATE) {
		send->rkey = wr->invalidate_rkey;
		return;
	}
	send->rkey = wr->bind_mw.rkey;
	send->remote_addr = info->addr;
	send->bind.length = info->length;
	send->bind.lkey = info->mr->lkey;
	send->bind.access = info->mw_access_flags;
}

static int add_send(struct snt__soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_send *send = snt__soft_send_at(requester, requester->tail);
	int kind = kind_of_opcode(wr->opcode);
	uint64_t length = kind < SNT__SOFT_KIND_BIND ? total_length(wr) : 0;
	int error = check_wr(qp, wr, kind, length);

	if (error)
		return error;
	send->wr_id = wr->wr_id;
	send->kind = kind;
	send->flags = flags_of(qp, wr);
	send->status = foresee_status(qp, send, length);
	send->length = wire_length(send, length);
	send->immediate = wr->imm_data; /* or invalidate_rkey, at the same place */
	send->first = requester->end;
	requester->end += count_numbers(qp, send);
	send->end = requester->end;
	if (snt__soft_send_local(send)) {
		set_local(send, wr);
	} else {
		send->sge_count = wr->num_sge;
		if (qp->ibv.qp_type == IBV_QPT_UD)
			snt__soft_datagram_address(qp, requester->tail, wr);
		else
			set_remote_address(send, wr);
		copy_inline_data(requester, requester->tail, wr);
	}
	requester->tail++;
	return 0;
}

static int add_sends(struct snt__soft_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		int error = add_send(qp, wr);

		if (error) {
			*bad_wr = wr;
			return error;
		}
		if (qp->ibv.state == IBV_QPS_ERR)
			snt__soft_flush(qp);
	}
	return 0;
}

static bool may_send(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

int snt__soft_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad_wr)
{
	struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);
	struct snt__soft_device *device = qp->device;
	int error;

	snt__soft_lock(device);
	if (!may_send(ibv_qp->state)) {
		*bad_wr = wr;
		error = EINVAL;
	} else {
		error = add_sends(qp, wr, bad_wr);
		if (qp->requester.at != qp->requester.tail)
			snt__soft_qp_activate(qp);
	}
	snt__soft_unlock_post(device);
	return error;
}

int snt__soft_post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr)
{
	struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);
	int error;

	snt__soft_lock(qp->device);
	if (ibv_qp->state == IBV_QPS_RESET || ibv_qp->srq) {
		*bad_wr = wr;
		error = EINVAL;
	} else {
		error = snt__soft_recv_add(&qp->recv_queue, wr, bad_wr);
		if (ibv_qp->state == IBV_QPS_ERR)
			snt__soft_flush(qp);
	}
	snt__soft_unlock(qp->device);
	return error;
}
