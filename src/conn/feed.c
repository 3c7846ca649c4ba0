/* SPDX-License-Identifier: MIT */
#include "conn/feed.h"

#include <stdlib.h>

/* The last user frees it. */
static void unlock_feed(struct snt__feed *feed)
{
	bool last = !feed->users;

	pthread_mutex_unlock(&feed->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&feed->lock);
	free(feed);
}

static struct snt__feed *make_feed(void)
{
	struct snt__feed *feed = calloc(1, sizeof(*feed));

	if (!feed)
		return NULL;
	pthread_mutex_init(&feed->lock, NULL);
	snt__list_init(&feed->members);
	return feed;
}

struct snt__member *snt__feed_join(struct snt_listener *listener,
				   struct snt__conn_loop *conn_loop,
				   struct snt__member *other, bool takes_part)
{
	struct snt__member *member = calloc(1, sizeof(*member));

	if (member)
		member->feed = other ? other->feed : make_feed();
	if (!member || !member->feed) {
		free(member);
		return NULL;
	}
	member->listener = listener;
	member->conn_loop = conn_loop;
	member->takes_part = takes_part;
	pthread_mutex_lock(&member->feed->lock);
	member->feed->users++;
	snt__list_append(&member->feed->members, &member->link);
	pthread_mutex_unlock(&member->feed->lock);
	return member;
}

void snt__feed_step_aside(struct snt__member *member)
{
	pthread_mutex_lock(&member->feed->lock);
	member->takes_part = false;
	pthread_mutex_unlock(&member->feed->lock);
}

/* With the lock: frees it once neither its listener nor an arrival needs it. */
static void free_if_unused(struct snt__member *member)
{
	if (member->listener || member->arrivals)
		return;
	member->feed->users--;
	free(member);
}

void snt__feed_leave(struct snt__member *member)
{
	struct snt__feed *feed = member->feed;

	pthread_mutex_lock(&feed->lock);
	snt__unlink(&member->link);
	member->listener = NULL;
	free_if_unused(member);
	unlock_feed(feed);
}

/* Runs in the member's loop. */
static void deliver_arrival(struct snt_call *call)
{
	struct snt__arrival *arrival = snt__container(call, struct snt__arrival, call);
	struct snt__member *member = arrival->member;
	struct snt__feed *feed = member->feed;
	struct snt__conn_loop *conn_loop = member->conn_loop;
	struct snt_listener *listener;

	pthread_mutex_lock(&feed->lock);
	listener = member->listener;
	member->arrivals--;
	free_if_unused(member);
	unlock_feed(feed);
	arrival->take(arrival, conn_loop, listener);
}

void snt__feed_settle(struct snt_loop *loop)
{
	snt__call_run_those(loop, deliver_arrival);
}

/* The first that takes turns; it becomes the last. With the lock. */
static struct snt__member *choose_member(struct snt__feed *feed)
{
	struct snt__link *list = &feed->members;

	for (struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt__member *member =
			snt__container(at, struct snt__member, link);

		if (!member->takes_part)
			continue;
		snt__unlink(at);
		snt__list_append(list, at);
		return member;
	}
	return NULL;
}

bool snt__feed_is_shared(struct snt__member *member)
{
	bool shared;

	pthread_mutex_lock(&member->feed->lock);
	shared = member->feed->members.next != member->feed->members.prev;
	pthread_mutex_unlock(&member->feed->lock);
	return shared;
}

/* A listener that is destroyed leaves under the lock first, and its loop's conn_loop stays
 * until the arrivals have come. */
bool snt__feed_give(struct snt__member *from, struct snt__arrival *arrival)
{
	struct snt__feed *feed = from->feed;
	struct snt__member *to;
	bool given;

	pthread_mutex_lock(&feed->lock);
	to = choose_member(feed);
	given = to && to != from &&
		(!arrival->move || !arrival->move(arrival, to->conn_loop));
	if (given) {
		to->arrivals++;
		arrival->member = to;
		arrival->call = (struct snt_call){ .run = deliver_arrival };
		snt__call_post(to->conn_loop->loop, &arrival->call);
	}
	pthread_mutex_unlock(&feed->lock);
	return given;
}
