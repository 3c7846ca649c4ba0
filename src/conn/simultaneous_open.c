/* SPDX-License-Identifier: MIT */
/*
 * Two ends that connect to each other at the same time, under one name. The attempt of
 * the end with the greater identity counts. The other end gives up its own and takes
 * over the carrier of the incoming one; the first answers incoming attempts with END
 * MEET. Both decide by the same two numbers, so that neither needs to know what the
 * other has seen so far.
 */
#include <errno.h>
#include <string.h>

#include "conn/conn.h"
#include "vqp/close.h"
#include "vqp/view.h"

/* Not established, nor about to be: with a QP that is not connected, or of an attempt before. */
static bool may_be_taken_over(const struct snt_conn *conn)
{
	if (snt__conn_is_idle(conn))
		return true;
	return conn->state == SNT__CONN_ATTEMPT && conn->hs.state != SNT__HS_UP &&
	       !(conn->qp && snt__qp_is_connected(conn->qp));
}

static struct snt_conn *find_own_attempt(const struct snt_conn *conn)
{
	struct snt__link *list = &conn->conn_loop->meetings;

	if (!conn->hs.theirs.meets || !conn->listener)
		return NULL;
	for (struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_conn *ours =
			snt__container(at, struct snt_conn, in_meetings);

		if (ours->meet == conn->listener && may_be_taken_over(ours) &&
		    !strcmp(ours->offer.name, conn->hs.theirs.name))
			return ours;
	}
	return NULL;
}

bool snt__simultaneous_expected(const struct snt_conn *conn)
{
	return conn->hs.peer_hello.identity != conn->conn_loop->identity &&
	       find_own_attempt(conn);
}

/* Drops what our attempt has created so far. */
static bool give_up_own(struct snt_conn *ours)
{
	if (!snt__handshake_over(&ours->hs)) {
		snt__conn_fail(ours, SNT__END_MEET, -EALREADY,
			       "the other end's attempt is the one that counts");
		snt__conn_step(ours);
	}
	snt__conn_shut(ours);
	return !snt__conn_drop_qp(ours);
}

/* Takes over everything of the incoming connection. */
static void take_over_incoming(struct snt_conn *ours, struct snt_conn *theirs)
{
	ours->hs = theirs->hs;
	memcpy(ours->secret, theirs->secret, sizeof(ours->secret));
	ours->secret_length = theirs->secret_length;
	ours->hs.secret = ours->secret_length ? ours->secret : NULL;
	ours->carrier = theirs->carrier;
	ours->carrier->conn = ours;
	ours->carried = true;
	ours->peer = theirs->peer;
	ours->events = 0;
	ours->due = 0;
	if (ours->state != SNT__CONN_ATTEMPT) {
		ours->began_at = theirs->began_at;
		snt__conn_enter(ours, SNT__CONN_ATTEMPT);
	}
	theirs->carrier = NULL;
	snt__conn_free(theirs);
	snt__handshake_accept(&ours->hs, &ours->offer);
	snt__conn_step(ours);
}

bool snt__simultaneous_open(struct snt_conn *conn)
{
	struct snt_conn *ours = find_own_attempt(conn);

	if (snt__handshake_over(&conn->hs))
		return false;
	if (!ours) {
		snt__listener_request(conn);
		return false;
	}
	if (conn->hs.peer_hello.identity < conn->conn_loop->identity) {
		snt__conn_fail(conn, SNT__END_MEET, -EALREADY,
			       "this end's attempt is the one that counts");
		return false;
	}
	if (ours->qp && !snt__qp_is_over(ours->qp)) {
		snt__conn_fail(conn, SNT__END_RESOURCES, -EBUSY,
			       "the QP of the connection that was lost is still being "
			       "closed");
		return false;
	}
	if (give_up_own(ours))
		take_over_incoming(ours, conn);
	return true;
}

bool snt__simultaneous_awaits(struct snt_conn *conn)
{
	if (!conn->meet || !conn->hs.by_peer || conn->hs.end.code != SNT__END_MEET ||
	    conn->state != SNT__CONN_ATTEMPT)
		return false;
	snt__conn_enter(conn, SNT__CONN_AWAITING);
	return !snt_timer_start_at(conn->conn_loop->loop, &conn->timer,
				   snt__conn_deadline(conn));
}
