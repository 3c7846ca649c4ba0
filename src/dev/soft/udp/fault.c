/* SPDX-License-Identifier: MIT */
/* Faults on purpose. The core loses packets; the driver loses those that it has already
 * taken from the core and that a full socket holds up. */
#include <errno.h>

#include "dev/soft/core.h"
#include "dev/soft/udp/device.h"

/* A sending thread may be in the kernel, with the gate open. */
static void discard_held_up_packets(struct snt__udp_device *device)
{
	while (device->sender.busy)
		snt__udp_gate_wait(&device->gate);
	device->core->stats.lost_by_fault += snt__udp_sender_discard(&device->sender);
}

int snt__udp_device_fail(struct snt__udp_device *device, enum snt_fault kind,
			 uint64_t after_sent)
{
	int ret;

	if (device->foreign)
		return -EIO;
	snt__udp_lock(device);
	ret = snt__soft_device_fail(device->core, kind, after_sent);
	if (!ret && (device->core->fault.out || device->core->dead))
		discard_held_up_packets(device);
	snt__udp_unlock(device);
	return ret;
}

int snt__udp_device_heal(struct snt__udp_device *device)
{
	int ret;

	if (device->foreign)
		return -EIO;
	snt__udp_lock(device);
	ret = snt__soft_device_heal(device->core);
	snt__udp_unlock(device);
	return ret;
}
