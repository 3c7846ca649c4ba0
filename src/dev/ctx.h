/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_CTX_H
#define SNT_DEV_CTX_H

#include <sennit/ctx.h>
#include <sennit/mem.h>

#include "dev/device.h"
#include "dev/orphan.h"
#include "util/list.h"
#include "util/log.h"

struct snt_cq;
struct snt__hub;
struct snt__loop;

/* What the layers below tell the loop, if there is one. */
struct snt__loop_hooks {
	int (*may_close)(struct snt_ctx *ctx);
	void (*close)(struct snt_ctx *ctx);
	int (*channel_made)(struct snt_ctx *ctx);
	void (*cq_grown)(struct snt_cq *cq); /* by a physical CQ */
};

struct snt_ctx {
	struct snt_device *device[SNT_DEVICES_MAX];
	unsigned device_count;
	unsigned mem_count; /* alive, so that closing can be refused */
	unsigned cq_count;
	unsigned qp_count;
	struct snt__orphan *orphans;
	struct snt__link event_cqs;  /* those with events */
	struct snt__link polled_cqs; /* those with ops and without events */
	struct snt__link srqs;
	struct snt__link qps;
	/* What src/loop knows of this context; NULL: nothing yet. */
	struct snt__loop *loop;
	const struct snt__loop_hooks *loop_hooks;
	/* The same of src/conn. Closing may be refused. */
	struct snt__hub *hub;
	int (*hub_close)(struct snt_ctx *ctx);
	struct snt__log log;
	snt_clock_fn clock;
	void *clock_arg;
	snt_random_fn random;
	void *random_arg;
	struct snt__value gid_wish;
	char gid_text[16]; /* the option's text, which the caller may free */
};

/* The only sources of time and chance, so that a simulated context replays. */
static inline uint64_t snt__ctx_now_ns(const struct snt_ctx *ctx)
{
	return ctx->clock(ctx->clock_arg);
}

static inline int snt__ctx_random(const struct snt_ctx *ctx, void *buffer,
				  size_t length)
{
	return ctx->random(ctx->random_arg, buffer, length);
}

#endif
