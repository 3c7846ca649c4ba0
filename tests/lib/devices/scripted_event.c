/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "scripted_internal.h"

/*
 * Pipes of records. A record is far below PIPE_BUF, so it is written and read as
 * a whole. Only this end writes, hence `queued` is exact and no read blocks.
 */

int scripted__pipe_open(struct scripted_pipe *pipe)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	/* The reader chooses for itself; the writer must never block. */
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	pipe->read_fd = fds[0];
	pipe->write_fd = fds[1];
	pipe->queued = 0;
	return 0;
}

void scripted__pipe_close(struct scripted_pipe *pipe)
{
	close(pipe->read_fd);
	close(pipe->write_fd);
}

static bool pipe_write(struct scripted_pipe *pipe, const void *record, size_t size)
{
	if (write(pipe->write_fd, record, size) != (ssize_t)size)
		return false;
	pipe->queued++;
	return true;
}

/* Where a real device would block for ever this is -EDEADLK, since no other thread
 * could end the wait. */
static int pipe_read(struct scripted_pipe *pipe, void *record, size_t size)
{
	if (!pipe->queued)
		return fcntl(pipe->read_fd, F_GETFL) & O_NONBLOCK ? -EAGAIN : -EDEADLK;
	if (read(pipe->read_fd, record, size) != (ssize_t)size)
		return -EIO;
	pipe->queued--;
	return 0;
}

/*
 * Completion channels
 */

int scripted__create_channel(struct ibv_context *context,
			     struct ibv_comp_channel **channel_out)
{
	struct scripted_device *device = scripted__device(context);
	struct scripted_channel *channel;
	int err;

	CONTROL_ENTER(device);
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return -ENOMEM;
	err = scripted__pipe_open(&channel->pipe);
	if (err) {
		free(channel);
		return err;
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel->pipe.read_fd;
	scripted__object_add(device, &channel->object, SCRIPTED_CHANNEL);
	*channel_out = &channel->ibv;
	return 0;
}

void scripted__channel_free(struct scripted_channel *channel)
{
	scripted__pipe_close(&channel->pipe);
	free(channel);
}

static struct scripted_channel *channel_of(struct ibv_comp_channel *channel)
{
	return container_of(channel, struct scripted_channel, ibv);
}

int scripted__destroy_channel(struct ibv_comp_channel *ibv_channel)
{
	struct scripted_channel *channel = channel_of(ibv_channel);

	CONTROL_ENTER(channel->object.device);
	if (scripted__object_busy(&channel->object))
		return -EBUSY;
	scripted__object_remove(&channel->object);
	scripted__channel_free(channel);
	return 0;
}

void scripted__cq_event(struct scripted_cq *cq)
{
	if (!cq->ibv.channel)
		return;
	if (!pipe_write(&channel_of(cq->ibv.channel)->pipe, &cq, sizeof(cq)))
		cq->object.device->faults |= SCRIPTED_FAULT_EVENT_LOST;
}

/* Takes the events of a CQ that is about to die out of its channel. */
void scripted__cq_events_forget(struct scripted_cq *cq)
{
	struct scripted_pipe *pipe;
	struct scripted_cq *other;
	unsigned count;

	if (!cq->ibv.channel)
		return;
	pipe = &channel_of(cq->ibv.channel)->pipe;
	for (count = pipe->queued; count; count--) {
		if (pipe_read(pipe, &other, sizeof(other)) == 0 && other != cq)
			pipe_write(pipe, &other, sizeof(other));
	}
}

int scripted__get_cq_event(struct ibv_comp_channel *ibv_channel, struct ibv_cq **cq_out,
			   void **cq_context_out)
{
	struct scripted_channel *channel = channel_of(ibv_channel);
	struct scripted_cq *cq;
	int err;

	CONTROL_ENTER(channel->object.device);
	err = pipe_read(&channel->pipe, &cq, sizeof(cq));
	if (err)
		return err;
	cq->events_taken++;
	*cq_out = &cq->ibv;
	*cq_context_out = cq->ibv.cq_context;
	return 0;
}

void scripted__ack_cq_events(struct ibv_cq *ibv_cq, unsigned count)
{
	struct scripted_cq *cq = scripted__cq(ibv_cq);

	if (count > cq->events_taken - cq->events_acked) {
		cq->object.device->faults |= SCRIPTED_FAULT_ACK_EXCESS;
		return;
	}
	cq->events_acked += count;
}

/*
 * Async events
 */

/* The object that an event is about, or NULL for ports and devices. */
static struct scripted_object *event_object(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &scripted__cq(event->element.cq)->object;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &scripted__qp(event->element.qp)->object;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &scripted__srq(event->element.srq)->object;
	default:
		return NULL;
	}
}

void scripted_raise(struct scripted_device *device, struct ibv_async_event event)
{
	struct ibv_async_event record;

	/* Every byte is written to the pipe, so every byte needs a value. */
	memset(&record, 0, sizeof(record));
	record.event_type = event.event_type;
	if (event_object(&event))
		record.element.qp = event.element.qp; /* or CQ, SRQ: a pointer */
	else
		record.element.port_num = event.element.port_num;
	if (!pipe_write(&device->async, &record, sizeof(record)))
		device->faults |= SCRIPTED_FAULT_EVENT_LOST;
}

/* Takes the events of an object that is about to die out of its device. */
void scripted__async_forget(struct scripted_object *object)
{
	struct scripted_pipe *pipe = &object->device->async;
	struct ibv_async_event event;
	unsigned count;

	for (count = pipe->queued; count; count--) {
		if (pipe_read(pipe, &event, sizeof(event)) == 0 &&
		    event_object(&event) != object)
			pipe_write(pipe, &event, sizeof(event));
	}
}

int scripted__get_async_event(struct ibv_context *context,
			      struct ibv_async_event *event_out)
{
	struct scripted_device *device = scripted__device(context);
	struct scripted_object *object;
	struct ibv_async_event event;
	int err;

	CONTROL_ENTER(device);
	err = pipe_read(&device->async, &event, sizeof(event));
	if (err)
		return err;
	object = event_object(&event);
	if (object)
		object->async_taken++;
	*event_out = event;
	return 0;
}

void scripted__ack_async_event(struct ibv_async_event *event)
{
	struct scripted_object *object = event_object(event);

	if (!object)
		return;
	if (object->async_acked == object->async_taken)
		object->device->faults |= SCRIPTED_FAULT_ACK_EXCESS;
	else
		object->async_acked++;
}
