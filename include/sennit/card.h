/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CARD_H
#define SENNIT_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/qp.h>

/*
 * A card is what one virtual QP tells its peer to get connected: its lanes, its
 * devices' addresses, and what it can do. Both ends make one, exchange them by
 * any means, and each connects to the other's:
 *
 *	snt_qp_card(qp, &card);  snt_card_pack(&card, buffer, size);
 *	... send, receive ...
 *	snt_card_unpack(buffer, size, &peer);  snt_qp_connect(qp, &peer);
 *
 * Either order will do: a server may connect to the client's card first and answer
 * with its own then.
 *
 * Lane i is connected with lane i. Where the two differ in what can be agreed on
 * (MTU, depths, outstanding READs, fragment size, number of data lanes), both take
 * the lesser, and the end with more lanes leaves some unused; where not (scheme, a
 * single lane that passes WRs on at one end only, too few notify lanes, the kind of
 * link or address), connecting is refused with a sentence.
 *
 * As bytes a card is compact; as JSON it is readable, and unknown members are
 * ignored, so that versions can grow. Cards from elsewhere are not trusted:
 * every field is checked before it is used.
 *
 * Thread: any for the codecs; loop, or the owner of a CQ without one, for the QP's calls.
 */

#ifdef __cplusplus
extern "C" {
#endif

#define SNT_CARD_VERSION 1

struct snt_card_device {
	uint8_t gid[16];
	uint16_t lid;	      /* InfiniBand; else 0 */
	uint8_t link;	      /* enum snt_link */
	uint8_t gid_type;     /* enum snt_gid_type */
	uint32_t mailbox_key; /* of the first notify lane's device, else 0 */
};

struct snt_card_lane {
	uint32_t qp_num; /* 24 bits */
	uint32_t psn;	 /* 24 bits: the first this lane will send */
	uint8_t device;	 /* index into device[] */
};

struct snt_card {
	uint32_t version;
	uint32_t qp_num;     /* the virtual QP's, for messages */
	uint64_t generation; /* by chance; new when the QP was made or reset */
	uint32_t epoch;	     /* counts how often it was reset */
	uint8_t scheme;	     /* enum snt_scheme, never the default */
	uint8_t flags;	     /* enum snt_qp_flags */
	uint8_t read_depth;  /* READs and atomics that each lane answers; not 0 */
	uint32_t mtu;	     /* bytes: 256, 512, 1024, 2048 or 4096 */
	uint32_t lane_depth;
	uint32_t recv_depth;
	uint32_t window; /* DQPLB: fragments that may arrive ahead; 0 in SPRAY */
	uint64_t fragment_size;
	uint32_t device_count; /* 1 to SNT_DEVICES_MAX */
	uint32_t data_lanes;   /* 1 to lane_count; the extra lanes follow them */
	uint32_t lane_count;   /* 1 to SNT_LANES_MAX */
	/* With SNT_QP_NOTIFY_LENGTH, else 0: where the peer is to write the lengths of
	 * its WRITE_IMMs, with its device's key for it. Slots are 64-bit numbers in
	 * network byte order. Notification k, from 0, on the first notify lane writes
	 * slot k modulo their number. */
	uint64_t mailbox_addr;	/* a multiple of 8 */
	uint32_t mailbox_slots; /* a power of two, and more than recv_depth */
	struct snt_card_device device[SNT_DEVICES_MAX];
	struct snt_card_lane lane[SNT_LANES_MAX];
};

/* The longest packed card. */
#define SNT_CARD_PACKED_MAX (64 + 24 * SNT_DEVICES_MAX + 8 * SNT_LANES_MAX)

/**
 * snt_card_pack - write a card as bytes that any peer can read
 *
 * Returns: the number of bytes; -ENOSPC if size is too small
 * (SNT_CARD_PACKED_MAX always suffices); -EINVAL for a card that
 * snt_card_unpack() would refuse.
 */
SNT_API ssize_t snt_card_pack(const struct snt_card *card, void *buffer, size_t size);

/**
 * snt_card_unpack - read a card, trusting nothing
 * @size: exactly the packed size
 *
 * Returns: 0; -EPROTONOSUPPORT for another version; -EBADMSG for anything that
 * snt_card_pack() cannot have written.
 */
SNT_API int snt_card_unpack(const void *buffer, size_t size, struct snt_card *card_out);

/**
 * snt_card_to_json - write a card as JSON text
 *
 * Returns: the text's length without its NUL; -ENOSPC if it does not fit with its
 * NUL; -EINVAL as snt_card_pack(); -ENOMEM.
 */
SNT_API ssize_t snt_card_to_json(const struct snt_card *card, char *buffer,
				 size_t size);

/**
 * snt_card_from_json - read a card from JSON text, trusting nothing
 * @length: of the text, without a NUL
 *
 * Returns: 0; -EPROTONOSUPPORT for another version; -EBADMSG, with a text that
 * says where, for malformed JSON, members that are missing, of the wrong type or
 * out of range; -ENOMEM.
 */
SNT_API int snt_card_from_json(const char *text, size_t length,
			       struct snt_card *card_out);

/**
 * snt_qp_card - the card of a virtual QP
 *
 * Returns: 0; -EOPNOTSUPP if a device of the context has no control table, since its
 * address is not known then. Such an end makes its card by itself, which is simple if
 * both ends have the same options and as many devices: it is the peer's card, with its
 * own
 *	qp_num, generation	of snt_qp_query()
 *	device[].gid, lid	the address of each device
 *	lane[].qp_num		of the adopted QPs, in the order in which they were given
 *	lane[].psn		the first PSN (ibv_qp_attr.sq_psn) that it gives to each
 */
SNT_API int snt_qp_card(const struct snt_qp *qp, struct snt_card *card_out);

/**
 * snt_qp_connect - connect all lanes with those of a peer
 *
 * Receives may be posted before. If connecting fails, those on a pass-through lane
 * are forgotten by the device without a completion, or come back as strays (cq.h) if
 * the peer's messages reached them before that; others are kept.
 *
 * A device may refuse to undo what it did, too. Then the next attempt begins with
 * that, and until it succeeds a pass-through lane takes no receives (-ENOTCONN).
 *
 * Returns: 0, or, with all lanes as they were before,
 *   -EINVAL   cards that do not fit each other, with a sentence why
 *   -EISCONN  connected already
 *   -EOPNOTSUPP  a device has no control table: connect lanes by yourself and say
 *             so with snt_qp_connected()
 *   or the errno of the device, which the text names.
 */
SNT_API int snt_qp_connect(struct snt_qp *qp, const struct snt_card *peer);

/**
 * snt_qp_connected - say that the program has connected the lanes by itself
 * @peer: the peer's card, as for snt_qp_connect(); its addresses are not used
 *
 * For lanes on devices without a control table. To be called while they are in
 * INIT or later and before the peer sends, since it posts receives.
 *
 * Returns: 0; -EINVAL, -EISCONN as snt_qp_connect(); -EOPNOTSUPP if the peer wants
 * lengths (SNT_QP_NOTIFY_LENGTH), but a device has no control table to register
 * memory with and inline_max is less than 8; the errno of the device, after which
 * the program must RESET the lanes, which may have taken some receives, before it
 * tries again.
 */
SNT_API int snt_qp_connected(struct snt_qp *qp, const struct snt_card *peer);

#ifdef __cplusplus
}
#endif

#endif
