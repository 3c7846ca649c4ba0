/* SPDX-License-Identifier: MIT */
/*
 * One end of a connection by address, on whatever devices the environment says. Both ends
 * write to each other, compare, and disconnect.
 *
 * usage: conn_peer listen|connect ADDRESS PORT [cm|tcp] [COUNT]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#define BYTES	(1 << 20)
#define WAIT_NS INT64_C(30000000000)

static uint8_t *bytes; /* what is sent, then what is received */
static struct snt_mem *mem;
static struct snt_token token;
static struct snt_qp_opts qp_opts;

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "conn_peer: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void must(long ret, const char *what)
{
	if (ret < 0)
		give_up(what);
}

static struct snt_loop *open_all(void)
{
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_loop *loop;
	struct snt_ctx *ctx;

	bytes = calloc(2, BYTES);
	must(snt_ctx_create(NULL, &ctx), "context");
	must(snt_loop_create(ctx, NULL, &loop), "loop");
	cq.loop = loop;
	qp_opts = (struct snt_qp_opts){ .size = sizeof(qp_opts) };
	must(snt_cq_create(ctx, &cq, &qp_opts.cq), "CQ");
	must(snt_mem_register(ctx, bytes, 2 * BYTES,
			      SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE, &mem),
	     "memory");
	must(snt_mem_token(mem, &token), "token");
	return loop;
}

static uint8_t byte_at(unsigned i, bool listens)
{
	return (uint8_t)(i * 11 + i / 4096 + listens);
}

/* Before there is a connection, since the peer may write as soon as there is one. */
static void fill(bool listens)
{
	for (unsigned i = 0; i < BYTES; i++)
		bytes[i] = byte_at(i, listens);
	memset(bytes + BYTES, 0, BYTES);
}

/* Where the peer's memory is comes with its request or answer. */
static void exchange(struct snt_conn *conn, bool listens)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct snt_op recv = { 0 }, send = { 0 };
	struct snt_sge sge = { mem, bytes, BYTES };
	struct snt_token remote;

	must(snt_conn_query(conn, &info), "query");
	must(snt_token_unpack(info.data, info.data_length, &remote),
	     "the peer's token");
	must(snt_op_recv(snt_conn_qp(conn), &recv, NULL), "receive");
	must(snt_op_post(snt_conn_qp(conn), &send,
			 &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
						.imm = 1,
						.sge = &sge,
						.sge_count = 1,
						.remote = &remote,
						.remote_addr = remote.addr + BYTES }),
	     "write");
	must(snt_op_wait(&send, WAIT_NS), "the write");
	must(snt_op_wait(&recv, WAIT_NS), "the notification");
	for (unsigned i = 0; i < BYTES; i++)
		if (bytes[BYTES + i] != byte_at(i, !listens)) {
			fprintf(stderr, "conn_peer: byte %u is wrong\n", i);
			exit(1);
		}
}

static void finish(struct snt_conn *conn, bool listens)
{
	char text[4096];

	if (snt_conn_wait(conn, WAIT_NS)) {
		fprintf(stderr, "conn_peer: %s\n", snt_err_text());
		snt_conn_explain(conn, text, sizeof(text));
		fprintf(stderr, "%s", text);
		exit(1);
	}
	exchange(conn, listens);
	snt_conn_explain(conn, text, sizeof(text));
	printf("%s", text);
	if (!listens)
		must(snt_conn_disconnect(conn, 0), "disconnect");
	must(snt_conn_wait_over(conn, WAIT_NS), "the end");
	must(snt_conn_destroy(conn), "destroy");
}

int main(int argc, char **argv)
{
	uint8_t packed[SNT_TOKEN_PACKED_MAX];
	struct snt_endpoint endpoint = { .size = sizeof(endpoint) };
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &qp_opts };
	bool listens = argc > 1 && !strcmp(argv[1], "listen");
	unsigned count = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 1;
	struct snt_listener *listener = NULL;
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	struct snt_conn *conn;

	if (argc < 4)
		give_up("usage: conn_peer listen|connect ADDRESS PORT [cm|tcp] [COUNT]");
	loop = open_all();
	ctx = snt_loop_ctx(loop);
	opts.data = packed;
	opts.data_length = (size_t)snt_token_pack(&token, packed, sizeof(packed));
	if (argc > 4 && !strcmp(argv[4], "tcp"))
		endpoint.carrier = SNT_CARRIER_TCP;
	endpoint.host = argv[2];
	endpoint.port = (uint16_t)strtoul(argv[3], NULL, 10);
	if (listens) {
		must(snt_listener_create(loop, &endpoint, NULL, &listener), "listen");
		printf("listening\n");
		fflush(stdout);
	}
	for (unsigned i = 0; i < count; i++) {
		fill(listens);
		if (listens) {
			must(snt_listener_wait(listener, 4 * WAIT_NS, &conn),
			     "request");
			must(snt_conn_accept(conn, &opts), "accept");
		} else {
			must(snt_conn_connect(loop, &endpoint, &opts, &conn),
			     "connect");
		}
		finish(conn, listens);
	}
	snt_listener_destroy(listener);
	must(snt_cq_destroy(qp_opts.cq), "the CQ");
	must(snt_mem_release(mem), "the memory");
	must(snt_loop_destroy(loop), "the loop");
	must(snt_ctx_destroy(ctx), "the context");
	return 0;
}
