/* SPDX-License-Identifier: MIT */
/* Calls of the program on connections. */
#include <errno.h>
#include <string.h>

#include "dev/soft/cm.h"
#include "util/minmax.h"

#define PORT_FIRST 0xc000 /* the first of the ports that are chosen here */

/*
 * Active
 */

int snt__soft_cm_resolve(struct snt__soft_cm_channel *channel, const uint8_t source[16],
			 const uint8_t target[16], uint16_t port,
			 struct snt__soft_cm_connection **connection_out)
{
	struct snt__soft_cm_connection *connection =
		snt__soft_cm_take(channel, SNT__SOFT_CM_IDLE);

	if (!connection)
		return -ENOBUFS;
	memcpy(connection->path.source, source, 16);
	memcpy(connection->path.target, target, 16);
	connection->local_port =
		PORT_FIRST | (snt__soft_cm_random(channel->cm) & 0x3fff);
	connection->peer_port = port;
	snt__soft_cm_raise(connection, SNT__CM_EVENT_RESOLVED);
	*connection_out = connection;
	return 0;
}

/* Common to connect and accept. */
static void set_local_qp(const struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 const struct snt__cm_param *param)
{
	connection->local_qpn = param->qpn & SNT__QPN_MASK;
	connection->local_srq = param->srq;
	connection->offered_resources =
		snt__min(param->responder_resources, cm->config.read_max);
	connection->offered_depth =
		snt__min(param->initiator_depth, cm->config.read_max);
	connection->offered_rnr_retry_count = param->rnr_retry_count & 7;
}

int snt__soft_cm_connect(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 const struct snt__cm_param *param)
{
	if (connection->state != SNT__SOFT_CM_IDLE)
		return -ENOTCONN;
	if (param->data_length > SNT__CM_REQUEST_DATA || param->mtu > cm->config.mtu ||
	    param->ack_timeout > 31)
		return -EINVAL;
	set_local_qp(cm, connection, param);
	connection->transaction = snt__soft_cm_random(cm) << 32 | connection->local_id;
	connection->mtu = param->mtu ? param->mtu : cm->config.mtu;
	connection->ack_timeout =
		(uint8_t)(param->ack_timeout ? param->ack_timeout
					     : cm->config.ack_timeout);
	connection->retry_count = param->retry_count & 7;
	connection->hop_limit = 64;
	connection->flow_label = 1 + (snt__soft_cm_random(cm) & 0x7ffff);
	if (param->data_length)
		memcpy(connection->request, param->data, param->data_length);
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_REQ_SENT);
	snt__soft_cm_send(cm, connection, SNT__CM_REQ);
	return 0;
}

int snt__soft_cm_establish(struct snt__soft_cm *cm,
			   struct snt__soft_cm_connection *connection)
{
	if (connection->state != SNT__SOFT_CM_REP_RECEIVED)
		return -ENOTCONN;
	/* An MRA that has not been sent is no longer needed. */
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_ESTABLISHED);
	snt__soft_cm_send(cm, connection, SNT__CM_RTU);
	return 0;
}

/*
 * Passive
 */

int snt__soft_cm_accept(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection,
			const struct snt__cm_param *param)
{
	if (connection->state != SNT__SOFT_CM_REQ_RECEIVED)
		return -ENOTCONN;
	if (param->data_length > SNT__CM_RESPONSE_DATA)
		return -EINVAL;
	set_local_qp(cm, connection, param);
	connection->responder_resources = snt__min(connection->responder_resources,
						   connection->offered_resources);
	connection->initiator_depth =
		snt__min(connection->initiator_depth, connection->offered_depth);
	connection->answer_length = param->data_length;
	if (param->data_length)
		memcpy(connection->answer, param->data, param->data_length);
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_REP_SENT);
	snt__soft_cm_send(cm, connection, SNT__CM_REP);
	return 0;
}

void snt__soft_cm_notify(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection)
{
	if (connection->state != SNT__SOFT_CM_REP_SENT)
		return;
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_ESTABLISHED);
	snt__soft_cm_raise(connection, SNT__CM_EVENT_ESTABLISHED);
}

/*
 * Both
 */

int snt__soft_cm_reject(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection, const void *data,
			size_t length)
{
	if (connection->state != SNT__SOFT_CM_REQ_RECEIVED &&
	    connection->state != SNT__SOFT_CM_REP_RECEIVED)
		return -ENOTCONN;
	if (length > SNT__CM_REJECT_DATA)
		return -EINVAL;
	/* Undelivered events no longer matter to the program. */
	snt__soft_cm_hush(connection);
	connection->answer_length = (uint8_t)length;
	if (length)
		memcpy(connection->answer, data, length);
	snt__soft_cm_refuse(cm, connection, SNT__CM_REASON_CONSUMER);
	return 0;
}

static void start_disconnect(struct snt__soft_cm *cm,
			     struct snt__soft_cm_connection *connection)
{
	/* An RTU that has not been sent goes first. */
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_DREQ_SENT);
	snt__soft_cm_send(cm, connection, SNT__CM_DREQ);
}

int snt__soft_cm_disconnect(struct snt__soft_cm *cm,
			    struct snt__soft_cm_connection *connection)
{
	if (connection->state == SNT__SOFT_CM_ESTABLISHED)
		start_disconnect(cm, connection);
	return connection->state >= SNT__SOFT_CM_DREQ_SENT ? 0 : -ENOTCONN;
}

/* Tells the peer, as far as it knows of us, that this end is gone. A peer that may
 * count on the connection has to learn it: it gets a message that it must answer. */
static void tell_peer_of_end(struct snt__soft_cm *cm,
			     struct snt__soft_cm_connection *connection)
{
	bool passive_waits =
		connection->state == SNT__SOFT_CM_REP_SENT && connection->was_sent;

	if (connection->state >= SNT__SOFT_CM_DREQ_SENT)
		return;
	if (connection->state == SNT__SOFT_CM_ESTABLISHED || passive_waits) {
		connection->sending &= ~(1u << (SNT__CM_REP - SNT__CM_REQ));
		start_disconnect(cm, connection);
		return;
	}
	connection->answer_length = 0;
	snt__soft_cm_refuse(cm, connection,
			    connection->state == SNT__SOFT_CM_REQ_SENT
				    ? SNT__CM_REASON_TIMEOUT
				    : SNT__CM_REASON_CONSUMER);
}

void snt__soft_cm_release(struct snt__soft_cm *cm,
			  struct snt__soft_cm_connection *connection)
{
	if (connection->state == SNT__SOFT_CM_IDLE ||
	    connection->state == SNT__SOFT_CM_DONE ||
	    (connection->state == SNT__SOFT_CM_REQ_SENT && !connection->was_sent)) {
		snt__soft_cm_give(cm, connection);
		return;
	}
	tell_peer_of_end(cm, connection);
	snt__soft_cm_linger(cm, connection);
}

/*
 * QPs
 */

static void attr_init(struct ibv_qp_attr *attr, int *mask)
{
	attr->pkey_index = 0;
	attr->port_num = 1;
	attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static void attr_rtr(const struct snt__soft_cm_connection *connection,
		     struct ibv_qp_attr *attr, int *mask)
{
	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = 1;
	attr->ah_attr.grh.flow_label = connection->flow_label;
	attr->ah_attr.grh.traffic_class = connection->traffic_class;
	attr->ah_attr.grh.hop_limit = connection->hop_limit;
	memcpy(attr->ah_attr.grh.dgid.raw, connection->path.target, 16);
	attr->path_mtu = (enum ibv_mtu)connection->mtu;
	attr->dest_qp_num = connection->remote_qpn;
	attr->rq_psn = connection->local_psn;
	attr->max_dest_rd_atomic = connection->responder_resources;
	attr->min_rnr_timer = SNT__CM_RNR_TIMER;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static void attr_rts(const struct snt__soft_cm_connection *connection,
		     struct ibv_qp_attr *attr, int *mask)
{
	attr->timeout = connection->ack_timeout;
	attr->retry_cnt = connection->retry_count;
	attr->rnr_retry = connection->rnr_retry_count;
	attr->sq_psn = connection->remote_psn;
	attr->max_rd_atomic = connection->initiator_depth;
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

int snt__soft_cm_qp_attr(const struct snt__soft_cm *cm,
			 const struct snt__soft_cm_connection *connection,
			 struct ibv_qp_attr *attr, int *mask_out)
{
	(void)cm;
	if (attr->qp_state == IBV_QPS_INIT) {
		attr_init(attr, mask_out);
		return 0;
	}
	if (attr->qp_state != IBV_QPS_RTR && attr->qp_state != IBV_QPS_RTS)
		return -EINVAL;
	if (!connection->remote_qpn)
		return -ENOTCONN;
	if (attr->qp_state == IBV_QPS_RTR)
		attr_rtr(connection, attr, mask_out);
	else
		attr_rts(connection, attr, mask_out);
	return 0;
}
