/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_MESSAGE_H
#define SNT_CONN_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/card.h>

/*
 * The messages of a connection, as structures and as bytes. The order of types is the
 * order in which messages are sent when several are due.
 *
 *	connector                                          acceptor
 *
 *	HELLO    version, identity, nonce          -->
 *	         <--          WELCOME  version, identity, nonce
 *	OFFER    devices, wishes, private data     -->
 *	         <--          ANSWER   the same of the acceptor
 *	PROBE    QPs to try pairs of devices with  -->
 *	         <--          PROBING  the QPs on the other side
 *	              ... real messages on them ...
 *	         <--          PROBED   which of them worked     (and once more, maybe)
 *	PLAN     which lane on which pair; card    -->
 *	         <--          CARD     card
 *	READY                                      -->
 *	              ... connected ...
 *	PING                 <->  empty; the carrier's own acknowledgment is what counts
 *	BYE                  <->  everything posted has been acknowledged; nothing follows
 *	END                  <->  it is over, and why
 */
enum snt__message_type {
	SNT__MESSAGE_HELLO = 1,
	SNT__MESSAGE_WELCOME,
	SNT__MESSAGE_OFFER,
	SNT__MESSAGE_ANSWER,
	SNT__MESSAGE_PROBE,
	SNT__MESSAGE_PROBING,
	SNT__MESSAGE_PROBED,
	SNT__MESSAGE_PLAN,
	SNT__MESSAGE_CARD,
	SNT__MESSAGE_READY,
	SNT__MESSAGE_PING,
	SNT__MESSAGE_BYE,
	SNT__MESSAGE_END,
	SNT__MESSAGE_TYPES
};

#define SNT__PROTOCOL_VERSION 1

#define SNT__NONCE_SIZE	  32
#define SNT__TAG_SIZE	  32
#define SNT__HEADER_SIZE  16
#define SNT__DATA_MAX	  256
#define SNT__NAME_MAX	  32
#define SNT__END_TEXT_MAX 200
#define SNT__PAIRS_MAX	  64 /* tried for one connection at most */
/* The longest message, its tag included. */
#define SNT__MESSAGE_MAX 3072

struct snt__hello {
	uint8_t version;
	bool secret; /* messages after this one have tags */
	uint64_t identity;
	uint8_t nonce[SNT__NONCE_SIZE];
};

/* A device, as far as the peer needs to know. */
struct snt__offer_device {
	struct snt_card_device address; /* mailbox_key unused */
	uint16_t mtu;			/* bytes */
};

/* What one end has, and requests. */
struct snt__offer {
	uint8_t scheme; /* enum snt_scheme */
	uint8_t flags;	/* enum snt_qp_flags */
	uint8_t lanes;	/* data lanes; 0: any number */
	uint8_t device_count;
	uint32_t devices; /* a bit for each that may be used */
	uint16_t mtu;	  /* at most */
	uint32_t detect_ms;
	struct snt__offer_device device[SNT_DEVICES_MAX];
	bool meets; /* the receiver may be connecting to the sender under this name */
	char name[SNT__NAME_MAX];
	uint16_t data_length;
	uint8_t data[SNT__DATA_MAX];
};

/* The result of trying a pair of devices. */
enum snt__verdict {
	SNT__VERDICT_NONE, /* not tried */
	SNT__VERDICT_GOOD,
	SNT__VERDICT_SILENT,	/* nothing arrived */
	SNT__VERDICT_MTU,	/* only the short message arrived */
	SNT__VERDICT_EMPTY,	/* the empty message did not arrive */
	SNT__VERDICT_UNHEARD,	/* all arrived, but none of ours got through */
	SNT__VERDICT_RESOURCES, /* no QP for it */
	SNT__VERDICT_KIND,	/* addresses of different kinds */
	SNT__VERDICTS
};

/* A QP that tries a pair; or the reason why there is none. */
struct snt__probe_qp {
	uint8_t device;	 /* of the message's sender */
	uint8_t remote;	 /* of its receiver */
	uint8_t verdict; /* NONE, or why there is no QP; PROBED: the result */
	uint32_t qp_num;
	uint32_t psn;
};

struct snt__probe {
	uint8_t round;
	uint8_t count;
	uint16_t mtu;
	struct snt__probe_qp probe_qp[SNT__PAIRS_MAX];
};

/* Which devices a lane connects, seen from one end. */
struct snt__pair {
	uint8_t local;
	uint8_t remote;
};

struct snt__plan {
	uint16_t mtu;
	uint8_t data_lanes;
	uint8_t lane_count;
	struct snt__pair lane[SNT_LANES_MAX]; /* local: the sender's */
};

/* The reason of the end. */
enum snt__end_code {
	SNT__END_ABORTED = 1,
	SNT__END_REFUSED, /* by the program */
	SNT__END_VERSION,
	SNT__END_SECRET,
	SNT__END_PROTOCOL,
	SNT__END_RESOURCES,
	SNT__END_TIMEOUT,
	SNT__END_MISMATCH,    /* schemes, cards that do not fit */
	SNT__END_UNREACHABLE, /* no pair of devices works */
	SNT__END_SUPERSEDED,  /* there is a newer connection of this name */
	SNT__END_MEET,	      /* the other end's attempt is the one that counts */
	SNT__END_FAILED,      /* an error at the sender */
	SNT__END_CODES
};

struct snt__end {
	uint8_t code;
	uint8_t text_length;
	uint16_t data_length;
	char text[SNT__END_TEXT_MAX + 1];
	uint8_t data[SNT__DATA_MAX];
};

/*
 * Bodies are written after the header; each function returns its length. Room of
 * SNT__MESSAGE_MAX is always enough.
 */
size_t snt__hello_pack(const struct snt__hello *hello, uint8_t *at);
size_t snt__offer_pack(const struct snt__offer *offer, uint8_t *at);
size_t snt__probe_pack(const struct snt__probe *probe, uint8_t *at);
size_t snt__plan_pack(const struct snt__plan *plan, uint8_t *at);
size_t snt__end_pack(const struct snt__end *end, uint8_t *at);

/*
 * Parsers, which trust nothing: a message that is accepted is in range, and packs to
 * the same bytes. Return NULL, or what is wrong, a static text.
 */
const char *snt__hello_unpack(const uint8_t *at, size_t length, struct snt__hello *out);
const char *snt__offer_unpack(const uint8_t *at, size_t length, struct snt__offer *out);
const char *snt__probe_unpack(const uint8_t *at, size_t length, struct snt__probe *out);
/* The card that follows the plan begins at *rest_out. */
const char *snt__plan_unpack(const uint8_t *at, size_t length, struct snt__plan *out,
			     size_t *rest_out);
const char *snt__end_unpack(const uint8_t *at, size_t length, struct snt__end *out);

/*
 * The header:
 *
 *	0  u32  "SNT" and the version
 *	4  u8   type
 *	5  u8   1: a tag follows the body
 *	6  u16  length of the body
 *	8  u64  session; 0 in HELLO
 */
struct snt__header {
	uint8_t version;
	uint8_t type;
	bool tagged;
	uint16_t length;
	uint64_t session;
};

void snt__header_pack(const struct snt__header *header, uint8_t *at);
/* @length: the bytes that have arrived. The message, which begins here, may still be
 * shorter than its header says. */
const char *snt__header_unpack(const uint8_t *at, size_t length,
			       struct snt__header *out);

/* Header, body and tag. */
static inline size_t snt__message_size(const struct snt__header *header)
{
	return SNT__HEADER_SIZE + header->length + (header->tagged ? SNT__TAG_SIZE : 0);
}

/* A whole END from an end without a session. Returns its length. */
#define SNT__LAST_WORD_MAX (SNT__HEADER_SIZE + 4 + SNT__END_TEXT_MAX)
size_t snt__last_word(enum snt__end_code code, const char *text, uint8_t *bytes);

const char *snt__message_name(unsigned type);
const char *snt__verdict_text(unsigned verdict);

#endif
