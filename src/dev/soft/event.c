/* SPDX-License-Identifier: MIT */
#include "dev/soft/event.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dev/soft/core.h"
#include "dev/soft/qp.h"

/*
 * Bells. Only this file reads and writes their fds, with the lock held, so that a read
 * never blocks, whatever flags the program has set on the fd. A child of the process
 * has a copy of their state, but shares the fds with its parent.
 */

static unsigned forks; /* between the first process and this one */

void snt__soft_bells_disown(void)
{
	forks++;
}

static bool is_bell_of_process(const struct snt__soft_bell *bell)
{
	return bell->forks == forks;
}

int snt__soft_bell_open(struct snt__soft_bell *bell)
{
	bell->fd = eventfd(0, EFD_CLOEXEC);
	bell->rung = false;
	bell->forks = forks;
	return bell->fd < 0 ? -errno : 0;
}

void snt__soft_bell_close(struct snt__soft_bell *bell)
{
	if (bell->fd >= 0)
		close(bell->fd);
}

void snt__soft_bell_ring(struct snt__soft_bell *bell)
{
	if (bell->rung || bell->fd < 0 || !is_bell_of_process(bell))
		return;
	bell->rung = eventfd_write(bell->fd, 1) == 0;
}

void snt__soft_bell_quiet(struct snt__soft_bell *bell)
{
	eventfd_t count;

	if (!bell->rung || !is_bell_of_process(bell))
		return;
	bell->rung = eventfd_read(bell->fd, &count) != 0;
}

int snt__soft_bell_wait(struct snt__soft_device *device,
			const struct snt__soft_bell *bell)
{
	struct pollfd wait = { .fd = bell->fd, .events = POLLIN };

	if (!is_bell_of_process(bell))
		return -EIO;
	if (fcntl(bell->fd, F_GETFL) & O_NONBLOCK)
		return -EAGAIN;
	if (device->driver->wait)
		return device->driver->wait(device->driver_arg, bell->fd);
	return poll(&wait, 1, -1) < 0 ? -errno : 0;
}

/*
 * Async events
 */

/* An unread change of the port is replaced by the next one. */
static uint32_t superseded_events(enum ibv_event_type type)
{
	if (type == IBV_EVENT_PORT_ACTIVE)
		return 1u << IBV_EVENT_PORT_ERR;
	if (type == IBV_EVENT_PORT_ERR)
		return 1u << IBV_EVENT_PORT_ACTIVE;
	return 0;
}

void snt__soft_raise(struct snt__soft_object *object, enum ibv_event_type type)
{
	struct snt__soft_context *context = object->context;

	object->pending &= ~superseded_events(type);
	object->pending |= 1u << type;
	if (!snt__linked(&object->events))
		snt__list_append(&context->events, &object->events);
	snt__soft_bell_ring(&context->async);
}

void snt__soft_forget(struct snt__soft_object *object)
{
	struct snt__soft_context *context = object->context;

	object->pending = 0;
	snt__unlink(&object->events);
	if (snt__list_empty(&context->events))
		snt__soft_bell_quiet(&context->async);
}

/* Which member of ibv_async_event.element an event has. */
static void set_element(struct ibv_async_event *event, struct snt__soft_object *object)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		event->element.cq =
			&snt__container(object, struct snt__soft_cq, object)->ibv;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event->element.srq =
			&snt__container(object, struct snt__soft_srq, object)->ibv;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event->element.qp =
			&snt__container(object, struct snt__soft_qp, object)->ibv;
		break;
	default:
		event->element.port_num = 1;
		break;
	}
}

/* The object of an event that was taken; NULL for those of the port. */
static struct snt__soft_object *element_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &snt__soft_cq(event->element.cq)->object;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &snt__soft_srq(event->element.srq)->object;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &snt__soft_qp(event->element.qp)->object;
	default:
		return NULL;
	}
}

static bool take_context_event(struct snt__soft_context *context,
			       struct ibv_async_event *event)
{
	struct snt__soft_object *object;

	if (snt__list_empty(&context->events))
		return false;
	object = snt__container(context->events.next, struct snt__soft_object, events);
	memset(event, 0, sizeof(*event));
	event->event_type = (enum ibv_event_type)__builtin_ctz(object->pending);
	set_element(event, object);
	object->pending &= object->pending - 1;
	if (object != &context->object)
		object->taken++;
	if (!object->pending)
		snt__soft_forget(object);
	return true;
}

int snt__soft_get_async_event(struct ibv_context *context,
			      struct ibv_async_event *event_out)
{
	struct snt__soft_context *soft = snt__soft_context_of(context);
	struct snt__soft_device *device = soft->device;
	int err;

	for (;;) {
		bool taken;

		snt__soft_lock(device);
		taken = take_context_event(soft, event_out);
		snt__soft_unlock(device);
		if (taken)
			return 0;
		err = snt__soft_bell_wait(device, &soft->async);
		if (err)
			return err;
	}
}

void snt__soft_ack_async_event(struct ibv_async_event *event)
{
	struct snt__soft_object *object = element_of(event);

	if (!object)
		return;
	snt__soft_lock(object->device);
	if (object->acked != object->taken)
		object->acked++;
	snt__soft_unlock(object->device);
}
