/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include "scripted_internal.h"

/* A WR on its way. The land_*() functions return what scripted_land() does. */
struct flight {
	struct scripted_qp *qp;
	struct scripted_qp *peer;
	const struct ibv_send_wr *wr;
	struct scripted_spans local;
};

static bool is_atomic_wr(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_read_or_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ || is_atomic_wr(wr);
}

static enum ibv_wc_status check_local(struct flight *flight,
				      const struct scripted_send_slot *slot)
{
	struct scripted_qp *qp = flight->qp;
	const struct scripted_device *device = qp->object.device;
	const struct ibv_ah_attr *path = &qp->attr.ah_attr;
	unsigned access = is_read_or_atomic(&slot->wr) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (path->is_global && scripted__gid_empty(&device->gids[path->grh.sgid_index]))
		return IBV_WC_LOC_QP_OP_ERR;
	if (is_read_or_atomic(&slot->wr) && !qp->attr.max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	if (slot->wr.send_flags & IBV_SEND_INLINE) {
		flight->local.count = 1;
		flight->local.length = slot->inline_length;
		flight->local.span[0].bytes = slot->inline_bytes;
		flight->local.span[0].length = slot->inline_length;
	} else if (!scripted__local_spans(qp->ibv.pd, slot->sge, slot->wr.num_sge,
					  access, &flight->local)) {
		return IBV_WC_LOC_PROT_ERR;
	}
	if (flight->local.length > device->limits.message_max ||
	    (is_atomic_wr(&slot->wr) && flight->local.length != sizeof(uint64_t)))
		return IBV_WC_LOC_LEN_ERR;
	return IBV_WC_SUCCESS;
}

static bool device_has_gid(const struct scripted_device *device,
			   const union ibv_gid *gid)
{
	int i;

	for (i = 0; i < SCRIPTED_GID_MAX; i++) {
		if (!scripted__gid_empty(&device->gids[i]) &&
		    memcmp(&device->gids[i].gid, gid, sizeof(*gid)) == 0)
			return true;
	}
	return false;
}

static struct scripted_device *device_on_path(struct scripted_fabric *fabric,
					      const struct ibv_ah_attr *path)
{
	struct scripted_device *device;

	for (device = fabric->devices; device; device = device->next) {
		if (path->is_global ? device_has_gid(device, &path->grh.dgid)
				    : device->ordinal == path->dlid)
			break;
	}
	return device;
}

static struct scripted_qp *qp_by_num(struct scripted_device *device, uint32_t num)
{
	struct scripted_object *object;

	for (object = device->objects[SCRIPTED_QP]; object; object = object->next) {
		struct scripted_qp *qp =
			container_of(object, struct scripted_qp, object);

		if (qp->ibv.qp_num == num)
			return qp;
	}
	return NULL;
}

static int find_peer(struct scripted_qp *qp, struct scripted_qp **peer_out)
{
	struct scripted_device *device = qp->object.device;
	struct scripted_fabric *fabric = device->fabric;
	struct scripted_device *there = device_on_path(fabric, &qp->attr.ah_attr);
	struct scripted_qp *peer;

	if (device->port_state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	if (!there)
		return -ENOTCONN;
	if (there->port_state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	peer = qp_by_num(there, qp->attr.dest_qp_num);
	if (!peer)
		return -ENOTCONN;
	if (peer->ibv.state == IBV_QPS_RESET || peer->ibv.state == IBV_QPS_INIT)
		return -EAGAIN;
	if (peer->ibv.state == IBV_QPS_ERR ||
	    device_on_path(fabric, &peer->attr.ah_attr) != device ||
	    peer->attr.dest_qp_num != qp->ibv.qp_num ||
	    peer->attr.rq_psn != qp->attr.sq_psn)
		return -ENOTCONN;
	*peer_out = peer;
	return 0;
}

/* The peer refuses a request, which is the end of its QP as well. */
static int refuse_packet(struct flight *flight, enum ibv_wc_status status)
{
	struct scripted_qp *peer = flight->peer;
	struct ibv_async_event event = {
		.element.qp = &peer->ibv,
		.event_type = status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
							      : IBV_EVENT_QP_REQ_ERR,
	};

	scripted_raise(peer->object.device, event);
	scripted__qp_error(peer);
	return status;
}

static void move_bytes(const struct flight *flight, const struct scripted_spans *to,
		       const struct scripted_spans *from)
{
	if (!flight->qp->object.device->limits.move_no_bytes)
		scripted__copy(to, from);
}

/* The peer's receive for this WR succeeds. */
static void finish_recv(struct flight *flight, enum ibv_wc_opcode opcode)
{
	struct scripted_qp *peer = flight->peer;
	struct scripted_cqe cqe = scripted__retire_recv(peer);
	bool with_imm = flight->wr->opcode == IBV_WR_SEND_WITH_IMM ||
			flight->wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	cqe.wc.status = IBV_WC_SUCCESS;
	cqe.wc.opcode = opcode;
	cqe.wc.byte_len = flight->local.length;
	cqe.wc.wc_flags = with_imm ? IBV_WC_WITH_IMM : 0;
	if (with_imm)
		cqe.wc.imm_data = flight->wr->imm_data;
	scripted__cq_push(scripted__cq(peer->ibv.recv_cq), &cqe,
			  flight->wr->send_flags & IBV_SEND_SOLICITED);
	if (peer->ibv.srq)
		scripted__srq_consumed(scripted__srq(peer->ibv.srq));
}

static int land_write(struct flight *flight)
{
	bool with_imm = flight->wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct scripted_spans remote;

	if (!scripted__remote_span(flight->peer, flight->wr->wr.rdma.rkey,
				   flight->wr->wr.rdma.remote_addr,
				   flight->local.length, IBV_ACCESS_REMOTE_WRITE,
				   &remote))
		return refuse_packet(flight, IBV_WC_REM_ACCESS_ERR);
	if (with_imm && !scripted_recv_pending(&flight->peer->ibv))
		return -EAGAIN;
	move_bytes(flight, &remote, &flight->local);
	if (with_imm)
		finish_recv(flight, IBV_WC_RECV_RDMA_WITH_IMM);
	return 0;
}

static int land_read(struct flight *flight)
{
	struct scripted_spans remote;

	if (!flight->peer->attr.max_dest_rd_atomic)
		return refuse_packet(flight, IBV_WC_REM_INV_REQ_ERR);
	if (!scripted__remote_span(flight->peer, flight->wr->wr.rdma.rkey,
				   flight->wr->wr.rdma.remote_addr,
				   flight->local.length, IBV_ACCESS_REMOTE_READ,
				   &remote))
		return refuse_packet(flight, IBV_WC_REM_ACCESS_ERR);
	move_bytes(flight, &flight->local, &remote);
	return 0;
}

static int land_atomic(struct flight *flight)
{
	const struct ibv_send_wr *wr = flight->wr;
	struct scripted_spans remote, result = { .count = 1, .length = 8 };
	uint64_t before, after;

	if (!flight->peer->attr.max_dest_rd_atomic || wr->wr.atomic.remote_addr % 8)
		return refuse_packet(flight, IBV_WC_REM_INV_REQ_ERR);
	if (!scripted__remote_span(flight->peer, wr->wr.atomic.rkey,
				   wr->wr.atomic.remote_addr, 8,
				   IBV_ACCESS_REMOTE_ATOMIC, &remote))
		return refuse_packet(flight, IBV_WC_REM_ACCESS_ERR);
	memcpy(&before, remote.span[0].bytes, sizeof(before));
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		after = before + wr->wr.atomic.compare_add;
	else
		after = before == wr->wr.atomic.compare_add ? wr->wr.atomic.swap
							    : before;
	memcpy(remote.span[0].bytes, &after, sizeof(after));
	result.span[0].bytes = (unsigned char *)&before;
	result.span[0].length = sizeof(before);
	scripted__copy(&flight->local, &result);
	return 0;
}

/* The memory of receives is that of their queue's PD. */
static const struct ibv_pd *recv_pd(const struct scripted_qp *qp)
{
	return qp->ibv.srq ? qp->ibv.srq->pd : qp->ibv.pd;
}

static int land_send(struct flight *flight)
{
	struct scripted_recv_queue *queue = scripted__recv_queue(flight->peer);
	const struct scripted_recv_slot *slot;
	struct scripted_spans into;
	uint64_t room = 0;
	int i;

	if (queue->head == queue->tail)
		return -EAGAIN;
	slot = &queue->slots[queue->head % queue->depth];
	for (i = 0; i < slot->num_sge; i++)
		room += slot->sge[i].length;
	if (flight->local.length > room) {
		scripted__fail_recv(flight->peer, IBV_WC_LOC_LEN_ERR);
		return refuse_packet(flight, IBV_WC_REM_INV_REQ_ERR);
	}
	/* No bytes touch no memory, whatever the receive names. */
	if (flight->local.length) {
		if (!scripted__local_spans(recv_pd(flight->peer), slot->sge,
					   slot->num_sge, IBV_ACCESS_LOCAL_WRITE,
					   &into)) {
			scripted__fail_recv(flight->peer, IBV_WC_LOC_PROT_ERR);
			scripted__qp_error(flight->peer);
			return IBV_WC_REM_OP_ERR;
		}
		move_bytes(flight, &into, &flight->local);
	}
	finish_recv(flight, IBV_WC_RECV);
	return 0;
}

static int land_packet(struct scripted_qp *qp, const struct scripted_send_slot *slot)
{
	struct flight flight = { .qp = qp, .wr = &slot->wr };
	int result = check_local(&flight, slot);

	if (result)
		return result;
	result = find_peer(qp, &flight.peer);
	if (result)
		return result;
	if (is_atomic_wr(&slot->wr))
		result = land_atomic(&flight);
	else if (slot->wr.opcode == IBV_WR_RDMA_READ)
		result = land_read(&flight);
	else if (scripted__wc_opcode(slot->wr.opcode) == IBV_WC_RDMA_WRITE)
		result = land_write(&flight);
	else
		result = land_send(&flight);
	if (!result) {
		qp->attr.sq_psn = (qp->attr.sq_psn + 1) & SCRIPTED_PSN_MASK;
		flight.peer->attr.rq_psn =
			(flight.peer->attr.rq_psn + 1) & SCRIPTED_PSN_MASK;
	}
	return result;
}

int scripted_land(struct ibv_qp *ibv_qp)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	struct scripted_send_queue *queue = &qp->send;
	struct scripted_send_slot *slot;
	int result;

	if (queue->landed == queue->tail)
		return -ENOENT;
	slot = &queue->slots[queue->landed % queue->depth];
	if (slot->fate)
		return slot->fate;
	result = land_packet(qp, slot);
	if (result > 0)
		slot->fate = result;
	else if (!result)
		queue->landed++;
	return result;
}

int scripted_complete(struct ibv_qp *ibv_qp, enum ibv_wc_status status)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	int result = 0;

	if (qp->send.head == qp->send.tail)
		return -ENOENT;
	if (status == IBV_WC_SUCCESS && qp->send.head == qp->send.landed) {
		result = scripted_land(ibv_qp);
		if (result < 0)
			return result;
		status = result;
	}
	/* A QP that is its own peer may just have refused, and so flushed, itself. */
	if (qp->send.head == qp->send.tail)
		return result;
	scripted__retire_send(qp, status);
	if (status != IBV_WC_SUCCESS)
		scripted__qp_error(qp);
	return result;
}

int scripted_fail_recv(struct ibv_qp *ibv_qp, enum ibv_wc_status status)
{
	struct scripted_qp *qp = scripted__qp(ibv_qp);
	struct scripted_recv_queue *queue = scripted__recv_queue(qp);

	if ((ibv_qp->state != IBV_QPS_RTR && ibv_qp->state != IBV_QPS_RTS) ||
	    queue->head == queue->tail)
		return -ENOENT;
	scripted__fail_recv(qp, status);
	scripted__qp_error(qp);
	return 0;
}
