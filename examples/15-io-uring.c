/* SPDX-License-Identifier: MIT */
/* Echoes by RDMA, by a stream and by TCP, and a timer, in a loop of io_uring. */
#include <stdio.h>
#include <string.h>
#include <sennit/adapters/io_uring.h>

#include "echo.h"

/* What the completions are about. */
enum {
	TCP_CLIENT,
	TCP_SERVER,
	TIMER,
	SENNIT,
};

struct program {
	struct echo echo;
	struct io_uring ring;
	struct snt_io_uring sennit;
};

static struct io_uring_sqe *request(struct program *program)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&program->ring);

	if (!sqe && io_uring_submit(&program->ring) > 0)
		sqe = io_uring_get_sqe(&program->ring);
	echo_check(sqe ? 0 : -EAGAIN, "a request");
	return sqe;
}

static void watch(struct program *program, unsigned what)
{
	struct io_uring_sqe *sqe = request(program);

	io_uring_prep_poll_add(sqe, program->echo.tcp.fd[what], POLLIN);
	io_uring_sqe_set_data64(sqe, what);
}

static void start_timer(struct program *program)
{
	static struct __kernel_timespec period = { .tv_nsec = ECHO_TICK_MS * 1000000 };
	struct io_uring_sqe *sqe = request(program);

	io_uring_prep_timeout(sqe, &period, 0, 0);
	io_uring_sqe_set_data64(sqe, TIMER);
}

static void handle(struct program *program, const struct io_uring_cqe *cqe)
{
	switch (cqe->user_data) {
	case SENNIT:
		echo_check(snt_io_uring_ready(&program->sennit, cqe), "poll");
		break;
	case TIMER:
		program->echo.ticks++;
		start_timer(program);
		break;
	default:
		echo_tcp_ready(&program->echo, program->echo.tcp.fd[cqe->user_data]);
		watch(program, cqe->user_data);
	}
}

int main(void)
{
	static struct program program;
	struct io_uring_cqe *cqe;
	int ret = io_uring_queue_init(32, &program.ring, 0);

	if (ret) {
		printf("io_uring: not on this host: %s\n", strerror(-ret));
		return 77;
	}
	echo_open(&program.echo);
	watch(&program, TCP_CLIENT);
	watch(&program, TCP_SERVER);
	start_timer(&program);
	echo_check(snt_io_uring_attach(&program.sennit, program.echo.rdma.loop,
				       &program.ring, SENNIT),
		   "attach");
	while (!echo_is_done(&program.echo)) {
		io_uring_submit_and_wait(&program.ring, 1);
		while (!io_uring_peek_cqe(&program.ring, &cqe)) {
			handle(&program, cqe);
			io_uring_cqe_seen(&program.ring, cqe);
		}
		echo_check(snt_io_uring_dispatch(&program.sennit), "dispatch");
	}
	/* The ring is not used any more, so its last completions need not be waited
	 * for. */
	echo_check(snt_io_uring_detach(&program.sennit), "detach");
	io_uring_queue_exit(&program.ring);
	return echo_close(&program.echo, "io_uring");
}
