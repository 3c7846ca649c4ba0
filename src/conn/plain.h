/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_PLAIN_H
#define SNT_CONN_PLAIN_H

#include <sennit/conn.h>

#include "conn/carrier.h"
#include "conn/cm_loop.h"

/*
 * Plain connections: a connection manager connects the program's QP itself, with any peer
 * that has one. In place of a carrier stands the manager's id, which carries no messages:
 *
 *	state        begins with                      leads to
 *
 *	RESOLVING    the end that connects            PREPARING, OVER
 *	REQUESTED    a peer's request                 PREPARING, OVER
 *	PREPARING    the QP is being made             ASKED, OVER
 *	ASKED        the request, or answer, is out   ESTABLISHED, OVER
 *	ESTABLISHED  the QP is connected              LEAVING, OVER
 *	LEAVING      this end has disconnected        OVER
 *	OVER         the id has had its final event
 *
 * An id that is closed while the peer may still count on it disconnects, and waits for the
 * peer's answer for a while.
 */
enum snt__plain_state {
	SNT__PLAIN_RESOLVING,
	SNT__PLAIN_REQUESTED,
	SNT__PLAIN_PREPARING,
	SNT__PLAIN_ASKED,
	SNT__PLAIN_ESTABLISHED,
	SNT__PLAIN_LEAVING,
	SNT__PLAIN_OVER,
	SNT__PLAIN_STATES,
};

struct snt__plain {
	struct snt__carrier carrier;
	struct snt__cm_end end;
	struct snt__cm_manager *manager;
	struct snt__cm_id *id;
	struct snt_timer timer; /* closed: how long the peer's answer is awaited */
	uint8_t state;		/* enum snt__plain_state */
	/* READs and atomics at once: those that the peer may send, and ours. */
	uint8_t reads_in, reads_out;
	uint32_t peer_qpn;
};

static inline struct snt__plain *snt__plain_of(struct snt__carrier *carrier)
{
	return snt__container(carrier, struct snt__plain, carrier);
}

int snt__plain_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		       const struct sockaddr *target, struct snt_conn *conn,
		       struct snt__carrier **carrier_out);

/* A request, which becomes a connection of the listener, or is refused. */
void snt__plain_take_request(struct snt_listener *listener,
			     struct snt__cm_manager *manager,
			     const struct snt__cm_event *event);

/* Refuses a request that never becomes a connection; a plain peer is told no reason. */
void snt__plain_turn_away(struct snt__cm_id *id);

/* The program accepts a request, by the options in the connection. -EINVAL: the request is
 * on a device that they exclude. */
int snt__plain_accept(struct snt_conn *conn);

/* Refuses a request that the program has not accepted. -EINVAL: too much data. */
int snt__plain_reject(struct snt_conn *conn, const void *data, size_t length);

/* The options of the connection's QP, on the device that the manager has chosen. 0, or a
 * negative errno with a text: it is none that the program wants. */
int snt__plain_qp_opts(const struct snt_conn *conn, struct snt_qp_opts *opts_out);

/* The program has had its turn with the QP: asks the peer, or answers it. */
int snt__plain_prepared(struct snt_conn *conn);

/* The peer's confirmation may be late, or lost, while its messages arrive already. */
void snt__plain_notice_messages(struct snt_conn *conn);

/* Everything posted has been acknowledged. */
void snt__plain_disconnect(struct snt_conn *conn);

/* plain_check.c: what the options of a plain connection must not have. 0 or -EINVAL. */
int snt__plain_check_endpoint(const struct snt_endpoint *endpoint);
int snt__plain_check_opts(const struct snt_conn_opts *opts,
			  const struct snt_qp_opts *qp, bool connects);
int snt__plain_check_data(const char *what, size_t length, size_t max);

#endif
