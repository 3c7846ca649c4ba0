/* SPDX-License-Identifier: MIT */
/* Messages to peers, and retries. */
#include <string.h>

#include "dev/soft/cm.h"
#include "util/assert.h"

/* What peers are asked for: to repeat an unanswered message after 0.5 s, 15 times; and,
 * while the program thinks, to repeat it after 4.3 s. */
#define RESPONSE_TIMEOUT 17
#define RETRIES		 15
#define SERVICE_TIMEOUT	 20
/* How long an acknowledgment may take: 134 ms, as rxe says. */
#define ACK_DELAY 15

/*
 * Messages. Everything in them is in the connection, so that each can be made at any
 * time.
 */

static void make_req(const struct snt__soft_cm *cm,
		     const struct snt__soft_cm_connection *connection,
		     struct snt__cm_message *message, uint8_t data[SNT__CM_REQ_PRIVATE])
{
	struct snt__cm_addresses addresses = { .port = connection->local_port };

	message->req = (struct snt__cm_req){
		.service = snt__cm_service(connection->peer_port),
		.guid = cm->config.guid,
		.qpn = connection->local_qpn,
		.psn = connection->local_psn,
		.flow_label = connection->flow_label,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.responder_resources = connection->offered_resources,
		.initiator_depth = connection->offered_depth,
		.remote_timeout = RESPONSE_TIMEOUT,
		.local_timeout = RESPONSE_TIMEOUT,
		.retries_max = RETRIES,
		.transport = SNT__CM_TRANSPORT_RC,
		.retry_count = connection->retry_count,
		.rnr_retry_count = connection->offered_rnr_retry_count,
		.mtu = connection->mtu,
		.srq = connection->local_srq,
		.hop_limit = connection->hop_limit,
		.ack_timeout = connection->ack_timeout,
	};
	memcpy(message->req.local_gid, connection->path.source, 16);
	memcpy(message->req.remote_gid, connection->path.target, 16);
	memcpy(addresses.source, connection->path.source, 16);
	memcpy(addresses.target, connection->path.target, 16);
	snt__cm_addresses_encode(&addresses, data);
	memcpy(data + SNT__CM_ADDRESSES_SIZE, connection->request,
	       SNT__CM_REQUEST_DATA);
	message->data = data;
	message->data_length = SNT__CM_REQ_PRIVATE;
}

static void make_rep(const struct snt__soft_cm *cm,
		     const struct snt__soft_cm_connection *connection,
		     struct snt__cm_message *message)
{
	message->rep = (struct snt__cm_rep){
		.guid = cm->config.guid,
		.qpn = connection->local_qpn,
		.psn = connection->local_psn,
		.responder_resources = connection->offered_resources,
		.initiator_depth = connection->offered_depth,
		.ack_delay = ACK_DELAY,
		.rnr_retry_count = connection->offered_rnr_retry_count,
		.srq = connection->local_srq,
	};
	message->data = connection->answer;
	message->data_length = connection->answer_length;
}

static void make_rej(const struct snt__soft_cm *cm,
		     const struct snt__soft_cm_connection *connection,
		     struct snt__cm_message *message, uint8_t guid[8])
{
	message->rej.about = connection->about;
	message->rej.reason = connection->reason;
	message->data = connection->answer;
	message->data_length = connection->answer_length;
	/* The GUID lets a peer find the connection although we do not know the peer's
	 * id. */
	if (connection->reason == SNT__CM_REASON_TIMEOUT) {
		snt__wire_put64(guid, cm->config.guid);
		message->rej.info = guid;
		message->rej.info_length = 8;
	}
}

static void make_mad(const struct snt__soft_cm *cm,
		     const struct snt__soft_cm_connection *connection,
		     enum snt__cm_kind kind, uint8_t mad[SNT__CM_MAD_SIZE])
{
	uint8_t data[SNT__CM_REQ_PRIVATE], guid[8];
	struct snt__cm_message message = {
		.kind = kind,
		.transaction = connection->transaction,
		.local_id = connection->local_id,
		.remote_id = connection->remote_id,
	};

	if (kind == SNT__CM_REQ) {
		make_req(cm, connection, &message, data);
	} else if (kind == SNT__CM_REP) {
		make_rep(cm, connection, &message);
	} else if (kind == SNT__CM_REJ) {
		make_rej(cm, connection, &message, guid);
	} else if (kind == SNT__CM_MRA) {
		message.mra.about =
			connection->passive ? SNT__CM_ABOUT_REQ : SNT__CM_ABOUT_REP;
		message.mra.timeout = SERVICE_TIMEOUT;
	} else if (kind == SNT__CM_DREQ) {
		message.dreq.qpn = connection->remote_qpn;
	}
	snt__cm_encode(&message, mad);
}

/*
 * Time
 */

static uint64_t resend_interval(const struct snt__soft_cm *cm, unsigned tries)
{
	const struct snt__soft_cm_config *config = &cm->config;
	uint64_t ns = config->resend_ns;

	while (tries-- && ns < config->resend_max_ns)
		ns *= 2;
	return ns < config->resend_max_ns ? ns : config->resend_max_ns;
}

uint64_t snt__soft_cm_patience_ns(const struct snt__soft_cm *cm)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i <= cm->config.resend_count; i++)
		sum += resend_interval(cm, i);
	return sum + sum / 4;
}

static bool timer_runs(const struct snt__soft_timer *timer)
{
	return timer->place && timer->deadline != SNT__SOFT_NEVER;
}

static bool awaits_answer(const struct snt__soft_cm_connection *connection)
{
	return connection->state == SNT__SOFT_CM_REQ_SENT ||
	       connection->state == SNT__SOFT_CM_REP_SENT ||
	       connection->state == SNT__SOFT_CM_DREQ_SENT;
}

static void start_connection_timer(struct snt__soft_cm *cm,
				   struct snt__soft_cm_connection *connection,
				   uint64_t now)
{
	uint64_t ns = cm->config.linger_ns;

	if (timer_runs(&connection->timer))
		return;
	if (awaits_answer(connection)) {
		ns = resend_interval(cm, connection->tries);
		ns += (ns / 4 * (snt__soft_cm_random(cm) & 0xff)) >> 8;
		if (!connection->give_up_at)
			connection->give_up_at = now + cm->config.wait_max_ns;
	} else if (connection->state != SNT__SOFT_CM_OVER) {
		return;
	}
	snt__soft_timer_set(&cm->timers, &connection->timer, now + ns);
}

/* The message that is repeated until it is answered. */
static enum snt__cm_kind repeated_kind(const struct snt__soft_cm_connection *connection)
{
	if (connection->state == SNT__SOFT_CM_REQ_SENT)
		return SNT__CM_REQ;
	return connection->state == SNT__SOFT_CM_REP_SENT ? SNT__CM_REP : SNT__CM_DREQ;
}

static void give_up_on_peer(struct snt__soft_cm *cm,
			    struct snt__soft_cm_connection *connection)
{
	cm->stats.given_up++;
	connection->answer_length = 0;
	if (connection->state == SNT__SOFT_CM_REQ_SENT) {
		snt__soft_cm_refuse(cm, connection, SNT__CM_REASON_TIMEOUT);
		snt__soft_cm_raise(connection, SNT__CM_EVENT_FAILED);
	} else if (connection->state == SNT__SOFT_CM_REP_SENT) {
		/* The peer may have sent its RTU, and count on the connection. */
		connection->sending = 0;
		snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_DREQ_SENT);
		snt__soft_cm_send(cm, connection, SNT__CM_DREQ);
		snt__soft_cm_raise(connection, SNT__CM_EVENT_FAILED);
	} else {
		snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_DISCONNECTED);
	}
}

static void expire_connection(struct snt__soft_cm *cm,
			      struct snt__soft_cm_connection *connection, uint64_t now)
{
	if (!awaits_answer(connection)) {
		if (!connection->held)
			snt__soft_cm_give(cm, connection);
		else {
			snt__soft_cm_index_remove(cm, SNT__SOFT_CM_BY_ID, connection);
			snt__assert(connection->state == SNT__SOFT_CM_OVER);
			connection->state = SNT__SOFT_CM_DONE;
		}
		return;
	}
	if (connection->tries == cm->config.resend_count ||
	    now >= connection->give_up_at) {
		give_up_on_peer(cm, connection);
		return;
	}
	connection->tries++;
	cm->stats.resent++;
	snt__soft_cm_send(cm, connection, repeated_kind(connection));
}

uint64_t snt__soft_cm_deadline(struct snt__soft_cm *cm)
{
	return snt__soft_timers_deadline(&cm->timers);
}

void snt__soft_cm_timer(struct snt__soft_cm *cm, uint64_t now)
{
	struct snt__soft_timer *timer;

	while ((timer = snt__soft_timers_expired(&cm->timers, now)))
		expire_connection(cm,
				  snt__container(timer, struct snt__soft_cm_connection,
						 timer),
				  now);
}

/*
 * Output
 */

static bool next_note(struct snt__soft_cm *cm, struct snt__soft_path *path,
		      uint8_t mad[SNT__CM_MAD_SIZE])
{
	const struct snt__soft_cm_note *note;

	if (cm->note_head == cm->note_tail)
		return false;
	note = &cm->notes[cm->note_head++ % SNT__SOFT_CM_NOTES];
	*path = note->path;
	snt__cm_encode(&note->message, mad);
	return true;
}

bool snt__soft_cm_output(struct snt__soft_cm *cm, struct snt__soft_path *path_out,
			 uint8_t mad_out[SNT__CM_MAD_SIZE], uint64_t now)
{
	if (next_note(cm, path_out, mad_out)) {
		cm->stats.sent++;
		return true;
	}
	while (!snt__list_empty(&cm->active)) {
		struct snt__soft_cm_connection *connection =
			snt__container(cm->active.next, struct snt__soft_cm_connection,
				       active);
		unsigned kind;

		start_connection_timer(cm, connection, now);
		if (!connection->sending) {
			snt__unlink(&connection->active);
			continue;
		}
		kind = SNT__CM_REQ + (unsigned)__builtin_ctz(connection->sending);
		connection->sending &= connection->sending - 1;
		if (kind == SNT__CM_REQ || kind == SNT__CM_REP)
			connection->was_sent = true;
		*path_out = connection->path;
		make_mad(cm, connection, kind, mad_out);
		if (!connection->sending)
			snt__unlink(&connection->active);
		cm->stats.sent++;
		return true;
	}
	return false;
}
