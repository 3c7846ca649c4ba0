/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of poll. */
#include <time.h>
#include <sennit/adapters/poll.h>

#include "echo.h"

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
	struct snt_poll sennit = { 0 };
	struct pollfd fds[3];
	struct echo echo;
	long next_tick = now_ms() + ECHO_TICK_MS;

	echo_open(&echo);
	echo_check(snt_poll_attach(&sennit, echo.rdma.loop, &fds[0]), "attach");
	for (int i = 0; i < 2; i++)
		fds[1 + i] = (struct pollfd){ .fd = echo.tcp.fd[i], .events = POLLIN };
	while (!echo_is_done(&echo)) {
		long left = next_tick - now_ms();

		if (left <= 0) {
			echo.ticks++;
			next_tick += ECHO_TICK_MS;
			continue;
		}
		/* The timeout is of this program's own timer; sennit's are in its fd. */
		poll(fds, 3, (int)left);
		echo_check(snt_poll_ready(&sennit, &fds[0]), "dispatch");
		for (int i = 1; i < 3; i++)
			if (fds[i].revents)
				echo_tcp_ready(&echo, fds[i].fd);
	}
	snt_poll_detach(&sennit, &fds[0]);
	return echo_close(&echo, "poll");
}
