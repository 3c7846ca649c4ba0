/* SPDX-License-Identifier: MIT */
#include "conn/cm_loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "conn/carrier.h"
#include "conn/carrier_cm.h"
#include "util/err.h"

#define CONNECTION_MAX 4096
#define RESOLVE_MS     2000
/* Events that are taken at once, before other work gets its turn. */
#define TURN 16
/* The part of an error text that a list of addresses may take. */
#define PRESENT_TEXT 256

#ifdef SNT_HAVE_RDMACM
#define WITHOUT_RDMACM ""
#else
#define WITHOUT_RDMACM \
	" (this library was built without librdmacm, which kernel devices need)"
#endif

/* Events that are left keep the fd readable. */
static void take_manager_events(struct snt__cm_manager *manager)
{
	struct snt__cm_event event;

	for (unsigned i = 0; i < TURN; i++) {
		if (manager->cm->table->next_event(manager->cm, &event))
			return;
		if (event.type == SNT__CM_EVENT_REQUEST) {
			snt__cm_requested(manager, &event);
		} else if (event.id->user) {
			struct snt__cm_end *end = event.id->user;

			end->event(end, &event);
		}
	}
}

static void manager_ready(struct snt__watch *watch, uint32_t events)
{
	(void)events;
	take_manager_events(snt__container(watch, struct snt__cm_manager, watch));
}

static int open_kind_manager(struct snt__conn_loop *conn_loop,
			     const struct snt__cm_table *table,
			     struct snt__cm_manager *manager)
{
	struct snt__cm_device devices[SNT_DEVICES_MAX];
	struct snt__cm_opts opts = { .devices = devices,
				     .connection_max = CONNECTION_MAX };
	int ret;

	for (unsigned i = 0; i < conn_loop->ctx->device_count; i++) {
		const struct snt_device *device = conn_loop->ctx->device[i];

		if (device->control.cm != table)
			continue;
		manager->device[opts.device_count] = i;
		devices[opts.device_count++] =
			(struct snt__cm_device){ device->context, device->number };
	}
	manager->conn_loop = conn_loop;
	manager->device_count = opts.device_count;
	ret = table->open(&opts, &manager->cm);
	if (ret)
		return ret;
	manager->watch = (struct snt__watch){ .fd = table->fd(manager->cm),
					      .ready = manager_ready };
	ret = snt__conn_loop_watch(conn_loop, &manager->watch, EPOLLIN);
	if (ret)
		table->close(manager->cm);
	return ret;
}

static bool is_known_kind(const struct snt__cm_loop *managers,
			  const struct snt__cm_table *table)
{
	for (unsigned i = 0; i < managers->count; i++)
		if (managers->manager[i].cm->table == table)
			return true;
	return false;
}

void snt__cm_loop_close(struct snt__conn_loop *conn_loop)
{
	struct snt__cm_loop *managers = conn_loop->cm;

	if (!managers)
		return;
	while (managers->count) {
		struct snt__cm_manager *manager = &managers->manager[--managers->count];

		snt__conn_loop_unwatch(conn_loop, &manager->watch);
		manager->cm->table->close(manager->cm);
	}
	free(managers);
	conn_loop->cm = NULL;
}

static int open_all_managers(struct snt__conn_loop *conn_loop)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < conn_loop->ctx->device_count; i++) {
		const struct snt__cm_table *table =
			conn_loop->ctx->device[i]->control.cm;

		if (!table || is_known_kind(conn_loop->cm, table) ||
		    conn_loop->cm->count == SNT__CM_KINDS_MAX)
			continue;
		ret = open_kind_manager(conn_loop, table,
					&conn_loop->cm->manager[conn_loop->cm->count]);
		conn_loop->cm->count += !ret;
	}
	if (!ret && !conn_loop->cm->count)
		ret = snt__fail(EOPNOTSUPP,
				"no device of the context has a connection manager%s; "
				"SNT_CARRIER_TCP needs none",
				WITHOUT_RDMACM);
	return ret;
}

int snt__cm_loop_open(struct snt__conn_loop *conn_loop)
{
	int ret;

	if (conn_loop->cm)
		return 0;
	conn_loop->cm = calloc(1, sizeof(*conn_loop->cm));
	if (!conn_loop->cm)
		return snt__fail(ENOMEM, "no memory for connection managers");
	ret = open_all_managers(conn_loop);
	if (ret)
		snt__cm_loop_close(conn_loop);
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

const char *snt__cm_loop_addresses(const struct snt__conn_loop *conn_loop, char *text,
				   size_t size)
{
	size_t used = 0;

	snprintf(text, size, "none that is known");
	for (unsigned i = 0; i < conn_loop->ctx->device_count && used < size; i++)
		if (conn_loop->ctx->device[i]->control.cm)
			used = add_addresses(conn_loop->ctx->device[i], text, used,
					     size);
	return text;
}

/* The manager's error names neither the requested address nor the available ones. */
static int explain_connect(const struct snt__conn_loop *conn_loop,
			   const struct sockaddr *source, const struct sockaddr *target,
			   int error)
{
	char address[SNT__ADDRESS_TEXT], present[PRESENT_TEXT];

	if (source && error == -EADDRNOTAVAIL)
		return snt__fail(EADDRNOTAVAIL,
				 "no device has the source address %s; present: %s",
				 snt__address_text(source, address),
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	if (error == -ENETUNREACH || error == -EADDRNOTAVAIL)
		return snt__fail(-error, "no device leads to %s: %s; present: %s",
				 snt__address_text(target, address), snt_err_text(),
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	return snt__fail(-error, "no connection to %s: %s",
			 snt__address_text(target, address), snt_err_text());
}

int snt__cm_loop_resolve(struct snt__conn_loop *conn_loop,
			 const struct sockaddr *source, const struct sockaddr *target,
			 struct snt__cm_manager **manager_out,
			 struct snt__cm_id **id_out)
{
	int ret = snt__cm_loop_open(conn_loop);

	if (ret)
		return ret;
	for (unsigned i = 0; i < conn_loop->cm->count; i++) {
		struct snt__cm_manager *manager = &conn_loop->cm->manager[i];

		ret = manager->cm->table->resolve(manager->cm, source, target,
						  RESOLVE_MS, id_out);
		*manager_out = manager;
		if (!ret)
			return 0;
		/* Another kind of device may have a route. */
		if (ret != -ENETUNREACH && ret != -EADDRNOTAVAIL)
			break;
	}
	return explain_connect(conn_loop, source, target, ret);
}

const char *snt__cm_reason_text(unsigned reason, char *buffer, size_t size)
{
	switch (reason) {
	case SNT__CM_REASON_NOBODY_LISTENS:
		return "no listener has that port";
	case SNT__CM_REASON_NO_RESOURCES:
		return "it has no room for another connection; try later";
	case SNT__CM_REASON_STALE:
		return "it still has an earlier connection of ours; try again";
	case SNT__CM_REASON_TIMEOUT:
		return "it timed out waiting for an answer, or gave up";
	default:
		snprintf(buffer, size, "its connection manager refused, with reason %u",
			 reason);
		return buffer;
	}
}

const char *snt__cm_failure_text(int status)
{
	return status == -ENODEV ? "the local device has failed, or was removed"
				 : strerror(-status);
}

int snt__cm_reason_error(unsigned reason)
{
	switch (reason) {
	case SNT__CM_REASON_NO_RESOURCES:
		return -EBUSY;
	case SNT__CM_REASON_TIMEOUT:
		return -ETIMEDOUT;
	default:
		return -ECONNREFUSED;
	}
}
