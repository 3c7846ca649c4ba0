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
#include <sennit/card.h>
#include <sennit/op.h>

#include "conn/cm_loop.h"
#include "conn/conn.h"
#include "conn/message.h"
#include "conn/ping.h"
#include "util/err.h"
#include "vqp/view.h"

#define MS_NS UINT64_C(1000000)
/* How long the last message may take: this, plus some retries of the QP, which may be
 * slow; a loop that is closed waits for a shorter time. */
#define LINGER_NS      (500 * MS_NS)
#define LINGER_RETRIES 3
#define LINGER_MAX_NS  (2000 * MS_NS)
#define RECVS	       6
#define SENDS	       2
/* One is reserved for the last message, which cannot wait for a slot. */
#define SEND_SLOTS (SENDS + 1)
#define RETRIES	   7
/* The longest ACK timeout of the QPs; a shorter one of the peer's is adopted. */
#define TIMEOUT_MAX 20

struct slot {
	struct snt_op op;
	uint8_t *bytes;
};

struct cm {
	struct snt__carrier carrier;
	struct snt__cm_end end;
	struct snt__cm_manager *manager;
	struct snt__cm_id *id;
	struct snt_qp *qp;
	struct snt_mem *mem;
	uint8_t *bytes;
	struct snt_timer timer; /* for the last message */
	struct snt__last_word last_word;
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
	snt__unlink(&cm->last_word.link);
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

static void give_up_last_cm_word(struct snt__last_word *word)
{
	end_qp(snt__container(word, struct cm, last_word));
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
	    !snt_timer_start(carrier->conn_loop->loop, &cm->timer, linger_ns(cm))) {
		snt__list_append(&carrier->conn_loop->last_words, &cm->last_word.link);
		return;
	}
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

static void on_cm_event(struct snt__cm_end *end, const struct snt__cm_event *event);

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
	cm->end.event = on_cm_event;
	cm->manager = manager;
	cm->timeout = TIMEOUT_MAX;
	cm->timer.fired = end_patience_with_qp;
	cm->timer.arg = cm;
	cm->last_word.give_up = give_up_last_cm_word;
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

bool snt__cm_is_sennits(const uint8_t *data, size_t length)
{
	return length >= DATA_SIZE && !memcmp(data, MAGIC, 4) && data[5] >= 1 &&
	       data[5] <= 31;
}

bool snt__cm_is_from_sennit(const struct snt__cm_event *event)
{
	return snt__cm_is_sennits(event->data, event->data_length);
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
	int ret = snt__cm_is_from_sennit(event)
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

/* Listeners send the reason in an END; managers only a number. */
static void on_rejected(struct cm *cm, const struct snt__cm_event *event)
{
	struct snt__header header;
	char text[64];

	if (!snt__header_unpack(event->data, event->data_length, &header) &&
	    header.type == SNT__MESSAGE_END &&
	    snt__message_size(&header) <= event->data_length)
		snt__conn_input(cm->carrier.conn, event->data,
				snt__message_size(&header));
	break_cm_carrier(cm, snt__cm_reason_error(event->reason),
			 event->reason == SNT__CM_REASON_CONSUMER
				 ? "its program does not use sennit, and refused"
				 : snt__cm_reason_text(event->reason, text,
						       sizeof(text)));
}

static void on_cm_event(struct snt__cm_end *end, const struct snt__cm_event *event)
{
	struct cm *cm = snt__container(end, struct cm, end);

	/* A closed carrier reports nothing. */
	if (!cm->carrier.conn)
		return;
	snt__cm_moment_of(cm->carrier.conn, event);
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
		break_cm_carrier(cm, event->status,
				 snt__cm_failure_text(event->status));
		break;
	case SNT__CM_EVENT_DISCONNECTED:
		/* Messages that were received come first, then the QP's close. */
		end_qp(cm);
		break;
	default:
		break;
	}
}

int snt__cm_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		    const struct sockaddr *target, uint32_t detect_ms,
		    struct snt_conn *conn, struct snt__carrier **carrier_out)
{
	struct snt__cm_manager *manager;
	struct snt__cm_id *id;
	struct cm *cm = NULL;
	int ret = snt__cm_loop_resolve(conn_loop, source, target, &manager, &id);

	if (ret)
		return ret;
	ret = make_cm_carrier(conn_loop, manager, &cm);
	if (ret) {
		manager->cm->table->destroy(id);
		return ret;
	}
	cm->id = id;
	cm->id->user = &cm->end;
	cm->timeout = timeout_for(detect_ms);
	cm->carrier.conn = conn;
	*carrier_out = &cm->carrier;
	return 0;
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

void snt__cm_accept(struct snt_listener *listener, struct snt__cm_manager *manager,
		    const struct snt__cm_event *event)
{
	struct cm *cm = NULL;

	if (!snt__listener_has_room(listener) ||
	    make_cm_carrier(snt__listener_conn_loop(listener), manager, &cm)) {
		snt__cm_refuse(event->id, SNT__END_RESOURCES,
			       "there are too many connections");
		return;
	}
	cm->id = event->id;
	cm->id->user = &cm->end;
	if (event->data[5] < cm->timeout)
		cm->timeout = event->data[5];
	if (accept_cm_request(cm, event)) {
		cm->id = NULL;
		end_qp(cm);
		snt__cm_refuse(event->id, SNT__END_RESOURCES, "there is no QP left");
		return;
	}
	cm->carrier.conn = snt__listener_heard(listener, &cm->carrier);
	if (cm->carrier.conn)
		snt__conn_up(cm->carrier.conn);
	else
		end_qp(cm);
}
