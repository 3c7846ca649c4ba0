/* SPDX-License-Identifier: MIT */
#include "dev/soft/cm_wire.h"

#include <errno.h>
#include <string.h>

#include "dev/soft/wire.h"
#include "util/bytes.h"

/* The MAD header. */
#define BASE_VERSION  1
#define CLASS	      0x07
#define CLASS_VERSION 2
#define METHOD_SEND   3
#define HEADER_SIZE   24

/* A path goes through routers: there are no LIDs. */
#define NO_LIDS 0xffffffffu

/* Where private data begins, from the end of the header. */
static const uint8_t data_offsets[SNT__CM_KINDS] = {
	[SNT__CM_REQ - SNT__CM_REQ] = 140, [SNT__CM_MRA - SNT__CM_REQ] = 10,
	[SNT__CM_REJ - SNT__CM_REQ] = 84,  [SNT__CM_REP - SNT__CM_REQ] = 36,
	[SNT__CM_RTU - SNT__CM_REQ] = 8,   [SNT__CM_DREQ - SNT__CM_REQ] = 12,
	[SNT__CM_DREP - SNT__CM_REQ] = 8,
};

static size_t data_at(enum snt__cm_kind kind)
{
	return HEADER_SIZE + data_offsets[kind - SNT__CM_REQ];
}

size_t snt__cm_data_size(enum snt__cm_kind kind)
{
	return SNT__CM_MAD_SIZE - data_at(kind);
}

/*
 * Fields of 24 bits have a neighbour of 8, and some of these are shared.
 */

static void put_u24(uint8_t *at, uint32_t value, uint8_t neighbour)
{
	snt__wire_put32(at, value << 8 | neighbour);
}

static uint32_t get_u24(const uint8_t *at)
{
	return snt__wire_get32(at) >> 8;
}

/*
 * REQ
 */

static void encode_req(const struct snt__cm_req *req, uint8_t *at)
{
	snt__wire_put64(at + 8, req->service);
	snt__wire_put64(at + 16, req->guid);
	put_u24(at + 32, req->qpn, req->responder_resources);
	put_u24(at + 36, 0, req->initiator_depth);
	put_u24(at + 40, 0,
		(uint8_t)(req->remote_timeout << 3 | (req->transport & 3) << 1 |
			  req->flow_control));
	put_u24(at + 44, req->psn,
		(uint8_t)(req->local_timeout << 3 | (req->retry_count & 7)));
	snt__put16(at + 48, req->pkey);
	at[50] = (uint8_t)(req->mtu << 4 | (req->rnr_retry_count & 7));
	at[51] = (uint8_t)(req->retries_max << 4 | req->srq << 3);
	snt__wire_put32(at + 52, NO_LIDS);
	memcpy(at + 56, req->local_gid, 16);
	memcpy(at + 72, req->remote_gid, 16);
	snt__wire_put32(at + 88, req->flow_label << 12);
	at[92] = req->traffic_class;
	at[93] = req->hop_limit;
	at[95] = (uint8_t)(req->ack_timeout << 3);
}

static void decode_req(const uint8_t *at, struct snt__cm_req *req)
{
	req->service = snt__wire_get64(at + 8);
	req->guid = snt__wire_get64(at + 16);
	req->qpn = get_u24(at + 32);
	req->responder_resources = at[35];
	req->initiator_depth = at[39];
	req->remote_timeout = at[43] >> 3;
	req->transport = at[43] >> 1 & 3;
	req->flow_control = at[43] & 1;
	req->psn = get_u24(at + 44);
	req->local_timeout = at[47] >> 3;
	req->retry_count = at[47] & 7;
	req->pkey = snt__get16(at + 48);
	req->mtu = at[50] >> 4;
	req->rnr_retry_count = at[50] & 7;
	req->retries_max = at[51] >> 4;
	req->srq = at[51] >> 3 & 1;
	memcpy(req->local_gid, at + 56, 16);
	memcpy(req->remote_gid, at + 72, 16);
	req->flow_label = snt__wire_get32(at + 88) >> 12;
	req->traffic_class = at[92];
	req->hop_limit = at[93];
	req->ack_timeout = at[95] >> 3;
}

/*
 * The others
 */

static void encode_rep(const struct snt__cm_rep *rep, uint8_t *at)
{
	put_u24(at + 12, rep->qpn, 0);
	put_u24(at + 20, rep->psn, 0);
	at[24] = rep->responder_resources;
	at[25] = rep->initiator_depth;
	at[26] = (uint8_t)(rep->ack_delay << 3 | (rep->failover & 3) << 1 |
			   rep->flow_control);
	at[27] = (uint8_t)(rep->rnr_retry_count << 5 | rep->srq << 4);
	snt__wire_put64(at + 28, rep->guid);
}

static void decode_rep(const uint8_t *at, struct snt__cm_rep *rep)
{
	rep->qpn = get_u24(at + 12);
	rep->psn = get_u24(at + 20);
	rep->responder_resources = at[24];
	rep->initiator_depth = at[25];
	rep->ack_delay = at[26] >> 3;
	rep->failover = at[26] >> 1 & 3;
	rep->flow_control = at[26] & 1;
	rep->rnr_retry_count = at[27] >> 5;
	rep->srq = at[27] >> 4 & 1;
	rep->guid = snt__wire_get64(at + 28);
}

static void encode_rej(const struct snt__cm_message *message, uint8_t *at)
{
	size_t length = message->rej.info_length;

	if (length > SNT__CM_REJ_INFO)
		length = SNT__CM_REJ_INFO;
	at[8] = (uint8_t)(message->rej.about << 6);
	at[9] = (uint8_t)(length << 1);
	snt__put16(at + 10, message->rej.reason);
	if (length)
		memcpy(at + 12, message->rej.info, length);
}

static int decode_rej(const uint8_t *at, struct snt__cm_message *message)
{
	message->rej.about = at[8] >> 6;
	message->rej.info_length = at[9] >> 1;
	message->rej.reason = snt__get16(at + 10);
	message->rej.info = at + 12;
	return message->rej.info_length <= SNT__CM_REJ_INFO ? 0 : -EBADMSG;
}

/*
 * Whole messages
 */

static void encode_header(const struct snt__cm_message *message, uint8_t *at)
{
	at[0] = BASE_VERSION;
	at[1] = CLASS;
	at[2] = CLASS_VERSION;
	at[3] = METHOD_SEND;
	snt__wire_put64(at + 8, message->transaction);
	snt__put16(at + 16, message->kind);
}

void snt__cm_encode(const struct snt__cm_message *message,
		    uint8_t mad[SNT__CM_MAD_SIZE])
{
	size_t room = snt__cm_data_size(message->kind);
	uint8_t *at = mad + HEADER_SIZE;

	memset(mad, 0, SNT__CM_MAD_SIZE);
	encode_header(message, mad);
	snt__wire_put32(at, message->local_id);
	if (message->kind != SNT__CM_REQ)
		snt__wire_put32(at + 4, message->remote_id);
	if (message->kind == SNT__CM_REQ) {
		encode_req(&message->req, at);
	} else if (message->kind == SNT__CM_REP) {
		encode_rep(&message->rep, at);
	} else if (message->kind == SNT__CM_REJ) {
		encode_rej(message, at);
	} else if (message->kind == SNT__CM_MRA) {
		at[8] = (uint8_t)(message->mra.about << 6);
		at[9] = (uint8_t)(message->mra.timeout << 3);
	} else if (message->kind == SNT__CM_DREQ) {
		put_u24(at + 8, message->dreq.qpn, 0);
	}
	if (message->data_length)
		memcpy(mad + data_at(message->kind), message->data,
		       message->data_length < room ? message->data_length : room);
}

int snt__cm_decode(const uint8_t mad[SNT__CM_MAD_SIZE],
		   struct snt__cm_message *message_out)
{
	const uint8_t *at = mad + HEADER_SIZE;
	uint16_t attribute = snt__get16(mad + 16);

	if (mad[0] != BASE_VERSION || mad[1] != CLASS || mad[2] != CLASS_VERSION ||
	    mad[3] != METHOD_SEND)
		return -EPROTONOSUPPORT;
	if (attribute < SNT__CM_REQ || attribute > SNT__CM_DREP)
		return -EOPNOTSUPP;
	message_out->kind = (uint8_t)attribute;
	message_out->transaction = snt__wire_get64(mad + 8);
	message_out->local_id = snt__wire_get32(at);
	message_out->remote_id = attribute == SNT__CM_REQ ? 0 : snt__wire_get32(at + 4);
	message_out->data = mad + data_at(attribute);
	message_out->data_length = snt__cm_data_size(attribute);
	if (attribute == SNT__CM_REQ) {
		decode_req(at, &message_out->req);
	} else if (attribute == SNT__CM_REP) {
		decode_rep(at, &message_out->rep);
	} else if (attribute == SNT__CM_REJ) {
		return decode_rej(at, message_out);
	} else if (attribute == SNT__CM_MRA) {
		message_out->mra.about = at[8] >> 6;
		message_out->mra.timeout = at[9] >> 3;
	} else if (attribute == SNT__CM_DREQ) {
		message_out->dreq.qpn = get_u24(at + 8);
	}
	return 0;
}

uint32_t snt__cm_receiver_id(const uint8_t mad[SNT__CM_MAD_SIZE])
{
	struct snt__cm_message message;

	return snt__cm_decode(mad, &message) ? 0 : message.remote_id;
}

/*
 * rdma_cm's part
 */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

void snt__cm_addresses_encode(const struct snt__cm_addresses *addresses,
			      uint8_t bytes[SNT__CM_ADDRESSES_SIZE])
{
	bool ipv4 = memcmp(addresses->target, mapped, sizeof(mapped)) == 0;
	size_t skip = ipv4 ? sizeof(mapped) : 0;

	memset(bytes, 0, SNT__CM_ADDRESSES_SIZE);
	bytes[1] = ipv4 ? 0x40 : 0x60;
	snt__put16(bytes + 2, addresses->port);
	memcpy(bytes + 4 + skip, addresses->source + skip, 16 - skip);
	memcpy(bytes + 20 + skip, addresses->target + skip, 16 - skip);
}

int snt__cm_addresses_decode(const uint8_t bytes[SNT__CM_ADDRESSES_SIZE],
			     struct snt__cm_addresses *addresses_out)
{
	bool ipv4 = bytes[1] >> 4 == 4;
	size_t skip = ipv4 ? sizeof(mapped) : 0;

	if (bytes[0] || (!ipv4 && bytes[1] >> 4 != 6))
		return -EPROTONOSUPPORT;
	memcpy(addresses_out->source, mapped, skip);
	memcpy(addresses_out->target, mapped, skip);
	memcpy(addresses_out->source + skip, bytes + 4 + skip, 16 - skip);
	memcpy(addresses_out->target + skip, bytes + 20 + skip, 16 - skip);
	addresses_out->port = snt__get16(bytes + 2);
	return 0;
}
