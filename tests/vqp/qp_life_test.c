/* SPDX-License-Identifier: MIT */
/* Reset, modify, query, and ends that are not alike. */
#include "lib/vqp_kit.h"

static struct snt_qp_info query(struct vqp_pair *pair, unsigned end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(pair->end[end].qp, &info));
	return info;
}

/* A message of several fragments in both directions, and SENDs. */
static void talk(struct vqp_pair *pair)
{
	for (unsigned from = 0; from < 2; from++) {
		struct vqp_end *here = &pair->end[from], *there = &pair->end[!from];
		uint64_t length = 5 * FRAGMENT + 100, offset = 64 * FRAGMENT * from;
		struct snt_sge sge;
		struct snt_send_wr wr =
			vqp_wr(pair, from, &sge, SNT_OP_WRITE_IMM, offset, length);

		for (uint64_t i = 0; i < length; i++)
			here->buffer[offset + i] = (unsigned char)(i * 3 + from);
		post_notify(pair, !from, 21);
		post_data(pair, !from, 22, offset + 32 * FRAGMENT, 64);
		wr.wr_id = 11;
		wr.imm = 4711;
		assert_int_equal(snt_qp_post_send(here->qp, &wr, 1), 1);
		wr = vqp_wr(pair, from, &sge, SNT_OP_SEND, offset, 64);
		wr.wr_id = 12;
		assert_int_equal(snt_qp_post_send(here->qp, &wr, 1), 1);
		expect(pair, from, 11, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		expect(pair, from, 12, SNT_OP_SEND, SNT_WC_SUCCESS);
		assert_int_equal(expect(pair, !from, 21, SNT_OP_RECV_NOTIFY,
					SNT_WC_SUCCESS)
					 .imm,
				 4711);
		expect(pair, !from, 22, SNT_OP_RECV, SNT_WC_SUCCESS);
		assert_memory_equal(there->buffer + offset, here->buffer + offset,
				    length);
		assert_memory_equal(there->buffer + offset + 32 * FRAGMENT,
				    here->buffer + offset, 64);
		memset(there->buffer + offset, 0, length);
	}
}

static void close_both(struct vqp_pair *pair)
{
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_qp_close(pair->end[end].qp, 7));
		assert_int_equal(query(pair, end).state, SNT_QP_CLOSING);
		while (vqp_poll(pair, end).opcode != SNT_OP_CLOSED)
			;
		assert_int_equal(query(pair, end).state, SNT_QP_CLOSED);
	}
}

static void a_closed_qp_lives_again(void **state)
{
	const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_pair *pair = open_pair(2, 4, schemes[i]);
		struct ibv_qp *lane = lane_qp(pair, 0, 3);
		uint64_t generation = query(pair, 0).generation;
		struct snt_card card;

		for (unsigned life = 0; life < 3; life++) {
			talk(pair);
			assert_error(snt_qp_reset(pair->end[0].qp), EBUSY, "close it");
			/* Something is left in every queue. */
			post_notify(pair, 0, 1);
			post_data(pair, 1, 1, 0, 64);
			send_wr(pair, SNT_OP_WRITE, 1, 6);
			close_both(pair);
			for (unsigned end = 0; end < 2; end++)
				assert_success(snt_qp_reset(pair->end[end].qp));
			assert_int_equal(query(pair, 0).state, SNT_QP_UNCONNECTED);
			assert_ptr_equal(lane_qp(pair, 0, 3), lane);
			assert_true(query(pair, 0).generation != generation);
			assert_success(snt_qp_card(pair->end[0].qp, &card));
			assert_int_equal(card.epoch, life + 1);
			vqp_pair_connect(pair);
		}
		talk(pair);
		vqp_pair_close(pair);
	}
}

static void posts_before_a_reset_are_forgotten(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
	const struct snt_qp_opts *const both[] = { &opts, &opts };
	struct vqp_pair *pair = vqp_pair_make((const unsigned[]){ 1, 1 }, both);

	(void)state;
	post_notify(pair, 1, 99);
	post_data(pair, 1, 98, 0, 64);
	assert_success(snt_qp_reset(pair->end[1].qp));
	assert_int_equal(query(pair, 1).recvs, 0);
	vqp_pair_connect(pair);
	talk(pair);
	vqp_pair_close(pair);
}

/* Each control call of a reset fails once; it can always be tried again. */
static void a_reset_that_fails_can_be_repeated(void **state)
{
	struct vqp_pair *pair = open_pair(1, 3, SNT_SCHEME_SPRAY);
	unsigned failures = 0;

	(void)state;
	close_both(pair);
	for (unsigned nth = 1;; nth++, failures++) {
		int ret;

		scripted_fail_control(pair->end[0].device[0], nth, EIO);
		ret = snt_qp_reset(pair->end[0].qp);
		if (!scripted_failed_control(pair->end[0].device[0]))
			break;
		assert_error(ret, EIO, "lane");
	}
	assert_int_equal(failures, 2 * 4);
	scripted_fail_control(pair->end[0].device[0], 0, 0);
	assert_success(snt_qp_reset(pair->end[1].qp));
	vqp_pair_connect(pair);
	talk(pair);
	vqp_pair_close(pair);
}

static void options_change_while_they_may(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
	const struct snt_qp_opts *const both[] = { &opts, &opts };
	struct vqp_pair *pair = vqp_pair_make((const unsigned[]){ 1, 1 }, both);
	struct snt_qp *qp = pair->end[0].qp;
	const uint16_t bad_weights[] = { 1, 0 };

	(void)state;
#define CHANGE(...) \
	snt_qp_modify(qp, &(struct snt_qp_opts){ .size = sizeof(opts), __VA_ARGS__ })
	assert_success(CHANGE(.fragment_size = 8192, .mtu = 1024, .timeout = 9));
	assert_error(CHANGE(.fragment_size = 100), EINVAL, "fragment_size");
	assert_error(CHANGE(.lanes = 3), EINVAL, "lanes is settled");
	assert_error(CHANGE(.flags = SNT_QP_PASS_THROUGH), EINVAL, "flags is settled");
	assert_error(CHANGE(.weights = bad_weights), EINVAL, "weights[1] is 0");
	vqp_pair_connect(pair);
	assert_int_equal(query(pair, 0).fragment_size, 8192);
	assert_int_equal(query(pair, 1).fragment_size, 8192);
	assert_int_equal(query(pair, 1).mtu, 1024);
	assert_error(CHANGE(.mtu = 2048), EISCONN, "mtu");
	assert_success(CHANGE(.rnr_timer = 5, .balance = SNT_BALANCE_BY_TIME));
	assert_int_equal(query(pair, 0).balance, SNT_BALANCE_BY_TIME);
	assert_error(CHANGE(.rnr_timer = 32), EINVAL, "rnr_timer");
	scripted_fail_control(pair->end[0].device[0], 2, EIO);
	assert_error(CHANGE(.rnr_timer = 6), EIO, "lane 1");
	talk(pair);
	vqp_pair_close(pair);
}

static void a_query_adds_up(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_qp_info info = { .size = 4 };

	(void)state;
	assert_int_equal(snt_qp_query(pair->end[0].qp, &info), -EINVAL);
	send_wr(pair, SNT_OP_WRITE, 1, 20); /* the lanes take 8 each */
	post_notify(pair, 0, 5);
	info = query(pair, 0);
	assert_int_equal(info.state, SNT_QP_CONNECTED);
	assert_int_equal(info.num, snt_qp_num(pair->end[0].qp));
	assert_int_equal(info.lanes, 2);
	assert_int_equal(info.lane_count, 3);
	assert_int_equal(info.sends, 1);
	assert_int_equal(info.sends_waiting, 1);
	assert_int_equal(info.under_way, 16);
	assert_int_equal(info.recv_notifies, 1);
	assert_int_equal(info.bytes, 16 * FRAGMENT);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	info = query(pair, 0);
	assert_int_equal(info.sends, 0);
	assert_int_equal(info.under_way, 0);
	assert_int_equal(info.fragments, 20);
	assert_int_equal(info.bytes, 20 * FRAGMENT);
	assert_int_equal(info.errors, 0);
	assert_in_range(info.doorbells, 2, 20);
	assert_int_equal(info.completions, info.doorbells);
	send_wr(pair, SNT_OP_WRITE, 2, 1);
	send_wr(pair, SNT_OP_WRITE, 3, 1);
	for (unsigned i = 0; i < 2; i++)
		scripted_complete(lane_qp(pair, 0, i), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	expect(pair, 0, 3, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	info = query(pair, 0);
	assert_int_equal(info.state, SNT_QP_BROKEN);
	assert_int_equal(info.errors, 2);
	assert_int_equal(info.lanes_alive, 0);
	vqp_pair_close(pair);
}

/* Devices, lanes, notify lanes of each end, and how many data lanes it makes. */
static void ends_that_are_not_alike(void **state)
{
	static const struct {
		enum snt_scheme scheme;
		unsigned devices[2], lanes[2], notify[2];
		unsigned common;
	} cases[] = {
		{ SNT_SCHEME_SPRAY, { 1, 2 }, { 4, 4 }, { 2, 0 }, 4 },
		{ SNT_SCHEME_SPRAY, { 3, 1 }, { 6, 6 }, { 0, 3 }, 6 },
		{ SNT_SCHEME_SPRAY, { 2, 3 }, { 6, 5 }, { 3, 3 }, 5 },
		{ SNT_SCHEME_SPRAY, { 1, 1 }, { 8, 3 }, { 0, 0 }, 3 },
		{ SNT_SCHEME_SPRAY, { 1, 4 }, { 2, 7 }, { 4, 4 }, 2 },
		{ SNT_SCHEME_DQPLB, { 1, 3 }, { 4, 6 }, { 0, 0 }, 4 },
		{ SNT_SCHEME_DQPLB, { 2, 1 }, { 5, 2 }, { 0, 0 }, 2 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snt_qp_opts opts[2];
		const struct snt_qp_opts *const both[] = { &opts[0], &opts[1] };
		struct vqp_pair *pair;

		for (unsigned end = 0; end < 2; end++)
			opts[end] = (struct snt_qp_opts){
				.size = sizeof(opts[end]),
				.scheme = cases[i].scheme,
				.lanes = cases[i].lanes[end],
				.notify_lanes = cases[i].notify[end],
				.fragment_size = FRAGMENT,
			};
		pair = vqp_pair_make(cases[i].devices, both);
		/* Posted before it is known how many lanes will notify. */
		post_notify(pair, 1, 21);
		vqp_pair_connect(pair);
		for (unsigned end = 0; end < 2; end++)
			assert_int_equal(snt_qp_lane_count(pair->end[end].qp),
					 cases[i].common);
		send_wr(pair, SNT_OP_WRITE_IMM, 1, 3);
		expect(pair, 1, 21, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		expect(pair, 0, 1, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		talk(pair);
		close_both(pair);
		for (unsigned end = 0; end < 2; end++)
			assert_success(snt_qp_reset(pair->end[end].qp));
		vqp_pair_connect(pair);
		talk(pair);
		vqp_pair_close(pair);
	}
}

/* Refused at the end that could not tell when its writes have landed. */
static void a_device_without_a_notify_lane_is_refused(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 4 };
	const struct snt_qp_opts *const both[] = { &opts, &opts };
	struct vqp_pair *pair = vqp_pair_make((const unsigned[]){ 1, 2 }, both);
	struct snt_card card;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card));
	assert_error(snt_qp_connect(pair->end[0].qp, &card), EINVAL,
		     "set notify_lanes to 2");
	vqp_pair_close(pair);
}

static void pass_through_is_set_at_both_ends_or_none(void **state)
{
	struct snt_qp_opts tracked = { .size = sizeof(tracked), .lanes = 1 };
	struct snt_qp_opts passes = tracked;
	const struct snt_qp_opts *const both[] = { &tracked, &passes };
	struct vqp_pair *pair;
	struct snt_card card;

	(void)state;
	passes.flags = SNT_QP_PASS_THROUGH;
	pair = vqp_pair_make((const unsigned[]){ 1, 1 }, both);
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_qp_card(pair->end[!end].qp, &card));
		assert_error(snt_qp_connect(pair->end[end].qp, &card), EINVAL,
			     "SNT_QP_PASS_THROUGH");
	}
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_closed_qp_lives_again),
		cmocka_unit_test(posts_before_a_reset_are_forgotten),
		cmocka_unit_test(a_reset_that_fails_can_be_repeated),
		cmocka_unit_test(options_change_while_they_may),
		cmocka_unit_test(a_query_adds_up),
		cmocka_unit_test(ends_that_are_not_alike),
		cmocka_unit_test(a_device_without_a_notify_lane_is_refused),
		cmocka_unit_test(pass_through_is_set_at_both_ends_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
