/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/socket.h"

#include <errno.h>
#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dev/soft/wire.h"

static bool set_option(int fd, int level, int name, int value)
{
	return !setsockopt(fd, level, name, &value, sizeof(value));
}

static uint32_t get_option(int fd, int name)
{
	socklen_t size = sizeof(int);
	int value = 0;

	getsockopt(fd, SOL_SOCKET, name, &value, &size);
	return value < 0 ? 0 : value;
}

/* Packets are as long as both ends have agreed. ICMP messages that call them too long
 * for the path are ignored, since any host can forge them: PROBE, which DO would not
 * do. */
static bool set_up_ip(int fd, bool ipv4)
{
	if (ipv4)
		return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
		       set_option(fd, IPPROTO_IP, IP_TTL, SNT__UDP_HOP_LIMIT);
	/* RoCE has no use for the UDP checksum, and most implementations leave it out,
	 * which IPv6 allows only to sockets that ask for it. */
	return set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1) &&
	       set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
	       set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) &&
	       set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, SNT__UDP_HOP_LIMIT);
}

/*
 * rxe, and even more so a NIC, sends half a megabyte at once whether it fits or not. So
 * a process that may have more than the buffer granted to any process takes it, and
 * twice as much to hold messages. Windows are computed from what any process has, since
 * the peers may have no more.
 */
static void set_buffers(struct snt__udp_socket *socket, uint32_t bytes)
{
	set_option(socket->fd, SOL_SOCKET, SO_RCVBUF, bytes);
	set_option(socket->fd, SOL_SOCKET, SO_SNDBUF, bytes);
	socket->receive_bytes = get_option(socket->fd, SO_RCVBUF);
	socket->send_bytes = get_option(socket->fd, SO_SNDBUF);
	set_option(socket->fd, SOL_SOCKET, SO_RCVBUF, 2 * bytes);
	set_option(socket->fd, SOL_SOCKET, SO_RCVBUFFORCE, 2 * bytes);
	socket->spare_bytes = get_option(socket->fd, SO_RCVBUF) - socket->receive_bytes;
}

int snt__udp_socket_bind(const struct snt__udp_address *address, bool of_group)
{
	bool ipv4 = snt__udp_is_ipv4(address->gid);
	union snt__udp_sockaddr local;
	socklen_t size =
		snt__udp_sockaddr(address->gid, address->scope, SNT__WIRE_PORT, &local);
	int fd = socket(ipv4 ? AF_INET : AF_INET6,
			SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	if (set_up_ip(fd, ipv4) &&
	    (!of_group || set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) &&
	    !bind(fd, &local.any, size))
		return fd;
	error = errno;
	close(fd);
	return -error;
}

int snt__udp_socket_allow_group(int fd)
{
	return set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1) ? 0 : -errno;
}

void snt__udp_socket_set_up(int fd, uint32_t buffer_bytes,
			    struct snt__udp_socket *socket_out)
{
	*socket_out = (struct snt__udp_socket){ .fd = fd };
	set_buffers(socket_out, buffer_bytes);
	/* 0: no segments unless a send asks for them; this only tests the kernel for
	 * support. */
	socket_out->gso = set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
	snt__udp_socket_join_segments(socket_out, true);
}

void snt__udp_socket_join_segments(struct snt__udp_socket *socket, bool on)
{
	socket->gro = set_option(socket->fd, IPPROTO_UDP, UDP_GRO, on) && on;
}

int snt__udp_socket_open(const struct snt__udp_address *address, uint32_t buffer_bytes,
			 struct snt__udp_socket *socket_out)
{
	int fd = snt__udp_socket_bind(address, false);

	if (fd < 0)
		return fd;
	snt__udp_socket_set_up(fd, buffer_bytes, socket_out);
	return 0;
}

int snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	return syscall(SYS_sendmmsg, fd, headers, count, flags);
}

int snt__udp_recvmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	return syscall(SYS_recvmmsg, fd, headers, count, flags, NULL);
}
