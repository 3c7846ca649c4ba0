/* SPDX-License-Identifier: MIT */
/* Connections by address on soft devices, by both kinds of carrier. */
#include "lib/conn_kit.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static enum snt_carrier carrier_of(void **state)
{
	return *(enum snt_carrier *)*state;
}

static void connects_and_disconnects(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;
	char text[4096];

	kit_open(&kit, carrier_of(state), 2);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_conn_query(kit.end[i].conn, &info));
		assert_int_equal(info.state, SNT_CONN_ESTABLISHED);
		assert_int_equal(info.data_length, i ? 5 : 7);
		assert_memory_equal(info.data, i ? "hello" : "welcome",
				    info.data_length);
		assert_int_equal(info.pairs_good, 2);
		assert_int_equal(snt_qp_lane_count(snt_conn_qp(kit.end[i].conn)), 2);
		assert_int_equal(kit.end[i].events[SNT_CONN_PREPARE], 1);
		assert_true(snt_conn_explain(kit.end[i].conn, text, sizeof(text)) <
			    (ssize_t)sizeof(text));
		assert_non_null(strstr(text, "pair 1-1: works"));
	}
	kit_check_data(&kit, 0);
	kit_check_data(&kit, 1);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static void a_single_lane(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.qp[0].lanes = 1;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 0);
	kit_check_data(&kit, 1);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static void another_scheme(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 2);
	kit.qp[0].scheme = kit.qp[1].scheme = SNT_SCHEME_DQPLB;
	kit.qp[0].lanes = 4;
	kit.qp[1].lanes = 3;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_int_equal(snt_qp_lane_count(snt_conn_qp(kit.end[0].conn)), 3);
	kit_check_data(&kit, 0);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static bool connector_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

static void rejected(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.reject = true;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_int_equal(info.status, -ECONNREFUSED);
	assert_non_null(strstr(info.text, "not today"));
	assert_int_equal(info.data_length, 3);
	assert_memory_equal(info.data, "why", 3);
	kit_close(&kit);
}

static void nobody_listens(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit_listen(&kit);
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = NULL;
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -ECONNREFUSED);
	kit_close(&kit);
}

static void secrets(void **state)
{
	static const char secret[] = "a secret of some length";
	static const char other[] = "another secret of it";
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

#ifndef SNT_HAVE_CRYPTO
	skip_because("built without libcrypto");
#endif
	kit_open(&kit, carrier_of(state), 1);
	kit.at.secret = kit.to.secret = secret;
	kit.at.secret_length = kit.to.secret_length = strlen(secret);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_int_equal(info.authenticated, 1);
	kit_disconnect(&kit);
	kit_destroy_conns(&kit);

	kit.to.secret = other;
	kit.to.secret_length = strlen(other);
	kit.requests = 0;
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -EACCES);
	assert_int_equal(kit.requests, 0);
	kit_close(&kit);
}

static void aborted(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 2);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_error(snt_conn_destroy(kit.end[0].conn), EBUSY, "disconnect or abort");
	assert_success(snt_conn_abort(kit.end[0].conn, "had enough"));
	kit_until(&kit, kit_both_over);
	assert_int_equal(kit_status(&kit, 0), -ECANCELED);
	assert_int_equal(kit_status(&kit, 1), -ECONNABORTED);
	assert_non_null(strstr(kit_text(&kit, 1), "had enough"));
	kit_close(&kit);
}

/* Whatever the phase, giving up leaves nothing behind at either end. */
static void given_up_in_every_phase(void **state)
{
	for (unsigned turns = 0; turns < 30; turns++) {
		struct kit kit;

		kit_open(&kit, carrier_of(state), 2);
		kit_listen(&kit);
		kit_connect(&kit);
		for (unsigned i = 0; i < turns; i++)
			kit_turn(&kit);
		if (kit.end[0].events[SNT_CONN_CONNECTED]) {
			assert_success(snt_conn_abort(kit.end[0].conn, NULL));
			kit_until(&kit, connector_over);
		}
		/* A QP that was connected a moment ago has to be closed first. */
		while (snt_conn_destroy(kit.end[0].conn)) {
			snt_conn_abort(kit.end[0].conn, NULL);
			kit_turn(&kit);
		}
		kit.end[0].conn = NULL;
		while (kit.end[1].conn && !kit.end[1].events[SNT_CONN_OVER])
			kit_turn(&kit);
		kit_close(&kit);
	}
}

/* A peer of this name comes again: its old connection is of no use to anybody. */
static void a_name_that_comes_again(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.to.name = "worker 7";
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit.second = true;
	kit.connect.event = kit.accept.event = NULL;
	assert_success(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect,
					&kit.extra[0]));
	kit_until(&kit, kit_both_over);
	assert_int_equal(kit_status(&kit, 0), -ESTALE);
	assert_int_equal(kit_status(&kit, 1), -ESTALE);
	while (snt_conn_wait(kit.extra[0], 0))
		kit_turn(&kit);
	while (snt_conn_wait(kit.extra[1], 0))
		kit_turn(&kit);
	/* Without a function, the library follows when the peer disconnects. */
	assert_success(snt_conn_disconnect(kit.extra[0], 0));
	while (snt_conn_wait_over(kit.extra[0], 0) ||
	       snt_conn_wait_over(kit.extra[1], 0))
		kit_turn(&kit);
	assert_success(snt_conn_destroy(kit.extra[0]));
	assert_success(snt_conn_destroy(kit.extra[1]));
	kit_close(&kit);
}

/* The first attempts find no listener. */
static void tried_again(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit_listen(&kit);
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = NULL;
	kit.connect.retries = 20;
	kit_connect(&kit);
	while (kit.end[0].events[SNT_CONN_RETRYING] < 3)
		kit_turn(&kit);
	kit.at.port = kit.to.port;
	kit_listen(&kit);
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 0);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_true(info.attempts > 3);
	assert_int_equal(kit.end[0].events[SNT_CONN_OVER], 0);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* The end that connects gets no processor for so long that the other one gives up. */
static void tried_again_too_late(void **state)
{
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	kit.at.setup_ns = UINT64_C(500000000);
	kit_listen(&kit);
	kit.connect.retries = 100;
	kit_connect(&kit);
	while (!kit.end[1].conn)
		kit_turn(&kit);
	while (!kit.end[1].events[SNT_CONN_OVER])
		assert_success(snt_loop_wait(kit.end[1].loop, -1));
	assert_int_equal(kit_status(&kit, 1), -ETIMEDOUT);
	kit_until(&kit, kit_both_up);
	assert_true(kit.requests > 1);
	assert_int_equal(kit.end[0].events[SNT_CONN_OVER], 0);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* QPs that the program polls: it sees their completions, and their SNT_OP_CLOSED. */
static void polled_by_the_program(void **state)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_cq *cq[2];
	struct snt_wc wc;
	struct kit kit;

	kit_open(&kit, carrier_of(state), 2);
	for (unsigned i = 0; i < 2; i++) {
		cq_opts.loop = kit.end[i].loop;
		assert_success(snt_cq_create(kit.end[i].ctx, &cq_opts, &cq[i]));
		kit.qp[i].cq = cq[i];
	}
	kit.connect.close_wr_id = 70;
	kit.accept.close_wr_id = 71;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	/* Nothing of the setup comes out of it. */
	assert_int_equal(snt_cq_poll(cq[0], &wc, 1), 0);
	assert_int_equal(snt_cq_poll(cq[1], &wc, 1), 0);
	assert_success(
		snt_qp_post_send(snt_conn_qp(kit.end[0].conn),
				 &(struct snt_send_wr){
					 .wr_id = 5,
					 .opcode = SNT_OP_WRITE,
					 .flags = SNT_SEND_SIGNALED,
					 .sge_count = 1,
					 .sge = &(struct snt_sge){ kit.end[0].mem,
								   kit.end[0].bytes,
								   100 },
					 .remote = &kit.end[1].token,
					 .remote_addr = kit.end[1].token.addr },
				 1));
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	/* What was posted has to be polled before the peer is told. */
	while (snt_cq_poll(cq[0], &wc, 1) == 0)
		kit_turn(&kit);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.status, 0);
	while (!kit.end[1].events[SNT_CONN_PEER_DONE])
		kit_turn(&kit);
	assert_success(snt_conn_disconnect(kit.end[1].conn, 0));
	kit_until(&kit, kit_both_over);
	for (unsigned i = 0; i < 2; i++) {
		assert_error(snt_conn_destroy(kit.end[i].conn), EBUSY, "SNT_OP_CLOSED");
		while (snt_cq_poll(cq[i], &wc, 1) == 0)
			kit_turn(&kit);
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
		assert_int_equal(wc.wr_id, 70 + i);
		assert_success(snt_conn_destroy(kit.end[i].conn));
		kit.end[i].conn = NULL;
		assert_success(snt_cq_destroy(cq[i]));
	}
	kit_close(&kit);
}

static bool connector_connected_twice(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_CONNECTED] == 2 && kit_both_up(kit);
}

static const struct way_to_break {
	enum snt_scheme scheme;
	uint32_t lanes;
} ways_to_break[] = {
	{ SNT_SCHEME_SPRAY, 1 },
	{ SNT_SCHEME_SPRAY, 4 },
	{ SNT_SCHEME_DQPLB, 4 },
};

/* All lanes of the QP get a fragment with a key that the peer does not know. */
static void use_bad_key(struct kit *kit)
{
	struct snt_token token = kit->end[1].token;
	struct snt_sge sge = { kit->end[0].mem, kit->end[0].bytes, KIT_BYTES };
	struct snt_op op = { 0 };

	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		token.key[i] ^= 0x5a5a5a00;
	assert_success(snt_op_write(snt_conn_qp(kit->end[0].conn), &op, &sge, &token,
				    token.addr));
	while (snt_op_pending(&op))
		kit_turn(kit);
	assert_int_not_equal(op.result, 0);
}

static void connect_to_break(struct kit *kit, const struct way_to_break *how,
			     void **state)
{
	kit_open(kit, carrier_of(state), 2);
	for (unsigned i = 0; i < 2; i++) {
		kit->qp[i].scheme = how->scheme;
		kit->qp[i].lanes = how->lanes;
		kit->qp[i].fragment_size = 4096;
	}
	kit_listen(kit);
}

/* Both ends used to stay established for ever, with a QP that takes nothing. */
static void broken_qp_ends_its_connection(void **state)
{
	for (unsigned i = 0; i < sizeof(ways_to_break) / sizeof(*ways_to_break); i++) {
		struct kit kit;

		connect_to_break(&kit, &ways_to_break[i], state);
		kit_connect(&kit);
		kit_until(&kit, kit_both_up);
		use_bad_key(&kit);
		kit_until(&kit, kit_both_over);
		assert_int_equal(kit_status(&kit, 0), -EACCES);
		assert_non_null(
			strstr(kit_text(&kit, 0), "is broken: its first error"));
		assert_int_equal(kit_status(&kit, 1), -EREMOTEIO);
		assert_non_null(strstr(kit_text(&kit, 1), "the peer says: QP"));
		assert_error(snt_conn_disconnect(kit.end[0].conn, 0), ENOTCONN,
			     "is broken");
		kit_close(&kit);
	}
}

static void broken_qp_is_connected_again(void **state)
{
	for (unsigned i = 0; i < sizeof(ways_to_break) / sizeof(*ways_to_break); i++) {
		struct kit kit;

		connect_to_break(&kit, &ways_to_break[i], state);
		kit.connect.retries = 3;
		kit_connect(&kit);
		kit_until(&kit, kit_both_up);
		use_bad_key(&kit);
		kit_until(&kit, connector_connected_twice);
		assert_int_equal(kit.end[0].events[SNT_CONN_RETRYING], 1);
		kit_check_data(&kit, 0);
		kit_disconnect(&kit);
		kit_close(&kit);
	}
}

/* Otherwise the connection would seem to have ended well, with WRs that failed. */
static void broken_qp_while_disconnecting(void **state)
{
	struct snt_sge sge;
	struct snt_op op = { 0 };
	struct snt_token token;
	struct kit kit;

	connect_to_break(&kit, &ways_to_break[0], state);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	token = kit.end[1].token;
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		token.key[i] ^= 0x5a5a5a00;
	sge = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, KIT_BYTES };
	assert_success(snt_op_write(snt_conn_qp(kit.end[0].conn), &op, &sge, &token,
				    token.addr));
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	kit_until(&kit, kit_both_over);
	assert_int_equal(kit_status(&kit, 0), -EACCES);
	assert_int_equal(kit_status(&kit, 1), -EREMOTEIO);
	kit_close(&kit);
}

/* A device's thread has written what arrived, and the word of it came by TCP: only a
 * verb, which takes the device's lock, lets ThreadSanitizer see the order. */
static void let_sanitizer_see(struct kit_end *end)
{
	struct snt_mem *mem;
	char byte;

	assert_success(snt_mem_register(end->ctx, &byte, 1, 0, &mem));
	assert_success(snt_mem_release(mem));
}

/* They are not signaled, and nevertheless they arrive before the peer hears of the
 * end. */
static void unsignalled_to_the_last(void **state)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_cq *cq[2];
	struct snt_wc wc;
	struct kit kit;
	struct snt_sge sge;
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE, .sge = &sge, .sge_count = 1 };

	kit_open(&kit, carrier_of(state), 1);
	for (unsigned i = 0; i < 2; i++) {
		cq_opts.loop = kit.end[i].loop;
		assert_success(snt_cq_create(kit.end[i].ctx, &cq_opts, &cq[i]));
		kit.qp[i].cq = cq[i];
		kit.qp[i].lanes = 1;
	}
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	wr.remote = &kit.end[1].token;
	wr.remote_addr = kit.end[1].token.addr;
	sge = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, KIT_BYTES / 2 };
	memset(kit.end[0].bytes + KIT_BYTES / 2, 'z', KIT_BYTES / 2);
	/* The last of many says something else. */
	for (unsigned i = 0; i < 100; i++) {
		if (i == 99)
			sge.addr = kit.end[0].bytes + KIT_BYTES / 2;
		assert_int_equal(snt_qp_post_send(snt_conn_qp(kit.end[0].conn), &wr, 1),
				 1);
	}
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	while (!kit.end[1].events[SNT_CONN_PEER_DONE]) {
		kit_turn(&kit);
		/* Nor does the program hear of what was asked for instead of them. */
		assert_int_equal(snt_cq_poll(cq[0], &wc, 1), 0);
	}
	let_sanitizer_see(&kit.end[1]);
	assert_int_equal(kit.end[1].bytes[0], 'z');
	assert_int_equal(kit.end[1].bytes[KIT_BYTES / 2 - 1], 'z');
	assert_success(snt_conn_disconnect(kit.end[1].conn, 0));
	kit_until(&kit, kit_both_over);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kit_status(&kit, i), 0);
		while (snt_cq_poll(cq[i], &wc, 1) == 0)
			kit_turn(&kit);
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
		assert_success(snt_conn_destroy(kit.end[i].conn));
		kit.end[i].conn = NULL;
		assert_success(snt_cq_destroy(cq[i]));
	}
	kit_close(&kit);
}

/* Receives from a stock that connections share. */
static void with_shared_receives(void **state)
{
	struct snt_op recv = { 0 }, send = { 0 };
	struct snt_srq_opts opts = { .size = sizeof(opts) };
	struct snt_srq *srq;
	struct snt_sge sge;
	struct kit kit;

	kit_open(&kit, carrier_of(state), 1);
	opts.cq = kit.end[1].cq;
	assert_success(snt_srq_create(kit.end[1].ctx, &opts, &srq));
	kit.qp[0].flags = kit.qp[1].flags = SNT_QP_PASS_THROUGH;
	kit.qp[1].srq = srq;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	sge = (struct snt_sge){ kit.end[1].mem, kit.end[1].bytes, 64 };
	assert_success(snt_op_post_srq_recv(srq, &recv,
					    &(struct snt_recv_wr){ .sge = &sge,
								   .sge_count = 1 }));
	sge = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, 64 };
	assert_success(snt_op_send(snt_conn_qp(kit.end[0].conn), &send, &sge));
	while (snt_op_pending(&recv) || snt_op_pending(&send))
		kit_turn(&kit);
	assert_int_equal(recv.result, 0);
	assert_int_equal(recv.wc.qp_num, snt_qp_num(snt_conn_qp(kit.end[1].conn)));
	kit_disconnect(&kit);
	kit_destroy_conns(&kit);
	assert_success(snt_srq_destroy(srq));
	kit_close(&kit);
}

static struct ibv_cq *broken;
static int (*poll_other)(struct ibv_cq *cq, int max, struct ibv_wc *wc);

static int poll_broken(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	return cq == broken ? -1 : poll_other(cq, max, wc);
}

/* A connection whose CQ can be polled no more comes to an end, and can be destroyed. */
static void a_cq_that_breaks(void **state)
{
	struct snt_sge sge;
	struct snt_op op = { 0 };
	struct ibv_context *context;
	struct kit_end *end;
	struct kit kit;
	int ret;

	kit_open(&kit, carrier_of(state), 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	end = &kit.end[0];
	context = snt_device_context(snt_ctx_device(end->ctx, 0));
	broken = snt_cq_physical(end->cq, 0, NULL);
	poll_other = context->ops.poll_cq;
	context->ops.poll_cq = poll_broken;
	sge = (struct snt_sge){ end->mem, end->bytes, 64 };
	assert_success(snt_op_write(snt_conn_qp(end->conn), &op, &sge,
				    &kit.end[1].token, kit.end[1].token.addr));
	do
		ret = snt_loop_wait(end->loop, 1000000000);
	while (ret >= 0);
	assert_error(ret, EIO, "cannot be polled");
	assert_success(snt_conn_abort(end->conn, "its CQ is broken"));
	kit_until(&kit, kit_both_over);
	assert_int_equal(snt_op_pending(&op), 1);
	assert_success(snt_op_cancel(&op, SNT_CANCEL_DETACH));
	while (snt_op_pending(&op))
		kit_turn(&kit);
	context->ops.poll_cq = poll_other;
	kit_close(&kit);
}

/*
 * Strangers that speak TCP, but nothing else.
 */

static int call_raw(struct kit *kit, const void *bytes, size_t length)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(kit->to.port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	inet_pton(AF_INET, kit->end[1].address, &to.sin_addr);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
	return fd;
}

/* Until the listener has closed it; what it said before that. */
static size_t hear_out(struct kit *kit, int fd, uint8_t *bytes, size_t size)
{
	size_t length = 0;

	for (unsigned i = 0; i < 2000; i++) {
		ssize_t got = recv(fd, bytes + length, size - length, MSG_DONTWAIT);

		if (got == 0 || (got < 0 && errno == ECONNRESET)) {
			close(fd);
			return length;
		}
		if (got > 0)
			length += (size_t)got;
		kit_turn(kit);
	}
	fail_msg("the listener keeps a stranger");
	return 0;
}

static void strangers(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	/* A header that promises the longest of bodies, and none of the kind. */
	static const uint8_t liar[16] = { 'S', 'N', 'T', 1, 3, 0, 0x0b, 0xd0 };
	static const uint8_t huge[16] = { 'S', 'N', 'T', 1, 1, 0, 0xff, 0xff };
	uint8_t said[512];
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.at.setup_ns = UINT64_C(1000000000);
	kit_listen(&kit);
	/* To what is no message there is no answer; silence ends with the setup
	 * time. */
	assert_int_equal(hear_out(&kit, call_raw(&kit, http, sizeof(http)), said,
				  sizeof(said)),
			 0);
	assert_int_equal(hear_out(&kit, call_raw(&kit, huge, sizeof(huge)), said,
				  sizeof(said)),
			 0);
	assert_int_equal(hear_out(&kit, call_raw(&kit, liar, sizeof(liar)), said,
				  sizeof(said)),
			 0);
	assert_int_equal(hear_out(&kit, call_raw(&kit, liar, 3), said, sizeof(said)),
			 0);
	assert_int_equal(kit.requests, 0);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static void too_many_strangers(void **state)
{
	struct kit kit;
	int fd[2];

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.at.setup_ns = UINT64_C(1500000000);
	kit.listen.backlog = 2;
	kit_listen(&kit);
	for (unsigned i = 0; i < 2; i++)
		fd[i] = call_raw(&kit, "S", 1);
	kit_turn(&kit);
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -EBUSY);
	assert_non_null(strstr(kit_text(&kit, 0), "too many connections"));
	kit_destroy_conns(&kit);
	/* Half-open ones go when their time is up. */
	kit.connect.retries = 10;
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	for (unsigned i = 0; i < 2; i++)
		close(fd[i]);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* One that is refused, and does not wait to hear why. */
static void a_stranger_in_a_hurry(void **state)
{
	const struct linger at_once = { .l_onoff = 1 };
	struct kit kit;
	int fd[2];

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.listen.backlog = 1;
	kit_listen(&kit);
	fd[0] = call_raw(&kit, "S", 1);
	kit_turn(&kit);
	for (unsigned i = 0; i < 4; i++) {
		fd[1] = call_raw(&kit, "S", 1);
		assert_success(setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &at_once,
					  sizeof(at_once)));
		close(fd[1]);
		kit_turn(&kit);
	}
	close(fd[0]);
	kit_close(&kit);
}

/* A peer that cannot be accepted for lack of fds costs no time, and is accepted
 * later. */
static void no_more_fds(void **state)
{
	struct rlimit limit, none;
	unsigned turns = 0;
	struct kit kit;
	uint64_t until;
	uint8_t said[16];
	int fd, next;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.at.setup_ns = UINT64_C(100000000);
	kit_listen(&kit);
	kit_turn(&kit);
	fd = call_raw(&kit, "S", 1);
	next = dup(fd);
	assert_success(next);
	close(next);
	assert_success(getrlimit(RLIMIT_NOFILE, &limit));
	none = (struct rlimit){ (rlim_t)next, limit.rlim_max };
	assert_success(setrlimit(RLIMIT_NOFILE, &none));
	until = snt_loop_now(kit.end[1].loop) + UINT64_C(250000000);
	for (; snt_loop_now(kit.end[1].loop) < until; turns++)
		assert_success(snt_loop_wait(kit.end[1].loop, 50000000));
	assert_success(setrlimit(RLIMIT_NOFILE, &limit));
	assert_in_range(turns, 1, 30);
	assert_int_equal(hear_out(&kit, fd, said, sizeof(said)), 0);
	kit_close(&kit);
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
#define BOTH(test)                                   \
	{ #test " (TCP)", test, NULL, NULL, &tcp },  \
	{                                            \
#test " (CM)", test, NULL, NULL, &cm \
	}
	const struct CMUnitTest tests[] = {
		BOTH(connects_and_disconnects),
		BOTH(a_single_lane),
		BOTH(another_scheme),
		BOTH(rejected),
		BOTH(nobody_listens),
		BOTH(secrets),
		BOTH(aborted),
		BOTH(given_up_in_every_phase),
		BOTH(a_name_that_comes_again),
		BOTH(tried_again),
		BOTH(tried_again_too_late),
		BOTH(polled_by_the_program),
		BOTH(unsignalled_to_the_last),
		BOTH(broken_qp_ends_its_connection),
		BOTH(broken_qp_is_connected_again),
		BOTH(broken_qp_while_disconnecting),
		BOTH(with_shared_receives),
		BOTH(a_cq_that_breaks),
		cmocka_unit_test(strangers),
		cmocka_unit_test(too_many_strangers),
		cmocka_unit_test(a_stranger_in_a_hurry),
		cmocka_unit_test(no_more_fds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
