/* SPDX-License-Identifier: MIT */
/*
 * Probes: the first and the last request in flight are sent again when the peer has been
 * silent for longer than it usually takes. The first fills the gap if it was the one that
 * was lost, and makes the peer say how far it is. The last fills the gap if nothing else
 * was lost, and otherwise makes the peer ask for what is missing. If nothing was lost, and
 * the peer only slow, two packets have been wasted.
 */
#include "dev/soft/qp.h"

/* The request that begins with this number, or the packet with this number of a longer
 * one. Returns the number of packets: 0 if its memory is no longer registered. */
static unsigned send_probe(struct snt__soft_qp *qp, uint32_t position, uint64_t number,
			   struct snt__soft_packet *out)
{
	const struct snt__soft_send *send = snt__soft_send_at(&qp->requester, position);
	struct snt__soft_cursor cursor = { 0 };
	uint64_t stop;

	if (send->kind > SNT__WIRE_KIND_READ) {
		snt__soft_request_atomic(qp, position, out);
		return 1;
	}
	if (send->kind == SNT__WIRE_KIND_READ) {
		stop = snt__soft_read_stop(&qp->requester, send, number);
		snt__soft_request_read(qp, position, number, stop, out);
		return 1;
	}
	if (!(send->flags & SNT__SOFT_INLINE))
		cursor = snt__soft_seek(snt__soft_send_sges(&qp->requester, position),
					send->sge_count,
					(number - send->first) * qp->mtu);
	return snt__soft_request_data(qp, position, number, number + 1, true, &cursor,
				      out);
}

/* The last request in flight, and the number it begins with: that of a packet, or of the
 * chunk of a READ. */
static uint32_t find_last_in_flight(const struct snt__soft_requester *requester,
				    uint64_t *number_out)
{
	uint64_t number = requester->next - 1;
	uint32_t position = requester->at;
	const struct snt__soft_send *send;

	/* Local WRs have no numbers. */
	while (position == requester->tail ||
	       number < snt__soft_send_at(requester, position)->first)
		position--;
	send = snt__soft_send_at(requester, position);
	if (send->kind == SNT__WIRE_KIND_READ)
		number -= (number - send->first) & (requester->chunk - 1);
	*number_out = number;
	return position;
}

unsigned snt__soft_probe_output(struct snt__soft_qp *qp, struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	bool first = requester->probe == SNT__SOFT_PROBE_FIRST;
	uint32_t position = requester->head;
	uint64_t number = requester->una;
	unsigned count;

	requester->probe = first ? SNT__SOFT_PROBE_LAST : SNT__SOFT_PROBE_NONE;
	/* All is to be sent again anyway. */
	if (requester->una == requester->next)
		return 0;
	if (!first)
		position = find_last_in_flight(requester, &number);
	if (!first && number <= requester->una)
		return 0;
	requester->probed = true;
	requester->trip.fresh = requester->sent;
	count = send_probe(qp, position, number, out);
	qp->device->stats.probe_packets += count;
	qp->stats.resent += count;
	return count;
}
