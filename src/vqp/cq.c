/* SPDX-License-Identifier: MIT */
/*
 * Polling. Physical CQEs are taken in batches no larger than the room in the caller's
 * array, so that those of pass-through lanes, which turn into exactly one completion
 * each, always fit. CQEs of other lanes only change the state of their QP, which goes
 * on a list; what the list's QPs have to report fills the rest of the array.
 */
#define SNT_NO_INLINE /* of snt_cq_poll(), which is here */
#include "vqp/cq.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"
#include "util/opts.h"
#include "vqp/passthrough.h"
#include "vqp/srq.h"

#define DEPTH_DEFAULT	   4096
#define PER_DEVICE_DEFAULT 16

static atomic_uint cqs_made;

void snt__cq_list(struct snt_cq *cq, struct snt__ready *ready)
{
	ready->listed = true;
	ready->next = NULL;
	*cq->ready_end = ready;
	cq->ready_end = &ready->next;
	if (__builtin_expect(cq->notify.idle != NULL, 0))
		cq->notify.idle(cq);
}

void snt__cq_forget(struct snt_cq *cq, struct snt__ready *ready)
{
	struct snt__ready **link = &cq->front.ready;

	while (*link && *link != ready)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = ready->next;
	if (!*link)
		cq->ready_end = link;
	ready->listed = false;
}

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
	bool again = false;

	for (uint32_t i = 0; i < qp->lane_count; i++)
		again |= retry_marker(qp, &qp->lane[i]);
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

__attribute__((noinline, cold)) int snt__cq_cannot_poll(
	struct snt_cq *cq, const struct snt__physical *from)
{
	cq->unpollable = true;
	return snt__fail(EIO, "%s: a CQ cannot be polled any more",
			 cq->ctx->device[from->device]->name);
}

/* Batches of one physical CQ until it is empty or the array is full; the first has
 * been polled already. */
static __attribute__((noinline)) int drain_physical(struct snt_cq *cq,
						    struct snt__physical *from,
						    int count, struct snt_wc *wc,
						    int max)
{
	int total = 0;

	for (;;) {
		int asked = max - total < SNT__BATCH ? max - total : SNT__BATCH;

		if (__builtin_expect(count < 0, 0))
			return total ? total : snt__cq_cannot_poll(cq, from);
		if (__builtin_expect(from->draining && count < asked, 0))
			snt__srq_drained(from);
		total += take_cqe_batch(cq, from->device, cq->batch, count, wc + total,
					true);
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

	return count || from->draining ? drain_physical(cq, from, count, wc, max) : 0;
}

/* Is there one physical CQ, and nothing else to look at? */
static void find_only(struct snt_cq *cq)
{
	struct ibv_cq *only = cq->physical->cq;
	bool alone =
		cq->physical_count == 1 && !cq->notify.served && !cq->notify.has_held;

	cq->front.only = only;
	cq->front.poll = alone ? &only->context->ops.poll_cq : NULL;
}

/* What can be reported without polling a physical CQ: what a look took, and WRs that
 * finished by other means. */
static inline int take_waiting(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	struct snt__notify *notify = &cq->notify;
	int total = 0;

	if (__builtin_expect(notify->has_held, 0)) {
		notify->has_held = false;
		find_only(cq);
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
	return count ? drain_physical(cq, cq->physical, count, wc, max) : 0;
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
static __attribute__((noinline)) int poll_slowly(struct snt_cq *cq, struct snt_wc *wc,
						 int max)
{
	if (cq->notify.served)
		return refuse_poll_of_loop(cq);
	return max > 0 ? poll_all_physical(cq, wc, max) : 0;
}

static int take_first_physical(struct snt_cq *cq, int count, struct snt_wc *wc, int max)
{
	return drain_physical(cq, cq->physical, count, wc, max);
}

int snt_cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max)
{
	const struct snt__cq_front *front = &cq->front;
	int count;

	if (__builtin_expect(!front->poll || front->ready || max <= 0, 0))
		return poll_slowly(cq, wc, max);
	/* An empty CQ is the most frequent case of all. */
	count = (*front->poll)(front->only, max < SNT__BATCH ? max : SNT__BATCH,
			       cq->batch);
	return __builtin_expect(!count, 1) ? 0
					   : take_first_physical(cq, count, wc, max);
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

/*
 * Creating and destroying
 */

static int create_physical_cq(struct snt_cq *cq, unsigned device_index,
			      struct ibv_cq **cq_out)
{
	const struct snt_device *device = cq->ctx->device[device_index];
	struct snt__physical *physical = &cq->physical[cq->physical_count];
	struct ibv_comp_channel *channel = NULL;
	int ret;

	if (!device->control.create_cq)
		return snt__fail(EOPNOTSUPP,
				 "%s has no control table; give its CQ in "
				 "snt_cq_opts.adopted",
				 device->name);
	ret = cq->notify.events
		      ? snt__loop_base(cq->loop)->channel(cq->loop, device, &channel)
		      : 0;
	if (ret)
		return ret;
	ret = device->control.create_cq(device->context, cq->depth, physical, channel,
					(int)cq->comp_vector, cq_out);
	return ret ? snt__fail(-ret, "%s: no CQ with %u entries on vector %u: %s",
			       device->name, cq->depth, cq->comp_vector, strerror(-ret))
		   : 0;
}

/* QPs are served alike if the turns of their CQs are in proportion to the CQEs that
 * these may hold. */
static void share_turns(struct snt_cq *cq)
{
	cq->reserved_max = 0;
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		if (cq->physical[i].reserved > cq->reserved_max)
			cq->reserved_max = cq->physical[i].reserved;
		cq->physical[i].due_rest = 0;
	}
}

static int add_physical(struct snt_cq *cq, unsigned device_index,
			struct ibv_cq *adopted)
{
	struct snt__physical *physical = &cq->physical[cq->physical_count];
	struct ibv_cq *made = adopted;
	int ret = adopted ? 0 : create_physical_cq(cq, device_index, &made);

	if (ret)
		return ret;
	*physical = (struct snt__physical){ .cq = made,
					    .device = device_index,
					    .depth = made->cqe,
					    .adopted = adopted != NULL,
					    .owner = cq };
	cq->physical_count++;
	share_turns(cq);
	find_only(cq);
	if (cq->notify.events)
		snt__loop_base(cq->loop)->cq_grown(cq);
	return 0;
}

static int no_room(const struct snt_cq *cq, unsigned device, uint32_t count,
		   uint32_t on_device)
{
	return snt__fail(
		ENOSPC,
		"%s: a lane may have %u completions at once, and the virtual "
		"CQ has no CQ with that much room (depth %u, %u of them); raise "
		"snt_cq_opts.depth or per_device",
		cq->ctx->device[device]->name, count, cq->depth, on_device);
}

int snt__cq_find(const struct snt_cq *cq, const struct ibv_cq *physical,
		 uint32_t *index_out)
{
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		if (cq->physical[i].cq != physical)
			continue;
		*index_out = i;
		return 0;
	}
	return -ENOENT;
}

static void reserve_at(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	cq->physical[index].reserved += count;
	share_turns(cq);
}

int snt__cq_reserve_at(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	struct snt__physical *physical = &cq->physical[index];

	if (physical->depth - physical->reserved < count)
		return no_room(cq, physical->device, count, 1);
	reserve_at(cq, index, count);
	return 0;
}

/* The first with that much room, beginning with the hinted one. */
static bool find_physical_with_room(const struct snt_cq *cq, unsigned device,
				    uint32_t room, uint32_t hint, uint32_t *index_out)
{
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		uint32_t at = (hint + i) % cq->physical_count;
		const struct snt__physical *one = &cq->physical[at];

		if (one->device != device || one->depth - one->reserved < room)
			continue;
		*index_out = at;
		return true;
	}
	return false;
}

static uint32_t count_on(const struct snt_cq *cq, unsigned device)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cq->physical_count; i++)
		count += cq->physical[i].device == device;
	return count;
}

int snt__cq_reserve(struct snt_cq *cq, unsigned device, uint32_t count, uint32_t room,
		    uint32_t hint, uint32_t *index_out)
{
	uint32_t on_device = count_on(cq, device);
	bool may_grow =
		!cq->adopted && on_device * cq->ctx->device_count < cq->physical_max;
	bool found = find_physical_with_room(cq, device, room, hint, index_out);
	int ret;

	if (!found && !(may_grow && room <= cq->depth)) {
		room = count;
		found = find_physical_with_room(cq, device, room, hint, index_out);
	}
	if (!found) {
		if (!may_grow || room > cq->depth)
			return no_room(cq, device, count, on_device);
		ret = add_physical(cq, device, NULL);
		if (ret)
			return ret;
		*index_out = cq->physical_count - 1;
	}
	reserve_at(cq, *index_out, count);
	return 0;
}

void snt__cq_unreserve(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	cq->physical[index].reserved -= count;
	share_turns(cq);
}

static int check_cq_depth(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	cq->depth = opts->depth ? opts->depth : DEPTH_DEFAULT;
	for (unsigned i = 0; i < cq->ctx->device_count; i++) {
		const struct snt_device_info *info =
			&snt__port(cq->ctx->device[i])->info;

		if (!info->cq_depth_max || cq->depth <= info->cq_depth_max)
			continue;
		if (opts->depth)
			return snt__fail(EINVAL,
					 "%s: CQs have at most %u entries, not %u",
					 cq->ctx->device[i]->name, info->cq_depth_max,
					 opts->depth);
		cq->depth = info->cq_depth_max;
	}
	return 0;
}

/* A number of 0 is not known. */
static int check_vector(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	cq->comp_vector = opts->comp_vector;
	for (unsigned i = 0; i < cq->ctx->device_count; i++) {
		uint32_t count = snt__port(cq->ctx->device[i])->info.comp_vector_count;

		if (opts->comp_vector > INT_MAX ||
		    (count && opts->comp_vector >= count))
			return snt__fail(
				EINVAL,
				"%s: snt_cq_opts.comp_vector is %u; the device "
				"has %u, numbered from 0",
				cq->ctx->device[i]->name, opts->comp_vector, count);
	}
	return 0;
}

/* Stops if a device refuses, so that it can be tried again. */
static int free_physical(struct snt_cq *cq)
{
	while (cq->physical_count) {
		struct snt__physical *physical = &cq->physical[cq->physical_count - 1];
		const struct snt_device *device = cq->ctx->device[physical->device];
		int ret;

		snt__cq_ack(physical);
		ret = physical->adopted ? 0 : device->control.destroy_cq(physical->cq);
		if (ret)
			return snt__fail(-ret, "%s: a CQ cannot be destroyed: %s",
					 device->name, strerror(-ret));
		cq->physical_count--;
	}
	free(cq->physical);
	cq->physical = NULL;
	return 0;
}

static int check_notify(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	if (opts->ops > SNT_CQ_OPS_POLLED)
		return snt__fail(EINVAL,
				 "snt_cq_opts.ops is %u, which is none of its "
				 "values",
				 opts->ops);
	if (opts->ops && !opts->loop)
		return snt__fail(EINVAL, "a CQ with ops (snt_cq_opts.ops) needs a "
					 "loop (snt_cq_opts.loop)");
	if (opts->loop && snt__loop_base(opts->loop)->ctx != cq->ctx)
		return snt__fail(EINVAL, "snt_cq_opts.loop is of another context");
	cq->loop = opts->loop;
	cq->notify.events = opts->loop && opts->ops != SNT_CQ_OPS_POLLED;
	cq->notify.served = opts->ops;
	if (cq->notify.events && opts->adopted)
		return snt__fail(EINVAL, "adopted CQs cannot wake a loop: they have "
					 "channels of their own, or none");
	return 0;
}

static int set_up_cq(struct snt_cq *cq, const struct snt_cq_opts *opts)
{
	uint32_t per_device = opts->per_device ? opts->per_device : PER_DEVICE_DEFAULT;
	int ret = check_cq_depth(cq, opts);

	if (!ret)
		ret = check_vector(cq, opts);
	if (!ret)
		ret = check_notify(cq, opts);
	if (ret)
		return ret;
	if (per_device > SNT_CQ_PER_DEVICE_MAX)
		return snt__fail(EINVAL,
				 "snt_cq_opts.per_device is %u; it must be at most %d",
				 per_device, SNT_CQ_PER_DEVICE_MAX);
	cq->adopted = opts->adopted != NULL;
	cq->physical_max = per_device * cq->ctx->device_count;
	cq->physical = snt__lines_alloc(cq->physical_max, sizeof(*cq->physical));
	if (!cq->physical)
		return snt__fail(ENOMEM, "no memory for a virtual CQ");
	for (unsigned i = 0; opts->adopted && i < cq->ctx->device_count; i++) {
		if (!opts->adopted[i])
			return snt__fail(EINVAL, "%s: its adopted CQ is NULL",
					 cq->ctx->device[i]->name);
		ret = add_physical(cq, i, opts->adopted[i]);
		if (ret)
			return ret;
	}
	return snt__route_init(&cq->route);
}

int snt_cq_create(struct snt_ctx *ctx, const struct snt_cq_opts *user_opts,
		  struct snt_cq **cq_out)
{
	struct snt_cq_opts opts;
	struct snt_cq *cq;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_cq_opts");
	if (ret)
		return ret;
	cq = snt__lines_alloc(1, sizeof(*cq));
	if (!cq)
		return snt__fail(ENOMEM, "no memory for a virtual CQ");
	cq->ctx = ctx;
	cq->num = 1 + atomic_fetch_add(&cqs_made, 1);
	cq->front.batch = cq->batch;
	cq->front.batch_max = SNT__BATCH;
	cq->front.take = take_first_physical;
	cq->front.poll_all = poll_slowly;
	cq->ready_end = &cq->front.ready;
	snt__list_init(&cq->srqs);
	ret = set_up_cq(cq, &opts);
	if (ret) {
		free_physical(cq);
		free(cq);
		return ret;
	}
	if (cq->loop)
		snt__list_append(cq->notify.events
					 ? &snt__loop_base(cq->loop)->event_cqs
					 : &snt__loop_base(cq->loop)->polled_cqs,
				 &cq->notify.all);
	snt__ctx_add(ctx, SNT__CTX_CQS, 1);
	*cq_out = cq;
	return 0;
}

static int finish_cq(struct snt_cq *cq)
{
	int ret = free_physical(cq);

	if (ret)
		return ret;
	snt__unlink(&cq->notify.all);
	snt__unlink(&cq->notify.pending);
	if (cq->notify.gone)
		*cq->notify.gone = true;
	snt__route_finish(&cq->route);
	snt__ctx_add(cq->ctx, SNT__CTX_CQS, -1);
	free(cq);
	return 0;
}

int snt_cq_destroy(struct snt_cq *cq)
{
	if (!cq)
		return 0;
	if (cq->qp_count)
		return snt__fail(EBUSY, "%u %s to this CQ; destroy %s first",
				 cq->qp_count,
				 cq->qp_count == 1 ? "QP reports" : "QPs report",
				 cq->qp_count == 1 ? "it" : "them");
	if (!snt__list_empty(&cq->srqs))
		return snt__fail(EBUSY, "shared receive queues report to this CQ; "
					"destroy them first");
	/* Lanes that could not be destroyed hold on to their physical CQs. */
	snt__deferred_releases_try(cq->ctx, cq);
	return finish_cq(cq);
}

static int release_deferred_cq(void *owner)
{
	return finish_cq(owner);
}

void snt__cq_abandon(struct snt_cq *cq)
{
	struct snt__err_kept kept;
	struct snt_ctx *ctx = cq->ctx;

	snt__err_keep(&kept);
	cq->deferred.home[0] = cq->loop;
	if (snt_cq_destroy(cq))
		snt__deferred_release_add(ctx, &cq->deferred, release_deferred_cq, cq);
	snt__err_restore(&kept);
}
