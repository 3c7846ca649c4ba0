/* SPDX-License-Identifier: MIT */
#include "conn/conn_loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <sennit/cq.h>

#include "conn/carrier_cm.h"
#include "conn/feed.h"
#include "util/err.h"

/* How long closing the context waits for QPs to be released: in turns, since the clock
 * may be simulated and stand still. */
#define CLOSE_TURNS   4000
#define CLOSE_TURN_NS 1000000
/* Of these turns, those in which peers may still acknowledge their connections' last
 * messages. A peer that does not get one finds out by itself. */
#define LAST_WORD_TURNS 300
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
	struct snt__conn_loop *conn_loop = timer->arg;

	while (!snt__list_empty(&conn_loop->work)) {
		struct snt__worker *worker =
			snt__container(conn_loop->work.next, struct snt__worker, link);

		snt__unlink(&worker->link);
		if (!snt__list_empty(&conn_loop->work))
			snt_timer_start_at(conn_loop->loop, &conn_loop->timer, 0);
		if (worker->work(worker))
			return;
	}
}

void snt__conn_loop_add_work(struct snt__conn_loop *conn_loop,
			     struct snt__worker *worker)
{
	if (!snt__linked(&worker->link))
		snt__list_append(&conn_loop->work, &worker->link);
	if (!conn_loop->timer.loop)
		snt_timer_start_at(conn_loop->loop, &conn_loop->timer, 0);
}

void snt__conn_loop_take(struct snt__conn_loop *conn_loop)
{
	snt__serve_now(conn_loop->cq);
}

/*
 * File descriptors. One event at a time, since its handler may end the next one.
 */

static int take_watch_events(struct snt__source *source, int budget)
{
	struct snt__conn_loop *conn_loop =
		snt__container(source, struct snt__conn_loop, source);
	struct epoll_event event;

	(void)budget;
	for (int i = 0; i < LOOKS; i++) {
		struct snt__watch *watch;

		if (epoll_wait(conn_loop->epoll, &event, 1, 0) != 1)
			return 0;
		watch = event.data.ptr;
		watch->ready(watch, event.events);
	}
	/* The rest is served by the next dispatch. */
	snt__loop_ring(conn_loop->loop);
	return 0;
}

int snt__conn_loop_watch(struct snt__conn_loop *conn_loop, struct snt__watch *watch,
			 uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (epoll_ctl(conn_loop->epoll, EPOLL_CTL_ADD, watch->fd, &event))
		return snt__fail(errno, "an fd cannot be watched: %s", strerror(errno));
	return 0;
}

void snt__conn_loop_rewatch(struct snt__conn_loop *conn_loop, struct snt__watch *watch,
			    uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	epoll_ctl(conn_loop->epoll, EPOLL_CTL_MOD, watch->fd, &event);
}

void snt__conn_loop_unwatch(struct snt__conn_loop *conn_loop, struct snt__watch *watch)
{
	/* A parent's epoll instance must not be changed. */
	if (!snt__loop_forked(conn_loop->loop))
		epoll_ctl(conn_loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

int snt__conn_loop_random(const struct snt__conn_loop *conn_loop, void *buffer,
			  size_t length)
{
	int ret = snt__ctx_random(conn_loop->ctx, buffer, length);

	return ret ? snt__fail(-ret, "no random numbers: %s", strerror(-ret)) : 0;
}

/*
 * Waiting
 */

static void forget_conn_waiter(void *arg)
{
	struct snt__conn_loop_waiter *waiter = arg;

	*waiter->list = waiter->next;
}

int snt__conn_loop_wait(struct snt__conn_loop *conn_loop,
			struct snt__conn_loop_waiter **waiters,
			bool (*has_come)(const void *what), const void *what,
			int64_t timeout_ns)
{
	struct snt__conn_loop_waiter waiter = { .next = *waiters, .list = waiters };
	uint64_t begin = snt__conn_loop_now(conn_loop);
	int64_t left = timeout_ns;
	int ret = snt__conn_loop_check(conn_loop);

	if (ret)
		return ret;
	*waiters = &waiter;
	while (!has_come(what)) {
		ret = snt__loop_wait_undo(conn_loop->loop, left, forget_conn_waiter,
					  &waiter);
		if (waiter.gone)
			return snt__fail(
				ECANCELED,
				"the object of the wait was destroyed meanwhile");
		if (ret < 0 || !left)
			break;
		left = snt__conn_loop_left(conn_loop, timeout_ns, begin);
	}
	*waiters = waiter.next;
	if (ret < 0)
		return ret;
	return has_come(what) ? 0 : snt__fail(ETIME, "timed out");
}

/*
 * The whole
 */

static void free_hub(struct snt__conn_loop *conn_loop)
{
	snt_timer_stop(&conn_loop->timer);
	snt__cm_loop_close(conn_loop);
	snt__loop_remove(conn_loop->loop, &conn_loop->source);
	close(conn_loop->epoll);
	snt_cq_destroy(conn_loop->cq);
	conn_loop->loop->conn_loop = NULL;
	free(conn_loop);
}

static void give_up_last_words(struct snt__conn_loop *conn_loop)
{
	while (!snt__list_empty(&conn_loop->last_words)) {
		struct snt__last_word *word =
			snt__container(conn_loop->last_words.next,
				       struct snt__last_word, link);

		word->give_up(word);
	}
}

/* Connections and listeners of the program are the program's to destroy; the rest ends
 * by itself. */
static int close_hub(struct snt_loop *loop)
{
	struct snt__conn_loop *conn_loop = loop->conn_loop;
	int ret = conn_loop->users || conn_loop->lingering
			  ? snt__conn_loop_check(conn_loop)
			  : 0;

	if (ret)
		return ret;
	if (conn_loop->users)
		return snt__fail(EBUSY,
				 "the loop has %u connections and listeners left; "
				 "destroy them before closing it",
				 conn_loop->users);
	snt__feed_settle(loop);
	for (int i = 0; conn_loop->lingering && i < CLOSE_TURNS; i++) {
		if (i >= LAST_WORD_TURNS)
			give_up_last_words(conn_loop);
		ret = snt_loop_wait(loop, CLOSE_TURN_NS);
		if (ret < 0)
			return ret;
	}
	if (conn_loop->lingering)
		return snt__fail(EBUSY, "%u connections are still being torn down",
				 conn_loop->lingering);
	free_hub(conn_loop);
	return 0;
}

static int open_hub(struct snt__conn_loop *conn_loop)
{
	const struct snt_cq_opts opts = { .size = sizeof(opts),
					  .depth = CQ_DEPTH,
					  .per_device = CQ_MAX,
					  .loop = conn_loop->loop,
					  .ops = SNT_CQ_OPS_EVENTS };
	int ret = snt__loop_make_fd(conn_loop->loop);

	/* A missing timerfd could not be reported later. */
	if (!ret)
		ret = snt_timer_start_at(conn_loop->loop, &conn_loop->timer,
					 UINT64_MAX);
	snt_timer_stop(&conn_loop->timer);
	if (!ret)
		ret = snt__conn_loop_random(conn_loop, &conn_loop->identity,
					    sizeof(conn_loop->identity));
	if (ret)
		return ret;
	conn_loop->identity |= 1;
	conn_loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (conn_loop->epoll < 0)
		return snt__fail(errno, "no epoll instance: %s", strerror(errno));
	ret = snt_cq_create(conn_loop->ctx, &opts, &conn_loop->cq);
	if (ret)
		goto err_epoll;
	conn_loop->source = (struct snt__source){ .fd = conn_loop->epoll,
						  .ready = take_watch_events };
	ret = snt__loop_add(conn_loop->loop, &conn_loop->source);
	if (ret)
		goto err_cq;
	return 0;

err_cq:
	snt_cq_destroy(conn_loop->cq);
err_epoll:
	close(conn_loop->epoll);
	return ret;
}

int snt__conn_loop_check(const struct snt__conn_loop *conn_loop)
{
	return snt__loop_check(conn_loop->loop);
}

int snt__conn_loop_get(struct snt_loop *loop, struct snt__conn_loop **conn_loop_out)
{
	struct snt__conn_loop *conn_loop = loop->conn_loop;
	int ret = snt__loop_check(loop);

	*conn_loop_out = conn_loop;
	if (ret || conn_loop)
		return ret;
	conn_loop = calloc(1, sizeof(*conn_loop));
	if (!conn_loop)
		return snt__fail(ENOMEM, "no memory for connections");
	conn_loop->ctx = loop->base.ctx;
	conn_loop->loop = loop;
	conn_loop->timer.fired = work_due;
	conn_loop->timer.arg = conn_loop;
	snt__list_init(&conn_loop->work);
	snt__list_init(&conn_loop->meetings);
	snt__list_init(&conn_loop->last_words);
	for (unsigned i = 0; i < 2; i++)
		snt__list_init(&conn_loop->probe_waiting[i]);
	ret = open_hub(conn_loop);
	if (ret) {
		free(conn_loop);
		return ret;
	}
	loop->conn_loop = conn_loop;
	loop->conn_loop_close = close_hub;
	*conn_loop_out = conn_loop;
	return 0;
}
