/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SHELF_H
#define SNT_DEV_SOFT_UDP_SHELF_H

#include "dev/soft/udp/socket.h"

/*
 * Long messages stay in the socket for a while after they were received.
 *
 * A message from the same host is read from the very pages that its sender has written
 * to. Once it is released, the kernel reuses its pages for the next message, those
 * released last first. They are still in the reader's cache then, and writing to them
 * takes several times as long as writing to pages that have left it. So long messages
 * are only peeked at (MSG_PEEK, beyond those peeked at before: SO_PEEK_OFF), and
 * dropped once the shelf is full of later ones.
 *
 * What is on the shelf makes the socket readable, so that a thread cannot sleep on the
 * socket itself then, but on an epoll instance that reports only new arrivals
 * (EPOLLET).
 *
 * All calls with the device's lock.
 */
struct snt__udp_shelf {
	int fd;		    /* of the socket */
	int epoll_fd;	    /* -1: none */
	bool watched;	    /* epoll_fd watches the socket */
	uint32_t bytes_max; /* 0: there is no shelf */
	uint32_t bytes;
	unsigned count;	 /* messages */
	unsigned row;	 /* consecutive long messages */
	unsigned losses; /* how often a message that should be there was missing */
};

/*
 * The shelf takes its room from what the socket has beyond the buffer granted to any
 * process. There is no shelf if that is little, or if the kernel refuses something.
 *
 * It needs more room than it holds: as long as something is queued, the kernel still
 * charges up to a quarter of the buffer that is already free (udp_rmem_release).
 */
void snt__udp_shelf_init(struct snt__udp_shelf *shelf,
			 const struct snt__udp_socket *socket);
void snt__udp_shelf_finish(struct snt__udp_shelf *shelf);

/* The flags to receive messages with: MSG_PEEK, or 0. */
int snt__udp_shelf_flags(const struct snt__udp_shelf *shelf);

/* Messages were received with these flags. */
void snt__udp_shelf_put(struct snt__udp_shelf *shelf, int flags, unsigned count,
			uint32_t bytes);

/* Drops everything. */
void snt__udp_shelf_clear(struct snt__udp_shelf *shelf);

/*
 * Returns the fd to sleep on: the socket's, or one that no longer reports what has
 * arrived. In that case the caller receives once more, and does not sleep if there was
 * something; and a thread that sleeps on the fd already must be woken, since it may not
 * have been notified. `alone`: no thread does.
 */
int snt__udp_shelf_sleep(struct snt__udp_shelf *shelf, bool alone);

#endif
