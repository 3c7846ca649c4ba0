/* SPDX-License-Identifier: MIT */
/* Messages that do not belong: of strangers, of before, or made up. */
#include "lib/test.h"
#include "lib/cm_kit.h"

#include "lib/cm_check.h"
#include "lib/seeds.h"

#define SECOND UINT64_C(1000000000)

/* A REQ of A's as it should be, with data that begins with rdma_cm's header. */
static struct snt__cm_message good_req(uint8_t data[SNT__CM_REQ_PRIVATE])
{
	struct snt__cm_message message = {
		.kind = SNT__CM_REQ,
		.transaction = 1,
		.local_id = 0x1234,
		.req = { .service = snt__cm_service(KIT_PORT),
			 .qpn = 500,
			 .pkey = 0xffff,
			 .mtu = IBV_MTU_1024,
			 .ack_timeout = 14,
			 .hop_limit = 64 },
		.data = data,
		.data_length = SNT__CM_REQ_PRIVATE,
	};
	struct snt__cm_addresses addresses = { .port = 50000 };

	memcpy(addresses.source, kit_gid[0][A], 16);
	memcpy(addresses.target, kit_gid[0][B], 16);
	memcpy(message.req.local_gid, kit_gid[0][A], 16);
	memcpy(message.req.remote_gid, kit_gid[0][B], 16);
	memset(data, 0, SNT__CM_REQ_PRIVATE);
	snt__cm_addresses_encode(&addresses, data);
	return message;
}

/* Whatever an end has to say is lost. */
static void swallow(struct kit *kit, unsigned end)
{
	struct snt__soft_path path;
	uint8_t mad[SNT__CM_MAD_SIZE];

	while (snt__soft_cm_output(kit->cm[end], &path, mad, kit->now))
		;
}

/* What B says to it; 0: nothing, it is a request. */
static unsigned verdict(struct kit *kit, const struct snt__cm_message *message)
{
	struct snt__soft_path path;
	uint8_t mad[SNT__CM_MAD_SIZE];
	struct snt__cm_message answer;

	kit_inject(kit, B, NULL, message);
	if (!snt__soft_cm_output(kit->cm[B], &path, mad, kit->now)) {
		snt__soft_cm_release(kit->cm[B], kit_request(kit));
		swallow(kit, B);
		kit_run_for(kit, 100 * SECOND);
		return 0;
	}
	kit_expect_none(kit, B);
	assert_int_equal(snt__cm_decode(mad, &answer), 0);
	assert_int_equal(answer.kind, SNT__CM_REJ);
	assert_int_equal(answer.rej.about, SNT__CM_ABOUT_REQ);
	assert_int_equal(answer.transaction, message->transaction);
	assert_int_equal(answer.remote_id, message->local_id);
	assert_int_equal(answer.local_id, 0);
	assert_false(snt__soft_cm_output(kit->cm[B], &path, mad, kit->now));
	return answer.rej.reason;
}

static void false_requests(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	uint8_t data[SNT__CM_REQ_PRIVATE];
	struct snt__cm_message message = good_req(data);

	(void)state;
	kit->cm[B]->config.mtu = IBV_MTU_2048;
	assert_int_equal(verdict(kit, &message), 0);
	message.local_id = 0;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_UNKNOWN_ID);
	message = good_req(data);
	message.req.transport = 1;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_TRANSPORT);
	message = good_req(data);
	message.req.service++;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_NOBODY_LISTENS);
	message = good_req(data);
	message.req.service = 0x01110000 | KIT_PORT; /* RDMA_PS_UDP */
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_NOBODY_LISTENS);
	message = good_req(data);
	message.req.pkey = 0x8001;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_UNSUPPORTED);
	message = good_req(data);
	data[0] = 1;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_UNSUPPORTED);
	for (unsigned i = 4 + 15; i < SNT__CM_ADDRESSES_SIZE; i += 16) {
		message = good_req(data);
		data[i]++;
		assert_int_equal(verdict(kit, &message), SNT__CM_REASON_GID);
	}
	message = good_req(data);
	message.req.local_gid[15]++;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_GID);
	message = good_req(data);
	message.req.remote_gid[15]++;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_GID);
	message = good_req(data);
	message.req.qpn = 1;
	assert_int_equal(verdict(kit, &message), SNT__CM_REASON_NO_QP);
	for (unsigned mtu = 0; mtu < 16; mtu++) {
		message = good_req(data);
		message.req.mtu = (uint8_t)mtu;
		assert_int_equal(verdict(kit, &message),
				 mtu && mtu <= IBV_MTU_2048 ? 0 : SNT__CM_REASON_MTU);
	}
	kit_expect_empty(kit);
	kit_close(kit);
}

/* A timeout of 0 would be for ever, and more READs than there are resources. */
static void greedy_request(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	uint8_t data[SNT__CM_REQ_PRIVATE];
	struct snt__cm_message message = good_req(data);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct snt__soft_cm_connection *connection;
	int mask;

	(void)state;
	message.req.ack_timeout = 0;
	message.req.initiator_depth = 200;
	message.req.responder_resources = 200;
	kit_inject(kit, B, NULL, &message);
	connection = kit_request(kit);
	assert_int_equal(snt__soft_cm_qp_attr(kit->cm[B], connection, &attr, &mask), 0);
	assert_int_equal(attr.timeout, 16);
	assert_int_equal(attr.max_rd_atomic, 16);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(snt__soft_cm_qp_attr(kit->cm[B], connection, &attr, &mask), 0);
	assert_int_equal(attr.max_dest_rd_atomic, 16);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(snt__soft_cm_qp_attr(kit->cm[B], connection, &attr, &mask),
			 -EINVAL);
	kit_close(kit);
}

/*
 * About connections that are not there
 */

static void unknown_ids(void **state)
{
	struct kit *kit = kit_open(NULL, false);

	(void)state;
	for (unsigned kind = SNT__CM_MRA; kind <= SNT__CM_DREP; kind++) {
		struct snt__cm_message message = { .kind = kind,
						   .transaction = 42,
						   .local_id = 0x111,
						   .remote_id = 0x222 };
		unsigned frames = kit->frames;

		for (unsigned i = 0; i < 3; i++) {
			message.remote_id = i * 0x222222;
			kit_inject(kit, B, NULL, &message);
		}
		/* Answers are for those who wait for one. */
		kit->fate = NULL;
		kit_pump(kit);
		if (kind == SNT__CM_DREQ) {
			assert_int_equal(kit->frames, frames + 3);
			assert_int_equal(kit_sent(kit, B, SNT__CM_DREP), 3);
			assert_int_equal(kit_seen(kit, B, SNT__CM_DREP)->remote_id,
					 0x111);
			assert_int_equal(kit_seen(kit, B, SNT__CM_DREP)->local_id,
					 0x444444);
		} else if (kind == SNT__CM_REP) {
			assert_int_equal(kit->frames, frames + 3);
			assert_int_equal(kit_sent(kit, B, SNT__CM_REJ), 3);
			assert_int_equal(kit_seen(kit, B, SNT__CM_REJ)->rej.reason,
					 SNT__CM_REASON_UNKNOWN_ID);
			assert_int_equal(kit_seen(kit, B, SNT__CM_REJ)->rej.about,
					 SNT__CM_ABOUT_REP);
		} else {
			assert_int_equal(kit->frames, frames);
		}
	}
	kit_expect_empty(kit);
	kit_close(kit);
}

/* There is room for a few answers; those who get none ask again. */
static void flood_of_strangers(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__cm_message message = { .kind = SNT__CM_DREQ, .local_id = 1 };

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		kit_inject(kit, B, NULL, &message);
	kit_pump(kit);
	assert_int_equal(kit_sent(kit, B, SNT__CM_DREP), SNT__SOFT_CM_NOTES);
	kit_close(kit);
}

static void garbage(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_path path = { .hop_limit = 1 };
	uint64_t random = 5;

	(void)state;
	for (unsigned i = 0; i < 10000; i++) {
		uint8_t mad[SNT__CM_MAD_SIZE];

		for (unsigned k = 0; k < sizeof(mad); k++)
			mad[k] = (uint8_t)random_next(&random);
		if (i & 1)
			memcpy(mad, "\1\7\2\3", 4);
		if (i & 2)
			memset(mad + 16, 0, 8);
		mad[17] = i & 2 ? 0x10 + i % 7 : mad[17];
		snt__soft_cm_input(kit->cm[B], &path, mad, kit->now);
		while (snt__soft_cm_output(kit->cm[B], &path, mad, kit->now))
			;
	}
	assert_null(cm_check(kit->cm[B]));
	kit_expect_none(kit, B);
	assert_int_equal(kit->cm[B]->stats.received, 10000);
	assert_true(kit->cm[B]->stats.malformed > 5000);
	kit_close(kit);
}

/*
 * About those that are, but from another address
 */

/* Every kind of message with one thing wrong, to both ends of a connection. */
static struct snt__cm_message about(const struct snt__soft_cm_connection *to,
				    enum snt__cm_kind kind)
{
	struct snt__cm_message message = {
		.kind = kind,
		.transaction = to->transaction,
		.local_id = to->remote_id,
		.remote_id = to->local_id,
	};

	if (kind == SNT__CM_DREQ)
		message.dreq.qpn = to->local_qpn;
	if (kind == SNT__CM_REP)
		message.rep.qpn = to->remote_qpn;
	if (kind == SNT__CM_REJ)
		message.rej.reason = SNT__CM_REASON_TIMEOUT;
	return message;
}

static void not_from_the_peer(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS];

	(void)state;
	kit_connected(kit, pair);
	for (unsigned end = 0; end < ENDS; end++) {
		struct snt__soft_path path = { .hop_limit = 64 };

		memcpy(path.source, kit_gid[0][!end], 16);
		memcpy(path.target, kit_gid[0][end], 16);
		for (unsigned kind = SNT__CM_MRA; kind <= SNT__CM_DREP; kind++) {
			struct snt__cm_message message = about(pair[end], kind);

			path.source[15] += 5;
			kit_inject(kit, end, &path, &message);
			path.source[15] -= 5;
			path.target[15] += 5;
			kit_inject(kit, end, &path, &message);
			path.target[15] -= 5;
			message.local_id ^= 1 << 30;
			kit_inject(kit, end, &path, &message);
			message.local_id ^= 1 << 30;
			message.remote_id ^= 1 << 30;
			kit_inject(kit, end, &path, &message);
			message.remote_id = 0;
			kit_inject(kit, end, &path, &message);
			if (kind == SNT__CM_DREQ) {
				message = about(pair[end], kind);
				message.dreq.qpn++;
				kit_inject(kit, end, &path, &message);
			}
			kit_expect_none(kit, end);
			assert_int_equal(pair[end]->state, SNT__SOFT_CM_ESTABLISHED);
		}
	}
	kit_close(kit);
}

/* The same, in the phase in which a message could do harm. */
static void not_the_answer(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;
	struct snt__soft_path path = { .hop_limit = 64 };
	struct snt__cm_message message;

	(void)state;
	memcpy(path.source, kit_gid[1][B], 16);
	memcpy(path.target, kit_gid[0][A], 16);
	kit_pump(kit);
	message = about(a, SNT__CM_REP);
	message.local_id = 77;
	message.rep.qpn = 88;
	kit_inject(kit, A, &path, &message);
	message.rep.qpn = 1;
	kit_inject(kit, A, NULL, &message);
	message.rep.qpn = 88;
	message.local_id = 0;
	kit_inject(kit, A, NULL, &message);
	message = about(a, SNT__CM_REJ);
	kit_inject(kit, A, &path, &message);
	assert_int_equal(a->state, SNT__SOFT_CM_REQ_SENT);
	b = kit_request(kit);
	kit_accept(kit, b, 20);
	message = about(b, SNT__CM_RTU);
	kit_inject(kit, B, &path, &message);
	message.local_id++;
	kit_inject(kit, B, NULL, &message);
	assert_int_equal(b->state, SNT__SOFT_CM_REP_SENT);
	kit_close(kit);
}

/*
 * Of before
 */

/* A peer that starts anew has the same QP numbers, but knows nothing of us: what we
 * have with it is no more, and its next try is welcome. */
static void stale_connection(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS], *again, *b;
	uint32_t qpn;

	(void)state;
	kit_connected(kit, pair);
	qpn = pair[A]->local_qpn;
	again = kit_connect(kit, qpn);
	kit_pump(kit);
	assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_STALE);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED).id,
			 &pair[A]->handle.id);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	assert_int_equal(kit_sent(kit, B, SNT__CM_DREQ), 1);
	snt__soft_cm_release(kit->cm[A], again);
	snt__soft_cm_release(kit->cm[A], pair[A]);
	again = kit_connect(kit, qpn);
	kit_pump(kit);
	b = kit_request(kit);
	kit_accept(kit, b, 20);
	kit_pump(kit);
	kit_establish(kit, again);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	snt__soft_cm_release(kit->cm[A], again);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	snt__soft_cm_release(kit->cm[B], b);
	snt__soft_cm_release(kit->cm[B], pair[B]);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* The same with a request that has not been answered yet, or not taken. */
static void stale_request(void **state)
{
	(void)state;
	for (unsigned taken = 0; taken < 2; taken++) {
		struct kit *kit = kit_open(NULL, false);
		uint8_t data[SNT__CM_REQ_PRIVATE];
		struct snt__cm_message message = good_req(data);
		struct snt__soft_cm_connection *b = NULL;

		kit_inject(kit, B, NULL, &message);
		if (taken)
			b = kit_request(kit);
		message.local_id++;
		kit_inject(kit, B, NULL, &message);
		kit_pump(kit);
		assert_int_equal(kit_seen(kit, B, SNT__CM_REJ)->rej.reason,
				 SNT__CM_REASON_STALE);
		if (taken) {
			assert_int_equal(kit_expect(kit, B, SNT__CM_EVENT_REJECTED)
						 .reason,
					 SNT__CM_REASON_STALE);
			snt__soft_cm_release(kit->cm[B], b);
		}
		message.local_id++;
		kit_inject(kit, B, NULL, &message);
		kit_request(kit);
		kit_close(kit);
	}
}

/* And the other way round: the listening end has been started anew. */
static void stale_response(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS], *again;
	struct snt__cm_message rep;

	(void)state;
	kit_connected(kit, pair);
	again = kit_connect(kit, 3000);
	kit_pump(kit);
	rep = about(again, SNT__CM_REP);
	rep.local_id = 0x777;
	rep.rep.qpn = pair[A]->remote_qpn;
	kit_inject(kit, A, NULL, &rep);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED).id,
			 &pair[A]->handle.id);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_RESPONSE).id,
			 &again->handle.id);
	kit_close(kit);
}

/* An old REQ comes long after its connection: it is not a new one. */
static void old_request(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS];
	uint8_t data[SNT__CM_REQ_PRIVATE];
	struct snt__cm_message message = good_req(data);

	(void)state;
	kit_connected(kit, pair);
	message.local_id = pair[A]->local_id;
	kit_inject(kit, B, NULL, &message);
	kit_expect_none(kit, B);
	snt__soft_cm_release(kit->cm[A], pair[A]);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	snt__soft_cm_release(kit->cm[B], pair[B]);
	kit_run_for(kit, 11 * SECOND);
	kit_inject(kit, B, NULL, &message);
	kit_expect_none(kit, B);
	kit_pump(kit);
	assert_int_equal(kit_seen(kit, B, SNT__CM_REJ)->rej.reason,
			 SNT__CM_REASON_STALE);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* A refusal that was overtaken by an acceptance: one copy of the REQ found no room, the
 * next did. */
static void late_refusal(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10);
	struct snt__cm_message rej;

	(void)state;
	kit_pump(kit);
	kit_accept(kit, kit_request(kit), 20);
	kit_pump(kit);
	rej = about(a, SNT__CM_REJ);
	rej.local_id = 0;
	rej.rej.reason = SNT__CM_REASON_NO_RESOURCES;
	kit_inject(kit, A, NULL, &rej);
	kit_establish(kit, a);
	kit_inject(kit, A, NULL, &rej);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	kit_expect_none(kit, A);
	assert_int_equal(a->state, SNT__SOFT_CM_ESTABLISHED);
	kit_close(kit);
}

/* Two that answer one REQ, because the listening end has been started anew in between:
 * the first has it. */
static void two_responses(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10);
	struct snt__cm_message rep;

	(void)state;
	kit_pump(kit);
	kit_accept(kit, kit_request(kit), 20);
	kit_pump(kit);
	rep = about(a, SNT__CM_REP);
	rep.local_id++;
	rep.rep.qpn++;
	kit_inject(kit, A, NULL, &rep);
	kit_pump(kit);
	assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->rej.reason,
			 SNT__CM_REASON_UNKNOWN_ID);
	assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->remote_id, rep.local_id);
	kit_establish(kit, a);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	kit_close(kit);
}

/* A peer that asks again and again does not keep a connection that it never
 * completes. */
static void asks_for_ever(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	uint8_t data[SNT__CM_REQ_PRIVATE];
	struct snt__cm_message message = good_req(data);
	struct snt__cm_event event;
	struct snt__soft_cm_connection *b;

	(void)state;
	kit_inject(kit, B, NULL, &message);
	b = kit_request(kit);
	kit_accept(kit, b, 20);
	while (snt__soft_cm_next_event(&kit->channel[B], &event)) {
		kit_inject(kit, B, NULL, &message);
		snt__soft_cm_timer(kit->cm[B], kit->now);
		swallow(kit, B);
		kit->now += SECOND / 100;
		assert_true(kit->now <= snt__soft_cm_patience_ns(kit->cm[B]) + SECOND);
	}
	assert_int_equal(event.type, SNT__CM_EVENT_FAILED);
	kit_close(kit);
}

/* A peer that asks for a year gets a minute. */
static void endless_mra(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10);
	struct snt__cm_message mra;

	(void)state;
	kit_pump(kit);
	for (unsigned i = 0; i < 10; i++) {
		mra = about(a, SNT__CM_MRA);
		mra.local_id = 5;
		mra.mra.timeout = 31;
		kit_inject(kit, A, NULL, &mra);
		mra.mra.about = SNT__CM_ABOUT_REP;
		kit_inject(kit, A, NULL, &mra);
		kit_run_for(kit, 5 * SECOND);
		kit_expect_none(kit, A);
	}
	assert_int_equal(kit_sent(kit, A, SNT__CM_REQ), 1);
	kit_run_for(kit, 11 * SECOND);
	kit_expect(kit, A, SNT__CM_EVENT_FAILED);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(false_requests), cmocka_unit_test(greedy_request),
		cmocka_unit_test(unknown_ids),	  cmocka_unit_test(flood_of_strangers),
		cmocka_unit_test(garbage),	  cmocka_unit_test(not_from_the_peer),
		cmocka_unit_test(not_the_answer), cmocka_unit_test(stale_connection),
		cmocka_unit_test(stale_request),  cmocka_unit_test(stale_response),
		cmocka_unit_test(old_request),	  cmocka_unit_test(late_refusal),
		cmocka_unit_test(two_responses),  cmocka_unit_test(asks_for_ever),
		cmocka_unit_test(endless_mra),
	};

	return cmocka_run_group_tests_name("cm_hostile", tests, NULL, NULL);
}
