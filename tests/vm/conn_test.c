/* SPDX-License-Identifier: MIT */
/*
 * Connections by address on the kernel's RDMA stack: two contexts on rxe devices, of which
 * each reaches itself only.
 */
#include "lib/test.h"

#include <poll.h>
#include <stdbool.h>
#include <time.h>
#include <sennit/sennit.h>

#define ADDRESS "192.168.77.1"
#define BYTES	65536

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_conn *conn;
	struct snt_qp_opts qp;
	uint8_t *bytes;
	unsigned events[8];
};

static struct end ends[2];
static bool rejects; /* the end that listens */
static struct snt_listener *listener;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void happened(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct end *end = arg;
	struct snt_conn_info info = { .size = sizeof(info) };

	end->events[event]++;
	snt_conn_query(conn, &info);
	if (event == SNT_CONN_OVER && info.status)
		print_message("# over: %s\n", info.text);
	if (event == SNT_CONN_PEER_DONE)
		assert_success(snt_conn_disconnect(conn, 0));
}

static void requested(void *arg, struct snt_listener *from, struct snt_conn *conn)
{
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &ends[1].qp,
				      .event = happened,
				      .arg = &ends[1],
				      .data = "welcome",
				      .data_length = 8 };

	(void)arg;
	(void)from;
	if (rejects) {
		assert_success(snt_conn_reject(conn, NULL, "not today", 10));
		return;
	}
	ends[1].conn = conn;
	assert_success(snt_conn_accept(conn, &opts));
}

static void open_end(struct end *end, const char *devices)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_NEVER,
				     .devices = devices };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };

	memset(end, 0, sizeof(*end));
	assert_success(snt_ctx_create(&opts, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	cq.loop = end->loop;
	assert_success(snt_cq_create(end->ctx, &cq, &end->cq));
	end->bytes = calloc(1, BYTES);
	assert_non_null(end->bytes);
	assert_success(
		snt_mem_register(end->ctx, end->bytes, BYTES,
				 SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				 &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	end->qp = (struct snt_qp_opts){ .size = sizeof(end->qp), .cq = end->cq };
}

static void turn(void)
{
	struct pollfd fds[2];

	for (unsigned i = 0; i < 2; i++)
		fds[i] = (struct pollfd){ snt_loop_fd(ends[i].loop), POLLIN, 0 };
	poll(fds, 2, 10);
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_loop_dispatch(ends[i].loop, 0));
}

static void until(enum snt_conn_event event)
{
	uint64_t begin = now();

	while (!ends[0].events[event] || !ends[1].events[event]) {
		turn();
		if (now() - begin > UINT64_C(30000000000)) {
			char text[4096];

			snt_conn_explain(ends[0].conn, text, sizeof(text));
			fail_msg("it takes too long: %s", text);
		}
	}
}

static void begin_to_connect(enum snt_carrier carrier)
{
	struct snt_listener_opts listen = { .size = sizeof(listen),
					    .requested = requested };
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &ends[0].qp,
				      .event = happened,
				      .arg = &ends[0],
				      .data = "hello",
				      .data_length = 6 };
	struct snt_endpoint endpoint = { .size = sizeof(endpoint),
					 .host = ADDRESS,
					 .carrier = carrier };

	if (!listener)
		assert_success(snt_listener_create(ends[1].loop, &endpoint, &listen,
						   &listener));
	endpoint.port = snt_listener_port(listener);
	endpoint.setup_ns = UINT64_C(30000000000);
	assert_success(snt_conn_connect(ends[0].loop, &endpoint, &opts, &ends[0].conn));
}

static void listen_and_connect(enum snt_carrier carrier)
{
	begin_to_connect(carrier);
	until(SNT_CONN_CONNECTED);
}

static void check_data(struct end *a, struct end *b)
{
	struct snt_op recv = { 0 }, send = { 0 };
	struct snt_sge sge = { a->mem, a->bytes, BYTES };

	for (unsigned i = 0; i < BYTES; i++)
		a->bytes[i] = (uint8_t)(i * 13 + (a == ends));
	assert_success(snt_op_recv(snt_conn_qp(b->conn), &recv, NULL));
	assert_success(
		snt_op_post(snt_conn_qp(a->conn), &send,
			    &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
						   .imm = 42,
						   .sge = &sge,
						   .sge_count = 1,
						   .remote = &b->token,
						   .remote_addr = b->token.addr }));
	while (snt_op_pending(&recv) || snt_op_pending(&send))
		turn();
	assert_int_equal(send.result, 0);
	assert_int_equal(recv.result, 0);
	assert_memory_equal(a->bytes, b->bytes, BYTES);
}

static void disconnect(void)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	assert_success(snt_conn_disconnect(ends[0].conn, 0));
	until(SNT_CONN_OVER);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_conn_query(ends[i].conn, &info));
		assert_int_equal(info.status, 0);
		assert_success(snt_conn_destroy(ends[i].conn));
		memset(ends[i].events, 0, sizeof(ends[i].events));
	}
}

static void close_ends(void)
{
	assert_success(snt_listener_destroy(listener));
	listener = NULL;
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_cq_destroy(ends[i].cq));
		assert_success(snt_mem_release(ends[i].mem));
		assert_success(snt_loop_destroy(ends[i].loop));
		assert_success(snt_ctx_destroy(ends[i].ctx));
		free(ends[i].bytes);
	}
}

static void connect_once(enum snt_carrier carrier)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	open_end(&ends[0], "rxe");
	open_end(&ends[1], "rxe");
	listen_and_connect(carrier);
	assert_success(snt_conn_query(ends[0].conn, &info));
	assert_int_equal(info.pairs_good, 2);
	assert_int_equal(snt_qp_lane_count(snt_conn_qp(ends[0].conn)), 2);
	check_data(&ends[0], &ends[1]);
	check_data(&ends[1], &ends[0]);
	disconnect();
	close_ends();
}

static void by_rdma_cm(void **state)
{
	(void)state;
	connect_once(SNT_CARRIER_CM);
}

static void by_tcp(void **state)
{
	(void)state;
	connect_once(SNT_CARRIER_TCP);
}

/* rxe0 does not reach rxe1: that pair is left out, with a reason. */
static void an_unreachable_pair(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	char text[4096];

	(void)state;
	open_end(&ends[0], "=rxe0");
	open_end(&ends[1], "rxe");
	listen_and_connect(SNT_CARRIER_CM);
	assert_success(snt_conn_query(ends[0].conn, &info));
	assert_int_equal(info.pairs_tried, 2);
	assert_int_equal(info.pairs_good, 1);
	snt_conn_explain(ends[0].conn, text, sizeof(text));
	assert_non_null(strstr(text, "pair 0-1: nothing comes through"));
	check_data(&ends[0], &ends[1]);
	disconnect();
	close_ends();
}

static void check_plain_data(const struct end *end, const char *data, size_t length)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	assert_success(snt_conn_query(end->conn, &info));
	assert_int_equal(info.data_length, length);
	assert_string_equal(info.data, data);
}

/* No handshake: what rdma_cm makes of it. */
static void plain(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct snt_conn_cm_info last = { .size = sizeof(last) };
	unsigned count = 0;
	char text[4096];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_end(&ends[i], "=rxe0");
		ends[i].qp.flags = SNT_QP_PASS_THROUGH;
	}
	ends[1].qp.read_depth = 3;
	for (unsigned i = 0; i < 2; i++) {
		listen_and_connect(SNT_CARRIER_PLAIN);
		check_plain_data(&ends[1], "hello", SNT_PLAIN_REQUEST_MAX);
		check_plain_data(&ends[0], "welcome", SNT_PLAIN_ANSWER_MAX);
		assert_success(snt_conn_query(ends[0].conn, &info));
		assert_int_equal(info.reads_out, 3);
		assert_int_equal(info.reads_in, 3);
		check_data(&ends[0], &ends[1]);
		check_data(&ends[1], &ends[0]);
		snt_conn_explain(ends[1].conn, text, sizeof(text));
		assert_non_null(strstr(text, "the peer has confirmed"));
		disconnect();
	}
	rejects = true;
	begin_to_connect(SNT_CARRIER_PLAIN);
	while (!ends[0].events[SNT_CONN_OVER])
		turn();
	rejects = false;
	check_plain_data(&ends[0], "not today", SNT_PLAIN_REFUSAL_MAX);
	while (!snt_conn_query_cm(ends[0].conn, count, &last))
		count++;
	assert_int_equal(last.event, SNT_CM_REJECTED);
	assert_int_equal(last.reason, 28);
	assert_success(snt_conn_destroy(ends[0].conn));
	close_ends();
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void again_and_again(void **state)
{
	enum {
		CYCLES = 30
	};
	struct snt_conn_info info = { .size = sizeof(info) };
	uint64_t took[CYCLES];

	(void)state;
	open_end(&ends[0], "=rxe0");
	open_end(&ends[1], "=rxe0");
	ends[0].qp.lanes = 1;
	for (unsigned i = 0; i < CYCLES; i++) {
		listen_and_connect(SNT_CARRIER_CM);
		assert_success(snt_conn_query(ends[0].conn, &info));
		took[i] = info.setup_took_ns;
		disconnect();
	}
	qsort(took, CYCLES, sizeof(took[0]), by_number);
	print_message("# setup took %u us in the median, %u us at most\n",
		      (unsigned)(took[CYCLES / 2] / 1000),
		      (unsigned)(took[CYCLES - 1] / 1000));
	close_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_rdma_cm),
		cmocka_unit_test(by_tcp),
		cmocka_unit_test(plain),
		cmocka_unit_test(an_unreachable_pair),
		cmocka_unit_test(again_and_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
