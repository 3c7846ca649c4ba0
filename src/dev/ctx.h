/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_CTX_H
#define SNT_DEV_CTX_H

#include <sennit/ctx.h>
#include <sennit/mem.h>

#include "dev/device.h"
#include "util/log.h"

struct snt_ctx {
	struct snt_device *device[SNT_DEVICES_MAX];
	unsigned device_count;
	unsigned mem_count; /* alive, so that closing can be refused */
	unsigned cq_count;
	unsigned qp_count;
	struct snt_mem *orphans;
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
