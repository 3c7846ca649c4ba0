/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SHARE_H
#define SNT_DEV_SOFT_UDP_SHARE_H

#include "dev/soft/seat.h"
#include "dev/soft/udp/socket.h"

/*
 * Processes of one user share an address.
 *
 * A process that is alone has an ordinary socket. When a second process comes, the
 * first one makes a group of SNT__SEATS sockets on the address (SO_REUSEPORT), in which
 * the kernel finds the receiver of a packet by the seat in its QP number, with a filter
 * (SO_ATTACH_REUSEPORT_CBPF) that never changes. A process that dies leaves the group as
 * it is, because the sockets of all seats lie in a vault that all sharers hold:
 *
 *	door     a listening unix socket, by whose name sharers find each other; any of
 *	         them opens it, and hands out the vault
 *	vault    a unix socket, in whose queue the sockets and the door wait, in a
 *	         message that is only peeked at
 *	lobby    the socket of the group that gets what has no seat: requests to
 *	         connect. Any sharer reads it
 *	mailbox  a unix socket whose name claims the seat
 *	claims   unix sockets whose names claim ports of listeners; requests are passed
 *	         on to them
 *
 * Names are abstract: the kernel frees them when a process ends, however it does. All
 * of it is behind the device's lock.
 *
 *	share.c        the first process opens an address, others join
 *	share_group.c  the sockets, the filter and the vault
 *	share_name.c   names
 *	share_mail.c   ports, and packets that are for another sharer
 */
struct snt__udp_device;
struct snt__udp_claim;

struct snt__udp_share {
	const struct snt__udp_address *address;
	int fd; /* readable when there is something to serve; -1: not open */
	int door;
	int mailbox;
	int lobby, vault; /* -1: alone, until now */
	struct snt__seat seat;
	uint8_t base; /* the seat of the group's first socket */
	struct snt__udp_claim *claims;
};

void snt__udp_share_init(struct snt__udp_share *share,
			 const struct snt__udp_address *address);

/**
 * snt__udp_share_open - open the socket of an address
 * @join: share the address if other processes of this user have it
 *
 * Returns: 0; as snt__udp_socket_open(); or, with a sentence, -ETIMEDOUT, -EUSERS,
 * -ETOOMANYREFS or -EPROTONOSUPPORT for an address that cannot be shared.
 */
int snt__udp_share_open(struct snt__udp_share *share, uint32_t buffer_bytes, bool join,
			struct snt__udp_socket *socket_out);
/* Leaves. Works in a child of the process as well. */
void snt__udp_share_close(struct snt__udp_share *share);

/* Opens the door, reads the lobby and the mail. With the lock. */
void snt__udp_share_serve(struct snt__udp_device *device);

/* See snt__soft_driver. */
int snt__udp_share_claim(struct snt__udp_share *share, uint16_t port);
void snt__udp_share_unclaim(struct snt__udp_share *share, uint16_t port);

/*
 * Internal
 */

#define SNT__SHARE_LOBBY 1 /* the socket after the first one; no process has its seat */

/* What all sharers have; in the vault. */
struct snt__share_group {
	int sockets[SNT__SEATS];
	int door;
	uint8_t base;
};

/* What a name is for. */
enum snt__share_name {
	SNT__SHARE_DOOR,
	SNT__SHARE_SEAT,
	SNT__SHARE_PORT,
};

/* A unix socket with that name. Returns the fd, or -errno: -EADDRINUSE if it is taken. */
int snt__share_bind(const struct snt__udp_address *address, int type,
		    enum snt__share_name what, unsigned number);
/* Connects to a name, or sends to it. Return 0 or -errno. */
int snt__share_connect(int fd, const struct snt__udp_address *address,
		       enum snt__share_name what, unsigned number);
int snt__share_send(int fd, const struct snt__udp_address *address,
		    enum snt__share_name what, unsigned number, const void *bytes,
		    size_t size);
int snt__share_watch(const struct snt__udp_share *share, int fd);

/* The first process makes the group of its own socket. Returns 0 or -errno. */
int snt__share_group_make(struct snt__udp_share *share, struct snt__udp_socket *socket);
/* Takes copies of all that is in a vault. Returns 0 or -errno. */
int snt__share_group_open(int vault, struct snt__share_group *group_out);
/* Closes what is not -1. */
void snt__share_group_close(struct snt__share_group *group);
bool snt__share_joins_segments(const struct snt__udp_address *address);

void snt__share_read_lobby(struct snt__udp_device *device);
void snt__share_read_mail(struct snt__udp_device *device, int fd);

#endif
