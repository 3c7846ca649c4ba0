/* SPDX-License-Identifier: MIT */
/*
 * Serving CQs: those with ops are polled, for watched ones the program's function is
 * called, in turn, until they are empty. Then they are armed and polled once more; only
 * a CQ that was empty after it had been armed is left to its events.
 */
#include <errno.h>
#include <sennit/op.h>

#include "loop/loop.h"
#include "util/err.h"
#include "vqp/cq_poll.h"
#include "vqp/notify.h"
#include "vqp/view.h"

#define BATCH 32

/* Turns without a callback, since not every CQE is the last of its WR, until dispatch
 * yields the processor. */
#define TURNS_MAX 1024

/* The longest delay of work that no event will report. */
#define RETRY_NS 1000000

bool snt__serve_wants(const struct snt_cq *cq)
{
	return !cq->notify.failed && (cq->notify.served || cq->notify.ready);
}

void snt__serve_later(struct snt_cq *cq)
{
	cq->notify.idle = NULL;
	if (snt__serve_wants(cq) && !snt__linked(&cq->notify.pending))
		snt__list_append(&snt__cq_loop(cq)->pending, &cq->notify.pending);
}

void snt__serve_soon(struct snt_cq *cq)
{
	snt__serve_later(cq);
	if (!snt__cq_loop(cq)->run)
		snt__loop_ring_fd(snt__cq_loop(cq));
}

void snt__serve_list_later(struct snt__link *list)
{
	for (struct snt__link *at = list->next; at != list; at = at->next)
		snt__serve_later(snt__container(at, struct snt_cq, notify.all));
}

void snt__serve_never(struct snt_cq *cq)
{
	cq->notify.failed = true;
	cq->notify.idle = NULL;
	snt__unlink(&cq->notify.pending);
}

static void fail_round(struct snt__round *run, struct snt_cq *cq, int error)
{
	snt__serve_never(cq);
	run->error = error;
}

/* Entries of `front.ready` have no event of their own: markers that their lanes
 * refused. */
static void retry_cqs(struct snt_timer *timer)
{
	struct snt_loop *loop = timer->arg;
	struct snt__link *all = &loop->base.event_cqs;

	for (struct snt__link *at = all->next; at != all; at = at->next) {
		struct snt_cq *cq = snt__container(at, struct snt_cq, notify.all);

		if (snt__cq_has_ready(cq))
			snt__serve_soon(cq);
	}
}

static int retry_later(struct snt_loop *loop)
{
	loop->retry.fired = retry_cqs;
	loop->retry.arg = loop;
	return loop->retry.loop ? 0 : snt_timer_start(loop, &loop->retry, RETRY_NS);
}

static int drain_channels(struct snt_cq *cq)
{
	struct snt_loop *loop = snt__cq_loop(cq);

	for (unsigned i = 0; i < snt_cq_count(cq); i++) {
		struct snt__channel *channel;
		unsigned device;
		int ret;

		snt_cq_physical(cq, i, &device);
		channel = &loop->channel[device];
		ret = channel->device ? snt__channel_drain(channel) : 0;

		if (ret)
			return ret;
	}
	return 0;
}

int snt__serve_settle(struct snt_cq *cq)
{
	struct snt__notify *notify = &cq->notify;
	int ret = notify->stale ? drain_channels(cq) : 0;

	if (!ret && notify->events)
		ret = snt__cq_arm(cq);
	if (!ret)
		ret = snt__cq_look(cq);
	/* The completions that were found may have raised an event, which is stale
	 * then. */
	notify->stale = ret > 0;
	if (ret)
		return ret;
	snt__unlink(&notify->pending);
	notify->idle = notify->events ? snt__serve_soon : NULL;
	return 0;
}

/* Neither polling nor arming got anywhere: try again after a time. */
static void park_cq(struct snt__round *run, struct snt_cq *cq)
{
	int ret = retry_later(run->loop);

	if (ret) {
		fail_round(run, cq, ret);
		return;
	}
	snt__unlink(&cq->notify.pending);
	cq->notify.idle = snt__serve_soon;
}

/* Returns the number of completions; the caller then sets `passing` to NULL, unless the CQ is
 * gone. */
static int serve_ops(struct snt__round *run, struct snt_cq *cq, int max)
{
	struct snt_wc wc[BATCH];
	int count = snt__cq_poll(cq, wc, max < BATCH ? max : BATCH);
	struct snt__passing passing = { wc, wc + (count > 0 ? count : 0),
					snt__op_forget_qp };

	cq->notify.passing = &passing;
	while (passing.next < passing.end) {
		const struct snt_wc *at = passing.next++;
		struct snt_op *op = (struct snt_op *)(uintptr_t)at->wr_id;

		op->complete(op, at);
	}
	run->count += count > 0 ? count : 0;
	run->left -= count > 0 ? count : 0;
	return count;
}

static int serve_watch(struct snt__round *run, struct snt_cq *cq)
{
	int ret = snt__cq_look(cq);

	if (ret <= 0)
		return ret;
	cq->notify.ready(cq->notify.ready_arg, cq);
	run->count++;
	run->left--;
	return ret;
}

/* One turn. What a callback has destroyed is not touched any more. */
static void serve_cq(struct snt__round *run, struct snt_cq *cq, int max)
{
	bool gone = false;
	int want = max < BATCH ? max : BATCH;
	int count;

	cq->notify.gone = &gone;
	count = cq->notify.served ? serve_ops(run, cq, want) : serve_watch(run, cq);
	if (gone || run->gone)
		return;
	cq->notify.gone = NULL;
	cq->notify.passing = NULL;
	if (count < 0) {
		fail_round(run, cq, count);
		return;
	}
	if (!run->arms) {
		cq->notify.stale |= count > 0;
		return;
	}
	/* While more completions keep coming, arming is not worth while. */
	if (!snt__serve_wants(cq) || count == want || (count && cq->notify.stale))
		return;
	want = snt__serve_settle(cq);
	if (want < 0)
		fail_round(run, cq, want);
	else if (want && !count && !cq->notify.has_held)
		park_cq(run, cq);
}

/* Each in turn, while any has completions. */
static void serve_until_idle(struct snt__round *run, int reserve)
{
	struct snt_loop *loop = run->loop;
	unsigned idle_turns = 0;

	while (!run->gone && run->left > reserve && !snt__list_empty(&loop->pending) &&
	       idle_turns < TURNS_MAX) {
		struct snt__link *first = loop->pending.next;
		int before = run->count;

		/* To the end first: afterwards it may be gone. */
		snt__unlink(first);
		snt__list_append(&loop->pending, first);
		serve_cq(run, snt__container(first, struct snt_cq, notify.pending),
			 run->left - reserve);
		idle_turns += run->count == before;
	}
}

/* Each once. */
static void serve_once(struct snt__round *run, int reserve)
{
	struct snt__link *list = &run->loop->pending;
	unsigned turns = 0;

	for (struct snt__link *at = list->next; at != list; at = at->next)
		turns++;
	while (!run->gone && run->left > reserve && turns-- && !snt__list_empty(list)) {
		struct snt__link *first = list->next;

		snt__unlink(first);
		snt__list_append(list, first);
		serve_cq(run, snt__container(first, struct snt_cq, notify.pending),
			 run->left - reserve);
	}
}

void snt__serve_pending(struct snt__round *run, int reserve)
{
	if (run->arms)
		serve_until_idle(run, reserve);
	else
		serve_once(run, reserve);
}

/* A CQ that cannot be polled is reported in its own turn. */
void snt__serve_now(struct snt_cq *cq)
{
	while (!cq->notify.failed && serve_ops(snt__cq_loop(cq)->run, cq, BATCH) > 0)
		cq->notify.stale = true;
	cq->notify.passing = NULL;
}

int snt_cq_set_ready_handler(struct snt_cq *cq,
			     void (*ready)(void *arg, struct snt_cq *cq), void *arg)
{
	int ret;

	if (!cq->notify.events || cq->notify.served)
		return snt__fail(EINVAL,
				 "this CQ has %s; only CQs with a loop "
				 "(snt_cq_opts.loop) and without ops can be watched",
				 cq->notify.served ? "ops" : "no loop");
	ret = snt__loop_check(snt__cq_loop(cq));
	if (ret)
		return ret;
	cq->notify.ready = ready;
	cq->notify.ready_arg = arg;
	snt__unlink(&cq->notify.pending);
	snt__serve_soon(cq);
	return 0;
}
