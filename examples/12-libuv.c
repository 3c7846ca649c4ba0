/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of libuv. */
#include <sennit/adapters/libuv.h>

#include "echo.h"

struct program {
	struct echo echo;
	struct snt_libuv sennit;
	uv_poll_t tcp[2];
	uv_timer_t timer;
};

static void tcp_ready(uv_poll_t *handle, int status, int events)
{
	struct program *program = handle->data;
	int fd = program->echo.tcp.fd[handle == &program->tcp[1]];

	(void)events;
	echo_check(status, "uv_poll");
	echo_tcp_ready(&program->echo, fd);
}

static void ticked(uv_timer_t *timer)
{
	struct program *program = timer->data;

	program->echo.ticks++;
	if (!echo_is_done(&program->echo))
		return;
	/* With nothing left in it, uv_run() returns. */
	snt_libuv_detach(&program->sennit);
	uv_close((uv_handle_t *)timer, NULL);
	for (int i = 0; i < 2; i++)
		uv_close((uv_handle_t *)&program->tcp[i], NULL);
}

static void failed(struct snt_libuv *sennit, int error)
{
	(void)sennit;
	echo_check(error, "dispatch");
}

int main(void)
{
	static struct program program = { .sennit = { .failed = failed } };
	uv_loop_t *loop = uv_default_loop();

	echo_open(&program.echo);
	for (int i = 0; i < 2; i++) {
		uv_poll_init(loop, &program.tcp[i], program.echo.tcp.fd[i]);
		program.tcp[i].data = &program;
		uv_poll_start(&program.tcp[i], UV_READABLE, tcp_ready);
	}
	uv_timer_init(loop, &program.timer);
	program.timer.data = &program;
	uv_timer_start(&program.timer, ticked, ECHO_TICK_MS, ECHO_TICK_MS);
	echo_check(snt_libuv_attach(&program.sennit, program.echo.rdma.loop, loop),
		   "attach");
	uv_run(loop, UV_RUN_DEFAULT);
	uv_loop_close(loop);
	return echo_close(&program.echo, "libuv");
}
