/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of epoll. */
#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <sennit/adapters/epoll.h>

#include "echo.h"

static void watch(int epoll_fd, int *fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = fd };

	echo_check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, *fd, &event) ? -errno : 0,
		   "epoll_ctl");
}

static int start_timer(void)
{
	struct itimerspec period = { .it_interval.tv_nsec = ECHO_TICK_MS * 1000000,
				     .it_value.tv_nsec = ECHO_TICK_MS * 1000000 };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);

	echo_check(fd < 0 || timerfd_settime(fd, 0, &period, NULL) ? -errno : fd,
		   "timer");
	return fd;
}

/* By level or, with an argument, by edge. */
int main(int argc, char **argv)
{
	struct snt_epoll sennit = { 0 };
	struct epoll_event events[8];
	struct echo echo;
	uint64_t ticks;
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC), timer = start_timer();

	(void)argv;
	echo_open(&echo);
	watch(epoll_fd, &timer);
	watch(epoll_fd, &echo.tcp.fd[0]);
	watch(epoll_fd, &echo.tcp.fd[1]);
	echo_check(snt_epoll_attach(&sennit, echo.rdma.loop, epoll_fd,
				    argc > 1 ? EPOLLET : 0),
		   "attach");
	while (!echo_is_done(&echo)) {
		int count = epoll_wait(epoll_fd, events, 8, -1);

		for (int i = 0; i < count; i++) {
			int *fd = events[i].data.ptr;

			if (events[i].data.ptr == &sennit)
				echo_check(snt_epoll_ready(&sennit), "dispatch");
			else if (fd != &timer)
				echo_tcp_ready(&echo, *fd);
			else if (read(timer, &ticks, sizeof(ticks)) > 0)
				echo.ticks++;
		}
	}
	snt_epoll_detach(&sennit);
	close(timer);
	close(epoll_fd);
	return echo_close(&echo, "epoll");
}
