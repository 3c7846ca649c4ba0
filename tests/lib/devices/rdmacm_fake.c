/* SPDX-License-Identifier: MIT */
#include "lib/devices/rdmacm_fake.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/devices/verbs_fake.h"
#include "lib/fault.h"

#define NEWS_MAX  32
#define CALLS_MAX 64

static struct fake_news queue[NEWS_MAX];
static unsigned head, tail;
static unsigned live, unacked;
static struct ibv_context *route_context;
static uint8_t route_port;
static struct rdma_cm_id *last;
static const char *calls[CALLS_MAX];
static unsigned call_count;

struct rdma_conn_param fake_cm_param;
uint8_t fake_cm_timeout;
int fake_cm_one_family;

void fake_cm_reset(void)
{
	head = tail = live = unacked = call_count = 0;
	last = NULL;
	memset(&fake_cm_param, 0, sizeof(fake_cm_param));
	fake_cm_timeout = 0;
	fake_cm_one_family = -1;
}

void fake_cm_push(const struct fake_news *news)
{
	queue[tail++ % NEWS_MAX] = *news;
}

void fake_cm_route(struct ibv_context *context, uint8_t port)
{
	route_context = context;
	route_port = port;
}

unsigned fake_cm_live(void)
{
	return live;
}

struct rdma_cm_id *fake_cm_last(void)
{
	return last;
}

unsigned fake_cm_calls(const char *name)
{
	unsigned count = 0;

	for (unsigned i = 0; i < call_count; i++)
		count += !strcmp(calls[i], name);
	return count;
}

/* -1 and errno, as all of librdmacm has it. */
static int try_call(const char *name)
{
	if (fault_now(name)) {
		errno = FAKE_ERRNO;
		return -1;
	}
	if (call_count < CALLS_MAX)
		calls[call_count++] = name;
	return 0;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *channel;

	if (try_call("create_event_channel"))
		return NULL;
	channel = fault_exempt_alloc(sizeof(*channel));
	channel->fd = eventfd(0, EFD_CLOEXEC);
	live++;
	return channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
	live--;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel, void *context)
{
	struct rdma_cm_id *id = fault_exempt_alloc(sizeof(*id));

	id->channel = channel;
	id->context = context;
	live++;
	last = id;
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	(void)ps;
	if (try_call("create_id"))
		return -1;
	*id = new_id(channel, context);
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	if (unacked)
		abort();
	free(id);
	live--;
	return 0;
}

/* An address is of the routed device, and the unspecified one of none. */
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;

	if (try_call("bind_addr"))
		return -1;
	if (!route_context) {
		errno = ENODEV;
		return -1;
	}
	if (in->sin_addr.s_addr) {
		id->verbs = route_context;
		id->port_num = route_port;
	}
	id->route.addr.src_sin = *in;
	id->route.addr.dst_sin.sin_family = AF_INET;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	(void)backlog;
	return try_call("listen");
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	(void)src;
	(void)timeout_ms;
	if (try_call("resolve_addr"))
		return -1;
	id->verbs = route_context;
	id->port_num = route_port;
	id->route.addr.dst_sin = *(const struct sockaddr_in *)dst;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)id;
	(void)timeout_ms;
	return try_call("resolve_route");
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
		    size_t length)
{
	(void)id;
	if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT &&
	    length == 1)
		fake_cm_timeout = *(uint8_t *)value;
	if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_AFONLY &&
	    length == sizeof(int))
		fake_cm_one_family = *(int *)value;
	return try_call("set_option");
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	fake_cm_param = *param;
	return try_call("connect");
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	fake_cm_param = *param;
	return try_call("accept");
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	(void)id;
	(void)data;
	(void)length;
	return try_call("reject");
}

int rdma_establish(struct rdma_cm_id *id)
{
	(void)id;
	return try_call("establish");
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	if (unacked)
		abort();
	if (try_call("migrate_id"))
		return -1;
	id->channel = channel;
	return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)id;
	return event == IBV_EVENT_COMM_EST ? try_call("notify") : -1;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	(void)id;
	return try_call("disconnect");
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT)
		*mask |= IBV_QP_ACCESS_FLAGS;
	if (attr->qp_state == IBV_QPS_RTR)
		*mask |= IBV_QP_MIN_RNR_TIMER;
	return try_call("init_qp_attr");
}

/* The first of a channel. False: there is none. */
static bool take_news(const struct rdma_event_channel *channel, struct fake_news *out)
{
	for (unsigned i = head; i != tail; i++) {
		if (queue[i % NEWS_MAX].id->channel != channel)
			continue;
		*out = queue[i % NEWS_MAX];
		for (; i != head; i--)
			queue[i % NEWS_MAX] = queue[(i - 1) % NEWS_MAX];
		head++;
		return true;
	}
	return false;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event_out)
{
	struct rdma_cm_event *event;
	struct fake_news news;

	if (fault_now("get_cm_event")) {
		errno = FAKE_ERRNO;
		return -1;
	}
	if (!take_news(channel, &news)) {
		errno = EAGAIN;
		return -1;
	}
	event = fault_exempt_alloc(sizeof(*event));
	event->id = news.id;
	event->event = news.type;
	event->status = news.status;
	event->param.conn = news.param;
	if (news.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		event->listen_id = news.id;
		event->id = new_id(channel, news.id->context);
		event->id->verbs = news.context ? news.context : route_context;
		event->id->port_num = news.port ? news.port : route_port;
	}
	unacked++;
	*event_out = event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	unacked--;
	return 0;
}
