/* SPDX-License-Identifier: MIT */
/* librdmacm as the table of dev/cm.h. The QPs are the library's, so librdmacm only
 * connects: it opens each device once more for itself and would refuse a PD of another
 * context. */
#include "dev/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/device.h>

#include "dev/verbs/err.h"
#include "util/err.h"
#include "util/minmax.h"

#define BACKLOG_DEFAULT	   128
#define CONNECTION_DEFAULT 1024
#define LISTENER_DEFAULT   16

struct device {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	uint8_t responder_max; /* READs and atomics of a QP */
	uint8_t initiator_max;
};

struct manager {
	struct snt__cm cm;
	struct rdma_event_channel *channel;
	struct device device[SNT_DEVICES_MAX];
	unsigned device_count;
	unsigned connection_max;
	/* Other threads count the ids that they move here. So there may briefly be more
	 * than connection_max, which does not size an array. */
	atomic_uint connection_count;
	unsigned listener_max;
	unsigned listener_count;
	/* Held while events are taken, and by a thread that moves an id here: until the
	 * move is complete, events of the id are not taken, and the id is not
	 * destroyed. */
	pthread_mutex_t events;
};

/* Which calls an id allows. */
enum phase {
	LISTENING,
	RESOLVING,
	RESOLVED,
	CONNECTING,
	RESPONDED, /* by the peer; from now on the peer is known */
	REQUESTED, /* by the peer */
	ACCEPTED,
	ESTABLISHED,
	OVER, /* the final event has come, or none will come */
};

struct id {
	struct snt__cm_id id;
	struct rdma_cm_id *rdma; /* the rdma_cm_id whose context this is */
	bool listens;
	enum phase phase;
	unsigned timeout_ms;
};

static struct manager *manager_of(struct snt__cm *cm)
{
	return (struct manager *)cm;
}

static struct id *id_of(struct snt__cm_id *id)
{
	return (struct id *)id;
}

static int fail_in_phase(const char *what)
{
	return snt__fail(ENOTCONN, "%s: not possible in the connection's state", what);
}

/* Handles the return value of librdmacm, with a sentence. */
static int fail_rdmacm(int ret, const char *what)
{
	return ret ? snt__fail(-ret, "%s: %s", what, strerror(-ret)) : 0;
}

/*
 * Managers
 */

static uint8_t clamp_to_u8(int value)
{
	return (uint8_t)(value < 0 ? 0 : value > UINT8_MAX ? UINT8_MAX : value);
}

static int add_manager_device(struct manager *manager,
			      const struct snt__cm_device *from)
{
	struct device *device = &manager->device[manager->device_count++];
	struct ibv_device_attr attr;
	int ret = FROM_INT(ibv_query_device(from->context, &attr));

	if (ret)
		return ret;
	memcpy(device->name, from->context->device->name, sizeof(device->name));
	device->port = from->port;
	device->responder_max = clamp_to_u8(attr.max_qp_rd_atom);
	device->initiator_max = clamp_to_u8(attr.max_qp_init_rd_atom);
	return 0;
}

static int open_channel(struct rdma_event_channel **channel_out)
{
	struct rdma_event_channel *channel = NULL;
	int ret = FROM_POINTER(&channel, rdma_create_event_channel());

	if (ret)
		return ret;
	if (fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK)) {
		ret = -errno;
		rdma_destroy_event_channel(channel);
		return ret;
	}
	*channel_out = channel;
	return 0;
}

static int verbs_open_manager(const struct snt__cm_opts *opts, struct snt__cm **cm_out)
{
	struct manager *manager;
	int ret = 0;

	if (!opts->device_count || opts->device_count > SNT_DEVICES_MAX)
		return snt__fail(EINVAL, "a connection manager has 1 to %d devices",
				 SNT_DEVICES_MAX);
	manager = calloc(1, sizeof(*manager));
	if (!manager)
		return snt__fail(ENOMEM, "no memory for a connection manager");
	manager->cm.table = &snt__cm_verbs;
	manager->connection_max =
		opts->connection_max ? opts->connection_max : CONNECTION_DEFAULT;
	manager->connection_max *= opts->device_count;
	manager->listener_max =
		opts->listener_max ? opts->listener_max : LISTENER_DEFAULT;
	for (unsigned i = 0; !ret && i < opts->device_count; i++)
		ret = add_manager_device(manager, &opts->devices[i]);
	if (!ret)
		ret = open_channel(&manager->channel);
	if (ret) {
		free(manager);
		return snt__fail(-ret,
				 "rdma_cm: %s; load the module rdma_ucm and check that "
				 "/dev/infiniband/rdma_cm exists",
				 strerror(-ret));
	}
	pthread_mutex_init(&manager->events, NULL);
	*cm_out = &manager->cm;
	return 0;
}

static int close_manager(struct snt__cm *cm)
{
	struct manager *manager;

	if (!cm)
		return 0;
	manager = manager_of(cm);
	if (manager->connection_count || manager->listener_count)
		return snt__fail(
			EBUSY,
			"the connection manager has connections left; destroy them first");
	rdma_destroy_event_channel(manager->channel);
	pthread_mutex_destroy(&manager->events);
	free(manager);
	return 0;
}

static int manager_fd(struct snt__cm *cm)
{
	return manager_of(cm)->channel->fd;
}

/* Finds librdmacm's device among ours, by name: it has an ibv_context of its own. -1:
 * none. */
static int find_device(const struct manager *manager, const struct rdma_cm_id *rdma)
{
	for (unsigned i = 0; rdma->verbs && i < manager->device_count; i++) {
		const struct device *device = &manager->device[i];

		if (device->port == rdma->port_num &&
		    !strncmp(device->name, rdma->verbs->device->name,
			     sizeof(device->name)))
			return (int)i;
	}
	return -1;
}

/*
 * Ids
 */

static bool is_full(struct manager *manager)
{
	return manager->connection_count >= manager->connection_max;
}

static struct id *allocate_id(struct manager *manager, enum phase phase)
{
	struct id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.cm = &manager->cm;
	id->phase = phase;
	id->listens = phase == LISTENING;
	if (id->listens)
		manager->listener_count++;
	else
		manager->connection_count++;
	return id;
}

static void forget_id(struct id *id)
{
	struct manager *manager = manager_of(id->id.cm);

	if (id->listens)
		manager->listener_count--;
	else
		manager->connection_count--;
	free(id);
}

/* Every event is acknowledged as soon as it is taken, so this never blocks. */
static void verbs_destroy_id(struct snt__cm_id *id)
{
	if (!id)
		return;
	rdma_destroy_id(id_of(id)->rdma);
	forget_id(id_of(id));
}

static int create_id(struct manager *manager, enum phase phase, struct id **id_out)
{
	struct id *id = allocate_id(manager, phase);
	int ret;

	if (!id)
		return snt__fail(ENOMEM, "no memory for a connection");
	ret = FROM_INT(rdma_create_id(manager->channel, &id->rdma, id, RDMA_PS_TCP));
	if (ret) {
		forget_id(id);
		return snt__fail(-ret, "rdma_create_id: %s", strerror(-ret));
	}
	*id_out = id;
	return 0;
}

/* The kernel's errors for addresses that are not of RDMA devices. */
static int address_error(int ret)
{
	return ret == -ENODEV ? -EADDRNOTAVAIL : ret;
}

/* IPv6's unspecified address also covers IPv4, whatever net.ipv6.bindv6only says. A
 * kernel without this option follows the setting. */
static void hear_ipv4_as_well(struct rdma_cm_id *rdma)
{
	int ipv6_only = 0;

	rdma_set_option(rdma, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &ipv6_only,
			sizeof(ipv6_only));
}

static int verbs_start_listener(struct snt__cm *cm, const struct sockaddr *address,
				unsigned backlog, struct snt__cm_id **id_out)
{
	struct manager *manager = manager_of(cm);
	struct id *id = NULL;
	int ret;

	if (manager->listener_count == manager->listener_max)
		return snt__fail(ENOBUFS, "too many listeners");
	ret = create_id(manager, LISTENING, &id);
	if (ret)
		return ret;
	if (address->sa_family == AF_INET6)
		hear_ipv4_as_well(id->rdma);
	ret = address_error(
		FROM_INT(rdma_bind_addr(id->rdma, (struct sockaddr *)address)));
	/* Without a device it listens on all of them; requests to devices that are not
	 * ours are refused later. */
	if (!ret && id->rdma->verbs && find_device(manager, id->rdma) < 0)
		ret = -EADDRNOTAVAIL;
	if (!ret)
		ret = FROM_INT(rdma_listen(id->rdma,
					   (int)(backlog ? backlog : BACKLOG_DEFAULT)));
	if (ret) {
		verbs_destroy_id(&id->id);
		return snt__fail(-ret, "cannot listen: %s", strerror(-ret));
	}
	*id_out = &id->id;
	return 0;
}

static int verbs_resolve(struct snt__cm *cm, const struct sockaddr *source,
			 const struct sockaddr *target, unsigned timeout_ms,
			 struct snt__cm_id **id_out)
{
	struct manager *manager = manager_of(cm);
	struct id *id = NULL;
	int ret;

	if (is_full(manager))
		return snt__fail(ENOBUFS, "too many connections");
	ret = create_id(manager, RESOLVING, &id);
	if (ret)
		return ret;
	id->timeout_ms = timeout_ms;
	ret = address_error(FROM_INT(
		rdma_resolve_addr(id->rdma, (struct sockaddr *)source,
				  (struct sockaddr *)target, (int)timeout_ms)));
	if (ret) {
		verbs_destroy_id(&id->id);
		return snt__fail(-ret, "cannot resolve: %s", strerror(-ret));
	}
	*id_out = &id->id;
	return 0;
}

/*
 * Calls of the program
 */

static struct rdma_conn_param conn_param(const struct id *id,
					 const struct snt__cm_param *param)
{
	const struct device *device = &manager_of(id->id.cm)->device[id->id.device];

	return (struct rdma_conn_param){
		.private_data = param->data,
		.private_data_len = param->data_length,
		.responder_resources =
			snt__min(param->responder_resources, device->responder_max),
		.initiator_depth =
			snt__min(param->initiator_depth, device->initiator_max),
		.retry_count = param->retry_count & 7,
		.rnr_retry_count = param->rnr_retry_count & 7,
		.srq = param->srq,
		.qp_num = param->qpn,
	};
}

static int verbs_start_connect(struct snt__cm_id *cm_id,
			       const struct snt__cm_param *param)
{
	struct id *id = id_of(cm_id);
	struct rdma_conn_param conn;
	uint8_t timeout = param->ack_timeout;
	int ret;

	if (id->phase != RESOLVED)
		return fail_in_phase("connect");
	if (param->data_length > SNT__CM_REQUEST_DATA || timeout > 31)
		return snt__fail(EINVAL, "connect: %u bytes of data, a timeout of %u",
				 param->data_length, timeout);
	/* Kernels before 5.1 keep their own. */
	if (timeout)
		rdma_set_option(id->rdma, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				&timeout, sizeof(timeout));
	conn = conn_param(id, param);
	ret = FROM_INT(rdma_connect(id->rdma, &conn));
	if (!ret)
		id->phase = CONNECTING;
	return fail_rdmacm(ret, "rdma_connect");
}

static int verbs_accept_request(struct snt__cm_id *cm_id,
				const struct snt__cm_param *param)
{
	struct id *id = id_of(cm_id);
	struct rdma_conn_param conn;
	int ret;

	if (id->phase != REQUESTED)
		return fail_in_phase("accept");
	if (param->data_length > SNT__CM_RESPONSE_DATA)
		return snt__fail(EINVAL, "accept: %u bytes of data",
				 param->data_length);
	conn = conn_param(id, param);
	ret = FROM_INT(rdma_accept(id->rdma, &conn));
	if (!ret)
		id->phase = ACCEPTED;
	return fail_rdmacm(ret, "rdma_accept");
}

static int verbs_reject(struct snt__cm_id *cm_id, const void *data, size_t length)
{
	struct id *id = id_of(cm_id);
	int ret;

	if (id->phase != REQUESTED && id->phase != RESPONDED)
		return fail_in_phase("reject");
	if (length > SNT__CM_REJECT_DATA)
		return snt__fail(EINVAL, "reject: %zu bytes of data", length);
	ret = FROM_INT(rdma_reject(id->rdma, data, (uint8_t)length));
	if (!ret)
		id->phase = OVER;
	return fail_rdmacm(ret, "rdma_reject");
}

static int verbs_establish(struct snt__cm_id *cm_id)
{
	struct id *id = id_of(cm_id);
	int ret;

	if (id->phase != RESPONDED)
		return fail_in_phase("establish");
	ret = FROM_INT(rdma_establish(id->rdma));
	if (!ret)
		id->phase = ESTABLISHED;
	return fail_rdmacm(ret, "rdma_establish");
}

/* Every event of the id that was taken has been acknowledged: otherwise librdmacm would
 * wait. */
static int migrate_id(struct id *id, struct manager *to, unsigned device)
{
	int ret;

	pthread_mutex_lock(&to->events);
	ret = FROM_INT(rdma_migrate_id(id->rdma, to->channel));
	if (!ret) {
		manager_of(id->id.cm)->connection_count--;
		to->connection_count++;
		id->id.cm = &to->cm;
		id->id.device = device;
	}
	pthread_mutex_unlock(&to->events);
	return ret;
}

static int verbs_move_request(struct snt__cm_id *cm_id, struct snt__cm *to)
{
	struct id *id = id_of(cm_id);
	int device = -1;

	if (id->phase != REQUESTED)
		return fail_in_phase("move");
	if (to == cm_id->cm)
		return 0;
	if (to->table == cm_id->cm->table)
		device = find_device(manager_of(to), id->rdma);
	if (device < 0)
		return snt__fail(EINVAL, "move: the other connection manager does not "
					 "have the request's device");
	if (is_full(manager_of(to)))
		return snt__fail(ENOBUFS, "move: too many connections");
	return fail_rdmacm(migrate_id(id, manager_of(to), (unsigned)device),
			   "rdma_migrate_id");
}

/* If it is known already the kernel returns an error, which does not matter. */
static int verbs_notify(struct snt__cm_id *cm_id)
{
	struct id *id = id_of(cm_id);

	if (id->phase == ACCEPTED)
		rdma_notify(id->rdma, IBV_EVENT_COMM_EST);
	return 0;
}

static int verbs_disconnect(struct snt__cm_id *cm_id)
{
	struct id *id = id_of(cm_id);
	int ret;

	if (id->phase == OVER)
		return 0;
	if (id->phase != ESTABLISHED)
		return fail_in_phase("disconnect");
	ret = FROM_INT(rdma_disconnect(id->rdma));
	/* Too late: either end has disconnected already, and the event will come. */
	return ret == -EINVAL ? 0 : fail_rdmacm(ret, "rdma_disconnect");
}

static int verbs_get_qp_attr(struct snt__cm_id *cm_id, struct ibv_qp_attr *attr,
			     int *mask_out)
{
	enum ibv_qp_state state = attr->qp_state;
	struct id *id = id_of(cm_id);
	int ret;

	if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS)
		return snt__fail(EINVAL, "QP attributes: state %d", state);
	if (id->phase < RESOLVED || (state != IBV_QPS_INIT && id->phase < RESPONDED))
		return fail_in_phase("QP attributes");
	ret = FROM_INT(rdma_init_qp_attr(id->rdma, attr, mask_out));
	if (ret)
		return fail_rdmacm(ret, "rdma_init_qp_attr");
	if (state == IBV_QPS_INIT)
		attr->qp_access_flags =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	if (*mask_out & IBV_QP_MIN_RNR_TIMER)
		attr->min_rnr_timer = SNT__CM_RNR_TIMER;
	return 0;
}

static void copy_address(const struct sockaddr *from, struct sockaddr_storage *to)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family == AF_INET)
		memcpy(to, from, sizeof(struct sockaddr_in));
	if (from->sa_family == AF_INET6)
		memcpy(to, from, sizeof(struct sockaddr_in6));
}

static void verbs_get_addresses(struct snt__cm_id *cm_id,
				struct sockaddr_storage *local_out,
				struct sockaddr_storage *peer_out)
{
	struct id *id = id_of(cm_id);

	copy_address(rdma_get_local_addr(id->rdma), local_out);
	memset(peer_out, 0, sizeof(*peer_out));
	if (!id->listens)
		copy_address(rdma_get_peer_addr(id->rdma), peer_out);
}

/*
 * Events for the program
 */

/* The status has either sign; 0 is not a valid reason. */
static int negative_status(int status)
{
	if (!status)
		return -EIO;
	return status < 0 ? status : -status;
}

/* What is needed of an event, copied before it is acknowledged. */
struct news {
	struct rdma_cm_id *rdma;
	struct rdma_cm_id *listener;
	enum rdma_cm_event_type type;
	int status;
	struct rdma_conn_param conn;
	uint8_t data[UINT8_MAX];
};

static int take_news(struct manager *manager, struct news *news)
{
	struct rdma_cm_event *event = NULL;
	int ret = FROM_INT(rdma_get_cm_event(manager->channel, &event));

	if (ret)
		return ret;
	news->rdma = event->id;
	news->listener = event->listen_id;
	news->type = event->event;
	news->status = event->status;
	news->conn = event->param.conn;
	if (news->conn.private_data && news->conn.private_data_len)
		memcpy(news->data, news->conn.private_data,
		       news->conn.private_data_len);
	rdma_ack_cm_event(event);
	return 0;
}

static bool connection_failed(struct id *id, int status, struct snt__cm_event *event)
{
	id->phase = OVER;
	event->type = SNT__CM_EVENT_FAILED;
	event->status = status;
	return true;
}

static void copy_private_data(const struct news *news, size_t size,
			      struct snt__cm_event *event)
{
	size_t length = news->conn.private_data ? news->conn.private_data_len : 0;

	event->data_length = (uint8_t)size;
	memcpy(event->data, news->data, length < size ? length : size);
}

static void copy_conn(const struct news *news, size_t size, struct snt__cm_event *event)
{
	event->qpn = news->conn.qp_num;
	event->responder_resources = news->conn.responder_resources;
	event->initiator_depth = news->conn.initiator_depth;
	event->rnr_retry_count = news->conn.rnr_retry_count;
	event->srq = news->conn.srq;
	copy_private_data(news, size, event);
}

/* A request of a peer. False: it cannot be served, and is refused. */
static bool take_connect_request(struct manager *manager, const struct news *news,
				 struct snt__cm_event *event)
{
	int device = find_device(manager, news->rdma);
	struct id *id = NULL;

	if (device >= 0 && !is_full(manager))
		id = allocate_id(manager, REQUESTED);
	if (!id) {
		rdma_reject(news->rdma, NULL, 0);
		rdma_destroy_id(news->rdma);
		return false;
	}
	id->id.device = (unsigned)device;
	id->rdma = news->rdma;
	id->rdma->context = id;
	event->type = SNT__CM_EVENT_REQUEST;
	event->id = &id->id;
	event->listener = &((struct id *)news->listener->context)->id;
	copy_conn(news, SNT__CM_REQUEST_DATA, event);
	return true;
}

static bool address_resolved(struct id *id, struct snt__cm_event *event)
{
	int ret;

	if (find_device(manager_of(id->id.cm), id->rdma) < 0)
		return connection_failed(id, -ENETUNREACH, event);
	ret = FROM_INT(rdma_resolve_route(id->rdma, (int)id->timeout_ms));
	return ret ? connection_failed(id, ret, event) : false;
}

static bool route_resolved(struct id *id, struct snt__cm_event *event)
{
	id->id.device = (unsigned)find_device(manager_of(id->id.cm), id->rdma);
	id->phase = RESOLVED;
	event->type = SNT__CM_EVENT_RESOLVED;
	return true;
}

/* The kernel leaves the answer to the peer, which waits for it, to us; if we
 * disconnected first, this fails and has no effect. */
static bool answer_disconnect(struct id *id, struct snt__cm_event *event)
{
	rdma_disconnect(id->rdma);
	id->phase = OVER;
	event->type = SNT__CM_EVENT_DISCONNECTED;
	return true;
}

/* An event of an id that the program has. False: it is not passed on. */
static bool translate_id_event(struct id *id, const struct news *news,
			       struct snt__cm_event *event)
{
	event->id = &id->id;
	switch (news->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return address_resolved(id, event);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return route_resolved(id, event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		id->phase = RESPONDED;
		event->type = SNT__CM_EVENT_RESPONSE;
		copy_conn(news, SNT__CM_RESPONSE_DATA, event);
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		id->phase = ESTABLISHED;
		event->type = SNT__CM_EVENT_ESTABLISHED;
		return true;
	case RDMA_CM_EVENT_REJECTED:
		id->phase = OVER;
		event->type = SNT__CM_EVENT_REJECTED;
		event->reason = (unsigned)news->status;
		copy_private_data(news, SNT__CM_REJECT_DATA, event);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		return answer_disconnect(id, event);
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return connection_failed(id, negative_status(news->status), event);
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return connection_failed(id, -ENODEV, event);
	case RDMA_CM_EVENT_ADDR_CHANGE:
		event->type = SNT__CM_EVENT_ADDRESS;
		return true;
	default:
		return false;
	}
}

static int take_cm_event(struct manager *manager, struct snt__cm_event *event_out)
{
	struct news news;
	bool told;
	int ret;

	do {
		ret = take_news(manager, &news);
		if (ret)
			return ret == -EAGAIN ? ret
					      : fail_rdmacm(ret, "rdma_get_cm_event");
		memset(event_out, 0, sizeof(*event_out));
		if (news.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			told = take_connect_request(manager, &news, event_out);
		} else {
			struct id *id = news.rdma->context;

			told = id->phase != OVER &&
			       translate_id_event(id, &news, event_out);
		}
	} while (!told);
	return 0;
}

static int next_event(struct snt__cm *cm, struct snt__cm_event *event_out)
{
	struct manager *manager = manager_of(cm);
	int ret;

	pthread_mutex_lock(&manager->events);
	ret = take_cm_event(manager, event_out);
	pthread_mutex_unlock(&manager->events);
	return ret;
}

const struct snt__cm_table snt__cm_verbs = {
	.open = verbs_open_manager,
	.close = close_manager,
	.fd = manager_fd,
	.next_event = next_event,
	.listen = verbs_start_listener,
	.resolve = verbs_resolve,
	.connect = verbs_start_connect,
	.accept = verbs_accept_request,
	.reject = verbs_reject,
	.establish = verbs_establish,
	.move = verbs_move_request,
	.notify = verbs_notify,
	.disconnect = verbs_disconnect,
	.destroy = verbs_destroy_id,
	.qp_attr = verbs_get_qp_attr,
	.addresses = verbs_get_addresses,
};
