/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_WIRE_H
#define SNT_DEV_SOFT_WIRE_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * InfiniBand transport packets, as RoCEv2 carries them in UDP:
 *
 *	BTH | extension headers | payload | pad to a multiple of 4 | ICRC
 *
 * Here they begin with the BTH and end with the pad; icrc.h has the rest. RC and UD
 * only. Everything is big-endian on the wire and host-endian in the structures, except
 * for immediate data, which is four bytes of the sender's.
 */

#define SNT__WIRE_PORT	       4791
#define SNT__QPN_MASK	       0xffffffu
#define SNT__WIRE_HEADER_MAX   40     /* BTH and AtomicETH */
#define SNT__WIRE_PKEY_DEFAULT 0xffff /* the only one that RoCE uses */
#define SNT__WIRE_GSI_QPN      1
#define SNT__WIRE_GSI_QKEY     0x80010000u

enum snt__wire_opcode {
	SNT__WIRE_SEND_FIRST = 0x00,
	SNT__WIRE_SEND_MIDDLE = 0x01,
	SNT__WIRE_SEND_LAST = 0x02,
	SNT__WIRE_SEND_LAST_IMM = 0x03,
	SNT__WIRE_SEND_ONLY = 0x04,
	SNT__WIRE_SEND_ONLY_IMM = 0x05,
	SNT__WIRE_WRITE_FIRST = 0x06,
	SNT__WIRE_WRITE_MIDDLE = 0x07,
	SNT__WIRE_WRITE_LAST = 0x08,
	SNT__WIRE_WRITE_LAST_IMM = 0x09,
	SNT__WIRE_WRITE_ONLY = 0x0a,
	SNT__WIRE_WRITE_ONLY_IMM = 0x0b,
	SNT__WIRE_READ_REQUEST = 0x0c,
	SNT__WIRE_READ_RESPONSE_FIRST = 0x0d,
	SNT__WIRE_READ_RESPONSE_MIDDLE = 0x0e,
	SNT__WIRE_READ_RESPONSE_LAST = 0x0f,
	SNT__WIRE_READ_RESPONSE_ONLY = 0x10,
	SNT__WIRE_ACKNOWLEDGE = 0x11,
	SNT__WIRE_ATOMIC_ACKNOWLEDGE = 0x12,
	SNT__WIRE_COMPARE_SWAP = 0x13,
	SNT__WIRE_FETCH_ADD = 0x14,
	SNT__WIRE_SEND_LAST_INVALIDATE = 0x16,
	SNT__WIRE_SEND_ONLY_INVALIDATE = 0x17,
	SNT__WIRE_UD_SEND_ONLY = 0x64,
	SNT__WIRE_UD_SEND_ONLY_IMM = 0x65,
};

/* The upper three bits of an opcode. */
enum snt__wire_transport {
	SNT__WIRE_RC = 0,
	SNT__WIRE_UD = 3,
};

static inline unsigned snt__wire_transport(uint8_t opcode)
{
	return opcode >> 5;
}

/* The kinds of packets. The responder's come last. */
enum snt__wire_kind {
	SNT__WIRE_KIND_SEND,
	SNT__WIRE_KIND_WRITE,
	SNT__WIRE_KIND_READ,
	SNT__WIRE_KIND_COMPARE_SWAP,
	SNT__WIRE_KIND_FETCH_ADD,
	SNT__WIRE_KIND_READ_RESPONSE,
	SNT__WIRE_KIND_ACKNOWLEDGE,
	SNT__WIRE_KIND_ATOMIC_ACKNOWLEDGE,
};

static inline bool snt__wire_kind_is_response(uint8_t kind)
{
	return kind >= SNT__WIRE_KIND_READ_RESPONSE;
}

/* The parts of a packet, by opcode. First and last together is "only", neither is
 * "middle"; messages that are never cut into packets have both. */
enum snt__wire_part {
	SNT__WIRE_FIRST = 1 << 0,
	SNT__WIRE_LAST = 1 << 1,
	SNT__WIRE_PAYLOAD = 1 << 2, /* it may be empty */
	SNT__WIRE_RETH = 1 << 3,
	SNT__WIRE_ATOMIC_ETH = 1 << 4,
	SNT__WIRE_AETH = 1 << 5,
	SNT__WIRE_ATOMIC_ACK_ETH = 1 << 6, /* behind an AETH */
	SNT__WIRE_IETH = 1 << 7,
	SNT__WIRE_DETH = 1 << 8,
	SNT__WIRE_IMMEDIATE = 1 << 9, /* behind the others */
};

struct snt__wire_opcode_info {
	uint16_t parts;
	uint8_t kind;
	uint8_t header_size; /* of BTH and extension headers; 0: no such opcode */
};

/* By opcode. */
extern const struct snt__wire_opcode_info snt__wire_opcodes[256];

/* The opcode of one packet of a message that is a SEND, a WRITE or a READ response. */
static inline uint8_t snt__wire_opcode(enum snt__wire_kind kind, bool first, bool last,
				       bool immediate)
{
	if (kind == SNT__WIRE_KIND_READ_RESPONSE)
		return SNT__WIRE_READ_RESPONSE_FIRST + (first ? 3 * last : 1 + last);
	return (kind == SNT__WIRE_KIND_WRITE ? SNT__WIRE_WRITE_FIRST
					     : SNT__WIRE_SEND_FIRST) +
	       (first ? last * (4 + immediate) : 1 + last * (1 + immediate));
}

enum snt__wire_flag {
	SNT__WIRE_SOLICITED = 1 << 7,
	SNT__WIRE_MIGRATED = 1 << 6, /* adapters set it in all packets, rxe in none */
	SNT__WIRE_ACK_REQUEST = 1 << 5,
};

/* One packet, within a cache line. Only the extension headers of its opcode have a
 * meaning; no opcode has two that share a place. */
struct snt__wire_packet {
	uint8_t opcode;
	uint8_t flags;
	uint16_t pkey;
	uint32_t qpn; /* the destination's */
	uint32_t psn;
	uint32_t immediate; /* in wire order, as in struct ibv_wc */
	union {
		struct {
			uint64_t addr;
			uint32_t key;
			uint32_t length; /* of the whole message */
		} reth;
		struct {
			uint64_t addr;
			uint32_t key;
			uint64_t swap_add;
			uint64_t compare;
		} atomic;
		struct {
			uint8_t syndrome;
			uint32_t msn;
			uint64_t original; /* of the AtomicAckETH */
		} ack;
		struct {
			uint32_t key;
		} invalidate;
		struct {
			uint32_t qkey;
			uint32_t source_qpn;
		} datagram;
	};
	size_t payload_length;	/* without pad */
	const uint8_t *payload; /* set by decode, ignored by encode */
};

/* How many bytes of pad follow a payload. */
static inline unsigned snt__wire_pad(size_t payload_length)
{
	return -payload_length & 3;
}

/*
 * Writes BTH and extension headers for a packet whose payload, of the given length, the
 * caller sends along. The opcode is one of the above; numbers are truncated to their
 * fields. Returns the number of bytes written.
 */
static inline size_t snt__wire_encode(const struct snt__wire_packet *packet,
				      uint8_t header[SNT__WIRE_HEADER_MAX]);

/*
 * Parses a packet from BTH to pad, which need not be aligned; its payload points into
 * it. Reserved bits are ignored. An accepted packet has exactly the headers of its
 * opcode; whether its length fits MTU, RETH or buffer is for the caller to check.
 * Errors have no text, since any host can cause them.
 *
 *	-EBADMSG	  cut off within its headers
 *	-EPROTONOSUPPORT  another version of the transport
 *	-EOPNOTSUPP	  an opcode that is not in the table
 *	-EMSGSIZE	  payload and pad: not a multiple of 4, payload where there is none,
 *			  more pad than there are bytes
 */
static inline int snt__wire_decode(const uint8_t *bytes, size_t length,
				   struct snt__wire_packet *packet_out);

/* Packet sequence numbers have 24 bits and wrap. */
#define SNT__PSN_MASK 0xffffffu

static inline uint32_t snt__psn_add(uint32_t psn, uint32_t count)
{
	return (psn + count) & SNT__PSN_MASK;
}

/* How far a is ahead of b; negative if it is behind. */
static inline int32_t snt__psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* AETH syndromes: a class in the upper three bits, a value in the lower five. */
enum snt__syndrome {
	SNT__SYNDROME_ACK = 0x00,	    /* value: a code for credits */
	SNT__SYNDROME_ACK_UNLIMITED = 0x1f, /* no credits are counted */
	SNT__SYNDROME_RNR = 0x20,	    /* value: a code for the delay */
	SNT__SYNDROME_NAK = 0x60,	    /* value: a reason, as follows */
	SNT__SYNDROME_NAK_SEQUENCE = 0x60,
	SNT__SYNDROME_NAK_INVALID_REQUEST = 0x61,
	SNT__SYNDROME_NAK_ACCESS = 0x62,
	SNT__SYNDROME_NAK_OPERATIONAL = 0x63,
};

static inline uint8_t snt__syndrome_class(uint8_t syndrome)
{
	return syndrome & 0xe0;
}

static inline uint8_t snt__syndrome_value(uint8_t syndrome)
{
	return syndrome & 0x1f;
}

/* The delay of an RNR NAK with this code, as in ibv_qp_attr.min_rnr_timer. */
uint64_t snt__rnr_timer_ns(unsigned code);

/* From ibv_qp_attr.timeout; 0: never. */
static inline uint64_t snt__ack_timeout_ns(unsigned timeout)
{
	return timeout ? UINT64_C(4096) << (timeout & 31) : 0;
}

/* From enum ibv_mtu; 0 if invalid. */
static inline uint32_t snt__mtu_bytes(unsigned mtu)
{
	return mtu >= 1 && mtu <= 5 ? 128u << mtu : 0;
}

/* The largest enum ibv_mtu of at most that many bytes; 0 if there is none. */
static inline unsigned snt__mtu_within(size_t bytes)
{
	if (bytes < 256)
		return 0;
	return bytes >= 4096 ? 5 : 24 - (unsigned)__builtin_clz((unsigned)bytes);
}

/* Inline definitions of encode and decode. */

static inline uint32_t snt__wire_get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return be32toh(value);
}

static inline uint64_t snt__wire_get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return be64toh(value);
}

static inline void snt__wire_put32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

static inline void snt__wire_put64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
}

/* The extension header behind the BTH, at `at`. */
static inline void snt__wire_encode_extension(const struct snt__wire_packet *packet,
					      unsigned parts, uint8_t *at)
{
	if (parts & SNT__WIRE_RETH) {
		snt__wire_put64(at, packet->reth.addr);
		snt__wire_put32(at + 8, packet->reth.key);
		snt__wire_put32(at + 12, packet->reth.length);
	} else if (parts & SNT__WIRE_AETH) {
		snt__wire_put32(at, (uint32_t)packet->ack.syndrome << 24 |
					    (packet->ack.msn & SNT__PSN_MASK));
		if (parts & SNT__WIRE_ATOMIC_ACK_ETH)
			snt__wire_put64(at + 4, packet->ack.original);
	} else if (parts & SNT__WIRE_ATOMIC_ETH) {
		snt__wire_put64(at, packet->atomic.addr);
		snt__wire_put32(at + 8, packet->atomic.key);
		snt__wire_put64(at + 12, packet->atomic.swap_add);
		snt__wire_put64(at + 20, packet->atomic.compare);
	} else if (parts & SNT__WIRE_DETH) {
		snt__wire_put32(at, packet->datagram.qkey);
		snt__wire_put32(at + 4, packet->datagram.source_qpn & SNT__QPN_MASK);
	} else if (parts & SNT__WIRE_IETH) {
		snt__wire_put32(at, packet->invalidate.key);
	}
}

static inline void snt__wire_decode_extension(struct snt__wire_packet *packet,
					      unsigned parts, const uint8_t *at)
{
	if (parts & SNT__WIRE_RETH) {
		packet->reth.addr = snt__wire_get64(at);
		packet->reth.key = snt__wire_get32(at + 8);
		packet->reth.length = snt__wire_get32(at + 12);
	} else if (parts & SNT__WIRE_AETH) {
		packet->ack.syndrome = at[0];
		packet->ack.msn = snt__wire_get32(at) & SNT__PSN_MASK;
		if (parts & SNT__WIRE_ATOMIC_ACK_ETH)
			packet->ack.original = snt__wire_get64(at + 4);
	} else if (parts & SNT__WIRE_ATOMIC_ETH) {
		packet->atomic.addr = snt__wire_get64(at);
		packet->atomic.key = snt__wire_get32(at + 8);
		packet->atomic.swap_add = snt__wire_get64(at + 12);
		packet->atomic.compare = snt__wire_get64(at + 20);
	} else if (parts & SNT__WIRE_DETH) {
		packet->datagram.qkey = snt__wire_get32(at);
		packet->datagram.source_qpn = snt__wire_get32(at + 4) & SNT__QPN_MASK;
	} else if (parts & SNT__WIRE_IETH) {
		packet->invalidate.key = snt__wire_get32(at);
	}
}

static inline size_t snt__wire_encode(const struct snt__wire_packet *packet,
				      uint8_t header[SNT__WIRE_HEADER_MAX])
{
	const struct snt__wire_opcode_info *info = &snt__wire_opcodes[packet->opcode];
	uint32_t flags = packet->flags;

	snt__wire_put32(header, (uint32_t)packet->opcode << 24 | (flags & 0xc0) << 16 |
					snt__wire_pad(packet->payload_length) << 20 |
					packet->pkey);
	snt__wire_put32(header + 4, packet->qpn & SNT__QPN_MASK);
	snt__wire_put32(header + 8, (flags & SNT__WIRE_ACK_REQUEST) << 26 |
					    (packet->psn & SNT__PSN_MASK));
	snt__wire_encode_extension(packet, info->parts, header + 12);
	if (info->parts & SNT__WIRE_IMMEDIATE)
		memcpy(header + info->header_size - 4, &packet->immediate, 4);
	return info->header_size;
}

static inline int snt__wire_decode(const uint8_t *bytes, size_t length,
				   struct snt__wire_packet *packet_out)
{
	const struct snt__wire_opcode_info *info;
	uint32_t begin, psn;
	size_t pad, rest;

	if (length < 12)
		return -EBADMSG;
	begin = snt__wire_get32(bytes);
	if (begin & 0x000f0000)
		return -EPROTONOSUPPORT;
	info = &snt__wire_opcodes[begin >> 24];
	if (!info->header_size)
		return -EOPNOTSUPP;
	if (length < info->header_size)
		return -EBADMSG;
	rest = length - info->header_size;
	pad = begin >> 20 & 3;
	if (rest & 3 || pad > rest || (rest && !(info->parts & SNT__WIRE_PAYLOAD)))
		return -EMSGSIZE;
	psn = snt__wire_get32(bytes + 8);
	packet_out->opcode = begin >> 24;
	packet_out->flags = (begin >> 16 & 0xc0) | (psn >> 26 & SNT__WIRE_ACK_REQUEST);
	packet_out->pkey = begin;
	packet_out->qpn = snt__wire_get32(bytes + 4) & SNT__QPN_MASK;
	packet_out->psn = psn & SNT__PSN_MASK;
	packet_out->payload_length = rest - pad;
	packet_out->payload = bytes + info->header_size;
	snt__wire_decode_extension(packet_out, info->parts, bytes + 12);
	if (info->parts & SNT__WIRE_IMMEDIATE)
		memcpy(&packet_out->immediate, bytes + info->header_size - 4, 4);
	return 0;
}

#endif
