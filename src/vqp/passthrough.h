/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_PASSTHROUGH_H
#define SNT_VQP_PASSTHROUGH_H

#include "vqp/qp.h"

/*
 * A single lane with the semantics of verbs: no ring of WRs, the device's own rules.
 * Only ranges and rights are checked, as everywhere. Physical wr_ids are those of all
 * lanes, a tag and a sequence number; the program's are kept by sequence number
 * (snt__qp_id()). So each completion, even a failed one of which verbs define nothing
 * but the wr_id, belongs to exactly one WR, whatever wr_ids the program uses.
 */

int snt__passthrough_post_send(struct snt_qp *qp, const struct snt_send_wr *wr,
			       unsigned count);
int snt__passthrough_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr,
			       unsigned count);

/* Builds a checked WR for verbs, without a wr_id; and posts one alone, with the
 * program's wr_id, subject to lane_depth and the rules of refused_wr.h. */
int snt__passthrough_build(const struct snt_qp *qp, const struct snt_send_wr *wr,
			   struct ibv_send_wr *physical);
int snt__passthrough_post_one(struct snt_qp *qp, const struct ibv_send_wr *wr);

/* Has all that was posted been acknowledged? No completion tells of unsignalled WRs at the
 * end of the queue; snt__passthrough_ask() has a signalled write follow them, which the program
 * does not see, as soon as there is room for it. */
bool snt__passthrough_is_drained(const struct snt_qp *qp);
void snt__passthrough_ask(struct snt_qp *qp);

/* Any completion of the lane, and its owner. */
enum snt__whose {
	SNT__WHOSE_OURS,    /* the library's own */
	SNT__WHOSE_PROGRAM, /* written to wc */
	SNT__WHOSE_NOBODY,  /* of a WR that was not posted here */
};
enum snt__whose snt__passthrough_take(struct snt__lane *lane,
				      const struct ibv_wc *physical, struct snt_wc *wc);

/* Consecutive successes of a lane; returns how many there were. 0, with nothing done,
 * if the first must be handled alone. */
int snt__passthrough_take_run(struct snt__lane *lane, const struct ibv_wc *physical,
			      int count, struct snt_wc *wc, int *reported);

#endif
