/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_SLEEP_H
#define SNT_LOOP_SLEEP_H

#include "loop/loop.h"

/* Fds to sleep on besides the loop's. */
struct snt__sleep {
	struct snt_loop *loop;
	unsigned count; /* devices */
	unsigned fd_count;
	struct snt__sleep_device {
		const struct snt_device *device;
		unsigned first, count; /* its fds */
	} device[SNT_DEVICES_MAX];
	int fd[SNT_DEVICES_MAX * SNT__RX_FDS];
};

/* Called before CQs are armed, so that devices need not wake another thread to move
 * packets; either of the two functions below ends it. */
void snt__sleep_borrow(struct snt_loop *loop, struct snt__sleep *sleep,
		       int64_t timeout_ns);

/* Sleeps, and collects what the fd reports. Returns 0 or a negative errno. */
int snt__sleep_on(struct snt_loop *loop, struct snt__sleep *sleep, int64_t timeout_ns);
void snt__sleep_not(struct snt_loop *loop, struct snt__sleep *sleep);

#endif
