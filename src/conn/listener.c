/* SPDX-License-Identifier: MIT */
/* Listeners: which peers are accepted, how many, and the callbacks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conn/carrier_cm.h"
#include "conn/cm_loop.h"
#include "conn/conn.h"
#include "conn/feed.h"
#include "conn/plain.h"
#include "util/err.h"
#include "util/log.h"
#include "util/opts.h"

#define EARS_MAX	   4
#define BACKLOG_DEFAULT	   1024
#define CONNECTION_DEFAULT 4096
/* One line for each rejected peer, but not more often than this. */
#define REJECTED_NS UINT64_C(1000000000)

struct snt_listener {
	struct snt__conn_loop *conn_loop;
	struct snt__member *member; /* of the listeners that share the port */
	struct snt__acceptor *acceptor[EARS_MAX];
	unsigned acceptor_count;
	struct snt__link conns;	   /* all that came from it and are not over */
	struct snt__link requests; /* for snt_listener_wait() */
	struct snt__conn_loop_waiter *waiter;
	unsigned backlog;
	unsigned pending; /* not yet requested, or over and kept */
	unsigned connection_max, connection_count;
	struct snt_endpoint endpoint; /* without strings; the secret is the one below */
	void (*requested)(void *arg, struct snt_listener *listener,
			  struct snt_conn *conn);
	void *arg;
	uint8_t secret[SNT_SECRET_MAX];
	uint64_t rejected_at; /* time of the last log line about one; 0: never */
	unsigned rejected;    /* since then, without a log line */
};

struct snt__conn_loop *snt__listener_conn_loop(const struct snt_listener *listener)
{
	return listener->conn_loop;
}

struct snt__member *snt__listener_member(const struct snt_listener *listener)
{
	return listener->member;
}

bool snt__listener_is_plain(const struct snt_listener *listener)
{
	return listener->endpoint.carrier == SNT_CARRIER_PLAIN;
}

bool snt__listener_has_room(const struct snt_listener *listener)
{
	return listener->pending < listener->backlog &&
	       listener->connection_count < listener->connection_max;
}

struct snt_conn *snt__listener_heard(struct snt_listener *listener,
				     struct snt__carrier *carrier)
{
	uint8_t nonce[SNT__NONCE_SIZE];
	struct snt__conn_loop *conn_loop = listener->conn_loop;
	bool plain = snt__listener_is_plain(listener);
	struct snt_conn *conn;

	if (!snt__listener_has_room(listener) ||
	    snt__ctx_random(conn_loop->ctx, nonce, sizeof(nonce)) ||
	    snt__conn_make(conn_loop, &listener->endpoint, &conn))
		return NULL;
	conn->listener = listener;
	conn->carrier = carrier;
	conn->began_at = snt__conn_loop_now(conn_loop);
	conn->attempts = 1;
	if (plain)
		snt__handshake_init_plain(&conn->hs, false, snt__conn_deadline(conn));
	else
		snt__handshake_init(&conn->hs,
				    &(struct snt__handshake_opts){
					    .identity = conn_loop->identity,
					    .nonce = nonce,
					    .secret = conn->secret_length ? conn->secret
									  : NULL,
					    .secret_length = conn->secret_length,
					    .deadline = snt__conn_deadline(conn),
				    });
	snt__list_append(&listener->conns, &conn->in_listener);
	listener->pending++;
	listener->connection_count++;
	return conn;
}

/* A stranger can connect as often as it likes: most attempts are only counted, and what
 * it sends of itself is not logged. */
static void log_rejected(struct snt_listener *listener, const struct snt_conn *conn)
{
	uint64_t now = snt__conn_loop_now(listener->conn_loop);
	char address[sizeof(((struct snt_conn_info *)0)->peer_address)], more[48] = "";

	if (listener->rejected_at && now - listener->rejected_at < REJECTED_NS) {
		listener->rejected++;
		return;
	}
	if (listener->rejected)
		snprintf(more, sizeof(more), "; %u more since the last line",
			 listener->rejected);
	snt__address_text((const struct sockaddr *)&conn->peer, address);
	snt__log(&listener->conn_loop->ctx->log, SNT_LOG_WARN,
		 "port %u: %s was rejected: %s%s", snt_listener_port(listener), address,
		 listener->endpoint.secret ? "it did not prove that it knows the secret"
					   : "it has a secret, and this end has none",
		 more);
	listener->rejected_at = now;
	listener->rejected = 0;
}

void snt__listener_forget(struct snt_conn *conn)
{
	struct snt_listener *listener = conn->listener;

	snt__unlink(&conn->in_listener);
	snt__unlink(&conn->in_requests);
	if (!listener)
		return;
	if (!conn->programs && listener->acceptor_count && conn->hs.error == -EACCES)
		log_rejected(listener, conn);
	listener->connection_count--;
	listener->pending -= !conn->programs;
	conn->listener = NULL;
}

void snt__listener_keep_dead(struct snt_listener *listener)
{
	listener->pending++;
}

void snt__listener_drop_dead(struct snt_listener *listener)
{
	listener->pending--;
}

/* A peer that connects again no longer needs its old connection, which it may not even
 * remember. */
static void supersede_old_conn(struct snt_conn *conn)
{
	struct snt__link *list = &conn->listener->conns;

	if (!conn->hs.theirs.name[0] || conn->hs.theirs.meets)
		return;
	for (struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_conn *old = snt__container(at, struct snt_conn, in_listener);

		if (old == conn || strcmp(old->hs.theirs.name, conn->hs.theirs.name))
			continue;
		snt__conn_fail(old, SNT__END_SUPERSEDED, -ESTALE,
			       "the peer has made a new connection");
		snt__conn_loop_add_work(old->conn_loop, &old->worker);
	}
}

void snt__listener_request(struct snt_conn *conn)
{
	struct snt_listener *listener = conn->listener;

	if (snt__simultaneous_expected(conn)) {
		conn->due |= SNT__CONN_DUE_MEET;
		snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
		return;
	}
	supersede_old_conn(conn);
	listener->pending--;
	conn->programs = conn->requested = true;
	conn->conn_loop->users++;
	if (listener->requested) {
		conn->events |= 1u << SNT__CONN_REQUEST;
		snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
	} else {
		snt__list_append(&listener->requests, &conn->in_requests);
	}
}

int snt__listener_tell(struct snt_conn *conn)
{
	struct snt_listener *listener = conn->listener;

	if (!listener)
		return 0;
	listener->requested(listener->arg, listener, conn);
	return 1;
}

/*
 * Creation and destruction
 */

static int add_acceptor(struct snt_listener *listener, enum snt_carrier carrier,
			const struct sockaddr_storage *address)
{
	struct snt__acceptor **acceptor = &listener->acceptor[listener->acceptor_count];
	const struct sockaddr *at = (const struct sockaddr *)address;
	int ret;

	if (carrier == SNT_CARRIER_TCP)
		ret = snt__tcp_listen(listener->conn_loop, at, listener->backlog,
				      listener, acceptor);
	else
		ret = snt__cm_listen(listener->conn_loop, at, listener->backlog,
				     listener, acceptor);
	listener->acceptor_count += !ret;
	return ret;
}

static int find_addresses(const struct snt_listener *listener,
			  const struct snt_endpoint *endpoint,
			  struct sockaddr_storage *address)
{
	int count = snt__address_parse(endpoint->host, endpoint->port, address);

	if (count != -ENOENT)
		return count;
	return snt__lookup_within(listener->conn_loop, endpoint->host, endpoint->port,
				  endpoint->setup_ns, address, EARS_MAX);
}

static int listen_on_carrier(struct snt_listener *listener,
			     const struct snt_endpoint *endpoint)
{
	struct sockaddr_storage address[EARS_MAX];
	int count = find_addresses(listener, endpoint, address);
	int ret = 0;

	if (count < 0)
		return count;
	/* A name's first address is the one that peers try first. */
	for (int i = 0; i < count; i++) {
		ret = add_acceptor(listener, endpoint->carrier, &address[i]);
		if (!ret)
			return 0;
	}
	return ret;
}

/* Its peers arrive through the other listener's acceptor. */
static void close_shared_acceptor(struct snt__acceptor *acceptor)
{
	free(acceptor);
}

static int share_acceptor(struct snt_listener *listener,
			  const struct snt_listener *other)
{
	static const struct snt__acceptor_table
		by_tcp = { .close = close_shared_acceptor },
		by_cm = { .close = close_shared_acceptor, .by_cm = true };
	struct snt__acceptor *acceptor = calloc(1, sizeof(*acceptor));

	if (!acceptor)
		return snt__fail(ENOMEM, "no memory for a listener");
	*acceptor = (struct snt__acceptor){
		.table = other->acceptor[0]->table->by_cm ? &by_cm : &by_tcp,
		.conn_loop = listener->conn_loop,
		.listener = listener,
		.bound = other->acceptor[0]->bound,
	};
	listener->acceptor[listener->acceptor_count++] = acceptor;
	listener->endpoint.carrier = other->endpoint.carrier;
	return acceptor->table->by_cm ? snt__cm_loop_open(listener->conn_loop) : 0;
}

static void take_opts(struct snt_listener *listener,
		      const struct snt_endpoint *endpoint,
		      const struct snt_listener_opts *opts)
{
	listener->backlog = opts->backlog ? opts->backlog : BACKLOG_DEFAULT;
	listener->connection_max =
		opts->connection_max ? opts->connection_max : CONNECTION_DEFAULT;
	listener->requested = opts->requested;
	listener->arg = opts->arg;
	listener->endpoint = *endpoint;
	listener->endpoint.host = listener->endpoint.source = NULL;
	listener->endpoint.name = NULL;
	if (!endpoint->secret)
		return;
	memcpy(listener->secret, endpoint->secret, endpoint->secret_length);
	listener->endpoint.secret = listener->secret;
}

static int open_ears(struct snt_listener *listener, const struct snt_endpoint *endpoint,
		     const struct snt_listener *share)
{
	if (!share)
		return listen_on_carrier(listener, endpoint);
	if (share->conn_loop->ctx != listener->conn_loop->ctx)
		return snt__fail(EINVAL,
				 "snt_listener_opts.share is of another context");
	return share_acceptor(listener, share);
}

static void close_ears(struct snt_listener *listener)
{
	while (listener->acceptor_count) {
		struct snt__acceptor *acceptor =
			listener->acceptor[--listener->acceptor_count];

		acceptor->table->close(acceptor);
	}
}

/* A listener without a callback leaves connections to those that share its port. */
static struct snt__member *join_feed(struct snt_listener *listener,
				     const struct snt_listener_opts *opts)
{
	return snt__feed_join(listener, listener->conn_loop,
			      opts->share ? opts->share->member : NULL,
			      opts->share || opts->requested);
}

int snt_listener_create(struct snt_loop *loop, const struct snt_endpoint *user_endpoint,
			const struct snt_listener_opts *user_opts,
			struct snt_listener **listener_out)
{
	struct snt_endpoint endpoint;
	struct snt_listener_opts opts;
	struct snt_listener *listener;
	struct snt__conn_loop *conn_loop;
	int ret = snt__endpoint_import(user_endpoint, &endpoint);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_listener_opts");
	if (!ret)
		ret = snt__conn_loop_get(loop, &conn_loop);
	if (ret)
		return ret;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return snt__fail(ENOMEM, "no memory for a listener");
	listener->conn_loop = conn_loop;
	snt__list_init(&listener->conns);
	snt__list_init(&listener->requests);
	take_opts(listener, &endpoint, &opts);
	ret = open_ears(listener, &endpoint, opts.share);
	if (!ret && snt__listener_is_plain(listener))
		ret = snt__plain_check_endpoint(&listener->endpoint);
	/* Last: connections may come from here on. */
	if (!ret && !(listener->member = join_feed(listener, &opts)))
		ret = snt__fail(ENOMEM, "no memory for a listener");
	if (ret) {
		close_ears(listener);
		free(listener);
		return ret;
	}
	conn_loop->users++;
	*listener_out = listener;
	return 0;
}

uint16_t snt_listener_port(const struct snt_listener *listener)
{
	return snt__address_port(
		(const struct sockaddr *)&listener->acceptor[0]->bound);
}

int snt_listener_address(const struct snt_listener *listener, unsigned position,
			 char *buffer, size_t size)
{
	return snt__acceptor_address(listener->acceptor[0], position, buffer, size);
}

static struct snt_conn *first_conn(struct snt_listener *listener)
{
	return snt__container(listener->conns.next, struct snt_conn, in_listener);
}

int snt_listener_destroy(struct snt_listener *listener)
{
	int ret = listener ? snt__conn_loop_check(listener->conn_loop) : 0;

	if (!listener || ret)
		return ret;
	snt__conn_loop_waiters_end(listener->waiter);
	snt__feed_leave(listener->member);
	close_ears(listener);
	for (struct snt__link *at = listener->conn_loop->meetings.next;
	     at != &listener->conn_loop->meetings; at = at->next) {
		struct snt_conn *conn =
			snt__container(at, struct snt_conn, in_meetings);

		if (conn->meet == listener)
			conn->meet = NULL;
	}
	while (!snt__list_empty(&listener->requests))
		snt_conn_reject(snt__container(listener->requests.next, struct snt_conn,
					       in_requests),
				"the listener is closed", NULL, 0);
	while (!snt__list_empty(&listener->conns)) {
		struct snt_conn *conn = first_conn(listener);

		/* The program holds it, and has been told so. */
		if (conn->programs && !(conn->events & 1u << SNT__CONN_REQUEST)) {
			snt__listener_forget(conn);
			continue;
		}
		snt__conn_fail(conn, SNT__END_REFUSED, -ECANCELED,
			       "the listener is closed");
		snt__conn_step(conn);
		snt__conn_free(conn);
	}
	listener->conn_loop->users--;
	explicit_bzero(listener, sizeof(*listener));
	free(listener);
	return 0;
}

static bool has_request(const void *what)
{
	const struct snt_listener *listener = what;

	return !snt__list_empty(&listener->requests);
}

int snt_listener_wait(struct snt_listener *listener, int64_t timeout_ns,
		      struct snt_conn **conn_out)
{
	struct snt_conn *conn;
	int ret;

	if (listener->requested)
		return snt__fail(EINVAL,
				 "the listener has a function, "
				 "snt_listener_opts.requested, which gets them");
	ret = snt__conn_loop_wait(listener->conn_loop, &listener->waiter, has_request,
				  listener, timeout_ns);
	if (ret == -ETIME)
		return snt__fail(ETIME, "timed out waiting for a connection request");
	if (ret)
		return ret;
	conn = snt__container(listener->requests.next, struct snt_conn, in_requests);
	snt__unlink(&conn->in_requests);
	*conn_out = conn;
	return 0;
}
