/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CARRIER_CM_H
#define SNT_CONN_CARRIER_CM_H

#include "conn/carrier.h"
#include "conn/cm_loop.h"
#include "conn/message.h"

/* Messages on an RC QP that a connection manager (dev/cm.h) has connected. */

/* @detect_ms: the time within which the loss of the peer is noticed. */
int snt__cm_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		    const struct sockaddr *target, uint32_t detect_ms,
		    struct snt_conn *conn, struct snt__carrier **carrier_out);
int snt__cm_listen(struct snt__conn_loop *conn_loop, const struct sockaddr *address,
		   unsigned backlog, struct snt_listener *listener,
		   struct snt__acceptor **acceptor_out);

/* Does a request, or an answer, come from a carrier of sennit's? */
bool snt__cm_is_sennits(const uint8_t *data, size_t length);
bool snt__cm_is_from_sennit(const struct snt__cm_event *event);

/* A carrier for a request of one; or it is refused. */
void snt__cm_accept(struct snt_listener *listener, struct snt__cm_manager *manager,
		    const struct snt__cm_event *event);

/* acceptor_cm.c: refuses a request, with a text for an end of sennit's. */
void snt__cm_refuse(struct snt__cm_id *id, enum snt__end_code code, const char *text);

/* Closes the managers, which are no longer in use. */
void snt__cm_loop_close(struct snt__conn_loop *conn_loop);

#endif
