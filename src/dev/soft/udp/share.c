/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/share.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "dev/gid.h"
#include "dev/soft/udp/device.h"
#include "util/err.h"

#define BACKLOG 64
#define EVENTS	8

/* Changes whenever the group, its messages or what they mean do. */
#define VERSION 1

#define MS INT64_C(1000000)
/* How long a sharer may take to answer; it may have to wait for a processor. */
#define PATIENCE (10000 * MS)
/* The port of a process that is just ending may be taken for so long after its door. */
#define ENDING (100 * MS)
#define PAUSE  (1 * MS)

/* The answer to a process at the door, with the vault. */
struct welcome {
	uint32_t version;
	int32_t error; /* there is no vault */
};

union enclosure {
	struct cmsghdr header;
	uint8_t space[CMSG_SPACE(sizeof(int))];
};

void snt__udp_share_init(struct snt__udp_share *share,
			 const struct snt__udp_address *address)
{
	*share = (struct snt__udp_share){ .address = address,
					  .fd = -1,
					  .door = -1,
					  .mailbox = -1,
					  .lobby = -1,
					  .vault = -1 };
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void snt__udp_share_close(struct snt__udp_share *share)
{
	snt__udp_share_unclaim(share, 0);
	close_one(&share->mailbox);
	close_one(&share->lobby);
	close_one(&share->vault);
	close_one(&share->door);
	close_one(&share->fd);
}

int snt__share_watch(const struct snt__udp_share *share, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(share->fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int refuse_to_share(const struct snt__udp_share *share, int error,
			   const char *why)
{
	char text[SNT__GID_TEXT];

	return snt__fail(error,
			 "UDP port %u on %s is in use by processes of this user, and "
			 "cannot be shared with them: %s",
			 SNT__WIRE_PORT, snt__gid_text(share->address->gid, text), why);
}

/* In either process. */
static int lack_fds(const struct snt__udp_share *share)
{
	return refuse_to_share(
		share, ETOOMANYREFS,
		"that takes 65 more file descriptors for a moment; raise "
		"\"ulimit -n\", here and there");
}

/*
 * Seats
 */

/* The mailbox's name is the claim. Returns 0, or -EADDRINUSE: the seat is taken. */
static int take_seat(struct snt__udp_share *share, unsigned seat)
{
	int fd = snt__share_bind(share->address, SOCK_DGRAM, SNT__SHARE_SEAT, seat);

	if (fd < 0)
		return fd;
	share->mailbox = fd;
	share->seat = (struct snt__seat){ .taken = true, .number = (uint8_t)seat };
	return 0;
}

/* In an order that begins anywhere, so that the seat of a process that has died, whose
 * packets may still arrive, is mostly not the next to be taken. Returns the number of the
 * seat's socket, or -errno. */
static int take_free_seat(struct snt__udp_share *share)
{
	unsigned index;
	uint8_t first;
	int ret = snt__udp_random(&first, sizeof(first));

	if (ret)
		return ret;
	ret = -EADDRINUSE;
	for (unsigned i = 0; ret == -EADDRINUSE && i < SNT__SEATS; i++) {
		index = (first + i) % SNT__SEATS;
		if (index != SNT__SHARE_LOBBY)
			ret = take_seat(share, (share->base + index) % SNT__SEATS);
	}
	return ret ? ret : (int)index;
}

/*
 * The first
 */

/* Has the port, so that any seat may be the group's first one, which makes QP numbers
 * harder to guess. */
static int sit_down_first(struct snt__udp_share *share)
{
	int index = take_free_seat(share);

	share->base = share->seat.number;
	return index < 0 ? index : 0;
}

static int bind_first(struct snt__udp_share *share, uint32_t buffer_bytes,
		      struct snt__udp_socket *socket_out)
{
	int ret;

	if (listen(share->door, BACKLOG))
		return -errno;
	ret = snt__udp_socket_open(share->address, buffer_bytes, socket_out);
	if (ret)
		return ret;
	ret = sit_down_first(share);
	if (!ret)
		ret = snt__udp_socket_allow_group(socket_out->fd);
	if (ret)
		close(socket_out->fd);
	return ret;
}

/* -EBUSY: others have the door. */
static int open_first(struct snt__udp_share *share, uint32_t buffer_bytes,
		      struct snt__udp_socket *socket_out)
{
	int ret = snt__share_bind(share->address, SOCK_SEQPACKET, SNT__SHARE_DOOR, 0);

	if (ret < 0)
		return ret == -EADDRINUSE ? -EBUSY : ret;
	share->door = ret;
	ret = bind_first(share, buffer_bytes, socket_out);
	if (ret) {
		close_one(&share->mailbox);
		close_one(&share->door);
	}
	return ret;
}

/*
 * Those that join
 */

/* What a process that died has not read is not for its successor. */
static void drain_socket(int fd)
{
	char byte;

	for (unsigned i = 0; i < 1u << 20; i++)
		if (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) < 0 &&
		    errno == EAGAIN)
			return;
}

static int take_share(struct snt__udp_share *share, struct snt__share_group *group,
		      uint32_t buffer_bytes, struct snt__udp_socket *socket_out)
{
	int index;

	share->base = group->base;
	index = take_free_seat(share);
	if (index == -EADDRINUSE)
		return refuse_to_share(share, EUSERS, "there are too many");
	if (index < 0)
		return index;
	drain_socket(group->sockets[index]);
	snt__udp_socket_set_up(group->sockets[index], buffer_bytes, socket_out);
	snt__udp_socket_join_segments(socket_out,
				      snt__share_joins_segments(share->address));
	share->lobby = group->sockets[SNT__SHARE_LOBBY];
	share->door = group->door;
	group->sockets[index] = group->sockets[SNT__SHARE_LOBBY] = group->door = -1;
	return 0;
}

static int join_group(struct snt__udp_share *share, uint32_t buffer_bytes,
		      struct snt__udp_socket *socket_out)
{
	struct snt__share_group group;
	int ret = snt__share_group_open(share->vault, &group);

	if (ret == -EMFILE)
		return lack_fds(share);
	if (ret)
		return ret;
	ret = take_share(share, &group, buffer_bytes, socket_out);
	snt__share_group_close(&group);
	return ret;
}

/* Returns the vault; -EAGAIN: the other side is gone. */
static int receive_welcome(const struct snt__udp_share *share, int fd)
{
	struct welcome welcome = { 0 };
	struct iovec all = { &welcome, sizeof(welcome) };
	union enclosure control = { 0 };
	struct msghdr message = { .msg_iov = &all,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = CMSG_LEN(sizeof(int)) };
	struct pollfd in = { .fd = fd, .events = POLLIN };
	int vault = -1, found;

	do
		found = poll(&in, 1, PATIENCE / MS);
	while (found < 0 && errno == EINTR);
	if (found <= 0)
		return refuse_to_share(share, ETIMEDOUT,
				       "they do not answer; are they stopped?");
	if (recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(welcome))
		return -EAGAIN;
	if (CMSG_FIRSTHDR(&message) && control.header.cmsg_type == SCM_RIGHTS)
		memcpy(&vault, CMSG_DATA(&control.header), sizeof(vault));
	if (welcome.version == VERSION && vault >= 0)
		return vault;
	close_one(&vault);
	if (welcome.version != VERSION)
		return refuse_to_share(share, EPROTONOSUPPORT,
				       "they use another version of sennit");
	if (!welcome.error || welcome.error == EMFILE || welcome.error == ETOOMANYREFS)
		return lack_fds(share);
	return refuse_to_share(share, ETOOMANYREFS, strerror(welcome.error));
}

/* Returns the vault; -EAGAIN: no process opens, so that the port may be free. */
static int knock_at_door(const struct snt__udp_share *share)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret;
	pid_t pid;

	if (fd < 0)
		return -errno;
	ret = snt__share_connect(fd, share->address, SNT__SHARE_DOOR, 0);
	if (ret)
		ret = -EAGAIN;
	else if (!snt__shm_same_user(fd, &pid))
		ret = -EADDRINUSE;
	else
		ret = receive_welcome(share, fd);
	close(fd);
	return ret;
}

static int join_others(struct snt__udp_share *share, uint32_t buffer_bytes,
		       struct snt__udp_socket *socket_out)
{
	int ret = knock_at_door(share);

	if (ret < 0)
		return ret;
	share->vault = ret;
	ret = join_group(share, buffer_bytes, socket_out);
	if (ret) {
		close_one(&share->mailbox);
		close_one(&share->vault);
	}
	return ret;
}

/*
 * Opening
 */

static int watch_meeting_places(struct snt__udp_share *share)
{
	int ret;

	share->fd = epoll_create1(EPOLL_CLOEXEC);
	if (share->fd < 0)
		return -errno;
	ret = snt__share_watch(share, share->door);
	if (!ret)
		ret = snt__share_watch(share, share->mailbox);
	if (!ret && share->lobby >= 0)
		ret = snt__share_watch(share, share->lobby);
	return ret;
}

/* A process that had the address may be ending, and another one beginning, at any
 * step. */
static int open_or_join(struct snt__udp_share *share, uint32_t buffer_bytes,
			struct snt__udp_socket *socket_out)
{
	const uint64_t begun = snt__udp_now();

	for (;;) {
		int ret = open_first(share, buffer_bytes, socket_out);
		int64_t patience = ENDING;

		if (ret == -EBUSY) {
			ret = join_others(share, buffer_bytes, socket_out);
			patience = ret == -EAGAIN ? PATIENCE : 0;
		}
		if ((ret != -EAGAIN && ret != -EADDRINUSE) ||
		    (int64_t)(snt__udp_now() - begun) >= patience)
			return ret == -EAGAIN ? -EADDRINUSE : ret;
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE }, NULL);
	}
}

int snt__udp_share_open(struct snt__udp_share *share, uint32_t buffer_bytes, bool join,
			struct snt__udp_socket *socket_out)
{
	int ret = join ? open_or_join(share, buffer_bytes, socket_out)
		       : open_first(share, buffer_bytes, socket_out);

	if (ret)
		return ret == -EBUSY ? -EADDRINUSE : ret;
	ret = watch_meeting_places(share);
	if (ret) {
		close(socket_out->fd);
		snt__udp_share_close(share);
	}
	return ret;
}

/*
 * Serving
 */

static bool send_welcome(const struct snt__udp_share *share, int fd, int error)
{
	struct welcome welcome = { .version = VERSION, .error = error };
	struct iovec all = { &welcome, sizeof(welcome) };
	union enclosure control = { 0 };
	struct msghdr message = { .msg_iov = &all, .msg_iovlen = 1 };

	if (!error) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &share->vault, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* The kernel may refuse to send an fd, if the user has too many under way. */
static void welcome_sharer(const struct snt__udp_share *share, int fd, int error)
{
	if (!send_welcome(share, fd, error))
		send_welcome(share, fd, errno);
}

/* 0 or an errno. */
static int share_with_others(struct snt__udp_device *device)
{
	struct snt__udp_share *share = &device->share;
	int ret;

	if (share->vault >= 0)
		return 0;
	ret = snt__share_group_make(share, &device->socket);
	if (!ret)
		ret = snt__share_watch(share, share->lobby);
	return -ret;
}

static void open_door(struct snt__udp_device *device)
{
	int fd = accept4(device->share.door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	pid_t pid;

	if (fd < 0)
		return;
	if (snt__shm_same_user(fd, &pid))
		welcome_sharer(&device->share, fd, share_with_others(device));
	close(fd);
}

void snt__udp_share_serve(struct snt__udp_device *device)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(device->share.fd, events, EVENTS, 0);

	for (int i = 0; i < count; i++) {
		int fd = events[i].data.fd;

		if (fd == device->share.door)
			open_door(device);
		else if (fd == device->share.lobby)
			snt__share_read_lobby(device);
		else
			snt__share_read_mail(device, fd);
	}
}
