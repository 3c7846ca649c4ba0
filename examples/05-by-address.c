/* SPDX-License-Identifier: MIT */
/*
 * A question and its answer over a connection by address, with blocking calls.
 *
 *	05-by-address serve [ADDRESS] PORT     on one host
 *	05-by-address ask ADDRESS PORT         on the other
 *	05-by-address local                    both ends on this host, as two processes
 *
 * Addresses are those of RDMA devices: rdma_cm leads from one to the other. `explain`
 * shows what was tried, and which lanes there are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define SECONDS	 UINT64_C(1000000000)
#define LENGTH	 4096
#define QUESTION "how many lanes?"

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_mem *mem;
	struct snt_conn *conn;
	struct snt_op recv;
	char in[LENGTH], out[LENGTH];
};

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "by-address: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void open_end(struct end *end)
{
	struct snt_cq_opts opts = { .size = sizeof(opts), .ops = SNT_OPS_EVENTS };

	check(snt_ctx_open(NULL, &end->ctx), "open");
	check(snt_cq_create(end->ctx, &opts, &end->cq), "CQ");
	check(snt_mem_register(end->ctx, end, sizeof(*end), SNT_ACCESS_LOCAL_WRITE,
			       &end->mem),
	      "memory");
}

/* A receive must be there before the peer can send: when the QP is made, and not
 * connected yet. */
static void on_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct end *end = arg;
	struct snt_sge sge = { end->mem, end->in, LENGTH };

	if (event == SNT_CONN_PREPARE)
		check(snt_op_recv(snt_conn_qp(conn), &end->recv, &sge, 1), "receive");
	if (event == SNT_CONN_PEER_DONE)
		check(snt_conn_disconnect(conn), "disconnect");
}

static void say(struct end *end, const char *text)
{
	struct snt_sge sge = { end->mem, end->out, (uint32_t)strlen(text) + 1 };
	struct snt_op op = { 0 };

	memcpy(end->out, text, sge.length);
	check(snt_op_send(snt_conn_qp(end->conn), &op, &sge, 1, 0), "send");
	check(snt_op_wait(&op, 10 * SECONDS), "send");
}

static void explain(struct end *end)
{
	char text[4096];

	snt_conn_explain(end->conn, text, sizeof(text));
	fputs(text, stdout);
}

static void close_end(struct end *end)
{
	check(snt_conn_wait_over(end->conn, 10 * SECONDS), "end");
	check(snt_conn_destroy(end->conn), "destroy");
	check(snt_cq_destroy(end->cq), "destroy");
	check(snt_mem_release(end->mem), "release");
	check(snt_ctx_close(end->ctx), "close");
}

/* Tells the port to who waits for it. */
static int serve(const char *address, unsigned port, int tell)
{
	static struct end end;
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 4 };
	struct snt_conn_opts opts = {
		.size = sizeof(opts), .qp = &qp, .event = on_event, .arg = &end
	};
	struct snt_listener_opts listen = { .size = sizeof(listen),
					    .host = address,
					    .port = (uint16_t)port };
	struct snt_listener *listener;
	char answer[64];

	open_end(&end);
	qp.cq = end.cq;
	check(snt_listener_create(end.ctx, &listen, &listener), "listen");
	if (tell >= 0) {
		struct snt_gid_info gid = { .size = sizeof(gid) };
		uint16_t chosen = snt_listener_port(listener);

		check(snt_device_gid(snt_ctx_device(end.ctx, 0), 0, &gid), "address");
		if (write(tell, &chosen, sizeof(chosen)) < 0 ||
		    write(tell, gid.raw, sizeof(gid.raw)) < 0)
			return 1;
	}
	check(snt_listener_wait(listener, -1, &end.conn), "wait");
	check(snt_conn_accept(end.conn, &opts), "accept");
	check(snt_listener_destroy(listener), "destroy");
	check(snt_conn_wait(end.conn, 10 * SECONDS), "connect");
	check(snt_op_wait(&end.recv, 10 * SECONDS), "receive");
	snprintf(answer, sizeof(answer), "%u", snt_qp_lanes(snt_conn_qp(end.conn)));
	say(&end, strcmp(end.in, QUESTION) ? "pardon?" : answer);
	close_end(&end);
	return 0;
}

static int ask(const char *address, unsigned port)
{
	static struct end end;
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 4 };
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &qp,
				      .event = on_event,
				      .arg = &end,
				      .host = address,
				      .port = (uint16_t)port };

	open_end(&end);
	qp.cq = end.cq;
	check(snt_conn_connect(end.ctx, &opts, &end.conn), "connect");
	check(snt_conn_wait(end.conn, 10 * SECONDS), "connect");
	explain(&end);
	say(&end, QUESTION);
	check(snt_op_wait(&end.recv, 10 * SECONDS), "receive");
	printf("%s %s\n", QUESTION, end.in);
	check(snt_conn_disconnect(end.conn), "disconnect");
	close_end(&end);
	return !atoi(end.in);
}

static int local(void)
{
	unsigned char gid[16];
	char address[16];
	uint16_t port;
	int told[2], status;
	pid_t child;

	if (pipe(told) || (child = fork()) < 0) {
		perror("by-address");
		return 1;
	}
	if (!child)
		return serve(NULL, 0, told[1]);
	close(told[1]);
	if (read(told[0], &port, sizeof(port)) != sizeof(port) ||
	    read(told[0], gid, sizeof(gid)) != sizeof(gid))
		return 1;
	snprintf(address, sizeof(address), "%u.%u.%u.%u", gid[12], gid[13], gid[14],
		 gid[15]);
	status = ask(address, port);
	return waitpid(child, &child, 0) < 0 || child || status;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "local"))
		return local();
	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "serve"))
		return serve(argc == 4 ? argv[2] : NULL, atoi(argv[argc - 1]), -1);
	if (argc == 4 && !strcmp(argv[1], "ask"))
		return ask(argv[2], atoi(argv[3]));
	fprintf(stderr, "usage: %s serve [ADDRESS] PORT | ask ADDRESS PORT | local\n",
		argv[0]);
	return 2;
}
