/* SPDX-License-Identifier: MIT */
#include "conn/plain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/card.h>

#include "conn/carrier_cm.h"
#include "conn/conn.h"
#include "util/assert.h"
#include "util/err.h"
#include "util/minmax.h"
#include "vqp/view.h"

/* How long the id of a connection that is closed waits for the peer's answer. */
#define LINGER_NS	   UINT64_C(500000000)
#define READ_DEPTH_DEFAULT 16

static void enter_plain_state(struct snt__plain *plain, enum snt__plain_state state)
{
#define TO(state) (1u << SNT__PLAIN_##state)
	static const uint8_t legal[SNT__PLAIN_STATES] = {
		[SNT__PLAIN_RESOLVING] = TO(PREPARING) | TO(OVER),
		[SNT__PLAIN_REQUESTED] = TO(PREPARING) | TO(OVER),
		[SNT__PLAIN_PREPARING] = TO(ASKED) | TO(OVER),
		[SNT__PLAIN_ASKED] = TO(ESTABLISHED) | TO(OVER),
		[SNT__PLAIN_ESTABLISHED] = TO(LEAVING) | TO(OVER),
		[SNT__PLAIN_LEAVING] = TO(OVER),
	};
#undef TO

	snt__assert(legal[plain->state] >> state & 1);
	plain->state = (uint8_t)state;
}

static const struct snt__cm_table *plain_cm_table(const struct snt__plain *plain)
{
	return plain->manager->cm->table;
}

static unsigned device_of(const struct snt__plain *plain)
{
	return plain->manager->device[plain->id->device];
}

/*
 * End
 */

static void free_plain(struct snt__plain *plain)
{
	snt_timer_stop(&plain->timer);
	plain_cm_table(plain)->destroy(plain->id);
	plain->carrier.conn_loop->lingering--;
	free(plain);
}

static void end_plain_linger(struct snt_timer *timer)
{
	free_plain(timer->arg);
}

static void close_plain(struct snt__carrier *carrier)
{
	struct snt__plain *plain = snt__plain_of(carrier);

	carrier->conn = NULL;
	if (plain->state == SNT__PLAIN_ESTABLISHED &&
	    !plain_cm_table(plain)->disconnect(plain->id))
		enter_plain_state(plain, SNT__PLAIN_LEAVING);
	/* Destroying the id at once would not repeat a lost message. */
	if (plain->state == SNT__PLAIN_LEAVING &&
	    !snt_timer_start(carrier->conn_loop->loop, &plain->timer, LINGER_NS))
		return;
	free_plain(plain);
}

static bool has_no_room(struct snt__carrier *carrier, bool last)
{
	(void)carrier;
	(void)last;
	return false;
}

static void send_nothing(struct snt__carrier *carrier, const void *bytes, size_t length)
{
	(void)carrier;
	(void)bytes;
	(void)length;
	snt__assert(false);
}

/* The QP notices the loss of the peer, when it has something to send. */
static void detect_nothing(struct snt__carrier *carrier, uint64_t detect_ns)
{
	(void)carrier;
	(void)detect_ns;
}

static void get_peer(struct snt__carrier *carrier, struct sockaddr_storage *out)
{
	struct snt__plain *plain = snt__plain_of(carrier);
	struct sockaddr_storage local;

	plain_cm_table(plain)->addresses(plain->id, &local, out);
}

static const struct snt__carrier_table plain_table = {
	.name = "plain",
	.has_room = has_no_room,
	.send = send_nothing,
	.close = close_plain,
	.detect = detect_nothing,
	.peer = get_peer,
};

/*
 * The QP
 */

int snt__plain_qp_opts(const struct snt_conn *conn, struct snt_qp_opts *opts_out)
{
	unsigned device = device_of(snt__plain_of(conn->carrier));

	if (conn->qp_opts.devices && !(conn->qp_opts.devices >> device & 1))
		return snt__fail(EINVAL,
				 "the connection is on %s, which snt_qp_opts.devices "
				 "0x%x excludes",
				 conn->conn_loop->ctx->device[device]->name,
				 conn->qp_opts.devices);
	*opts_out = conn->qp_opts;
	opts_out->devices = 1u << device;
	return 0;
}

/* READs and atomics at once that the program asks for, as far as the device can. */
static uint8_t wanted_reads(const struct snt_conn *conn, uint32_t device_max)
{
	uint32_t depth = conn->qp_opts.read_depth ? conn->qp_opts.read_depth
						  : READ_DEPTH_DEFAULT;

	return (uint8_t)(device_max ? snt__min(depth, device_max) : depth);
}

static void want_reads(struct snt__plain *plain)
{
	const struct snt_conn *conn = plain->carrier.conn;
	const struct snt_device *device =
		conn->conn_loop->ctx->device[device_of(plain)];

	plain->reads_in = wanted_reads(conn, snt__port(device)->info.read_in_max);
	plain->reads_out = wanted_reads(conn, snt__port(device)->info.read_out_max);
}

/* The peer's part is known. */
static void agree_on_reads(struct snt__plain *plain, const struct snt__cm_event *event)
{
	plain->reads_in = snt__min(plain->reads_in, event->responder_resources);
	plain->reads_out = snt__min(plain->reads_out, event->initiator_depth);
}

static void set_path(const struct snt_qp_opts *opts, struct ibv_ah_attr *path)
{
	if (opts->service_level)
		path->sl = opts->service_level;
	if (opts->traffic_class)
		path->grh.traffic_class = opts->traffic_class;
}

static int move_plain_qp(struct snt__plain *plain, enum ibv_qp_state state,
			 struct ibv_qp_attr *attr)
{
	struct snt_qp *qp = plain->carrier.conn->qp;
	const struct snt_qp_opts *opts = snt__qp_opts(qp);
	const struct snt_device *device = snt__qp_device(qp);
	int mask = 0, ret;

	*attr = (struct ibv_qp_attr){ .qp_state = state };
	ret = plain_cm_table(plain)->qp_attr(plain->id, attr, &mask);
	if (ret)
		return ret;
	if (state == IBV_QPS_RTR) {
		set_path(opts, &attr->ah_attr);
		attr->max_dest_rd_atomic = plain->reads_in;
		attr->min_rnr_timer = opts->rnr_timer;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	} else {
		attr->timeout = opts->timeout;
		attr->retry_cnt = opts->retry_count;
		attr->rnr_retry = opts->rnr_retry_count;
		attr->max_rd_atomic = plain->reads_out;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	ret = device->control.modify_qp(snt__qp_physical(qp), attr, mask);
	return ret ? snt__fail(-ret, "%s: the QP cannot be connected: %s", device->name,
			       strerror(-ret))
		   : 0;
}

/* What is needed of a card, of a peer that has none. */
static struct snt_card card_of_peer(const struct snt__plain *plain,
				    const struct ibv_qp_attr *rtr)
{
	const struct snt_qp_opts *opts = snt__qp_opts(plain->carrier.conn->qp);
	struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 1,
		.generation = 1,
		.scheme = SNT_SCHEME_SPRAY,
		.flags = SNT_QP_PASS_THROUGH,
		.read_depth = plain->reads_in ? plain->reads_in : 1,
		.mtu = 128u << rtr->path_mtu,
		.lane_depth = opts->lane_depth,
		.recv_depth = opts->recv_depth,
		.fragment_size = opts->fragment_size,
		.device_count = 1,
		.data_lanes = 1,
		.lane_count = 1,
		.lane = { { .qp_num = plain->peer_qpn } },
	};

	memcpy(card.device[0].gid, rtr->ah_attr.grh.dgid.raw,
	       sizeof(card.device[0].gid));
	return card;
}

static int connect_qp(struct snt__plain *plain)
{
	struct snt_conn *conn = plain->carrier.conn;
	struct ibv_qp_attr rtr, rts;
	struct snt_card card;
	int ret = move_plain_qp(plain, IBV_QPS_RTR, &rtr);

	if (!ret)
		ret = move_plain_qp(plain, IBV_QPS_RTS, &rts);
	if (ret)
		return ret;
	card = card_of_peer(plain, &rtr);
	conn->hs.plan.mtu = (uint16_t)card.mtu;
	return snt_qp_connect_adopted(conn->qp, &card);
}

/*
 * Steps of the setup
 */

static struct snt__cm_param plain_param(const struct snt__plain *plain)
{
	const struct snt_conn *conn = plain->carrier.conn;
	const struct snt_qp_opts *opts = snt__qp_opts(conn->qp);

	return (struct snt__cm_param){
		.data = conn->hs.ours.data,
		.data_length = (uint8_t)conn->hs.ours.data_length,
		.qpn = snt__qp_physical(conn->qp)->qp_num,
		.srq = opts->srq != NULL,
		.responder_resources = plain->reads_in,
		.initiator_depth = plain->reads_out,
		.rnr_retry_count = opts->rnr_retry_count,
		.retry_count = opts->retry_count,
		.ack_timeout = opts->timeout,
	};
}

static int ask_peer(struct snt__plain *plain)
{
	struct snt__cm_param param;

	want_reads(plain);
	param = plain_param(plain);
	return plain_cm_table(plain)->connect(plain->id, &param);
}

static int answer_peer(struct snt__plain *plain)
{
	struct snt__cm_event asked = { .responder_resources = plain->reads_in,
				       .initiator_depth = plain->reads_out };
	struct snt__cm_param param;
	int ret;

	want_reads(plain);
	agree_on_reads(plain, &asked);
	ret = connect_qp(plain);
	if (ret)
		return ret;
	param = plain_param(plain);
	return plain_cm_table(plain)->accept(plain->id, &param);
}

int snt__plain_prepared(struct snt_conn *conn)
{
	struct snt__plain *plain = snt__plain_of(conn->carrier);
	int ret = conn->hs.connects ? ask_peer(plain) : answer_peer(plain);

	if (ret)
		return ret;
	enter_plain_state(plain, SNT__PLAIN_ASKED);
	snt__handshake_go_on(&conn->hs, SNT__HS_CARD);
	snt__cm_moment(conn, conn->hs.connects ? SNT_CM_CONNECT : SNT_CM_ACCEPT, 0, 0);
	return 0;
}

int snt__plain_accept(struct snt_conn *conn)
{
	struct snt_qp_opts opts;
	int ret = snt__plain_qp_opts(conn, &opts);

	if (ret)
		return ret;
	conn->hs.ours = conn->offer;
	enter_plain_state(snt__plain_of(conn->carrier), SNT__PLAIN_PREPARING);
	snt__handshake_go_on(&conn->hs, SNT__HS_PLAN);
	return 0;
}

static void plain_established(struct snt__plain *plain)
{
	struct snt_conn *conn = plain->carrier.conn;

	enter_plain_state(plain, SNT__PLAIN_ESTABLISHED);
	snt__handshake_go_on(&conn->hs, SNT__HS_UP);
}

void snt__plain_notice_messages(struct snt_conn *conn)
{
	struct snt__plain *plain = snt__plain_of(conn->carrier);

	if (plain->state == SNT__PLAIN_ASKED && !conn->hs.connects &&
	    snt__qp_has_received(conn->qp))
		plain_cm_table(plain)->notify(plain->id);
}

void snt__plain_disconnect(struct snt_conn *conn)
{
	struct snt__plain *plain = snt__plain_of(conn->carrier);

	conn->hs.bye_sent = true;
	if (plain->state != SNT__PLAIN_ESTABLISHED)
		return;
	if (plain_cm_table(plain)->disconnect(plain->id)) {
		snt__conn_fail(conn, SNT__END_FAILED, -EIO, snt_err_text());
		return;
	}
	enter_plain_state(plain, SNT__PLAIN_LEAVING);
	snt__cm_moment(conn, SNT_CM_DISCONNECT, 0, 0);
}

int snt__plain_reject(struct snt_conn *conn, const void *data, size_t length)
{
	int ret = snt__plain_check_data("a refusal", length, SNT_PLAIN_REFUSAL_MAX);
	struct snt__plain *plain;

	/* The peer may have given up meanwhile. */
	if (ret || snt__handshake_over(&conn->hs))
		return ret;
	plain = snt__plain_of(conn->carrier);
	plain_cm_table(plain)->reject(plain->id, data, length);
	enter_plain_state(plain, SNT__PLAIN_OVER);
	return 0;
}

/*
 * Events
 */

static void lose_plain_peer(struct snt__plain *plain, int error, const char *text)
{
	enter_plain_state(plain, SNT__PLAIN_OVER);
	snt__conn_lost(plain->carrier.conn, error, text);
}

static void on_plain_resolved(struct snt__plain *plain)
{
	struct snt_conn *conn = plain->carrier.conn;

	enter_plain_state(plain, SNT__PLAIN_PREPARING);
	get_peer(&plain->carrier, &conn->peer);
	snt__handshake_go_on(&conn->hs, SNT__HS_PLAN);
}

static void keep_data(struct snt_conn *conn, const struct snt__cm_event *event)
{
	conn->hs.theirs.data_length = event->data_length;
	memcpy(conn->hs.theirs.data, event->data, event->data_length);
}

static void on_plain_response(struct snt__plain *plain,
			      const struct snt__cm_event *event)
{
	struct snt_conn *conn = plain->carrier.conn;
	int ret;

	plain->peer_qpn = event->qpn;
	keep_data(conn, event);
	agree_on_reads(plain, event);
	ret = connect_qp(plain);
	if (!ret)
		ret = plain_cm_table(plain)->establish(plain->id);
	if (!ret) {
		plain_established(plain);
		return;
	}
	snt__conn_fail(conn, SNT__END_FAILED, ret, snt_err_text());
	plain_cm_table(plain)->reject(plain->id, NULL, 0);
	enter_plain_state(plain, SNT__PLAIN_OVER);
}

/* A listener of sennit's that expects a handshake refuses with a text. */
static bool is_refused_by_sennit(struct snt__plain *plain,
				 const struct snt__cm_event *event)
{
	struct snt_conn *conn = plain->carrier.conn;
	char text[sizeof(conn->hs.text)];
	struct snt__header header;
	struct snt__end end;

	if (snt__header_unpack(event->data, event->data_length, &header) ||
	    header.type != SNT__MESSAGE_END ||
	    snt__message_size(&header) > event->data_length ||
	    snt__end_unpack(event->data + SNT__HEADER_SIZE, header.length, &end))
		return false;
	snprintf(text, sizeof(text), "the peer says: %s", end.text);
	snt__handshake_disconnected(&conn->hs, -EPROTO, text, true);
	return true;
}

static void on_plain_rejected(struct snt__plain *plain,
			      const struct snt__cm_event *event)
{
	struct snt_conn *conn = plain->carrier.conn;
	char text[64];

	if (event->reason != SNT__CM_REASON_CONSUMER) {
		lose_plain_peer(plain, snt__cm_reason_error(event->reason),
				snt__cm_reason_text(event->reason, text, sizeof(text)));
		return;
	}
	enter_plain_state(plain, SNT__PLAIN_OVER);
	if (is_refused_by_sennit(plain, event))
		return;
	snt__handshake_disconnected(
		&conn->hs, conn->hs.connects ? -ECONNREFUSED : -ECONNABORTED,
		conn->hs.connects ? "the peer's program refused the connection"
				  : "the peer's program gave the connection up",
		true);
	conn->hs.end.data_length = event->data_length;
	memcpy(conn->hs.end.data, event->data, event->data_length);
}

static void on_plain_disconnected(struct snt__plain *plain)
{
	struct snt_conn *conn = plain->carrier.conn;
	bool left = plain->state == SNT__PLAIN_LEAVING;

	if (plain->state < SNT__PLAIN_ESTABLISHED) {
		lose_plain_peer(plain, -ECONNRESET, "it has disconnected");
		return;
	}
	enter_plain_state(plain, SNT__PLAIN_OVER);
	snt__handshake_disconnected(&conn->hs, 0,
				    left ? "this end has disconnected"
					 : "the peer has disconnected",
				    !left);
}

static void take_event(struct snt__plain *plain, const struct snt__cm_event *event)
{
	switch (event->type) {
	case SNT__CM_EVENT_RESOLVED:
		on_plain_resolved(plain);
		break;
	case SNT__CM_EVENT_RESPONSE:
		on_plain_response(plain, event);
		break;
	case SNT__CM_EVENT_ESTABLISHED:
		if (plain->state == SNT__PLAIN_ASKED)
			plain_established(plain);
		break;
	case SNT__CM_EVENT_REJECTED:
		on_plain_rejected(plain, event);
		break;
	case SNT__CM_EVENT_FAILED:
		lose_plain_peer(plain, event->status,
				snt__cm_failure_text(event->status));
		break;
	case SNT__CM_EVENT_DISCONNECTED:
		on_plain_disconnected(plain);
		break;
	default:
		break;
	}
}

static void on_plain_event(struct snt__cm_end *end, const struct snt__cm_event *event)
{
	struct snt__plain *plain = snt__container(end, struct snt__plain, end);
	struct snt_conn *conn = plain->carrier.conn;

	if (!conn) {
		/* It has waited for this. */
		if (event->type >= SNT__CM_EVENT_REJECTED)
			free_plain(plain);
		return;
	}
	if (plain->state == SNT__PLAIN_OVER ||
	    (snt__handshake_over(&conn->hs) && event->type < SNT__CM_EVENT_REJECTED))
		return;
	snt__cm_moment_of(conn, event);
	take_event(plain, event);
	snt__conn_step(conn);
}

/*
 * Creation
 */

static struct snt__plain *create_plain(struct snt__conn_loop *conn_loop,
				       struct snt__cm_manager *manager,
				       struct snt__cm_id *id,
				       enum snt__plain_state state)
{
	struct snt__plain *plain = calloc(1, sizeof(*plain));

	if (!plain)
		return NULL;
	plain->carrier =
		(struct snt__carrier){ .table = &plain_table, .conn_loop = conn_loop };
	plain->end.event = on_plain_event;
	plain->manager = manager;
	plain->id = id;
	plain->state = (uint8_t)state;
	plain->timer.fired = end_plain_linger;
	plain->timer.arg = plain;
	id->user = &plain->end;
	conn_loop->lingering++;
	return plain;
}

int snt__plain_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		       const struct sockaddr *target, struct snt_conn *conn,
		       struct snt__carrier **carrier_out)
{
	struct snt__cm_manager *manager;
	struct snt__cm_id *id;
	struct snt__plain *plain;
	int ret = snt__cm_loop_resolve(conn_loop, source, target, &manager, &id);

	if (ret)
		return ret;
	plain = create_plain(conn_loop, manager, id, SNT__PLAIN_RESOLVING);
	if (!plain) {
		manager->cm->table->destroy(id);
		return snt__fail(ENOMEM, "no memory for a connection");
	}
	plain->carrier.conn = conn;
	*carrier_out = &plain->carrier;
	return 0;
}

void snt__plain_turn_away(struct snt__cm_id *id)
{
	id->cm->table->reject(id, NULL, 0);
	id->cm->table->destroy(id);
}

void snt__plain_take_request(struct snt_listener *listener,
			     struct snt__cm_manager *manager,
			     const struct snt__cm_event *event)
{
	struct snt__plain *plain = NULL;
	struct snt_conn *conn = NULL;

	if (snt__listener_has_room(listener))
		plain = create_plain(snt__listener_conn_loop(listener), manager,
				     event->id, SNT__PLAIN_REQUESTED);
	if (!plain) {
		snt__plain_turn_away(event->id);
		return;
	}
	conn = snt__listener_heard(listener, &plain->carrier);
	if (!conn) {
		plain_cm_table(plain)->reject(plain->id, NULL, 0);
		free_plain(plain);
		return;
	}
	plain->carrier.conn = conn;
	plain->peer_qpn = event->qpn;
	plain->reads_in = event->responder_resources;
	plain->reads_out = event->initiator_depth;
	get_peer(&plain->carrier, &conn->peer);
	keep_data(conn, event);
	snt__cm_moment_of(conn, event);
	snt__conn_step(conn);
}
