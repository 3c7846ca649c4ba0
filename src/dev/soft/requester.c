/* SPDX-License-Identifier: MIT */
/* Requests become packets, in order. */
#include "dev/soft/qp.h"
#include "dev/soft/window.h"
#include "util/assert.h"

/* All keys are checked when a WR begins, and again for each packet; once is enough if
 * it has only one. */
static bool keys_valid(const struct snt__soft_qp *qp, const struct snt__soft_send *send)
{
	const struct snt__soft_requester *requester = &qp->requester;
	const struct ibv_sge *sges = snt__soft_send_sges(requester, requester->at);
	unsigned access = snt__soft_send_reads(send) ? IBV_ACCESS_LOCAL_WRITE : 0;
	unsigned i;

	if ((send->flags & SNT__SOFT_INLINE) ||
	    (send->end - send->first == 1 && !snt__soft_send_reads(send)))
		return true;
	for (i = 0; i < send->sge_count; i++) {
		if (sges[i].length &&
		    !snt__soft_local(&qp->device->memory, qp->ibv.pd, sges[i].lkey,
				     sges[i].addr, sges[i].length, access))
			return false;
	}
	return true;
}

/* The WR, and with it the QP, fails as soon as the WRs before it are done. */
static void condemn_send(struct snt__soft_qp *qp, struct snt__soft_send *send,
			 enum ibv_wc_status status)
{
	send->status = status;
	if (qp->requester.head == qp->requester.at)
		snt__soft_send_fail(qp, status);
}

/* May the WR whose first packet is next be begun? One that was begun before a rewind
 * may, too, in any state. */
static bool may_begin(struct snt__soft_qp *qp, struct snt__soft_send *send)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (qp->ibv.state != IBV_QPS_RTS && send->first >= requester->sent)
		return false;
	if ((send->flags & SNT__SOFT_FENCED) && requester->reads)
		return false;
	if (send->status == IBV_WC_SUCCESS && !keys_valid(qp, send))
		send->status = IBV_WC_LOC_PROT_ERR;
	if (send->status == IBV_WC_SUCCESS)
		return true;
	condemn_send(qp, send, send->status);
	return false;
}

static bool execute_local(struct snt__soft_qp *qp, struct snt__soft_send *send)
{
	bool done;

	if (!may_begin(qp, send))
		return false;
	done = send->kind == SNT__SOFT_KIND_BIND
		       ? snt__soft_window_bind(qp, send)
		       : snt__soft_window_invalidate(qp, send->rkey);
	if (!done) {
		condemn_send(qp, send, IBV_WC_MW_BIND_ERR);
		return false;
	}
	send->flags |= SNT__SOFT_EXECUTED;
	return true;
}

/* Executes local WRs, up to one that has packets. False: there is none, or an error comes
 * first. */
static bool pass_local_sends(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	while (requester->at != requester->tail) {
		struct snt__soft_send *send =
			snt__soft_send_at(requester, requester->at);

		if (!snt__soft_send_local(send))
			return true;
		if (!(send->flags & SNT__SOFT_EXECUTED) && !execute_local(qp, send))
			return false;
		if (requester->at == requester->head)
			snt__soft_send_retire_local(qp);
		else
			requester->at++;
	}
	return false;
}

/* Packets up to that number have been sent. */
static void move_past_packets(struct snt__soft_qp *qp,
			      const struct snt__soft_send *send, uint64_t next)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->next < requester->sent) {
		qp->device->stats.resent++;
		qp->stats.resent++;
	}
	snt__assert(requester->next < next && next <= send->end);
	requester->next = next;
	if (requester->sent < next)
		requester->sent = next;
	if (next == send->end) {
		requester->at++;
		requester->cursor = (struct snt__soft_cursor){ 0 };
	}
}

/*
 * The number at which the window ends. A message that extends beyond it stops earlier,
 * at the end of a run: the rest is sent with what the next acknowledgment makes room
 * for, which is sure to come, because a run is at most a fourth of the window. Runs
 * begin after the first two packets of a message, of which one is longer than the
 * others.
 */
static uint64_t window_end(const struct snt__soft_requester *requester,
			   const struct snt__soft_send *send)
{
	uint64_t end = requester->una + requester->reads_packets + requester->window;

	if (end >= send->end || end < send->first + 2)
		return end;
	return end - (end - send->first - 2) % requester->run;
}

/* The last packet before the window ends asks for an ACK, so that a long path has as much
 * in flight as the window allows. */
static bool asks_for_ack(const struct snt__soft_requester *requester, uint64_t number,
			 uint64_t next, uint64_t window, uint64_t end)
{
	return next == end || next == window ||
	       ((number ^ next) & ~(uint64_t)requester->ack_mask);
}

/* One packet of a SEND or a WRITE, or several that are sent as one. */
static bool send_data(struct snt__soft_qp *qp, struct snt__soft_send *send,
		      struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	uint64_t number = requester->next, window = window_end(requester, send);
	uint64_t next = number + qp->burst;
	bool ask;

	if (number >= window)
		return false;
	if (next > window)
		next = window;
	if (next > send->end)
		next = send->end;
	ask = asks_for_ack(requester, number, next, window, send->end);
	if (!snt__soft_request_data(qp, requester->at, number, next, ask,
				    &requester->cursor, out)) {
		condemn_send(qp, send, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	if (ask)
		requester->asked = number;
	move_past_packets(qp, send, next);
	return true;
}

/* A chunk of a READ, or the rest of one. */
static bool send_read_request(struct snt__soft_qp *qp, struct snt__soft_send *send,
			      struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_device *device = qp->device;
	uint64_t stop = snt__soft_read_stop(requester, send, requester->next);
	uint32_t count = (uint32_t)(stop - requester->next);

	if (requester->reads == requester->reads_max ||
	    (requester->reads_packets &&
	     device->reads_bytes + count * qp->mtu > device->limits.response_window))
		return false;
	snt__soft_request_read(qp, requester->at, requester->next, stop, out);
	requester->asked = requester->next;
	requester->reads++;
	requester->reads_packets += count;
	device->reads_bytes += count * qp->mtu;
	move_past_packets(qp, send, stop);
	return true;
}

static bool send_atomic_request(struct snt__soft_qp *qp, struct snt__soft_send *send,
				struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->reads == requester->reads_max)
		return false;
	snt__soft_request_atomic(qp, requester->at, out);
	requester->asked = requester->next;
	requester->reads++;
	requester->reads_packets++;
	qp->device->reads_bytes += qp->mtu;
	move_past_packets(qp, send, send->end);
	return true;
}

static bool send_next(struct snt__soft_qp *qp, struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_send *send = snt__soft_send_at(requester, requester->at);

	if (requester->next == send->first && !may_begin(qp, send))
		return false;
	if (!snt__soft_send_reads(send))
		return send_data(qp, send, out);
	if (send->kind == SNT__WIRE_KIND_READ)
		return send_read_request(qp, send, out);
	return send_atomic_request(qp, send, out);
}

/* In SQD every WR that was begun has to complete. */
static void drain_sends(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	if (requester->drained ||
	    (requester->head != requester->tail &&
	     snt__soft_send_at(requester, requester->head)->first < requester->sent))
		return;
	requester->drained = true;
	if (qp->attr.en_sqd_async_notify)
		snt__soft_raise(&qp->object, IBV_EVENT_SQ_DRAINED);
}

unsigned snt__soft_request_output(struct snt__soft_qp *qp,
				  struct snt__soft_packet *packets, unsigned max,
				  uint64_t now)
{
	struct snt__soft_requester *requester = &qp->requester;
	unsigned count = 0;

	if (qp->ibv.state != IBV_QPS_RTS && qp->ibv.state != IBV_QPS_SQD)
		return 0;
	if (qp->ibv.state == IBV_QPS_SQD)
		drain_sends(qp);
	if (requester->rnr_wait)
		return 0;
	while (count < max && requester->probe)
		count += snt__soft_probe_output(qp, &packets[count]);
	requester->asked = SNT__SOFT_UNTIMED;
	while (count < max && pass_local_sends(qp) && send_next(qp, &packets[count]))
		count++;
	if (!count)
		return 0;
	if (requester->asked != SNT__SOFT_UNTIMED)
		snt__soft_round_trip_begin(&requester->trip, requester->asked, now);
	snt__soft_timer_start(qp, now);
	return count;
}
