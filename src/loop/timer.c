/* SPDX-License-Identifier: MIT */
/*
 * Timers: a pairing heap made of the timers themselves, so that any number of them
 * needs no memory, and one timerfd for the first of them. The timerfd may be set to a
 * time at which nothing is due any more; that costs one wake-up, less than setting it
 * again for each timer that was stopped in time.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loop/loop.h"
#include "util/assert.h"
#include "util/err.h"

/*
 * The heap. `child` is the first of a timer's children, `next` its next sibling, `prev`
 * its previous sibling or, for the first child, the parent.
 */

static struct snt_timer *meld_heaps(struct snt_timer *a, struct snt_timer *b)
{
	struct snt_timer *later;

	if (!a || !b)
		return a ? a : b;
	later = b->deadline_ns < a->deadline_ns ? a : b;
	if (later == a)
		a = b;
	snt__assert(later->deadline_ns >= a->deadline_ns);
	later->prev = a;
	later->next = a->child;
	if (a->child)
		a->child->prev = later;
	a->child = later;
	a->next = a->prev = NULL;
	return a;
}

/* Melds siblings in pairs from the front, then the results from the back. */
static struct snt_timer *meld_siblings(struct snt_timer *first)
{
	struct snt_timer *pairs = NULL, *whole = NULL;

	while (first) {
		struct snt_timer *second = first->next;
		struct snt_timer *rest = second ? second->next : NULL;
		struct snt_timer *pair = meld_heaps(first, second);

		pair->next = pairs;
		pairs = pair;
		first = rest;
	}
	while (pairs) {
		struct snt_timer *rest = pairs->next;

		pairs->next = pairs->prev = NULL;
		whole = meld_heaps(whole, pairs);
		pairs = rest;
	}
	return whole;
}

static void take_out(struct snt_loop *loop, struct snt_timer *timer)
{
	struct snt_timer *children = meld_siblings(timer->child);

	/* The first timer alone has neither a parent nor siblings. */
	snt__assert(timer->loop == loop);
	snt__assert(timer == loop->timers ? !timer->prev && !timer->next
					  : !!timer->prev);
	if (timer == loop->timers) {
		loop->timers = children;
	} else {
		if (timer->prev->child == timer)
			timer->prev->child = timer->next;
		else
			timer->prev->next = timer->next;
		if (timer->next)
			timer->next->prev = timer->prev;
		loop->timers = meld_heaps(loop->timers, children);
	}
	timer->child = timer->next = timer->prev = NULL;
	timer->loop = NULL;
}

/*
 * The timerfd
 */

int snt__timer_open(struct snt_loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET,
				     .data.ptr = &loop->clock };

	if (!loop->timers || loop->clock.fd >= 0)
		return 0;
	loop->clock.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (loop->clock.fd < 0)
		return snt__fail(errno, "no timerfd for the loop: %s", strerror(errno));
	if (epoll_ctl(loop->fd, EPOLL_CTL_ADD, loop->clock.fd, &event)) {
		int ret = snt__fail(errno, "the timerfd cannot be watched: %s",
				    strerror(errno));

		/* The next timer tries again. */
		close(loop->clock.fd);
		loop->clock.fd = -1;
		return ret;
	}
	snt__timer_set(loop);
	return 0;
}

/* Relative to now, so that any clock will do. */
void snt__timer_set(struct snt_loop *loop)
{
	const struct snt_timer *first = loop->timers;
	struct itimerspec at = { .it_value.tv_nsec = 1 };
	uint64_t now;

	if (!first || first->deadline_ns >= loop->clock_set_ns || loop->clock.fd < 0)
		return;
	if (loop->sleep)
		return; /* simulated time is unknown to the kernel */
	now = snt__loop_now(loop);
	if (first->deadline_ns > now) {
		at.it_value.tv_sec = (first->deadline_ns - now) / 1000000000;
		at.it_value.tv_nsec = (first->deadline_ns - now) % 1000000000;
	}
	timerfd_settime(loop->clock.fd, 0, &at, NULL);
	loop->clock_set_ns = first->deadline_ns;
}

/*
 * Timers
 */

int snt_timer_start_at(struct snt_loop *loop, struct snt_timer *timer,
		       uint64_t deadline_ns)
{
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	if (!timer->fired)
		return snt__fail(EINVAL, "the timer has no function; set .fired");
	if (timer->loop && timer->loop != loop)
		return snt__fail(EBUSY, "the timer runs in another loop");
	if (timer->loop)
		take_out(loop, timer);
	timer->child = timer->next = timer->prev = NULL;
	/* A timer that is always started in the past again would stay the first for
	 * ever. */
	if (loop->run && deadline_ns < loop->run->now_ns)
		deadline_ns = loop->run->now_ns;
	timer->deadline_ns = deadline_ns < SNT__NEVER ? deadline_ns : SNT__NEVER - 1;
	loop->timers = meld_heaps(loop->timers, timer);
	ret = snt__loop_has_fd(loop) ? snt__timer_open(loop) : 0;
	timer->loop = loop;
	if (ret) {
		take_out(loop, timer);
		return ret;
	}
	/* Within dispatch the timerfd is set once, at the end. */
	if (!loop->run)
		snt__timer_set(loop);
	return 0;
}

int snt_timer_start(struct snt_loop *loop, struct snt_timer *timer, uint64_t delay_ns)
{
	uint64_t now = snt__loop_now(loop);

	/* Not within the same dispatch again. */
	if (!delay_ns)
		delay_ns = 1;
	return snt_timer_start_at(loop, timer,
				  delay_ns < SNT__NEVER - now ? now + delay_ns
							      : SNT__NEVER);
}

int snt_timer_stop(struct snt_timer *timer)
{
	if (!timer->loop)
		return 0;
	take_out(timer->loop, timer);
	return 1;
}

bool snt__timer_due(struct snt__round *run)
{
	const struct snt_timer *first = run->loop->timers;

	if (!first)
		return false;
	run->now_ns = snt__loop_now(run->loop);
	return first->deadline_ns <= run->now_ns;
}

bool snt__timer_is_due(const struct snt_loop *loop)
{
	return loop->timers && loop->timers->deadline_ns <= snt__loop_now(loop);
}

void snt__timer_run(struct snt__round *run)
{
	struct snt_loop *loop = run->loop;

	while (!run->gone && run->left > 0 && loop->timers &&
	       loop->timers->deadline_ns <= run->now_ns) {
		struct snt_timer *timer = loop->timers;

		take_out(loop, timer);
		run->count++;
		run->left--;
		timer->fired(timer);
	}
}

void snt__timer_forget_all(struct snt_loop *loop)
{
	while (loop->timers)
		take_out(loop, loop->timers);
}
