/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_RX_HOLD_H
#define SNT_DEV_SOFT_UDP_RX_HOLD_H

#include "dev/soft/udp/socket.h"

/*
 * Long messages stay in the socket for a while after they were received.
 *
 * A message from the same host is read from the very pages that its sender has written
 * to. Once it is released, the kernel reuses its pages for the next message, those
 * released last first. They are still in the reader's cache then, and writing to them
 * takes several times as long as writing to pages that have left it. So long messages
 * are only peeked at (MSG_PEEK, beyond those peeked at before: SO_PEEK_OFF), and
 * dropped once later ones take their room.
 *
 * What is held makes the socket readable, so that a thread cannot sleep on the
 * socket itself then, but on an epoll instance that reports only new arrivals
 * (EPOLLET).
 *
 * All calls with the device's lock.
 */
struct snt__udp_rx_hold {
	int fd;		    /* of the socket */
	int epoll_fd;	    /* -1: none */
	bool watched;	    /* epoll_fd watches the socket */
	uint32_t bytes_max; /* 0: nothing can be held */
	uint32_t bytes;
	unsigned count;	 /* messages */
	unsigned row;	 /* consecutive long messages */
	unsigned losses; /* how often a message that should be there was missing */
};

/*
 * Held messages take room that the socket has beyond the buffer granted to any
 * process. Nothing is held if that is little, or if the kernel refuses something.
 *
 * The room is more than what is held: as long as something is queued, the kernel still
 * charges up to a quarter of the buffer that is already free (udp_rmem_release).
 */
void snt__udp_rx_hold_init(struct snt__udp_rx_hold *hold,
			   const struct snt__udp_socket *socket);
void snt__udp_rx_hold_finish(struct snt__udp_rx_hold *hold);

/* The flags to receive messages with: MSG_PEEK, or 0. */
int snt__udp_rx_hold_flags(const struct snt__udp_rx_hold *hold);

/* Messages were received with these flags. */
void snt__udp_rx_hold_put(struct snt__udp_rx_hold *hold, int flags, unsigned count,
			  uint32_t bytes);

/* Drops everything. */
void snt__udp_rx_hold_clear(struct snt__udp_rx_hold *hold);

/*
 * Returns the fd to sleep on: the socket's, or one that no longer reports what has
 * arrived. In that case the caller receives once more, and does not sleep if there was
 * something; and a thread that sleeps on the fd already must be woken, since it may not
 * have been notified. `alone`: no thread does.
 */
int snt__udp_rx_hold_sleep(struct snt__udp_rx_hold *hold, bool alone);

#endif
