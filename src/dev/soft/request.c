/* SPDX-License-Identifier: MIT */
/* Packets of requests: any part of any WR, for the first time or again. */
#include "dev/soft/qp.h"

/* Fills in the payload. Returns false if its keys are no longer valid. */
static bool gather_request_payload(struct snt__soft_qp *qp, uint32_t position,
				   uint32_t offset, uint32_t length,
				   struct snt__soft_cursor *cursor,
				   struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	const struct snt__soft_send *send = snt__soft_send_at(requester, position);
	const struct ibv_sge *sges = snt__soft_send_sges(requester, position);
	struct iovec *first = &out->payload[0];
	int count;

	if (!(send->flags & SNT__SOFT_INLINE) && send->sge_count > 1) {
		count = snt__soft_span(&qp->device->memory, qp->ibv.pd, sges,
				       send->sge_count, cursor, length, 0,
				       out->payload);
		out->payload_count = count < 0 ? 0 : count;
		return count >= 0;
	}
	out->payload_count = length != 0;
	if (!length)
		return true;
	/* A single piece needs no search. */
	first->iov_len = length;
	first->iov_base =
		send->flags & SNT__SOFT_INLINE
			? snt__soft_send_inline(requester, position) + offset
			: snt__soft_local(&qp->device->memory, qp->ibv.pd, sges->lkey,
					  sges->addr + offset, length, 0);
	return first->iov_base;
}

bool snt__soft_request_data(struct snt__soft_qp *qp, uint32_t position, uint64_t number,
			    uint64_t next, bool ask, struct snt__soft_cursor *cursor,
			    struct snt__soft_packet *out)
{
	const struct snt__soft_send *send = snt__soft_send_at(&qp->requester, position);
	uint32_t offset = (uint32_t)(number - send->first) * qp->mtu;
	bool immediate = send->flags & SNT__SOFT_WITH_IMM;
	bool last = next == send->end;
	uint8_t opcode = snt__wire_opcode(send->kind, !offset, last, immediate);
	struct snt__wire_packet packet = { 0 };

	if (last && (send->flags & SNT__SOFT_WITH_INV))
		opcode = offset ? SNT__WIRE_SEND_LAST_INVALIDATE
				: SNT__WIRE_SEND_ONLY_INVALIDATE;
	snt__soft_packet_begin(qp, opcode, number, &packet);
	packet.payload_length =
		last ? send->length - offset : (size_t)(next - number) * qp->mtu;
	if (!gather_request_payload(qp, position, offset, packet.payload_length, cursor,
				    out))
		return false;
	if (ask)
		packet.flags |= SNT__WIRE_ACK_REQUEST;
	if (last && (send->flags & SNT__SOFT_WANTS_EVENT))
		packet.flags |= SNT__WIRE_SOLICITED;
	packet.immediate = send->immediate;
	if (send->kind == SNT__WIRE_KIND_WRITE && !offset) {
		packet.reth.addr = send->remote_addr;
		packet.reth.key = send->rkey;
		packet.reth.length = send->length;
	} else if (send->flags & SNT__SOFT_WITH_INV) {
		packet.invalidate.key = send->immediate;
	}
	snt__soft_packet_end(&qp->path, &packet, out);
	return true;
}

void snt__soft_request_read(struct snt__soft_qp *qp, uint32_t position, uint64_t number,
			    uint64_t stop, struct snt__soft_packet *out)
{
	const struct snt__soft_send *send = snt__soft_send_at(&qp->requester, position);
	uint32_t offset = (uint32_t)(number - send->first) * qp->mtu;
	struct snt__wire_packet packet = { 0 };

	snt__soft_packet_begin(qp, SNT__WIRE_READ_REQUEST, number, &packet);
	packet.flags |= SNT__WIRE_ACK_REQUEST;
	packet.reth.addr = send->remote_addr + offset;
	packet.reth.key = send->rkey;
	packet.reth.length = stop == send->end ? send->length - offset
					       : (uint32_t)(stop - number) * qp->mtu;
	out->payload_count = 0;
	snt__soft_packet_end(&qp->path, &packet, out);
}

void snt__soft_request_atomic(struct snt__soft_qp *qp, uint32_t position,
			      struct snt__soft_packet *out)
{
	const struct snt__soft_send *send = snt__soft_send_at(&qp->requester, position);
	struct snt__wire_packet packet = { 0 };

	snt__soft_packet_begin(qp,
			       send->kind == SNT__WIRE_KIND_FETCH_ADD
				       ? SNT__WIRE_FETCH_ADD
				       : SNT__WIRE_COMPARE_SWAP,
			       send->first, &packet);
	packet.flags |= SNT__WIRE_ACK_REQUEST;
	packet.atomic.addr = send->remote_addr;
	packet.atomic.key = send->rkey;
	packet.atomic.swap_add = send->atomic.swap_add;
	packet.atomic.compare = send->atomic.compare;
	out->payload_count = 0;
	snt__soft_packet_end(&qp->path, &packet, out);
}
