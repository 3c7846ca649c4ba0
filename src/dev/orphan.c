/* SPDX-License-Identifier: MIT */
#include "dev/orphan.h"

#include <stddef.h>

#include "dev/ctx.h"

void snt__orphan_add(struct snt_ctx *ctx, struct snt__orphan *orphan,
		     int (*release)(void *owner), void *owner)
{
	struct snt__orphan **link = &ctx->orphans;

	while (*link)
		link = &(*link)->next;
	*orphan = (struct snt__orphan){ .release = release, .owner = owner };
	*link = orphan;
}

int snt__orphans_release(struct snt_ctx *ctx)
{
	struct snt__orphan **link = &ctx->orphans;
	int ret = 0;

	while (*link) {
		struct snt__orphan *orphan = *link, *next = orphan->next;
		int refused = orphan->release(orphan->owner);

		if (refused) {
			ret = refused;
			link = &orphan->next;
		} else {
			*link = next;
		}
	}
	return ret;
}
