/* SPDX-License-Identifier: MIT */
#include "conn/cm_hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "conn/cm.h"
#include "util/err.h"

#define CONNECTION_MAX 4096

static void ready(struct snt__watch *watch, uint32_t events)
{
	(void)events;
	snt__cm_ready(snt__container(watch, struct snt__cm_manager, watch));
}

static int open_manager(struct snt__hub *hub, const struct snt__cm_table *table,
			struct snt__cm_manager *manager)
{
	struct snt__cm_device devices[SNT_DEVICES_MAX];
	struct snt__cm_opts opts = { .devices = devices,
				     .connection_max = CONNECTION_MAX };
	int ret;

	for (unsigned i = 0; i < hub->ctx->device_count; i++) {
		const struct snt_device *device = hub->ctx->device[i];

		if (device->control.cm != table)
			continue;
		manager->device[opts.device_count] = i;
		devices[opts.device_count++] =
			(struct snt__cm_device){ device->context, device->number };
	}
	manager->hub = hub;
	manager->device_count = opts.device_count;
	ret = table->open(&opts, &manager->cm);
	if (ret)
		return ret;
	manager->watch =
		(struct snt__watch){ .fd = table->fd(manager->cm), .ready = ready };
	ret = snt__hub_watch(hub, &manager->watch, EPOLLIN);
	if (ret)
		table->close(manager->cm);
	return ret;
}

static bool is_known(const struct snt__cm_hub *managers,
		     const struct snt__cm_table *table)
{
	for (unsigned i = 0; i < managers->count; i++)
		if (managers->manager[i].cm->table == table)
			return true;
	return false;
}

void snt__cm_hub_close(struct snt__hub *hub)
{
	struct snt__cm_hub *managers = hub->cm;

	if (!managers)
		return;
	while (managers->count) {
		struct snt__cm_manager *manager = &managers->manager[--managers->count];

		snt__hub_unwatch(hub, &manager->watch);
		manager->cm->table->close(manager->cm);
	}
	free(managers);
	hub->cm = NULL;
}

static int open_all(struct snt__hub *hub)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < hub->ctx->device_count; i++) {
		const struct snt__cm_table *table = hub->ctx->device[i]->control.cm;

		if (!table || is_known(hub->cm, table) ||
		    hub->cm->count == SNT__CM_KINDS_MAX)
			continue;
		ret = open_manager(hub, table, &hub->cm->manager[hub->cm->count]);
		hub->cm->count += !ret;
	}
	if (!ret && !hub->cm->count)
		ret = snt__fail(EOPNOTSUPP,
				"no device of the context has a connection manager; "
				"SNT_CARRIER_TCP needs none");
	return ret;
}

int snt__cm_hub_open(struct snt__hub *hub)
{
	int ret;

	if (hub->cm)
		return 0;
	hub->cm = calloc(1, sizeof(*hub->cm));
	if (!hub->cm)
		return snt__fail(ENOMEM, "no memory for connection managers");
	ret = open_all(hub);
	if (ret)
		snt__cm_hub_close(hub);
	return ret;
}

/* One address may have several entries in a GID table, which then follow each other. */
static size_t add_addresses(const struct snt_device *device, char *text, size_t used,
			    size_t size)
{
	const char *last = "";

	for (unsigned i = 0; i < snt__port(device)->info.gid_count; i++) {
		const struct snt_gid_info *gid = &snt__port(device)->gid[i];

		if (gid->type == SNT_GID_IB || !strcmp(gid->text, last))
			continue;
		last = gid->text;
		if (used + strlen(last) + sizeof(", , ...") > size) {
			snprintf(text + used, size - used, ", ...");
			return size;
		}
		used += (size_t)snprintf(text + used, size - used, "%s%s",
					 used ? ", " : "", last);
	}
	return used;
}

const char *snt__cm_hub_addresses(const struct snt__hub *hub, char *text, size_t size)
{
	size_t used = 0;

	snprintf(text, size, "none that is known");
	for (unsigned i = 0; i < hub->ctx->device_count && used < size; i++)
		if (hub->ctx->device[i]->control.cm)
			used = add_addresses(hub->ctx->device[i], text, used, size);
	return text;
}
