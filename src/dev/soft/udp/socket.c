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

static int prepare_socket(struct snt__udp_socket *socket,
			  const struct snt__udp_address *address, uint32_t buffer_bytes)
{
	bool ipv4 = snt__udp_is_ipv4(address->gid);
	union snt__udp_sockaddr local;
	socklen_t size =
		snt__udp_sockaddr(address->gid, address->scope, SNT__WIRE_PORT, &local);
	int fd = socket->fd;

	if (!set_up_ip(fd, ipv4) || bind(fd, &local.any, size))
		return -errno;
	set_buffers(socket, buffer_bytes);
	/* 0: no segments unless a send asks for them; this only tests the kernel for
	 * support. */
	socket->gso = set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
	socket->gro = set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
	return 0;
}

int snt__udp_socket_open(const struct snt__udp_address *address, uint32_t buffer_bytes,
			 struct snt__udp_socket *socket_out)
{
	struct snt__udp_socket new = { 0 };
	int ret;

	new.fd = socket(snt__udp_is_ipv4(address->gid) ? AF_INET : AF_INET6,
			SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (new.fd < 0)
		return -errno;
	ret = prepare_socket(&new, address, buffer_bytes);
	if (ret) {
		close(new.fd);
		return ret;
	}
	*socket_out = new;
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
