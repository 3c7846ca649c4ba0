/* SPDX-License-Identifier: MIT */
#include "stream/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <sennit/sennit.h>

struct where {
	char host[64];
	uint16_t port;
};

void die(const char *what)
{
	fprintf(stderr, "bench-stream: %s: %s, %s\n", what, strerror(errno),
		snt_err_text());
	exit(1);
}

static void check_link(long ret, const char *what)
{
	if (ret < 0)
		die(what);
}

static void send_where(int control, const struct where *where)
{
	check_link(write(control, where, sizeof(*where)), "control");
}

static struct where receive_where(int control)
{
	struct where where;

	if (read(control, &where, sizeof(where)) != sizeof(where))
		die("control");
	return where;
}

void link_read_all(struct link *link, void *buffer, size_t length, bool spins)
{
	uint8_t *to = buffer;

	while (length) {
		size_t part = link->table->read(link, to, length, spins);

		to += part;
		length -= part;
	}
}

void link_write_all(struct link *link, const void *buffer, size_t length, bool spins)
{
	const uint8_t *from = buffer;

	while (length) {
		size_t part = link->table->write(link, from, length, spins);

		from += part;
		length -= part;
	}
}

/*
 * TCP
 */

static size_t tcp_result(ssize_t ret)
{
	if (ret > 0)
		return (size_t)ret;
	if (ret < 0 && errno == EAGAIN)
		return 0;
	if (!ret)
		exit(0); /* the other end is done */
	die("TCP");
	return 0;
}

static size_t tcp_try_read(struct link *link, void *buffer, size_t length)
{
	return tcp_result(recv(link->fd, buffer, length, MSG_DONTWAIT));
}

static size_t tcp_try_write(struct link *link, const void *buffer, size_t length)
{
	return tcp_result(send(link->fd, buffer, length, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static size_t tcp_read(struct link *link, void *buffer, size_t length, bool spins)
{
	size_t part;

	if (!spins)
		return tcp_result(recv(link->fd, buffer, length, 0));
	while (!(part = tcp_try_read(link, buffer, length)))
		;
	return part;
}

static size_t tcp_write(struct link *link, const void *buffer, size_t length,
			bool spins)
{
	size_t part;

	if (!spins)
		return tcp_result(send(link->fd, buffer, length, MSG_NOSIGNAL));
	while (!(part = tcp_try_write(link, buffer, length)))
		;
	return part;
}

static void tcp_flush(struct link *link)
{
	(void)link;
}

static const struct link_table tcp_table = { tcp_read, tcp_write, tcp_try_read,
					     tcp_try_write, tcp_flush };

static void tcp_use(struct link *link, int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	link->fd = fd;
	link->table = &tcp_table;
}

void tcp_listen(struct link *link, int control)
{
	struct where where = { .host = "127.0.0.1" };
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, where.host, &at.sin_addr);
	check_link(bind(listener, (struct sockaddr *)&at, size), "bind");
	check_link(listen(listener, 1), "listen");
	check_link(getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
	where.port = ntohs(at.sin_port);
	send_where(control, &where);
	tcp_use(link, accept(listener, NULL, NULL));
	close(listener);
}

void tcp_connect(struct link *link, int control)
{
	struct where where = receive_where(control);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(where.port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, where.host, &at.sin_addr);
	check_link(connect(fd, (struct sockaddr *)&at, sizeof(at)), "connect");
	tcp_use(link, fd);
}

/*
 * Streams
 */

static size_t stream_result(ssize_t ret)
{
	if (ret > 0)
		return (size_t)ret;
	if (ret == -EAGAIN)
		return 0;
	if (!ret)
		exit(0);
	die("stream");
	return 0;
}

static size_t stream_try_read(struct link *link, void *buffer, size_t length)
{
	size_t part = stream_result(snt_stream_read(link->stream, buffer, length));

	if (!part)
		snt_loop_poll(link->loop, 0);
	return part;
}

static size_t stream_try_write(struct link *link, const void *buffer, size_t length)
{
	size_t part = stream_result(snt_stream_write(link->stream, buffer, length));

	if (!part)
		snt_loop_poll(link->loop, 0);
	return part;
}

static size_t stream_read(struct link *link, void *buffer, size_t length, bool spins)
{
	size_t part;

	while (!(part = stream_result(snt_stream_read(link->stream, buffer, length))))
		if (spins)
			snt_loop_poll(link->loop, 0);
		else
			snt_stream_wait(link->stream, SNT_STREAM_READABLE, -1);
	return part;
}

static size_t stream_write(struct link *link, const void *buffer, size_t length,
			   bool spins)
{
	size_t part;

	while (!(part = stream_result(snt_stream_write(link->stream, buffer, length))))
		if (spins)
			snt_loop_poll(link->loop, 0);
		else
			snt_stream_wait(link->stream, SNT_STREAM_WRITABLE, -1);
	return part;
}

static void stream_flush(struct link *link)
{
	while (snt_stream_flush(link->stream) == -EAGAIN)
		check_link(snt_stream_wait(link->stream, SNT_STREAM_FLUSHED, -1),
			   "flush");
}

static const struct link_table stream_table = { stream_read, stream_write,
						stream_try_read, stream_try_write,
						stream_flush };

static struct snt_stream_opts defaults = { .size = sizeof(defaults), .lanes = 1 };

void stream_sizes(uint64_t size)
{
	defaults.recv_size = defaults.send_size = size;
}

void stream_listen(struct link *link, int control)
{
	struct snt_stream_listener_opts opts = { .size = sizeof(opts),
						 .stream = &defaults };
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_stream_listener *listener;
	struct where where = { .port = 0 };

	check_link(snt_ctx_create(NULL, &link->ctx), "open");
	check_link(snt_loop_create(link->ctx, NULL, &link->loop), "open a loop");
	check_link(snt_stream_listener_create(link->loop, NULL, &opts, &listener),
		   "listen");
	check_link(snt_device_query_gid(snt_ctx_device(link->ctx, 0), 0, &gid),
		   "address");
	snprintf(where.host, sizeof(where.host), "%s", gid.text);
	where.port = snt_stream_listener_port(listener);
	send_where(control, &where);
	check_link(snt_stream_listener_wait(listener, -1, &link->stream), "accept");
	link->table = &stream_table;
}

void stream_connect(struct link *link, int control)
{
	struct where where = receive_where(control);
	struct snt_endpoint to = { .size = sizeof(to),
				   .host = where.host,
				   .port = where.port };

	check_link(snt_ctx_create(NULL, &link->ctx), "open");
	check_link(snt_loop_create(link->ctx, NULL, &link->loop), "open a loop");
	check_link(snt_stream_connect(link->loop, &to, &defaults, &link->stream),
		   "connect");
	check_link(snt_stream_wait(link->stream, SNT_STREAM_OPEN, -1), "connect");
	link->table = &stream_table;
}

#define IDLE_STREAMS 64
#define IDLE_RING    4096

double stream_memory(void)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts),
				       .flags = SNT_QP_PASS_THROUGH,
				       .recv_depth = 160 };
	struct snt_stream_opts opts = { .size = sizeof(opts),
					.recv_size = IDLE_RING,
					.send_size = IDLE_RING };
	struct snt_stream *stream[IDLE_STREAMS];
	struct snt_qp *qp[IDLE_STREAMS];
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	size_t before;
	double bytes;

	check_link(snt_ctx_create(NULL, &ctx), "open");
	check_link(snt_loop_create(ctx, NULL, &loop), "open a loop");
	cq_opts.loop = loop;
	check_link(snt_cq_create(ctx, &cq_opts, &qp_opts.cq), "CQ");
	for (unsigned i = 0; i < IDLE_STREAMS; i++)
		check_link(snt_qp_create(ctx, &qp_opts, &qp[i]), "QP");
	/* What the first one of a loop makes for all. */
	check_link(snt_stream_create(qp[0], &opts, &stream[0]), "stream");
	before = mallinfo2().uordblks;
	for (unsigned i = 1; i < IDLE_STREAMS; i++)
		check_link(snt_stream_create(qp[i], &opts, &stream[i]), "stream");
	bytes = (double)(mallinfo2().uordblks - before) / (IDLE_STREAMS - 1) -
		2 * IDLE_RING;
	for (unsigned i = 0; i < IDLE_STREAMS; i++)
		snt_stream_destroy(stream[i]);
	snt_loop_dispatch(loop, 0);
	for (unsigned i = 0; i < IDLE_STREAMS; i++)
		check_link(snt_qp_destroy(qp[i]), "QP");
	check_link(snt_cq_destroy(qp_opts.cq), "CQ");
	check_link(snt_loop_destroy(loop), "close the loop");
	check_link(snt_ctx_destroy(ctx), "close");
	return bytes;
}
