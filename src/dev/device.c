/* SPDX-License-Identifier: MIT */
#include "dev/device.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/ctx.h>

#include "dev/port.h"
#include "util/err.h"
#include "util/opts.h"

const char *snt__device_text(const struct snt_device *device, char *buffer)
{
	snprintf(buffer, SNT__DEVICE_TEXT, "%s port %u", device->name, device->number);
	return buffer;
}

enum snt_path snt__device_path(const struct snt_device *device, struct ibv_qp *qp)
{
	const struct snt__provider *provider = device->provider;

	if (!provider)
		return SNT_PATH_UNKNOWN;
	return provider->path ? provider->path(device->context, qp) : SNT_PATH_PORT;
}

void snt__device_lane_stats(const struct snt_device *device, struct ibv_qp *qp,
			    struct snt__lane_stats *stats_out)
{
	const struct snt__provider *provider = device->provider;

	*stats_out = (struct snt__lane_stats){ 0 };
	if (provider && provider->lane_stats)
		provider->lane_stats(device->context, qp, stats_out);
}

int snt_device_query_stats(const struct snt_device *device,
			   struct snt_device_stats *stats_out)
{
	const struct snt__provider *provider = device->provider;
	struct snt_device_stats stats;
	char text[SNT__DEVICE_TEXT];

	if (!provider || !provider->device_stats)
		return snt__fail(EOPNOTSUPP,
				 "%s: only soft devices count what they lose; an RDMA "
				 "device has counters in /sys/class/infiniband",
				 snt__device_text(device, text));
	provider->device_stats(device->context, &stats);
	return snt__info_export(stats_out, &stats, sizeof(stats),
				"struct snt_device_stats");
}

static struct snt_device *device_new(const char *name, uint8_t number,
				     struct snt__value gid_wish)
{
	struct snt_device *device = calloc(1, sizeof(*device));

	if (!device) {
		snt__fail(ENOMEM, "%s: no memory to open the device", name);
		return NULL;
	}
	snprintf(device->name, sizeof(device->name), "%s", name);
	device->number = number;
	device->gid_wish = gid_wish;
	return device;
}

/* The tail of a newer table is ignored, since it is not needed; members that an older
 * table lacks are NULL. */
static void import_control(struct snt_device *device, const struct snt_control *control)
{
	size_t size = sizeof(device->control);

	if (!control)
		return;
	memcpy(&device->control, control, control->size < size ? control->size : size);
	device->control.size = size;
	device->has_control = true;
}

static int open_context(const struct snt__provider *provider,
			const struct snt__listing *listing, unsigned position,
			struct ibv_context **context_out)
{
	int ret = provider->open(listing, position, context_out);

	if (ret)
		return snt__fail(
			-ret, "%s: cannot be opened: %s%s",
			provider->name(listing, position), strerror(-ret),
			ret == -EACCES || ret == -EPERM || ret == -ENOENT
				? "; check this user's permissions in /dev/infiniband"
				: "");
	return 0;
}

int snt__device_count_ports(const struct snt__provider *provider,
			    const struct snt__listing *listing, unsigned position,
			    unsigned *count_out)
{
	struct ibv_device_attr attr = { 0 };
	struct ibv_context *context;
	int ret = open_context(provider, listing, position, &context);

	if (ret)
		return ret;
	ret = provider->control()->query_device(context, &attr);
	if (ret)
		snt__fail(-ret, "%s: cannot query the device: %s",
			  provider->name(listing, position), strerror(-ret));
	else
		*count_out = attr.phys_port_cnt;
	provider->close(context);
	return ret;
}

static int alloc_device_pd(struct snt_device *device)
{
	int ret = device->control.alloc_pd(device->context, &device->pd);
	char text[SNT__DEVICE_TEXT];

	if (ret)
		return snt__fail(-ret, "%s: no protection domain: %s",
				 snt__device_text(device, text), strerror(-ret));
	return 0;
}

static void free_ports(struct snt_device *device)
{
	struct snt__port *port = device->port;

	while (port) {
		struct snt__port *before = port->before;

		free(port->gid);
		free(port);
		port = before;
	}
}

static bool is_same_port(const struct snt__port *a, const struct snt__port *b)
{
	return !memcmp(&a->info, &b->info, sizeof(a->info)) &&
	       a->cap_flags == b->cap_flags && a->gid_best == b->gid_best &&
	       a->gid_error == b->gid_error && !strcmp(a->gid_reason, b->gid_reason) &&
	       !memcmp(a->gid, b->gid, a->info.gid_count * sizeof(*a->gid));
}

/* Keeps the result if it differs from the last one. */
static int probe_port(struct snt_device *device)
{
	struct snt__port *fresh = calloc(1, sizeof(*fresh)), *now;
	int ret = fresh ? snt__port_probe(device, fresh)
			: snt__fail(ENOMEM, "%s: no memory for its port", device->name);

	if (ret) {
		free(fresh);
		return ret;
	}
	now = atomic_load(&device->port);
	do {
		if (now && is_same_port(now, fresh)) {
			free(fresh->gid);
			free(fresh);
			return 0;
		}
		fresh->before = now;
	} while (!atomic_compare_exchange_weak(&device->port, &now, fresh));
	return 0;
}

/* QPs of iWARP connect over TCP, which only rdma_cm can do for them: lanes cannot. */
static int check_transport(const struct snt_device *device)
{
	const struct ibv_device *ibv = device->context->device;

	if (!ibv || ibv->transport_type != IBV_TRANSPORT_IWARP)
		return 0;
	return snt__fail(EOPNOTSUPP,
			 "%s is an iWARP device, whose QPs cannot be lanes; use an "
			 "InfiniBand or RoCE device, or a soft one (SENNIT_SOFT=only)",
			 device->name);
}

int snt__device_open(const struct snt__provider *provider,
		     const struct snt__listing *listing, unsigned position,
		     uint8_t number, struct snt__value gid_wish,
		     struct snt_device **device_out)
{
	struct snt_device *device;
	int ret;

	device = device_new(provider->name(listing, position), number, gid_wish);
	if (!device)
		return -ENOMEM;
	device->provider = provider;
	import_control(device, provider->control());
	ret = open_context(provider, listing, position, &device->context);
	if (ret)
		goto err_free;
	ret = check_transport(device);
	if (!ret)
		ret = probe_port(device);
	if (ret)
		goto err_close;
	ret = snt__port_usable(device, snt__port(device));
	if (ret)
		goto err_port;
	ret = alloc_device_pd(device);
	if (ret)
		goto err_port;
	*device_out = device;
	return 0;

err_port:
	free_ports(device);
err_close:
	provider->close(device->context);
err_free:
	free(device);
	return ret;
}

static int check_adopted(const struct snt_adopted *adopted)
{
	if (!adopted->name || !*adopted->name)
		return snt__fail(EINVAL, "an adopted device needs a name");
	if (strlen(adopted->name) >= SNT__DEVICE_NAME)
		return snt__fail(EINVAL,
				 "%s: the name of an adopted device has %d bytes "
				 "at most",
				 adopted->name, SNT__DEVICE_NAME - 1);
	if (!adopted->context || !adopted->pd)
		return snt__fail(EINVAL,
				 "%s: an adopted device needs a context and a PD",
				 adopted->name);
	if (adopted->pd->context != adopted->context)
		return snt__fail(EINVAL,
				 "%s: the adopted PD belongs to another ibv_context",
				 adopted->name);
	return 0;
}

int snt__device_adopt(const struct snt_adopted *adopted, struct snt__value gid_wish,
		      struct snt_device **device_out)
{
	struct snt_device *device;
	int ret = check_adopted(adopted);

	if (ret)
		return ret;
	device = device_new(adopted->name, adopted->port ? adopted->port : 1, gid_wish);
	if (!device)
		return -ENOMEM;
	device->context = adopted->context;
	device->pd = adopted->pd;
	import_control(device, adopted->control);
	ret = probe_port(device);
	if (ret)
		goto err_free;
	ret = snt__port_usable(device, snt__port(device));
	if (ret)
		goto err_port;
	*device_out = device;
	return 0;

err_port:
	free_ports(device);
err_free:
	free(device);
	return ret;
}

int snt__device_release(struct snt_device *device)
{
	char text[SNT__DEVICE_TEXT];
	int ret;

	if (!device->provider || !device->pd)
		return 0;
	ret = device->control.dealloc_pd(device->pd);
	if (ret)
		return snt__fail(-ret,
				 "%s: its protection domain cannot be freed: %s%s",
				 snt__device_text(device, text), strerror(-ret),
				 ret == -EBUSY
					 ? "; first destroy the objects made on it"
					 : "");
	device->pd = NULL;
	return 0;
}

void snt__device_close(struct snt_device *device)
{
	if (device->provider)
		device->provider->close(device->context);
	free_ports(device);
	free(device);
}

unsigned snt__device_rx_borrow(const struct snt_device *device, int fds[SNT__RX_FDS],
			       struct ibv_comp_channel *channel)
{
	const struct snt__provider *provider = device->provider;

	return provider && provider->rx_borrow
		       ? provider->rx_borrow(device->context, fds, channel)
		       : 0;
}

unsigned snt__device_rx_watch(const struct snt_device *device, int fds[SNT__RX_FDS],
			      unsigned readable)
{
	const struct snt__provider *provider = device->provider;

	return provider && provider->rx_watch
		       ? provider->rx_watch(device->context, fds, readable)
		       : 0;
}

void snt__device_rx_return(const struct snt_device *device, unsigned readable,
			   struct ibv_comp_channel *channel)
{
	device->provider->rx_return(device->context, readable, channel);
}

int snt__device_take_cq_event(const struct snt_device *device,
			      struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			      void **cq_context_out)
{
	const struct snt__provider *provider = device->provider;

	return provider && provider->take_cq_event
		       ? provider->take_cq_event(channel, cq_out, cq_context_out)
		       : device->control.get_cq_event(channel, cq_out, cq_context_out);
}

int snt_device_query(const struct snt_device *device, struct snt_device_info *info_out)
{
	struct snt_device_info info = snt__port(device)->info;

	info.name = device->name;
	info.index = device->index;
	info.port = device->number;
	info.kind = device->provider ? device->provider->kind : SNT_DEVICE_ADOPTED;
	info.gid_reason = snt__port(device)->gid_reason;
	return snt__info_export(info_out, &info, sizeof(info),
				"struct snt_device_info");
}

int snt_device_query_gid(const struct snt_device *device, uint32_t position,
			 struct snt_gid_info *info_out)
{
	char text[SNT__DEVICE_TEXT];

	if (position >= snt__port(device)->info.gid_count)
		return snt__fail(ENOENT, "%s has %u GIDs; there is none at position %u",
				 snt__device_text(device, text),
				 snt__port(device)->info.gid_count, position);
	return snt__info_export(info_out, &snt__port(device)->gid[position],
				sizeof(snt__port(device)->gid[position]),
				"struct snt_gid_info");
}

int snt_device_refresh(struct snt_device *device)
{
	char text[SNT__DEVICE_TEXT];

	if (!device->has_control)
		return snt__fail(
			EOPNOTSUPP,
			"%s was adopted without a control table and cannot be asked",
			snt__device_text(device, text));
	return probe_port(device);
}

struct ibv_context *snt_device_context(const struct snt_device *device)
{
	return device->context;
}

struct ibv_pd *snt_device_pd(const struct snt_device *device)
{
	return device->pd;
}

const struct snt_control *snt_device_control(const struct snt_device *device)
{
	return device->has_control ? &device->control : NULL;
}
