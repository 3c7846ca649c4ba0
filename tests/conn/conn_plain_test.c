/* SPDX-License-Identifier: MIT */
/* Plain connections on soft devices, with sennit at both ends. */
#include "lib/conn_kit.h"

#include <sennit/fault.h>
#include <sennit/stream.h>

static struct snt_conn *never;

static void open_plain(struct kit *kit, unsigned devices)
{
	kit_open(kit, SNT_CARRIER_PLAIN, devices);
	kit->qp[0].flags = kit->qp[1].flags = SNT_QP_PASS_THROUGH;
}

static bool connector_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

static void disconnect_plain(struct kit *kit, unsigned first)
{
	assert_success(snt_conn_disconnect(kit->end[first].conn, 0));
	kit_until(kit, kit_both_over);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kit_status(kit, i), 0);
		assert_int_equal(kit->end[i].events[SNT_CONN_PEER_DONE], 0);
	}
}

/* What rdma_cm has carried: the data, and zeros behind it. */
static void check_data(const struct kit_end *end, const char *data, size_t length,
		       size_t max)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	static const uint8_t zeros[SNT_CONN_DATA_MAX];

	assert_success(snt_conn_query(end->conn, &info));
	assert_int_equal(info.data_length, max);
	assert_memory_equal(info.data, data, length);
	assert_memory_equal((const uint8_t *)info.data + length, zeros, max - length);
}

static void check_moments(const struct kit_end *end, const enum snt_cm_event *expected,
			  unsigned count)
{
	struct snt_conn_cm_info info = { .size = sizeof(info) };
	uint64_t last = 0;

	for (unsigned i = 0; i < count; i++) {
		assert_success(snt_conn_query_cm(end->conn, i, &info));
		assert_int_equal(info.event, expected[i]);
		assert_true(info.after_ns >= last);
		last = info.after_ns;
	}
	assert_error(snt_conn_query_cm(end->conn, count, &info), ENOENT, "none with");
}

static void connects_and_disconnects(void **state)
{
	static const enum snt_cm_event connector[] = { SNT_CM_RESOLVED, SNT_CM_CONNECT,
						       SNT_CM_RESPONSE,
						       SNT_CM_DISCONNECT,
						       SNT_CM_DISCONNECTED };
	static const enum snt_cm_event acceptor[] = { SNT_CM_REQUEST, SNT_CM_ACCEPT,
						      SNT_CM_ESTABLISHED,
						      SNT_CM_DISCONNECTED };
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;
	char text[4096];

	(void)state;
	open_plain(&kit, 2);
	kit.qp[0].read_depth = 3;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_conn_query(kit.end[i].conn, &info));
		assert_int_equal(info.state, SNT_CONN_ESTABLISHED);
		assert_int_equal(info.reads_in, 3);
		assert_int_equal(info.reads_out, 3);
		assert_int_equal(info.mtu, 4096);
		assert_non_null(strstr(info.peer_address, kit.end[!i].address));
		assert_int_equal(kit.end[i].events[SNT_CONN_PREPARE], 1);
		snt_conn_explain(kit.end[i].conn, text, sizeof(text));
		assert_non_null(strstr(text, "a plain connection"));
		assert_non_null(strstr(text, " ms: the peer"));
	}
	check_data(&kit.end[1], "hello", 5, SNT_PLAIN_REQUEST_MAX);
	check_data(&kit.end[0], "welcome", 7, SNT_PLAIN_ANSWER_MAX);
	kit_check_data(&kit, 0);
	kit_check_data(&kit, 1);
	disconnect_plain(&kit, 0);
	check_moments(&kit.end[0], connector, ARRAY_SIZE(connector));
	check_moments(&kit.end[1], acceptor, ARRAY_SIZE(acceptor));
	assert_non_null(strstr(kit_text(&kit, 0), "this end has disconnected"));
	assert_non_null(strstr(kit_text(&kit, 1), "the peer has disconnected"));
	kit_close(&kit);
}

static void the_listening_end_disconnects(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	disconnect_plain(&kit, 1);
	kit_close(&kit);
}

static void both_disconnect(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_success(snt_conn_disconnect(kit.end[1].conn, 0));
	disconnect_plain(&kit, 0);
	kit_close(&kit);
}

/* Everything posted is acknowledged before the peer is told. */
static void disconnects_after_what_was_posted(void **state)
{
	struct snt_op send = { 0 };
	struct snt_sge sge;
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	memset(kit.end[0].bytes, 0x5a, KIT_BYTES);
	sge = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, KIT_BYTES };
	assert_success(snt_op_write(snt_conn_qp(kit.end[0].conn), &send, &sge,
				    &kit.end[1].token, kit.end[1].token.addr));
	disconnect_plain(&kit, 0);
	assert_false(snt_op_pending(&send));
	assert_int_equal(send.result, 0);
	assert_memory_equal(kit.end[0].bytes, kit.end[1].bytes, KIT_BYTES);
	kit_close(&kit);
}

static void data_of_every_length(void **state)
{
	static const size_t request[] = { 0, 1, 55, SNT_PLAIN_REQUEST_MAX };
	static const size_t answer[] = { 0, 1, 195, SNT_PLAIN_ANSWER_MAX };
	char bytes[SNT_CONN_DATA_MAX];
	struct kit kit;

	(void)state;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i + 1);
	for (unsigned i = 0; i < 4; i++) {
		open_plain(&kit, 1);
		kit.connect.data = kit.accept.data = bytes;
		kit.connect.data_length = request[i];
		kit.accept.data_length = answer[i];
		kit_listen(&kit);
		kit_connect(&kit);
		kit_until(&kit, kit_both_up);
		check_data(&kit.end[1], bytes, request[i], SNT_PLAIN_REQUEST_MAX);
		check_data(&kit.end[0], bytes, answer[i], SNT_PLAIN_ANSWER_MAX);
		disconnect_plain(&kit, i % 2);
		kit_close(&kit);
	}
}

static void options_it_cannot_have(void **state)
{
	static const char bytes[SNT_CONN_DATA_MAX], taken[] = "SNTC\1\21 and more";
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_PLAIN, 1);
	kit_listen(&kit);
#define REFUSED(phrase)                                                                \
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect, &never), \
		     EINVAL, phrase)
	REFUSED("needs SNT_QP_PASS_THROUGH");
	kit.qp[0].flags = SNT_QP_PASS_THROUGH;
	kit.qp[0].lanes = 2;
	REFUSED("lanes");
	kit.qp[0].lanes = 0;
	kit.qp[0].scheme = SNT_SCHEME_DQPLB;
	REFUSED("scheme");
	kit.qp[0].scheme = SNT_SCHEME_DEFAULT;
	kit.qp[0].mtu = 1024;
	REFUSED("chooses the MTU");
	kit.qp[0].mtu = 0;
	kit.to.name = "worker 7";
	REFUSED("does not understand names");
	kit.connect.meet = kit.listener;
	kit.to.name = NULL;
	REFUSED("one of two attempts");
	kit.connect.meet = NULL;
	kit.connect.data = bytes;
	kit.connect.data_length = SNT_PLAIN_REQUEST_MAX + 1;
	REFUSED("57 bytes of data, of which a request of a plain connection takes 56");
	kit.connect.data = taken;
	kit.connect.data_length = sizeof(taken);
	REFUSED("begins as requests of sennit's own do");
	kit_close(&kit);
}

static void no_secrets(void **state)
{
	static const char secret[] = "a secret of some length";
	struct snt_listener *none;
	struct kit kit;

	(void)state;
#ifndef SNT_HAVE_CRYPTO
	skip_because("built without libcrypto");
#endif
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit.to.secret = secret;
	kit.to.secret_length = sizeof(secret);
	REFUSED("cannot prove that it knows one");
	kit.to.port = 0;
	assert_error(snt_listener_create(kit.end[1].loop, &kit.to, &kit.listen, &none),
		     EINVAL, "cannot prove that it knows one");
	kit_close(&kit);
}

static void no_streams(void **state)
{
	struct snt_stream_opts opts = { .size = sizeof(opts) };
	struct snt_stream_listener_opts listen = { .size = sizeof(listen),
						   .stream = &opts };
	struct snt_stream_listener *listener;
	struct snt_stream *stream;
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	assert_error(snt_stream_connect(kit.end[0].loop, &kit.to, &opts, &stream),
		     EINVAL, "a stream cannot be plain");
	kit.to.port = 0;
	assert_error(snt_stream_listener_create(kit.end[1].loop, &kit.to, &listen,
						&listener),
		     EINVAL, "a stream cannot be plain");
	kit_close(&kit);
}

/* A program that decides later. */
static void keep_request(void *arg, struct snt_listener *listener,
			 struct snt_conn *conn)
{
	struct snt_conn **kept = arg;

	(void)listener;
	*kept = conn;
}

static void rejected(void **state)
{
	static const size_t lengths[] = { 0, 1, 147, SNT_PLAIN_REFUSAL_MAX };
	char bytes[SNT_CONN_DATA_MAX];
	struct snt_conn *kept;
	struct kit kit;

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	for (unsigned i = 0; i < 4; i++) {
		kept = NULL;
		open_plain(&kit, 1);
		kit.listen.requested = keep_request;
		kit.listen.arg = &kept;
		kit_listen(&kit);
		kit_connect(&kit);
		while (!kept)
			kit_turn(&kit);
		assert_error(snt_conn_reject(kept, NULL, bytes,
					     SNT_PLAIN_REFUSAL_MAX + 1),
			     EINVAL, "a refusal of a plain connection takes 148");
		assert_success(snt_conn_reject(kept, "unsaid", bytes, lengths[i]));
		kit_until(&kit, connector_over);
		assert_int_equal(kit_status(&kit, 0), -ECONNREFUSED);
		assert_non_null(strstr(kit_text(&kit, 0), "program refused"));
		check_data(&kit.end[0], bytes, lengths[i], SNT_PLAIN_REFUSAL_MAX);
		kit_close(&kit);
	}
}

/* Refused options leave the request as it is. */
static void accepts_at_the_second_try(void **state)
{
	struct snt_conn *kept = NULL;
	struct kit kit;

	(void)state;
	open_plain(&kit, 2);
	kit.listen.requested = keep_request;
	kit.listen.arg = &kept;
	kit_listen(&kit);
	kit_connect(&kit);
	while (!kept)
		kit_turn(&kit);
	kit.end[1].conn = kept;
	kit.qp[1].devices = 2;
	assert_error(snt_conn_accept(kept, &kit.accept), EINVAL,
		     "snt_qp_opts.devices 0x2 excludes");
	kit.qp[1].devices = 1;
	kit.qp[1].flags = 0;
	assert_error(snt_conn_accept(kept, &kit.accept), EINVAL,
		     "needs SNT_QP_PASS_THROUGH");
	kit.qp[1].flags = SNT_QP_PASS_THROUGH;
	assert_success(snt_conn_accept(kept, &kit.accept));
	assert_error(snt_conn_accept(kept, &kit.accept), EALREADY, "before");
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 1);
	disconnect_plain(&kit, 0);
	kit_close(&kit);
}

static void leads_over_a_device_that_is_excluded(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 2);
	kit.qp[0].devices = 2;
	kit.to.source = kit.end[0].address;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -EINVAL);
	assert_non_null(strstr(kit_text(&kit, 0), "soft0"));
	assert_int_equal(kit.requests, 0);
	kit_close(&kit);
}

static void a_handshake_at_a_plain_listener(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit.to.carrier = SNT_CARRIER_CM;
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -EPROTO);
	assert_non_null(strstr(kit_text(&kit, 0), "SNT_CARRIER_PLAIN"));
	assert_int_equal(kit.requests, 0);
	kit_close(&kit);
}

static void plain_at_a_listener_with_handshakes(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit.at.carrier = SNT_CARRIER_CM;
	kit_listen(&kit);
	kit.connect.retries = 3; /* which would not help */
	kit_connect(&kit);
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -EPROTO);
	assert_non_null(strstr(kit_text(&kit, 0), "SNT_CARRIER_CM"));
	assert_int_equal(kit.end[0].events[SNT_CONN_RETRYING], 0);
	assert_int_equal(kit.requests, 0);
	kit_close(&kit);
}

static void tried_again(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = NULL;
	kit.connect.retries = 20;
	kit_connect(&kit);
	while (kit.end[0].events[SNT_CONN_RETRYING] < 2)
		kit_turn(&kit);
	kit.at.port = kit.to.port;
	kit_listen(&kit);
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 0);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_true(info.attempts > 2);
	disconnect_plain(&kit, 0);
	kit_close(&kit);
}

static void aborted(void **state)
{
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_error(snt_conn_destroy(kit.end[0].conn), EBUSY, "disconnect or abort");
	assert_success(snt_conn_abort(kit.end[0].conn, "had enough"));
	kit_until(&kit, kit_both_over);
	assert_int_equal(kit_status(&kit, 0), -ECANCELED);
	assert_int_equal(kit_status(&kit, 1), 0);
	kit_close(&kit);
}

/* Whatever the phase, giving up leaves nothing behind at either end. */
static void given_up_in_every_phase(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 12; turns++) {
		struct kit kit;

		open_plain(&kit, 1);
		kit.may_leave = true;
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

/* A key that the peer does not know ends the QP, and so the connection. */
static void broken_qp_ends_its_connection(void **state)
{
	struct snt_op write = { 0 };
	struct snt_token wrong;
	struct snt_sge sge;
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	wrong = kit.end[1].token;
	wrong.key[0] ^= 0x5555;
	sge = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, 8 };
	assert_success(snt_op_write(snt_conn_qp(kit.end[0].conn), &write, &sge, &wrong,
				    wrong.addr));
	kit_until(&kit, kit_both_over);
	assert_int_equal(write.result, -EACCES);
	assert_int_equal(kit_status(&kit, 0), -EACCES);
	assert_non_null(strstr(kit_text(&kit, 0), kit.end[1].address));
	kit_close(&kit);
}

/* Nothing is posted that could fail: the connection manager reports it. */
static void local_device_dies(void **state)
{
	struct snt_fault_opts fault = { .size = sizeof(fault),
					.kind = SNT_FAULT_DEVICE_FATAL };
	struct snt_conn_cm_info last = { .size = sizeof(last) };
	struct kit kit;

	(void)state;
	for (unsigned established = 0; established < 2; established++) {
		open_plain(&kit, 1);
		kit_listen(&kit);
		kit_connect(&kit);
		if (established)
			kit_until(&kit, kit_both_up);
		else
			while (!kit.end[0].events[SNT_CONN_PREPARE])
				kit_turn(&kit);
		assert_success(
			snt_device_fail(snt_ctx_device(kit.end[0].ctx, 0), &fault));
		kit_until(&kit, connector_over);
		assert_int_equal(kit_status(&kit, 0), -ENODEV);
		assert_non_null(
			strstr(kit_text(&kit, 0), "the local device has failed"));
		for (unsigned i = 0; !snt_conn_query_cm(kit.end[0].conn, i, &last);)
			i++;
		assert_int_equal(last.event, SNT_CM_FAILED);
		assert_int_equal(last.status, -ENODEV);
		/* The peer does not notice, since nothing is sent. */
		if (kit.end[1].conn) {
			snt_conn_abort(kit.end[1].conn, NULL);
			while (!kit.end[1].events[SNT_CONN_OVER])
				kit_turn(&kit);
		}
		kit_close(&kit);
	}
}

static void with_shared_receives(void **state)
{
	struct snt_srq_opts opts = { .size = sizeof(opts) };
	struct snt_srq *srq;
	struct snt_op recv = { 0 }, send = { 0 };
	struct snt_sge in, out;
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	opts.cq = kit.end[1].cq;
	assert_success(snt_srq_create(kit.end[1].ctx, &opts, &srq));
	kit.qp[1].srq = srq;
	in = (struct snt_sge){ kit.end[1].mem, kit.end[1].bytes, 64 };
	out = (struct snt_sge){ kit.end[0].mem, kit.end[0].bytes, 64 };
	assert_success(snt_op_post_srq_recv(srq, &recv,
					    &(struct snt_recv_wr){ .sge = &in,
								   .sge_count = 1 }));
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	strcpy((char *)kit.end[0].bytes, "shared");
	assert_success(snt_op_send(snt_conn_qp(kit.end[0].conn), &send, &out));
	while (snt_op_pending(&recv) || snt_op_pending(&send))
		kit_turn(&kit);
	assert_int_equal(recv.result, 0);
	assert_string_equal((char *)kit.end[1].bytes, "shared");
	disconnect_plain(&kit, 0);
	kit_destroy_conns(&kit);
	assert_success(snt_srq_destroy(srq));
	kit_close(&kit);
}

/* Two listeners in two loops share the port: requests go to both in turn. */
static void listeners_that_share_a_port(void **state)
{
	struct snt_conn *kept = NULL;
	struct snt_listener_opts listen = { .size = sizeof(listen),
					    .requested = keep_request,
					    .arg = &kept };
	struct snt_listener *second;
	struct snt_conn *conn[2];
	struct snt_loop *loop;
	struct kit kit;

	(void)state;
	open_plain(&kit, 1);
	kit_listen(&kit);
	assert_success(snt_loop_create(kit.end[1].ctx, NULL, &loop));
	listen.share = kit.listener;
	assert_success(snt_listener_create(loop, NULL, &listen, &second));
	kit.connect.event = NULL;
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect,
						&conn[i]));
	while (!kept || !kit.requests) {
		kit_turn(&kit);
		assert_success(snt_loop_dispatch(loop, 0));
	}
	assert_success(snt_conn_reject(kept, NULL, "full", 4));
	while (snt_conn_wait(conn[0], 0) == -ETIME ||
	       snt_conn_wait(conn[1], 0) == -ETIME) {
		kit_turn(&kit);
		assert_success(snt_loop_dispatch(loop, 0));
	}
	for (unsigned i = 0; i < 2; i++)
		if (!snt_conn_wait(conn[i], 0))
			assert_success(snt_conn_disconnect(conn[i], 0));
	while (!kit.end[1].events[SNT_CONN_OVER])
		kit_turn(&kit);
	for (unsigned i = 0; i < 2; i++) {
		int ret;

		while ((ret = snt_conn_wait_over(conn[i], 0)) == -ETIME)
			kit_turn(&kit);
		assert_true(!ret || ret == -ECONNREFUSED);
		assert_success(snt_conn_destroy(conn[i]));
	}
	assert_success(snt_listener_destroy(second));
	assert_success(snt_loop_destroy(loop));
	kit_close(&kit);
}

/* What the connection manager reports before the next dispatch tells of the end is too late. */
static void aborted_in_every_phase(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 12; turns++) {
		struct kit kit;
		struct kit_end *end = &kit.end[0];
		unsigned prepared, connected;

		open_plain(&kit, 1);
		kit.may_leave = true;
		kit_listen(&kit);
		kit_connect(&kit);
		for (unsigned i = 0; i < turns; i++)
			kit_turn(&kit);
		prepared = end->events[SNT_CONN_PREPARE];
		connected = end->events[SNT_CONN_CONNECTED];
		assert_success(snt_conn_abort(end->conn, "now"));
		while (!end->events[SNT_CONN_OVER])
			kit_turn(&kit);
		for (unsigned i = 0; i < 20; i++)
			kit_turn(&kit);
		assert_int_equal(end->events[SNT_CONN_PREPARE], prepared);
		assert_int_equal(end->events[SNT_CONN_CONNECTED], connected);
		assert_error(snt_conn_disconnect(end->conn, 0), ENOTCONN, "now");
		while (snt_conn_destroy(end->conn))
			kit_turn(&kit);
		end->conn = NULL;
		while (kit.end[1].conn && !kit.end[1].events[SNT_CONN_OVER])
			kit_turn(&kit);
		kit_close(&kit);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connects_and_disconnects),
		cmocka_unit_test(aborted_in_every_phase),
		cmocka_unit_test(the_listening_end_disconnects),
		cmocka_unit_test(both_disconnect),
		cmocka_unit_test(disconnects_after_what_was_posted),
		cmocka_unit_test(data_of_every_length),
		cmocka_unit_test(options_it_cannot_have),
		cmocka_unit_test(no_secrets),
		cmocka_unit_test(no_streams),
		cmocka_unit_test(rejected),
		cmocka_unit_test(accepts_at_the_second_try),
		cmocka_unit_test(leads_over_a_device_that_is_excluded),
		cmocka_unit_test(a_handshake_at_a_plain_listener),
		cmocka_unit_test(plain_at_a_listener_with_handshakes),
		cmocka_unit_test(tried_again),
		cmocka_unit_test(aborted),
		cmocka_unit_test(given_up_in_every_phase),
		cmocka_unit_test(broken_qp_ends_its_connection),
		cmocka_unit_test(local_device_dies),
		cmocka_unit_test(with_shared_receives),
		cmocka_unit_test(listeners_that_share_a_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
