/* SPDX-License-Identifier: MIT */
#include "dev/soft/fault.h"

#include <errno.h>

#include "dev/soft/core.h"

static void let_fault_occur(struct snt__soft_device *device)
{
	struct snt__soft_fault *fault = &device->fault;

	fault->pending = false;
	switch (fault->kind) {
	case SNT_FAULT_CUT:
		fault->out = fault->in = true;
		break;
	case SNT_FAULT_CUT_OUT:
		fault->out = true;
		break;
	case SNT_FAULT_CUT_IN:
		fault->in = true;
		break;
	case SNT_FAULT_PORT_DOWN:
		fault->out = fault->in = true;
		fault->port_down = device->port_up;
		snt__soft_device_set_port(device, false);
		break;
	case SNT_FAULT_DEVICE_FATAL:
		snt__soft_device_kill(device);
		break;
	}
}

int snt__soft_device_heal(struct snt__soft_device *device)
{
	bool port_down = device->fault.port_down;

	if (device->dead)
		return -EIO;
	device->fault = (struct snt__soft_fault){ 0 };
	if (port_down)
		snt__soft_device_set_port(device, true);
	return 0;
}

int snt__soft_device_fail(struct snt__soft_device *device, enum snt_fault kind,
			  uint64_t after_sent)
{
	int ret = snt__soft_device_heal(device);

	if (ret)
		return ret;
	device->fault.kind = kind;
	device->fault.sent_left = after_sent;
	device->fault.pending = after_sent;
	if (!after_sent)
		let_fault_occur(device);
	return 0;
}

unsigned snt__soft_fault_sent(struct snt__soft_device *device, unsigned count)
{
	struct snt__soft_fault *fault = &device->fault;
	unsigned left = count;

	if (count < fault->sent_left) {
		fault->sent_left -= count;
		return count;
	}
	if (fault->kind != SNT_FAULT_CUT_IN)
		left = fault->sent_left;
	let_fault_occur(device);
	return left;
}
