/* SPDX-License-Identifier: MIT */
/* Opening and closing a context. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "dev/ctx.h"
#include "dev/deferred_release.h"
#include "dev/mem.h"
#include "dev/open.h"
#include "util/err.h"
#include "util/opts.h"

static uint64_t system_clock(void *arg)
{
	struct timespec now;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static int system_random(void *arg, void *buffer, size_t length)
{
	unsigned char *at = buffer;

	(void)arg;
	while (length) {
		ssize_t got = getrandom(at, length, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		at += got;
		length -= got;
	}
	return 0;
}

static int set_up_log(struct snt_ctx *ctx, const struct snt_ctx_opts *opts)
{
	static const char *const words[] = { "error", "warn", "info", "debug", NULL };
	int word = opts->log_level - SNT_LOG_ERROR;

	if (opts->log_level > SNT_LOG_DEBUG)
		return snt__fail(EINVAL, "log_level %u is not a level",
				 opts->log_level);
	if (opts->log_level == SNT_LOG_DEFAULT)
		word = snt__setting_word(snt__setting_get(SNT__SETTING_LOG, NULL, NULL),
					 words);
	if (word < 0)
		return word;
	ctx->log.level = SNT_LOG_ERROR + word;
	ctx->log.fn = opts->log;
	ctx->log.arg = opts->log_arg;
	if (!opts->log && snt__setting_env(SNT__SETTING_LOG))
		ctx->log.fn = snt__log_stderr;
	return 0;
}

/* "auto" or digits; whether a port has this index is checked by the port. */
static int set_up_gid(struct snt_ctx *ctx, const struct snt_ctx_opts *opts)
{
	struct snt__value wish =
		snt__setting_get(SNT__SETTING_GID, opts->gid, "snt_ctx_opts.gid");
	size_t digits = 0;

	while (isdigit((unsigned char)wish.text[digits]))
		digits++;
	if (strcmp(wish.text, "auto") &&
	    (!digits || wish.text[digits] || digits >= sizeof(ctx->gid_text)))
		return snt__fail(EINVAL,
				 "%s is \"%s\"; it must be auto or a GID table index",
				 wish.origin, wish.text);
	snprintf(ctx->gid_text, sizeof(ctx->gid_text), "%s", wish.text);
	ctx->gid_wish = (struct snt__value){ ctx->gid_text, wish.origin };
	return 0;
}

static void warn_unknown(void *arg, const char *name)
{
	snt__log(arg, SNT_LOG_WARN,
		 "%s is set, but sennit has no such setting; check its spelling", name);
}

static int set_up_ctx(struct snt_ctx *ctx, const struct snt_ctx_opts *opts)
{
	int ret = set_up_log(ctx, opts);

	if (ret)
		return ret;
	ret = set_up_gid(ctx, opts);
	if (ret)
		return ret;
	ctx->clock = opts->clock ? opts->clock : system_clock;
	ctx->clock_arg = opts->clock_arg;
	ctx->random = opts->random ? opts->random : system_random;
	ctx->random_arg = opts->random_arg;
	snt__setting_unknown(warn_unknown, &ctx->log);
	return 0;
}

static void say_what_was_opened(const struct snt_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->device_count; i++) {
		const struct snt_device *device = ctx->device[i];
		char text[SNT__DEVICE_TEXT];

		snt__log(&ctx->log, SNT_LOG_INFO, "device %u is %s, MTU %u, GID %s", i,
			 snt__device_text(device, text), snt__port(device)->info.mtu,
			 snt__port(device)->gid_best < 0
				 ? "none"
				 : snt__port(device)->gid_reason);
	}
}

static void close_devices(struct snt_ctx *ctx)
{
	while (ctx->device_count)
		snt__device_close(ctx->device[--ctx->device_count]);
}

/* Does everything that can fail, before anything is closed. */
static int release_devices(struct snt_ctx *ctx)
{
	int first = 0;

	for (unsigned i = 0; i < ctx->device_count; i++) {
		int ret = snt__device_release(ctx->device[i]);

		if (ret && !first)
			first = ret;
	}
	return first;
}

int snt_ctx_create(const struct snt_ctx_opts *user_opts, struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts;
	struct snt_ctx *ctx;
	int ret;

	ret = snt__opts_import(&opts, sizeof(opts), user_opts, "struct snt_ctx_opts");
	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return snt__fail(ENOMEM, "no memory for a context");
	ctx->fork_mark = snt__fork_watch();
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_mutex_init(&ctx->events_lock, NULL);
	snt__list_init(&ctx->event_loops);
	snt__list_init(&ctx->qps);
	ret = set_up_ctx(ctx, &opts);
	if (ret)
		goto err_free;
	ret = snt__open_devices(ctx, &opts);
	if (ret)
		goto err_devices;
	say_what_was_opened(ctx);
	*ctx_out = ctx;
	return 0;

err_devices:
	release_devices(ctx);
	close_devices(ctx);
err_free:
	pthread_mutex_destroy(&ctx->lock);
	pthread_mutex_destroy(&ctx->events_lock);
	free(ctx);
	return ret;
}

static int check_none(struct snt_ctx *ctx, enum snt__ctx_count what)
{
	static const char *const left[SNT__CTX_COUNTS] = {
		[SNT__CTX_MEMS] = "memory registrations left; release them",
		[SNT__CTX_LOOPS] = "loops left; close them",
		[SNT__CTX_CQS] = "CQs left; destroy them",
		[SNT__CTX_QPS] = "QPs left; destroy them",
	};
	unsigned count;

	snt__ctx_lock(ctx);
	count = ctx->count[what];
	snt__ctx_unlock(ctx);
	return count ? snt__fail(EBUSY, "the context has %u %s before closing it",
				 count, left[what])
		     : 0;
}

int snt_ctx_destroy(struct snt_ctx *ctx)
{
	int ret;

	if (!ctx)
		return 0;
	ret = check_none(ctx, SNT__CTX_LOOPS);
	if (!ret)
		ret = check_none(ctx, SNT__CTX_MEMS);
	/* Orphans may hold on to CQs. No other thread has any object of the context by
	 * now, unless it has CQs without a loop. */
	if (!ret)
		ret = snt__deferred_releases_try(ctx, NULL);
	if (!ret)
		ret = check_none(ctx, SNT__CTX_QPS);
	if (!ret)
		ret = check_none(ctx, SNT__CTX_CQS);
	if (!ret)
		ret = release_devices(ctx);
	if (ret)
		return ret;
	close_devices(ctx);
	for (unsigned i = 0; i < SNT__RELEASED_KEPT; i++)
		free(ctx->released[i]);
	pthread_mutex_destroy(&ctx->lock);
	pthread_mutex_destroy(&ctx->events_lock);
	free(ctx);
	return 0;
}
