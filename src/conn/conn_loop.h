/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CONN_LOOP_H
#define SNT_CONN_CONN_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/ctx.h"
#include "loop/loop.h"
#include "util/list.h"

/*
 * Shared by all connections of a loop: an identity, a CQ, and their place in the loop.
 * Created by the first connection or listener, and freed with the loop.
 *
 * Objects with work are on the list `work`, and a timer that is due makes the next
 * dispatch do it. So callbacks of the program run only from dispatch, and may destroy
 * anything.
 */

/* A file descriptor; level-triggered. */
struct snt__watch {
	int fd;
	void (*ready)(struct snt__watch *watch, uint32_t events);
};

/* On the stack of a waiting thread, and on a list of the object that it waits for,
 * which callbacks of the program may destroy meanwhile. */
struct snt__conn_loop_waiter {
	struct snt__conn_loop_waiter *next, **list;
	bool gone;
};

/* An object that has work. */
struct snt__worker {
	struct snt__link link;
	/* May destroy its own object, and others. Returns how many callbacks of the
	 * program it called, 0 or 1. */
	int (*work)(struct snt__worker *worker);
};

/* A carrier without a connection, whose last message has not been acknowledged. */
struct snt__last_word {
	struct snt__link link;
	void (*give_up)(struct snt__last_word *word); /* removes it from the list */
};

struct snt__conn_loop {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	uint64_t identity;
	struct snt_cq *cq; /* of carriers and probe QPs; with ops */
	int epoll;
	struct snt__source source;
	struct snt_timer timer;
	struct snt__link work;
	struct snt__link meetings; /* connections that wait to meet their counterpart */
	unsigned users;	    /* connections and listeners that the program holds */
	unsigned lingering; /* carriers and probe QPs, closed or not */
	struct snt__link last_words;
	struct snt__cm_loop *cm;
	/* Trials in progress, and connections that wait for their turn; separately for
	 * those that accept, and those that connect. With a common limit two contexts
	 * that connect to each other could wait for each other. */
	unsigned probings[2];
	struct snt__link probe_waiting[2];
};

/* Created if there is none. */
int snt__conn_loop_get(struct snt_loop *loop, struct snt__conn_loop **conn_loop_out);

/* 0, or -ECHILD after a fork: the parent's objects cannot be ended here. */
int snt__conn_loop_check(const struct snt__conn_loop *conn_loop);

int snt__conn_loop_random(const struct snt__conn_loop *conn_loop, void *buffer,
			  size_t length);

/* Also from inside work(). */
void snt__conn_loop_add_work(struct snt__conn_loop *conn_loop,
			     struct snt__worker *worker);

/* Runs the completions that have arrived for carriers and probe QPs, whatever the budget
 * of this dispatch; for timers, before they judge what has not arrived. */
void snt__conn_loop_take(struct snt__conn_loop *conn_loop);

int snt__conn_loop_watch(struct snt__conn_loop *conn_loop, struct snt__watch *watch,
			 uint32_t events);
void snt__conn_loop_rewatch(struct snt__conn_loop *conn_loop, struct snt__watch *watch,
			    uint32_t events);
void snt__conn_loop_unwatch(struct snt__conn_loop *conn_loop, struct snt__watch *watch);

/* Dispatches until it has come. Returns 0; -ETIME on timeout;
 * -ECANCELED if the object is gone; -EBUSY in a callback; the errno of the loop. */
int snt__conn_loop_wait(struct snt__conn_loop *conn_loop,
			struct snt__conn_loop_waiter **waiters,
			bool (*has_come)(const void *what), const void *what,
			int64_t timeout_ns);

/* The object that they wait for is going. */
static inline void snt__conn_loop_waiters_end(struct snt__conn_loop_waiter *waiters)
{
	for (; waiters; waiters = waiters->next)
		waiters->gone = true;
}

static inline uint64_t snt__conn_loop_now(const struct snt__conn_loop *conn_loop)
{
	return snt__ctx_now_ns(conn_loop->ctx);
}

/* The rest of a timeout that began then; for ever and none stay as they are. */
static inline int64_t snt__conn_loop_left(const struct snt__conn_loop *conn_loop,
					  int64_t timeout_ns, uint64_t begin)
{
	uint64_t spent;

	if (timeout_ns <= 0)
		return timeout_ns;
	spent = snt__conn_loop_now(conn_loop) - begin;
	return spent < (uint64_t)timeout_ns ? timeout_ns - (int64_t)spent : 0;
}

#endif
