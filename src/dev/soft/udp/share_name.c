/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "dev/soft/udp/share.h"

/* A link-local address may be that of several interfaces. */
static socklen_t share_name(const struct snt__udp_address *address,
			    enum snt__share_name what, unsigned number,
			    struct sockaddr_un *name)
{
	static const char *const words[] = { "door", "seat", "port" };
	const size_t room = sizeof(name->sun_path) - 1;
	size_t length;

	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	length = snprintf(name->sun_path + 1, room, "sennit-soft-%u-", geteuid());
	for (unsigned i = 0; i < sizeof(address->gid); i++)
		length += snprintf(name->sun_path + 1 + length, room - length, "%02x",
				   address->gid[i]);
	length += snprintf(name->sun_path + 1 + length, room - length, "-%u-%s-%u",
			   address->scope, words[what], number);
	return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

int snt__share_bind(const struct snt__udp_address *address, int type,
		    enum snt__share_name what, unsigned number)
{
	struct sockaddr_un name;
	socklen_t size = share_name(address, what, number, &name);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;
	const int on = 1;

	if (fd < 0)
		return -errno;
	if (!setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) &&
	    !bind(fd, (struct sockaddr *)&name, size))
		return fd;
	error = errno;
	close(fd);
	return -error;
}

int snt__share_connect(int fd, const struct snt__udp_address *address,
		       enum snt__share_name what, unsigned number)
{
	struct sockaddr_un name;
	socklen_t size = share_name(address, what, number, &name);

	return connect(fd, (struct sockaddr *)&name, size) ? -errno : 0;
}

int snt__share_send(int fd, const struct snt__udp_address *address,
		    enum snt__share_name what, unsigned number, const void *bytes,
		    size_t size)
{
	struct sockaddr_un name;
	socklen_t name_size = share_name(address, what, number, &name);

	return sendto(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL,
		      (struct sockaddr *)&name, name_size) < 0
		       ? -errno
		       : 0;
}
