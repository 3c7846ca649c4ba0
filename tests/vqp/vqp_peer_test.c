/* SPDX-License-Identifier: MIT */
/* Peers that come with fewer lanes, late cards, other links, or that lose one lane. */
#include "lib/vqp_kit.h"

#include <sennit/card.h>

/* End 0 has 2 data lanes, end 1 has 4. */
static struct vqp_pair *make_unlike(enum snt_scheme scheme)
{
	struct snt_qp_opts many = { .size = sizeof(many),
				    .lanes = 4,
				    .scheme = scheme,
				    .lane_depth = 8,
				    .fragment_size = FRAGMENT };
	struct snt_qp_opts few = many;

	few.lanes = 2;
	return vqp_pair_make((const unsigned[]){ 1, 1 },
			     (const struct snt_qp_opts *const[]){ &few, &many });
}

/* As bytes on the wire: cards in memory have padding. */
static void expect_same_card(const struct snt_card *a, const struct snt_card *b)
{
	uint8_t packed[2][SNT_CARD_PACKED_MAX];
	ssize_t length = snt_card_pack(a, packed[0], sizeof(packed[0]));

	assert_true(length > 0);
	assert_int_equal(snt_card_pack(b, packed[1], sizeof(packed[1])), length);
	assert_memory_equal(packed[0], packed[1], (size_t)length);
}

/* A server connects to the client's card first, and answers with its own then. */
static void a_server_answers_after_connecting(void **state)
{
	const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(schemes); i++) {
		struct vqp_pair *pair = make_unlike(schemes[i]);
		struct snt_card client, before, after;

		assert_success(snt_qp_card(pair->end[0].qp, &client));
		assert_success(snt_qp_card(pair->end[1].qp, &before));
		assert_success(snt_qp_connect(pair->end[1].qp, &client));
		assert_success(snt_qp_card(pair->end[1].qp, &after));
		expect_same_card(&after, &before);
		assert_success(snt_qp_connect(pair->end[0].qp, &after));
		post_notify(pair, 1, 8);
		post_data(pair, 1, 9, 0, FRAGMENT);
		send_wr(pair, SNT_OP_WRITE_IMM, 1, 3);
		send_wr(pair, SNT_OP_SEND, 2, 1);
		expect(pair, 1, 8, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		expect(pair, 1, 9, SNT_OP_RECV, SNT_WC_SUCCESS);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		expect(pair, 0, 2, SNT_OP_SEND, SNT_WC_SUCCESS);
		vqp_pair_close(pair);
	}
}

static void cards_as_bytes(void **state)
{
	struct vqp_pair *pair = make_unlike(SNT_SCHEME_SPRAY);
	uint8_t card[SNT_CARD_PACKED_MAX];

	(void)state;
	assert_error(snt_qp_card_pack(pair->end[0].qp, card, 8), ENOSPC, "");
	for (unsigned i = 0; i < 2; i++) {
		struct snt_qp *qp = pair->end[i].qp;
		ssize_t length = snt_qp_card_pack(pair->end[!i].qp, card, sizeof(card));

		assert_true(length > 0);
		assert_error(snt_qp_connect_packed(qp, card, (size_t)length - 1),
			     EBADMSG, "");
		assert_success(snt_qp_connect_packed(qp, card, (size_t)length));
		assert_error(snt_qp_connect_packed(qp, card, (size_t)length), EISCONN,
			     "");
	}
	post_notify(pair, 1, 8);
	send_wr(pair, SNT_OP_WRITE_IMM, 1, 3);
	expect(pair, 1, 8, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void to_error(struct vqp_pair *pair, unsigned end, unsigned lane)
{
	struct snt_lane_info info = lane_info(pair, end, lane);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	assert_success(scripted_adopted(pair->end[end].device[info.device])
			       .control->modify_qp(info.qp, &attr, IBV_QP_STATE));
}

/* Of two notify lanes, which only together tell of anything. */
static void one_notify_lane_takes_the_class_with_it(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_recv_wr recv = { .wr_id = 9 };

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		post_notify(pair, 1, 5 + i);
	send_wr(pair, SNT_OP_WRITE_IMM, 1, 1);
	expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	to_error(pair, 1, 3);
	/* What had come before is not lost. */
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	for (unsigned i = 1; i < 4; i++)
		expect(pair, 1, 5 + i, SNT_OP_RECV_NOTIFY, SNT_WC_FLUSHED);
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), -ESHUTDOWN);
	/* The rest goes on. */
	post_data(pair, 1, 10, 0, FRAGMENT);
	send_wr(pair, SNT_OP_WRITE, 2, 4);
	send_wr(pair, SNT_OP_SEND, 3, 1);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect(pair, 0, 3, SNT_OP_SEND, SNT_WC_SUCCESS);
	expect(pair, 1, 10, SNT_OP_RECV, SNT_WC_SUCCESS);
	send_wr(pair, SNT_OP_WRITE_IMM, 4, 1);
	assert_int_not_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* Connects end 0 to a card of end 1 that was changed. */
static int connect_to(struct vqp_pair *pair, const struct snt_card *card)
{
	return snt_qp_connect(pair->end[0].qp, card);
}

static void links_and_addresses_must_be_alike(void **state)
{
	struct vqp_pair *pair = make_unlike(SNT_SCHEME_SPRAY);
	struct snt_card good, card;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &good));
	card = good;
	card.device[0].link = SNT_LINK_INFINIBAND;
	card.device[0].gid_type = SNT_GID_IB;
	card.device[0].lid = 5;
	assert_error(connect_to(pair, &card), EINVAL,
		     "scripted0 is on Ethernet, and the peer's device 0 on InfiniBand");
	card = good;
	card.device[0].gid_type = SNT_GID_ROCE_V1;
	assert_error(connect_to(pair, &card), EINVAL,
		     "scripted0 has a RoCE v2 address, and the peer's device 0 one of "
		     "RoCE v1");
	/* A device that no lane is on does not matter. */
	card = good;
	card.device[card.device_count] = card.device[0];
	card.device[card.device_count++].gid_type = SNT_GID_ROCE_V1;
	assert_success(connect_to(pair, &card));
	assert_success(snt_qp_card(pair->end[0].qp, &card));
	assert_success(snt_qp_connect(pair->end[1].qp, &card));
	vqp_pair_close(pair);
}

/* Then every READ would fail, and take its lane with it. */
static void a_peer_answers_at_least_one_read(void **state)
{
	struct vqp_pair *pair = make_unlike(SNT_SCHEME_SPRAY);
	struct snt_card card;
	char packed[SNT_CARD_PACKED_MAX];

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card));
	card.read_depth = 0;
	assert_error(snt_card_pack(&card, packed, sizeof(packed)), EINVAL,
		     "read_depth is 0, not 1 to 255");
	assert_error(connect_to(pair, &card), EINVAL, "read_depth is 0");
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_answers_after_connecting),
		cmocka_unit_test(cards_as_bytes),
		cmocka_unit_test(one_notify_lane_takes_the_class_with_it),
		cmocka_unit_test(links_and_addresses_must_be_alike),
		cmocka_unit_test(a_peer_answers_at_least_one_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
