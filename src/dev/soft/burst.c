/* SPDX-License-Identifier: MIT */
#include "dev/soft/burst.h"

#include <string.h>

/* The most that a driver can offer; more packets in a burst gain nothing. */
#define PACKETS_MAX 1024

/* In the second byte of a BTH: the length of the pad, which bursts do not have. */
#define PAD_BITS 0x30

/*
 * Reach
 */

static uint32_t packets_in(uint32_t bytes, uint32_t mtu)
{
	uint32_t packets = bytes / mtu;

	if (packets > PACKETS_MAX)
		return PACKETS_MAX;
	return packets ? packets : 1;
}

uint32_t snt__soft_burst_reach(const struct snt__soft_qp *qp)
{
	const struct snt__soft_device *device = qp->device;

	if (!device->driver->reach)
		return 1;
	return packets_in(device->driver->reach(device->driver_arg, qp->path.target,
						qp->peer_qpn),
			  qp->mtu);
}

void snt__soft_device_set_reach(struct snt__soft_device *device,
				const uint8_t target[16], unsigned seat, uint32_t bytes)
{
	for (uint32_t i = 0; i <= device->qp_mask; i++) {
		struct snt__soft_qp *qp = device->qps[i];

		if (qp && qp->mtu && snt__seat_of_qpn(qp->peer_qpn) == seat &&
		    !memcmp(qp->path.target, target, 16))
			qp->burst = packets_in(bytes, qp->mtu);
	}
}

/*
 * Input
 */

bool snt__soft_input_burst(struct snt__soft_device *device,
			   const struct snt__soft_path *path,
			   uint8_t header[SNT__WIRE_HEADER_MAX], size_t header_length,
			   const uint8_t *payload, size_t payload_length,
			   const struct snt__soft_source *source, uint64_t now)
{
	struct snt__wire_packet packet;

	device->stats.packets_in++;
	header[1] &= (uint8_t)~PAD_BITS;
	if (snt__wire_decode(header, header_length, &packet) || packet.payload_length ||
	    (payload_length &&
	     !(snt__wire_opcodes[packet.opcode].parts & SNT__WIRE_PAYLOAD))) {
		device->stats.dropped++;
		return false;
	}
	packet.payload = payload;
	packet.payload_length = payload_length;
	device->burst_max = PACKETS_MAX;
	device->source = source;
	device->source_skip = 0;
	snt__soft_deliver(device, path, &packet, now);
	device->burst_max = 1;
	device->source = NULL;
	return true;
}

bool snt__soft_burst_rest(struct snt__soft_qp *qp,
			  const struct snt__wire_packet *packet, uint32_t behind,
			  struct snt__wire_packet *rest_out)
{
	const struct snt__wire_opcode_info *info = &snt__wire_opcodes[packet->opcode];
	size_t bytes = (size_t)behind * qp->mtu;

	if (info->kind > SNT__WIRE_KIND_WRITE || packet->payload_length <= bytes)
		return false;
	*rest_out = *packet;
	rest_out->opcode =
		snt__wire_opcode(info->kind, false, info->parts & SNT__WIRE_LAST,
				 info->parts & SNT__WIRE_IMMEDIATE);
	if (info->parts & SNT__WIRE_IETH)
		rest_out->opcode = SNT__WIRE_SEND_LAST_INVALIDATE;
	rest_out->psn = snt__psn_add(packet->psn, behind);
	rest_out->payload_length -= bytes;
	if (qp->device->source)
		qp->device->source_skip = bytes;
	else
		rest_out->payload += bytes;
	return true;
}

/*
 * Payload
 */

bool snt__soft_payload(const struct snt__soft_device *device,
		       const struct snt__wire_packet *packet, const struct iovec *to,
		       unsigned count)
{
	const uint8_t *from = packet->payload;

	if (device->source)
		return device->source->copy(device->source, device->source_skip, to,
					    count);
	for (unsigned i = 0; i < count; i++) {
		memcpy(to[i].iov_base, from, to[i].iov_len);
		from += to[i].iov_len;
	}
	return true;
}

enum snt__soft_verdict snt__soft_payload_scatter(const struct snt__soft_device *device,
						 const struct snt__wire_packet *packet,
						 const struct ibv_pd *pd,
						 const struct ibv_sge *sge,
						 unsigned sge_count,
						 struct snt__soft_cursor *cursor)
{
	struct snt__soft_cursor at = *cursor;
	struct iovec pieces[SNT__SOFT_SGE_MAX];
	int count =
		snt__soft_span(&device->memory, pd, sge, sge_count, &at,
			       packet->payload_length, IBV_ACCESS_LOCAL_WRITE, pieces);

	if (count < 0)
		return SNT__SOFT_BROKEN;
	if (!snt__soft_payload(device, packet, pieces, count))
		return SNT__SOFT_LOST;
	*cursor = at;
	return SNT__SOFT_DONE;
}
