/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_CTX_H
#define SNT_DEV_CTX_H

#include <pthread.h>
#include <sennit/ctx.h>
#include <sennit/mem.h>

#include "dev/device.h"
#include "util/assert.h"
#include "util/fork.h"
#include "util/list.h"
#include "util/log.h"

/* Objects made from a context that still exist. */
enum snt__ctx_count {
	SNT__CTX_MEMS,
	SNT__CTX_LOOPS,
	SNT__CTX_CQS,
	SNT__CTX_QPS,
	SNT__CTX_COUNTS
};

/* Structures of released memory that are kept, so that a thread which still names one of them
 * is refused instead of reading freed memory. */
#define SNT__RELEASED_KEPT 64

struct snt__deferred_release;

/*
 * Threads share a context. Its lock protects what can change after it was opened. It is
 * not held across calls of devices: a registration that takes long delays no other
 * thread.
 */
struct snt_ctx {
	struct snt_device *device[SNT_DEVICES_MAX];
	unsigned device_count;

	unsigned fork_mark; /* of the process that opened it */
	pthread_mutex_t lock;
	unsigned count[SNT__CTX_COUNTS];
	struct snt__deferred_release *deferred;
	struct snt__link qps;

	/* Loops that want the asynchronous events of devices. The loop that reads an
	 * event passes it on to all of them, under this lock. */
	pthread_mutex_t events_lock;
	struct snt__link event_loops;

	struct snt__log log;
	snt_clock_fn clock;
	void *clock_arg;
	snt_random_fn random;
	void *random_arg;
	struct snt__value gid_wish;
	char gid_text[16]; /* the option's text, which the caller may free */

	/* With the lock; last, so that the rest stays together. */
	struct snt_mem *released[SNT__RELEASED_KEPT];
	unsigned released_next;
};

/* The only sources of time and random numbers, so that a simulated context replays. */
static inline uint64_t snt__ctx_now_ns(const struct snt_ctx *ctx)
{
	return ctx->clock(ctx->clock_arg);
}

static inline int snt__ctx_random(const struct snt_ctx *ctx, void *buffer,
				  size_t length)
{
	return ctx->random(ctx->random_arg, buffer, length);
}

/* ctx.c: 0; -ECHILD in a child of the process that opened it. */
int snt__ctx_check(const struct snt_ctx *ctx);

/* In a child the lock may be held by a thread that only the parent has. The child's
 * only thread does not need it. */
static inline void snt__ctx_lock_with(const struct snt_ctx *ctx, pthread_mutex_t *lock)
{
	if (!snt__fork_passed(ctx->fork_mark))
		pthread_mutex_lock(lock);
}

static inline void snt__ctx_unlock_with(const struct snt_ctx *ctx,
					pthread_mutex_t *lock)
{
	if (!snt__fork_passed(ctx->fork_mark))
		pthread_mutex_unlock(lock);
}

static inline void snt__ctx_lock(struct snt_ctx *ctx)
{
	snt__ctx_lock_with(ctx, &ctx->lock);
}

static inline void snt__ctx_unlock(struct snt_ctx *ctx)
{
	snt__ctx_unlock_with(ctx, &ctx->lock);
}

static inline void snt__ctx_add(struct snt_ctx *ctx, enum snt__ctx_count what,
				int change)
{
	snt__ctx_lock(ctx);
	snt__assert(change >= 0 || ctx->count[what] >= (unsigned)-change);
	ctx->count[what] += change;
	snt__ctx_unlock(ctx);
}

#endif
