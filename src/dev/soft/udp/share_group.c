/* SPDX-License-Identifier: MIT */
/*
 * The sockets of an address that is shared, and the filter that finds the one for a
 * packet.
 *
 * The kernel numbers the sockets of a group in the order in which they were bound, and
 * moves the last one into the place of one that is closed. So none is ever closed before
 * all sharers are gone: the vault has them.
 */
#include <errno.h>
#include <linux/filter.h>
#include <string.h>
#include <unistd.h>

#include "dev/soft/cm_wire.h"
#include "dev/soft/udp/share.h"
#include "dev/soft/wire.h"

#define FDS (SNT__SEATS + 1)

/* The message in the vault. Another version is at another door. */
struct contents {
	uint8_t base;
	uint8_t spare[7];
};

union enclosure {
	struct cmsghdr header;
	uint8_t space[CMSG_SPACE(FDS * sizeof(int))];
};

/*
 * The filter
 */

/* Where things are in the payload of a UDP packet: in the BTH, and in a MAD, behind BTH
 * and DETH. */
#define AT_QPN	     4
#define AT_MAD	     20
#define AT_ATTRIBUTE (AT_MAD + 16)
#define AT_ID	     (AT_MAD + 28) /* the receiver's */

/* Returns the number of the receiver's socket. What is too short goes to the first. */
static int attach_filter(int fd, unsigned base)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_QPN),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SNT__QPN_MASK),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SNT__WIRE_GSI_QPN, 2, 0),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, SNT__SEAT_IN_QPN),
		BPF_STMT(BPF_JMP | BPF_JA, 5),
		/* QP 1 */
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_ATTRIBUTE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SNT__CM_REQ, 6, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_ID),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, 0),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, SNT__SEAT_IN_ID),
		/* a seat */
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, SNT__SEATS - base),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SNT__SEATS - 1),
		BPF_STMT(BPF_RET | BPF_A, 0),
		/* none */
		BPF_STMT(BPF_RET | BPF_K, SNT__SHARE_LOBBY),
	};
	const struct sock_fprog program = { .len = sizeof(code) / sizeof(*code),
					    .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
			  sizeof(program))
		       ? -errno
		       : 0;
}

/*
 * The vault
 */

static int put_into_vault(int to, const struct snt__share_group *group)
{
	struct contents contents = { .base = group->base };
	struct iovec all = { &contents, sizeof(contents) };
	union enclosure control = { 0 };
	struct msghdr message = { .msg_iov = &all,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int *fds = (int *)CMSG_DATA(&control.header);

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(FDS * sizeof(int));
	memcpy(fds, group->sockets, sizeof(group->sockets));
	fds[SNT__SEATS] = group->door;
	return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A message stays in the queue of a datagram socket whose peer has been closed. */
static int make_vault(const struct snt__share_group *group)
{
	int pair[2], ret;

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
		return -errno;
	ret = put_into_vault(pair[0], group);
	close(pair[0]);
	if (!ret)
		return pair[1];
	close(pair[1]);
	return ret;
}

static void close_group_fds(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int snt__share_group_open(int vault, struct snt__share_group *group_out)
{
	struct contents contents = { 0 };
	struct iovec all = { &contents, sizeof(contents) };
	union enclosure control = { 0 };
	struct msghdr message = { .msg_iov = &all,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	const int *fds = (int *)CMSG_DATA(&control.header);
	ssize_t size =
		recvmsg(vault, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	size_t count;

	if (size < 0)
		return -errno;
	if (!CMSG_FIRSTHDR(&message) || control.header.cmsg_type != SCM_RIGHTS)
		return message.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
	count = (control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (size != sizeof(contents) || count != FDS) {
		close_group_fds(fds, count);
		/* The kernel gives as many as the process has room for. */
		return message.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
	}
	memcpy(group_out->sockets, fds, sizeof(group_out->sockets));
	group_out->door = fds[SNT__SEATS];
	group_out->base = contents.base & (SNT__SEATS - 1);
	return 0;
}

void snt__share_group_close(struct snt__share_group *group)
{
	close_group_fds(group->sockets, SNT__SEATS);
	close_group_fds(&group->door, 1);
}

/*
 * Making
 */

/* Elsewhere the kernel joins packets by addresses and size only, before it looks at QP
 * numbers: packets of one sender for several sharers. On loopback nothing is joined that
 * was not sent as one. */
bool snt__share_joins_segments(const struct snt__udp_address *address)
{
	static const uint8_t loopback[16] = { [15] = 1 };

	return snt__udp_is_ipv4(address->gid) ? address->gid[12] == 127
					      : !memcmp(address->gid, loopback, 16);
}

/* The lobby comes first, and then the filter: until that is in place, packets may go to
 * the lobby, whose reader knows where they belong. */
static int bind_all(const struct snt__udp_share *share, struct snt__share_group *group)
{
	int ret = 0;

	for (unsigned i = SNT__SHARE_LOBBY; !ret && i < SNT__SEATS; i++) {
		group->sockets[i] = snt__udp_socket_bind(share->address, true);
		if (group->sockets[i] < 0)
			ret = group->sockets[i];
		else if (i == SNT__SHARE_LOBBY)
			ret = attach_filter(group->sockets[i], share->base);
	}
	return ret;
}

/* Of a group that could not be made, the filter may stay: it finds the first socket for
 * everything. */
int snt__share_group_make(struct snt__udp_share *share, struct snt__udp_socket *socket)
{
	struct snt__share_group group = { .sockets = { socket->fd },
					  .door = share->door,
					  .base = share->base };
	int vault, ret;

	for (unsigned i = 1; i < SNT__SEATS; i++)
		group.sockets[i] = -1;
	ret = bind_all(share, &group);
	vault = ret ? ret : make_vault(&group);
	if (vault >= 0) {
		share->vault = vault;
		share->lobby = group.sockets[SNT__SHARE_LOBBY];
		group.sockets[SNT__SHARE_LOBBY] = -1;
		if (!snt__share_joins_segments(share->address))
			snt__udp_socket_join_segments(socket, false);
	}
	close_group_fds(group.sockets + 1, SNT__SEATS - 1);
	return vault < 0 ? vault : 0;
}
