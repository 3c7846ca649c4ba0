/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_SWITCH_H
#define SNT_DEV_SOFT_SIM_SWITCH_H

#include "lib/sim/device.h"

/* How packets find their way, and what happens to them on it. */

/* 0; -EEXIST; -ENOMEM. */
int snt__sim_route_add(struct snt__sim *sim, const uint8_t gid[16],
		       struct snt__sim_device *device);
/* All that lead to it. */
void snt__sim_route_remove(struct snt__sim *sim, const struct snt__sim_device *device);

/* Puts a packet on the wire at its sender. */
void snt__sim_switch_send(struct snt__sim_device *from,
			  const struct snt__soft_packet *packet);

/* A packet has passed its last link, or has come to one that is to be waited for. */
void snt__sim_switch_arrive(struct snt__sim *sim, struct snt__sim_packet *packet);

#endif
