/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_FEED_H
#define SNT_CONN_FEED_H

#include <pthread.h>
#include <sennit/conn.h>
#include <sennit/loop.h>

#include "conn/carrier.h"
#include "util/list.h"

/*
 * Listeners in several loops that share a port. One of them has the acceptor; its peers are
 * dealt out to all in turn, before anything is known of them. From then on a connection
 * belongs to its listener, and no other thread uses it.
 *
 * The thread that accepts posts an arrival to the other listener's loop
 * (snt_loop_call()). The members of a feed and the counts of arrivals in flight are
 * behind its lock. A member whose listener has been destroyed stays until its arrivals
 * have come.
 */

struct snt__feed {
	pthread_mutex_t lock;
	unsigned users; /* members, including those whose listener is destroyed */
	struct snt__link members; /* the one with the next turn first */
};

struct snt__member {
	struct snt__feed *feed;
	struct snt_listener *listener; /* NULL: destroyed */
	struct snt__conn_loop *conn_loop;
	struct snt__link link;
	bool takes_part;   /* gets turns, even while there are other members */
	unsigned arrivals; /* in flight */
};

/* A peer that is passed to a listener in another loop. */
struct snt__arrival {
	struct snt_call call;
	struct snt__member *member;
	/* With the feed's lock, in the thread that accepted the peer, before the
	 * arrival is posted: moves what it carries to the other loop. Returns 0, or a
	 * negative errno: it stays. NULL: nothing to do. */
	int (*move)(struct snt__arrival *arrival, const struct snt__conn_loop *to);
	/* In the listener's loop. NULL: it has been destroyed; the peer is refused.
	 * Frees the arrival. */
	void (*take)(struct snt__arrival *arrival, struct snt__conn_loop *conn_loop,
		     struct snt_listener *listener);
};

/* Joins the feed of another listener; with NULL, a new one. NULL: no memory. */
struct snt__member *snt__feed_join(struct snt_listener *listener,
				   struct snt__conn_loop *conn_loop,
				   struct snt__member *other, bool takes_part);
void snt__feed_leave(struct snt__member *member);

/* Takes the arrivals that are in flight to a loop: afterwards the conn_loop is gone. */
void snt__feed_settle(struct snt_loop *loop);

/* It gets no more turns: it keeps peers only while it is alone. */
void snt__feed_step_aside(struct snt__member *member);

/* Are there other members? */
bool snt__feed_is_shared(struct snt__member *member);

/* True: the arrival goes to another listener. False: the caller keeps it. */
bool snt__feed_give(struct snt__member *from, struct snt__arrival *arrival);

#endif
