/* SPDX-License-Identifier: MIT */
#include "conn/hub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <sennit/cq.h>

#include "conn/cm.h"
#include "conn/feed.h"
#include "util/err.h"

/* How long closing the context waits for QPs to be released: in turns, since the clock
 * may be simulated and stand still. */
#define CLOSE_TURNS   4000
#define CLOSE_TURN_NS 1000000
/* Fds that are served before other work gets its turn: peers can keep one busy for as
 * long as they like. */
#define LOOKS	 16
#define CQ_DEPTH 4096
#define CQ_MAX	 64

/*
 * Work
 */

/* One callback of the program each time, since the context may be gone after it. */
static void work_due(struct snt_timer *timer)
{
	struct snt__hub *hub = timer->arg;

	while (!snt__list_empty(&hub->work)) {
		struct snt__worker *worker =
			snt__container(hub->work.next, struct snt__worker, link);

		snt__unlink(&worker->link);
		if (!snt__list_empty(&hub->work))
			snt_timer_start_at(hub->loop, &hub->timer, 0);
		if (worker->work(worker))
			return;
	}
}

void snt__hub_add_work(struct snt__hub *hub, struct snt__worker *worker)
{
	if (!snt__linked(&worker->link))
		snt__list_append(&hub->work, &worker->link);
	if (!hub->timer.loop)
		snt_timer_start_at(hub->loop, &hub->timer, 0);
}

void snt__hub_take(struct snt__hub *hub)
{
	snt__serve_now(hub->cq);
}

/*
 * File descriptors. One event at a time, since its handler may end the next one.
 */

static int look(struct snt__source *source, int budget)
{
	struct snt__hub *hub = snt__container(source, struct snt__hub, source);
	struct epoll_event event;

	(void)budget;
	for (int i = 0; i < LOOKS; i++) {
		struct snt__watch *watch;

		if (epoll_wait(hub->epoll, &event, 1, 0) != 1)
			return 0;
		watch = event.data.ptr;
		watch->ready(watch, event.events);
	}
	/* The rest is served by the next dispatch. */
	snt__loop_ring(hub->loop);
	return 0;
}

int snt__hub_watch(struct snt__hub *hub, struct snt__watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (epoll_ctl(hub->epoll, EPOLL_CTL_ADD, watch->fd, &event))
		return snt__fail(errno, "an fd cannot be watched: %s", strerror(errno));
	return 0;
}

void snt__hub_rewatch(struct snt__hub *hub, struct snt__watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	epoll_ctl(hub->epoll, EPOLL_CTL_MOD, watch->fd, &event);
}

void snt__hub_unwatch(struct snt__hub *hub, struct snt__watch *watch)
{
	/* A parent's epoll instance must not be changed. */
	if (!snt__loop_forked(hub->loop))
		epoll_ctl(hub->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

int snt__hub_random(const struct snt__hub *hub, void *buffer, size_t length)
{
	int ret = snt__ctx_random(hub->ctx, buffer, length);

	return ret ? snt__fail(-ret, "no random numbers: %s", strerror(-ret)) : 0;
}

/*
 * Waiting
 */

static void forget_waiter(void *arg)
{
	struct snt__hub_waiter *waiter = arg;

	*waiter->list = waiter->next;
}

int snt__hub_wait(struct snt__hub *hub, struct snt__hub_waiter **waiters,
		  bool (*has_come)(const void *what), const void *what,
		  int64_t timeout_ns)
{
	struct snt__hub_waiter waiter = { .next = *waiters, .list = waiters };
	uint64_t begin = snt__hub_now(hub);
	int64_t left = timeout_ns;
	int ret = snt__hub_check(hub);

	if (ret)
		return ret;
	*waiters = &waiter;
	while (!has_come(what)) {
		ret = snt__loop_wait_undo(hub->loop, left, forget_waiter, &waiter);
		if (waiter.gone)
			return snt__fail(ECANCELED,
					 "what was waited for was destroyed meanwhile");
		if (ret < 0 || !left)
			break;
		left = snt__hub_left(hub, timeout_ns, begin);
	}
	*waiters = waiter.next;
	if (ret < 0)
		return ret;
	return has_come(what) ? 0 : snt__fail(EINPROGRESS, "timed out");
}

/*
 * The whole
 */

static void free_hub(struct snt__hub *hub)
{
	snt_timer_stop(&hub->timer);
	snt__cm_hub_close(hub);
	snt__loop_remove(hub->loop, &hub->source);
	close(hub->epoll);
	snt_cq_destroy(hub->cq);
	hub->loop->hub = NULL;
	free(hub);
}

/* Connections and listeners of the program are the program's to destroy; the rest ends
 * by itself. */
static int close_hub(struct snt_loop *loop)
{
	struct snt__hub *hub = loop->hub;
	int ret = hub->users || hub->lingering ? snt__hub_check(hub) : 0;

	if (ret)
		return ret;
	if (hub->users)
		return snt__fail(EBUSY,
				 "the loop has %u connections and listeners left; "
				 "destroy them before closing it",
				 hub->users);
	snt__feed_settle(loop);
	for (int i = 0; hub->lingering && i < CLOSE_TURNS; i++) {
		ret = snt_loop_wait(loop, CLOSE_TURN_NS);
		if (ret < 0)
			return ret;
	}
	if (hub->lingering)
		return snt__fail(EBUSY, "%u connections are still on their way out",
				 hub->lingering);
	free_hub(hub);
	return 0;
}

static int open_hub(struct snt__hub *hub)
{
	const struct snt_cq_opts opts = { .size = sizeof(opts),
					  .depth = CQ_DEPTH,
					  .per_device = CQ_MAX,
					  .loop = hub->loop,
					  .ops = SNT_CQ_OPS_EVENTS };
	int ret = snt__loop_make_fd(hub->loop);

	/* A missing timerfd could not be reported later. */
	if (!ret)
		ret = snt_timer_start_at(hub->loop, &hub->timer, UINT64_MAX);
	snt_timer_stop(&hub->timer);
	if (!ret)
		ret = snt__hub_random(hub, &hub->identity, sizeof(hub->identity));
	if (ret)
		return ret;
	hub->identity |= 1;
	hub->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (hub->epoll < 0)
		return snt__fail(errno, "no epoll instance: %s", strerror(errno));
	ret = snt_cq_create(hub->ctx, &opts, &hub->cq);
	if (ret)
		goto err_epoll;
	hub->source = (struct snt__source){ .fd = hub->epoll, .ready = look };
	ret = snt__loop_add(hub->loop, &hub->source);
	if (ret)
		goto err_cq;
	return 0;

err_cq:
	snt_cq_destroy(hub->cq);
err_epoll:
	close(hub->epoll);
	return ret;
}

int snt__hub_check(const struct snt__hub *hub)
{
	return snt__loop_check(hub->loop);
}

int snt__hub_get(struct snt_loop *loop, struct snt__hub **hub_out)
{
	struct snt__hub *hub = loop->hub;
	int ret = snt__loop_check(loop);

	*hub_out = hub;
	if (ret || hub)
		return ret;
	hub = calloc(1, sizeof(*hub));
	if (!hub)
		return snt__fail(ENOMEM, "no memory for connections");
	hub->ctx = loop->base.ctx;
	hub->loop = loop;
	hub->timer.fired = work_due;
	hub->timer.arg = hub;
	snt__list_init(&hub->work);
	snt__list_init(&hub->meetings);
	for (unsigned i = 0; i < 2; i++)
		snt__list_init(&hub->scout_waiting[i]);
	ret = open_hub(hub);
	if (ret) {
		free(hub);
		return ret;
	}
	loop->hub = hub;
	loop->hub_close = close_hub;
	*hub_out = hub;
	return 0;
}
