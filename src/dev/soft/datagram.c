/* SPDX-License-Identifier: MIT */
#include "dev/soft/datagram.h"

#include <errno.h>
#include <string.h>

/* A receive begins with the datagram's IP header: an IPv6 one, or 20 unused bytes and
 * an IPv4 one. */
#define GRH_SIZE 40

/* A completion reports which of the two it is in its service level, which RoCE does not
 * use. Verbs do not define these values; NICs report and UCX expects them: UDP, with
 * IPv6 or IPv4. */
#define SL_IPV6 (8 | 1)
#define SL_IPV4 (8 | 2)

/*
 * Addresses
 */

int snt__soft_create_ah(struct ibv_pd *pd, const struct ibv_ah_attr *attr,
			struct ibv_ah **ah_out)
{
	struct snt__soft_device *device = snt__soft_device_of(pd->context);
	struct snt__soft_ah *ah = snt__soft_alloc(1, sizeof(*ah));
	uint16_t port;
	int err;

	if (!ah)
		return -ENOMEM;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	snt__soft_lock(device);
	port = 0xc000 | (snt__soft_random(device) & 0x3fff);
	err = device->dead ? -EIO : snt__soft_path_init(device, attr, port, &ah->path);
	if (!err) {
		snt__soft_pd(pd)->users++;
		device->object_count++;
	}
	snt__soft_unlock(device);
	if (err) {
		snt__soft_free(ah);
		return err;
	}
	*ah_out = &ah->ibv;
	return 0;
}

int snt__soft_destroy_ah(struct ibv_ah *ibv_ah)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_ah->context);

	snt__soft_lock(device);
	snt__soft_pd(ibv_ah->pd)->users--;
	device->object_count--;
	snt__soft_unlock(device);
	snt__soft_free(snt__container(ibv_ah, struct snt__soft_ah, ibv));
	return 0;
}

void snt__soft_datagram_address(struct snt__soft_qp *qp, uint32_t position,
				const struct ibv_send_wr *wr)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_send *send = snt__soft_send_at(requester, position);

	requester->paths[position & requester->mask] =
		snt__container(wr->wr.ud.ah, struct snt__soft_ah, ibv)->path;
	send->datagram.qpn = wr->wr.ud.remote_qpn;
	/* With the highest bit set, the QP's key is used. */
	send->datagram.qkey =
		wr->wr.ud.remote_qkey >> 31 ? qp->qkey : wr->wr.ud.remote_qkey;
}

/*
 * Sending
 */

static bool gather_datagram(struct snt__soft_qp *qp, const struct snt__soft_send *send,
			    struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_cursor cursor = { 0 };
	int count;

	if (send->flags & SNT__SOFT_INLINE) {
		out->payload[0].iov_base =
			snt__soft_send_inline(requester, requester->head);
		out->payload[0].iov_len = send->length;
		out->payload_count = send->length != 0;
		return true;
	}
	count = snt__soft_span(&qp->device->memory, qp->ibv.pd,
			       snt__soft_send_sges(requester, requester->head),
			       send->sge_count, &cursor, send->length, 0, out->payload);
	out->payload_count = count < 0 ? 0 : count;
	return count >= 0;
}

static void seal_datagram(struct snt__soft_qp *qp, const struct snt__soft_send *send,
			  struct snt__soft_packet *out)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__wire_packet packet = {
		.opcode = send->flags & SNT__SOFT_WITH_IMM ? SNT__WIRE_UD_SEND_ONLY_IMM
							   : SNT__WIRE_UD_SEND_ONLY,
		.flags = SNT__WIRE_MIGRATED,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = send->datagram.qpn,
		.psn = send->first & SNT__PSN_MASK,
		.immediate = send->immediate,
		.datagram = { .qkey = send->datagram.qkey,
			      .source_qpn = qp->ibv.qp_num },
		.payload_length = send->length,
	};

	if (send->flags & SNT__SOFT_WANTS_EVENT)
		packet.flags |= SNT__WIRE_SOLICITED;
	snt__soft_packet_end(&requester->paths[requester->head & requester->mask],
			     &packet, out);
}

/* A datagram is complete when it is sent. */
unsigned snt__soft_datagram_output(struct snt__soft_qp *qp,
				   struct snt__soft_packet *packets, unsigned max)
{
	struct snt__soft_requester *requester = &qp->requester;
	unsigned count;

	if (qp->ibv.state != IBV_QPS_RTS)
		return 0;
	for (count = 0; count < max && requester->head != requester->tail; count++) {
		const struct snt__soft_send *send =
			snt__soft_send_at(requester, requester->head);

		if (!gather_datagram(qp, send, &packets[count])) {
			snt__soft_send_fail(qp, IBV_WC_LOC_PROT_ERR);
			return count;
		}
		seal_datagram(qp, send, &packets[count]);
		requester->una = requester->next = requester->sent = send->end;
		requester->at++;
		snt__soft_send_retire(qp);
	}
	return count;
}

/*
 * Receiving
 */

/* The checksum over an IPv4 header whose own field is 0. */
static uint16_t ipv4_checksum(const uint8_t header[20])
{
	uint32_t sum = 0;
	unsigned i;

	for (i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

/* The header as it was on the wire, as far as it is known. */
static void make_grh(const struct snt__soft_path *path, uint32_t udp_length,
		     uint8_t grh[GRH_SIZE])
{
	uint8_t *ipv4 = grh + 20;
	uint16_t checksum;

	memset(grh, 0, GRH_SIZE);
	if (!snt__soft_is_ipv4(path->source)) {
		snt__wire_put32(grh, 6u << 28 | (uint32_t)path->traffic_class << 20 |
					     (path->flow_label & 0xfffff));
		snt__wire_put32(grh + 4, udp_length << 16 | 17 << 8 | path->hop_limit);
		memcpy(grh + 8, path->source, 16);
		memcpy(grh + 24, path->target, 16);
		return;
	}
	snt__wire_put32(ipv4, 0x45u << 24 | (uint32_t)path->traffic_class << 16 |
				      (udp_length + 20));
	ipv4[6] = 0x40; /* don't fragment */
	ipv4[8] = path->hop_limit;
	ipv4[9] = 17;
	memcpy(ipv4 + 12, path->source + 12, 4);
	memcpy(ipv4 + 16, path->target + 12, 4);
	checksum = ipv4_checksum(ipv4);
	ipv4[10] = checksum >> 8;
	ipv4[11] = (uint8_t)checksum;
}

static bool scatter_datagram(struct snt__soft_qp *qp, const uint8_t *bytes,
			     uint32_t length)
{
	struct snt__soft_responder *responder = &qp->responder;
	struct snt__soft_recv *recv = &responder->recv;

	return snt__soft_scatter(&qp->device->memory, responder->queue->pd, recv->sges,
				 recv->sge_count, &recv->cursor, bytes, length);
}

/* BTH, DETH and, perhaps, immediate; pad and ICRC; and the UDP header. */
static uint32_t udp_length(const struct snt__wire_packet *packet)
{
	return 8 + snt__wire_opcodes[packet->opcode].header_size +
	       (uint32_t)packet->payload_length +
	       snt__wire_pad(packet->payload_length) + 4;
}

static void deliver_datagram(struct snt__soft_qp *qp, const struct snt__soft_path *path,
			     const struct snt__wire_packet *packet)
{
	struct ibv_wc wc = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = GRH_SIZE + packet->payload_length,
		.src_qp = packet->datagram.source_qpn,
		.wc_flags = IBV_WC_GRH,
		.sl = snt__soft_is_ipv4(path->source) ? SL_IPV4 : SL_IPV6,
	};
	uint8_t grh[GRH_SIZE];

	if (qp->responder.recv.room < wc.byte_len) {
		snt__soft_recv_fail(qp, IBV_WC_LOC_LEN_ERR);
		snt__soft_qp_error(qp);
		return;
	}
	make_grh(path, udp_length(packet), grh);
	if (!scatter_datagram(qp, grh, sizeof(grh)) ||
	    !scatter_datagram(qp, packet->payload, packet->payload_length)) {
		snt__soft_recv_fail(qp, IBV_WC_LOC_PROT_ERR);
		snt__soft_qp_error(qp);
		return;
	}
	if (packet->opcode == SNT__WIRE_UD_SEND_ONLY_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = packet->immediate;
	}
	snt__soft_recv_retire(qp, &wc, packet->flags & SNT__WIRE_SOLICITED);
}

void snt__soft_datagram_input(struct snt__soft_qp *qp,
			      const struct snt__soft_path *path,
			      const struct snt__wire_packet *packet)
{
	struct snt__soft_responder *responder = &qp->responder;

	if (packet->datagram.qkey != qp->qkey || packet->payload_length > qp->mtu ||
	    !snt__soft_recv_take(responder->queue, &responder->recv)) {
		qp->device->stats.dropped++;
		return;
	}
	if (qp->ibv.srq)
		snt__soft_srq_taken(snt__soft_srq(qp->ibv.srq));
	deliver_datagram(qp, path, packet);
}
