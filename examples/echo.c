/* SPDX-License-Identifier: MIT */
#include "echo.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void echo_check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "echo: %s: %s (%s)\n", what, strerror(-ret), snt_err_text());
	exit(1);
}

/*
 * RDMA
 */

static struct snt_sge part(struct rdma_echo *rdma, unsigned index)
{
	return (struct snt_sge){ rdma->mem, rdma->bytes[index],
				 sizeof(rdma->bytes[index]) };
}

/* Receives before it sends, so that the answer finds a place. */
static void exchange(struct rdma_echo *rdma, unsigned end)
{
	struct snt_sge out = part(rdma, 2 * end), in = part(rdma, 2 * end + 1);

	echo_check(snt_op_recv(rdma->qp[end], &rdma->recv[end], &in), "receive");
	echo_check(snt_op_send(rdma->qp[end], &rdma->send[end], &out), "send");
}

static void check_op(const struct snt_op *op, const char *what)
{
	if (!op->result)
		return;
	fprintf(stderr, "echo: %s: %s\n", what, snt_op_text(op));
	exit(1);
}

static void ask(struct rdma_echo *rdma)
{
	snprintf(rdma->bytes[0], sizeof(rdma->bytes[0]), "round %u", rdma->rounds);
	exchange(rdma, 0);
}

/* The answer is there, and our own buffer is ours again. */
static void client_done(struct snt_op *op)
{
	struct rdma_echo *rdma = op->arg;

	check_op(op, "the client");
	if (snt_op_pending(&rdma->send[0]) || snt_op_pending(&rdma->recv[0]))
		return;
	if (strcmp(rdma->bytes[0], rdma->bytes[1]) != 0)
		echo_check(-EBADMSG, "the answer");
	if (++rdma->rounds < ECHO_ROUNDS)
		ask(rdma);
}

static void server_done(struct snt_op *op)
{
	struct rdma_echo *rdma = op->arg;

	if (op->result == -ESHUTDOWN)
		return; /* the last receive, when all is over */
	check_op(op, "the server");
	if (snt_op_pending(&rdma->send[1]) || snt_op_pending(&rdma->recv[1]))
		return;
	memcpy(rdma->bytes[2], rdma->bytes[3], sizeof(rdma->bytes[2]));
	exchange(rdma, 1);
}

static void connect_qps(struct rdma_echo *rdma)
{
	struct snt_cq_opts cq_opts =
		SNT_INIT(cq_opts, .loop = rdma->loop, .ops = SNT_CQ_OPS_EVENTS);
	struct snt_qp_opts opts = SNT_INIT(opts);
	struct snt_card card[2];

	echo_check(snt_cq_create(rdma->ctx, &cq_opts, &rdma->cq), "CQ");
	opts.cq = rdma->cq;
	for (int i = 0; i < 2; i++) {
		echo_check(snt_qp_create(rdma->ctx, &opts, &rdma->qp[i]), "QP");
		echo_check(snt_qp_card(rdma->qp[i], &card[i]), "card");
	}
	for (int i = 0; i < 2; i++)
		echo_check(snt_qp_connect(rdma->qp[i], &card[!i]), "connect");
}

static void rdma_open(struct rdma_echo *rdma)
{
	struct snt_sge in;

	echo_check(snt_ctx_create(NULL, &rdma->ctx), "open");
	echo_check(snt_loop_create(rdma->ctx, NULL, &rdma->loop), "loop");
	echo_check(snt_mem_register(rdma->ctx, rdma->bytes, sizeof(rdma->bytes),
				    SNT_ACCESS_LOCAL_WRITE, &rdma->mem),
		   "memory");
	connect_qps(rdma);
	for (int i = 0; i < 2; i++) {
		rdma->send[i].done = rdma->recv[i].done = i ? server_done : client_done;
		rdma->send[i].arg = rdma->recv[i].arg = rdma;
	}
	in = part(rdma, 3);
	echo_check(snt_op_recv(rdma->qp[1], &rdma->recv[1], &in), "receive");
	ask(rdma);
}

static void rdma_close(struct rdma_echo *rdma)
{
	for (int i = 0; i < 2; i++) {
		struct snt_op close = { 0 };

		echo_check(snt_op_close(rdma->qp[i], &close), "close");
		echo_check(snt_op_wait(&close, -1), "close");
		echo_check(snt_qp_destroy(rdma->qp[i]), "destroy");
	}
	echo_check(snt_cq_destroy(rdma->cq), "destroy");
	echo_check(snt_mem_release(rdma->mem), "release");
	echo_check(snt_loop_destroy(rdma->loop), "close");
	echo_check(snt_ctx_destroy(rdma->ctx), "close");
}

/*
 * TCP
 */

static void tcp_ask(struct tcp_echo *tcp)
{
	if (write(tcp->fd[0], &tcp->rounds, sizeof(tcp->rounds)) < 0)
		echo_check(-errno, "write");
}

static void tcp_open(struct tcp_echo *tcp)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	tcp->fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, length) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(tcp->fd[0], (struct sockaddr *)&address, length) ||
	    (tcp->fd[1] = accept(listener, NULL, NULL)) < 0)
		echo_check(-errno, "TCP");
	close(listener);
	for (int i = 0; i < 2; i++)
		fcntl(tcp->fd[i], F_SETFL, O_NONBLOCK);
	tcp_ask(tcp);
}

void echo_tcp_ready(struct echo *echo, int fd)
{
	struct tcp_echo *tcp = &echo->tcp;
	unsigned number;

	if (read(fd, &number, sizeof(number)) != (ssize_t)sizeof(number))
		return;
	if (fd == tcp->fd[1]) {
		if (write(fd, &number, sizeof(number)) < 0)
			echo_check(-errno, "write");
		return;
	}
	if (number != tcp->rounds)
		echo_check(-EBADMSG, "the answer by TCP");
	if (++tcp->rounds < ECHO_ROUNDS)
		tcp_ask(tcp);
}

/*
 * All
 */

void echo_open(struct echo *echo)
{
	memset(echo, 0, sizeof(*echo));
	rdma_open(&echo->rdma);
	echo_stream_open(&echo->stream, echo->rdma.loop);
	tcp_open(&echo->tcp);
}

int echo_close(struct echo *echo, const char *loop)
{
	echo_stream_close(&echo->stream);
	rdma_close(&echo->rdma);
	close(echo->tcp.fd[0]);
	close(echo->tcp.fd[1]);
	printf("%s: %u rounds by RDMA, %u by a stream, %u by TCP, %u ticks of the "
	       "timer\n",
	       loop, echo->rdma.rounds, echo->stream.rounds, echo->tcp.rounds,
	       echo->ticks);
	return 0;
}
