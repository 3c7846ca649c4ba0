/* SPDX-License-Identifier: MIT */
#include "perf_control.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "perf_error.h"

uint64_t perf_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Connecting and listening
 */

static int resolve_host(const char *host, const char *port, int flags,
			struct addrinfo **list_out)
{
	struct addrinfo hints = { .ai_flags = flags, .ai_socktype = SOCK_STREAM };
	int ret = getaddrinfo(host, port, &hints, list_out);

	if (!ret)
		return 0;
	return perf_fail(EADDRNOTAVAIL, "%s, port %s: %s", host ? host : "any address",
			 port, gai_strerror(ret));
}

static int listen_on_control(const struct addrinfo *address, int *fd_out)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1,
	    off = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->ai_family == AF_INET6) /* for both families */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, 16)) {
		int err = errno;

		close(fd);
		return -err;
	}
	*fd_out = fd;
	return 0;
}

static int connect_control(const struct addrinfo *address, int *fd_out)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -errno;
	if (connect(fd, address->ai_addr, address->ai_addrlen)) {
		int err = errno;

		close(fd);
		return -err;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	*fd_out = fd;
	return 0;
}

/* Connects to or listens on the first address for which that works. */
static int try_all(struct addrinfo *list,
		   int (*attempt)(const struct addrinfo *, int *), int *fd_out)
{
	int ret = -EADDRNOTAVAIL;

	for (struct addrinfo *at = list; at && ret; at = at->ai_next)
		ret = attempt(at, fd_out);
	freeaddrinfo(list);
	return ret;
}

/* IPv6's "any" address also takes IPv4, so it is tried first; it fails without IPv6. */
static void ipv6_first(struct addrinfo **list)
{
	struct addrinfo *first = *list, *second = first->ai_next;

	if (!second || first->ai_family == AF_INET6 || second->ai_family != AF_INET6)
		return;
	first->ai_next = second->ai_next;
	second->ai_next = first;
	*list = second;
}

int perf_listen(const char *host, const char *port, int *fd_out)
{
	struct addrinfo *list;
	int ret = resolve_host(host, port, AI_PASSIVE, &list);

	if (ret)
		return ret;
	if (!host)
		ipv6_first(&list);
	ret = try_all(list, listen_on_control, fd_out);
	if (ret)
		return perf_fail(-ret, "listening on port %s: %s", port,
				 strerror(-ret));
	return 0;
}

int perf_dial(const char *host, const char *port, int *fd_out)
{
	struct addrinfo *list;
	int ret = resolve_host(host, port, 0, &list);

	if (ret)
		return ret;
	ret = try_all(list, connect_control, fd_out);
	if (ret)
		return perf_fail(-ret, "connecting to %s, port %s: %s", host, port,
				 strerror(-ret));
	return 0;
}

/*
 * Messages
 */

int perf_send(int fd, const struct perf_message *message)
{
	unsigned char frame[PERF_HEADER + PERF_BODY_MAX], *at = frame;
	size_t left = perf_encode(message, frame);

	while (left) {
		ssize_t sent = send(fd, at, left, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return perf_fail(ECONNRESET,
					 "the other end closed the connection: %s",
					 strerror(errno));
		at += sent;
		left -= (size_t)sent;
	}
	return 0;
}

int perf_send_word(int fd, enum perf_type type)
{
	struct perf_message message = { .type = type };

	return perf_send(fd, &message);
}

int perf_send_failed(int fd)
{
	struct perf_message message = { .type = PERF_FAILED };

	snprintf(message.text, sizeof(message.text), "%s", perf_error_text());
	return perf_send(fd, &message);
}

static int await_input(int fd, uint64_t deadline_ns)
{
	struct pollfd watch = { .fd = fd, .events = POLLIN };

	for (;;) {
		uint64_t now = perf_now_ns();
		int ready, ms;

		if (now >= deadline_ns)
			return perf_fail(
				ETIMEDOUT,
				"the other end did not answer in time; check that it runs");
		ms = (int)((deadline_ns - now) / 1000000 + 1);
		ready = poll(&watch, 1, ms);
		if (ready > 0)
			return 0;
		if (ready < 0 && errno != EINTR)
			return perf_fail(errno, "poll: %s", strerror(errno));
	}
}

static int receive_bytes(int fd, void *memory, size_t length, uint64_t deadline_ns)
{
	unsigned char *at = memory;

	while (length) {
		ssize_t got;
		int ret = await_input(fd, deadline_ns);

		if (ret)
			return ret;
		got = recv(fd, at, length, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return perf_fail(ECONNRESET,
					 "the other end closed the connection");
		at += got;
		length -= (size_t)got;
	}
	return 0;
}

int perf_receive(int fd, uint64_t patience_ns, struct perf_message *message_out)
{
	unsigned char header[PERF_HEADER], body[PERF_BODY_MAX];
	uint64_t deadline_ns;
	uint16_t type;
	int ret, length;

	ret = await_input(fd, perf_now_ns() + patience_ns);
	if (ret)
		return ret;
	deadline_ns = perf_now_ns() + PERF_PATIENCE_NS;
	ret = receive_bytes(fd, header, sizeof(header), deadline_ns);
	if (ret)
		return ret;
	length = perf_decode_header(header, &type);
	if (length < 0)
		return length;
	ret = receive_bytes(fd, body, (size_t)length, deadline_ns);
	return ret ? ret : perf_decode(type, body, (size_t)length, message_out);
}

int perf_expect(int fd, enum perf_type type, struct perf_message *message_out)
{
	int ret = perf_receive(fd, PERF_PATIENCE_NS, message_out);

	if (ret)
		return ret;
	if (message_out->type == PERF_FAILED)
		return perf_fail(EREMOTEIO, "error of the other end: %s",
				 message_out->text);
	if (message_out->type != type)
		return perf_fail(EPROTO, "the other end sent message %u instead of %u",
				 message_out->type, type);
	return 0;
}

bool perf_told(int fd)
{
	struct pollfd watch = { .fd = fd, .events = POLLIN };

	return poll(&watch, 1, 0) > 0;
}
