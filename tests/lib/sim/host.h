/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_HOST_H
#define SNT_DEV_SOFT_SIM_HOST_H

#include <sennit/ctx.h>

#include "lib/sim/sim.h"

/*
 * A host is a set of devices which one context opens, and which lose their power
 * together.
 */
struct snt__sim_host {
	struct snt__sim *sim;
	struct snt__sim_host *next;
	struct snt__sim_device *device[SNT_DEVICES_MAX];
	struct snt_adopted adopted[SNT_DEVICES_MAX];
	unsigned device_count;
	unsigned number;
	uint64_t random; /* of the context */
	bool dead;
};

/* 0 or -ENOMEM. */
int snt__sim_host_create(struct snt__sim *sim, struct snt__sim_host **host_out);

/* Sets devices, clock and randomness of a context to be opened on this host. */
void snt__sim_host_ctx_opts(struct snt__sim_host *host, struct snt_ctx_opts *opts);

/* The power goes: nothing leaves it, reaches it or happens on it any more, without
 * notice. Its objects can still be destroyed. */
void snt__sim_host_kill(struct snt__sim_host *host);

#endif
