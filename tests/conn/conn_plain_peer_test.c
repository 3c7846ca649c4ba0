/* SPDX-License-Identifier: MIT */
/* Plain connections with peers that use a connection manager directly, and badly. */
#include "lib/conn_kit.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include "dev/cm.h"

/* The peer: an end of the kit's whose connection manager and QP the test uses itself. */
struct peer {
	struct kit *kit;
	unsigned end;
	struct snt_device *device;
	const struct snt_control *control;
	const struct snt__cm_table *table;
	struct snt__cm *cm;
	struct snt__cm_id *listener, *id;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void open_peer(struct peer *peer, struct kit *kit, unsigned end)
{
	struct snt__cm_device on;
	struct snt__cm_opts opts = { .devices = &on, .device_count = 1 };
	struct ibv_qp_init_attr attr = { .cap = { 16, 16, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };

	kit_open(kit, SNT_CARRIER_PLAIN, 1);
	kit->qp[0].flags = kit->qp[1].flags = SNT_QP_PASS_THROUGH;
	*peer = (struct peer){ .kit = kit, .end = end };
	peer->device = snt_ctx_device(kit->end[end].ctx, 0);
	peer->control = snt_device_control(peer->device);
	peer->table = peer->control->cm;
	on = (struct snt__cm_device){ snt_device_context(peer->device), 1 };
	assert_success(peer->table->open(&opts, &peer->cm));
	assert_int_equal(peer->control->create_cq(on.context, 64, NULL, NULL, 0,
						  &peer->cq),
			 0);
	attr.send_cq = attr.recv_cq = peer->cq;
	assert_int_equal(peer->control->create_qp(snt_device_pd(peer->device), &attr,
						  &peer->qp),
			 0);
}

static void close_peer(struct peer *peer)
{
	assert_int_equal(peer->control->destroy_qp(peer->qp), 0);
	assert_int_equal(peer->control->destroy_cq(peer->cq), 0);
	peer->table->destroy(peer->id);
	peer->table->destroy(peer->listener);
	assert_success(peer->table->close(peer->cm));
	kit_close(peer->kit);
}

static struct snt__cm_event expect(struct peer *peer, enum snt__cm_event_type type)
{
	struct snt__cm_event event = { 0 };

	while (peer->table->next_event(peer->cm, &event))
		kit_turn(peer->kit);
	assert_int_equal(event.type, type);
	return event;
}

static struct snt__cm_param param_of(const struct peer *peer)
{
	return (struct snt__cm_param){ .data = "raw",
				       .data_length = 3,
				       .qpn = peer->qp->qp_num,
				       .responder_resources = 4,
				       .initiator_depth = 2,
				       .retry_count = 7,
				       .rnr_retry_count = 7,
				       .ack_timeout = 16 };
}

static void move_qp(struct peer *peer, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	assert_success(peer->table->qp_attr(peer->id, &attr, &mask));
	assert_int_equal(peer->control->modify_qp(peer->qp, &attr, mask), 0);
}

static void send_request(struct peer *peer)
{
	struct sockaddr_in target = { .sin_family = AF_INET,
				      .sin_port = htons(peer->kit->to.port) };
	struct snt__cm_param param = param_of(peer);

	inet_pton(AF_INET, peer->kit->end[!peer->end].address, &target.sin_addr);
	assert_success(peer->table->resolve(peer->cm, NULL, (struct sockaddr *)&target,
					    1000, &peer->id));
	expect(peer, SNT__CM_EVENT_RESOLVED);
	assert_success(peer->table->connect(peer->id, &param));
}

static void answer_request(struct peer *peer)
{
	struct snt__cm_param param = param_of(peer);

	peer->id = expect(peer, SNT__CM_EVENT_REQUEST).id;
	assert_success(peer->table->accept(peer->id, &param));
}

/* The peer listens, and sennit connects. */
static void listen_at_peer(struct peer *peer)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct sockaddr_storage bound, none;

	inet_pton(AF_INET, peer->kit->end[peer->end].address, &at.sin_addr);
	assert_success(peer->table->listen(peer->cm, (struct sockaddr *)&at, 0,
					   &peer->listener));
	peer->table->addresses(peer->listener, &bound, &none);
	peer->kit->to.port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
	kit_connect(peer->kit);
}

static void await_over(struct kit *kit, unsigned end, int status, const char *phrase)
{
	while (!kit->end[end].events[SNT_CONN_OVER])
		kit_turn(kit);
	assert_int_equal(kit_status(kit, end), status);
	if (!strstr(kit_text(kit, end), phrase))
		fail_msg("\"%s\" is not in \"%s\"", phrase, kit_text(kit, end));
}

static void await_established(struct kit *kit, unsigned end)
{
	while (!kit->end[end].events[SNT_CONN_CONNECTED])
		kit_turn(kit);
}

/*
 * Peers that connect
 */

static void keep_request(void *arg, struct snt_listener *listener,
			 struct snt_conn *conn)
{
	struct kit *kit = arg;

	(void)listener;
	kit->end[1].conn = conn;
}

static void gives_up_while_the_program_thinks(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit.listen.requested = keep_request;
	kit_listen(&kit);
	send_request(&peer);
	while (!kit.end[1].conn)
		kit_turn(&kit);
	peer.table->destroy(peer.id);
	peer.id = NULL;
	while (snt_conn_accept(kit.end[1].conn, &kit.accept) != -ENOTCONN) {
		struct snt_conn_info info = { .size = sizeof(info) };

		/* It may be accepted before the news comes, and is over then. */
		assert_success(snt_conn_query(kit.end[1].conn, &info));
		if (info.state != SNT_CONN_REQUESTED)
			break;
	}
	while (snt_conn_wait_over(kit.end[1].conn, 0) == -ETIME)
		kit_turn(&kit);
	assert_int_not_equal(kit_status(&kit, 1), 0);
	close_peer(&peer);
}

/* The program's refusal of a peer that has gone is no error. */
static void gives_up_before_it_is_refused(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit.listen.requested = keep_request;
	kit_listen(&kit);
	send_request(&peer);
	while (!kit.end[1].conn)
		kit_turn(&kit);
	peer.table->destroy(peer.id);
	peer.id = NULL;
	do {
		kit_turn(&kit);
		assert_success(snt_conn_query(kit.end[1].conn, &info));
	} while (info.state == SNT_CONN_REQUESTED && !*info.text);
	assert_error(snt_conn_accept(kit.end[1].conn, &kit.accept), ENOTCONN,
		     "the peer has gone");
	assert_success(snt_conn_reject(kit.end[1].conn, NULL, "no", 2));
	kit.end[1].conn = NULL;
	close_peer(&peer);
}

static void refuses_the_answer(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit_listen(&kit);
	send_request(&peer);
	expect(&peer, SNT__CM_EVENT_RESPONSE);
	assert_success(peer.table->reject(peer.id, "no thanks", 9));
	await_over(&kit, 1, -ECONNABORTED, "the peer's program gave the connection up");
	assert_success(snt_conn_query(kit.end[1].conn, &info));
	assert_int_equal(info.data_length, SNT_PLAIN_REFUSAL_MAX);
	assert_memory_equal(info.data, "no thanks", 10);
	close_peer(&peer);
}

static void leaves_after_the_answer(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit_listen(&kit);
	send_request(&peer);
	expect(&peer, SNT__CM_EVENT_RESPONSE);
	peer.table->destroy(peer.id);
	peer.id = NULL;
	await_over(&kit, 1, -ECONNABORTED, "gave the connection up");
	close_peer(&peer);
}

static void never_confirms(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit.at.setup_ns = 300000000;
	kit_listen(&kit);
	send_request(&peer);
	expect(&peer, SNT__CM_EVENT_RESPONSE);
	await_over(&kit, 1, -ETIMEDOUT, "waiting for the peer's answer");
	assert_int_equal(kit.end[1].events[SNT_CONN_CONNECTED], 0);
	close_peer(&peer);
}

/* Its first message says what its confirmation would have said. */
static void sends_before_it_confirms(void **state)
{
	struct snt_sge sge;
	struct snt_op recv = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit.listen.requested = keep_request;
	kit_listen(&kit);
	send_request(&peer);
	while (!kit.end[1].conn)
		kit_turn(&kit);
	assert_success(snt_conn_accept(kit.end[1].conn, &kit.accept));
	while (!kit.end[1].events[SNT_CONN_PREPARE])
		kit_turn(&kit);
	sge = (struct snt_sge){ kit.end[1].mem, kit.end[1].bytes, 64 };
	assert_success(snt_op_recv(snt_conn_qp(kit.end[1].conn), &recv, &sge));
	expect(&peer, SNT__CM_EVENT_RESPONSE);
	for (unsigned i = 0; i < 3; i++)
		move_qp(&peer, (enum ibv_qp_state[]){ IBV_QPS_INIT, IBV_QPS_RTR,
						      IBV_QPS_RTS }[i]);
	assert_int_equal(ibv_post_send(peer.qp, &wr, &bad), 0);
	await_established(&kit, 1);
	assert_false(snt_op_pending(&recv));
	assert_int_equal(recv.result, 0);
	assert_success(snt_conn_disconnect(kit.end[1].conn, 0));
	await_over(&kit, 1, 0, "disconnected");
	close_peer(&peer);
}

/* A new request from the QP of an established connection: the old one is stale. */
static void connects_the_same_qp_again(void **state)
{
	struct snt__cm_id *old;
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 0);
	kit_listen(&kit);
	send_request(&peer);
	expect(&peer, SNT__CM_EVENT_RESPONSE);
	assert_success(peer.table->establish(peer.id));
	await_established(&kit, 1);
	old = peer.id;
	send_request(&peer);
	await_over(&kit, 1, 0, "the peer has disconnected");
	assert_int_equal(expect(&peer, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_STALE);
	peer.table->destroy(old);
	close_peer(&peer);
}

/*
 * Peers that listen
 */

static void takes_fewer_reads(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 1);
	listen_at_peer(&peer);
	answer_request(&peer);
	await_established(&kit, 0);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_int_equal(info.reads_out, 4);
	assert_int_equal(info.reads_in, 2);
	expect(&peer, SNT__CM_EVENT_ESTABLISHED);
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	await_over(&kit, 0, 0, "this end has disconnected");
	close_peer(&peer);
}

/* Its refusal begins as a message of sennit's own, and is none. */
static void refuses_with_odd_data(void **state)
{
	static const uint8_t odd[][24] = { "SNT\1\15", "SNT\1\15\0\377\377", "SNT" };
	struct peer peer;
	struct kit kit;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
		open_peer(&peer, &kit, 1);
		listen_at_peer(&peer);
		peer.id = expect(&peer, SNT__CM_EVENT_REQUEST).id;
		assert_success(peer.table->reject(peer.id, odd[i], sizeof(odd[i])));
		await_over(&kit, 0, -ECONNREFUSED, "the peer's program refused");
		close_peer(&peer);
	}
}

static void leaves_after_its_answer(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 1);
	listen_at_peer(&peer);
	answer_request(&peer);
	peer.table->destroy(peer.id);
	peer.id = NULL;
	while (!kit.end[0].events[SNT_CONN_OVER])
		kit_turn(&kit);
	close_peer(&peer);
}

/* It takes the request, and is never heard of again. */
static void never_answers(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 1);
	kit.to.setup_ns = 300000000;
	listen_at_peer(&peer);
	peer.id = expect(&peer, SNT__CM_EVENT_REQUEST).id;
	await_over(&kit, 0, -ETIMEDOUT, "waiting for the peer's answer");
	assert_int_equal(expect(&peer, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_TIMEOUT);
	close_peer(&peer);
}

static void its_id_goes_without_a_word(void **state)
{
	struct peer peer;
	struct kit kit;

	(void)state;
	open_peer(&peer, &kit, 1);
	listen_at_peer(&peer);
	answer_request(&peer);
	await_established(&kit, 0);
	expect(&peer, SNT__CM_EVENT_ESTABLISHED);
	peer.table->destroy(peer.id);
	peer.id = NULL;
	await_over(&kit, 0, 0, "the peer has disconnected");
	close_peer(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_up_while_the_program_thinks),
		cmocka_unit_test(gives_up_before_it_is_refused),
		cmocka_unit_test(refuses_the_answer),
		cmocka_unit_test(leaves_after_the_answer),
		cmocka_unit_test(never_confirms),
		cmocka_unit_test(sends_before_it_confirms),
		cmocka_unit_test(connects_the_same_qp_again),
		cmocka_unit_test(takes_fewer_reads),
		cmocka_unit_test(refuses_with_odd_data),
		cmocka_unit_test(leaves_after_its_answer),
		cmocka_unit_test(never_answers),
		cmocka_unit_test(its_id_goes_without_a_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
