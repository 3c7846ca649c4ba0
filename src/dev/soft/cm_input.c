/* SPDX-License-Identifier: MIT */
/* Messages from peers, known or not. */
#include <errno.h>
#include <string.h>

#include "dev/soft/cm.h"
#include "util/minmax.h"

/*
 * Answers to messages that belong to no connection. If there are too many they are
 * dropped: a peer that needs one sends its message again.
 */

static struct snt__cm_message *note_reply(struct snt__soft_cm *cm,
					  const struct snt__soft_path *path,
					  const struct snt__cm_message *message,
					  enum snt__cm_kind kind)
{
	struct snt__soft_cm_note *note = &cm->notes[cm->note_tail % SNT__SOFT_CM_NOTES];

	if (cm->note_tail - cm->note_head == SNT__SOFT_CM_NOTES)
		return NULL;
	cm->note_tail++;
	*note = (struct snt__soft_cm_note){
		.path = { .hop_limit = 64 },
		.message = { .kind = kind,
			     .transaction = message->transaction,
			     .local_id = message->remote_id,
			     .remote_id = message->local_id },
	};
	memcpy(note->path.source, path->target, 16);
	memcpy(note->path.target, path->source, 16);
	return &note->message;
}

static void note_rej(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		     const struct snt__cm_message *message, unsigned reason)
{
	struct snt__cm_message *rej = note_reply(cm, path, message, SNT__CM_REJ);

	if (!rej)
		return;
	rej->rej.reason = (uint16_t)reason;
	rej->rej.about = SNT__CM_ABOUT_OTHER;
	if (message->kind == SNT__CM_REQ)
		rej->rej.about = SNT__CM_ABOUT_REQ;
	if (message->kind == SNT__CM_REP)
		rej->rej.about = SNT__CM_ABOUT_REP;
}

static bool is_message_from_peer(const struct snt__soft_cm_connection *connection,
				 const struct snt__soft_path *path)
{
	return memcmp(path->source, connection->path.target, 16) == 0 &&
	       memcmp(path->target, connection->path.source, 16) == 0;
}

/* The connection that a message names by our id. */
static struct snt__soft_cm_connection *find_named_connection(
	struct snt__soft_cm *cm, const struct snt__soft_path *path,
	const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		snt__soft_cm_find(cm, message->remote_id);

	return connection && is_message_from_peer(connection, path) ? connection : NULL;
}

/* The same, if the peer's id of it is the known one. */
static struct snt__soft_cm_connection *find_known_connection(
	struct snt__soft_cm *cm, const struct snt__soft_path *path,
	const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		find_named_connection(cm, path, message);

	return connection && connection->remote_id &&
			       connection->remote_id == message->local_id
		       ? connection
		       : NULL;
}

/* The peer has a new connection on this one's QP, so that this one is gone. */
static void make_way(struct snt__soft_cm *cm,
		     struct snt__soft_cm_connection *connection)
{
	bool established = connection->state == SNT__SOFT_CM_ESTABLISHED;

	connection->reason = SNT__CM_REASON_STALE;
	memset(connection->answer, 0, sizeof(connection->answer));
	snt__soft_cm_finish(cm, connection,
			    established ? SNT__CM_EVENT_DISCONNECTED
					: SNT__CM_EVENT_REJECTED);
	if (established)
		snt__soft_cm_send(cm, connection, SNT__CM_DREQ);
}

/*
 * REQ
 */

/* 0, or the reason of the refusal. */
static unsigned reason_to_refuse(const struct snt__soft_cm *cm,
				 const struct snt__soft_path *path,
				 const struct snt__cm_message *message,
				 struct snt__cm_addresses *addresses)
{
	const struct snt__cm_req *req = &message->req;

	if (!message->local_id)
		return SNT__CM_REASON_UNKNOWN_ID;
	if (req->transport != SNT__CM_TRANSPORT_RC)
		return SNT__CM_REASON_TRANSPORT;
	if (!snt__cm_service_is_tcp(req->service))
		return SNT__CM_REASON_NOBODY_LISTENS;
	if (snt__cm_addresses_decode(message->data, addresses) ||
	    (req->pkey & 0x7fff) != 0x7fff)
		return SNT__CM_REASON_UNSUPPORTED;
	/* The addresses in the message must be those of the packet. */
	if (memcmp(addresses->source, path->source, 16) != 0 ||
	    memcmp(addresses->target, path->target, 16) != 0 ||
	    memcmp(req->local_gid, path->source, 16) != 0 ||
	    memcmp(req->remote_gid, path->target, 16) != 0)
		return SNT__CM_REASON_GID;
	if (!snt__mtu_bytes(req->mtu) || req->mtu > cm->config.mtu)
		return SNT__CM_REASON_MTU;
	return req->qpn > SNT__WIRE_GSI_QPN ? 0 : SNT__CM_REASON_NO_QP;
}

static void fill_passive(const struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 const struct snt__cm_message *message)
{
	const struct snt__cm_req *req = &message->req;

	connection->transaction = message->transaction;
	connection->remote_id = message->local_id;
	connection->remote_qpn = req->qpn;
	connection->remote_psn = req->psn;
	connection->remote_srq = req->srq;
	connection->flow_label = req->flow_label;
	connection->traffic_class = req->traffic_class;
	connection->hop_limit = req->hop_limit;
	connection->mtu = req->mtu;
	/* 0 would be an infinite timeout. */
	connection->ack_timeout =
		(uint8_t)(req->ack_timeout ? req->ack_timeout : cm->config.ack_timeout);
	connection->retry_count = req->retry_count;
	connection->rnr_retry_count = req->rnr_retry_count;
	/* What the peer may send is what we must accept, and the other way round. */
	connection->responder_resources =
		snt__min(req->initiator_depth, cm->config.read_max);
	connection->initiator_depth =
		snt__min(req->responder_resources, cm->config.read_max);
	memcpy(connection->request, message->data + SNT__CM_ADDRESSES_SIZE,
	       sizeof(connection->request));
}

static void req_new(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		    const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection = NULL, *stale;
	struct snt__soft_cm_listener *listener;
	struct snt__cm_addresses addresses;
	unsigned reason = reason_to_refuse(cm, path, message, &addresses);
	uint16_t port = (uint16_t)message->req.service;

	stale = reason ? NULL
		       : snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_QPN, path->source,
						 message->req.qpn);
	listener = reason ? NULL : snt__soft_cm_listener_find(cm, path->target, port);
	if (stale) {
		make_way(cm, stale);
		reason = SNT__CM_REASON_STALE;
	} else if (!reason && !listener) {
		reason = SNT__CM_REASON_NOBODY_LISTENS;
	} else if (!reason) {
		if (listener->waiting < listener->backlog)
			connection = snt__soft_cm_take(listener->channel,
						       SNT__SOFT_CM_REQ_RECEIVED);
		reason = connection ? 0 : SNT__CM_REASON_NO_RESOURCES;
	}
	if (reason) {
		cm->stats.refused++;
		note_rej(cm, path, message, reason);
		return;
	}
	memcpy(connection->path.source, path->target, 16);
	memcpy(connection->path.target, path->source, 16);
	connection->local_port = port;
	connection->peer_port = addresses.port;
	fill_passive(cm, connection, message);
	snt__soft_cm_index_add(cm, SNT__SOFT_CM_BY_ID, connection, message->local_id);
	snt__soft_cm_index_add(cm, SNT__SOFT_CM_BY_QPN, connection, message->req.qpn);
	connection->listener = listener;
	listener->waiting++;
	snt__soft_cm_raise(connection, SNT__CM_EVENT_REQUEST);
}

static void handle_req(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		       const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_ID, path->source,
					message->local_id);

	if (!connection) {
		req_new(cm, path, message);
		return;
	}
	cm->stats.duplicates++;
	if (connection->state == SNT__SOFT_CM_REQ_RECEIVED)
		snt__soft_cm_send(cm, connection, SNT__CM_MRA);
	else if (connection->state == SNT__SOFT_CM_REP_SENT)
		snt__soft_cm_send(cm, connection, SNT__CM_REP);
	else if (connection->refused)
		snt__soft_cm_send(cm, connection, SNT__CM_REJ);
	else if (connection->state == SNT__SOFT_CM_OVER)
		note_rej(cm, path, message, SNT__CM_REASON_STALE);
}

/*
 * REP
 */

static void rep_first(struct snt__soft_cm *cm,
		      struct snt__soft_cm_connection *connection,
		      const struct snt__cm_message *message)
{
	const struct snt__cm_rep *rep = &message->rep;
	struct snt__soft_cm_connection *stale =
		snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_QPN,
					connection->path.target, rep->qpn);

	if (stale)
		make_way(cm, stale);
	connection->remote_id = message->local_id;
	connection->remote_qpn = rep->qpn;
	connection->remote_psn = rep->psn;
	connection->remote_srq = rep->srq;
	connection->rnr_retry_count = rep->rnr_retry_count;
	connection->responder_resources =
		snt__min(rep->initiator_depth, connection->offered_resources);
	connection->initiator_depth =
		snt__min(rep->responder_resources, connection->offered_depth);
	memcpy(connection->answer, message->data, sizeof(connection->answer));
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_REP_RECEIVED);
	snt__soft_cm_index_add(cm, SNT__SOFT_CM_BY_QPN, connection, rep->qpn);
	snt__soft_cm_raise(connection, SNT__CM_EVENT_RESPONSE);
}

static void handle_rep(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		       const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		find_named_connection(cm, path, message);

	if (connection && connection->state == SNT__SOFT_CM_REQ_SENT &&
	    message->local_id && message->rep.qpn > SNT__WIRE_GSI_QPN) {
		rep_first(cm, connection, message);
		return;
	}
	/* From a peer that does not know that our side is gone, or from one that was
	 * restarted and has seen an old REQ. */
	if (!connection || connection->passive ||
	    (connection->remote_id && connection->remote_id != message->local_id) ||
	    (connection->state == SNT__SOFT_CM_OVER && !connection->refused)) {
		cm->stats.unknown++;
		note_rej(cm, path, message, SNT__CM_REASON_UNKNOWN_ID);
		return;
	}
	cm->stats.duplicates++;
	if (connection->state == SNT__SOFT_CM_REP_RECEIVED)
		snt__soft_cm_send(cm, connection, SNT__CM_MRA);
	else if (connection->state == SNT__SOFT_CM_ESTABLISHED)
		snt__soft_cm_send(cm, connection, SNT__CM_RTU);
	else if (connection->refused) {
		/* The peer's id may have been unknown until now. */
		connection->remote_id = message->local_id;
		snt__soft_cm_send(cm, connection, SNT__CM_REJ);
	}
}

/*
 * The others
 */

static void handle_rtu(struct snt__soft_cm *cm,
		       struct snt__soft_cm_connection *connection)
{
	if (connection->state == SNT__SOFT_CM_REP_SENT)
		snt__soft_cm_notify(cm, connection);
	else
		cm->stats.duplicates++;
}

/* A peer that gave up before it heard from us does not know our id, and one that
 * refuses before it has an id of its own sends none; the latter is stale if a REP has
 * overtaken it. */
static struct snt__soft_cm_connection *find_rejected_connection(
	struct snt__soft_cm *cm, const struct snt__soft_path *path,
	const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection;

	if (message->remote_id) {
		connection = find_named_connection(cm, path, message);
		return connection && (!connection->remote_id ||
				      connection->remote_id == message->local_id)
			       ? connection
			       : NULL;
	}
	if (message->rej.reason != SNT__CM_REASON_TIMEOUT)
		return NULL;
	connection = snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_ID, path->source,
					     message->local_id);
	return connection && is_message_from_peer(connection, path) &&
			       connection->state < SNT__SOFT_CM_ESTABLISHED
		       ? connection
		       : NULL;
}

static void handle_rej(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		       const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		find_rejected_connection(cm, path, message);

	if (!connection) {
		cm->stats.unknown++;
		return;
	}
	switch (connection->state) {
	case SNT__SOFT_CM_REQ_SENT:
	case SNT__SOFT_CM_REP_RECEIVED:
	case SNT__SOFT_CM_REQ_RECEIVED:
	case SNT__SOFT_CM_REP_SENT:
		connection->reason = message->rej.reason;
		memcpy(connection->answer, message->data, SNT__CM_REJECT_DATA);
		snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_REJECTED);
		break;
	case SNT__SOFT_CM_ESTABLISHED:
	case SNT__SOFT_CM_DREQ_SENT:
		snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_DISCONNECTED);
		break;
	default:
		break;
	}
}

/* The peer is alive and needs time: patience starts over, but is limited in total. */
static void handle_mra(struct snt__soft_cm *cm,
		       struct snt__soft_cm_connection *connection,
		       const struct snt__cm_message *message, uint64_t now)
{
	uint64_t until = now + snt__cm_time_ns(message->mra.timeout);

	if (!(connection->state == SNT__SOFT_CM_REQ_SENT &&
	      message->mra.about == SNT__CM_ABOUT_REQ) &&
	    !(connection->state == SNT__SOFT_CM_REP_SENT &&
	      message->mra.about == SNT__CM_ABOUT_REP))
		return;
	if (!connection->give_up_at ||
	    (connection->remote_id && connection->remote_id != message->local_id))
		return;
	connection->tries = 0;
	connection->sending = 0;
	if (until > connection->give_up_at)
		until = connection->give_up_at;
	snt__soft_timer_set(&cm->timers, &connection->timer, until);
}

/* It has overtaken the REP that it cancels. If it were answered now, this end would
 * believe the REP when that arrives, and the peer would not; without an answer it is
 * repeated. */
static bool is_early(struct snt__soft_cm *cm, const struct snt__soft_path *path,
		     const struct snt__cm_message *message)
{
	const struct snt__soft_cm_connection *connection =
		find_named_connection(cm, path, message);

	return connection && connection->state == SNT__SOFT_CM_REQ_SENT;
}

static void handle_dreq(struct snt__soft_cm *cm, const struct snt__soft_path *path,
			const struct snt__cm_message *message)
{
	struct snt__soft_cm_connection *connection =
		find_known_connection(cm, path, message);

	if (is_early(cm, path, message))
		return;
	if (!connection) {
		cm->stats.unknown++;
		note_reply(cm, path, message, SNT__CM_DREP);
		return;
	}
	/* It names another QP than ours, or ours cannot exist yet. */
	if (message->dreq.qpn != connection->local_qpn ||
	    connection->state == SNT__SOFT_CM_REQ_RECEIVED)
		return;
	if (connection->state != SNT__SOFT_CM_OVER)
		snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_DISCONNECTED);
	else
		cm->stats.duplicates++;
	connection->transaction = message->transaction;
	snt__soft_cm_send(cm, connection, SNT__CM_DREP);
}

/* Messages that are valid only if both ids match. */
static void in_connection(struct snt__soft_cm *cm,
			  struct snt__soft_cm_connection *connection,
			  const struct snt__cm_message *message, uint64_t now)
{
	if (!connection)
		cm->stats.unknown++;
	else if (message->kind == SNT__CM_RTU)
		handle_rtu(cm, connection);
	else if (message->kind == SNT__CM_MRA)
		handle_mra(cm, connection, message, now);
	else if (connection->state == SNT__SOFT_CM_DREQ_SENT)
		snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_DISCONNECTED);
}

void snt__soft_cm_input(struct snt__soft_cm *cm, const struct snt__soft_path *path,
			const uint8_t mad[SNT__CM_MAD_SIZE], uint64_t now)
{
	struct snt__cm_message message;

	cm->stats.received++;
	if (snt__cm_decode(mad, &message)) {
		cm->stats.malformed++;
		return;
	}
	switch (message.kind) {
	case SNT__CM_REQ:
		handle_req(cm, path, &message);
		break;
	case SNT__CM_REP:
		handle_rep(cm, path, &message);
		break;
	case SNT__CM_REJ:
		handle_rej(cm, path, &message);
		break;
	case SNT__CM_DREQ:
		handle_dreq(cm, path, &message);
		break;
	case SNT__CM_MRA:
		/* An MRA for a REQ comes before we know the peer's id. */
		in_connection(cm, find_named_connection(cm, path, &message), &message,
			      now);
		break;
	default:
		in_connection(cm, find_known_connection(cm, path, &message), &message,
			      now);
		break;
	}
}
