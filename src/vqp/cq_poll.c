/* SPDX-License-Identifier: MIT */
/*
 * Polling. Physical CQEs are taken in batches no larger than the room in the caller's
 * array, so that those of pass-through lanes, which turn into exactly one completion
 * each, always fit. CQEs of other lanes only change the state of their QP, which goes
 * on a list; what the list's QPs have to report fills the rest of the array.
 */
#define SNT_NO_INLINE /* of snt_cq_poll(), which is here */
#include "vqp/cq_poll.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/complete.h"
#include "vqp/cq_physical.h"
#include "vqp/dqplb.h"
#include "vqp/fence.h"
#include "vqp/marker.h"
#include "vqp/passthrough.h"
#include "vqp/qp.h"
#include "vqp/ready_list.h"
#include "vqp/send.h"
#include "vqp/srq.h"

static __attribute__((noinline, cold)) void count_stray(struct snt_cq *cq,
							unsigned device,
							const struct ibv_wc *wc)
{
	cq->stray_count++;
	if (cq->stray)
		cq->stray(cq->stray_arg, device, wc);
}

/* Only polling can retry a marker that was refused. */
static bool retry_marker(struct snt_qp *qp, struct snt__lane *lane)
{
	if (lane->wants_marker)
		snt__lane_mark(lane,
			       qp->closing ? SNT__MARKER_CLOSE : SNT__MARKER_KILL);
	if (lane->wants_recv_marker)
		lane->wants_recv_marker =
			snt__lane_mark_recv(lane, SNT__MARKER_CLOSE) != 0;
	return lane->wants_marker || lane->wants_recv_marker;
}

static bool retry_markers(struct snt_qp *qp)
{
	bool again = qp->phase && snt__fence_retry(qp);

	for (uint32_t i = 0; i < qp->lane_count; i++)
		again |= retry_marker(qp, &qp->lane[i]);
	/* The QP goes on with its other lanes, as fast as before. */
	if (!again && !qp->broken && !qp->closing && !qp->pass_through &&
	    !(qp->phase && snt__failover_has_notice(qp)))
		qp->lanes_ended = false;
	return again;
}

/* A completion of an unknown lane, or of one that is gone; returns how many completions
 * it becomes. */
static __attribute__((noinline, cold)) int take_homeless(struct snt_cq *cq,
							 unsigned device,
							 const struct ibv_wc *physical,
							 struct snt_wc *wc)
{
	if (!snt__list_empty(&cq->srqs) && snt__srq_take_late(cq, physical, wc))
		return 1;
	count_stray(cq, device, physical);
	return 0;
}

/* Reports what one QP has; true if there may be more. */
static bool report_ready(struct snt__ready *ready, struct snt_wc *wc, int max,
			 int *count_out)
{
	struct snt_qp *qp = ready->qp;
	bool again;

	if (ready->receives) {
		*count_out = snt__qp_report_recvs(qp, wc, max);
		return qp->draining || (*count_out == max && snt__qp_has_recvs(qp));
	}
	again = __builtin_expect(qp->lanes_ended, 0) && retry_markers(qp);
	*count_out = snt__qp_report_sends(qp, wc, max);
	if (qp->next != qp->tail || qp->notifies_due)
		snt__qp_dispatch(qp);
	return again || (*count_out == max && snt__qp_has_sends(qp));
}

/* Goes once through the list. */
static int harvest_ready(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	struct snt__ready *ready = cq->front.ready;
	struct snt__ready *last = NULL;
	int total = 0;

	while (ready && total < max) {
		bool again;
		int count;

		cq->front.ready = ready->next;
		if (!cq->front.ready)
			cq->ready_end = &cq->front.ready;
		ready->listed = false;
		again = report_ready(ready, wc + total, max - total, &count);
		total += count;
		if (again) {
			snt__cq_ready(cq, ready);
			if (!last)
				last = ready;
		}
		ready = cq->front.ready;
		if (ready == last)
			break;
	}
	return total;
}

/* A CQE of a pass-through lane; returns how many completions it becomes. */
static __attribute__((noinline)) int take_single(struct snt_cq *cq,
						 struct snt__lane *lane,
						 const struct ibv_wc *physical,
						 struct snt_wc *wc)
{
	enum snt__whose whose = snt__passthrough_take(lane, physical, wc);

	if (whose == SNT__WHOSE_NOBODY)
		count_stray(cq, lane->device, physical);
	return whose == SNT__WHOSE_PROGRAM;
}

/* Takes a run of the usual kinds: successes of a pass-through lane, arrivals in order,
 * sends of one QP. Returns its length; 0: the first CQE must be taken alone. */
static inline int take_run(struct snt_cq *cq, unsigned device, struct snt__lane *lane,
			   const struct ibv_wc *physical, int count, struct snt_wc *wc,
			   int *reported)
{
	if (lane->is_single)
		return lane->passes ? snt__passthrough_take_run(lane, physical, count,
								wc, reported)
				    : 0;
	if (snt__wr_id_tag(physical->wr_id) == lane->tag)
		return snt__qp_take_sends(lane, &cq->route, device, physical, count);
	if (lane->sequenced && snt__wr_id_tag(physical->wr_id) & SNT__TAG_RECV)
		return snt__dqplb_take_run(lane, &cq->route, physical, count, wc,
					   reported);
	return 0;
}

/* A batch of physical CQEs; returns how many completions it produced at once. There
 * must be room for one each, or only for those of pass-through lanes. */
static inline int take_cqe_batch(struct snt_cq *cq, unsigned device,
				 const struct ibv_wc *batch, int count,
				 struct snt_wc *wc, bool has_room)
{
	int total = 0;

	for (int i = 0; i < count;) {
		const struct ibv_wc *physical = &batch[i];
		struct snt__lane *lane =
			snt__route_find(&cq->route, device, physical->qp_num);
		int run = lane && has_room ? take_run(cq, device, lane, physical,
						      count - i, wc + total, &total)
					   : 0;

		if (run) {
			i += run;
			continue;
		}
		i++;
		if (__builtin_expect(!lane, 0))
			total += take_homeless(cq, device, physical, wc + total);
		else if (lane->is_single)
			total += take_single(cq, lane, physical, wc + total);
		else if (__builtin_expect(!snt__qp_take(lane->owner, lane, physical),
					  0))
			count_stray(cq, device, physical);
	}
	return total;
}

/* Batches of one physical CQ until it is empty or the array is full; the first has
 * been polled already, and some of it may have been taken. */
static __attribute__((noinline)) int drain_physical(struct snt_cq *cq,
						    struct snt__physical *from,
						    int count, int taken,
						    struct snt_wc *wc, int max)
{
	int total = 0;

	for (;;) {
		int asked = max - total < SNT__BATCH ? max - total : SNT__BATCH;

		if (__builtin_expect(count < 0, 0))
			return total ? total : snt__cq_cannot_poll(cq, from);
		if (__builtin_expect(from->draining && count < asked, 0))
			snt__srq_drained(from);
		total += take_cqe_batch(cq, from->device, cq->batch + taken,
					count - taken, wc + total, true);
		taken = 0;
		if (cq->front.ready)
			total += harvest_ready(cq, wc + total, max - total);
		if ((count < asked && !from->draining) || total == max)
			return total;
		asked = max - total < SNT__BATCH ? max - total : SNT__BATCH;
		count = ibv_poll_cq(from->cq, asked, cq->batch);
	}
}

static int poll_physical(struct snt_cq *cq, struct snt__physical *from,
			 struct snt_wc *wc, int max)
{
	int asked = max < SNT__BATCH ? max : SNT__BATCH;
	int count = ibv_poll_cq(from->cq, asked, cq->batch);

	return count || from->draining ? drain_physical(cq, from, count, 0, wc, max)
				       : 0;
}

/* What can be reported without polling a physical CQ: what a look took, and WRs that
 * finished by other means. */
static inline int take_waiting(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	struct snt__notify *notify = &cq->notify;
	int total = 0;

	if (__builtin_expect(notify->has_held, 0)) {
		notify->has_held = false;
		snt__cq_find_only(cq);
		total = take_cqe_batch(cq, cq->physical[notify->held_from].device,
				       &notify->held, 1, wc, true);
	}
	if (cq->front.ready)
		total += harvest_ready(cq, wc + total, max - total);
	return total;
}

/* The next physical CQ's turn. The one of which most is reserved gets a batch, or what
 * fits the array; each other one gets its share of that, and a rest of less than one
 * CQE is added the next time. */
static void end_turn(struct snt_cq *cq, int max)
{
	uint32_t whole = max < SNT__BATCH ? max : SNT__BATCH;
	struct snt__physical *next;
	uint64_t due;

	cq->turn = cq->turn + 1 < cq->physical_count ? cq->turn + 1 : 0;
	next = &cq->physical[cq->turn];
	if (next->reserved == cq->reserved_max) {
		cq->turn_left = whole;
		return;
	}
	due = (uint64_t)next->reserved * whole + next->due_rest;
	cq->turn_left = due / cq->reserved_max;
	next->due_rest = due % cq->reserved_max;
}

/* One batch of the physical CQ whose turn it is; returns how many completions it
 * produced. */
static int poll_turn(struct snt_cq *cq, struct snt_wc *wc, int max, bool *empty_out)
{
	struct snt__physical *from = &cq->physical[cq->turn];
	uint32_t room = max < SNT__BATCH ? max : SNT__BATCH;
	int asked = cq->turn_left < room ? cq->turn_left : room, total;
	int count = ibv_poll_cq(from->cq, asked, cq->batch);

	*empty_out = count < asked;
	if (__builtin_expect(count < 0, 0))
		return snt__cq_cannot_poll(cq, from);
	if (__builtin_expect(from->draining && count < asked, 0))
		snt__srq_drained(from);
	total = take_cqe_batch(cq, from->device, cq->batch, count, wc, true);
	if (cq->front.ready)
		total += harvest_ready(cq, wc + total, max - total);
	cq->turn_left -= count;
	/* QPs may have begun to wait until it is found empty just now. */
	*empty_out &= !from->draining;
	return total;
}

/*
 * All physical CQs, in turns that go on from one call to the next, until each is empty or the
 * array is full. A turn is a number of CQEs and not of completions: WRs of many lanes become
 * a completion with the CQE of the last lane, and that lane's CQ would have all the turns.
 */
static __attribute__((noinline)) int poll_all_physical(struct snt_cq *cq,
						       struct snt_wc *wc, int max)
{
	int total = take_waiting(cq, wc, max);

	for (uint32_t empty = 0; empty < cq->physical_count && total < max;) {
		bool is_empty;
		int count;

		/* Its share is less than a CQE yet; but its CQEs must not stay unseen
		 * when the other CQs are empty. */
		if (!cq->turn_left && !empty) {
			end_turn(cq, max);
			continue;
		}
		cq->turn_left += !cq->turn_left;
		count = poll_turn(cq, wc + total, max - total, &is_empty);
		empty = is_empty ? empty + 1 : 0;
		if (is_empty || !cq->turn_left)
			end_turn(cq, max);
		if (count < 0)
			return total ? total : count;
		total += count;
	}
	return total;
}

int snt__cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	int count;

	if (__builtin_expect(cq->physical_count != 1 || cq->front.ready ||
				     cq->notify.has_held,
			     0))
		return poll_all_physical(cq, wc, max);
	count = ibv_poll_cq(cq->physical->cq, max < SNT__BATCH ? max : SNT__BATCH,
			    cq->batch);
	return count ? drain_physical(cq, cq->physical, count, 0, wc, max) : 0;
}

static __attribute__((noinline, cold)) int refuse_poll_of_loop(const struct snt_cq *cq)
{
	return snt__fail(
		EINVAL,
		"CQ %u is served by its loop (snt_cq_opts.ops); its completions "
		"are callbacks of ops",
		cq->num);
}

/* Everything but the fast path. */
__attribute__((noinline)) int snt__cq_poll_slowly(struct snt_cq *cq, struct snt_wc *wc,
						  int max)
{
	if (cq->notify.served)
		return refuse_poll_of_loop(cq);
	return max > 0 ? poll_all_physical(cq, wc, max) : 0;
}

/* Those of one QP that come first, mostly all. Returns how many CQEs. */
static inline int take_first_run(struct snt_cq *cq, struct snt__lane *lane, int count,
				 struct snt_wc *wc, int max, int *reported)
{
	struct snt_qp *qp = lane->owner;
	int taken;

	if (lane->is_single)
		return lane->passes ? snt__passthrough_take_run(lane, cq->batch, count,
								wc, reported)
				    : 0;
	if (snt__wr_id_tag(cq->batch->wr_id) != lane->tag || qp->cq != cq)
		return 0;
	taken = snt__qp_complete_sends(cq, lane, count, wc, max, reported);
	if (qp->next != qp->tail || qp->notifies_due)
		snt__qp_dispatch(qp);
	return taken;
}

int snt__cq_take_first(struct snt_cq *cq, int count, struct snt_wc *wc, int max)
{
	struct snt__physical *from = cq->physical;
	struct snt__lane *lane =
		count > 0 ? snt__route_find(&cq->route, from->device, cq->batch->qp_num)
			  : NULL;
	int total = 0, taken = 0, more;

	if (lane && !from->draining)
		taken = take_first_run(cq, lane, count, wc, max, &total);
	if (taken == count &&
	    (total == max || (count < SNT__BATCH && count < max && !cq->front.ready)))
		return total;
	more = drain_physical(cq, from, count, taken, wc + total, max - total);
	return more < 0 && total ? total : total + more;
}

int snt_cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	const struct snt__cq_front *front = &cq->front;
	int count;

	if (__builtin_expect(!front->poll || front->ready || max <= 0, 0))
		return snt__cq_poll_slowly(cq, wc, max);
	/* An empty CQ is the most frequent case of all. */
	count = (*front->poll)(front->only, max < SNT__BATCH ? max : SNT__BATCH,
			       cq->batch);
	return __builtin_expect(!count, 1) ? 0 : snt__cq_take_first(cq, count, wc, max);
}

int snt_cq_poll_one(struct snt_cq *cq, struct snt_wc *wc)
{
	return snt_cq_poll(cq, wc, 1);
}

int snt_cq_poll_index(struct snt_cq *cq, unsigned index, struct snt_wc *wc, int max)
{
	int total, count;

	if (index >= cq->physical_count)
		return snt__fail(EINVAL, "there is no physical CQ %u; there are %u",
				 index, cq->physical_count);
	if (cq->notify.served)
		return refuse_poll_of_loop(cq);
	if (max <= 0)
		return 0;
	total = take_waiting(cq, wc, max);
	if (total == max)
		return total;
	count = poll_physical(cq, &cq->physical[index], wc + total, max - total);
	return count < 0 && total ? total : total + count;
}

int snt_cq_poll_each(struct snt_cq *cq, int max,
		     void (*each)(void *arg, const struct snt_wc *wc), void *arg)
{
	struct snt_wc wc[SNT__BATCH];
	int total = 0;

	while (total < max) {
		int room = max - total < SNT__BATCH ? max - total : SNT__BATCH;
		int count = snt_cq_poll(cq, wc, room);

		if (count < 0)
			return total ? total : count;
		for (int i = 0; i < count; i++)
			each(arg, &wc[i]);
		total += count;
		if (count < room)
			break;
	}
	return total;
}

static bool all_of(struct snt_qp *qp, unsigned device, const struct ibv_wc *physical,
		   unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct snt__lane *lane =
			snt__route_find(&qp->cq->route, device, physical[i].qp_num);

		if (!lane || lane->owner != qp)
			return false;
	}
	return true;
}

int snt_qp_complete(struct snt_qp *qp, unsigned device, const struct ibv_wc *physical,
		    unsigned count, struct snt_wc *wc, int max)
{
	int total, reported;

	if (qp->send_served || qp->recv_served || qp->srq)
		return snt__fail(EINVAL,
				 "QP %u has %s; its completions cannot be handed over",
				 qp->num, qp->srq ? "a shared receive queue" : "ops");
	if (!all_of(qp, device, physical, count))
		return snt__fail(EINVAL, "a completion is not of QP %u", qp->num);
	if (qp->pass_through && (int)count > max)
		return snt__fail(
			EINVAL,
			"QP %u keeps no completions: %u are handed over, and there "
			"is room for %d",
			qp->num, count, max);
	total = take_cqe_batch(qp->cq, device, physical, count, wc, (int)count <= max);
	report_ready(&qp->send_ready, wc + total, max - total, &reported);
	total += reported;
	report_ready(&qp->recv_ready, wc + total, max - total, &reported);
	return total + reported;
}

/* How many of them become a completion each, since their lanes keep nothing. */
static unsigned count_of_single_lanes(const struct snt_cq *cq, unsigned device,
				      const struct ibv_wc *physical, unsigned count)
{
	unsigned singles = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct snt__lane *lane =
			snt__route_find(&cq->route, device, physical[i].qp_num);

		singles += lane && lane->is_single;
	}
	return singles;
}

int snt_cq_complete(struct snt_cq *cq, unsigned device, const struct ibv_wc *physical,
		    unsigned count, struct snt_wc *wc, int max)
{
	unsigned singles;
	int total;

	if (cq->notify.served || !snt__list_empty(&cq->srqs))
		return snt__fail(EINVAL,
				 "CQ %u has %s; its completions cannot be handed over",
				 cq->num,
				 cq->notify.served ? "ops" : "shared receive queues");
	singles = count_of_single_lanes(cq, device, physical, count);
	if ((int)singles > max)
		return snt__fail(EINVAL,
				 "%u of the completions are of QPs that keep none, and "
				 "there is room for %d",
				 singles, max);
	total = take_cqe_batch(cq, device, physical, (int)count, wc, (int)count <= max);
	return total + harvest_ready(cq, wc + total, max - total);
}

struct snt_qp *snt_cq_find_qp(const struct snt_cq *cq, unsigned device, uint32_t qp_num)
{
	struct snt__lane *lane = snt__route_find(&cq->route, device, qp_num);

	return lane ? lane->owner : NULL;
}

unsigned snt_cq_count(const struct snt_cq *cq)
{
	return cq->physical_count;
}

struct ibv_cq *snt_cq_physical(const struct snt_cq *cq, unsigned index,
			       unsigned *device_out)
{
	if (index >= cq->physical_count)
		return NULL;
	if (device_out)
		*device_out = cq->physical[index].device;
	return cq->physical[index].cq;
}

uint32_t snt_cq_num(const struct snt_cq *cq)
{
	return cq->num;
}

uint64_t snt_cq_stray_count(const struct snt_cq *cq)
{
	return cq->stray_count;
}

void snt_cq_set_stray_handler(struct snt_cq *cq,
			      void (*stray)(void *arg, unsigned device,
					    const struct ibv_wc *wc),
			      void *arg)
{
	cq->stray = stray;
	cq->stray_arg = arg;
}
