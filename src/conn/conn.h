/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CONN_H
#define SNT_CONN_CONN_H

#include <sennit/conn.h>
#include <sennit/op.h>

#include "conn/carrier.h"
#include "conn/cm_loop.h"
#include "conn/endpoint.h"
#include "conn/handshake.h"
#include "conn/lookup.h"
#include "conn/probing.h"

/*
 * A connection: the engine (handshake.h), its carrier (carrier.h), the probe QPs that try
 * pairs of devices (probing.h), and the program's QP. conn_step.c carries out the
 * engine's actions; conn.c is the program's interface.
 */

/* In snt_conn::events, besides the public ones: report to the listener's program. */
#define SNT__CONN_REQUEST 0

/*
 * A connection as the program sees it. What the two ends say to each other meanwhile is
 * the engine's state (handshake.h), which an attempt goes through once; a connection may
 * take several attempts.
 *
 *	state        begins with                           leads to
 *
 *	ATTEMPT      snt_conn_connect(), a peer, a retry   ESTABLISHED, LEAVING, AWAITING,
 *	                                                   PAUSING, OVER
 *	ESTABLISHED  the event CONNECTED                   LEAVING, PAUSING, OVER
 *	LEAVING      snt_conn_disconnect()                 OVER
 *	AWAITING     the other end's attempt counts        ATTEMPT (its), PAUSING, OVER
 *	PAUSING      a loss, before the next attempt       ATTEMPT, OVER
 *	OVER         the event OVER
 *
 * An attempt that ends goes on to the next state when its QP has been closed.
 */
enum snt__conn_state {
	SNT__CONN_ATTEMPT,
	SNT__CONN_ESTABLISHED,
	SNT__CONN_LEAVING,
	SNT__CONN_AWAITING,
	SNT__CONN_PAUSING,
	SNT__CONN_OVER,
	SNT__CONN_STATES,
};

/* What the connection's next turn in the loop does. */
enum snt__conn_due {
	/* It may be the other end's counterpart of an attempt of ours. */
	SNT__CONN_DUE_MEET = 1 << 0,
	SNT__CONN_DUE_PROBE = 1 << 1, /* its turn to try pairs has come */
	/* The program has had its turn with the QP, which can be connected now. */
	SNT__CONN_DUE_PREPARED = 1 << 2,
};

/* An event of a connection manager, or a call to it. */
struct snt__cm_moment {
	uint8_t event; /* enum snt_cm_event */
	int status;
	unsigned reason;
	uint64_t after_ns; /* since the attempt began */
};

#define SNT__CM_MOMENTS 8

struct snt_conn {
	struct snt__conn_loop *conn_loop;
	struct snt__worker worker;
	struct snt_timer timer; /* of the engine, of waiting for sends, of a retry */
	struct snt__handshake hs;
	struct snt__carrier *carrier; /* NULL: not yet, or no longer */
	struct snt__probing *probing;
	struct snt_listener *listener; /* its source; NULL: none, or destroyed */
	struct snt__link in_listener;
	struct snt__link in_requests;
	struct snt__link in_meetings;
	struct snt_listener *meet;   /* the peer may connect to it at the same time */
	struct snt__link in_waiting; /* for a turn to try pairs */

	struct snt_qp_opts qp_opts;
	struct snt_qp *qp;
	struct snt_op close_op;
	bool qp_closing; /* of the QP; it is also closed while the connection goes on */

	uint8_t state;	/* enum snt__conn_state; changed by snt__conn_enter() */
	uint8_t due;	/* a bit for each enum snt__conn_due */
	uint8_t events; /* to be reported: a bit for each enum snt_conn_event */
	/* Independent of the state. Ownership: the program holds it. */
	bool programs;
	/* The program owes an answer, even to a peer that has gone meanwhile. */
	bool requested;
	/* A stream's: a QP of one lane is pass-through, since no program sees its WRs. */
	bool single_passes;
	bool carried; /* of the carrier: messages can go out */
	struct snt__conn_loop_waiter *waiter;

	void (*event)(void *arg, struct snt_conn *conn, enum snt_conn_event event);
	void *arg;
	uint64_t setup_ns;
	uint64_t detect_ns;
	uint64_t close_wr_id;
	uint64_t began_at;
	uint64_t leave_by;  /* the deadline of disconnecting */
	uint64_t broken_at; /* when its QP was found broken; 0: it is not */
	uint64_t took_ns;

	enum snt_carrier carrier_kind;
	/* Of the last attempt; those that do not fit are replaced by the last one. */
	struct snt__cm_moment moment[SNT__CM_MOMENTS];
	unsigned moment_count;

	/* The end that connects: everything that a retry needs. */
	char *host; /* to be resolved; NULL: not needed */
	uint16_t port;
	struct snt__lookup *lookup; /* in progress */
	struct snt__watch lookup_watch;
	struct sockaddr_storage target; /* AF_UNSPEC: not resolved yet */
	struct sockaddr_storage source; /* AF_UNSPEC: any */
	uint32_t retries;
	uint32_t attempts;
	struct snt__offer offer;

	size_t secret_length;
	uint8_t secret[SNT_SECRET_MAX];
	struct sockaddr_storage peer;
};

/* conn.c: changes the state. */
void snt__conn_enter(struct snt_conn *conn, enum snt__conn_state state);

/* Connected by a connection manager alone: plain.h. */
static inline bool snt__conn_is_plain(const struct snt_conn *conn)
{
	return conn->carrier_kind == SNT_CARRIER_PLAIN;
}

/* It waits, without an attempt of its own, for something that may take long. */
static inline bool snt__conn_is_idle(const struct snt_conn *conn)
{
	return conn->state == SNT__CONN_AWAITING || conn->state == SNT__CONN_PAUSING;
}

/* conn_step.c: carries out everything that can be done now, except for callbacks. */
void snt__conn_step(struct snt_conn *conn);

/* conn_step.c: the connection's turn to try pairs has come. */
void snt__conn_probe(struct snt_conn *conn);

/* conn_step.c: the program has had its turn with the QP. */
void snt__conn_prepared(struct snt_conn *conn);

/* conn_step.c: ends it for a reason of the engine. */
void snt__conn_fail(struct snt_conn *conn, enum snt__end_code code, int error,
		    const char *text);

/* conn.c: a connection that the program does not have yet. */
int snt__conn_make(struct snt__conn_loop *conn_loop,
		   const struct snt_endpoint *endpoint, struct snt_conn **conn_out);
/* conn.c: as the public functions, for QPs whose WRs only the library sees: if a single lane is
 * planned, it is a pass-through lane. */
int snt__conn_connect_stream(struct snt_loop *loop, const struct snt_endpoint *endpoint,
			     const struct snt_conn_opts *opts,
			     struct snt_conn **conn_out);
int snt__conn_accept_stream(struct snt_conn *conn, const struct snt_conn_opts *opts);
/* conn.c: frees it, with everything it owns. */
void snt__conn_free(struct snt_conn *conn);

/* listener.c: for a connection that came from a listener. */
int snt__listener_tell(struct snt_conn *conn); /* calls requested() */
void snt__listener_request(struct snt_conn *conn);
void snt__listener_forget(struct snt_conn *conn);
/* listener.c: a connection that has ended is kept, and takes up a place of the backlog,
 * until it is dropped. */
void snt__listener_keep_dead(struct snt_listener *listener);
void snt__listener_drop_dead(struct snt_listener *listener);

/* simultaneous_open.c: may it be the counterpart of one of our attempts? */
bool snt__simultaneous_expected(const struct snt_conn *conn);
/* simultaneous_open.c: decides between the two. True: the connection has been taken over, or will
 * be. */
bool snt__simultaneous_open(struct snt_conn *conn);
/* simultaneous_open.c: for an attempt that is over: wait for the other end's? */
bool snt__simultaneous_awaits(struct snt_conn *conn);

/* conn.c: destroys the QP, if there is one, for another attempt or for good. */
int snt__conn_drop_qp(struct snt_conn *conn);

/* conn.c: releases everything that an attempt created, but not the connection. */
void snt__conn_shut(struct snt_conn *conn);

/* cm_moment.c */
void snt__cm_moment(struct snt_conn *conn, enum snt_cm_event event, int status,
		    unsigned reason);
void snt__cm_moment_of(struct snt_conn *conn, const struct snt__cm_event *event);
const char *snt__cm_moment_text(unsigned event);

/* offer.c: the offer for the context's devices, without what the endpoint adds. `qp` is a
 * copy of opts->qp in our size. */
int snt__offer_make(const struct snt__conn_loop *conn_loop,
		    const struct snt_conn_opts *opts, const struct snt_qp_opts *qp,
		    struct snt__offer *offer);
int snt__offer_check_data(const void *data, size_t length);

/* The end of the setup time. */
static inline uint64_t snt__conn_deadline(const struct snt_conn *conn)
{
	uint64_t deadline = conn->began_at + conn->setup_ns;

	return deadline < conn->began_at ? UINT64_MAX : deadline;
}

#endif
