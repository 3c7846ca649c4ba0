/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CARD_H
#define SENNIT_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/qp.h>

/*
 * A card describes a virtual QP to the peer that connects to it: its lanes, its
 * devices' addresses, and its capabilities. Each end makes a card, the two exchange
 * them by any means, and each connects to the other's:
 *
 *	char ours[SNT_CARD_PACKED_MAX], theirs[SNT_CARD_PACKED_MAX];
 *
 *	length = snt_qp_card_pack(qp, ours, sizeof(ours));
 *	... send, receive ...
 *	snt_qp_connect_packed(qp, theirs, their_length);
 *
 * The order does not matter: a server may connect to the client's card first and then
 * answer with its own.
 *
 * Lane i is connected with lane i. Negotiable values (MTU, depths, outstanding READs,
 * fragment size, number of data lanes) are set to the lesser of the two; the end with
 * more lanes leaves some unused. Other differences (scheme, a pass-through lane at one
 * end only, too few notify lanes, the kind of link or address) make connecting fail,
 * with a sentence that says why.
 *
 * These bytes are all that most programs need to know of a card. struct snt_card and the
 * calls that fill it in are for programs that look into cards, or make one by other means
 * (snt_qp_connect_adopted()), and the JSON form is for people who do: it is readable, and
 * unknown members of it are ignored, so that later versions can add some. Cards received
 * from a peer are not trusted: every field is checked before it is used.
 *
 * Thread: any for the codecs; loop, or the owner of a CQ without one, for the QP's calls.
 */

#ifdef __cplusplus
extern "C" {
#endif

#define SNT_CARD_VERSION	  1
#define SNT_CARD_VERSION_FAILOVER 2 /* of QPs with SNT_QP_FAILOVER only */

struct snt_card_device {
	uint8_t gid[16];
	uint16_t lid;	      /* InfiniBand; else 0 */
	uint8_t link;	      /* enum snt_link */
	uint8_t gid_type;     /* enum snt_gid_type */
	uint32_t mailbox_key; /* of the first notify lane's device, else 0 */
};

struct snt_card_lane {
	uint32_t qp_num; /* 24 bits */
	uint32_t psn;	 /* 24 bits: the first PSN this lane sends */
	uint8_t device;	 /* index into device[] */
};

struct snt_card {
	uint32_t
		version; /* SNT_CARD_VERSION, or with failover SNT_CARD_VERSION_FAILOVER */
	uint32_t qp_num;     /* the virtual QP's, for messages */
	uint64_t generation; /* random; new when the QP was made or reset */
	uint32_t epoch;	     /* number of resets so far */
	uint8_t scheme;	     /* enum snt_scheme, never the default */
	uint8_t flags;	     /* enum snt_qp_flags */
	uint8_t read_depth;  /* READs and atomics each lane answers at once; not 0 */
	uint32_t mtu;	     /* bytes: 256, 512, 1024, 2048 or 4096 */
	uint32_t lane_depth;
	uint32_t recv_depth;
	uint32_t window; /* DQPLB: fragments that may arrive ahead; 0 in SPRAY */
	uint64_t fragment_size;
	uint32_t device_count; /* 1 to SNT_DEVICES_MAX */
	uint32_t data_lanes;   /* 1 to lane_count; the extra lanes follow them */
	uint32_t lane_count;   /* 1 to SNT_LANES_MAX */
	/* With SNT_QP_NOTIFY_LENGTH, else 0: where the peer writes the lengths of its
	 * WRITE_IMMs, with the mailbox_key above. Slots are 64-bit numbers in network
	 * byte order. Notification k, from 0, on the first notify lane writes slot k
	 * modulo the number of slots. */
	uint64_t mailbox_addr;	/* a multiple of 8 */
	uint32_t mailbox_slots; /* a power of two, and more than recv_depth */
	struct snt_card_device device[SNT_DEVICES_MAX];
	struct snt_card_lane lane[SNT_LANES_MAX];
};

/* Maximum size of a packed card. */
#define SNT_CARD_PACKED_MAX (64 + 24 * SNT_DEVICES_MAX + 8 * SNT_LANES_MAX)

/**
 * snt_qp_card_pack - get the card of a virtual QP, as bytes for the peer
 *
 * snt_qp_card() and snt_card_pack() in one call.
 *
 * Returns: the number of bytes; -ENOSPC if size is too small (SNT_CARD_PACKED_MAX always
 * suffices); -EOPNOTSUPP as snt_qp_card().
 */
SNT_API ssize_t snt_qp_card_pack(const struct snt_qp *qp, void *buffer, size_t size);

/**
 * snt_qp_connect_packed - connect all lanes with those of a peer, whose card came as bytes
 * @length: exactly the packed size
 *
 * snt_card_unpack() and snt_qp_connect() in one call.
 *
 * Returns: 0; -EPROTONOSUPPORT and -EBADMSG as snt_card_unpack(); otherwise as
 * snt_qp_connect().
 */
SNT_API int snt_qp_connect_packed(struct snt_qp *qp, const void *card, size_t length);

/**
 * snt_card_pack - write a card as bytes that any peer can read
 *
 * Returns: the number of bytes; -ENOSPC if size is too small
 * (SNT_CARD_PACKED_MAX always suffices); -EINVAL for a card that
 * snt_card_unpack() would refuse.
 */
SNT_API ssize_t snt_card_pack(const struct snt_card *card, void *buffer, size_t size);

/**
 * snt_card_unpack - read and validate a card from bytes
 * @size: exactly the packed size
 *
 * Returns: 0; -EPROTONOSUPPORT for another version; -EBADMSG for any input that
 * snt_card_pack() cannot produce.
 */
SNT_API int snt_card_unpack(const void *buffer, size_t size, struct snt_card *card_out);

/**
 * snt_card_to_json - write a card as JSON text
 *
 * Returns: the length of the text without its NUL; -ENOSPC if text and NUL do not fit;
 * -EINVAL as snt_card_pack(); -ENOMEM.
 */
SNT_API ssize_t snt_card_to_json(const struct snt_card *card, char *buffer,
				 size_t size);

/**
 * snt_card_from_json - read and validate a card from JSON text
 * @length: length of the text, without a NUL
 *
 * Returns: 0; -EPROTONOSUPPORT for another version; -EBADMSG for malformed JSON and for
 * members that are missing, of the wrong type or out of range, with a text that says
 * where; -ENOMEM.
 */
SNT_API int snt_card_from_json(const char *text, size_t length,
			       struct snt_card *card_out);

/**
 * snt_qp_card - get the card of a virtual QP
 *
 * Returns: 0; -EISCONN for a QP with SNT_QP_FAILOVER that is connected, since its lanes
 * may have changed; -EOPNOTSUPP if a device of the context has no control table, since its
 * address is then unknown. The program makes the card of such an end itself, which is
 * simple if both ends have the same options and number of devices: it is the peer's
 * card with these members replaced
 *	qp_num, generation	of snt_qp_query()
 *	device[].gid, lid	the address of each device
 *	lane[].qp_num		of the adopted QPs, in the order given
 *	lane[].psn		the first PSN (ibv_qp_attr.sq_psn) that the program gives to each
 */
SNT_API int snt_qp_card(const struct snt_qp *qp, struct snt_card *card_out);

/**
 * snt_qp_connect - connect all lanes with those of a peer
 *
 * Receives may be posted before this call. If connecting fails, receives on a
 * pass-through lane are dropped by the device without a completion, or come back as
 * strays (cq.h) if the peer's messages reached them first; other receives are kept.
 *
 * A device may also refuse to undo a failed attempt. The next attempt then undoes it
 * first, and until that succeeds a pass-through lane takes no receives (-ENOTCONN).
 *
 * Returns: 0, or, with all lanes as they were before,
 *   -EINVAL   the two cards are incompatible; the text says why
 *   -EISCONN  already connected
 *   -EOPNOTSUPP  a device has no control table: connect the lanes in the program, then
 *             call snt_qp_connect_adopted()
 *   or the errno of the device, which the text names.
 */
SNT_API int snt_qp_connect(struct snt_qp *qp, const struct snt_card *peer);

/**
 * snt_qp_connect_adopted - report that the program has connected the lanes itself
 * @peer: the peer's card, as for snt_qp_connect(); its addresses are not used
 *
 * For lanes on devices without a control table. Call it while the lanes are in INIT or
 * later, and before the peer sends: this call posts receives.
 *
 * Returns: 0; -EINVAL, -EISCONN as snt_qp_connect(); -EOPNOTSUPP if the peer wants
 * lengths (SNT_QP_NOTIFY_LENGTH), but a device has no control table to register memory
 * with and inline_max is less than 8; the errno of the device. After a device error
 * some receives may have been posted to the lanes: the program must move the lanes to
 * RESET before it tries again.
 */
SNT_API int snt_qp_connect_adopted(struct snt_qp *qp, const struct snt_card *peer);

#ifdef __cplusplus
}
#endif

#endif
