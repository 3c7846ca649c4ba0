/* SPDX-License-Identifier: MIT */
/* Answers become packets, in the order of the requests. */
#include <string.h>

#include "dev/soft/qp.h"

/*
 * The queue of memos. It is short and mostly empty: removing one moves the rest up, so
 * that the first is always in place 0.
 */

static void dequeue_memo(struct snt__soft_responder *responder, unsigned index)
{
	unsigned i;

	for (i = 0; i < responder->waiting_count; i++) {
		if (responder->waiting[i] != index)
			continue;
		responder->waiting_count--;
		responder->memos[index].queued = false;
		memmove(&responder->waiting[i], &responder->waiting[i + 1],
			responder->waiting_count - i);
		return;
	}
}

/* A memo that is queued already keeps its place. */
void snt__soft_memo_answer(struct snt__soft_responder *responder, unsigned index,
			   uint32_t start, uint32_t stop)
{
	struct snt__soft_memo *memo = &responder->memos[index];

	memo->start = start;
	memo->at = start;
	memo->stop = stop;
	if (memo->queued)
		return;
	memo->queued = true;
	responder->waiting[responder->waiting_count++] = index;
}

/* The oldest makes room. If its answer still waits to be sent for the first time, the
 * peer has more requests in flight than allowed. If it waits to be sent again, the peer
 * has the answer already, or would not have continued. */
struct snt__soft_memo *snt__soft_memo_new(struct snt__soft_responder *responder)
{
	struct snt__soft_memo *memo = &responder->memos[responder->memo_next];

	if (!responder->memo_count || memo->state == SNT__SOFT_MEMO_NEW)
		return NULL;
	dequeue_memo(responder, responder->memo_next);
	if (++responder->memo_next == responder->memo_count)
		responder->memo_next = 0;
	return memo;
}

/* A NAK is not replaced by an ACK, which says less; a NAK for a request that has
 * arrived in the meantime is. */
void snt__soft_answer(struct snt__soft_qp *qp, uint8_t syndrome, uint64_t number)
{
	struct snt__soft_responder *responder = &qp->responder;

	if (responder->answer && syndrome == SNT__SYNDROME_ACK_UNLIMITED &&
	    number < responder->answer_number)
		return;
	responder->answer = true;
	responder->answer_syndrome = syndrome;
	responder->answer_number = number;
	snt__soft_qp_activate(qp);
}

/* The next response of a READ, or several as one. Returns how many; 0 if its memory is
 * gone. */
static uint32_t send_read_response(struct snt__soft_qp *qp, struct snt__soft_memo *memo,
				   struct snt__soft_packet *out)
{
	uint32_t left = memo->stop - memo->at;
	uint32_t count = left < qp->burst ? left : qp->burst;
	uint32_t offset = memo->at * qp->mtu;
	struct snt__wire_packet packet = { 0 };

	snt__soft_packet_begin(qp,
			       snt__wire_opcode(SNT__WIRE_KIND_READ_RESPONSE,
						memo->at == memo->start, count == left,
						false),
			       memo->first + memo->at, &packet);
	packet.ack.syndrome = SNT__SYNDROME_ACK_UNLIMITED;
	packet.ack.msn = memo->msn;
	packet.payload_length = memo->at + count == memo->count
					? memo->length - offset
					: (size_t)count * qp->mtu;
	out->payload_count = packet.payload_length != 0;
	if (packet.payload_length) {
		out->payload[0].iov_len = packet.payload_length;
		out->payload[0].iov_base =
			snt__soft_remote(&qp->device->memory, &qp->ibv, memo->rkey,
					 memo->addr + offset, packet.payload_length,
					 IBV_ACCESS_REMOTE_READ);
		if (!out->payload[0].iov_base)
			return 0;
	}
	snt__soft_packet_end(&qp->path, &packet, out);
	return count;
}

static void send_atomic_response(struct snt__soft_qp *qp,
				 const struct snt__soft_memo *memo,
				 struct snt__soft_packet *out)
{
	struct snt__wire_packet packet = { 0 };

	snt__soft_packet_begin(qp, SNT__WIRE_ATOMIC_ACKNOWLEDGE, memo->first, &packet);
	packet.ack.syndrome = SNT__SYNDROME_ACK_UNLIMITED;
	packet.ack.msn = memo->msn;
	packet.ack.original = memo->original;
	out->payload_count = 0;
	snt__soft_packet_end(&qp->path, &packet, out);
}

/* The memory of a READ has disappeared after it was accepted. No request after it can
 * be answered. */
static void revoke_read(struct snt__soft_qp *qp, const struct snt__soft_memo *memo)
{
	struct snt__soft_responder *responder = &qp->responder;

	responder->waiting_count = 0;
	responder->answer = false;
	snt__soft_answer(qp, SNT__SYNDROME_NAK_ACCESS, memo->first + memo->at);
	if (qp->ibv.state == IBV_QPS_ERR)
		return;
	snt__soft_raise(&qp->object, IBV_EVENT_QP_ACCESS_ERR);
	snt__soft_qp_error(qp);
}

/* One packet for the first memo. If its memory is gone after it was answered, a peer
 * that asks again is late, or has caused that itself. */
static bool send_memo(struct snt__soft_qp *qp, struct snt__soft_packet *out)
{
	struct snt__soft_responder *responder = &qp->responder;
	unsigned index = responder->waiting[0];
	struct snt__soft_memo *memo = &responder->memos[index];
	uint32_t sent = 1;

	if (memo->kind == SNT__WIRE_KIND_READ) {
		sent = send_read_response(qp, memo, out);
		if (!sent) {
			if (memo->state == SNT__SOFT_MEMO_NEW)
				revoke_read(qp, memo);
			else
				dequeue_memo(responder, index);
			return false;
		}
	} else {
		send_atomic_response(qp, memo, out);
	}
	memo->at += sent;
	if (memo->at == memo->stop) {
		memo->state = SNT__SOFT_MEMO_ANSWERED;
		dequeue_memo(responder, index);
	}
	return true;
}

static void send_answer(struct snt__soft_qp *qp, struct snt__soft_packet *out)
{
	struct snt__soft_responder *responder = &qp->responder;
	struct snt__wire_packet packet = { 0 };

	snt__soft_packet_begin(qp, SNT__WIRE_ACKNOWLEDGE, responder->answer_number,
			       &packet);
	packet.ack.syndrome = responder->answer_syndrome;
	packet.ack.msn = responder->msn;
	out->payload_count = 0;
	snt__soft_packet_end(&qp->path, &packet, out);
	responder->answer = false;
	if (snt__syndrome_class(packet.ack.syndrome) == SNT__SYNDROME_NAK)
		qp->device->stats.naks_out++;
}

/* NAKs never wait: the peer has to react to them. */
unsigned snt__soft_respond_output(struct snt__soft_qp *qp,
				  struct snt__soft_packet *packets, unsigned max,
				  bool hold)
{
	struct snt__soft_responder *responder = &qp->responder;
	unsigned count = 0;

	while (count < max && responder->waiting_count)
		count += send_memo(qp, &packets[count]);
	hold &= responder->answer_syndrome == SNT__SYNDROME_ACK_UNLIMITED;
	if (count < max && responder->answer && !hold)
		send_answer(qp, &packets[count++]);
	return count;
}
