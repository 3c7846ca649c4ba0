/* SPDX-License-Identifier: MIT */
/* Input: finds a packet's QP, and checks that the packet comes from its peer. */
#include <string.h>

#include "dev/soft/datagram.h"
#include "dev/soft/qp.h"

static bool is_packet_from_peer(const struct snt__soft_qp *qp,
				const struct snt__soft_path *path)
{
	return memcmp(path->source, qp->path.target, 16) == 0 &&
	       memcmp(path->target, qp->path.source, 16) == 0;
}

static bool may_receive(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/* Returns false if the packet has no receiver. */
static bool input_datagram(struct snt__soft_device *device,
			   const struct snt__soft_path *path,
			   const struct snt__wire_packet *packet, uint64_t now)
{
	struct snt__soft_qp *qp;

	if (packet->qpn == SNT__WIRE_GSI_QPN) {
		snt__soft_mad_input(device, path, packet, now);
		return true;
	}
	qp = snt__soft_qp_find(device, packet->qpn);
	if (!qp || qp->ibv.qp_type != IBV_QPT_UD || !may_receive(qp->ibv.state))
		return false;
	snt__soft_datagram_input(qp, path, packet);
	return true;
}

static bool input_connected(struct snt__soft_device *device,
			    const struct snt__soft_path *path,
			    const struct snt__wire_packet *packet, uint64_t now)
{
	struct snt__soft_qp *qp = snt__soft_qp_find(device, packet->qpn);

	if (!qp || qp->ibv.qp_type != IBV_QPT_RC || !may_receive(qp->ibv.state) ||
	    !is_packet_from_peer(qp, path))
		return false;
	if (!snt__wire_kind_is_response(snt__wire_opcodes[packet->opcode].kind))
		snt__soft_respond_input(qp, packet);
	else
		snt__soft_complete_input(qp, packet, now);
	return true;
}

/* There is one partition; peers may be full or limited members. */
static bool pkey_valid(uint16_t pkey)
{
	return (pkey & 0x7fff) == (SNT__WIRE_PKEY_DEFAULT & 0x7fff);
}

void snt__soft_deliver(struct snt__soft_device *device,
		       const struct snt__soft_path *path,
		       const struct snt__wire_packet *packet, uint64_t now)
{
	bool wanted = false;

	if (device->fault.in) {
		device->stats.lost_by_fault++;
		return;
	}
	if (device->port_up && pkey_valid(packet->pkey)) {
		if (snt__wire_transport(packet->opcode) == SNT__WIRE_UD)
			wanted = input_datagram(device, path, packet, now);
		else
			wanted = input_connected(device, path, packet, now);
	}
	device->stats.dropped += !wanted;
}

void snt__soft_input(struct snt__soft_device *device, const struct snt__soft_path *path,
		     const uint8_t *bytes, size_t length, uint64_t now)
{
	struct snt__wire_packet packet;

	device->stats.packets_in++;
	if (snt__wire_decode(bytes, length, &packet) == 0)
		snt__soft_deliver(device, path, &packet, now);
	else
		device->stats.dropped++;
}
