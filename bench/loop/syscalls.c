/* SPDX-License-Identifier: MIT */
/*
 * The library's calls of libc find these first, because they are in the program.
 */
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop/cases.h"

unsigned long syscall_counts[SYSCALL_KINDS];
bool syscall_counting;

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	syscall_counts[SYSCALL_EPOLL_WAIT] += syscall_counting;
	return syscall(SYS_epoll_pwait, fd, events, max, timeout, NULL, 0);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
	syscall_counts[SYSCALL_WRITE] += syscall_counting;
	return syscall(SYS_write, fd, bytes, length);
}

ssize_t read(int fd, void *bytes, size_t length)
{
	syscall_counts[SYSCALL_READ] += syscall_counting;
	return syscall(SYS_read, fd, bytes, length);
}
