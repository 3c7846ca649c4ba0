/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_ORPHAN_H
#define SNT_DEV_ORPHAN_H

struct snt_ctx;

/*
 * What is left of something that could not be made, because a device did not let go
 * of it when it was to be undone. It belongs to nobody but the context, which tries
 * again before it closes, as does whatever else it may stand in the way of.
 */
struct snt__orphan {
	struct snt__orphan *next;
	/* Returns 0, with the owner of this structure freed, or -errno with a
	 * sentence. */
	int (*release)(void *owner);
	void *owner;
	/* The CQs or the loop it is part of: only the thread that has these may release it.
	 * Set before it is added. NULL: any thread may. */
	const void *home[2];
};

/* Behind all others, so that an orphan may need earlier ones to be gone. */
void snt__orphan_add(struct snt_ctx *ctx, struct snt__orphan *orphan,
		     int (*release)(void *owner), void *owner);

/* Tries each of this home, and those of none; with NULL, when no other thread uses the
 * context any more, all. 0 when none of them is left. */
int snt__orphans_release(struct snt_ctx *ctx, const void *home);

#endif
