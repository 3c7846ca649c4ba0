/* SPDX-License-Identifier: MIT */
#include "lib/sim/device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/random.h"
#include "lib/sim/switch.h"
#include "util/err.h"

#define BATCH 16

/*
 * When something happens. An event that does not count any more stays in the queue
 * and finds out when its time comes: of each kind only the earliest counts.
 */

static void add_event(struct snt__sim_device *device, enum snt__sim_kind kind,
		      uint64_t at, uint64_t *earliest)
{
	struct snt__sim *sim = device->sim;

	if (at < sim->now)
		at = sim->now;
	if (at < *earliest && !snt__sim_queue_add(&sim->queue, at, kind, device))
		*earliest = at;
}

static bool is_deadline_now(const struct snt__sim_device *device, uint64_t *earliest)
{
	if (*earliest != device->sim->now)
		return false;
	*earliest = UINT64_MAX;
	return !device->host->dead;
}

static void set_timer(struct snt__sim_device *device)
{
	uint64_t at = snt__soft_deadline(device->core);

	if (at != SNT__SOFT_NEVER)
		add_event(device, SNT__SIM_TIMER, at, &device->timer_at);
}

/* On a cable with a limit packets go out when it is free, so that the device, not the
 * order of a queue, decides which QP is next. */
static void send_all(struct snt__sim_device *device)
{
	struct snt__soft_packet packets[BATCH];
	uint64_t now = device->sim->now;
	unsigned most = device->out.opts.mbps ? 1 : BATCH, count = most;

	while (count == most) {
		if (device->out.opts.mbps && device->out.free_at > now) {
			add_event(device, SNT__SIM_SEND, device->out.free_at,
				  &device->send_at);
			break;
		}
		count = snt__soft_output(device->core, packets, most, now);
		for (unsigned i = 0; i < count; i++)
			snt__sim_switch_send(device, &packets[i]);
	}
	set_timer(device);
}

static void send_soon(struct snt__sim_device *device)
{
	add_event(device, SNT__SIM_SEND, device->sim->now + device->turnaround_ns,
		  &device->send_at);
}

void snt__sim_device_receive(struct snt__sim_device *device,
			     const struct snt__soft_path *path, const uint8_t *bytes,
			     size_t length)
{
	snt__soft_input(device->core, path, bytes, length, device->sim->now);
	if (device->turnaround_ns) {
		send_soon(device);
		set_timer(device);
	} else {
		send_all(device);
	}
}

void snt__sim_device_send(struct snt__sim_device *device)
{
	if (is_deadline_now(device, &device->send_at))
		send_all(device);
}

void snt__sim_device_timer(struct snt__sim_device *device)
{
	if (!is_deadline_now(device, &device->timer_at))
		return;
	if (snt__soft_deadline(device->core) <= device->sim->now)
		snt__soft_timer(device->core, device->sim->now);
	send_all(device);
}

/*
 * What the device asks its driver for
 */

static void device_fill_random(void *arg, void *buffer, size_t length)
{
	struct snt__sim_device *device = arg;
	unsigned char *to = buffer;

	for (size_t i = 0; i < length; i++)
		to[i] = snt__sim_random(&device->random) >> 56;
}

/* The verb may have changed deadlines as well. */
static void device_kick(void *arg)
{
	struct snt__sim_device *device = arg;

	if (!device->host->dead)
		send_soon(device);
}

static void device_progress(void *arg)
{
	struct snt__sim_device *device = arg;
	struct snt__sim *sim = device->sim;

	if (!sim->opts.poll_steps || sim->stepping)
		return;
	if (!snt__sim_step(sim))
		sim->now += sim->opts.poll_ns;
}

/* A sleeping program lets time pass; if nothing can happen any more it would be for
 * ever. */
static int wait_for(void *arg, int fd)
{
	struct snt__sim_device *device = arg;
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	if (device->sim->stepping)
		return -EDEADLK;
	while (poll(&poller, 1, 0) <= 0)
		if (!snt__sim_step(device->sim))
			return -EDEADLK;
	return 0;
}

static const struct snt__soft_driver driver = {
	.random = device_fill_random,
	.kick = device_kick,
	.progress = device_progress,
	.wait = wait_for,
};

/*
 * Making and unmaking
 */

static void make_gid(const struct snt__sim_device *device, bool ipv6, uint8_t gid[16])
{
	unsigned host = device->host->number, number = device->host->device_count + 1;

	memset(gid, 0, 16);
	if (ipv6) {
		gid[0] = 0xfd;
		gid[13] = host >> 8;
		gid[14] = host;
	} else {
		gid[10] = gid[11] = 0xff;
		gid[12] = 10;
		gid[13] = host >> 8;
		gid[14] = host;
	}
	gid[15] = number;
}

static int make_core(struct snt__sim_device *device,
		     const struct snt__sim_device_opts *opts)
{
	struct snt__soft_config config = opts->config;
	uint8_t gid[1][16];
	int ret = 0;

	config.name = device->name;
	config.driver = &driver;
	config.driver_arg = device;
	config.gids = opts->gids;
	config.gid_count = opts->gid_count;
	if (!opts->gids) {
		make_gid(device, opts->ipv6, gid[0]);
		config.gids = (const uint8_t(*)[16])gid;
		config.gid_count = 1;
	}
	for (unsigned i = 0; !ret && i < config.gid_count; i++)
		ret = snt__sim_route_add(device->sim, config.gids[i], device);
	if (!ret)
		ret = snt__soft_device_create(&config, &device->core);
	return ret;
}

static int adopt_device(struct snt__sim_device *device)
{
	struct snt__sim_host *host = device->host;
	struct snt_adopted *adopted = &host->adopted[host->device_count];

	*adopted = (struct snt_adopted){
		.size = sizeof(*adopted),
		.name = device->name,
		.context = snt__soft_device_context(device->core),
		.control = snt__soft_control(),
		.port = 1,
	};
	device->adopted = adopted;
	return adopted->control->alloc_pd(adopted->context, &adopted->pd);
}

static struct snt__sim_device *make_device(struct snt__sim_host *host,
					   const struct snt__sim_device_opts *opts)
{
	struct snt__sim_device *device = calloc(1, sizeof(*device));
	struct snt__sim *sim = host->sim;

	if (!device)
		return NULL;
	device->sim = sim;
	device->host = host;
	device->trunk = opts->trunk;
	device->turnaround_ns = opts->turnaround_ns;
	device->send_at = device->timer_at = UINT64_MAX;
	snt__sim_link_init(&device->out, opts->out, snt__sim_new_stream(sim));
	snt__sim_link_init(&device->in, opts->in, snt__sim_new_stream(sim));
	device->random = snt__sim_new_stream(sim);
	device->identification = snt__sim_random(&device->random);
	snprintf(device->name, sizeof(device->name), "sim%u", sim->device_count);
	return device;
}

int snt__sim_device_create(struct snt__sim_host *host,
			   const struct snt__sim_device_opts *opts,
			   struct snt__sim_device **device_out)
{
	static const struct snt__sim_device_opts defaults;
	struct snt__sim *sim = host->sim;
	struct snt__sim_device *device;
	int ret;

	if (host->device_count == SNT_DEVICES_MAX)
		return snt__fail(E2BIG, "a host has at most %d devices",
				 SNT_DEVICES_MAX);
	device = make_device(host, opts ? opts : &defaults);
	if (!device)
		return snt__fail(ENOMEM, "no memory for a device");
	ret = make_core(device, opts ? opts : &defaults);
	if (!ret)
		ret = adopt_device(device);
	if (ret)
		goto err;
	if (sim->capture)
		device->interface =
			snt__sim_capture_interface(sim->capture, device->name);
	sim->device_count++;
	host->device[host->device_count++] = device;
	*device_out = device;
	return 0;

err:
	snt__sim_route_remove(sim, device);
	snt__soft_device_destroy(device->core);
	free(device);
	return snt__fail(-ret, "simulated device: %s", strerror(-ret));
}

int snt__sim_device_destroy(struct snt__sim_device *device)
{
	struct snt_adopted *adopted = NULL;
	int ret;

	for (unsigned i = 0; i < device->host->device_count; i++)
		if (device->host->device[i] == device)
			adopted = &device->host->adopted[i];
	if (adopted->pd) {
		ret = adopted->control->dealloc_pd(adopted->pd);
		if (ret)
			return ret;
		adopted->pd = NULL;
	}
	ret = snt__soft_device_destroy(device->core);
	if (ret)
		return ret;
	free(device);
	return 0;
}

int snt__sim_trunk_create(struct snt__sim *sim, const struct snt__sim_link_opts *opts,
			  struct snt__sim_trunk **trunk_out)
{
	struct snt__sim_trunk *trunk = calloc(1, sizeof(*trunk));

	if (!trunk)
		return snt__fail(ENOMEM, "no memory for a trunk");
	snt__sim_link_init(&trunk->up, opts, snt__sim_new_stream(sim));
	snt__sim_link_init(&trunk->down, opts, snt__sim_new_stream(sim));
	trunk->next = sim->trunks;
	sim->trunks = trunk;
	*trunk_out = trunk;
	return 0;
}

/*
 * Faults
 */

void snt__sim_device_cut(struct snt__sim_device *device, bool cut)
{
	device->out.cut = device->in.cut = cut;
}

void snt__sim_device_set_port(struct snt__sim_device *device, bool up)
{
	snt__sim_device_cut(device, !up);
	snt__soft_device_set_port(device->core, up);
	device_kick(device);
}

void snt__sim_device_kill(struct snt__sim_device *device)
{
	snt__sim_device_cut(device, true);
	snt__soft_device_kill(device->core);
}
