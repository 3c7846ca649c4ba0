/* SPDX-License-Identifier: MIT */
/*
 * Requests are executed, packet by packet. Everything in them is checked before a byte
 * moves: the sequence of opcodes, lengths, keys, rights, receives.
 */
#include <string.h>

#include "dev/soft/burst.h"
#include "dev/soft/window.h"

/* FIRST begins a message while there is none; all others continue one. */
static bool sequence_valid(const struct snt__soft_responder *responder,
			   const struct snt__wire_opcode_info *info)
{
	if (info->parts & SNT__WIRE_FIRST)
		return responder->message == SNT__SOFT_MESSAGE_NONE;
	return responder->message == (info->kind == SNT__WIRE_KIND_SEND
					      ? SNT__SOFT_MESSAGE_SEND
					      : SNT__SOFT_MESSAGE_WRITE);
}

/* All packets but the last are full, and the last of several is not empty. */
static bool length_valid(const struct snt__soft_qp *qp, uint16_t parts, size_t length)
{
	if (length > (size_t)qp->mtu * qp->device->burst_max)
		return false;
	if (!(parts & SNT__WIRE_LAST))
		return length && !(length & (qp->mtu - 1));
	return length || (parts & SNT__WIRE_FIRST);
}

static bool take_posted_recv(struct snt__soft_qp *qp)
{
	struct snt__soft_responder *responder = &qp->responder;

	if (!snt__soft_recv_take(responder->queue, &responder->recv))
		return false;
	if (qp->ibv.srq)
		snt__soft_srq_taken(snt__soft_srq(qp->ibv.srq));
	return true;
}

/* The payload was gone: as if the packet had never arrived, and no receive were
 * taken. */
static enum snt__soft_verdict lose_packet(struct snt__soft_responder *responder,
					  bool taken)
{
	if (taken) {
		responder->queue->head--;
		responder->recv.taken = false;
	}
	return SNT__SOFT_LOST;
}

/* The packet is done. */
static void move_past_request(struct snt__soft_qp *qp, uint16_t parts, uint8_t message,
			      uint32_t length)
{
	struct snt__soft_responder *responder = &qp->responder;

	responder->expected += snt__soft_packets(length, qp->mtu);
	responder->got += length;
	responder->message = message;
	if (!(parts & SNT__WIRE_LAST))
		return;
	responder->message = SNT__SOFT_MESSAGE_NONE;
	responder->msn = snt__psn_add(responder->msn, 1);
}

static void complete_recv(struct snt__soft_qp *qp,
			  const struct snt__wire_packet *packet,
			  enum ibv_wc_opcode opcode)
{
	uint16_t parts = snt__wire_opcodes[packet->opcode].parts;
	struct ibv_wc wc = {
		.status = IBV_WC_SUCCESS,
		.opcode = opcode,
		.byte_len = qp->responder.got,
		.src_qp = qp->peer_qpn,
	};

	if (parts & SNT__WIRE_IMMEDIATE) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = packet->immediate;
	} else if (parts & SNT__WIRE_IETH) {
		wc.wc_flags = IBV_WC_WITH_INV;
		wc.invalidated_rkey = packet->invalidate.key;
	}
	snt__soft_recv_retire(qp, &wc, packet->flags & SNT__WIRE_SOLICITED);
}

/*
 * SEND
 */

static enum snt__soft_verdict execute_send(struct snt__soft_qp *qp,
					   const struct snt__wire_packet *packet,
					   uint16_t parts)
{
	struct snt__soft_responder *responder = &qp->responder;
	struct snt__soft_recv *recv = &responder->recv;
	enum snt__soft_verdict verdict;

	if (parts & SNT__WIRE_FIRST) {
		if (!take_posted_recv(qp))
			return SNT__SOFT_RNR;
		responder->got = 0;
	}
	if (packet->payload_length > recv->room - responder->got ||
	    packet->payload_length > SNT__SOFT_MESSAGE_MAX - responder->got) {
		snt__soft_recv_fail(qp, IBV_WC_LOC_LEN_ERR);
		return SNT__SOFT_INVALID;
	}
	if ((parts & SNT__WIRE_IETH) &&
	    !snt__soft_window_bound(qp, packet->invalidate.key)) {
		snt__soft_recv_fail(qp, IBV_WC_REM_INV_REQ_ERR);
		return SNT__SOFT_DENIED;
	}
	verdict = snt__soft_payload_scatter(qp->device, packet, responder->queue->pd,
					    recv->sges, recv->sge_count, &recv->cursor);
	if (verdict == SNT__SOFT_LOST)
		return lose_packet(responder, parts & SNT__WIRE_FIRST);
	if (verdict == SNT__SOFT_BROKEN) {
		snt__soft_recv_fail(qp, IBV_WC_LOC_PROT_ERR);
		return SNT__SOFT_BROKEN;
	}
	move_past_request(qp, parts, SNT__SOFT_MESSAGE_SEND, packet->payload_length);
	if (parts & SNT__WIRE_IETH)
		snt__soft_window_invalidate(qp, packet->invalidate.key);
	if (parts & SNT__WIRE_LAST)
		complete_recv(qp, packet, IBV_WC_RECV);
	return SNT__SOFT_DONE;
}

/*
 * WRITE
 */

/* Checks the whole message before its first byte. An empty one needs no key. */
static enum snt__soft_verdict begin_write(struct snt__soft_qp *qp,
					  const struct snt__wire_packet *packet)
{
	struct snt__soft_responder *responder = &qp->responder;

	if (!(qp->access & IBV_ACCESS_REMOTE_WRITE) ||
	    packet->reth.length > SNT__SOFT_MESSAGE_MAX)
		return SNT__SOFT_INVALID;
	if (packet->reth.length &&
	    !snt__soft_remote(&qp->device->memory, &qp->ibv, packet->reth.key,
			      packet->reth.addr, packet->reth.length,
			      IBV_ACCESS_REMOTE_WRITE))
		return SNT__SOFT_DENIED;
	responder->rkey = packet->reth.key;
	responder->addr = packet->reth.addr;
	responder->left = packet->reth.length;
	responder->got = 0;
	return SNT__SOFT_DONE;
}

/* Only the last packet needs a receive: of a burst that finds none, the packets before
 * it are executed. */
static enum snt__soft_verdict write_before_last(struct snt__soft_qp *qp,
						const struct snt__wire_packet *packet,
						uint16_t parts, uint8_t *to)
{
	struct snt__soft_responder *responder = &qp->responder;
	uint32_t count = snt__soft_packets(packet->payload_length, qp->mtu);
	uint32_t length = (count - 1) * qp->mtu;

	if (!length)
		return SNT__SOFT_RNR;
	if (!snt__soft_payload(qp->device, packet, &(struct iovec){ to, length }, 1))
		return SNT__SOFT_LOST;
	responder->addr += length;
	responder->left -= length;
	move_past_request(qp, parts & ~SNT__WIRE_LAST, SNT__SOFT_MESSAGE_WRITE, length);
	return SNT__SOFT_RNR;
}

static enum snt__soft_verdict execute_write(struct snt__soft_qp *qp,
					    const struct snt__wire_packet *packet,
					    uint16_t parts)
{
	struct snt__soft_responder *responder = &qp->responder;
	uint32_t length = packet->payload_length;
	enum snt__soft_verdict verdict = SNT__SOFT_DONE;
	uint8_t *to = NULL;

	if (parts & SNT__WIRE_FIRST)
		verdict = begin_write(qp, packet);
	if (verdict != SNT__SOFT_DONE)
		return verdict;
	/* The last packet completes the message, and no other does. */
	if (length > responder->left ||
	    (length == responder->left) != !!(parts & SNT__WIRE_LAST))
		return SNT__SOFT_INVALID;
	if (length) {
		to = snt__soft_remote(&qp->device->memory, &qp->ibv, responder->rkey,
				      responder->addr, length, IBV_ACCESS_REMOTE_WRITE);
		if (!to)
			return SNT__SOFT_DENIED;
	}
	if ((parts & SNT__WIRE_IMMEDIATE) && !take_posted_recv(qp))
		return write_before_last(qp, packet, parts, to);
	if (length &&
	    !snt__soft_payload(qp->device, packet, &(struct iovec){ to, length }, 1))
		return lose_packet(responder, parts & SNT__WIRE_IMMEDIATE);
	responder->addr += length;
	responder->left -= length;
	move_past_request(qp, parts, SNT__SOFT_MESSAGE_WRITE, length);
	if (parts & SNT__WIRE_IMMEDIATE)
		complete_recv(qp, packet, IBV_WC_RECV_RDMA_WITH_IMM);
	return SNT__SOFT_DONE;
}

/*
 * READ and atomics
 */

static void remember_request(struct snt__soft_qp *qp, struct snt__soft_memo *memo,
			     const struct snt__soft_memo *content)
{
	struct snt__soft_responder *responder = &qp->responder;

	*memo = *content;
	memo->state = SNT__SOFT_MEMO_NEW;
	memo->first = responder->expected;
	responder->expected += memo->count;
	responder->msn = snt__psn_add(responder->msn, 1);
	memo->msn = responder->msn;
	snt__soft_memo_answer(responder, memo - responder->memos, 0, memo->count);
	/* Its response acknowledges everything before it. */
	responder->answer = false;
	snt__soft_qp_activate(qp);
}

static enum snt__soft_verdict execute_read(struct snt__soft_qp *qp,
					   const struct snt__wire_packet *packet)
{
	struct snt__soft_memo *memo;

	if (!(qp->access & IBV_ACCESS_REMOTE_READ) ||
	    packet->reth.length > SNT__SOFT_MESSAGE_MAX)
		return SNT__SOFT_INVALID;
	if (packet->reth.length &&
	    !snt__soft_remote(&qp->device->memory, &qp->ibv, packet->reth.key,
			      packet->reth.addr, packet->reth.length,
			      IBV_ACCESS_REMOTE_READ))
		return SNT__SOFT_DENIED;
	memo = snt__soft_memo_new(&qp->responder);
	if (!memo)
		return SNT__SOFT_INVALID;
	remember_request(qp, memo,
			 &(struct snt__soft_memo){
				 .kind = SNT__WIRE_KIND_READ,
				 .rkey = packet->reth.key,
				 .addr = packet->reth.addr,
				 .length = packet->reth.length,
				 .count = snt__soft_packets(packet->reth.length,
							    qp->mtu),
			 });
	return SNT__SOFT_DONE;
}

static uint64_t execute_atomic_op(uint64_t *at, const struct snt__wire_packet *packet)
{
	uint64_t compare = packet->atomic.compare;

	if (packet->opcode == SNT__WIRE_FETCH_ADD)
		return __atomic_fetch_add(at, packet->atomic.swap_add,
					  __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(at, &compare, packet->atomic.swap_add, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare; /* the old value, whether or not it was equal */
}

static enum snt__soft_verdict execute_atomic(struct snt__soft_qp *qp,
					     const struct snt__wire_packet *packet)
{
	struct snt__soft_memo *memo;
	uint8_t *at;

	if (!(qp->access & IBV_ACCESS_REMOTE_ATOMIC) || packet->atomic.addr % 8)
		return SNT__SOFT_INVALID;
	at = snt__soft_remote(&qp->device->memory, &qp->ibv, packet->atomic.key,
			      packet->atomic.addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	/* A dma-buf may be aligned for the peer and not here. */
	if (!at || (uintptr_t)at % 8)
		return SNT__SOFT_DENIED;
	memo = snt__soft_memo_new(&qp->responder);
	if (!memo)
		return SNT__SOFT_INVALID;
	remember_request(qp, memo,
			 &(struct snt__soft_memo){
				 .kind = snt__wire_opcodes[packet->opcode].kind,
				 .rkey = packet->atomic.key,
				 .addr = packet->atomic.addr,
				 .original = execute_atomic_op((uint64_t *)(void *)at,
							       packet),
				 .count = 1,
			 });
	return SNT__SOFT_DONE;
}

enum snt__soft_verdict snt__soft_execute(struct snt__soft_qp *qp,
					 const struct snt__wire_packet *packet)
{
	const struct snt__wire_opcode_info *info = &snt__wire_opcodes[packet->opcode];

	if (!sequence_valid(&qp->responder, info))
		return SNT__SOFT_INVALID;
	switch (info->kind) {
	case SNT__WIRE_KIND_SEND:
		if (!length_valid(qp, info->parts, packet->payload_length))
			return SNT__SOFT_INVALID;
		return execute_send(qp, packet, info->parts);
	case SNT__WIRE_KIND_WRITE:
		if (!length_valid(qp, info->parts, packet->payload_length))
			return SNT__SOFT_INVALID;
		return execute_write(qp, packet, info->parts);
	case SNT__WIRE_KIND_READ:
		return execute_read(qp, packet);
	default:
		return execute_atomic(qp, packet);
	}
}
