/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CM_MANAGER_H
#define SNT_DEV_SOFT_CM_MANAGER_H

#include <sennit/device.h>

#include "dev/soft/cm.h"
#include "dev/soft/core.h"

/*
 * A manager of dev/cm.h: an event channel on each of its devices, and one fd for all.
 *
 * The state machine is the device's, and all managers of the device share it: the first
 * one creates it, with the sizes that it asks for, and the last one frees it. The
 * machine, the channels and their bells are used with the device's lock held, by the
 * managers' threads and by the device's own. The rest of a manager belongs to its
 * thread; only move() reads that of another manager, and only what does not change
 * between open and close.
 */

struct snt__soft_cm_port {
	struct snt__soft_device *device;
	struct snt__soft_cm *machine; /* NULL: not opened */
	struct snt__soft_cm_channel channel;
	struct snt__soft_bell bell; /* rung while the channel has events */
};

struct snt__soft_cm_manager {
	struct snt__cm cm;
	int epoll;
	unsigned count;
	unsigned next; /* the port whose events are taken next */
	unsigned listeners;
	struct snt__soft_cm_port port[SNT_DEVICES_MAX];
};

static inline struct snt__soft_cm_manager *snt__soft_cm_manager(struct snt__cm *cm)
{
	return snt__container(cm, struct snt__soft_cm_manager, cm);
}

/* Part of the table. */
int snt__soft_cm_manager_open(const struct snt__cm_opts *opts, struct snt__cm **cm_out);
int snt__soft_cm_manager_close(struct snt__cm *cm);
int snt__soft_cm_manager_fd(struct snt__cm *cm);
int snt__soft_cm_manager_event(struct snt__cm *cm, struct snt__cm_event *event_out);

/* With the lock: the channel may have no event left. */
void snt__soft_cm_quiet(struct snt__soft_cm_port *port);

/* Unlocks after a call that may have made something to send. */
void snt__soft_cm_unlock_kick(struct snt__soft_cm_port *port);

/* The index in the device's GID table, or -1. */
int snt__soft_cm_gid_index(struct snt__soft_device *device, const uint8_t gid[16]);
/* The manager's index of a device, or -1. */
int snt__soft_cm_port_index(const struct snt__soft_cm_manager *manager,
			    const struct snt__soft_device *device);
/* The device that has an address; -1: none. */
int snt__soft_cm_owner(const struct snt__soft_cm_manager *manager,
		       const uint8_t gid[16]);
/* Our address that leads to a target: the one that the host's routes give or, where
 * they give none of ours, the one with the longest common prefix. The target is given
 * in both forms. Returns the device, or -1. */
int snt__soft_cm_nearest(const struct snt__soft_cm_manager *manager,
			 const struct sockaddr *address, const uint8_t target[16],
			 uint8_t source_out[16]);

#endif
