/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"

static const struct ends *ends;

void ends_check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", ends->name, what, snt_err_text());
	exit(1);
}

void ends_await(struct snt_op *op, const char *what)
{
	ends_check(snt_op_wait(op, 10 * ENDS_SECONDS), what);
}

static void open_end(struct end *end)
{
	struct snt_cq_opts opts = SNT_INIT(opts, .ops = SNT_CQ_OPS_EVENTS);

	end->memory = aligned_alloc(4096, (ends->length + 4095) & ~(size_t)4095);
	if (!end->memory)
		exit(1);
	memset(end->memory, 0, ends->length);
	ends_check(snt_ctx_create(NULL, &end->ctx), "open");
	ends_check(snt_loop_create(end->ctx, NULL, &end->loop), "loop");
	opts.loop = end->loop;
	ends_check(snt_cq_create(end->ctx, &opts, &end->cq), "CQ");
	ends_check(snt_mem_register(end->ctx, end->memory, ends->length,
				    SNT_ACCESS_LOCAL_WRITE | ends->access, &end->mem),
		   "memory");
}

static void close_end(struct end *end)
{
	for (unsigned i = 0; i < end->conns; i++) {
		ends_check(snt_conn_wait_over(end->conn[i], 10 * ENDS_SECONDS), "end");
		ends_check(snt_conn_destroy(end->conn[i]), "destroy");
	}
	ends_check(snt_cq_destroy(end->cq), "destroy");
	ends_check(snt_mem_release(end->mem), "release");
	ends_check(snt_loop_destroy(end->loop), "close");
	ends_check(snt_ctx_destroy(end->ctx), "close");
	free(end->memory);
}

/* The token of the server's memory goes along with its answer. */
static void accept_clients(struct end *end, struct snt_listener *listener)
{
	unsigned char packed[SNT_TOKEN_PACKED_MAX];
	struct snt_qp_opts qp = ends->qp;
	struct snt_conn_opts opts = SNT_INIT(opts, .qp = &qp, .data = packed);
	struct snt_token token;
	ssize_t length;

	qp.size = sizeof(qp);
	qp.cq = end->cq;
	ends_check(snt_mem_token(end->mem, &token), "token");
	ends_check(length = snt_token_pack(&token, packed, sizeof(packed)), "token");
	opts.data_length = length;
	for (; end->conns < ends->clients; end->conns++) {
		struct snt_conn **conn = &end->conn[end->conns];

		ends_check(snt_listener_wait(listener, -1, conn), "wait");
		ends_check(snt_conn_accept(*conn, &opts), "accept");
	}
}

static int serve(unsigned port, int tell)
{
	struct end end = { 0 };
	struct snt_endpoint at =
		SNT_INIT(at, .port = (uint16_t)port, .carrier = SNT_CARRIER_TCP);
	struct snt_listener *listener;
	uint16_t chosen;
	bool good;

	open_end(&end);
	if (ends->prepare)
		ends->prepare(&end);
	ends_check(snt_listener_create(end.loop, &at, NULL, &listener), "listen");
	chosen = snt_listener_port(listener);
	if (tell >= 0 && write(tell, &chosen, sizeof(chosen)) != sizeof(chosen))
		return 1;
	accept_clients(&end, listener);
	ends_check(snt_listener_destroy(listener), "destroy");
	for (unsigned i = 0; i < end.conns; i++)
		ends_check(snt_conn_wait_over(end.conn[i], -1), "a client");
	good = !ends->judge || ends->judge(&end);
	close_end(&end);
	return !good;
}

static int be_client(const char *host, unsigned port)
{
	struct end end = { .conns = 1 };
	struct snt_qp_opts qp = ends->qp;
	struct snt_endpoint server =
		SNT_INIT(server, .host = host, .port = (uint16_t)port,
			 .carrier = SNT_CARRIER_TCP);
	struct snt_conn_opts opts = SNT_INIT(opts, .qp = &qp);
	struct snt_conn_info info = SNT_INIT(info);

	open_end(&end);
	qp.size = sizeof(qp);
	qp.cq = end.cq;
	ends_check(snt_conn_connect(end.loop, &server, &opts, &end.conn[0]), "connect");
	ends_check(snt_conn_wait(end.conn[0], 10 * ENDS_SECONDS), "connect");
	ends_check(snt_conn_query(end.conn[0], &info), "query");
	ends_check(snt_token_unpack(info.data, info.data_length, &end.peer), "token");
	end.qp = snt_conn_qp(end.conn[0]);
	ends->client(&end);
	ends_check(snt_conn_disconnect(end.conn[0], 10 * ENDS_SECONDS), "disconnect");
	close_end(&end);
	return 0;
}

/* A context does not survive a fork, so each process opens its own. */
static int run_all(void)
{
	int told[2], failed = 0, status;
	uint16_t port;

	if (pipe(told))
		return 1;
	if (!fork())
		exit(serve(0, told[1]));
	close(told[1]);
	if (read(told[0], &port, sizeof(port)) != sizeof(port))
		return 1;
	for (unsigned i = 0; i < ends->clients; i++)
		if (!fork())
			exit(be_client("127.0.0.1", port));
	while (wait(&status) > 0)
		failed |= status;
	return !!failed;
}

int ends_main(int argc, char **argv, const struct ends *of)
{
	ends = of;
	if (argc == 1)
		return run_all();
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(atoi(argv[2]), -1);
	if (argc == 3)
		return be_client(argv[1], atoi(argv[2]));
	return fprintf(stderr, "usage: %s [serve PORT | HOST PORT]\n", argv[0]), 2;
}
