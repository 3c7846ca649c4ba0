/* SPDX-License-Identifier: MIT */
/* Responses complete requests. */
#include "dev/soft/burst.h"
#include "util/assert.h"

/* Acknowledges up to a number, and retires what is complete. Stops, and returns false,
 * at a READ or an atomic: those need their own response, so that one that is passed
 * over must have been lost. */
static bool acknowledge_up_to(struct snt__soft_qp *qp, uint64_t upto)
{
	struct snt__soft_requester *requester = &qp->requester;

	while (requester->una < upto) {
		const struct snt__soft_send *send =
			snt__soft_send_at(requester, requester->head);

		if (snt__soft_send_reads(send))
			return false;
		requester->una = upto < send->end ? upto : send->end;
		if (requester->una == send->end)
			snt__soft_send_retire(qp);
	}
	return true;
}

/* The next expected response, of the oldest WR. Only responses that were asked for
 * since the last rewind are counted. */
static void respond_one(struct snt__soft_qp *qp, const struct snt__soft_send *send)
{
	struct snt__soft_requester *requester = &qp->requester;
	bool counted = requester->una < requester->next;
	uint64_t done = ++requester->una - send->first;

	if (counted) {
		requester->reads_packets--;
		qp->device->reads_bytes -= qp->mtu;
		if (requester->una == send->end || !(done & (requester->chunk - 1)))
			requester->reads--;
	}
	if (requester->una == send->end)
		snt__soft_send_retire(qp);
}

/* Copies into the SGEs of the oldest WR. */
static bool copy_response(struct snt__soft_qp *qp, const uint8_t *bytes,
			  uint32_t length)
{
	struct snt__soft_requester *requester = &qp->requester;
	uint32_t head = requester->head;

	return snt__soft_scatter(&qp->device->memory, qp->ibv.pd,
				 snt__soft_send_sges(requester, head),
				 snt__soft_send_at(requester, head)->sge_count,
				 &requester->landing, bytes, length);
}

/* How many of the expected responses a packet stands for; 0: it is not one of them. */
static uint32_t response_count(const struct snt__soft_qp *qp,
			       const struct snt__soft_send *send, size_t length)
{
	uint32_t done = (uint32_t)(qp->requester.una - send->first);
	uint32_t left = send->length - done * qp->mtu;
	uint32_t count;

	/* All are full, except the last one. */
	if (length > left || (length < left && (!length || length & (qp->mtu - 1))))
		return 0;
	count = snt__soft_packets(length, qp->mtu);
	return count <= qp->device->burst_max ? count : 0;
}

static enum ibv_wc_status read_response(struct snt__soft_qp *qp,
					const struct snt__wire_packet *packet)
{
	struct snt__soft_requester *requester = &qp->requester;
	uint32_t head = requester->head, count = 0;
	const struct snt__soft_send *send = snt__soft_send_at(requester, head);
	enum snt__soft_verdict verdict;

	if (send->kind == SNT__WIRE_KIND_READ)
		count = response_count(qp, send, packet->payload_length);
	if (!count)
		return IBV_WC_BAD_RESP_ERR;
	verdict = snt__soft_payload_scatter(qp->device, packet, qp->ibv.pd,
					    snt__soft_send_sges(requester, head),
					    send->sge_count, &requester->landing);
	if (verdict == SNT__SOFT_BROKEN)
		return IBV_WC_LOC_PROT_ERR;
	if (verdict == SNT__SOFT_DONE)
		while (count--)
			respond_one(qp, send);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status atomic_response(struct snt__soft_qp *qp,
					  const struct snt__wire_packet *packet)
{
	const struct snt__soft_send *send =
		snt__soft_send_at(&qp->requester, qp->requester.head);
	uint64_t original = packet->ack.original;

	if (send->kind <= SNT__WIRE_KIND_READ)
		return IBV_WC_BAD_RESP_ERR;
	if (!copy_response(qp, (const uint8_t *)&original, sizeof(original)))
		return IBV_WC_LOC_PROT_ERR;
	respond_one(qp, send);
	return IBV_WC_SUCCESS;
}

/* A response with data. It acknowledges everything before it. */
static void complete_data(struct snt__soft_qp *qp,
			  const struct snt__wire_packet *packet, uint64_t number,
			  uint64_t now)
{
	uint64_t before = qp->requester.una;
	enum ibv_wc_status status;

	if (!acknowledge_up_to(qp, number)) {
		if (qp->requester.una != before)
			snt__soft_progress(qp, now);
		snt__soft_lost(qp, false, now);
		return;
	}
	if (snt__wire_opcodes[packet->opcode].kind == SNT__WIRE_KIND_READ_RESPONSE)
		status = read_response(qp, packet);
	else
		status = atomic_response(qp, packet);
	if (status != IBV_WC_SUCCESS)
		snt__soft_send_fail(qp, status);
	else
		snt__soft_progress(qp, now);
}

static enum ibv_wc_status nak_status(uint8_t syndrome)
{
	switch (syndrome) {
	case SNT__SYNDROME_NAK_INVALID_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	case SNT__SYNDROME_NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

/* A NAK acknowledges all before its number, which is now the oldest. */
static void complete_nak(struct snt__soft_qp *qp, uint8_t syndrome, uint64_t now)
{
	if (snt__syndrome_class(syndrome) == SNT__SYNDROME_RNR)
		snt__soft_not_ready(qp, snt__syndrome_value(syndrome), now);
	else if (syndrome == SNT__SYNDROME_NAK_SEQUENCE)
		snt__soft_lost(qp, true, now);
	else
		snt__soft_send_fail(qp, nak_status(syndrome));
}

static void complete_ack(struct snt__soft_qp *qp, uint8_t syndrome, uint64_t number,
			 uint64_t now)
{
	bool nak = snt__syndrome_class(syndrome) != SNT__SYNDROME_ACK;
	uint64_t before = qp->requester.una;
	bool passed_over = !acknowledge_up_to(qp, nak ? number : number + 1);

	if (qp->requester.una != before)
		snt__soft_progress(qp, now);
	if (passed_over)
		snt__soft_lost(qp, false, now);
	else if (nak)
		complete_nak(qp, syndrome, now);
}

/* Other classes carry no information. */
static bool syndrome_known(uint8_t syndrome)
{
	uint8_t class = snt__syndrome_class(syndrome);

	return class == SNT__SYNDROME_ACK || class == SNT__SYNDROME_RNR ||
	       class == SNT__SYNDROME_NAK;
}

void snt__soft_complete_input(struct snt__soft_qp *qp,
			      const struct snt__wire_packet *packet, uint64_t now)
{
	const struct snt__wire_opcode_info *info = &snt__wire_opcodes[packet->opcode];
	struct snt__soft_requester *requester = &qp->requester;
	int32_t ahead = snt__psn_diff(packet->psn, requester->una & SNT__PSN_MASK);
	uint64_t number = requester->una + ahead;

	/* Behind: too late; beyond: never asked for. */
	if (ahead < 0 || number >= requester->sent) {
		qp->device->stats.ghosts++;
		return;
	}
	if ((info->parts & SNT__WIRE_AETH) && !syndrome_known(packet->ack.syndrome)) {
		qp->device->stats.dropped++;
		return;
	}
	if (info->kind == SNT__WIRE_KIND_ACKNOWLEDGE)
		complete_ack(qp, packet->ack.syndrome, number, now);
	else
		complete_data(qp, packet, number, now);
	snt__assert(requester->una <= requester->next &&
		    requester->next <= requester->sent &&
		    requester->sent <= requester->end);
}
