/* SPDX-License-Identifier: MIT */
/*
 * Completion channels. A loop needs one for each device: an event names its CQ, and the
 * loop waits for all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "dev/device.h"
#include "util/err.h"

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static bool has_channels(const struct snt_control *control)
{
	return control->create_channel && control->destroy_channel &&
	       control->get_cq_event && control->ack_cq_events;
}

int snt__device_make_channel(const struct snt_device *device,
			     struct ibv_comp_channel **channel_out)
{
	struct ibv_comp_channel *channel;
	int ret;

	if (!has_channels(&device->control))
		return snt__fail(EOPNOTSUPP,
				 "%s has no completion channels, so its "
				 "CQs cannot have events",
				 device->name);
	ret = device->control.create_channel(device->context, &channel);
	if (ret)
		return snt__fail(-ret, "%s: no completion channel: %s", device->name,
				 strerror(-ret));
	ret = set_nonblocking(channel->fd);
	if (ret) {
		device->control.destroy_channel(channel);
		return snt__fail(-ret, "%s: its completion channel blocks: %s",
				 device->name, strerror(-ret));
	}
	*channel_out = channel;
	return 0;
}
