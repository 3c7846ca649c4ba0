/* SPDX-License-Identifier: MIT */
/*
 * By LD_PRELOAD: sockets have no more memory than an ordinary user is granted with the kernel's
 * defaults of net.core.rmem_max and wmem_max.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#define GRANTED 212992

typedef int set_option(int fd, int level, int name, const void *value, socklen_t size);

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	const int granted = GRANTED;
	set_option *real = (set_option *)dlsym(RTLD_NEXT, "setsockopt");

	if (level == SOL_SOCKET && (name == SO_RCVBUFFORCE || name == SO_SNDBUFFORCE)) {
		errno = EPERM;
		return -1;
	}
	if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF) &&
	    *(const int *)value > GRANTED)
		value = &granted;
	return real(fd, level, name, value, size);
}
