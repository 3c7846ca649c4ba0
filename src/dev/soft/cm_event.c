/* SPDX-License-Identifier: MIT */
/* Events for the program. There is no queue: a connection has one bit for each kind of
 * event, and they are delivered in the order in which they can happen. */
#include <errno.h>
#include <string.h>

#include "dev/soft/cm.h"

#define BIT(type)  (1u << (type))
#define FINAL_BITS (~0u << SNT__CM_EVENT_REJECTED)

void snt__soft_cm_channel_open(struct snt__soft_cm *cm,
			       struct snt__soft_cm_channel *channel)
{
	if (!cm->channel_count++)
		cm->secret = snt__soft_cm_random(cm);
	channel->cm = cm;
	channel->live = 0;
	snt__list_init(&channel->ready);
}

void snt__soft_cm_channel_close(struct snt__soft_cm_channel *channel)
{
	channel->cm->channel_count--;
}

/* It has an event. */
static void make_ready(struct snt__soft_cm_connection *connection)
{
	struct snt__soft_cm_channel *channel = connection->channel;
	bool first = snt__list_empty(&channel->ready);

	if (!snt__linked(&connection->ready))
		snt__list_append(&channel->ready, &connection->ready);
	if (first)
		channel->wake(channel->arg);
}

void snt__soft_cm_raise(struct snt__soft_cm_connection *connection,
			enum snt__cm_event_type type)
{
	if (BIT(type) & FINAL_BITS) {
		if (connection->final)
			return;
		connection->final = true;
		/* The program can no longer act on the pending response. */
		connection->pending &= ~BIT(SNT__CM_EVENT_RESPONSE);
	}
	connection->pending |= BIT(type);
	make_ready(connection);
}

/* If the peer has given up, the final event is pending, and moves as well. An accepted
 * connection has a local QP number. */
static bool is_movable(const struct snt__soft_cm_connection *connection)
{
	return connection->state == SNT__SOFT_CM_REQ_RECEIVED ||
	       (connection->passive && !connection->local_qpn &&
		connection->pending & FINAL_BITS);
}

int snt__soft_cm_move(struct snt__soft_cm_connection *connection,
		      struct snt__soft_cm_channel *to)
{
	if (!is_movable(connection))
		return -ENOTCONN;
	snt__unlink(&connection->ready);
	connection->channel->live--;
	connection->channel = to;
	to->live++;
	if (connection->pending)
		make_ready(connection);
	return 0;
}

static void request_done(struct snt__soft_cm_connection *connection)
{
	if (connection->listener)
		connection->listener->waiting--;
	connection->listener = NULL;
}

void snt__soft_cm_hush(struct snt__soft_cm_connection *connection)
{
	request_done(connection);
	connection->pending = 0;
	snt__unlink(&connection->ready);
}

static void copy_event_data(struct snt__cm_event *event, const uint8_t *data,
			    uint8_t length)
{
	event->data_length = length;
	memcpy(event->data, data, length);
}

static void fill_event(const struct snt__soft_cm_connection *connection,
		       struct snt__cm_event *event)
{
	if (event->type == SNT__CM_EVENT_FAILED)
		event->status = connection->channel->cm->dead ? -ENODEV : -ETIMEDOUT;
	if (event->type == SNT__CM_EVENT_REJECTED) {
		event->reason = connection->reason;
		copy_event_data(event, connection->answer, SNT__CM_REJECT_DATA);
	}
	if (event->type != SNT__CM_EVENT_REQUEST &&
	    event->type != SNT__CM_EVENT_RESPONSE)
		return;
	event->qpn = connection->remote_qpn;
	event->responder_resources = connection->responder_resources;
	event->initiator_depth = connection->initiator_depth;
	event->rnr_retry_count = connection->rnr_retry_count;
	event->srq = connection->remote_srq;
	if (event->type == SNT__CM_EVENT_REQUEST)
		copy_event_data(event, connection->request, SNT__CM_REQUEST_DATA);
	else
		copy_event_data(event, connection->answer, SNT__CM_RESPONSE_DATA);
}

int snt__soft_cm_next_event(struct snt__soft_cm_channel *channel,
			    struct snt__cm_event *event_out)
{
	struct snt__soft_cm_connection *connection;

	if (snt__list_empty(&channel->ready))
		return -EAGAIN;
	connection = snt__container(channel->ready.next, struct snt__soft_cm_connection,
				    ready);
	memset(event_out, 0, sizeof(*event_out));
	event_out->type = (enum snt__cm_event_type)__builtin_ctz(connection->pending);
	event_out->id = &connection->handle.id;
	if (event_out->type == SNT__CM_EVENT_REQUEST) {
		event_out->listener = connection->listener->id;
		connection->held = true;
		request_done(connection);
	}
	fill_event(connection, event_out);
	connection->pending &= connection->pending - 1;
	if (!connection->pending)
		snt__unlink(&connection->ready);
	return 0;
}
