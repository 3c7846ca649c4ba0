/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_SLEEP_H
#define SNT_LOOP_SLEEP_H

#include "loop/loop.h"

/* What to sleep on besides the loop's fd. */
struct snt__sleep {
	struct snt_loop *loop;
	unsigned count;
	const struct snt_device *device[SNT_DEVICES_MAX];
	int fd[SNT_DEVICES_MAX];
};

/* Before CQs are armed, so that devices need not look for another who does it; it ends with
 * either of the two below. */
void snt__sleep_attend(struct snt_loop *loop, struct snt__sleep *sleep,
		       int64_t timeout_ns);

/* Takes what the fd has to tell. Returns 0 or a negative errno. */
int snt__sleep_on(struct snt_loop *loop, struct snt__sleep *sleep, int64_t timeout_ns);
void snt__sleep_not(struct snt_loop *loop, struct snt__sleep *sleep);

#endif
