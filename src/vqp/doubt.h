/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_DOUBT_H
#define SNT_VQP_DOUBT_H

#include "vqp/lane.h"

struct snt_wc;

/*
 * WRs which a device said it had refused, of a lane that passes them on. Queues are
 * never full by our own count, so something is wrong, and some devices say this after
 * having queued them: whoever posted them again could send them twice. So they count
 * as posted, and the lane is given up. They come back from the device if it has them.
 * Of those that have not when it has let go of all else, nobody else will tell.
 *
 * Of a failed WR verbs tell no more than its wr_id, so it is by that and their order
 * that they are known.
 */
struct snt__doubt {
	uint64_t wr_id[SNT__CHAIN_MAX];
	uint32_t queue;	 /* 0: sends; SNT__TAG_RECV: receives */
	uint32_t before; /* completions that come before theirs, at least */
	uint8_t count;
	uint8_t settled; /* the first so many are done with */
	bool over;	 /* the device has let go of all */
};

/* These, which lie side by side. */
void snt__doubt_sends(struct snt_qp *qp, const struct ibv_send_wr *wr, unsigned count);
void snt__doubt_recv(struct snt_qp *qp, uint64_t wr_id);

/* A completion of the lane, which may be of one of them. */
void snt__doubt_see(struct snt__doubt *doubt, const struct ibv_wc *physical);

/* A queue is at its end. */
void snt__doubt_end(struct snt_qp *qp, uint32_t queue);

/* Those that never were there, flushed. Returns how many. */
int snt__doubt_report(struct snt_qp *qp, uint32_t queue, struct snt_wc *wc, int max);

static inline bool snt__doubt_is_settled(const struct snt__doubt *doubt)
{
	return doubt->settled == doubt->count;
}

/* Is there something to report? */
static inline bool snt__doubt_is_due(const struct snt__doubt *doubt, uint32_t queue)
{
	return doubt->over && doubt->queue == queue && !snt__doubt_is_settled(doubt);
}

#endif
