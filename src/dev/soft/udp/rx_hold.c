/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/rx_hold.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The length of a long message, and how many in a row make more of them likely. */
#define LONG_BYTES (16u << 10)
#define ROW	   4

/* The kernel walks along what is held at every peek. With so many messages they must be
 * short, since long ones would have filled it. */
#define COUNT_MAX 64
#define BYTES_MAX (COUNT_MAX * LONG_BYTES)

/* The part of the spare buffer for held messages, and the least that is worth it. */
#define SHARE	  8
#define BYTES_MIN (BYTES_MAX / 2)

/* Most messages dropped by one call. */
#define BATCH 16

/* After so many, the kernel is at fault. */
#define LOSSES_MAX 100

static uint32_t spare_room(const struct snt__udp_socket *socket)
{
	uint32_t bytes = socket->spare_bytes / SHARE;

	if (bytes < BYTES_MIN || socket->spare_bytes < socket->receive_bytes)
		return 0;
	return bytes < BYTES_MAX ? bytes : BYTES_MAX;
}

/* Starts with nothing peeked at. Some kernels accept any option without having it,
 * hence the query. */
static bool begin_peeking(int fd)
{
	const int none = 0;
	int offset = -1;
	socklen_t size = sizeof(offset);

	return !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none)) &&
	       !getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size) && !offset;
}

void snt__udp_rx_hold_init(struct snt__udp_rx_hold *hold,
			   const struct snt__udp_socket *socket)
{
	uint32_t bytes_max = spare_room(socket);

	*hold = (struct snt__udp_rx_hold){ .fd = socket->fd, .epoll_fd = -1 };
	if (!bytes_max || !begin_peeking(hold->fd))
		return;
	hold->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (hold->epoll_fd >= 0)
		hold->bytes_max = bytes_max;
}

void snt__udp_rx_hold_finish(struct snt__udp_rx_hold *hold)
{
	if (hold->epoll_fd >= 0)
		close(hold->epoll_fd);
}

int snt__udp_rx_hold_flags(const struct snt__udp_rx_hold *hold)
{
	return hold->count || (hold->bytes_max && hold->row >= ROW) ? MSG_PEEK : 0;
}

/*
 * A sender on this host can make the kernel discard a message that was peeked at, by
 * changing it later so that its checksum is wrong. Then another one was dropped in its
 * place, perhaps before it was peeked at, and what is left is received once more. Peers
 * cope with both loss and duplicates.
 */
static void begin_anew(struct snt__udp_rx_hold *hold)
{
	hold->bytes = hold->count = hold->row = 0;
	if (!begin_peeking(hold->fd) || ++hold->losses >= LOSSES_MAX)
		hold->bytes_max = 0;
}

static void forget_datagrams(struct snt__udp_rx_hold *hold,
			     const struct mmsghdr *headers, int count)
{
	uint32_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += headers[i].msg_len;
	hold->count -= count;
	if (bytes > hold->bytes || (!hold->count && bytes != hold->bytes))
		begin_anew(hold);
	else
		hold->bytes -= bytes;
}

/* Drops the oldest ones. With MSG_TRUNC the kernel returns, and accounts for, their
 * full length. */
static void drop_oldest(struct snt__udp_rx_hold *hold, unsigned count)
{
	struct mmsghdr headers[BATCH] = { 0 };
	int dropped;

	if (count > hold->count)
		count = hold->count;
	if (count > BATCH)
		count = BATCH;
	dropped = snt__udp_recvmmsg(hold->fd, headers, count, MSG_DONTWAIT | MSG_TRUNC);
	if (dropped > 0)
		forget_datagrams(hold, headers, dropped);
	else
		begin_anew(hold);
}

void snt__udp_rx_hold_clear(struct snt__udp_rx_hold *hold)
{
	while (hold->count)
		drop_oldest(hold, hold->count);
	hold->row = 0;
}

void snt__udp_rx_hold_put(struct snt__udp_rx_hold *hold, int flags, unsigned count,
			  uint32_t bytes)
{
	hold->row = bytes / count >= LONG_BYTES ? hold->row + count : 0;
	if (!(flags & MSG_PEEK))
		return;
	hold->count += count;
	hold->bytes += bytes;
	while (hold->count && hold->bytes > hold->bytes_max)
		drop_oldest(hold, count);
	if (hold->count >= COUNT_MAX)
		snt__udp_rx_hold_clear(hold);
}

/* While the kernel watches the socket, every message costs more. */
static void unwatch_held_socket(struct snt__udp_rx_hold *hold)
{
	epoll_ctl(hold->epoll_fd, EPOLL_CTL_DEL, hold->fd, NULL);
	hold->watched = false;
}

/* Discards earlier notifications. Returns whether new arrivals will be notified. */
static bool watch_held_socket(struct snt__udp_rx_hold *hold)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	if (!hold->watched)
		hold->watched =
			!epoll_ctl(hold->epoll_fd, EPOLL_CTL_ADD, hold->fd, &event);
	return hold->watched && epoll_wait(hold->epoll_fd, &event, 1, 0) >= 0;
}

int snt__udp_rx_hold_sleep(struct snt__udp_rx_hold *hold, bool alone)
{
	if (hold->count && watch_held_socket(hold))
		return hold->epoll_fd;
	snt__udp_rx_hold_clear(hold);
	if (alone && hold->watched)
		unwatch_held_socket(hold);
	return hold->fd;
}
