/* SPDX-License-Identifier: MIT */
/*
 * A question and its answer over a connection by address, with blocking calls.
 *
 *	05-by-address serve PORT          on one host; 0: any port
 *	05-by-address ask ADDRESS PORT    on the other, with what the first has printed
 *
 * Addresses are those of RDMA devices: rdma_cm leads from one to the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#define SECONDS	 UINT64_C(1000000000)
#define QUESTION "how many lanes?"

/* Each process has one end. */
static struct {
	char in[64], out[64];
} bytes;
static struct snt_ctx *ctx;
static struct snt_loop *loop;
static struct snt_mem *mem;
static struct snt_cq *cq;
static struct snt_conn *conn;
static struct snt_op recv_op;

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "by-address: %s: %s\n", what, snt_err_text());
	exit(1);
}

/* A receive must be there before the peer can send: when the QP is made, and not
 * connected yet. */
static void on_event(void *unused, struct snt_conn *of, enum snt_conn_event event)
{
	struct snt_sge sge = { mem, bytes.in, sizeof(bytes.in) };

	(void)unused;
	if (event == SNT_CONN_PREPARE)
		check(snt_op_recv(snt_conn_qp(of), &recv_op, &sge), "receive");
	if (event == SNT_CONN_PEER_DONE)
		check(snt_conn_disconnect(of, 10 * SECONDS), "disconnect");
}

static struct snt_qp_opts qp = SNT_INIT(qp, .lanes = 4);
static struct snt_conn_opts opts = SNT_INIT(opts, .qp = &qp, .event = on_event);

static void open_end(void)
{
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .ops = SNT_CQ_OPS_EVENTS);
	const unsigned access = SNT_ACCESS_LOCAL_WRITE;

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	cq_opts.loop = loop;
	check(snt_cq_create(ctx, &cq_opts, &cq), "CQ");
	check(snt_mem_register(ctx, &bytes, sizeof(bytes), access, &mem), "memory");
	qp.cq = cq;
}

static void close_end(void)
{
	check(snt_conn_wait_over(conn, 10 * SECONDS), "end");
	check(snt_conn_destroy(conn), "destroy");
	check(snt_cq_destroy(cq), "destroy");
	check(snt_mem_release(mem), "release");
	check(snt_loop_destroy(loop), "close");
	check(snt_ctx_destroy(ctx), "close");
}

static void say(void)
{
	struct snt_sge sge = { mem, bytes.out, sizeof(bytes.out) };
	struct snt_op op = { 0 };

	check(snt_op_send(snt_conn_qp(conn), &op, &sge), "send");
	check(snt_op_wait(&op, 10 * SECONDS), "send");
}

static int serve(unsigned port)
{
	struct snt_endpoint at = SNT_INIT(at, .port = port);
	struct snt_listener *listener;
	char host[SNT_ADDRESS_MAX];

	open_end();
	check(snt_listener_create(loop, &at, NULL, &listener), "listen");
	check(snt_listener_address(listener, 0, host, sizeof(host)), "address");
	printf("%s %u\n", host, snt_listener_port(listener));
	fflush(stdout);
	check(snt_listener_wait(listener, -1, &conn), "wait");
	check(snt_conn_accept(conn, &opts), "accept");
	check(snt_listener_destroy(listener), "destroy");
	check(snt_conn_wait(conn, 10 * SECONDS), "connect");
	check(snt_op_wait(&recv_op, 10 * SECONDS), "receive");
	snprintf(bytes.out, sizeof(bytes.out), "%u",
		 snt_qp_lane_count(snt_conn_qp(conn)));
	say();
	close_end();
	return 0;
}

static int ask(const char *address, unsigned port)
{
	struct snt_endpoint server = SNT_INIT(server, .host = address, .port = port);
	char text[4096];

	open_end();
	check(snt_conn_connect(loop, &server, &opts, &conn), "connect");
	check(snt_conn_wait(conn, 10 * SECONDS), "connect");
	snt_conn_explain(conn, text, sizeof(text));
	fputs(text, stdout);
	strcpy(bytes.out, QUESTION);
	say();
	check(snt_op_wait(&recv_op, 10 * SECONDS), "receive");
	printf("%s %s\n", QUESTION, bytes.in);
	check(snt_conn_disconnect(conn, 10 * SECONDS), "disconnect");
	close_end();
	return !atoi(bytes.in);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "ask"))
		return ask(argv[2], atoi(argv[3]));
	fprintf(stderr, "usage: %s serve PORT | ask ADDRESS PORT\n", argv[0]);
	return 2;
}
