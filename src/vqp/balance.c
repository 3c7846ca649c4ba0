/* SPDX-License-Identifier: MIT */
/*
 * Which lane gets the next fragment, where lanes do not simply take turns. Each lane
 * has a price per byte. By weights, the lane with the least spent so far is next, and
 * its price is one over its weight. By time, it is the lane whose load would then be
 * done first: the load is the bytes in flight, and the price is the time that the lane
 * recently took for a byte. A lane that was too slow for long is tried again with one
 * fragment, and its earlier price is forgotten.
 */
#include "vqp/balance.h"

#include <errno.h>

#include "util/err.h"
#include "vqp/check.h"

#define PRICE_ONE (1u << 24) /* of weight 1; enough for 65535 below it */
#define PRICE_MAX (1u << 28) /* 65 us for a byte; no lane is that slow */
#define LOAD_MAX  (UINT64_C(1) << 34)
#define LONG_AGO  1024 /* fragments */

int snt__balance_check(const struct snt_qp *qp, const struct snt_qp_opts *opts)
{
	uint32_t made = qp->extra - qp->lane;

	for (uint32_t i = 0; opts->weights && i < made; i++)
		if (!opts->weights[i])
			return snt__fail(EINVAL, "snt_qp_opts.weights[%u] is 0", i);
	return 0;
}

static void forget_lane_speed(struct snt__lane *lane, uint64_t now, uint32_t picks)
{
	lane->price = PRICE_ONE / lane->weight;
	lane->spent = 0;
	lane->time = lane->volume = 0;
	/* It is not known since when these bytes are in flight. */
	lane->busy_since = now;
	lane->picked = picks;
}

void snt__balance_set(struct snt_qp *qp)
{
	uint32_t made = qp->extra - qp->lane;
	uint64_t now = snt__ctx_now_ns(qp->ctx);

	qp->even = qp->opts.balance == SNT_BALANCE_ROUND_ROBIN;
	for (uint32_t i = 0; i < made; i++) {
		struct snt__lane *lane = &qp->lane[i];

		if (qp->opts.weights)
			lane->weight = qp->opts.weights[i];
		else if (!lane->weight)
			lane->weight = 1;
		forget_lane_speed(lane, now, qp->picks);
		qp->even &= lane->weight == qp->lane[0].weight;
	}
	snt__check_update(qp);
	qp->by_time = qp->opts.balance == SNT_BALANCE_BY_TIME;
	qp->opts.weights = NULL; /* the program's; copied */
}

/* The lower score is better. */
static uint64_t score_lane(const struct snt_qp *qp, const struct snt__lane *lane,
			   uint64_t size)
{
	uint64_t load = lane->bytes - lane->bytes_done + size;

	if (!qp->by_time)
		return lane->spent + size * lane->price;
	return (load < LOAD_MAX ? load : LOAD_MAX) * lane->price;
}

/*
 * A lane that was left out for long gets the next fragment: by time, because it may
 * have become faster; in DQPLB, because the receiver can only tell early fragments from
 * faults if no lane is left out for long (dqplb.c).
 */
static bool was_left_out(const struct snt_qp *qp, const struct snt__lane *lane)
{
	return (qp->by_time && qp->picks - lane->picked > LONG_AGO) ||
	       (lane->sequenced &&
		qp->sequence_next - lane->sequence_last > qp->peer_window / 4);
}

/* By time. The lane keeps its price until this fragment has shown another. */
static void note_pick(struct snt_qp *qp, struct snt__lane *lane)
{
	if (qp->picks - lane->picked > LONG_AGO) {
		lane->time = 0;
		lane->volume = 1;
	}
	lane->picked = qp->picks++;
	if (lane->bytes == lane->bytes_done)
		lane->busy_since = snt__ctx_now_ns(qp->ctx);
}

struct snt__lane *snt__balance_pick(struct snt_qp *qp, uint32_t count, uint64_t size)
{
	struct snt__lane *best = NULL;
	uint64_t best_score = 0;

	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		struct snt__lane *lane = &qp->lane[i];
		uint64_t now;

		if (!snt__lane_has_room(lane, count))
			continue;
		if (was_left_out(qp, lane)) {
			best = lane;
			break;
		}
		now = score_lane(qp, lane, size);
		if (best && (int64_t)(now - best_score) >= 0)
			continue;
		best = lane;
		best_score = now;
	}
	if (!best)
		return NULL;
	if (qp->by_time)
		note_pick(qp, best);
	best->spent += size * best->price;
	/* A lane that has no room does not catch up on all of it later. */
	for (uint32_t i = 0; !qp->by_time && i < qp->data_lanes; i++)
		if (!snt__lane_has_room(&qp->lane[i], count) &&
		    (int64_t)(best->spent - qp->lane[i].spent) > 0)
			qp->lane[i].spent = best->spent;
	return best;
}

/* Lanes without a measured price are expected to be as good as the best, by their
 * weights. */
static void spread_news(struct snt_qp *qp, const struct snt__lane *from)
{
	for (uint32_t i = 0; i < qp->data_lanes; i++) {
		struct snt__lane *lane = &qp->lane[i];

		if (!lane->volume)
			lane->price =
				(uint64_t)from->price * from->weight / lane->weight;
	}
}

void snt__balance_learn(struct snt_qp *qp, struct snt__lane *lane, uint64_t bytes)
{
	uint64_t now = snt__ctx_now_ns(qp->ctx);

	/* Older measurements count less; bytes count, so that small messages do not
	 * outweigh large ones. */
	lane->time = lane->time - lane->time / 8 + (now - lane->busy_since);
	lane->volume = lane->volume - lane->volume / 8 + bytes;
	lane->busy_since = now;
	if (!lane->volume || !lane->time)
		return;
	lane->price = (lane->time << 12) / lane->volume;
	if (lane->price > PRICE_MAX)
		lane->price = PRICE_MAX;
	lane->price += !lane->price;
	spread_news(qp, lane);
}
