/* SPDX-License-Identifier: MIT */
#include "dev/soft/cm_manager.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "dev/soft/cm_address.h"
#include "util/err.h"

/*
 * The owners of addresses
 */

int snt__soft_cm_gid_index(struct snt__soft_device *device, const uint8_t gid[16])
{
	int found = -1;

	snt__soft_lock(device);
	for (unsigned i = 0; found < 0 && i < SNT__SOFT_GID_MAX; i++)
		if (snt__soft_gid_valid(device, i) &&
		    memcmp(device->gids[i], gid, 16) == 0)
			found = (int)i;
	snt__soft_unlock(device);
	return found;
}

int snt__soft_cm_owner(const struct snt__soft_cm_manager *manager,
		       const uint8_t gid[16])
{
	for (unsigned i = 0; i < manager->count; i++)
		if (snt__soft_cm_gid_index(manager->port[i].device, gid) >= 0)
			return (int)i;
	return -1;
}

int snt__soft_cm_port_index(const struct snt__soft_cm_manager *manager,
			    const struct snt__soft_device *device)
{
	for (unsigned i = 0; i < manager->count; i++)
		if (manager->port[i].device == device)
			return (int)i;
	return -1;
}

static int find_most_similar_device(const struct snt__soft_cm_manager *manager,
				    const uint8_t target[16], uint8_t source_out[16])
{
	int best = -1, device = -1;

	for (unsigned i = 0; i < manager->count; i++) {
		struct snt__soft_device *d = manager->port[i].device;

		snt__soft_lock(d);
		for (unsigned k = 0; k < SNT__SOFT_GID_MAX; k++) {
			int like = snt__soft_cm_likeness(d->gids[k], target);

			if (!snt__soft_gid_valid(d, k) || like <= best)
				continue;
			best = like;
			device = (int)i;
			memcpy(source_out, d->gids[k], 16);
		}
		snt__soft_unlock(d);
	}
	return device;
}

int snt__soft_cm_nearest(const struct snt__soft_cm_manager *manager,
			 const struct sockaddr *address, const uint8_t target[16],
			 uint8_t source_out[16])
{
	const struct snt__soft_device *any = manager->port[0].device;
	int device = -1;

	if (any->driver->route &&
	    !any->driver->route(any->driver_arg, address, source_out))
		device = snt__soft_cm_owner(manager, source_out);
	return device < 0 ? find_most_similar_device(manager, target, source_out)
			  : device;
}

/*
 * QP 1
 */

static void agent_input(void *arg, const struct snt__soft_path *path,
			const uint8_t mad[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	snt__soft_cm_input(arg, path, mad, now);
}

static bool agent_output(void *arg, struct snt__soft_path *path_out,
			 uint8_t mad_out[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	return snt__soft_cm_output(arg, path_out, mad_out, now);
}

static uint64_t agent_deadline(void *arg)
{
	return snt__soft_cm_deadline(arg);
}

static void agent_timer(void *arg, uint64_t now)
{
	snt__soft_cm_timer(arg, now);
}

static void agent_killed(void *arg)
{
	snt__soft_cm_kill(arg);
}

static const struct snt__soft_agent agent = {
	.input = agent_input,
	.output = agent_output,
	.deadline = agent_deadline,
	.timer = agent_timer,
	.killed = agent_killed,
};

static void machine_random(void *arg, void *buffer, size_t length)
{
	struct snt__soft_device *device = arg;

	device->driver->random(device->driver_arg, buffer, length);
}

static int machine_claim(void *arg, uint16_t port)
{
	struct snt__soft_device *device = arg;

	return device->driver->claim ? device->driver->claim(device->driver_arg, port)
				     : 0;
}

static void machine_unclaim(void *arg, uint16_t port)
{
	struct snt__soft_device *device = arg;

	if (device->driver->unclaim)
		device->driver->unclaim(device->driver_arg, port);
}

static void wake_manager(void *arg)
{
	struct snt__soft_cm_port *port = arg;

	snt__soft_bell_ring(&port->bell);
}

void snt__soft_cm_quiet(struct snt__soft_cm_port *port)
{
	if (snt__list_empty(&port->channel.ready))
		snt__soft_bell_quiet(&port->bell);
}

/*
 * The machine of a device
 */

static int create_machine(struct snt__soft_device *device,
			  const struct snt__cm_opts *opts,
			  struct snt__soft_cm **machine_out)
{
	struct snt__soft_cm_config config = {
		.random = machine_random,
		.claim = machine_claim,
		.unclaim = machine_unclaim,
		.arg = device,
		.guid = be64toh(device->guid),
		.seat = device->limits.seat,
		.mtu = (uint8_t)device->limits.mtu,
		.read_max = (uint8_t)device->limits.read_max,
		.connection_max = opts->connection_max,
		.listener_max = opts->listener_max,
	};

	return snt__soft_cm_create(&config, machine_out);
}

/* Opens the port's channel on the device's machine. If the device has none, and a spare
 * one is given, the device takes that. False: there is still none. */
static bool join_machine(struct snt__soft_cm_port *port, struct snt__soft_cm **spare)
{
	struct snt__soft_device *device = port->device;
	bool joined;

	snt__soft_lock(device);
	if (!device->mads.agent && *spare) {
		snt__soft_device_set_agent(device, &agent, *spare);
		*spare = NULL;
	}
	joined = device->mads.agent == &agent;
	if (joined) {
		port->machine = device->mads.arg;
		snt__soft_cm_channel_open(port->machine, &port->channel);
		device->object_count++;
	}
	snt__soft_unlock(device);
	return joined;
}

/* Machines are created without the lock, since that takes time: meanwhile another
 * thread may have installed one, or the installed one may be gone. */
static int attach_to_machine(struct snt__soft_cm_port *port,
			     const struct snt__cm_opts *opts)
{
	struct snt__soft_cm *spare = NULL;
	int ret = 0;

	while (!ret && !join_machine(port, &spare))
		ret = spare ? -EBUSY : create_machine(port->device, opts, &spare);
	snt__soft_cm_destroy(spare);
	return ret;
}

static void detach_from_machine(struct snt__soft_cm_port *port)
{
	struct snt__soft_device *device = port->device;
	bool last;

	snt__soft_lock(device);
	snt__soft_cm_channel_close(&port->channel);
	device->object_count--;
	last = !port->machine->channel_count;
	if (last) {
		machine_unclaim(device, 0);
		snt__soft_device_set_agent(device, NULL, NULL);
	}
	snt__soft_unlock(device);
	if (last)
		snt__soft_cm_destroy(port->machine);
}

/*
 * Opening and closing
 */

static int watch_port_fd(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Works for one that was opened only partly, too. */
static void close_port(struct snt__soft_cm_port *port)
{
	if (port->machine)
		detach_from_machine(port);
	if (port->bell.fd >= 0)
		snt__soft_bell_close(&port->bell);
}

static int open_manager_port(struct snt__soft_cm_manager *manager,
			     struct snt__soft_device *device,
			     const struct snt__cm_opts *opts)
{
	struct snt__soft_cm_port *port = &manager->port[manager->count];
	int ret;

	if (snt__soft_cm_port_index(manager, device) >= 0)
		return -EINVAL;
	manager->count++;
	port->device = device;
	port->channel.wake = wake_manager;
	port->channel.arg = port;
	ret = snt__soft_bell_open(&port->bell);
	if (!ret)
		ret = watch_port_fd(manager->epoll, port->bell.fd);
	return ret ? ret : attach_to_machine(port, opts);
}

int snt__soft_cm_manager_open(const struct snt__cm_opts *opts, struct snt__cm **cm_out)
{
	struct snt__soft_cm_manager *manager;
	int ret = 0;

	if (!opts->device_count || opts->device_count > SNT_DEVICES_MAX)
		return snt__fail(EINVAL, "a connection manager has 1 to %d devices",
				 SNT_DEVICES_MAX);
	manager = calloc(1, sizeof(*manager));
	if (!manager)
		return snt__fail(ENOMEM, "no memory for a connection manager");
	manager->cm.table = &snt__cm_soft;
	manager->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (manager->epoll < 0)
		ret = -errno;
	for (unsigned i = 0; !ret && i < opts->device_count; i++)
		ret = open_manager_port(manager,
					snt__soft_device_of(opts->devices[i].context),
					opts);
	if (!ret) {
		*cm_out = &manager->cm;
		return 0;
	}
	while (manager->count)
		close_port(&manager->port[--manager->count]);
	if (manager->epoll >= 0)
		close(manager->epoll);
	free(manager);
	return snt__fail(-ret, "connection manager: %s", strerror(-ret));
}

int snt__soft_cm_manager_close(struct snt__cm *cm)
{
	struct snt__soft_cm_manager *manager;
	bool busy;

	if (!cm)
		return 0;
	manager = snt__soft_cm_manager(cm);
	busy = manager->listeners;
	for (unsigned i = 0; i < manager->count; i++) {
		snt__soft_lock(manager->port[i].device);
		busy |= manager->port[i].channel.live;
		snt__soft_unlock(manager->port[i].device);
	}
	if (busy)
		return snt__fail(
			EBUSY,
			"the connection manager has connections left; destroy them first");
	for (unsigned i = 0; i < manager->count; i++)
		close_port(&manager->port[i]);
	close(manager->epoll);
	free(manager);
	return 0;
}

void snt__soft_cm_unlock_kick(struct snt__soft_cm_port *port)
{
	struct snt__soft_device *device = port->device;
	bool kick = !device->kicked;

	device->kicked = true;
	snt__soft_unlock(device);
	if (kick)
		device->driver->kick(device->driver_arg);
}

int snt__soft_cm_manager_fd(struct snt__cm *cm)
{
	return snt__soft_cm_manager(cm)->epoll;
}

int snt__soft_cm_manager_event(struct snt__cm *cm, struct snt__cm_event *event_out)
{
	struct snt__soft_cm_manager *manager = snt__soft_cm_manager(cm);

	for (unsigned i = 0; i < manager->count; i++) {
		unsigned index = manager->next++ % manager->count;
		struct snt__soft_cm_port *port = &manager->port[index];
		int ret;

		snt__soft_lock(port->device);
		ret = snt__soft_cm_next_event(&port->channel, event_out);
		if (!ret) {
			event_out->id->cm = cm;
			event_out->id->device = index;
		}
		snt__soft_cm_quiet(port);
		snt__soft_unlock(port->device);
		if (!ret)
			return 0;
	}
	return -EAGAIN;
}
