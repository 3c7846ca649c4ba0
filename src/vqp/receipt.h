/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RECEIPT_H
#define SNT_VQP_RECEIPT_H

#include <sennit/failover.h>
#include <stdbool.h>
#include <stdint.h>

/* Receipts: an end's whole state as bytes for its peer. */

/* What an end says. */
enum snt__saying {
	SNT__SAYS_STOP = 1, /* life n has ended here */
	SNT__SAYS_FENCED, /* nothing of life n can execute any more; for n + 1 there are
			     * these lanes */
	SNT__SAYS_READY,  /* life n has begun here, with these lanes */
	SNT__SAYS_END,	  /* there is no further life */
};

struct snt__receipt_lane {
	uint8_t index;
	uint32_t qp_num; /* 24 bits */
	uint32_t psn;	 /* 24 bits */
};

struct snt__receipt {
	uint8_t saying; /* enum snt__saying */
	uint8_t lane_count;
	bool has_failed_send;
	bool waits; /* READY, and has not heard it of the peer */
	uint32_t life;
	uint64_t generation;	  /* of the end that says it */
	uint64_t peer_generation; /* of the other */
	/* Since these generations began: */
	uint32_t sends;		/* taken by receives */
	uint32_t notifications; /* taken on all notify lanes */
	uint32_t failed_send;	/* the last one that its receive failed with */
	struct snt__receipt_lane lane[SNT_LANES_MAX]; /* by rising index */
};

/* The life that its lanes are for. */
static inline uint32_t snt__receipt_offer_life(const struct snt__receipt *receipt)
{
	return receipt->saying == SNT__SAYS_FENCED ? receipt->life + 1 : receipt->life;
}

/* Returns the number of bytes; -ENOSPC. */
ssize_t snt__receipt_pack(const struct snt__receipt *receipt, void *buffer,
			  size_t size);

/* 0; -EPROTONOSUPPORT for another version; -EBADMSG for anything that
 * snt__receipt_pack() cannot produce. */
int snt__receipt_unpack(const void *buffer, size_t size,
			struct snt__receipt *receipt_out);

#endif
