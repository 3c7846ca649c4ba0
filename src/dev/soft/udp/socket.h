/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SOCKET_H
#define SNT_DEV_SOFT_UDP_SOCKET_H

#include <sys/socket.h>
#include "dev/soft/udp/address.h"

/*
 * The socket of a device: an ordinary one, bound to its address and to port 4791.
 *
 * It is not connected and never fragments. Such a socket sends IPv4 packets with an
 * identification of 0, and k in the segment number k of a send with offload; the ICRC
 * covers it, so it has to be known.
 */
struct snt__udp_socket {
	int fd;
	bool gso, gro; /* the kernel has them */
	/* What is granted to everybody, as the kernel counts: a packet takes more than its
	 * bytes. */
	uint32_t receive_bytes, send_bytes;
	/* What there is to receive beyond that, with privileges mostly. */
	uint32_t spare_bytes;
};

/* What sockets have if nobody asks for less. The kernel grants up to net.core.rmem_max. */
#define SNT__UDP_BUFFER (4 << 20)

/* What a hop limit is unless a path has another. */
#define SNT__UDP_HOP_LIMIT 64

/* Returns 0, or a negative errno without a sentence: -EADDRINUSE if somebody has the
 * port, -EADDRNOTAVAIL if nobody here has the address. */
int snt__udp_socket_open(const struct snt__udp_address *address, uint32_t buffer_bytes,
			 struct snt__udp_socket *socket_out);

/* Those of the C library are points of cancellation: a thread that was cancelled there would
 * never give back what it has made busy. These are not, and save the atomics of being one. */
int snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags);
int snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags);

#endif
