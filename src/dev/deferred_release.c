/* SPDX-License-Identifier: MIT */
#include "dev/deferred_release.h"

#include <stdbool.h>
#include <stddef.h>

#include "dev/ctx.h"

void snt__deferred_release_add(struct snt_ctx *ctx,
			       struct snt__deferred_release *deferred,
			       int (*release)(void *owner), void *owner)
{
	struct snt__deferred_release **link = &ctx->deferred;

	deferred->next = NULL;
	deferred->release = release;
	deferred->owner = owner;
	snt__ctx_lock(ctx);
	while (*link)
		link = &(*link)->next;
	*link = deferred;
	snt__ctx_unlock(ctx);
}

static bool has_home(const struct snt__deferred_release *deferred, const void *home)
{
	return !home || !deferred->home[0] || deferred->home[0] == home ||
	       deferred->home[1] == home;
}

/* The deferred releases of this home, in order; the rest stay. With the lock. */
static struct snt__deferred_release *take_list(struct snt_ctx *ctx, const void *home)
{
	struct snt__deferred_release *taken = NULL, **taken_end = &taken,
				     **link = &ctx->deferred;

	while (*link) {
		struct snt__deferred_release *deferred = *link;

		if (!has_home(deferred, home)) {
			link = &deferred->next;
			continue;
		}
		*link = deferred->next;
		deferred->next = NULL;
		*taken_end = deferred;
		taken_end = &deferred->next;
	}
	return taken;
}

int snt__deferred_releases_try(struct snt_ctx *ctx, const void *home)
{
	struct snt__deferred_release *list;
	int ret = 0;

	snt__ctx_lock(ctx);
	list = take_list(ctx, home);
	snt__ctx_unlock(ctx);
	while (list) {
		struct snt__deferred_release *deferred = list;
		int refused;

		list = deferred->next;
		refused = deferred->release(deferred->owner);
		if (!refused)
			continue;
		ret = refused;
		snt__deferred_release_add(ctx, deferred, deferred->release,
					  deferred->owner);
	}
	return ret;
}
