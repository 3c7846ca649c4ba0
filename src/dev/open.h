/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_OPEN_H
#define SNT_DEV_OPEN_H

#include "dev/ctx.h"

/*
 * Finds and opens the devices that the options and the environment ask for. On
 * failure those already opened are in the context, for the caller to close.
 */
int snt__open_devices(struct snt_ctx *ctx, const struct snt_ctx_opts *opts);

#endif
