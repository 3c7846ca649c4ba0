/* SPDX-License-Identifier: MIT */
/*
 * Receipts as bytes. All numbers big-endian:
 *
 *	0  u8   version, 1
 *	1  u8   what is said: 1 STOP, 2 FENCED, 3 READY, 4 END
 *	2  u8   flags: 1 there is a failed SEND; 2 of READY: it waits for the peer's
 *	3  u8   number of lanes, only of FENCED and READY
 *	4  u32  life, from 1
 *	8  u64  generation
 *	16 u64  generation of the peer
 *	24 u32  SENDs taken
 *	28 u32  notifications taken
 *	32 u32  the failed SEND, else 0
 *	36      the lanes, by rising index
 *
 * A lane:
 *
 *	0  u8   index, below SNT_LANES_MAX
 *	1  u24  QP number
 *	4  u24  first PSN
 *	7  u8   zero
 */
#include "vqp/receipt.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"

#define VERSION	    1
#define HEADER_SIZE 36
#define LANE_SIZE   8
#define FLAG_FAILED 1
#define FLAG_WAITS  2

_Static_assert(SNT_RECEIPT_PACKED_MAX >= HEADER_SIZE + LANE_SIZE * SNT_LANES_MAX,
	       "always suffices, as promised");

static void put_receipt_number(uint8_t **at, unsigned bytes, uint64_t value)
{
	while (bytes--)
		*(*at)++ = value >> 8 * bytes;
}

static uint64_t take_receipt_number(const uint8_t **at, unsigned bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *(*at)++;
	return value;
}

static uint8_t flags_of_receipt(const struct snt__receipt *receipt)
{
	return (receipt->has_failed_send ? FLAG_FAILED : 0) |
	       (receipt->waits ? FLAG_WAITS : 0);
}

ssize_t snt__receipt_pack(const struct snt__receipt *receipt, void *buffer, size_t size)
{
	size_t need = HEADER_SIZE + LANE_SIZE * (size_t)receipt->lane_count;
	uint8_t *at = buffer;

	if (size < need)
		return snt__fail(ENOSPC, "this receipt needs %zu bytes, not %zu", need,
				 size);
	put_receipt_number(&at, 1, VERSION);
	put_receipt_number(&at, 1, receipt->saying);
	put_receipt_number(&at, 1, flags_of_receipt(receipt));
	put_receipt_number(&at, 1, receipt->lane_count);
	put_receipt_number(&at, 4, receipt->life);
	put_receipt_number(&at, 8, receipt->generation);
	put_receipt_number(&at, 8, receipt->peer_generation);
	put_receipt_number(&at, 4, receipt->sends);
	put_receipt_number(&at, 4, receipt->notifications);
	put_receipt_number(&at, 4, receipt->failed_send);
	for (unsigned i = 0; i < receipt->lane_count; i++) {
		put_receipt_number(&at, 1, receipt->lane[i].index);
		put_receipt_number(&at, 3, receipt->lane[i].qp_num);
		put_receipt_number(&at, 3, receipt->lane[i].psn);
		put_receipt_number(&at, 1, 0);
	}
	return need;
}

static int check_receipt(const struct snt__receipt *receipt)
{
	bool offers = receipt->saying == SNT__SAYS_FENCED ||
		      receipt->saying == SNT__SAYS_READY;

	if (receipt->saying < SNT__SAYS_STOP || receipt->saying > SNT__SAYS_END)
		return snt__fail(EBADMSG, "a receipt says %u, which is not known",
				 receipt->saying);
	if (!receipt->life || !receipt->generation || !receipt->peer_generation)
		return snt__fail(EBADMSG, "a receipt has life or generation 0");
	if (receipt->failed_send && !receipt->has_failed_send)
		return snt__fail(EBADMSG, "a receipt has a failed SEND, but no flag");
	if (receipt->waits && receipt->saying != SNT__SAYS_READY)
		return snt__fail(EBADMSG, "a receipt waits for READY, but says %u",
				 receipt->saying);
	if (receipt->lane_count && !offers)
		return snt__fail(EBADMSG, "a receipt without an offer has %u lanes",
				 receipt->lane_count);
	for (unsigned i = 0; i < receipt->lane_count; i++) {
		const struct snt__receipt_lane *lane = &receipt->lane[i];

		if (lane->index >= SNT_LANES_MAX ||
		    (i && lane->index <= lane[-1].index))
			return snt__fail(EBADMSG,
					 "lane %u of a receipt is out of order",
					 lane->index);
		/* QPs 0 and 1 of a port are reserved for management. */
		if (lane->qp_num < 2)
			return snt__fail(EBADMSG, "lane %u of a receipt is QP %u",
					 lane->index, lane->qp_num);
	}
	return 0;
}

int snt__receipt_unpack(const void *buffer, size_t size,
			struct snt__receipt *receipt_out)
{
	struct snt__receipt receipt = { 0 };
	const uint8_t *at = buffer;
	unsigned flags, reserved = 0;
	int ret;

	if (!size)
		return snt__fail(EBADMSG, "a receipt is empty");
	if (*at != VERSION)
		return snt__fail(EPROTONOSUPPORT,
				 "a receipt has version %u; this library reads %d", *at,
				 VERSION);
	if (size < HEADER_SIZE || at[3] > SNT_LANES_MAX ||
	    size != HEADER_SIZE + LANE_SIZE * (size_t)at[3])
		return snt__fail(EBADMSG, "a receipt has %zu bytes, which is wrong",
				 size);
	at++;
	receipt.saying = take_receipt_number(&at, 1);
	flags = take_receipt_number(&at, 1);
	receipt.has_failed_send = flags & FLAG_FAILED;
	receipt.waits = flags & FLAG_WAITS;
	receipt.lane_count = take_receipt_number(&at, 1);
	receipt.life = take_receipt_number(&at, 4);
	receipt.generation = take_receipt_number(&at, 8);
	receipt.peer_generation = take_receipt_number(&at, 8);
	receipt.sends = take_receipt_number(&at, 4);
	receipt.notifications = take_receipt_number(&at, 4);
	receipt.failed_send = take_receipt_number(&at, 4);
	for (unsigned i = 0; i < receipt.lane_count; i++) {
		receipt.lane[i].index = take_receipt_number(&at, 1);
		receipt.lane[i].qp_num = take_receipt_number(&at, 3);
		receipt.lane[i].psn = take_receipt_number(&at, 3);
		reserved |= take_receipt_number(&at, 1);
	}
	if (flags & ~(FLAG_FAILED | FLAG_WAITS) || reserved)
		return snt__fail(EBADMSG, "a reserved bit of a receipt is set");
	ret = check_receipt(&receipt);
	if (!ret)
		*receipt_out = receipt;
	return ret;
}
