/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CM_WIRE_H
#define SNT_DEV_SOFT_CM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Messages of the InfiniBand connection manager. Each fills a MAD of 256 bytes:
 *
 *	MAD header (24) | fields | private data, up to the end
 *
 * What rdma_cm adds lies at the beginning of a REQ's private data: IP addresses and the
 * sender's port. Everything is big-endian on the wire and host-endian in the structures;
 * addresses are as in GIDs, an IPv4 one mapped.
 */

#define SNT__CM_MAD_SIZE 256

/* Attribute ids. */
enum snt__cm_kind {
	SNT__CM_REQ = 0x10,  /* a wish to connect */
	SNT__CM_MRA = 0x11,  /* an answer takes time */
	SNT__CM_REJ = 0x12,  /* refused */
	SNT__CM_REP = 0x13,  /* accepted */
	SNT__CM_RTU = 0x14,  /* ready to use */
	SNT__CM_DREQ = 0x15, /* request to disconnect */
	SNT__CM_DREP = 0x16, /* disconnected */
};

#define SNT__CM_KINDS 7

/* What an MRA or a REJ is about. */
enum snt__cm_about {
	SNT__CM_ABOUT_REQ = 0,
	SNT__CM_ABOUT_REP = 1,
	SNT__CM_ABOUT_OTHER = 2,
};

#define SNT__CM_TRANSPORT_RC 0
#define SNT__CM_REQ_PRIVATE  92
#define SNT__CM_REP_PRIVATE  196
#define SNT__CM_REJ_PRIVATE  148
#define SNT__CM_REJ_INFO     72

/* Times are exponents: 4.096 us * 2^n. Of a path only RoCE's parts are here: no LID,
 * service level or rate, and no alternate paths. */
struct snt__cm_req {
	uint64_t service;
	uint64_t guid;
	uint32_t qpn;
	uint32_t psn; /* at which the sender of the REQ expects to receive */
	uint32_t flow_label;
	uint16_t pkey;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t remote_timeout; /* for the receiver of the REQ to answer */
	uint8_t local_timeout;	/* for its sender */
	uint8_t retries_max;	/* of messages */
	uint8_t transport;
	bool flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t mtu;
	bool srq;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t ack_timeout;
	uint8_t local_gid[16];	/* the sender's */
	uint8_t remote_gid[16]; /* the receiver's */
};

struct snt__cm_rep {
	uint64_t guid;
	uint32_t qpn;
	uint32_t psn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t ack_delay;
	uint8_t failover;
	bool flow_control;
	uint8_t rnr_retry_count;
	bool srq;
};

struct snt__cm_message {
	uint8_t kind;
	uint64_t transaction;
	uint32_t local_id;  /* the sender's */
	uint32_t remote_id; /* the receiver's; a REQ has none */
	union {
		struct snt__cm_req req;
		struct snt__cm_rep rep;
		struct {
			uint8_t about;
			uint16_t reason;
			uint8_t info_length;
			const uint8_t *info;
		} rej;
		struct {
			uint8_t about;
			uint8_t timeout;
		} mra;
		struct {
			uint32_t qpn; /* the receiver's */
		} dreq;
	};
	/* Private data. decode() points to all of it; encode() fills up with zeros. */
	const uint8_t *data;
	size_t data_length;
};

/* How much private data a kind of message has room for. */
size_t snt__cm_data_size(enum snt__cm_kind kind);

/* Data that is too long is truncated, and so are numbers too wide for their fields. */
void snt__cm_encode(const struct snt__cm_message *message,
		    uint8_t mad[SNT__CM_MAD_SIZE]);

/*
 * Reserved bits are ignored, and so are fields that the structures do not have.
 *
 *	-EPROTONOSUPPORT  not a MAD, or not a CM's
 *	-EOPNOTSUPP	  another kind of message
 *	-EBADMSG	  lengths that do not fit
 */
int snt__cm_decode(const uint8_t mad[SNT__CM_MAD_SIZE],
		   struct snt__cm_message *message_out);

/* The receiver's id that a message names; 0: none, or not a message of a CM. */
uint32_t snt__cm_receiver_id(const uint8_t mad[SNT__CM_MAD_SIZE]);

/*
 * rdma_cm's part
 */

#define SNT__CM_ADDRESSES_SIZE 36

struct snt__cm_addresses {
	uint8_t source[16];
	uint8_t target[16];
	uint16_t port; /* the source's; the target's is in the service id */
};

/* Both addresses are IPv4, or neither is. */
void snt__cm_addresses_encode(const struct snt__cm_addresses *addresses,
			      uint8_t bytes[SNT__CM_ADDRESSES_SIZE]);

/* 0, or -EPROTONOSUPPORT: unknown version of IP or of the header itself. */
int snt__cm_addresses_decode(const uint8_t bytes[SNT__CM_ADDRESSES_SIZE],
			     struct snt__cm_addresses *addresses_out);

/* Service ids of RDMA_PS_TCP. */
#define SNT__CM_SERVICE_TCP UINT64_C(0x0000000001060000)

static inline uint64_t snt__cm_service(uint16_t port)
{
	return SNT__CM_SERVICE_TCP | port;
}

static inline bool snt__cm_service_is_tcp(uint64_t service)
{
	return (service & ~UINT64_C(0xffff)) == SNT__CM_SERVICE_TCP;
}

static inline uint64_t snt__cm_time_ns(unsigned exponent)
{
	return UINT64_C(4096) << (exponent & 31);
}

#endif
