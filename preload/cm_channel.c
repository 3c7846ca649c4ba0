/* SPDX-License-Identifier: MIT */
/* Event channels and events. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm.h"

/*
 * Channels
 */

static int watch_fd(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* It is set to nonblocking; threads wait on the fd for both. */
static int open_real(struct snt__preload_channel *channel)
{
	if (!snt__preload_wants_real() || !snt__real()->rdma_create_event_channel)
		return 0;
	channel->real = snt__real()->rdma_create_event_channel();
	if (!channel->real)
		return 0;
	if (fcntl(channel->real->fd, F_SETFL, O_NONBLOCK))
		return -1;
	return watch_fd(channel->rdma.fd, channel->real->fd);
}

static void free_channel(struct snt__preload_channel *channel)
{
	if (channel->real)
		snt__real()->rdma_destroy_event_channel(channel->real);
	if (channel->bell >= 0)
		close(channel->bell);
	if (channel->rdma.fd >= 0)
		close(channel->rdma.fd);
	free(channel);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct snt__preload_channel *channel;

	if (BYPASSED())
		return snt__real()->rdma_create_event_channel();
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return NULL;
	snt__list_init(&channel->events);
	channel->rdma.fd = epoll_create1(EPOLL_CLOEXEC);
	channel->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (channel->rdma.fd < 0 || channel->bell < 0 ||
	    watch_fd(channel->rdma.fd, channel->bell) || open_real(channel)) {
		free_channel(channel);
		return NULL;
	}
	if (!channel->real && !snt__preload_devices().count) {
		free_channel(channel);
		errno = ENODEV;
		return NULL;
	}
	return &channel->rdma;
}

/* All its ids have been destroyed, and with them all events. */
void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	if (BYPASSED())
		snt__real()->rdma_destroy_event_channel(channel);
	else
		free_channel(snt__preload_channel(channel));
}

/*
 * Queued events
 */

void snt__preload_queue(struct snt__preload_channel *channel,
			struct snt__preload_event *event)
{
	snt__list_append(&channel->events, &event->link);
	eventfd_write(channel->bell, 1);
}

int snt__preload_raise(struct snt__preload_id *id, enum rdma_cm_event_type type)
{
	struct snt__preload_event *event = calloc(1, sizeof(*event));

	if (!event)
		return -ENOMEM;
	event->rdma.id = &id->rdma;
	event->rdma.event = type;
	event->owner = id;
	snt__preload_queue(snt__preload_channel(id->rdma.channel), event);
	return 0;
}

static void unqueue_event(struct snt__preload_channel *channel,
			  struct snt__preload_event *event)
{
	eventfd_t count;

	snt__unlink(&event->link);
	if (snt__list_empty(&channel->events))
		eventfd_read(channel->bell, &count);
}

static bool is_request(const struct snt__preload_event *event)
{
	return event->rdma.event == RDMA_CM_EVENT_CONNECT_REQUEST;
}

/* The first event that concerns an id; NULL: none. */
static struct snt__preload_event *find_event(const struct snt__preload_id *id)
{
	struct snt__link *events = &snt__preload_channel(id->rdma.channel)->events;

	for (struct snt__link *at = events->next; at != events; at = at->next) {
		struct snt__preload_event *event =
			snt__container(at, struct snt__preload_event, link);

		if (event->owner == id || event->rdma.id == &id->rdma)
			return event;
	}
	return NULL;
}

/* The id of a request that the program has not seen is freed with its listener. */
void snt__preload_purge(struct snt__preload_id *id)
{
	struct snt__preload_event *event;

	while ((event = find_event(id))) {
		struct snt__preload_id *about = snt__preload_id(event->rdma.id);

		unqueue_event(snt__preload_channel(id->rdma.channel), event);
		if (is_request(event) && about != id) {
			snt__preload_purge(about);
			snt__preload_id_free(about);
		}
		free(event);
	}
}

/* Ids of requests that the program has not seen move with their listener. */
void snt__preload_move(struct snt__preload_id *id, struct snt__preload_channel *to)
{
	struct snt__preload_channel *from = snt__preload_channel(id->rdma.channel);
	struct snt__link moved;
	struct snt__preload_event *event;

	snt__list_init(&moved);
	while ((event = find_event(id))) {
		unqueue_event(from, event);
		snt__list_append(&moved, &event->link);
	}
	id->rdma.channel = &to->rdma;
	while (!snt__list_empty(&moved)) {
		event = snt__container(moved.next, struct snt__preload_event, link);
		snt__unlink(&event->link);
		snt__preload_queue(to, event);
		if (is_request(event) && event->rdma.id != &id->rdma)
			snt__preload_move(snt__preload_id(event->rdma.id), to);
	}
}

/*
 * Taking
 */

/*
 * librdmacm does this part when a program takes the event, if it has created the QP.
 */

static void flush_qp(const struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (id->qp)
		snt__preload_control()->modify_qp(id->qp, &attr, IBV_QP_STATE);
}

static void complete_connect(struct snt__preload_event *event)
{
	struct snt__preload_id *id = snt__preload_id(event->rdma.id);
	int ret = snt__preload_qp_enter(id, IBV_QPS_RTR, NULL);

	if (!ret)
		ret = snt__preload_qp_enter(id, IBV_QPS_RTS, NULL);
	if (!ret)
		ret = id->soft->cm->table->establish(id->soft);
	if (!ret) {
		event->rdma.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	if (id->soft)
		id->soft->cm->table->reject(id->soft, NULL, 0);
	event->rdma.event = RDMA_CM_EVENT_CONNECT_ERROR;
	event->rdma.status = ret;
}

static void act_on_event(struct snt__preload_event *event)
{
	struct rdma_cm_id *id = event->rdma.id;

	switch (event->rdma.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		event->owner->waiting--;
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (id->qp)
			complete_connect(event);
		return;
	case RDMA_CM_EVENT_REJECTED:
		flush_qp(id);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DISCONNECTED:
		break;
	default:
		return;
	}
	snt__preload_id(id)->over = true;
}

static struct snt__preload_event *take_soft(struct snt__preload_channel *channel)
{
	struct snt__preload_event *event = NULL;

	pthread_mutex_lock(&snt__preload_cm_lock);
	if (!snt__list_empty(&channel->events)) {
		event = snt__container(channel->events.next, struct snt__preload_event,
				       link);
		unqueue_event(channel, event);
		event->owner->events_taken++;
		act_on_event(event);
	}
	pthread_mutex_unlock(&snt__preload_cm_lock);
	return event;
}

/* A new id of librdmacm has the listener's context. */
static struct snt__preload_id *adopt_real_id(struct rdma_cm_id *real)
{
	struct snt__preload_id *listener = real->context;
	struct snt__preload_id *id;

	pthread_mutex_lock(&snt__preload_cm_lock);
	id = snt__preload_id_alloc(snt__preload_channel(listener->rdma.channel),
				   listener->rdma.context, listener->rdma.ps);
	pthread_mutex_unlock(&snt__preload_cm_lock);
	if (!id)
		return NULL;
	id->real = real;
	real->context = id;
	return id;
}

static int refuse_real_request(struct rdma_cm_event *real,
			       struct snt__preload_event *event)
{
	struct rdma_cm_id *id = real->id;

	free(event);
	snt__real()->rdma_reject(id, NULL, 0);
	snt__real()->rdma_ack_cm_event(real);
	snt__real()->rdma_destroy_id(id);
	return -ENOMEM;
}

static int take_real(struct snt__preload_channel *channel,
		     struct snt__preload_event **event_out)
{
	struct snt__preload_event *event;
	struct rdma_cm_event *real;
	struct snt__preload_id *id;

	if (!channel->real)
		return -EAGAIN;
	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	if (snt__real()->rdma_get_cm_event(channel->real, &real)) {
		free(event);
		return -errno;
	}
	if (real->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		id = adopt_real_id(real->id);
	else
		id = real->id->context;
	if (!id)
		return refuse_real_request(real, event);
	snt__preload_mirror(id);
	event->rdma = *real;
	event->rdma.id = &id->rdma;
	if (real->listen_id)
		event->rdma.listen_id = real->listen_id->context;
	event->real = real;
	*event_out = event;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *rdma_channel,
		      struct rdma_cm_event **event_out)
{
	struct snt__preload_channel *channel = snt__preload_channel(rdma_channel);
	struct snt__preload_event *event;

	if (BYPASSED())
		return snt__real()->rdma_get_cm_event(rdma_channel, event_out);
	for (;;) {
		struct pollfd wait = { .fd = rdma_channel->fd, .events = POLLIN };
		int ret = 0;

		event = take_soft(channel);
		if (!event)
			ret = take_real(channel, &event);
		if (!ret)
			break;
		if (ret != -EAGAIN || fcntl(rdma_channel->fd, F_GETFL) & O_NONBLOCK)
			return AS_MINUS_ONE(ret);
		if (poll(&wait, 1, -1) < 0)
			return -1;
	}
	*event_out = &event->rdma;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *rdma)
{
	struct snt__preload_event *event = (struct snt__preload_event *)rdma;

	if (BYPASSED())
		return snt__real()->rdma_ack_cm_event(rdma);
	if (!rdma)
		return AS_MINUS_ONE(-EINVAL);
	if (event->real) {
		snt__real()->rdma_ack_cm_event(event->real);
	} else {
		pthread_mutex_lock(&snt__preload_cm_lock);
		event->owner->events_taken--;
		pthread_cond_broadcast(&snt__preload_cm_acked);
		pthread_mutex_unlock(&snt__preload_cm_lock);
	}
	free(event);
	return 0;
}
