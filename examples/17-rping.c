/* SPDX-License-Identifier: MIT */
/*
 * The server of rping, a program of librdmacm that knows nothing of sennit: reads what the
 * client shows, and writes it back, until the client disconnects.
 *
 *	17-rping                       or 17-rping ADDRESS PORT
 *	rping -c -a ADDRESS -C 3 -v    on the other host
 */
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sennit/sennit.h>

#define SECONDS UINT64_C(1000000000)

/* What the client sends: where its data is, or where it is to go. */
struct ping {
	uint64_t addr;
	uint32_t key, size;
};

static struct {
	struct ping ping;
	char data[65536];
} bytes;
static struct snt_ctx *ctx;
static struct snt_loop *loop;
static struct snt_mem *mem;
static struct snt_listener *listener;
static struct snt_conn *conn;
static struct snt_op recv_op;

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "rping: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void on_event(void *op, struct snt_conn *of, enum snt_conn_event event)
{
	struct snt_sge sge = { mem, &bytes.ping, sizeof(bytes.ping) };

	if (event == SNT_CONN_PREPARE)
		check(snt_op_recv(snt_conn_qp(of), op, &sge), "receive");
}

/* Reads from the client, or writes to it, and says so. False: the client has gone. */
static bool move_data(struct snt_qp *qp, bool back)
{
	struct snt_sge next = { mem, &bytes.ping, sizeof(bytes.ping) };
	struct snt_sge data = { mem, bytes.data, be32toh(bytes.ping.size) };
	struct snt_sge done = { mem, bytes.data, sizeof(bytes.ping) };
	struct snt_token theirs = { .addr = be64toh(bytes.ping.addr),
				    .length = data.length,
				    .access = SNT_ACCESS_REMOTE_READ |
					      SNT_ACCESS_REMOTE_WRITE,
				    .key_count = 1,
				    .key = { be32toh(bytes.ping.key) } };
	struct snt_op op = { 0 };

	check(back ? snt_op_write(qp, &op, &data, &theirs, theirs.addr)
		   : snt_op_read(qp, &op, &data, &theirs, theirs.addr),
	      "move data");
	check(snt_op_wait(&op, 10 * SECONDS), "move data");
	check(snt_op_recv(qp, &recv_op, &next), "receive");
	check(snt_op_send(qp, &op, &done), "send");
	check(snt_op_wait(&op, 10 * SECONDS), "send");
	return !snt_op_wait(&recv_op, -1);
}

int main(int argc, char **argv)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE;
	struct snt_endpoint at =
		SNT_INIT(at, .host = argv[1], .carrier = SNT_CARRIER_PLAIN);
	struct snt_qp_opts qp = SNT_INIT(qp, .flags = SNT_QP_PASS_THROUGH);
	struct snt_conn_opts opts =
		SNT_INIT(opts, .qp = &qp, .event = on_event, .arg = &recv_op);
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .ops = SNT_CQ_OPS_EVENTS);

	at.port = argc > 2 ? atoi(argv[2]) : 7174;
	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	cq_opts.loop = loop;
	check(snt_cq_create(ctx, &cq_opts, &qp.cq), "CQ");
	check(snt_mem_register(ctx, &bytes, sizeof(bytes), access, &mem), "memory");
	check(snt_listener_create(loop, &at, NULL, &listener), "listen");
	check(snt_listener_wait(listener, -1, &conn), "wait");
	check(snt_conn_accept(conn, &opts), "accept");
	check(snt_conn_wait(conn, 10 * SECONDS), "connect");
	check(snt_op_wait(&recv_op, 10 * SECONDS), "receive");
	while (move_data(snt_conn_qp(conn), false) &&
	       move_data(snt_conn_qp(conn), true))
		printf("%.60s\n", bytes.data);
	check(snt_conn_wait_over(conn, 10 * SECONDS), "end");
	return 0;
}
