/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_ECHO_H
#define EXAMPLES_ECHO_H

#include <sennit/sennit.h>

/*
 * What 10-epoll.c to 15-io-uring.c have in common: an echo by ops, an echo by streams, an
 * echo by TCP and a count of timer ticks. Both ends of each echo are here, for the sake of
 * brevity. The event loop is the examples' part; all that happens, happens in it.
 */

#define ECHO_ROUNDS  1000
#define ECHO_TICKS   3
#define ECHO_TICK_MS 10

/* By RDMA: ops, whose callbacks send the next message. */
struct rdma_echo {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_mem *mem;
	struct snt_qp *qp[2]; /* client and server */
	struct snt_op send[2], recv[2];
	char bytes[4][64]; /* what is sent and received, by each */
	unsigned rounds;
};

/* By streams, whose functions are called when there is something to read. */
struct stream_echo {
	struct snt_stream_listener *listener;
	struct snt_stream *client, *server;
	unsigned rounds;
	unsigned over; /* ends that are */
};

/* By TCP. */
struct tcp_echo {
	int fd[2]; /* client and server */
	unsigned rounds;
};

struct echo {
	struct rdma_echo rdma;
	struct stream_echo stream;
	struct tcp_echo tcp;
	unsigned ticks;
};

/* Opens all and sends the first messages. Ends the program if something fails. */
void echo_open(struct echo *echo);

/* One of the two sockets is readable. */
void echo_tcp_ready(struct echo *echo, int fd);

static inline int echo_is_done(const struct echo *echo)
{
	return echo->rdma.rounds == ECHO_ROUNDS && echo->stream.over == 2 &&
	       echo->tcp.rounds == ECHO_ROUNDS && echo->ticks >= ECHO_TICKS;
}

/* Closes all, after sennit's loop was detached from the program's, and says how it was. */
int echo_close(struct echo *echo, const char *loop);

/* echo_stream.c */
void echo_stream_open(struct stream_echo *echo, struct snt_loop *loop);
void echo_stream_close(struct stream_echo *echo);

/* The call failed: says why, and ends the program. */
void echo_check(int ret, const char *what);

#endif
