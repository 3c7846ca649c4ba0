/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CARRIER_H
#define SNT_CONN_CARRIER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "conn/conn_loop.h"

/*
 * What carries the messages of a connection: in order, once and intact, or not at all.
 * A carrier is created by a connect or by a listener, belongs to its connection, and
 * frees itself after the connection has closed it: what was to be sent before is sent
 * first.
 */

struct snt__carrier;
struct snt_conn;

struct snt__carrier_table {
	const char *name;
	/* Room for a message of any length? If not, snt__conn_writable() follows. There
	 * is always room for the last message of all, while the carrier works: later
	 * there is no connection to be told. */
	bool (*has_room)(struct snt__carrier *carrier, bool last);
	/* Failures are reported by snt__conn_lost(). */
	void (*send)(struct snt__carrier *carrier, const void *bytes, size_t length);
	/* No more calls to the connection. */
	void (*close)(struct snt__carrier *carrier);
	/* Asks the peer's device whether it is still there, without help of its
	 * program. NULL: probe QPs ask (probing.h), and a message is sent, for the
	 * carrier's own timeout. Where empty messages get lost: by a message. */
	void (*ping)(struct snt__carrier *carrier);
	/* The time within which the loss of the peer must be noticed. */
	void (*detect)(struct snt__carrier *carrier, uint64_t detect_ns);
	void (*peer)(struct snt__carrier *carrier, struct sockaddr_storage *out);
};

struct snt__carrier {
	const struct snt__carrier_table *table;
	struct snt__conn_loop *conn_loop;
	struct snt_conn *conn; /* NULL: closed, still sending */
};

/* conn.c: calls of a carrier to its connection. They run no callback of the program. */
void snt__conn_up(struct snt_conn *conn);
void snt__conn_input(struct snt_conn *conn, const void *bytes, size_t length);
void snt__conn_writable(struct snt_conn *conn);
void snt__conn_lost(struct snt_conn *conn, int error, const char *text);

/* The source of a listener's carriers. */
struct snt__acceptor;

struct snt__acceptor_table {
	void (*close)(struct snt__acceptor *acceptor);
	bool by_cm; /* its addresses are those of devices with a connection manager */
};

struct snt_listener;

struct snt__acceptor {
	const struct snt__acceptor_table *table;
	struct snt__conn_loop *conn_loop;
	struct snt_listener *listener;
	struct sockaddr_storage bound; /* with the port that was chosen */
};

/* listener.c: a peer has arrived. The new connection takes the carrier; NULL: there are
 * too many, and the caller keeps the carrier. */
struct snt_conn *snt__listener_heard(struct snt_listener *listener,
				     struct snt__carrier *carrier);
/* listener.c */
struct snt__conn_loop *snt__listener_conn_loop(const struct snt_listener *listener);
struct snt__member;
struct snt__member *snt__listener_member(const struct snt_listener *listener);
/* listener.c: does it expect peers that know nothing of sennit? */
bool snt__listener_is_plain(const struct snt_listener *listener);
/* listener.c: would there be room for another connection? Makes none. */
bool snt__listener_has_room(const struct snt_listener *listener);

/* tcp.c */
int snt__tcp_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		     const struct sockaddr *target, struct snt_conn *conn,
		     struct snt__carrier **carrier_out);
int snt__tcp_listen(struct snt__conn_loop *conn_loop, const struct sockaddr *address,
		    unsigned backlog, struct snt_listener *listener,
		    struct snt__acceptor **acceptor_out);

/* acceptor_address.c: as snt_listener_address(). */
int snt__acceptor_address(const struct snt__acceptor *acceptor, unsigned position,
			  char *buffer, size_t size);

/* address.c */
#define SNT__ADDRESS_TEXT 64
socklen_t snt__address_size(const struct sockaddr *address);
/* "10.0.0.1:4000", "[fe80::1]:4000"; without the port if that is 0. */
const char *snt__address_text(const struct sockaddr *address, char *buffer);
/* A numeric address; or, if NULL, the two unspecified ones, IPv6's first, which covers
 * IPv4 for both carriers. No lookup. Returns how many, or -ENOENT with a text. */
int snt__address_parse(const char *host, uint16_t port, struct sockaddr_storage *out);
/* The addresses of a host, at most @max; blocks. Returns how many, or a negative errno
 * with a text. */
int snt__address_find(const char *host, uint16_t port, struct sockaddr_storage *out,
		      unsigned max);
uint16_t snt__address_port(const struct sockaddr *address);
void snt__address_set_port(struct sockaddr_storage *address, uint16_t port);

#endif
