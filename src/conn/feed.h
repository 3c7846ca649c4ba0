/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_FEED_H
#define SNT_CONN_FEED_H

#include <pthread.h>
#include <sennit/conn.h>
#include <sennit/loop.h>

#include "conn/carrier.h"
#include "util/list.h"

/*
 * Listeners in several loops that share a port. One of them has the ear; what it hears is
 * dealt out to all, in turns, before anything is known of the peer. From then on a connection
 * is its listener's alone, and used by no other thread.
 *
 * The thread that hears posts an arrival to the other listener's loop (snt_loop_call()). The
 * members of a feed and the counts of arrivals under way are behind its lock. A member whose
 * listener has been destroyed stays until its arrivals have come.
 */

struct snt__feed {
	pthread_mutex_t lock;
	unsigned users;		  /* members, also those whose listener is gone */
	struct snt__link members; /* the one whose turn it is first */
};

struct snt__member {
	struct snt__feed *feed;
	struct snt_listener *listener; /* NULL: destroyed */
	struct snt__hub *hub;
	struct snt__link link;
	bool takes_part;   /* in turns, even while there are others */
	unsigned arrivals; /* under way */
};

/* A peer on its way to a listener in another loop. */
struct snt__arrival {
	struct snt_call call;
	struct snt__member *member;
	/* With the feed's lock, in the thread that heard it, before it is sent: makes what it
	 * brings along the other loop's. Returns 0, or a negative errno: it stays. NULL:
	 * nothing to do. */
	int (*move)(struct snt__arrival *arrival, const struct snt__hub *to);
	/* In the listener's loop. NULL: it has been destroyed; the peer is refused. Frees the
	 * arrival. */
	void (*take)(struct snt__arrival *arrival, struct snt__hub *hub,
		     struct snt_listener *listener);
};

/* A member of the other's feed; with NULL, of one of its own. NULL: no memory. */
struct snt__member *snt__feed_join(struct snt_listener *listener, struct snt__hub *hub,
				   struct snt__member *other, bool takes_part);
void snt__feed_leave(struct snt__member *member);

/* Arrivals that are on their way to a loop are taken now: afterwards the hub is gone. */
void snt__feed_settle(struct snt_loop *loop);

/* It takes no part in turns from now on: peers are its own only while it is alone. */
void snt__feed_step_aside(struct snt__member *member);

/* Are there others? */
bool snt__feed_is_shared(struct snt__member *member);

/* True: it is on its way to another listener. False: it is the giver's own. */
bool snt__feed_give(struct snt__member *from, struct snt__arrival *arrival);

#endif
