/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_DEFERRED_RELEASE_H
#define SNT_DEV_DEFERRED_RELEASE_H

struct snt_ctx;

/*
 * The rest of an object that could not be created, because a device refused to release
 * it when the creation was undone. Only the context owns it, and tries again before it
 * closes; so does any object whose destruction it may block.
 */
struct snt__deferred_release {
	struct snt__deferred_release *next;
	/* Returns 0, with the owner of this structure freed, or -errno with a
	 * sentence. */
	int (*release)(void *owner);
	void *owner;
	/* The CQs or the loop it is part of: only the thread that uses these may
	 * release it. Set before it is added. NULL: any thread may. */
	const void *home[2];
};

/* Added at the end of the list, so that an deferred may depend on earlier ones to be
 * released first. */
void snt__deferred_release_add(struct snt_ctx *ctx,
			       struct snt__deferred_release *deferred,
			       int (*release)(void *owner), void *owner);

/* Tries to release each deferred of this home, and those without one; with NULL, when no
 * other thread uses the context any more, all. 0 when none of them is left. */
int snt__deferred_releases_try(struct snt_ctx *ctx, const void *home);

#endif
