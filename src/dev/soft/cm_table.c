/* SPDX-License-Identifier: MIT */
/* The connection managers of soft devices as the table of dev/cm.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/gid.h"
#include "dev/soft/cm_address.h"
#include "dev/soft/cm_manager.h"
#include "util/err.h"

#define BACKLOG_DEFAULT 128
#define PORT_TRIES	256
#define PORT_FIRST	0xc000

struct listener {
	struct snt__soft_cm_handle handle;
	uint8_t gid[16];
	uint16_t port;
	struct snt__soft_cm_listener *on[SNT_DEVICES_MAX]; /* NULL: none */
};

static struct snt__soft_cm_port *port_of_id(const struct snt__cm_id *id)
{
	return &snt__soft_cm_manager(id->cm)->port[id->device];
}

static bool is_listener(const struct snt__cm_id *id)
{
	return snt__container(id, const struct snt__soft_cm_handle, id)->listens;
}

static struct listener *listener_of(struct snt__cm_id *id)
{
	return snt__container(id, struct listener, handle.id);
}

static int no_owner(const uint8_t gid[16], const char *of)
{
	char text[SNT__GID_TEXT];

	return snt__fail(EADDRNOTAVAIL, "no device has the %s address %s", of,
			 snt__gid_text(gid, text));
}

/*
 * Listeners
 */

static void stop_listening(struct snt__soft_cm_manager *manager,
			   struct listener *listener)
{
	for (unsigned i = 0; i < manager->count; i++) {
		struct snt__soft_cm_port *port = &manager->port[i];

		if (!listener->on[i])
			continue;
		snt__soft_lock(port->device);
		snt__soft_cm_unlisten(port->machine, listener->on[i]);
		snt__soft_cm_unlock_kick(port);
		listener->on[i] = NULL;
	}
}

/* On one device, or on all. */
static int listen_at(struct snt__soft_cm_manager *manager, struct listener *listener,
		     int device, unsigned backlog)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < manager->count; i++) {
		struct snt__soft_cm_port *port = &manager->port[i];

		if (device >= 0 && i != (unsigned)device)
			continue;
		snt__soft_lock(port->device);
		ret = snt__soft_cm_listen(&port->channel, listener->gid, listener->port,
					  backlog, &listener->handle.id,
					  &listener->on[i]);
		snt__soft_unlock(port->device);
	}
	if (ret)
		stop_listening(manager, listener);
	return ret;
}

static int listen_anywhere(struct snt__soft_cm_manager *manager,
			   struct listener *listener, int device, unsigned backlog)
{
	struct snt__soft_device *device0 = manager->port[0].device;
	int ret = -EADDRINUSE;

	for (unsigned i = 0; ret == -EADDRINUSE && i < PORT_TRIES; i++) {
		snt__soft_lock(device0);
		listener->port = PORT_FIRST | (snt__soft_random(device0) & 0x3fff);
		snt__soft_unlock(device0);
		ret = listen_at(manager, listener, device, backlog);
	}
	return ret;
}

static int start_listening(struct snt__soft_cm_manager *manager,
			   struct listener *listener, unsigned backlog)
{
	int device = -1, ret;

	if (!snt__soft_cm_is_unspecified(listener->gid)) {
		device = snt__soft_cm_owner(manager, listener->gid);
		if (device < 0)
			return no_owner(listener->gid, "listener's");
	}
	if (listener->port)
		ret = listen_at(manager, listener, device, backlog);
	else
		ret = listen_anywhere(manager, listener, device, backlog);
	if (ret == -ENOBUFS)
		return snt__fail(ENOBUFS, "too many listeners on one device");
	return ret ? snt__fail(-ret, "port %u: %s", listener->port, strerror(-ret)) : 0;
}

static int soft_start_listener(struct snt__cm *cm, const struct sockaddr *address,
			       unsigned backlog, struct snt__cm_id **id_out)
{
	struct snt__soft_cm_manager *manager = snt__soft_cm_manager(cm);
	struct listener *listener = calloc(1, sizeof(*listener));
	int ret;

	if (!listener)
		return snt__fail(ENOMEM, "no memory for a listener");
	listener->handle.id.cm = cm;
	listener->handle.listens = true;
	ret = snt__soft_cm_read_address(address, listener->gid, &listener->port);
	if (!ret)
		ret = start_listening(manager, listener,
				      backlog ? backlog : BACKLOG_DEFAULT);
	if (ret) {
		free(listener);
		return ret;
	}
	manager->listeners++;
	*id_out = &listener->handle.id;
	return 0;
}

/*
 * Connections
 */

static int soft_resolve(struct snt__cm *cm, const struct sockaddr *source,
			const struct sockaddr *target, unsigned timeout_ms,
			struct snt__cm_id **id_out)
{
	struct snt__soft_cm_manager *manager = snt__soft_cm_manager(cm);
	struct snt__soft_cm_connection *connection = NULL;
	uint8_t from[16], to[16];
	uint16_t port = 0, unused;
	struct snt__soft_cm_port *on;
	int device, ret;

	(void)timeout_ms; /* there is nothing to wait for */
	ret = snt__soft_cm_read_address(target, to, &port);
	if (!ret && source)
		ret = snt__soft_cm_read_address(source, from, &unused);
	if (ret)
		return ret;
	device = source ? snt__soft_cm_owner(manager, from)
			: snt__soft_cm_nearest(manager, target, to, from);
	if (device < 0)
		return source ? no_owner(from, "source")
			      : snt__fail(ENETUNREACH,
					  "no device has an address of that family");
	if (snt__soft_cm_is_unspecified(to) || snt__soft_cm_likeness(from, to) < 0)
		return snt__fail(ENETUNREACH, "the source cannot reach the target");
	on = &manager->port[device];
	snt__soft_lock(on->device);
	ret = snt__soft_cm_resolve(&on->channel, from, to, port, &connection);
	if (!ret) {
		connection->handle.id.cm = cm;
		connection->handle.id.device = (unsigned)device;
	}
	snt__soft_unlock(on->device);
	if (ret)
		return snt__fail(-ret, "too many connections on one device");
	*id_out = &connection->handle.id;
	return 0;
}

/* Turns the machine's errno into an error with a text. */
static int fail_machine(int ret, const char *what)
{
	if (ret == -ENOTCONN)
		return snt__fail(ENOTCONN, "%s: not possible in the connection's state",
				 what);
	if (ret)
		return snt__fail(-ret, "%s: %s", what, strerror(-ret));
	return 0;
}

static int soft_start_connect(struct snt__cm_id *id, const struct snt__cm_param *param)
{
	struct snt__soft_cm_port *port = port_of_id(id);
	int ret;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_connect(port->machine, snt__soft_cm_of(id), param);
	snt__soft_cm_unlock_kick(port);
	return fail_machine(ret, "connect");
}

static int soft_accept_request(struct snt__cm_id *id, const struct snt__cm_param *param)
{
	struct snt__soft_cm_port *port = port_of_id(id);
	int ret;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_accept(port->machine, snt__soft_cm_of(id), param);
	snt__soft_cm_unlock_kick(port);
	return fail_machine(ret, "accept");
}

static int soft_reject(struct snt__cm_id *id, const void *data, size_t length)
{
	struct snt__soft_cm_port *port = port_of_id(id);
	int ret;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_reject(port->machine, snt__soft_cm_of(id), data, length);
	snt__soft_cm_unlock_kick(port);
	return fail_machine(ret, "reject");
}

static int soft_establish(struct snt__cm_id *id)
{
	struct snt__soft_cm_port *port = port_of_id(id);
	int ret;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_establish(port->machine, snt__soft_cm_of(id));
	snt__soft_cm_unlock_kick(port);
	return fail_machine(ret, "establish");
}

static int soft_move_request(struct snt__cm_id *id, struct snt__cm *to)
{
	struct snt__soft_cm_manager *target = snt__soft_cm_manager(to);
	struct snt__soft_cm_port *port = port_of_id(id);
	int index = -1, ret;

	if (is_listener(id))
		return fail_machine(-ENOTCONN, "move");
	if (to->table == id->cm->table)
		index = snt__soft_cm_port_index(target, port->device);
	if (index < 0)
		return snt__fail(EINVAL, "move: the other connection manager does not "
					 "have the request's device");
	snt__soft_lock(port->device);
	ret = snt__soft_cm_move(snt__soft_cm_of(id), &target->port[index].channel);
	if (!ret) {
		id->cm = to;
		id->device = (unsigned)index;
		snt__soft_cm_quiet(port);
	}
	snt__soft_unlock(port->device);
	return fail_machine(ret, "move");
}

static int soft_notify(struct snt__cm_id *id)
{
	struct snt__soft_cm_port *port = port_of_id(id);

	snt__soft_lock(port->device);
	snt__soft_cm_notify(port->machine, snt__soft_cm_of(id));
	snt__soft_cm_unlock_kick(port);
	return 0;
}

static int soft_disconnect(struct snt__cm_id *id)
{
	struct snt__soft_cm_port *port = port_of_id(id);
	int ret;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_disconnect(port->machine, snt__soft_cm_of(id));
	snt__soft_cm_unlock_kick(port);
	return fail_machine(ret, "disconnect");
}

static void soft_destroy_id(struct snt__cm_id *id)
{
	struct snt__soft_cm_port *port;

	if (!id)
		return;
	if (is_listener(id)) {
		struct listener *listener = listener_of(id);

		stop_listening(snt__soft_cm_manager(id->cm), listener);
		snt__soft_cm_manager(id->cm)->listeners--;
		free(listener);
		return;
	}
	port = port_of_id(id);
	snt__soft_lock(port->device);
	snt__soft_cm_release(port->machine, snt__soft_cm_of(id));
	snt__soft_cm_quiet(port);
	snt__soft_cm_unlock_kick(port);
}

static int soft_get_qp_attr(struct snt__cm_id *id, struct ibv_qp_attr *attr,
			    int *mask_out)
{
	const struct snt__soft_cm_connection *connection = snt__soft_cm_of(id);
	struct snt__soft_cm_port *port = port_of_id(id);
	uint8_t source[16];
	int ret, index;

	snt__soft_lock(port->device);
	ret = snt__soft_cm_qp_attr(port->machine, connection, attr, mask_out);
	memcpy(source, connection->path.source, 16);
	snt__soft_unlock(port->device);
	if (ret || !(*mask_out & IBV_QP_AV))
		return fail_machine(ret, "QP attributes");
	index = snt__soft_cm_gid_index(port->device, source);
	if (index < 0)
		return snt__fail(EADDRNOTAVAIL, "the device has lost its address");
	attr->ah_attr.grh.sgid_index = (uint8_t)index;
	return 0;
}

static void soft_get_addresses(struct snt__cm_id *id,
			       struct sockaddr_storage *local_out,
			       struct sockaddr_storage *peer_out)
{
	const struct snt__soft_cm_connection *connection;
	struct snt__soft_cm_port *port;

	if (is_listener(id)) {
		const struct listener *listener = listener_of(id);

		snt__soft_cm_write_address(listener->gid, listener->port, local_out);
		memset(peer_out, 0, sizeof(*peer_out));
		return;
	}
	connection = snt__soft_cm_of(id);
	port = port_of_id(id);
	snt__soft_lock(port->device);
	snt__soft_cm_write_address(connection->path.source, connection->local_port,
				   local_out);
	snt__soft_cm_write_address(connection->path.target, connection->peer_port,
				   peer_out);
	snt__soft_unlock(port->device);
}

const struct snt__cm_table snt__cm_soft = {
	.open = snt__soft_cm_manager_open,
	.close = snt__soft_cm_manager_close,
	.fd = snt__soft_cm_manager_fd,
	.next_event = snt__soft_cm_manager_event,
	.listen = soft_start_listener,
	.resolve = soft_resolve,
	.connect = soft_start_connect,
	.accept = soft_accept_request,
	.reject = soft_reject,
	.establish = soft_establish,
	.move = soft_move_request,
	.notify = soft_notify,
	.disconnect = soft_disconnect,
	.destroy = soft_destroy_id,
	.qp_attr = soft_get_qp_attr,
	.addresses = soft_get_addresses,
};
