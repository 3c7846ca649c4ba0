/* SPDX-License-Identifier: MIT */
#include "dev/orphan.h"

#include <stdbool.h>
#include <stddef.h>

#include "dev/ctx.h"

void snt__orphan_add(struct snt_ctx *ctx, struct snt__orphan *orphan,
		     int (*release)(void *owner), void *owner)
{
	struct snt__orphan **link = &ctx->orphans;

	orphan->next = NULL;
	orphan->release = release;
	orphan->owner = owner;
	snt__ctx_lock(ctx);
	while (*link)
		link = &(*link)->next;
	*link = orphan;
	snt__ctx_unlock(ctx);
}

static bool is_at(const struct snt__orphan *orphan, const void *home)
{
	return !home || !orphan->home[0] || orphan->home[0] == home ||
	       orphan->home[1] == home;
}

/* The orphans of this home, in order; the rest stay. With the lock. */
static struct snt__orphan *take_list(struct snt_ctx *ctx, const void *home)
{
	struct snt__orphan *taken = NULL, **taken_end = &taken, **link = &ctx->orphans;

	while (*link) {
		struct snt__orphan *orphan = *link;

		if (!is_at(orphan, home)) {
			link = &orphan->next;
			continue;
		}
		*link = orphan->next;
		orphan->next = NULL;
		*taken_end = orphan;
		taken_end = &orphan->next;
	}
	return taken;
}

int snt__orphans_release(struct snt_ctx *ctx, const void *home)
{
	struct snt__orphan *orphans;
	int ret = 0;

	snt__ctx_lock(ctx);
	orphans = take_list(ctx, home);
	snt__ctx_unlock(ctx);
	while (orphans) {
		struct snt__orphan *orphan = orphans;
		int refused;

		orphans = orphan->next;
		refused = orphan->release(orphan->owner);
		if (!refused)
			continue;
		ret = refused;
		snt__orphan_add(ctx, orphan, orphan->release, orphan->owner);
	}
	return ret;
}
