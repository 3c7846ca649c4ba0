/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of libev. */
#include <sennit/adapters/libev.h>

#include "echo.h"

struct program {
	struct echo echo;
	struct snt_libev sennit;
	ev_io tcp[2];
	ev_timer timer;
};

static void tcp_ready(struct ev_loop *loop, ev_io *io, int events)
{
	struct program *program = io->data;

	(void)loop;
	(void)events;
	echo_tcp_ready(&program->echo, io->fd);
}

static void ticked(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct program *program = timer->data;

	(void)events;
	program->echo.ticks++;
	if (echo_is_done(&program->echo))
		ev_break(loop, EVBREAK_ALL);
}

static void failed(struct snt_libev *sennit, int error)
{
	(void)sennit;
	echo_check(error, "dispatch");
}

int main(void)
{
	static struct program program = { .sennit = { .failed = failed } };
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	const double period = ECHO_TICK_MS / 1000.0;

	echo_open(&program.echo);
	for (int i = 0; i < 2; i++) {
		ev_io_init(&program.tcp[i], tcp_ready, program.echo.tcp.fd[i], EV_READ);
		program.tcp[i].data = &program;
		ev_io_start(loop, &program.tcp[i]);
	}
	ev_timer_init(&program.timer, ticked, period, period);
	program.timer.data = &program;
	ev_timer_start(loop, &program.timer);
	echo_check(snt_libev_attach(&program.sennit, program.echo.rdma.loop, loop),
		   "attach");
	ev_run(loop, 0);
	snt_libev_detach(&program.sennit);
	ev_loop_destroy(loop);
	return echo_close(&program.echo, "libev");
}
