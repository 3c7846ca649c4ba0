/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_FAULT_H
#define SNT_DEV_SOFT_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sennit/fault.h>

/*
 * Faults on purpose (sennit/fault.h). They are a part of the device and not of its driver,
 * so that all drivers have them: sockets, shared memory and the simulator.
 */

struct snt__soft_device;

struct snt__soft_fault {
	bool out, in;	/* packets in that direction are lost */
	bool port_down; /* the port is down because of it */
	bool pending;	/* it occurs after `sent_left` more packets */
	enum snt_fault kind;
	uint64_t sent_left;
};

/* Both with the lock held. The caller has checked `kind`. Return 0, or -EIO: the device
 * is dead. */
int snt__soft_device_fail(struct snt__soft_device *device, enum snt_fault kind,
			  uint64_t after_sent);
int snt__soft_device_heal(struct snt__soft_device *device);

/* A device with a pending fault is about to send packets. Returns how many of them go
 * out; the fault occurs after the last one that it permits. */
unsigned snt__soft_fault_sent(struct snt__soft_device *device, unsigned count);

#endif
