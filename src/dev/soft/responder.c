/* SPDX-License-Identifier: MIT */
/* Requests from the peer are checked: in order, repeated, or too early. */
#include "dev/soft/burst.h"

static uint8_t nak_syndrome(enum snt__soft_verdict verdict)
{
	switch (verdict) {
	case SNT__SOFT_INVALID:
		return SNT__SYNDROME_NAK_INVALID_REQUEST;
	case SNT__SOFT_DENIED:
		return SNT__SYNDROME_NAK_ACCESS;
	default:
		return SNT__SYNDROME_NAK_OPERATIONAL;
	}
}

/* A receive that failed is reported by its completion, everything else by an event. */
static void fail_responder(struct snt__soft_qp *qp, enum snt__soft_verdict verdict)
{
	snt__soft_answer(qp, nak_syndrome(verdict), qp->responder.expected);
	if (verdict == SNT__SOFT_INVALID)
		snt__soft_raise(&qp->object, IBV_EVENT_QP_REQ_ERR);
	else if (verdict == SNT__SOFT_DENIED)
		snt__soft_raise(&qp->object, IBV_EVENT_QP_ACCESS_ERR);
	snt__soft_qp_error(qp);
}

static void not_ready(struct snt__soft_qp *qp)
{
	struct snt__soft_responder *responder = &qp->responder;

	responder->nak_sent = true;
	responder->early = responder->expected; /* none yet */
	qp->device->stats.rnr_out++;
	snt__soft_answer(qp, SNT__SYNDROME_RNR | qp->attr.min_rnr_timer,
			 responder->expected);
}

/* Has the peer begun again since the NAK, without sending the expected request? Then what
 * comes first is what came first after the NAK, or before that; or it is a probe, which
 * repeats what came last. Packets that others have overtaken are in between. */
static bool begins_again(struct snt__soft_qp *qp, uint64_t number)
{
	struct snt__soft_responder *responder = &qp->responder;
	bool first = !responder->nak_sent || responder->early == responder->expected;
	bool again =
		!first && (number <= responder->early || number == responder->latest);

	if (first || number < responder->early)
		responder->early = number;
	responder->latest = number;
	return again && !qp->device->limits.nak_once;
}

/* An answer that has not been sent yet, other than an ACK, says as much. */
static void send_nak(struct snt__soft_qp *qp)
{
	struct snt__soft_responder *responder = &qp->responder;

	responder->nak_sent = true;
	if (responder->answer &&
	    responder->answer_syndrome != SNT__SYNDROME_ACK_UNLIMITED)
		return;
	snt__soft_answer(qp, SNT__SYNDROME_NAK_SEQUENCE, responder->expected);
}

static void out_of_order(struct snt__soft_qp *qp, uint64_t number)
{
	bool again = begins_again(qp, number);

	qp->device->stats.out_of_order++;
	qp->stats.out_of_order++;
	if (!qp->responder.nak_sent || again)
		send_nak(qp);
}

/* READs and atomics have an answer of their own. */
static bool has_answer(const struct snt__wire_packet *packet)
{
	return snt__wire_opcodes[packet->opcode].kind >= SNT__WIRE_KIND_READ;
}

/* In order. How far the expected number advances depends on the request. */
static void execute_request(struct snt__soft_qp *qp,
			    const struct snt__wire_packet *packet)
{
	struct snt__soft_responder *responder = &qp->responder;
	enum snt__soft_verdict verdict;

	/* A NAK for this request that was not sent yet is obsolete. */
	if (responder->nak_sent &&
	    responder->answer_syndrome != SNT__SYNDROME_ACK_UNLIMITED)
		responder->answer = false;
	responder->nak_sent = false;
	verdict = snt__soft_execute(qp, packet);
	if (verdict == SNT__SOFT_RNR)
		not_ready(qp);
	else if (verdict == SNT__SOFT_LOST)
		qp->device->stats.dropped++;
	else if (verdict != SNT__SOFT_DONE)
		fail_responder(qp, verdict);
	else if ((packet->flags & SNT__WIRE_ACK_REQUEST) && !has_answer(packet))
		snt__soft_answer(qp, SNT__SYNDROME_ACK_UNLIMITED,
				 responder->expected - 1);
}

/*
 * Duplicates
 */

/* The memo of which the packet with this number is a repetition, in part or as a whole;
 * -1: it is too old to be remembered, or differs. */
static int find_memo(const struct snt__soft_qp *qp,
		     const struct snt__wire_packet *packet, uint64_t number,
		     uint32_t *start_out, uint32_t *stop_out)
{
	const struct snt__soft_responder *responder = &qp->responder;
	uint8_t kind = snt__wire_opcodes[packet->opcode].kind;
	bool read = kind == SNT__WIRE_KIND_READ;
	uint32_t count = read ? snt__soft_packets(packet->reth.length, qp->mtu) : 1;
	uint64_t addr = read ? packet->reth.addr : packet->atomic.addr;
	uint32_t rkey = read ? packet->reth.key : packet->atomic.key;
	unsigned i;

	for (i = 0; i < responder->memo_count; i++) {
		const struct snt__soft_memo *memo = &responder->memos[i];
		uint64_t start = number - memo->first;

		if (memo->state == SNT__SOFT_MEMO_FREE || memo->kind != kind ||
		    number < memo->first || start >= memo->count)
			continue;
		if (memo->rkey != rkey || memo->addr + start * qp->mtu != addr ||
		    count > memo->count - start)
			return -1;
		*start_out = (uint32_t)start;
		*stop_out = (uint32_t)start + count;
		return (int)i;
	}
	return -1;
}

/* The number up to which a peer that repeats this request can be acknowledged:
 * everything before the next READ or atomic, whose answer it may be missing. */
static uint64_t acknowledgeable_up_to(const struct snt__soft_responder *responder,
				      uint64_t number)
{
	uint64_t upto = responder->expected;
	unsigned i;

	for (i = 0; i < responder->memo_count; i++) {
		const struct snt__soft_memo *memo = &responder->memos[i];

		if (memo->state != SNT__SOFT_MEMO_FREE && memo->first > number &&
		    memo->first < upto)
			upto = memo->first;
	}
	return upto - 1;
}

/* Only READs are executed again. */
static void repeat_request(struct snt__soft_qp *qp,
			   const struct snt__wire_packet *packet, uint64_t number)
{
	struct snt__soft_responder *responder = &qp->responder;
	uint32_t start, stop;
	int index;

	qp->device->stats.duplicates++;
	qp->stats.duplicates++;
	if (!has_answer(packet)) {
		uint64_t upto = acknowledgeable_up_to(responder, number);

		if (upto + 1 == responder->expected && begins_again(qp, number))
			send_nak(qp);
		else
			snt__soft_answer(qp, SNT__SYNDROME_ACK_UNLIMITED, upto);
		return;
	}
	index = find_memo(qp, packet, number, &start, &stop);
	if (index < 0)
		return;
	snt__soft_memo_answer(responder, index, start, stop);
	snt__soft_qp_activate(qp);
}

void snt__soft_respond_input(struct snt__soft_qp *qp,
			     const struct snt__wire_packet *packet)
{
	uint64_t expected = qp->responder.expected;
	int32_t ahead = snt__psn_diff(packet->psn, expected & SNT__PSN_MASK);
	struct snt__wire_packet rest;

	if (ahead < 0 && qp->device->burst_max > 1 &&
	    snt__soft_burst_rest(qp, packet, -ahead, &rest)) {
		packet = &rest;
		ahead = 0;
	}
	if (!qp->established && qp->ibv.state == IBV_QPS_RTR && ahead <= 0) {
		qp->established = true;
		snt__soft_raise(&qp->object, IBV_EVENT_COMM_EST);
	}
	if (ahead > 0)
		out_of_order(qp, expected + ahead);
	else if (ahead < 0)
		repeat_request(qp, packet, expected + ahead);
	else
		execute_request(qp, packet);
}
