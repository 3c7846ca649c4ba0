/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of libevent. */
#include <sennit/adapters/libevent.h>

#include "echo.h"

struct program {
	struct echo echo;
	struct event_base *base;
	struct snt_libevent sennit;
};

static void tcp_ready(evutil_socket_t fd, short events, void *arg)
{
	struct program *program = arg;

	(void)events;
	echo_tcp_ready(&program->echo, fd);
}

static void ticked(evutil_socket_t fd, short events, void *arg)
{
	struct program *program = arg;

	(void)fd;
	(void)events;
	program->echo.ticks++;
	if (echo_is_done(&program->echo))
		event_base_loopbreak(program->base);
}

static void failed(struct snt_libevent *sennit, int error)
{
	(void)sennit;
	echo_check(error, "dispatch");
}

int main(void)
{
	static struct program program = { .sennit = { .failed = failed } };
	struct timeval period = { .tv_usec = ECHO_TICK_MS * 1000 };
	struct event *event[3];

	echo_open(&program.echo);
	program.base = event_base_new();
	for (int i = 0; i < 2; i++) {
		event[i] = event_new(program.base, program.echo.tcp.fd[i],
				     EV_READ | EV_PERSIST, tcp_ready, &program);
		event_add(event[i], NULL);
	}
	event[2] = event_new(program.base, -1, EV_PERSIST, ticked, &program);
	event_add(event[2], &period);
	echo_check(snt_libevent_attach(&program.sennit, program.echo.rdma.loop,
				       program.base),
		   "attach");
	event_base_dispatch(program.base);
	snt_libevent_detach(&program.sennit);
	for (int i = 0; i < 3; i++)
		event_free(event[i]);
	event_base_free(program.base);
	return echo_close(&program.echo, "libevent");
}
