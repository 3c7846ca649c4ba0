/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CARRIER_H
#define SNT_CONN_CARRIER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "conn/hub.h"

/*
 * What messages of a connection travel on: in order, once and unharmed, or not at all. A
 * carrier is made by whoever connects or listens, belongs to its connection, and ends by
 * itself when that closes it: what was given to it to be sent goes out first.
 */

struct snt__carrier;
struct snt_conn;

struct snt__carrier_table {
	const char *name;
	/* For a message of any length? If not, snt__conn_writable() will tell. For the last
	 * one of all there is always room, while the carrier works: nobody is there to be
	 * told later. */
	bool (*has_room)(struct snt__carrier *carrier, bool last);
	/* What breaks is told by snt__conn_lost(). */
	void (*send)(struct snt__carrier *carrier, const void *bytes, size_t length);
	/* The connection wants to hear no more of it. */
	void (*close)(struct snt__carrier *carrier);
	/* Is the peer's device still there? By nothing that its program would have to do.
	 * NULL: QPs of scouts ask (scout.h), and a message goes out, for the carrier's own
	 * timeout. Where messages without a byte get lost: by a message. */
	void (*ping)(struct snt__carrier *carrier);
	/* Within how much time it is to notice that the peer is gone. */
	void (*detect)(struct snt__carrier *carrier, uint64_t detect_ns);
	void (*peer)(struct snt__carrier *carrier, struct sockaddr_storage *out);
};

struct snt__carrier {
	const struct snt__carrier_table *table;
	struct snt__hub *hub;
	struct snt_conn *conn; /* NULL: on its way out */
};

/* conn.c: what a carrier tells its connection. Nothing of the program's is called. */
void snt__conn_up(struct snt_conn *conn);
void snt__conn_input(struct snt_conn *conn, const void *bytes, size_t length);
void snt__conn_writable(struct snt_conn *conn);
void snt__conn_lost(struct snt_conn *conn, int error, const char *text);

/* Where listeners get theirs from. */
struct snt__ear;

struct snt__ear_table {
	void (*close)(struct snt__ear *ear);
	bool by_cm; /* its addresses are those of devices with a connection manager */
};

struct snt_listener;

struct snt__ear {
	const struct snt__ear_table *table;
	struct snt__hub *hub;
	struct snt_listener *listener;
	struct sockaddr_storage bound; /* with the port that was chosen */
};

/* listener.c: somebody is there. The new connection takes the carrier; NULL: there are too
 * many, the carrier stays the caller's. */
struct snt_conn *snt__listener_heard(struct snt_listener *listener,
				     struct snt__carrier *carrier);
/* listener.c */
struct snt__hub *snt__listener_hub(const struct snt_listener *listener);
struct snt__member;
struct snt__member *snt__listener_member(const struct snt_listener *listener);
/* listener.c: without making one, would there be room? */
bool snt__listener_has_room(const struct snt_listener *listener);

/* tcp.c */
int snt__tcp_connect(struct snt__hub *hub, const struct sockaddr *source,
		     const struct sockaddr *target, struct snt_conn *conn,
		     struct snt__carrier **carrier_out);
int snt__tcp_listen(struct snt__hub *hub, const struct sockaddr *address,
		    unsigned backlog, struct snt_listener *listener,
		    struct snt__ear **ear_out);

/* ear_address.c: as snt_listener_address(). */
int snt__ear_address(const struct snt__ear *ear, unsigned position, char *buffer,
		     size_t size);

/* address.c */
#define SNT__ADDRESS_TEXT 64
socklen_t snt__address_size(const struct sockaddr *address);
/* "10.0.0.1:4000", "[fe80::1]:4000"; without a port that is 0. */
const char *snt__address_text(const struct sockaddr *address, char *buffer);
/* A numeric address; or, if NULL, the two unspecified ones, IPv6's first, which is IPv4's as
 * well for both carriers. Nothing is looked for. Returns how many, or -ENOENT with a sentence. */
int snt__address_parse(const char *host, uint16_t port, struct sockaddr_storage *out);
/* The addresses of a host, at most @max; blocks. Returns how many, or a negative errno with a
 * sentence. */
int snt__address_find(const char *host, uint16_t port, struct sockaddr_storage *out,
		      unsigned max);
uint16_t snt__address_port(const struct sockaddr *address);
void snt__address_set_port(struct sockaddr_storage *address, uint16_t port);

#endif
