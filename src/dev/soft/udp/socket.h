/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SOCKET_H
#define SNT_DEV_SOFT_UDP_SOCKET_H

#include <sys/socket.h>
#include "dev/soft/udp/address.h"

/*
 * The socket of a device: an ordinary one, bound to its address and to port 4791.
 *
 * It is not connected and never fragments. Such a socket sends IPv4 packets with
 * identification 0, and with k in segment number k of a send with offload; the ICRC
 * covers the identification, so it has to be known.
 */
struct snt__udp_socket {
	int fd;
	bool gso, gro; /* supported by the kernel */
	/* Buffers that any process is granted, as the kernel counts: a packet takes
	 * more than its bytes. */
	uint32_t receive_bytes, send_bytes;
	/* Receive buffer beyond that; it mostly takes privileges. */
	uint32_t spare_bytes;
};

/* The default socket buffer. The kernel grants up to net.core.rmem_max. */
#define SNT__UDP_BUFFER (4 << 20)

/* The hop limit unless a path has another. */
#define SNT__UDP_HOP_LIMIT 64

/* Returns 0, or a negative errno without a sentence: -EADDRINUSE if the port is taken,
 * -EADDRNOTAVAIL if the host does not have the address. */
int snt__udp_socket_open(const struct snt__udp_address *address, uint32_t buffer_bytes,
			 struct snt__udp_socket *socket_out);

/* For addresses that are shared (share.h). Only this: a socket of the address, bound as
 * one of a group. Returns the fd or -errno. */
int snt__udp_socket_bind(const struct snt__udp_address *address, bool of_group);
/* Allows others of a group to be bound beside it. Returns 0 or -errno. */
int snt__udp_socket_allow_group(int fd);
/* Sets the buffers of a socket that is bound, and finds out what it can do. */
void snt__udp_socket_set_up(int fd, uint32_t buffer_bytes,
			    struct snt__udp_socket *socket_out);
/* Whether the kernel may deliver several packets as one. */
void snt__udp_socket_join_segments(struct snt__udp_socket *socket, bool on);

/* The C library's calls are cancellation points: a thread cancelled there would leave
 * the sender or receiver busy for ever. These are not, and save the atomics of one. */
int snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags);
int snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags);

#endif
