/* SPDX-License-Identifier: MIT */
/*
 * A carrier: one RC QP, created here like any lane, and connected by a connection
 * manager. Receives for a few messages are always posted, and at most two of our
 * messages, plus the last one, are in flight, so that a peer which follows the protocol
 * always has room.
 */
#include "conn/carrier_cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sennit/card.h>
#include <sennit/op.h>

#include "conn/cm_loop.h"
#include "conn/feed.h"
#include "conn/message.h"
#include "conn/ping.h"
#include "util/err.h"
#include "vqp/view.h"

#define MS_NS UINT64_C(1000000)
/* How long the last message may take: this, plus some retries of the QP, which may be
 * slow; a context that is closed waits for it. */
#define LINGER_NS      (500 * MS_NS)
#define LINGER_RETRIES 3
#define LINGER_MAX_NS  (2000 * MS_NS)
#define RESOLVE_MS     2000
#define RECVS	       6
#define SENDS	       2
/* One is reserved for the last message, which cannot wait for a slot. */
#define SEND_SLOTS (SENDS + 1)
#define RETRIES	   7
/* Events that are taken at once, before other work gets its turn. */
#define TURN 16
/* The longest ACK timeout of the QPs; a shorter one of the peer's is adopted. */
#define TIMEOUT_MAX 20
/* The part of an error text that a list of addresses may take. */
#define PRESENT_TEXT 256

struct slot {
	struct snt_op op;
	uint8_t *bytes;
};

struct cm {
	struct snt__carrier carrier;
	struct snt__cm_manager *manager;
	struct snt__cm_id *id;
	struct snt_qp *qp;
	struct snt_mem *mem;
	uint8_t *bytes;
	struct snt_timer timer; /* for the last message */
	struct snt_op close;
	bool established;
	bool broken;
	bool closing; /* the QP is being closed, or was never connected */
	unsigned ops;
	unsigned sending;
	uint8_t timeout;
	uint64_t detect_ns;
	struct snt__ping ping;
	struct slot recv[RECVS];
	struct slot send[SEND_SLOTS];
};

static struct cm *cm_of(struct snt__carrier *carrier)
{
	return snt__container(carrier, struct cm, carrier);
}

/*
 * End
 */

static void free_carrier_if_done(struct cm *cm)
{
	if (cm->carrier.conn || cm->ops || cm->qp)
		return;
	snt_timer_stop(&cm->timer);
	if (cm->id)
		cm->manager->cm->table->destroy(cm->id);
	snt_mem_release(cm->mem);
	free(cm->bytes);
	cm->carrier.conn_loop->lingering--;
	free(cm);
}

static void break_cm_carrier(struct cm *cm, int error, const char *text)
{
	if (cm->broken || !cm->carrier.conn)
		return;
	cm->broken = true;
	snt__conn_lost(cm->carrier.conn, error, text);
}

/* The completion of the close, the last of all. */
static void on_carrier_closed(struct snt_op *op)
{
	struct cm *cm = op->arg;

	cm->ops--;
	if (!snt_qp_destroy(cm->qp))
		cm->qp = NULL;
	break_cm_carrier(cm, -ECONNRESET, "it has disconnected");
	free_carrier_if_done(cm);
}

/* May free the carrier, if it has no connection. */
static void end_qp(struct cm *cm)
{
	if (cm->closing) {
		free_carrier_if_done(cm);
		return;
	}
	cm->closing = true;
	snt_timer_stop(&cm->timer);
	snt__ping_stop(&cm->ping);
	if (cm->id && cm->established)
		cm->manager->cm->table->disconnect(cm->id);
	cm->close.done = on_carrier_closed;
	cm->close.arg = cm;
	if (cm->qp && snt__qp_is_connected(cm->qp) &&
	    !snt_op_close(cm->qp, &cm->close)) {
		cm->ops++;
		return;
	}
	if (!snt_qp_destroy(cm->qp))
		cm->qp = NULL;
	break_cm_carrier(cm, -ECONNRESET, "it has disconnected");
	free_carrier_if_done(cm);
}

static void end_patience_with_qp(struct snt_timer *timer)
{
	end_qp(timer->arg);
}

static uint64_t linger_ns(const struct cm *cm)
{
	uint64_t retries = LINGER_RETRIES * (UINT64_C(4096) << cm->timeout);

	return LINGER_NS + retries < LINGER_MAX_NS ? LINGER_NS + retries
						   : LINGER_MAX_NS;
}

static void cm_close(struct snt__carrier *carrier)
{
	struct cm *cm = cm_of(carrier);

	carrier->conn = NULL;
	snt__ping_stop(&cm->ping);
	if (cm->sending && !cm->broken && !cm->closing &&
	    !snt_timer_start(carrier->conn_loop->loop, &cm->timer, linger_ns(cm)))
		return;
	end_qp(cm);
}

/*
 * Messages
 */

static void post_carrier_receive(struct cm *cm, struct slot *slot);

static void on_carrier_received(struct snt_op *op)
{
	struct slot *slot = snt__container(op, struct slot, op);
	struct cm *cm = op->arg;

	cm->ops--;
	if (op->result) {
		if (!cm->closing)
			break_cm_carrier(cm, op->result, "the carrier's QP has failed");
	} else if (cm->carrier.conn && !cm->broken) {
		/* The message may overtake the manager's event. */
		if (!cm->established)
			cm->manager->cm->table->notify(cm->id);
		snt__conn_input(cm->carrier.conn, slot->bytes, (size_t)op->wc.length);
		if (!cm->closing)
			post_carrier_receive(cm, slot);
	}
	free_carrier_if_done(cm);
}

static void post_carrier_receive(struct cm *cm, struct slot *slot)
{
	struct snt_sge sge = { cm->mem, slot->bytes, SNT__MESSAGE_MAX };

	slot->op.done = on_carrier_received;
	slot->op.arg = cm;
	if (snt_op_recv(cm->qp, &slot->op, &sge))
		break_cm_carrier(cm, -EIO, "the carrier's QP takes no receives");
	else
		cm->ops++;
}

static void on_carrier_sent(struct snt_op *op)
{
	struct cm *cm = op->arg;

	cm->ops--;
	cm->sending--;
	if (op->result && !cm->closing)
		break_cm_carrier(cm, op->result, "it does not answer");
	if (cm->carrier.conn)
		snt__conn_writable(cm->carrier.conn);
	else if (!cm->sending || op->result)
		end_qp(cm); /* the last message was sent, or never will be */
}

static bool cm_has_room(struct snt__carrier *carrier, bool last)
{
	const struct cm *cm = cm_of(carrier);

	return !cm->broken && !cm->closing && cm->sending < (last ? SEND_SLOTS : SENDS);
}

static void cm_send(struct snt__carrier *carrier, const void *bytes, size_t length)
{
	struct cm *cm = cm_of(carrier);
	struct slot *slot = cm->send;
	struct snt_sge sge;

	while (snt_op_pending(&slot->op))
		slot++;
	memcpy(slot->bytes, bytes, length);
	sge = (struct snt_sge){ cm->mem, slot->bytes, length };
	slot->op.done = on_carrier_sent;
	slot->op.arg = cm;
	if (snt_op_send(cm->qp, &slot->op, &sge)) {
		break_cm_carrier(cm, -EIO, "the carrier's QP takes no sends");
		return;
	}
	cm->ops++;
	cm->sending++;
}

static void cm_detect(struct snt__carrier *carrier, uint64_t detect_ns)
{
	cm_of(carrier)->detect_ns = detect_ns;
}

static void on_carrier_ping_answered(struct snt__ping *ping, int result)
{
	struct cm *cm = snt__container(ping, struct cm, ping);

	cm->ops--;
	if (result && !cm->closing)
		break_cm_carrier(cm, result, "it does not answer");
	free_carrier_if_done(cm);
}

static void on_carrier_ping_lost(struct snt__ping *ping)
{
	break_cm_carrier(snt__container(ping, struct cm, ping), -ETIMEDOUT,
			 "it does not answer");
}

static void cm_ping(struct snt__carrier *carrier)
{
	struct cm *cm = cm_of(carrier);

	if (cm->broken || cm->closing || cm->ping.state != SNT__PING_IDLE)
		return;
	if (snt__ping_send(&cm->ping, carrier->conn_loop, cm->qp, cm->detect_ns))
		break_cm_carrier(cm, -EIO, "the carrier's QP takes no writes");
	else
		cm->ops++;
}

static void cm_peer(struct snt__carrier *carrier, struct sockaddr_storage *out)
{
	struct cm *cm = cm_of(carrier);
	struct sockaddr_storage local;

	cm->manager->cm->table->addresses(cm->id, &local, out);
}

static const struct snt__carrier_table table = {
	.name = "CM",
	.has_room = cm_has_room,
	.send = cm_send,
	.ping = cm_ping,
	.close = cm_close,
	.detect = cm_detect,
	.peer = cm_peer,
};

/*
 * Creation
 */

static int make_cm_carrier(struct snt__conn_loop *conn_loop,
			   struct snt__cm_manager *manager, struct cm **cm_out)
{
	const size_t size = (size_t)(RECVS + SEND_SLOTS) * SNT__MESSAGE_MAX;
	struct cm *cm = calloc(1, sizeof(*cm));
	int ret = 0;

	if (cm)
		cm->bytes = calloc(1, size);
	if (!cm || !cm->bytes)
		ret = snt__fail(ENOMEM, "no memory for a carrier");
	if (!ret)
		ret = snt_mem_register(conn_loop->ctx, cm->bytes, size,
				       SNT_ACCESS_LOCAL_WRITE, &cm->mem);
	if (ret) {
		free(cm ? cm->bytes : NULL);
		free(cm);
		return ret;
	}
	cm->carrier = (struct snt__carrier){ .table = &table, .conn_loop = conn_loop };
	cm->manager = manager;
	cm->timeout = TIMEOUT_MAX;
	cm->timer.fired = end_patience_with_qp;
	cm->timer.arg = cm;
	cm->ping.ended = on_carrier_ping_answered;
	cm->ping.silent = on_carrier_ping_lost;
	for (unsigned i = 0; i < RECVS; i++)
		cm->recv[i].bytes = cm->bytes + (size_t)i * SNT__MESSAGE_MAX;
	for (unsigned i = 0; i < SEND_SLOTS; i++)
		cm->send[i].bytes = cm->bytes + (size_t)(RECVS + i) * SNT__MESSAGE_MAX;
	conn_loop->lingering++;
	*cm_out = cm;
	return 0;
}

static int make_carrier_qp(struct cm *cm)
{
	const struct snt_qp_opts opts = {
		.size = sizeof(opts),
		.cq = cm->carrier.conn_loop->cq,
		.flags = SNT_QP_PASS_THROUGH,
		.devices = 1u << cm->manager->device[cm->id->device],
		.lane_depth = SEND_SLOTS + 1,
		.send_depth = SEND_SLOTS + 1,
		.recv_depth = RECVS,
		.read_depth = 1,
	};
	int ret = snt_qp_create(cm->carrier.conn_loop->ctx, &opts, &cm->qp);

	for (unsigned i = 0; !ret && i < RECVS; i++) {
		post_carrier_receive(cm, &cm->recv[i]);
		ret = cm->broken ? -EIO : 0;
	}
	return ret;
}

static int move_to(struct cm *cm, enum ibv_qp_state state)
{
	const struct snt_device *device = snt__qp_device(cm->qp);
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;
	int ret = cm->manager->cm->table->qp_attr(cm->id, &attr, &mask);

	if (ret)
		return ret;
	if (state == IBV_QPS_RTS) {
		attr.timeout = cm->timeout;
		attr.retry_cnt = RETRIES;
		attr.rnr_retry = 7;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	} else {
		/* librdmacm leaves it 0, which is 655 ms. */
		attr.min_rnr_timer = SNT__CM_RNR_TIMER;
		mask |= IBV_QP_MIN_RNR_TIMER;
	}
	ret = device->control.modify_qp(snt__qp_physical(cm->qp), &attr, mask);
	return ret ? snt__fail(-ret, "%s: the carrier's QP cannot be connected: %s",
			       device->name, strerror(-ret))
		   : 0;
}

/* The virtual QP has to know that its lane is connected; to which peer does not
 * matter. */
static int connect_carrier_qp(struct cm *cm, uint32_t qpn)
{
	const struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 1,
		.generation = 1,
		.scheme = SNT_SCHEME_SPRAY,
		.flags = SNT_QP_PASS_THROUGH,
		.read_depth = 1,
		.mtu = 4096,
		.lane_depth = SEND_SLOTS + 1,
		.recv_depth = RECVS,
		.fragment_size = 4096,
		.device_count = 1,
		.data_lanes = 1,
		.lane_count = 1,
		.lane = { { .qp_num = qpn } },
	};
	int ret = move_to(cm, IBV_QPS_RTR);

	if (!ret)
		ret = move_to(cm, IBV_QPS_RTS);
	return ret ? ret : snt_qp_connect_adopted(cm->qp, &card);
}

/* How long a QP retries before it fails: a message, and the PING behind it, must fit
 * into the detection time. */
static uint8_t timeout_for(uint32_t detect_ms)
{
	uint64_t each_ns = detect_ms * MS_NS * 5 / 8 / (RETRIES + 1);
	uint8_t timeout = 1;

	while (timeout < TIMEOUT_MAX && (UINT64_C(4096) << (timeout + 1)) <= each_ns)
		timeout++;
	return timeout;
}

/*
 * Private data: u32 "SNTC", u8 version, u8 timeout of QPs
 */

#define MAGIC	  "SNTC"
#define DATA_SIZE 6

/* An MTU that every path has, or the port's if that is less: messages are short. */
static uint8_t least_mtu(const struct cm *cm)
{
	uint32_t mtu = snt__port(snt__qp_device(cm->qp))->info.mtu;

	return mtu && mtu < 1024 ? (uint8_t)(__builtin_ctz(mtu) - 7) : IBV_MTU_1024;
}

static struct snt__cm_param param_of(const struct cm *cm, uint8_t *data)
{
	memcpy(data, MAGIC, 4);
	data[4] = SNT__PROTOCOL_VERSION;
	data[5] = cm->timeout;
	return (struct snt__cm_param){
		.data = data,
		.data_length = DATA_SIZE,
		.qpn = snt__qp_physical(cm->qp)->qp_num,
		.responder_resources = 1,
		.initiator_depth = 1,
		.rnr_retry_count = 7,
		.retry_count = RETRIES,
		.ack_timeout = cm->timeout,
		.mtu = least_mtu(cm),
	};
}

static bool has_sennit_data(const struct snt__cm_event *event)
{
	return event->data_length >= DATA_SIZE && !memcmp(event->data, MAGIC, 4) &&
	       event->data[5] >= 1 && event->data[5] <= 31;
}

/*
 * Events
 */

static void on_resolved(struct cm *cm)
{
	uint8_t data[DATA_SIZE];
	struct snt__cm_param param;
	int ret = make_carrier_qp(cm);

	if (!ret) {
		param = param_of(cm, data);
		ret = cm->manager->cm->table->connect(cm->id, &param);
	}
	if (ret)
		break_cm_carrier(cm, ret, snt_err_text());
}

static void refuse_response(struct cm *cm, int error)
{
	struct snt__err_kept why;

	snt__err_keep(&why);
	cm->manager->cm->table->reject(cm->id, NULL, 0);
	snt__err_restore(&why);
	/* The peer has disconnected since it responded. */
	if (error == -ENOTCONN)
		break_cm_carrier(cm, -ECONNRESET, "it has disconnected");
	else
		break_cm_carrier(cm, error, snt_err_text());
}

static void on_responded(struct cm *cm, const struct snt__cm_event *event)
{
	int ret = has_sennit_data(event)
			  ? connect_carrier_qp(cm, event->qpn)
			  : snt__fail(EPROTO, "it does not speak sennit's protocol");

	if (!ret)
		ret = cm->manager->cm->table->establish(cm->id);
	if (ret) {
		refuse_response(cm, ret);
		return;
	}
	cm->established = true;
	snt__conn_up(cm->carrier.conn);
}

/* NULL: report just the number. */
static const char *reason_text(unsigned reason)
{
	switch (reason) {
	case SNT__CM_REASON_NOBODY_LISTENS:
		return "no listener has that port";
	case SNT__CM_REASON_NO_RESOURCES:
		return "it has no room for another connection; try later";
	case SNT__CM_REASON_STALE:
		return "it still has an earlier connection of ours; try again";
	case SNT__CM_REASON_CONSUMER:
		return "its program does not use sennit, and refused";
	default:
		return NULL;
	}
}

/* Listeners send the reason in an END; managers only a number. */
static void on_rejected(struct cm *cm, const struct snt__cm_event *event)
{
	const char *reason = reason_text(event->reason);
	struct snt__header header;
	char text[64];

	if (!snt__header_unpack(event->data, event->data_length, &header) &&
	    header.type == SNT__MESSAGE_END &&
	    snt__message_size(&header) <= event->data_length)
		snt__conn_input(cm->carrier.conn, event->data,
				snt__message_size(&header));
	if (!reason)
		snprintf(text, sizeof(text),
			 "its connection manager refused, with reason %u",
			 event->reason);
	break_cm_carrier(cm,
			 event->reason == SNT__CM_REASON_NO_RESOURCES ? -EBUSY
								      : -ECONNREFUSED,
			 reason ? reason : text);
}

static void on_cm_event(struct cm *cm, const struct snt__cm_event *event)
{
	/* A closed carrier reports nothing. */
	if (!cm->carrier.conn)
		return;
	switch (event->type) {
	case SNT__CM_EVENT_RESOLVED:
		on_resolved(cm);
		break;
	case SNT__CM_EVENT_RESPONSE:
		on_responded(cm, event);
		break;
	case SNT__CM_EVENT_ESTABLISHED:
		cm->established = true;
		break;
	case SNT__CM_EVENT_REJECTED:
		on_rejected(cm, event);
		break;
	case SNT__CM_EVENT_FAILED:
		break_cm_carrier(cm, event->status, strerror(-event->status));
		break;
	case SNT__CM_EVENT_DISCONNECTED:
		/* Messages that were received come first, then the QP's close. */
		end_qp(cm);
		break;
	default:
		break;
	}
}

/* The manager's error names neither the requested address nor the available ones. */
static int explain_connect(const struct snt__conn_loop *conn_loop,
			   const struct sockaddr *source, const struct sockaddr *target,
			   int error)
{
	char address[SNT__ADDRESS_TEXT], present[PRESENT_TEXT];

	if (source && error == -EADDRNOTAVAIL)
		return snt__fail(EADDRNOTAVAIL,
				 "no device has the source address %s; present: %s",
				 snt__address_text(source, address),
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	if (error == -ENETUNREACH || error == -EADDRNOTAVAIL)
		return snt__fail(-error, "no device leads to %s: %s; present: %s",
				 snt__address_text(target, address), snt_err_text(),
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	return snt__fail(-error, "no connection to %s: %s",
			 snt__address_text(target, address), snt_err_text());
}

int snt__cm_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		    const struct sockaddr *target, uint32_t detect_ms,
		    struct snt_conn *conn, struct snt__carrier **carrier_out)
{
	struct cm *cm = NULL;
	int ret = snt__cm_loop_open(conn_loop);

	if (ret)
		return ret;
	for (unsigned i = 0; !ret && i < conn_loop->cm->count; i++) {
		struct snt__cm_manager *manager = &conn_loop->cm->manager[i];

		ret = make_cm_carrier(conn_loop, manager, &cm);
		if (ret)
			return ret;
		ret = manager->cm->table->resolve(manager->cm, source, target,
						  RESOLVE_MS, &cm->id);
		if (!ret) {
			cm->id->user = cm;
			cm->timeout = timeout_for(detect_ms);
			cm->carrier.conn = conn;
			*carrier_out = &cm->carrier;
			return 0;
		}
		free_carrier_if_done(cm);
		/* Another kind of device may have a route. */
		if ((ret == -ENETUNREACH || ret == -EADDRNOTAVAIL) &&
		    i + 1 < conn_loop->cm->count)
			ret = 0;
	}
	return explain_connect(conn_loop, source, target, ret);
}

/*
 * Listening
 */

struct acceptor {
	struct snt__acceptor acceptor;
	unsigned count;
	struct snt__cm_id *id[SNT__CM_KINDS_MAX];
};

static void reject_request(struct snt__cm_id *id, enum snt__end_code code,
			   const char *text)
{
	uint8_t data[SNT__LAST_WORD_MAX];

	id->cm->table->reject(id, data, snt__last_word(code, text, data));
	id->cm->table->destroy(id);
}

static int accept_cm_request(struct cm *cm, const struct snt__cm_event *event)
{
	uint8_t data[DATA_SIZE];
	struct snt__cm_param param;
	int ret = make_carrier_qp(cm);

	if (!ret)
		ret = connect_carrier_qp(cm, event->qpn);
	if (ret)
		return ret;
	param = param_of(cm, data);
	return cm->manager->cm->table->accept(cm->id, &param);
}

static void take_request(struct snt_listener *listener, struct snt__cm_manager *manager,
			 const struct snt__cm_event *event)
{
	struct cm *cm = NULL;

	if (!snt__listener_has_room(listener) ||
	    make_cm_carrier(snt__listener_conn_loop(listener), manager, &cm)) {
		reject_request(event->id, SNT__END_RESOURCES,
			       "there are too many connections");
		return;
	}
	cm->id = event->id;
	cm->id->user = cm;
	if (event->data[5] < cm->timeout)
		cm->timeout = event->data[5];
	if (accept_cm_request(cm, event)) {
		cm->id = NULL;
		end_qp(cm);
		reject_request(event->id, SNT__END_RESOURCES, "there is no QP left");
		return;
	}
	cm->carrier.conn = snt__listener_heard(listener, &cm->carrier);
	if (cm->carrier.conn)
		snt__conn_up(cm->carrier.conn);
	else
		end_qp(cm);
}

/* A request on its way to a listener in another loop. */
struct passed_request {
	struct snt__arrival arrival;
	struct snt__cm_manager *manager; /* the other loop's */
	struct snt__cm_event event;
};

static struct snt__cm_manager *find_manager(const struct snt__conn_loop *conn_loop,
					    const struct snt__cm_table *table)
{
	for (unsigned i = 0; i < conn_loop->cm->count; i++)
		if (conn_loop->cm->manager[i].cm->table == table)
			return &conn_loop->cm->manager[i];
	return NULL;
}

static int move_request_to_loop(struct snt__arrival *arrival,
				const struct snt__conn_loop *to)
{
	struct passed_request *passed =
		snt__container(arrival, struct passed_request, arrival);
	struct snt__cm_id *id = passed->event.id;

	passed->manager = find_manager(to, id->cm->table);
	id->user = NULL; /* of no loop, until the other thread has it */
	return passed->manager ? id->cm->table->move(id, passed->manager->cm) : -ENOENT;
}

static void take_passed(struct snt__arrival *arrival, struct snt__conn_loop *conn_loop,
			struct snt_listener *listener)
{
	struct passed_request *passed =
		snt__container(arrival, struct passed_request, arrival);

	(void)conn_loop;
	if (listener)
		take_request(listener, passed->manager, &passed->event);
	else
		reject_request(passed->event.id, SNT__END_REFUSED,
			       "the listener is closed");
	free(passed);
}

/* Returns whether the request goes to another listener. */
static bool pass_on_request(struct snt__member *member,
			    const struct snt__cm_event *event)
{
	struct passed_request *passed;

	if (!snt__feed_is_shared(member))
		return false;
	passed = malloc(sizeof(*passed));
	if (!passed)
		return false;
	*passed = (struct passed_request){ .arrival = { .move = move_request_to_loop,
							.take = take_passed },
					   .event = *event };
	if (snt__feed_give(member, &passed->arrival))
		return true;
	free(passed);
	return false;
}

static void on_cm_request(struct snt__cm_manager *manager,
			  const struct snt__cm_event *event)
{
	struct acceptor *acceptor = event->listener->user;
	struct snt_listener *listener = acceptor->acceptor.listener;

	if (!has_sennit_data(event)) {
		reject_request(event->id, SNT__END_PROTOCOL,
			       "this listener serves sennit's connections only");
		return;
	}
	if (!pass_on_request(snt__listener_member(listener), event))
		take_request(listener, manager, event);
}

void snt__cm_ready(struct snt__cm_manager *manager)
{
	struct snt__cm_event event;

	/* Events that are left keep the fd readable. */
	for (unsigned i = 0; i < TURN; i++) {
		if (manager->cm->table->next_event(manager->cm, &event))
			return;
		if (event.type == SNT__CM_EVENT_REQUEST)
			on_cm_request(manager, &event);
		else if (event.id->user)
			on_cm_event(event.id->user, &event);
	}
}

static void cm_acceptor_close(struct snt__acceptor *base)
{
	struct acceptor *acceptor = snt__container(base, struct acceptor, acceptor);

	while (acceptor->count) {
		struct snt__cm_id *id = acceptor->id[--acceptor->count];

		id->cm->table->destroy(id);
	}
	free(acceptor);
}

static const struct snt__acceptor_table acceptor_table = { .close = cm_acceptor_close,
							   .by_cm = true };

/* The same port at all managers that have the address. */
static int listen_all(struct acceptor *acceptor, const struct sockaddr *address,
		      unsigned backlog)
{
	struct snt__conn_loop *conn_loop = acceptor->acceptor.conn_loop;
	struct sockaddr_storage *bound = &acceptor->acceptor.bound, at, peer;
	int ret = -EADDRNOTAVAIL;

	memcpy(bound, address, snt__address_size(address));
	for (unsigned i = 0; i < conn_loop->cm->count; i++) {
		struct snt__cm *cm = conn_loop->cm->manager[i].cm;
		struct snt__cm_id **id = &acceptor->id[acceptor->count];

		ret = cm->table->listen(cm, (struct sockaddr *)bound, backlog, id);
		if (ret == -EADDRNOTAVAIL)
			continue;
		if (ret)
			return ret;
		(*id)->user = acceptor;
		acceptor->count++;
		cm->table->addresses(*id, &at, &peer);
		snt__address_set_port(bound, snt__address_port((struct sockaddr *)&at));
	}
	return acceptor->count ? 0 : ret;
}

static int explain_listen(const struct snt__conn_loop *conn_loop,
			  const struct sockaddr *address, int error)
{
	char text[SNT__ADDRESS_TEXT], present[PRESENT_TEXT];

	snt__address_text(address, text);
	if (error == -EADDRNOTAVAIL)
		return snt__fail(EADDRNOTAVAIL,
				 "no device has the address %s to listen on; present: "
				 "%s",
				 text,
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	if (error == -EADDRINUSE)
		return snt__fail(EADDRINUSE,
				 "%s is in use; choose another port, or 0 for any free "
				 "one",
				 text);
	return snt__fail(-error, "cannot listen on %s: %s", text, snt_err_text());
}

int snt__cm_listen(struct snt__conn_loop *conn_loop, const struct sockaddr *address,
		   unsigned backlog, struct snt_listener *listener,
		   struct snt__acceptor **acceptor_out)
{
	struct acceptor *acceptor;
	int ret = snt__cm_loop_open(conn_loop);

	if (ret)
		return ret;
	acceptor = calloc(1, sizeof(*acceptor));
	if (!acceptor)
		return snt__fail(ENOMEM, "no memory for a listener");
	acceptor->acceptor = (struct snt__acceptor){ .table = &acceptor_table,
						     .conn_loop = conn_loop,
						     .listener = listener };
	ret = listen_all(acceptor, address, backlog);
	if (ret) {
		ret = explain_listen(conn_loop, address, ret);
		cm_acceptor_close(&acceptor->acceptor);
		return ret;
	}
	*acceptor_out = &acceptor->acceptor;
	return 0;
}
