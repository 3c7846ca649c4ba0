/* SPDX-License-Identifier: MIT */
/*
 * One end of a plain connection, for a peer that knows nothing of sennit.
 *
 *	plain_peer listen|connect ADDRESS PORT LANGUAGE
 *
 * Languages: "messages", ten of 100 bytes from the listening end and ten back, as ucmatose
 * does; "hello", one of 16 bytes from the connecting end and one back, as rdma_client and
 * rdma_server do; "rping", which reads and writes.
 */
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#define SLOTS	    10
#define BYTES	    128
#define PING_BYTES  64
#define PING_ROUNDS 3
#define WAIT_NS	    (60 * INT64_C(1000000000))

/* What rping sends: where the other may read, or write. */
struct ping {
	uint64_t addr;
	uint32_t key;
	uint32_t size;
};

static struct {
	char in[SLOTS][BYTES];
	char out[BYTES];
	char ping[2][PING_BYTES];
} memory;

static struct snt_ctx *ctx;
static struct snt_loop *loop;
static struct snt_cq *cq;
static struct snt_mem *mem;
static struct snt_conn *conn;
static struct snt_op recv_op[SLOTS];
static unsigned received;

static void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "plain_peer: %s: %s\n", what, snt_err_text());
	exit(1);
}

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "plain_peer: not so: %s\n", what);
	exit(1);
}

static void post_recv(unsigned slot)
{
	struct snt_sge sge = { mem, memory.in[slot], BYTES };

	check(snt_op_recv(snt_conn_qp(conn), &recv_op[slot], &sge), "receive");
}

static void on_event(void *arg, struct snt_conn *of, enum snt_conn_event event)
{
	(void)arg;
	conn = of;
	for (unsigned i = 0; event == SNT_CONN_PREPARE && i < SLOTS; i++)
		post_recv(i);
}

/* The next message, of at least so many bytes; its slot is free until await_message() has been
 * called SLOTS times more. */
static const char *await_message(size_t length)
{
	unsigned slot = received++ % SLOTS;

	check(snt_op_wait(&recv_op[slot], WAIT_NS), "receive");
	require(recv_op[slot].wc.length >= length,
		"a message is as long as it should be");
	return memory.in[slot];
}

static void send_bytes(const void *bytes, size_t length)
{
	struct snt_sge sge = { mem, memory.out, length };
	struct snt_op op = { 0 };

	memcpy(memory.out, bytes, length);
	check(snt_op_send(snt_conn_qp(conn), &op, &sge), "send");
	check(snt_op_wait(&op, WAIT_NS), "send");
}

/* The listening end disconnects when it has everything: acknowledgments may be lost, and if
 * the peer's QP is gone they are not sent again. */
static void speak_messages(bool listens)
{
	char text[100];

	for (unsigned i = 0; listens && i < SLOTS; i++) {
		memset(text, 'a' + (int)i, sizeof(text));
		send_bytes(text, sizeof(text));
	}
	for (unsigned i = 0; i < SLOTS; i++)
		await_message(sizeof(text));
	for (unsigned i = 0; !listens && i < SLOTS; i++) {
		memset(text, 'A' + (int)i, sizeof(text));
		send_bytes(text, sizeof(text));
	}
	if (listens)
		check(snt_conn_disconnect(conn, WAIT_NS), "disconnect");
}

/* Both rdma_client and rdma_server disconnect at the end. */
static void speak_hello(bool listens)
{
	char text[16] = "from sennit";

	if (listens)
		await_message(sizeof(text));
	send_bytes(text, sizeof(text));
	if (!listens)
		await_message(sizeof(text));
}

static void send_ping(void *at)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_token token;
	struct ping ping;

	check(snt_mem_token(mem, &token), "token");
	check(snt_qp_query_lane(snt_conn_qp(conn), 0, &lane), "lane");
	ping = (struct ping){ htobe64((uintptr_t)at), htobe32(token.key[lane.device]),
			      htobe32(PING_BYTES) };
	send_bytes(&ping, sizeof(ping));
}

/* Has the contents of a ping, which mean nothing. */
static const char *await_go_ahead(void)
{
	const char *bytes = await_message(sizeof(struct ping));

	post_recv((received - 1) % SLOTS);
	return bytes;
}

static struct snt_token await_ping(void)
{
	struct snt_token token = { .access = SNT_ACCESS_REMOTE_READ |
					     SNT_ACCESS_REMOTE_WRITE,
				   .key_count = 1 };
	struct ping ping;

	memcpy(&ping, await_go_ahead(), sizeof(ping));
	token.addr = be64toh(ping.addr);
	token.length = be32toh(ping.size);
	token.key[0] = be32toh(ping.key);
	require(token.length == PING_BYTES, "rping has -S 64");
	return token;
}

/* Shows what it has, and sees it come back. */
static void speak_rping_first(void)
{
	for (unsigned i = 0; i < PING_ROUNDS; i++) {
		snprintf(memory.ping[0], PING_BYTES, "sennit-ping-%u", i);
		send_ping(memory.ping[0]);
		await_go_ahead();
		send_ping(memory.ping[1]);
		await_go_ahead();
		require(!memcmp(memory.ping[0], memory.ping[1], PING_BYTES),
			"what comes back is what went out");
	}
	check(snt_conn_disconnect(conn, WAIT_NS), "disconnect");
}

static void move_ping(bool write, const struct snt_token *token)
{
	struct snt_sge sge = { mem, memory.ping[0], PING_BYTES };
	struct snt_op op = { 0 };

	check(write ? snt_op_write(snt_conn_qp(conn), &op, &sge, token, token->addr)
		    : snt_op_read(snt_conn_qp(conn), &op, &sge, token, token->addr),
	      "read, or write");
	check(snt_op_wait(&op, WAIT_NS), "read, or write");
	send_ping(memory.ping[0]);
}

/* Reads what it is shown, and writes it back. */
static void speak_rping_second(void)
{
	for (unsigned i = 0; i < PING_ROUNDS; i++) {
		struct snt_token token = await_ping();

		move_ping(false, &token);
		token = await_ping();
		move_ping(true, &token);
	}
}

static void speak(const char *language, bool listens)
{
	if (!strcmp(language, "messages"))
		speak_messages(listens);
	else if (!strcmp(language, "hello"))
		speak_hello(listens);
	else if (listens)
		speak_rping_second();
	else
		speak_rping_first();
}

static void open_all(void)
{
	struct snt_cq_opts opts = SNT_INIT(opts, .ops = SNT_CQ_OPS_EVENTS);

	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	opts.loop = loop;
	check(snt_cq_create(ctx, &opts, &cq), "CQ");
	check(snt_mem_register(ctx, &memory, sizeof(memory),
			       SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_READ |
				       SNT_ACCESS_REMOTE_WRITE,
			       &mem),
	      "memory");
}

static void close_all(void)
{
	check(snt_conn_wait_over(conn, WAIT_NS), "end");
	check(snt_conn_destroy(conn), "destroy");
	check(snt_mem_release(mem), "release");
	check(snt_cq_destroy(cq), "destroy");
	check(snt_loop_destroy(loop), "destroy");
	check(snt_ctx_destroy(ctx), "close");
}

int main(int argc, char **argv)
{
	struct snt_endpoint endpoint =
		SNT_INIT(endpoint, .carrier = SNT_CARRIER_PLAIN, .setup_ns = WAIT_NS);
	struct snt_qp_opts qp = SNT_INIT(qp, .flags = SNT_QP_PASS_THROUGH);
	struct snt_conn_opts opts = SNT_INIT(opts, .qp = &qp, .event = on_event);
	struct snt_listener *listener = NULL;
	char text[4096];

	if (argc != 5)
		return 2;
	endpoint.host = argv[2];
	endpoint.port = (uint16_t)strtoul(argv[3], NULL, 10);
	open_all();
	qp.cq = cq;
	if (!strcmp(argv[1], "listen")) {
		check(snt_listener_create(loop, &endpoint, NULL, &listener), "listen");
		printf("listening\n");
		fflush(stdout);
		check(snt_listener_wait(listener, WAIT_NS, &conn), "wait");
		check(snt_conn_accept(conn, &opts), "accept");
		check(snt_listener_destroy(listener), "destroy");
	} else {
		opts.retries = 10;
		check(snt_conn_connect(loop, &endpoint, &opts, &conn), "connect");
	}
	check(snt_conn_wait(conn, WAIT_NS), "connect");
	speak(argv[4], listener != NULL);
	snt_conn_explain(conn, text, sizeof(text));
	close_all();
	printf("%sall is well\n", text);
	return 0;
}
