/* SPDX-License-Identifier: MIT */
/*
 * Dispatch: finds out what is ready, and runs callbacks.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>

#include "loop/loop.h"
#include "util/err.h"
#include "vqp/cq.h"

/* Between fairness to the program's other fds and the cost of a turn: docs/internals/loop.md. */
#define BUDGET_DEFAULT 64
#define EVENTS	       16

/*
 * Collecting
 */

/* Kernels before 5.11 do not have epoll_pwait2(2), and container policies that do not
 * know it refuse it. Neither changes while the process runs. */
static atomic_bool lacks_pwait2;

static int wait_precisely(const struct snt_loop *loop, struct epoll_event *events,
			  int64_t timeout_ns)
{
	struct timespec timeout = { .tv_sec = timeout_ns / 1000000000,
				    .tv_nsec = timeout_ns % 1000000000 };
	int count = epoll_pwait2(loop->fd, events, EVENTS, &timeout, NULL);

	if (count < 0 && (errno == ENOSYS || errno == EPERM))
		atomic_store_explicit(&lacks_pwait2, true, memory_order_relaxed);
	return count;
}

static int wait_fd(const struct snt_loop *loop, struct epoll_event *events,
		   int64_t timeout_ns)
{
	int64_t rounded_ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);

	if (timeout_ns <= 0)
		return epoll_wait(loop->fd, events, EVENTS, timeout_ns ? -1 : 0);
	if (!atomic_load_explicit(&lacks_pwait2, memory_order_relaxed)) {
		int count = wait_precisely(loop, events, timeout_ns);

		if (!atomic_load_explicit(&lacks_pwait2, memory_order_relaxed))
			return count;
	}
	return epoll_wait(loop->fd, events, EVENTS,
			  rounded_ms < INT_MAX ? (int)rounded_ms : INT_MAX);
}

/* The only place, besides src/loop/sleep.c, where a thread can be cancelled. */
static int sleep_on_fd(const struct snt_loop *loop, struct epoll_event *events,
		       int64_t timeout_ns)
{
	int count, error;

	pthread_setcancelstate(loop->cancel_state, NULL);
	count = wait_fd(loop, events, timeout_ns);
	error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	errno = error;
	return count;
}

static struct snt__link *list_of_type(struct snt_loop *loop, enum snt__source_type type)
{
	switch (type) {
	case SNT__SOURCE_CALLBACKS:
		return &loop->readable;
	case SNT__SOURCE_CHANNEL:
		return &loop->signalled;
	case SNT__SOURCE_RX:
		return &loop->arrivals;
	}
	return NULL;
}

/* Returns whether the source was not noted yet. */
static bool note_readable_source(struct snt_loop *loop, struct snt__source *source)
{
	if (source == &loop->bell)
		return true;
	if (source == &loop->clock)
		loop->clock_set_ns = SNT__NEVER;
	else if (snt__linked(&source->readable))
		return false;
	else
		snt__list_append(list_of_type(loop, source->type), &source->readable);
	return true;
}

int snt__loop_collect(struct snt_loop *loop, int64_t timeout_ns)
{
	struct epoll_event events[EVENTS];
	bool found_more;
	int count;

	/* A level-triggered fd is reported again until it has been read. */
	do {
		found_more = false;
		count = timeout_ns ? sleep_on_fd(loop, events, timeout_ns)
				   : wait_fd(loop, events, 0);
		if (count < 0)
			return errno == EINTR ? 0
					      : snt__fail(errno, "the loop's fd: %s",
							  strerror(errno));
		for (int i = 0; i < count; i++)
			found_more |= note_readable_source(loop, events[i].data.ptr);
		timeout_ns = 0;
	} while (count == EVENTS && found_more);
	/* From here on wakes ring again; earlier ones are seen by this run. */
	if (atomic_load(&loop->rung))
		atomic_store(&loop->rung, false);
	return 0;
}

void snt__loop_suspect_all(struct snt_loop *loop)
{
	struct snt__link *list = &loop->sources;

	for (struct snt__link *at = list->next; at != list; at = at->next)
		note_readable_source(loop, snt__container(at, struct snt__source, all));
	snt__rx_suspect_all(loop);
	snt__serve_list_later(&loop->base.event_cqs);
}

/*
 * Running
 */

/* In the order of their turns. Completions come before deadlines that passed while they
 * waited. */
enum kind {
	WAKES,
	CALLS,
	SOURCES,
	OPS_OVER,
	CQS,
	TIMERS,
};

static bool is_wake_pending(const struct snt_loop *loop)
{
	return atomic_load_explicit(&loop->woken, memory_order_relaxed);
}

/* The set of kinds that have work. */
static unsigned find_waiting(struct snt__round *run)
{
	const struct snt_loop *loop = run->loop;

	return (unsigned)is_wake_pending(loop) << WAKES |
	       (unsigned)snt__call_waits(loop) << CALLS |
	       (unsigned)!snt__list_empty(&loop->readable) << SOURCES |
	       (unsigned)(loop->over != NULL) << OPS_OVER |
	       (unsigned)!snt__list_empty(&loop->pending) << CQS |
	       (unsigned)snt__timer_due(run) << TIMERS;
}

/* A different one each time, so that every kind gets its turn however small the budget
 * is. */
static unsigned choose_favoured(struct snt__round *run)
{
	unsigned behind = run->waiting & (~1u << run->loop->favoured);
	unsigned among = behind ? behind : run->waiting;

	run->loop->favoured = __builtin_ctz(among);
	return among & -among;
}

/* The part of the budget to leave for the kinds after this one: a quarter for each that
 * has work, as long as one callback is left for this kind; and always one for the
 * favoured kind. */
static int reserve_behind(const struct snt__round *run, enum kind kind)
{
	unsigned behind = run->waiting & (~1u << kind);
	int reserve = __builtin_popcount(behind) * ((run->left + 3) / 4);

	if (!behind || run->left <= 0)
		return 0;
	if (reserve >= run->left)
		reserve = run->left - 1;
	return reserve < 1 && behind & run->favoured ? 1 : reserve;
}

static void run_wake(struct snt__round *run)
{
	struct snt_loop *loop = run->loop;

	if (!is_wake_pending(loop) || run->left <= reserve_behind(run, WAKES))
		return;
	atomic_exchange(&loop->woken, false);
	if (!loop->on_wake)
		return;
	run->count++;
	run->left--;
	loop->on_wake(loop->on_wake_arg, loop);
}

static void run_sources(struct snt__round *run)
{
	struct snt_loop *loop = run->loop;
	int reserve = reserve_behind(run, SOURCES);

	while (!run->gone && run->left > reserve && !snt__list_empty(&loop->readable)) {
		struct snt__source *source =
			snt__container(loop->readable.next, struct snt__source,
				       readable);
		int most = run->left - reserve;
		int ret;

		snt__unlink(&source->readable);
		ret = source->ready(source, most);
		if (ret < 0)
			run->error = ret;
		/* A level-triggered fd would report what was left, but programs may wait
		 * for edges of the loop's fd. */
		run->again |= ret >= most;
		run->count += ret > 0 ? ret : 0;
		run->left -= ret > 0 ? ret : 0;
	}
}

static bool has_work(const struct snt_loop *loop)
{
	return !snt__list_empty(&loop->pending) || !snt__list_empty(&loop->readable) ||
	       loop->over || snt__call_waits(loop);
}

static void run_kinds(struct snt__round *run)
{
	run_wake(run);
	snt__call_run(run, reserve_behind(run, CALLS));
	run_sources(run);
	snt__op_run_over(run, reserve_behind(run, OPS_OVER));
	snt__serve_pending(run, reserve_behind(run, CQS));
	snt__timer_run(run);
}

int snt__loop_run(struct snt_loop *loop, int budget, bool arms, bool *gone)
{
	struct snt__round run = { .loop = loop, .left = budget, .arms = arms };

	loop->run = &run;
	run.error = snt__channel_drain_signalled(loop);
	run.waiting = find_waiting(&run);
	if (run.waiting & (run.waiting - 1))
		run.favoured = choose_favoured(&run);
	run_kinds(&run);
	/* The favoured kind had no callback to run after all: the others get its
	 * turn. */
	if (run.favoured && !run.count && !run.gone) {
		run.waiting = run.favoured = 0;
		run_kinds(&run);
	}
	*gone = run.gone;
	if (run.gone)
		return run.count;
	loop->run = NULL;
	if (snt__loop_has_fd(loop))
		snt__timer_set(loop);
	/* The budget was used up before the work. */
	if (arms && (run.again || has_work(loop) || is_wake_pending(loop)))
		snt__loop_ring_fd(loop);
	return run.error ? run.error : run.count;
}

int snt__loop_poll(struct snt_loop *loop, int budget, bool *gone)
{
	if (loop->rx_lent)
		snt__rx_return_all(loop);
	snt__serve_list_later(&loop->base.event_cqs);
	snt__serve_list_later(&loop->base.polled_cqs);
	return snt__loop_run(loop, budget, false, gone);
}

int snt__loop_enter(const struct snt_loop *loop, int budget)
{
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	if (loop->run)
		return snt__fail(EBUSY, "callbacks cannot dispatch, poll or wait");
	return budget < 0 ? snt__fail(EINVAL, "a budget of %d callbacks is negative",
				      budget)
			  : 0;
}

int snt_loop_dispatch(struct snt_loop *loop, int budget)
{
	bool gone;
	int ret = snt__loop_enter(loop, budget);

	if (ret)
		return ret;
	loop->dispatched = true;
	if (snt__loop_has_fd(loop))
		ret = snt__loop_collect(loop, 0);
	else
		/* It is unknown which source is readable. */
		snt__loop_suspect_all(loop);
	if (ret)
		return ret;
	snt__rx_take(loop);
	snt__serve_list_later(&loop->base.polled_cqs);
	ret = snt__loop_run(loop, budget ? budget : BUDGET_DEFAULT,
			    snt__loop_has_fd(loop), &gone);
	if (!gone)
		snt__rx_lend(loop);
	return ret;
}

int snt_loop_poll(struct snt_loop *loop, int budget)
{
	bool gone;
	int ret = snt__loop_enter(loop, budget);

	return ret ? ret
		   : snt__loop_poll(loop, budget ? budget : BUDGET_DEFAULT, &gone);
}

/*
 * Before sleeping
 */

/* Settles CQs whose channels were drained. 1 if one of them has to be polled first. */
static int settle_all(struct snt_loop *loop)
{
	struct snt__link *list = &loop->base.event_cqs;
	bool found = false;
	int ret;

	for (struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_cq *cq = snt__container(at, struct snt_cq, notify.all);

		if (cq->notify.failed)
			continue;
		cq->notify.stale = false;
		ret = snt__serve_settle(cq);
		if (ret < 0) {
			snt__serve_never(cq);
			return ret;
		}
		if (ret > 0)
			snt__serve_later(cq);
		found |= ret > 0;
	}
	return found;
}

/* Work that is due, whether or not the fd shows it. */
static bool is_something_due(struct snt_loop *loop)
{
	return has_work(loop) || atomic_load(&loop->woken) || snt__timer_is_due(loop);
}

int snt__loop_arm(struct snt_loop *loop)
{
	int ret = snt__channel_drain_all(loop);

	if (!ret)
		ret = settle_all(loop);
	return ret ? ret : is_something_due(loop);
}

/* The edges of the bell and the timerfd have woken the program already, and polling
 * does not take them. They are taken here, so that the next ones are seen. */
static int collect_and_arm(struct snt_loop *loop)
{
	int ret = snt__loop_collect(loop, 0);

	if (ret)
		return ret;
	snt__rx_take(loop);
	snt__rx_lend(loop);
	ret = snt__channel_drain_signalled(loop);
	if (!ret)
		ret = settle_all(loop);
	snt__timer_set(loop);
	return ret ? ret : is_something_due(loop);
}

int snt_loop_arm(struct snt_loop *loop)
{
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	loop->dispatched = true;
	ret = snt__loop_make_fd(loop);
	return ret ? ret : collect_and_arm(loop);
}

int64_t snt_loop_timeout(struct snt_loop *loop)
{
	uint64_t now, left;
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	if (has_work(loop) || atomic_load(&loop->woken))
		return 0;
	if (!loop->timers)
		return -1;
	now = snt__loop_now(loop);
	if (loop->timers->deadline_ns <= now)
		return 0;
	left = loop->timers->deadline_ns - now;
	return left < INT64_MAX ? (int64_t)left : INT64_MAX;
}
