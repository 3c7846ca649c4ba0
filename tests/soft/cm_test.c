/* SPDX-License-Identifier: MIT */
/* Connections come about, whatever happens to their messages. */
#include "lib/rc.h"
#include "lib/test.h"
#include "lib/cm_kit.h"

#define SECOND UINT64_C(1000000000)

/*
 * As it should be
 */

static struct ibv_qp_attr attr_for(struct kit *kit, unsigned end,
				   struct snt__soft_cm_connection *connection,
				   enum ibv_qp_state state, int mask_expected)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	assert_int_equal(snt__soft_cm_qp_attr(kit->cm[end], connection, &attr, &mask),
			 0);
	assert_int_equal(mask, mask_expected);
	return attr;
}

/* What one end receives with is what the other sends with, and so on. */
static void check_attr(struct kit *kit, struct snt__soft_cm_connection *pair[ENDS],
		       const uint32_t qpn[ENDS])
{
	struct ibv_qp_attr rtr[ENDS], rts[ENDS];

	for (unsigned end = 0; end < ENDS; end++) {
		attr_for(kit, end, pair[end], IBV_QPS_INIT, rc_mask(IBV_QPS_INIT));
		rtr[end] = attr_for(kit, end, pair[end], IBV_QPS_RTR,
				    rc_mask(IBV_QPS_RTR));
		rts[end] = attr_for(kit, end, pair[end], IBV_QPS_RTS,
				    rc_mask(IBV_QPS_RTS));
	}
	for (unsigned end = 0; end < ENDS; end++) {
		const struct ibv_global_route *route = &rtr[end].ah_attr.grh;

		assert_int_equal(rtr[end].dest_qp_num, qpn[!end]);
		assert_int_equal(rtr[end].rq_psn, rts[!end].sq_psn);
		assert_int_equal(rtr[end].max_dest_rd_atomic, rts[!end].max_rd_atomic);
		assert_int_equal(rtr[end].path_mtu, IBV_MTU_4096);
		assert_int_equal(rtr[end].min_rnr_timer, SNT__CM_RNR_TIMER);
		assert_int_equal(rtr[end].ah_attr.is_global, 1);
		assert_memory_equal(route->dgid.raw, kit_gid[kit->ipv6][!end], 16);
		assert_int_equal(route->hop_limit, 64);
		assert_int_equal(route->flow_label, rtr[!end].ah_attr.grh.flow_label);
		assert_int_equal(rts[end].timeout, 16);
		assert_int_equal(rts[end].retry_cnt, 6);
		assert_int_equal(rts[end].rnr_retry, 4);
	}
	/* A would send 5, of which B takes 4; B sends 2, of which A could take 3. */
	assert_int_equal(rts[A].max_rd_atomic, 4);
	assert_int_equal(rtr[A].max_dest_rd_atomic, 2);
	assert_int_not_equal(rtr[A].rq_psn, rtr[B].rq_psn);
}

/* B asks for less than A offers, as a polite program does. */
static void accept_in_turn(struct kit *kit, struct snt__soft_cm_connection *connection,
			   const struct snt__cm_event *request, uint32_t qpn)
{
	struct snt__cm_param param = kit_param(qpn, "response");

	/* What A sends at once is what we are asked to take. */
	assert_int_equal(request->responder_resources, 5);
	assert_int_equal(request->initiator_depth, 3);
	assert_int_equal(request->rnr_retry_count, 4);
	param.responder_resources = 4;
	param.initiator_depth = 2;
	assert_int_equal(snt__soft_cm_accept(kit->cm[B], connection, &param), 0);
}

static void connect_and_disconnect(bool ipv6)
{
	struct kit *kit = kit_open(NULL, ipv6);
	const uint32_t qpn[ENDS] = { 0x123456, 0xabcdef };
	struct snt__soft_cm_connection *pair[ENDS];
	struct snt__cm_event event;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	pair[A] = kit_connect(kit, qpn[A]);
	assert_int_equal(snt__soft_cm_qp_attr(kit->cm[A], pair[A], &attr, &mask),
			 -ENOTCONN);
	kit_pump(kit);
	event = kit_expect(kit, B, SNT__CM_EVENT_REQUEST);
	assert_int_equal(event.qpn, qpn[A]);
	assert_int_equal(event.data_length, SNT__CM_REQUEST_DATA);
	assert_string_equal((char *)event.data, "request");
	pair[B] = snt__soft_cm_of(event.id);
	assert_int_equal(pair[B]->local_port, KIT_PORT);
	assert_int_equal(pair[B]->peer_port, pair[A]->local_port);
	accept_in_turn(kit, pair[B], &event, qpn[B]);
	kit_pump(kit);
	kit_expect_none(kit, B);
	event = kit_expect(kit, A, SNT__CM_EVENT_RESPONSE);
	assert_int_equal(event.qpn, qpn[B]);
	assert_int_equal(event.data_length, SNT__CM_RESPONSE_DATA);
	assert_string_equal((char *)event.data, "response");
	assert_int_equal(event.responder_resources, 2);
	assert_int_equal(event.initiator_depth, 4);
	assert_int_equal(snt__soft_cm_establish(kit->cm[A], pair[A]), 0);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	check_attr(kit, pair, qpn);
	assert_int_equal(kit->frames, 3);

	/* There is nothing to wait for now. */
	assert_int_equal(snt__soft_cm_deadline(kit->cm[A]), SNT__SOFT_NEVER);
	assert_int_equal(snt__soft_cm_deadline(kit->cm[B]), SNT__SOFT_NEVER);

	assert_int_equal(snt__soft_cm_disconnect(kit->cm[B], pair[B]), 0);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[B], pair[B]), 0);
	kit_pump(kit);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED).id,
			 &pair[A]->handle.id);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[A], pair[A]), 0);
	kit_pump(kit);
	assert_int_equal(kit->frames, 5);
	snt__soft_cm_release(kit->cm[A], pair[A]);
	snt__soft_cm_release(kit->cm[B], pair[B]);
	assert_int_equal(kit->cm[A]->live, 0);
	kit_expect_empty(kit);
	assert_int_equal(kit->frames, 5);
	kit_close(kit);
}

static void over_ipv4(void **state)
{
	(void)state;
	connect_and_disconnect(false);
}

static void over_ipv6(void **state)
{
	(void)state;
	connect_and_disconnect(true);
}

/* A REQ is what the kernel would send, but for numbers. */
static void req_is_complete(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *connection = kit_connect(kit, 77);
	const struct snt__cm_req *req;

	(void)state;
	kit_pump(kit);
	req = &kit_seen(kit, A, SNT__CM_REQ)->req;
	assert_int_equal(req->service, snt__cm_service(KIT_PORT));
	assert_int_equal(req->guid, 0x1000);
	assert_int_equal(req->qpn, 77);
	assert_int_equal(req->psn, connection->local_psn);
	assert_int_equal(req->pkey, 0xffff);
	assert_int_equal(req->mtu, IBV_MTU_4096);
	assert_int_equal(req->hop_limit, 64);
	assert_int_equal(req->responder_resources, 3);
	assert_int_equal(req->initiator_depth, 5);
	assert_int_equal(req->retry_count, 6);
	assert_int_equal(req->rnr_retry_count, 4);
	assert_int_equal(req->retries_max, 15);
	assert_int_not_equal(req->flow_label, 0);
	assert_memory_equal(req->local_gid, kit_gid[0][A], 16);
	assert_memory_equal(req->remote_gid, kit_gid[0][B], 16);
	kit_close(kit);
}

/*
 * Faults: each message in turn is lost, comes twice, or comes late
 */

static enum kit_fate fate;

static enum kit_fate chosen_one(struct kit *kit, const struct kit_frame *frame)
{
	return frame->index == kit->chosen ? fate : KIT_PASS;
}

/* What a program does, at both ends, with whatever comes. */
struct program {
	struct snt__soft_cm_connection *pair[ENDS];
	unsigned events[ENDS][8];
};

static void on_event(struct kit *kit, struct program *program, unsigned end,
		     const struct snt__cm_event *event)
{
	program->events[end][event->type]++;
	if (event->type == SNT__CM_EVENT_REQUEST) {
		assert_null(program->pair[B]);
		program->pair[B] = snt__soft_cm_of(event->id);
		kit_accept(kit, program->pair[B], 20);
	} else if (event->type == SNT__CM_EVENT_RESPONSE) {
		assert_int_equal(snt__soft_cm_establish(kit->cm[A], program->pair[A]),
				 0);
	}
}

static void serve(struct kit *kit, struct program *program)
{
	struct snt__cm_event event;

	for (unsigned end = 0; end < ENDS; end++)
		while (!snt__soft_cm_next_event(&kit->channel[end], &event))
			on_event(kit, program, end, &event);
}

static void run_program(struct kit *kit, struct program *program, uint64_t ns)
{
	uint64_t until = kit->now + ns;

	while (kit->now < until) {
		kit_run_for(kit, 1000000);
		serve(kit, program);
	}
}

/* Returns how many messages there were. */
static unsigned whole_life(enum kit_fate what, unsigned index, unsigned closer)
{
	struct kit *kit = kit_open(NULL, false);
	struct program program = { 0 };
	unsigned frames;

	fate = what;
	kit->chosen = index;
	kit->fate = chosen_one;
	program.pair[A] = kit_connect(kit, 10);
	run_program(kit, &program, SECOND);
	assert_int_equal(program.pair[A]->state, SNT__SOFT_CM_ESTABLISHED);
	assert_non_null(program.pair[B]);
	assert_int_equal(program.pair[B]->state, SNT__SOFT_CM_ESTABLISHED);
	for (unsigned end = 0; end < ENDS; end++)
		if (closer == end || closer == ENDS)
			assert_int_equal(snt__soft_cm_disconnect(kit->cm[end],
								 program.pair[end]),
					 0);
	run_program(kit, &program, SECOND);
	for (unsigned end = 0; end < ENDS; end++) {
		assert_int_equal(program.events[end][SNT__CM_EVENT_DISCONNECTED], 1);
		assert_int_equal(program.events[end][SNT__CM_EVENT_FAILED], 0);
		assert_int_equal(program.events[end][SNT__CM_EVENT_REJECTED], 0);
		snt__soft_cm_release(kit->cm[end], program.pair[end]);
	}
	assert_int_equal(program.events[B][SNT__CM_EVENT_REQUEST], 1);
	assert_int_equal(program.events[B][SNT__CM_EVENT_ESTABLISHED], 1);
	assert_int_equal(program.events[A][SNT__CM_EVENT_RESPONSE], 1);
	kit_expect_empty(kit);
	frames = kit->frames;
	kit_close(kit);
	return frames;
}

static void each_in_turn(enum kit_fate what)
{
	unsigned count = whole_life(KIT_PASS, 0, A);

	assert_int_equal(count, 5);
	for (unsigned closer = 0; closer <= ENDS; closer++)
		for (unsigned i = 0; i < count + 3; i++)
			whole_life(what, i, closer);
}

static void each_is_lost(void **state)
{
	(void)state;
	each_in_turn(KIT_DROP);
	/* One that is lost comes again. */
	assert_int_equal(whole_life(KIT_DROP, 0, A), 6);
}

static void each_comes_twice(void **state)
{
	(void)state;
	each_in_turn(KIT_TWICE);
}

static void each_comes_late(void **state)
{
	(void)state;
	each_in_turn(KIT_LATE);
}

/* Every second message is lost, of either end, from the first or from the second on. */
static enum kit_fate odd_ones(struct kit *kit, const struct kit_frame *frame)
{
	unsigned nth = kit->sent[!frame->to][frame->message.kind - SNT__CM_REQ];

	return nth % 3 == 1 + kit->chosen ? KIT_PASS : KIT_DROP;
}

static void two_of_three_are_lost(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct kit *kit = kit_open(NULL, false);
		struct program program = { 0 };

		kit->fate = odd_ones;
		kit->chosen = i;
		program.pair[A] = kit_connect(kit, 10);
		run_program(kit, &program, 5 * SECOND);
		assert_int_equal(program.pair[A]->state, SNT__SOFT_CM_ESTABLISHED);
		assert_int_equal(program.pair[B]->state, SNT__SOFT_CM_ESTABLISHED);
		kit_close(kit);
	}
}

static enum kit_fate drop_all_from_b(struct kit *kit, const struct kit_frame *frame)
{
	(void)kit;
	return frame->to == A ? KIT_DROP : KIT_PASS;
}

/* A request sent again is answered again, at once and not only in time. */
static void asked_again(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	for (unsigned i = 0; i < 3; i++) {
		snt__soft_cm_send(kit->cm[A], a, SNT__CM_REQ);
		kit_pump(kit);
		assert_int_equal(kit_sent(kit, B, SNT__CM_MRA), i + 1);
	}
	kit->fate = drop_all_from_b;
	kit_accept(kit, b, 20);
	kit_pump(kit);
	for (unsigned i = 0; i < 3; i++) {
		snt__soft_cm_send(kit->cm[A], a, SNT__CM_REQ);
		kit_pump(kit);
		assert_int_equal(kit_sent(kit, B, SNT__CM_REP), i + 2);
	}
	kit->fate = NULL;
	snt__soft_cm_send(kit->cm[A], a, SNT__CM_REQ);
	kit_pump(kit);
	kit_establish(kit, a);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < 3; i++) {
		snt__soft_cm_send(kit->cm[B], b, SNT__CM_REP);
		kit_pump(kit);
		assert_int_equal(kit_sent(kit, A, SNT__CM_RTU), i + 2);
	}
	assert_int_equal(kit->now, 0);
	kit_close(kit);
}

/*
 * Of the peer's first packet
 */

static enum kit_fate drop_kind(struct kit *kit, const struct kit_frame *frame)
{
	return frame->message.kind == kit->chosen_kind && frame->to != kit->chosen_from
		       ? KIT_DROP
		       : KIT_PASS;
}

/* All RTUs are lost, but data has come: so it is established. */
static void data_instead_of_rtu(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a, *b;

	(void)state;
	kit->fate = drop_kind;
	kit->chosen_kind = SNT__CM_RTU;
	kit->chosen_from = A;
	a = kit_connect(kit, 10);
	kit_pump(kit);
	b = kit_request(kit);
	snt__soft_cm_notify(kit->cm[B], b); /* of no meaning yet */
	assert_int_equal(b->state, SNT__SOFT_CM_REQ_RECEIVED);
	kit_accept(kit, b, 20);
	kit_pump(kit);
	kit_establish(kit, a);
	kit_run_for(kit, SECOND / 10);
	kit_expect_none(kit, B);
	assert_true(kit_sent(kit, B, SNT__CM_REP) > 1);
	snt__soft_cm_notify(kit->cm[B], b);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	snt__soft_cm_notify(kit->cm[B], b);
	kit->fate = NULL;
	kit_run_for(kit, 10 * SECOND);
	kit_expect_none(kit, B);
	assert_int_equal(b->state, SNT__SOFT_CM_ESTABLISHED);
	kit_close(kit);
}

/*
 * Slow programs
 */

/* The listening end takes a minute: the other is told, and waits. */
static void slow_to_accept(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_run_for(kit, 20 * SECOND);
	b = kit_request(kit);
	kit_run_for(kit, 30 * SECOND);
	kit_expect_none(kit, A);
	assert_in_range(kit_sent(kit, B, SNT__CM_MRA), 8, 15);
	assert_int_equal(kit_seen(kit, B, SNT__CM_MRA)->mra.about, SNT__CM_ABOUT_REQ);
	kit_accept(kit, b, 20);
	kit_pump(kit);
	kit_establish(kit, a);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	kit_close(kit);
}

static void slow_to_establish(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10);

	(void)state;
	kit_pump(kit);
	kit_accept(kit, kit_request(kit), 20);
	kit_run_for(kit, 50 * SECOND);
	kit_expect_none(kit, B);
	assert_in_range(kit_sent(kit, A, SNT__CM_MRA), 8, 15);
	assert_int_equal(kit_seen(kit, A, SNT__CM_MRA)->mra.about, SNT__CM_ABOUT_REP);
	kit_establish(kit, a);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	kit_close(kit);
}

/* No end waits for ever. */
static void too_slow(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	kit_run_for(kit, 61 * SECOND);
	assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_FAILED).status, -ETIMEDOUT);
	/* The other side has heard of it. */
	assert_int_equal(kit_expect(kit, B, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_TIMEOUT);
	snt__soft_cm_release(kit->cm[A], a);
	snt__soft_cm_release(kit->cm[B], b);
	kit_expect_empty(kit);
	kit_close(kit);
}

/*
 * Many at once
 */

static void many(void **state)
{
	struct snt__soft_cm_config config = { .connection_max = 300 };
	struct kit *kit = kit_open(&config, false);
	struct snt__soft_cm_connection *a[300], *b[300];

	(void)state;
	kit->listener->backlog = 300;
	for (unsigned i = 0; i < 300; i++)
		a[i] = kit_connect(kit, 1000 + i);
	kit_pump(kit);
	assert_int_equal(kit->rung[B], 1);
	for (unsigned i = 0; i < 300; i++) {
		b[i] = kit_request(kit);
		kit_accept(kit, b[i], 2000 + b[i]->remote_qpn);
	}
	kit_pump(kit);
	for (unsigned i = 0; i < 300; i++) {
		struct snt__cm_event event = kit_expect(kit, A, SNT__CM_EVENT_RESPONSE);

		assert_int_equal(snt__soft_cm_of(event.id)->local_qpn + 2000,
				 event.qpn);
		snt__soft_cm_establish(kit->cm[A], snt__soft_cm_of(event.id));
	}
	kit_pump(kit);
	for (unsigned i = 0; i < 300; i++)
		kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < 300; i++) {
		snt__soft_cm_release(kit->cm[A], a[i]);
		snt__soft_cm_release(kit->cm[B], b[i]);
	}
	kit_expect_empty(kit);
	kit_close(kit);
}

/* A number is not used again as long as anybody might remember it. */
static void numbers_are_fresh(void **state)
{
	struct snt__soft_cm_config config = { .connection_max = 2, .linger_max = 30 };
	struct kit *kit = kit_open(&config, false);
	uint32_t ids[2][500];

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		struct snt__soft_cm_connection *pair[ENDS];

		kit_connected(kit, pair);
		for (unsigned end = 0; end < ENDS; end++) {
			ids[end][i] = pair[end]->local_id;
			for (unsigned k = i > 30 ? i - 30 : 0; k < i; k++)
				assert_int_not_equal(ids[end][k], ids[end][i]);
		}
		snt__soft_cm_release(kit->cm[i & 1], pair[i & 1]);
		kit_pump(kit);
		kit_expect(kit, !(i & 1), SNT__CM_EVENT_DISCONNECTED);
		snt__soft_cm_release(kit->cm[!(i & 1)], pair[!(i & 1)]);
	}
	kit_expect_empty(kit);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_ipv4),
		cmocka_unit_test(over_ipv6),
		cmocka_unit_test(req_is_complete),
		cmocka_unit_test(each_is_lost),
		cmocka_unit_test(each_comes_twice),
		cmocka_unit_test(each_comes_late),
		cmocka_unit_test(two_of_three_are_lost),
		cmocka_unit_test(asked_again),
		cmocka_unit_test(data_instead_of_rtu),
		cmocka_unit_test(slow_to_accept),
		cmocka_unit_test(slow_to_establish),
		cmocka_unit_test(too_slow),
		cmocka_unit_test(many),
		cmocka_unit_test(numbers_are_fresh),
	};

	return cmocka_run_group_tests_name("cm", tests, NULL, NULL);
}
