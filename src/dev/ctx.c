/* SPDX-License-Identifier: MIT */
#include "dev/ctx.h"

#include <errno.h>

#include "util/err.h"

int snt__ctx_check(const struct snt_ctx *ctx)
{
	return snt__fork_passed(ctx->fork_mark)
		       ? snt__fail(ECHILD, "the context belongs to the process that "
					   "forked; open one in the child")
		       : 0;
}

unsigned snt_ctx_device_count(const struct snt_ctx *ctx)
{
	return ctx->device_count;
}

struct snt_device *snt_ctx_device(const struct snt_ctx *ctx, unsigned index)
{
	return index < ctx->device_count ? ctx->device[index] : NULL;
}
