/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SHELF_H
#define SNT_DEV_SOFT_UDP_SHELF_H

#include "dev/soft/udp/socket.h"

/*
 * Long messages that were taken stay in the socket for a while.
 *
 * A message that comes from the same host is read from the very pages that its sender has
 * written to. Once it is let go the kernel gives them out for the next message, those first
 * that came back last. They are still in the cache of who has read them then, and to write to
 * them takes several times as long as to pages that it has forgotten. So long messages are
 * only looked at (MSG_PEEK, beyond those that were looked at before: SO_PEEK_OFF), and dropped
 * when as much as the shelf holds has come after them.
 *
 * What is on the shelf makes the socket readable, so nobody can sleep on the socket itself
 * then, but on an epoll instance that tells only when something comes (EPOLLET).
 *
 * All with the device's lock.
 */
struct snt__udp_shelf {
	int fd;		    /* of the socket */
	int epoll_fd;	    /* -1: none */
	bool watched;	    /* the socket, by epoll_fd */
	uint32_t bytes_max; /* 0: there is no shelf */
	uint32_t bytes;
	unsigned count;	 /* of messages */
	unsigned row;	 /* of long messages that came one after the other */
	unsigned losses; /* how often there was not what should have been */
};

/*
 * It takes its room from what the socket has beyond what everybody has. There is no shelf if
 * that is not much, or the kernel refuses something.
 *
 * It needs more room than it has: as long as something is in its queue, the kernel reckons with
 * up to a quarter of the buffer that is free already (udp_rmem_release).
 */
void snt__udp_shelf_init(struct snt__udp_shelf *shelf,
			 const struct snt__udp_socket *socket);
void snt__udp_shelf_finish(struct snt__udp_shelf *shelf);

/* What messages are to be received with: MSG_PEEK, or 0. */
int snt__udp_shelf_flags(const struct snt__udp_shelf *shelf);

/* Messages were received, with these flags. */
void snt__udp_shelf_put(struct snt__udp_shelf *shelf, int flags, unsigned count,
			uint32_t bytes);

/* Lets everything go. */
void snt__udp_shelf_clear(struct snt__udp_shelf *shelf);

/*
 * Returns the fd to sleep on: the socket's, or one that has forgotten what has come. Then the
 * caller receives once more, and does not sleep if there was something; and whoever sleeps on
 * it already has to be woken, since he may not have heard. `alone`: nobody does.
 */
int snt__udp_shelf_sleep(struct snt__udp_shelf *shelf, bool alone);

#endif
