/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_HUB_H
#define SNT_CONN_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/ctx.h"
#include "loop/loop.h"
#include "util/list.h"

/*
 * What all connections of a loop share: an identity, a CQ of their own, and their place in
 * the loop. Made by the first connection or listener, and gone with the loop.
 *
 * Whoever has something to do is on the list `work`, and one timer that is due lets the
 * next dispatch see to it. So nothing of the program's is called from inside of anything
 * but dispatch, and what is called may destroy anything.
 */

/* A file descriptor; level-triggered. */
struct snt__watch {
	int fd;
	void (*ready)(struct snt__watch *watch, uint32_t events);
};

/* On the stack of whoever waits, and on a list of what is waited for, which functions of
 * the program may destroy meanwhile. */
struct snt__hub_waiter {
	struct snt__hub_waiter *next, **list;
	bool gone;
};

/* Somebody with something to do. */
struct snt__worker {
	struct snt__link link;
	/* May end its own existence, and that of others. Returns how many functions of the
	 * program it called, 0 or 1. */
	int (*work)(struct snt__worker *worker);
};

struct snt__hub {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	uint64_t identity;
	struct snt_cq *cq; /* of carriers and scouts; with ops */
	int epoll;
	struct snt__source source;
	struct snt_timer timer;
	struct snt__link work;
	struct snt__link meetings; /* connections that are to meet another */
	unsigned users;		   /* connections and listeners that the program has */
	unsigned lingering;	   /* carriers and scouts, on their way out or not */
	struct snt__cm_hub *cm;
	/* Trials under way, and connections that wait for their turn; of those that accept,
	 * and those that connect. Were they one, two contexts that connect to each other
	 * could wait for each other. */
	unsigned scoutings[2];
	struct snt__link scout_waiting[2];
};

/* Made if there is none. */
int snt__hub_get(struct snt_loop *loop, struct snt__hub **hub_out);

/* 0, or -ECHILD after a fork: what belongs to the parent is not ours to end. */
int snt__hub_check(const struct snt__hub *hub);

int snt__hub_random(const struct snt__hub *hub, void *buffer, size_t length);

/* Also from inside of work(). */
void snt__hub_add_work(struct snt__hub *hub, struct snt__worker *worker);

/* Runs the completions that have come for carriers and scouts, whatever the budget of this
 * dispatch; so for timers, before they judge what has not come. */
void snt__hub_take(struct snt__hub *hub);

int snt__hub_watch(struct snt__hub *hub, struct snt__watch *watch, uint32_t events);
void snt__hub_rewatch(struct snt__hub *hub, struct snt__watch *watch, uint32_t events);
void snt__hub_unwatch(struct snt__hub *hub, struct snt__watch *watch);

/* Dispatches until it has come. Returns 0; -EINPROGRESS, without a sentence, if time is up;
 * -ECANCELED if what was waited for is gone; -EBUSY in a function; the errno of the loop. */
int snt__hub_wait(struct snt__hub *hub, struct snt__hub_waiter **waiters,
		  bool (*has_come)(const void *what), const void *what,
		  int64_t timeout_ns);

/* What they wait for goes. */
static inline void snt__hub_waiters_end(struct snt__hub_waiter *waiters)
{
	for (; waiters; waiters = waiters->next)
		waiters->gone = true;
}

static inline uint64_t snt__hub_now(const struct snt__hub *hub)
{
	return snt__ctx_now_ns(hub->ctx);
}

/* What is left of a time that began then; as it is, if it is for ever or none. */
static inline int64_t snt__hub_left(const struct snt__hub *hub, int64_t timeout_ns,
				    uint64_t begin)
{
	uint64_t spent;

	if (timeout_ns <= 0)
		return timeout_ns;
	spent = snt__hub_now(hub) - begin;
	return spent < (uint64_t)timeout_ns ? timeout_ns - (int64_t)spent : 0;
}

#endif
