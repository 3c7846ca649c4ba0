/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/shelf.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The length of a long message, and how many in a row make more of them likely. */
#define LONG_BYTES (16u << 10)
#define ROW	   4

/* The kernel walks along the shelf at every peek. With so many messages they must be
 * short, since long ones would have filled it. */
#define COUNT_MAX 64
#define BYTES_MAX (COUNT_MAX * LONG_BYTES)

/* The part of the spare buffer that the shelf takes, and the least that is worth it. */
#define SHARE	  8
#define BYTES_MIN (BYTES_MAX / 2)

/* Most messages dropped by one call. */
#define BATCH 16

/* After so many, the kernel is at fault. */
#define LOSSES_MAX 100

static uint32_t room(const struct snt__udp_socket *socket)
{
	uint32_t bytes = socket->spare_bytes / SHARE;

	if (bytes < BYTES_MIN || socket->spare_bytes < socket->receive_bytes)
		return 0;
	return bytes < BYTES_MAX ? bytes : BYTES_MAX;
}

/* Starts with nothing peeked at. Some kernels accept any option without having it,
 * hence the query. */
static bool begin(int fd)
{
	const int none = 0;
	int offset = -1;
	socklen_t size = sizeof(offset);

	return !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none)) &&
	       !getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size) && !offset;
}

void snt__udp_shelf_init(struct snt__udp_shelf *shelf,
			 const struct snt__udp_socket *socket)
{
	uint32_t bytes_max = room(socket);

	*shelf = (struct snt__udp_shelf){ .fd = socket->fd, .epoll_fd = -1 };
	if (!bytes_max || !begin(shelf->fd))
		return;
	shelf->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (shelf->epoll_fd >= 0)
		shelf->bytes_max = bytes_max;
}

void snt__udp_shelf_finish(struct snt__udp_shelf *shelf)
{
	if (shelf->epoll_fd >= 0)
		close(shelf->epoll_fd);
}

int snt__udp_shelf_flags(const struct snt__udp_shelf *shelf)
{
	return shelf->count || (shelf->bytes_max && shelf->row >= ROW) ? MSG_PEEK : 0;
}

/*
 * A sender on this host can make the kernel discard a message that was peeked at, by
 * changing it later so that its checksum is wrong. Then another one was dropped in its
 * place, perhaps before it was peeked at, and what is left is received once more. Peers
 * cope with both loss and duplicates.
 */
static void begin_anew(struct snt__udp_shelf *shelf)
{
	shelf->bytes = shelf->count = shelf->row = 0;
	if (!begin(shelf->fd) || ++shelf->losses >= LOSSES_MAX)
		shelf->bytes_max = 0;
}

static void forget(struct snt__udp_shelf *shelf, const struct mmsghdr *headers,
		   int count)
{
	uint32_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += headers[i].msg_len;
	shelf->count -= count;
	if (bytes > shelf->bytes || (!shelf->count && bytes != shelf->bytes))
		begin_anew(shelf);
	else
		shelf->bytes -= bytes;
}

/* Drops the oldest ones. With MSG_TRUNC the kernel returns, and accounts for, their
 * full length. */
static void drop(struct snt__udp_shelf *shelf, unsigned count)
{
	struct mmsghdr headers[BATCH] = { 0 };
	int dropped;

	if (count > shelf->count)
		count = shelf->count;
	if (count > BATCH)
		count = BATCH;
	dropped =
		snt__udp_recvmmsg(shelf->fd, headers, count, MSG_DONTWAIT | MSG_TRUNC);
	if (dropped > 0)
		forget(shelf, headers, dropped);
	else
		begin_anew(shelf);
}

void snt__udp_shelf_clear(struct snt__udp_shelf *shelf)
{
	while (shelf->count)
		drop(shelf, shelf->count);
	shelf->row = 0;
}

void snt__udp_shelf_put(struct snt__udp_shelf *shelf, int flags, unsigned count,
			uint32_t bytes)
{
	shelf->row = bytes / count >= LONG_BYTES ? shelf->row + count : 0;
	if (!(flags & MSG_PEEK))
		return;
	shelf->count += count;
	shelf->bytes += bytes;
	while (shelf->count && shelf->bytes > shelf->bytes_max)
		drop(shelf, count);
	if (shelf->count >= COUNT_MAX)
		snt__udp_shelf_clear(shelf);
}

/* While the kernel watches the socket, every message costs more. */
static void unwatch(struct snt__udp_shelf *shelf)
{
	epoll_ctl(shelf->epoll_fd, EPOLL_CTL_DEL, shelf->fd, NULL);
	shelf->watched = false;
}

/* Discards earlier notifications. Returns whether new arrivals will be notified. */
static bool watch(struct snt__udp_shelf *shelf)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	if (!shelf->watched)
		shelf->watched =
			!epoll_ctl(shelf->epoll_fd, EPOLL_CTL_ADD, shelf->fd, &event);
	return shelf->watched && epoll_wait(shelf->epoll_fd, &event, 1, 0) >= 0;
}

int snt__udp_shelf_sleep(struct snt__udp_shelf *shelf, bool alone)
{
	if (shelf->count && watch(shelf))
		return shelf->epoll_fd;
	snt__udp_shelf_clear(shelf);
	if (alone && shelf->watched)
		unwatch(shelf);
	return shelf->fd;
}
