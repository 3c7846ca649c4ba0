/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_MAILBOX_H
#define SNT_VQP_MAILBOX_H

#include <endian.h>
#include <infiniband/verbs.h>
#include <sennit/card.h>

/*
 * The length of a WRITE_IMM in SPRAY. An end that wants it (SNT_QP_NOTIFY_LENGTH) has a
 * mailbox: 64-bit slots in network byte order, which its card describes. A peer that
 * connects to such a card thereby agrees to tell the length of every notification: of
 * number k of the QP, from 0, the write on the first notify lane is not empty but has the
 * length for slot k modulo the slots. A device places the bytes of a write before it
 * completes the receive that the write consumes, so the length is there when the
 * notification is, without a further WR.
 *
 * If there are more slots than recv_depth, no slot is written again before it was read.
 * Let there be S slots for receives at most d deep. A lane executes its requests in
 * order, so that notification k + S, even on a device which writes before it looks for
 * a receive, cannot write before k + S - 1 has consumed receive k + S - 1. That receive
 * was posted while less than d were unreported, hence after receive k + S - 1 - d had
 * been reported, which is k or a later one if S > d. Receives are reported in order,
 * each when all its notify lanes have completed. The slot is read when the completion
 * of the first of them is taken from the CQ: before k was reported.
 *
 * A peer that breaks these rules corrupts only its own lengths.
 */

/* An array in memory of its own, for devices to read or write. */
struct snt__words {
	uint64_t *word;	   /* NULL: there is none */
	struct ibv_mr *mr; /* NULL: not registered */
};

struct snt__mailbox {
	struct snt__words in; /* lengths from the peer */
	uint32_t in_mask;
	struct snt__words out; /* lengths for the peer, one for each notification in
			        * flight */
	uint32_t out_key;
	uint32_t out_flags; /* IBV_SEND_INLINE, if they are not registered */
	uint32_t peer_key;
	uint32_t peer_mask;
	uint64_t peer_addr;
};

#endif
