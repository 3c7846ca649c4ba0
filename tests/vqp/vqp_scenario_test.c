/* SPDX-License-Identifier: MIT */
/*
 * How virtual QPs behave step by step, as a program and its peer can see it: what
 * is posted where and when, and which completions come in which order. Then the
 * hazards of vqp_hazard_test.c that are about receiving.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>

#include "lib/vqp_kit.h"

/*
 * Scenarios
 */

/* 300 KB in pieces of 100 KB, acknowledged in the order 1, 2, 0. */
static void a_message_of_three_fragments(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 3,
				    .fragment_size = 102400 };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 64, 307200);
	struct snt_wc wc;

	(void)state;
	wr.wr_id = 42;
	for (unsigned i = 0; i < 307200; i++)
		pair->end[0].buffer[64 + i] = i % 253;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	for (unsigned lane = 0; lane < 3; lane++) {
		struct scripted_send sent;

		assert_int_equal(scripted_pending(lane_qp(pair, 0, lane)), 1);
		assert_int_equal(scripted_peek(lane_qp(pair, 0, lane), 0, &sent), 0);
		assert_int_equal(sent.sge[0].length, 102400);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
		assert_int_equal(scripted_complete(lane_qp(pair, 0, (i + 1) % 3),
						   IBV_WC_SUCCESS),
				 0);
	}
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 42);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.opcode, SNT_OP_WRITE);
	assert_int_equal(wc.length, 307200);
	assert_int_equal(wc.qp_num, snt_qp_num(pair->end[0].qp));
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, VQP_BUFFER);
	vqp_pair_close(pair);
}

/* More for each lane than goes out in one chain. */
static void a_message_of_very_many_fragments(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 3,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	uint64_t length = 160 * FRAGMENT - 100;
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 64, length);

	(void)state;
	for (unsigned i = 0; i < length; i++)
		pair->end[0].buffer[64 + i] = i % 253;
	wr.wr_id = 42;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	for (unsigned lane = 0; lane < 3; lane++)
		assert_int_equal(scripted_pending(lane_qp(pair, 0, lane)),
				 53 + (lane == 0));
	expect(pair, 0, 42, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, VQP_BUFFER);
	vqp_pair_close(pair);
}

/* Each begins with the lane behind the one that the last ended with. */
static void messages_take_turns_with_lanes(void **state)
{
	static const uint64_t lengths[] = { 5, 1, 3, 4, 2, 9, 8 };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	uint64_t fragments[4] = { 0 };
	unsigned turn = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		send_wr(pair, SNT_OP_WRITE, i, lengths[i]);
		for (unsigned j = 0; j < lengths[i]; j++)
			fragments[turn++ % 4]++;
		for (unsigned lane = 0; lane < 4; lane++)
			assert_int_equal(lane_info(pair, 0, lane).fragments,
					 fragments[lane]);
	}
	vqp_pair_close(pair);
}

static void later_wrs_wait_for_earlier_ones(void **state)
{
	struct vqp_pair *pair = open_pair(1, 3, SNT_SCHEME_SPRAY);
	struct snt_wc wc[4];

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 100, 2);
	send_wr(pair, SNT_OP_WRITE, 200, 1);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 2), IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, wc, 4), 0);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 0), IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, wc, 4), 0);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 1), IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, wc, 4), 2);
	assert_int_equal(wc[0].wr_id, 100);
	assert_int_equal(wc[0].length, 2 * FRAGMENT);
	assert_int_equal(wc[1].wr_id, 200);
	assert_int_equal(wc[1].length, FRAGMENT);
	vqp_pair_close(pair);
}

/* The same through an array of one: what does not fit comes next. */
static void a_full_array_loses_nothing(void **state)
{
	struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
	struct snt_wc wc;

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		send_wr(pair, SNT_OP_WRITE, i, 3);
	for (unsigned i = 0; i < 8; i++) {
		int count = 0;

		for (unsigned round = 0; !count && round < 100; round++) {
			vqp_pair_run(pair, i + round);
			count = snt_cq_poll_one(pair->end[0].cq, &wc);
		}
		assert_int_equal(count, 1);
		assert_int_equal(wc.wr_id, i);
	}
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

static void a_spray_notification_follows_its_data(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct ibv_qp *notify = lane_qp(pair, 0, 2);
	struct scripted_send sent;
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 1, 5);
	memset(pair->end[0].buffer, 0x5a, 2 * FRAGMENT);
	send_wr(pair, SNT_OP_WRITE_IMM, 42, 2);
	for (unsigned lane = 0; lane < 2; lane++) {
		assert_int_equal(scripted_peek(lane_qp(pair, 0, lane), 0, &sent), 0);
		assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE);
		assert_int_equal(scripted_pending(notify), 0);
		assert_int_equal(scripted_complete(lane_qp(pair, 0, lane),
						   IBV_WC_SUCCESS),
				 0);
		assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
		assert_int_equal(snt_cq_poll(pair->end[1].cq, &wc, 1), 0);
	}
	assert_int_equal(scripted_pending(notify), 1);
	assert_int_equal(scripted_peek(notify, 0, &sent), 0);
	assert_int_equal(sent.wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(sent.wr.num_sge, 0);
	assert_int_equal(scripted_complete(notify, IBV_WC_SUCCESS), 0);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 42);
	assert_int_equal(wc.length, 2 * FRAGMENT);
	assert_int_equal(snt_cq_poll(pair->end[1].cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.imm, 42);
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, 2 * FRAGMENT);
	vqp_expect_none(pair, 1);
	vqp_pair_close(pair);
}

/* More notifications than the notify lane is deep: they wait, in order. */
static void spray_notifications_wait_for_room(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
	struct ibv_qp *notify = lane_qp(pair, 0, 4);
	struct snt_wc wc;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		post_notify(pair, 1, 100 + i);
		send_wr(pair, SNT_OP_WRITE_IMM, i, 1);
	}
	/* Data only; lanes are 8 deep, so all of it is out. */
	for (unsigned lane = 0; lane < 4; lane++)
		while (!scripted_complete(lane_qp(pair, 0, lane), IBV_WC_SUCCESS))
			continue;
	assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
	assert_int_equal(scripted_pending(notify), 8);
	assert_int_equal(scripted_complete(notify, IBV_WC_SUCCESS), 0);
	for (unsigned i = 0; i < 20; i++) {
		expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		assert_true(scripted_pending(notify) <= 8);
		assert_int_equal(expect(pair, 1, 100 + i, SNT_OP_RECV_NOTIFY,
					SNT_WC_SUCCESS)
					 .imm,
				 i);
	}
	vqp_pair_close(pair);
}

/* One NIC's notification says nothing of another NIC's writes. */
static void a_notification_waits_for_all_devices(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 1, 5);
	send_wr(pair, SNT_OP_WRITE_IMM, 42, 2);
	for (unsigned lane = 0; lane < 2; lane++)
		scripted_complete(lane_qp(pair, 0, lane), IBV_WC_SUCCESS);
	for (unsigned lane = 2; lane < 4; lane++) {
		assert_int_equal(snt_cq_poll(pair->end[0].cq, &wc, 1), 0);
		assert_int_equal(snt_cq_poll(pair->end[1].cq, &wc, 1), 0);
		assert_int_equal(scripted_complete(lane_qp(pair, 0, lane),
						   IBV_WC_SUCCESS),
				 0);
	}
	expect(pair, 0, 42, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 1);
	vqp_pair_close(pair);
}

/* WRs are ordered by fences and notifications only: with a fence the place has the
 * second's bytes, whatever the lanes do. */
static void the_second_of_two_writes_to_one_place(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .lanes = 16,
					    .scheme = scheme,
					    .fragment_size = 1024 };
		struct vqp_pair *pair = vqp_pair_open(2, &opts);
		unsigned char *from = pair->end[0].buffer;
		const uint64_t length = VQP_BUFFER / 2;

		memset(from, 0x11, length);
		memset(from + length, 0x22, length);
		for (unsigned i = 0; i < 2; i++) {
			struct snt_sge sge;
			struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM,
						       i * length, length);

			wr.wr_id = i;
			wr.flags |= SNT_SEND_FENCE;
			wr.remote_addr = pair->end[1].token.addr;
			post_notify(pair, 1, i);
			assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		}
		for (unsigned i = 0; i < 2; i++)
			expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		for (unsigned i = 0; i < 2; i++)
			expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		assert_memory_equal(pair->end[1].buffer, from + length, length);
		vqp_pair_close(pair);
	}
}

/* Messages 0, 2, 1 in order of arrival. */
static void dqplb_messages_are_put_in_order(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);
	struct snt_wc wc[4];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		post_notify(pair, 1, 100 + i);
	for (unsigned i = 0; i < 3; i++) {
		struct snt_sge sge;
		struct snt_send_wr wr =
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, 64 + i);

		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	}
	assert_int_equal(scripted_land(lane_qp(pair, 0, 0)), 0);
	assert_int_equal(snt_cq_poll(pair->end[1].cq, wc, 4), 1);
	assert_int_equal(wc[0].wr_id, 100);
	assert_int_equal(wc[0].length, 64);
	assert_int_equal(scripted_land(lane_qp(pair, 0, 2)), 0);
	assert_int_equal(snt_cq_poll(pair->end[1].cq, wc, 4), 0);
	assert_int_equal(scripted_land(lane_qp(pair, 0, 1)), 0);
	assert_int_equal(snt_cq_poll(pair->end[1].cq, wc, 4), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(wc[i].wr_id, 101 + i);
		assert_int_equal(wc[i].length, 65 + i);
		assert_int_equal(wc[i].status, SNT_WC_SUCCESS);
	}
	vqp_pair_close(pair);
}

/* The receiver replaces what was consumed: it never runs dry. */
static void dqplb_receives_are_replenished(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_DQPLB);

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		post_notify(pair, 1, i);
		send_wr(pair, SNT_OP_WRITE_IMM, i, 3);
		expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		for (unsigned lane = 0; lane < 4; lane++)
			assert_true(scripted_recv_pending(lane_qp(pair, 1, lane)) > 4);
	}
	vqp_pair_close(pair);
}

static void single_and_multi_lane_qps_share_a_cq(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH };
	struct snt_qp *single[2];
	struct snt_card card[2];
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 100);
	struct snt_wc wc[8];
	int count = 0, singles = 0;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		opts.cq = pair->end[i].cq;
		assert_success(snt_qp_create(pair->end[i].ctx, &opts, &single[i]));
		assert_success(snt_qp_card(single[i], &card[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(single[i], &card[!i]));
	wr.wr_id = 999;
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	assert_int_equal(snt_qp_post_send(single[0], &wr, 1), 1);
	for (unsigned i = 0; i < 100 && count < 2; i++) {
		vqp_pair_run(pair, i);
		count += snt_cq_poll(pair->end[0].cq, wc + count, 8 - count);
	}
	assert_int_equal(count, 2);
	for (int i = 0; i < 2; i++) {
		bool is_single = wc[i].qp_num == snt_qp_num(single[0]);

		singles += is_single;
		assert_int_equal(wc[i].wr_id, is_single ? 999 : 1);
		assert_int_equal(wc[i].opcode, SNT_OP_WRITE);
		assert_int_equal(wc[i].status, SNT_WC_SUCCESS);
	}
	assert_int_equal(singles, 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_qp_close(single[i], 7));
		vqp_pair_run(pair, i);
		assert_int_equal(snt_cq_poll(pair->end[i].cq, wc, 1), 1);
		assert_int_equal(wc[0].opcode, SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(single[i]));
	}
	vqp_pair_close(pair);
}

/*
 * Making, handing over, closing
 */

/* The program polls by itself, and hands over. */
static void completions_are_handed_over(void **state)
{
	struct vqp_pair *pair =
		vqp_pair_open(1,
			      &(struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
						     .lanes = 4,
						     .fragment_size = 4096 });
	struct snt_qp *qp = pair->end[0].qp, *other;
	struct snt_qp_opts opts = { .size = sizeof(opts), .cq = pair->end[0].cq };
	struct snt_sge sge;
	struct snt_send_wr wr[2] = { vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 16384) };
	struct ibv_wc physical[8];
	struct snt_wc wc[8];
	int count;

	(void)state;
	wr[1] = wr[0], wr[1].wr_id = 2;
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &other));
	assert_int_equal(snt_qp_post_send(qp, wr, 2), 2);
	vqp_pair_run(pair, 1);
	count = ibv_poll_cq(snt_cq_physical(pair->end[0].cq, 0, NULL), 8, physical);
	assert_true(count >= 4);
	/* Refused as a whole, with nothing changed. */
	assert_int_equal(snt_qp_complete(other, 0, physical, count, wc, 8), -EINVAL);
	assert_int_equal(snt_qp_complete(qp, 1, physical, count, wc, 2), -EINVAL);
	physical[count - 1].qp_num ^= 0x800000;
	assert_int_equal(snt_qp_complete(qp, 0, physical, count, wc, 2), -EINVAL);
	physical[count - 1].qp_num ^= 0x800000;
	assert_int_equal(snt_qp_complete(qp, 0, physical, count, wc, 1), 1);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(snt_qp_complete(qp, 0, NULL, 0, wc, 2), 1);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[0].status, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	assert_success(snt_qp_destroy(other));
	vqp_pair_close(pair);
}

static void a_connected_qp_is_closed_first(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct snt_wc wc;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		assert_error(snt_qp_destroy(end->qp), EBUSY, "SNT_OP_CLOSED");
		assert_success(snt_qp_close(end->qp, 5));
		assert_error(snt_qp_close(end->qp, 6), EALREADY, "");
		assert_int_equal(snt_qp_destroy(end->qp), -EBUSY);
		wc = vqp_poll(pair, i);
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
		assert_int_equal(wc.wr_id, 5);
		assert_int_equal(wc.qp_num, snt_qp_num(end->qp));
		vqp_expect_none(pair, i);
	}
	vqp_pair_close(pair);
}

static void *make_some(void *arg)
{
	uint32_t *num = arg;

	for (unsigned i = 0; i < 10; i += 2) {
		struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);

		num[i] = snt_qp_num(pair->end[0].qp);
		num[i + 1] = snt_qp_num(pair->end[1].qp);
		vqp_pair_close(pair);
	}
	return NULL;
}

static void numbers_are_unique_across_threads(void **state)
{
	uint32_t num[40];
	pthread_t thread[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, make_some,
						&num[10 * i]),
				 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 1; i < 40; i++)
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(num[i], num[j]);
}

static void lanes_are_dealt_over_devices(void **state)
{
	struct vqp_pair *pair = open_pair(3, 5, SNT_SCHEME_SPRAY);
	struct vqp_end *end = &pair->end[0];
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .cq = end->cq,
				    .lanes = 4,
				    .devices = 0x5,
				    .scheme = SNT_SCHEME_DQPLB };
	struct snt_lane_info info = { .size = 4 };
	struct snt_qp *qp;

	(void)state;
	assert_int_equal(snt_qp_lane_count(end->qp), 5);
	assert_int_equal(snt_qp_scheme(end->qp), SNT_SCHEME_SPRAY);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(lane_info(pair, 0, i).device, i < 5 ? i % 3 : i - 5);
	assert_error(snt_qp_query_lane(end->qp, 8, &info), ENOENT, "8");
	assert_int_equal(snt_qp_query_lane(end->qp, 0, &info), -EINVAL);
	assert_success(snt_qp_create(end->ctx, &opts, &qp));
	assert_int_equal(scripted_live(end->device[0], SCRIPTED_QP), 3 + 3);
	assert_int_equal(scripted_live(end->device[1], SCRIPTED_QP), 3);
	assert_int_equal(scripted_live(end->device[2], SCRIPTED_QP), 2 + 2);
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_qp_destroy(NULL));
	vqp_pair_close(pair);
}

/* Of a card that is good, what its member makes of it is not. */
#define MISFIT(member, value, phrase)                                    \
	do {                                                             \
		struct snt_card card = good;                             \
		card.member = (value);                                   \
		assert_error(snt_qp_connect(qp, &card), EINVAL, phrase); \
	} while (0)

static void cards_that_do_not_fit_are_refused(void **state)
{
	struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .cq = pair->end[0].cq,
				    .lanes = 4 };
	struct snt_card good;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &good));
	assert_error(snt_qp_connect(pair->end[0].qp, &good), EISCONN, "");
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &qp));
	MISFIT(data_lanes, 5, "1 of the peer's devices have data lanes but no notify");
	MISFIT(lane_count, 5, "set notify_lanes to 2 or more at both ends");
	MISFIT(lane[2].device, 2, "refused");
	MISFIT(mtu, 1000, "refused");
	MISFIT(lane_count, SNT_LANES_MAX + 1, "refused");
	MISFIT(generation, 0, "refused");
	good.window = 64;
	MISFIT(scheme, SNT_SCHEME_DQPLB, "scheme is DQPLB, ours is SPRAY");
	assert_error(snt_qp_close(qp, 1), ENOTCONN, "");
	assert_success(snt_qp_destroy(qp));
	good.window = 0;
	opts.scheme = SNT_SCHEME_DQPLB;
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &qp));
	assert_error(snt_qp_connect(qp, &good), EINVAL,
		     "scheme is SPRAY, ours is DQPLB");
	assert_success(snt_qp_card(qp, &good));
	MISFIT(lane_depth, 1, "DQPLB needs 2");
	assert_success(snt_qp_destroy(qp));
	vqp_pair_close(pair);
}

/*
 * Hazards
 */

/* By rings: nothing can pile up that is not of this depth. */
static void h10_receives_do_not_pile_up(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(1, 2, scheme);

		for (unsigned i = 0; i < 2000; i++) {
			post_notify(pair, 1, i);
			send_wr(pair, SNT_OP_WRITE_IMM, i, 1);
			expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
			expect(pair, 1, i, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

static void h11_notifications_without_receives_wait(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(1, 4, scheme);

		/* More than DQPLB has receives of its own. */
		for (unsigned i = 0; i < 200; i++)
			send_wr(pair, SNT_OP_WRITE_IMM, i, 1);
		vqp_expect_none(pair, 1);
		for (unsigned i = 0; i < 200; i++) {
			struct snt_wc wc;

			post_notify(pair, 1, 1000 + i);
			wc = expect(pair, 1, 1000 + i, SNT_OP_RECV_NOTIFY,
				    SNT_WC_SUCCESS);
			assert_int_equal(wc.imm, i);
		}
		for (unsigned i = 0; i < 200; i++)
			expect(pair, 0, i, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		vqp_pair_close(pair);
	}
}

static void h16_each_class_has_its_own_receives(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct vqp_pair *pair =
			open_pair(1, 4, i % 2 ? SNT_SCHEME_DQPLB : SNT_SCHEME_SPRAY);
		bool swap = i / 2;

		post_data(pair, 1, 1, 8 * FRAGMENT, FRAGMENT);
		post_notify(pair, 1, 2);
		post_data(pair, 1, 3, 9 * FRAGMENT, FRAGMENT);
		send_wr(pair, swap ? SNT_OP_WRITE_IMM : SNT_OP_SEND, 10, 1);
		send_wr(pair, SNT_OP_SEND, 11, 1);
		send_wr(pair, swap ? SNT_OP_SEND : SNT_OP_WRITE_IMM, 12, 1);
		for (unsigned wr = 10; wr < 13; wr++)
			assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
		for (unsigned wr = 0, data = 1; wr < 3; wr++) {
			struct snt_wc wc = vqp_poll(pair, 1);

			assert_int_equal(wc.status, SNT_WC_SUCCESS);
			if (wc.opcode == SNT_OP_RECV_NOTIFY) {
				assert_int_equal(wc.wr_id, 2);
				continue;
			}
			assert_int_equal(wc.wr_id, data);
			assert_int_equal(wc.length, FRAGMENT);
			data += 2;
		}
		vqp_pair_close(pair);
	}
}

static void h20_an_empty_notification(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(1, 4, scheme);

		post_notify(pair, 1, 5);
		send_wr(pair, SNT_OP_WRITE_IMM, 6, 0);
		expect(pair, 0, 6, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
		assert_int_equal(expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, 0).imm, 6);
		vqp_pair_close(pair);
	}
}

static void h21_immediates_and_lengths_arrive(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(2, 4, scheme);
		struct snt_wc wc;

		for (unsigned i = 0; i < 3; i++) {
			post_notify(pair, 1, 5);
			send_wr(pair, SNT_OP_WRITE_IMM, i * 0x7fffffff, 5);
			wc = expect(pair, 1, 5, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
			assert_true(wc.flags & SNT_WC_WITH_IMM);
			assert_int_equal(wc.imm, i * 0x7fffffff);
			if (scheme == SNT_SCHEME_DQPLB)
				assert_int_equal(wc.length, 5 * FRAGMENT);
			assert_int_equal(!!(wc.flags & SNT_WC_LENGTH_UNKNOWN),
					 scheme == SNT_SCHEME_SPRAY);
		}
		vqp_pair_close(pair);
	}
}

/* It comes back under its own name, and the other class goes on. */
static void h22_a_refused_receive_ends_in_a_completion(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
		struct snt_recv_wr notify = { .wr_id = 9 };
		struct scripted_post_fault fault = {
			.kind = SCRIPTED_POST_RECV,
			.nth = 2,
			.error = ENOMEM,
			.qp = lane_qp(pair, 1, i % 2 ? 2 : 0),
			.mode = i / 2 ? SCRIPTED_QUEUE_ALL_BAD_FIRST
				      : SCRIPTED_REFUSE_ALL,
		};

		scripted_fail_post(pair->end[1].device[0], &fault);
		for (unsigned wr = 1; wr <= 2; wr++)
			if (i % 2)
				post_notify(pair, 1, wr);
			else
				post_data(pair, 1, wr, 0, 64);
		for (unsigned wr = 1; wr <= 2; wr++)
			expect(pair, 1, wr, i % 2 ? SNT_OP_RECV_NOTIFY : SNT_OP_RECV,
			       SNT_WC_FLUSHED);
		vqp_expect_none(pair, 1);
		if (i % 2) {
			assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &notify, 1),
					 -ESHUTDOWN);
			post_data(pair, 1, 3, 0, FRAGMENT);
			send_wr(pair, SNT_OP_SEND, 1, 1);
			expect(pair, 1, 3, SNT_OP_RECV, SNT_WC_SUCCESS);
		}
		vqp_pair_close(pair);
	}
}

static void h23_receives_are_flushed_under_their_own_names(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(2, 4, scheme);
		unsigned data = 0, notify = 0;

		for (unsigned i = 0; i < 5; i++) {
			post_notify(pair, 1, 100 + i);
			post_data(pair, 1, 200 + i, 0, 64);
		}
		assert_success(snt_qp_close(pair->end[1].qp, 300));
		for (unsigned i = 0; i < 10; i++) {
			struct snt_wc wc = vqp_poll(pair, 1);

			assert_int_equal(wc.status, SNT_WC_FLUSHED);
			if (wc.opcode == SNT_OP_RECV)
				assert_int_equal(wc.wr_id, 200 + data++);
			else
				assert_int_equal(wc.wr_id, 100 + notify++);
		}
		expect(pair, 1, 300, SNT_OP_CLOSED, SNT_WC_SUCCESS);
		assert_int_equal(data, 5);
		assert_int_equal(notify, 5);
		vqp_pair_close(pair);
	}
}

/* H11 and H16 at large: a peer that keeps to no rule ends in an error. */
static void evil(struct vqp_pair *pair, unsigned lane, enum ibv_wr_opcode opcode,
		 uint32_t imm, uint32_t length)
{
	struct vqp_end *end = &pair->end[0];
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = { .wr_id = 1,
					.sg_list = &sge,
					.num_sge = !!length,
					.opcode = opcode,
					.imm_data = htonl(imm) };

	assert_success(snt_mem_sge(end->mem, 0, 0, length, &sge));
	wr.wr.rdma.remote_addr = pair->end[1].token.addr;
	wr.wr.rdma.rkey = pair->end[1].token.key[0];
	assert_int_equal(ibv_post_send(lane_qp(pair, 0, lane), &wr, &bad), 0);
	vqp_pair_run(pair, 1);
}

/* The program learns of it, and of no success. */
static void expect_no_lie(struct vqp_pair *pair)
{
	struct snt_wc wc[16];
	int count = snt_cq_poll(pair->end[1].cq, wc, 16);

	assert_true(count > 0);
	for (int i = 0; i < count; i++)
		assert_int_not_equal(wc[i].status, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void h16_a_peer_uses_the_wrong_lane(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(1, 2, scheme);

		post_data(pair, 1, 1, 0, 64);
		/* Longer than the receive: a program that believes it reads too far. */
		evil(pair, scheme == SNT_SCHEME_SPRAY ? 0 : 2,
		     IBV_WR_RDMA_WRITE_WITH_IMM, 7, 1000);
		expect_no_lie(pair);
		pair = open_pair(1, 2, scheme);
		post_notify(pair, 1, 1);
		evil(pair, scheme == SNT_SCHEME_SPRAY ? 2 : 0, IBV_WR_SEND_WITH_IMM,
		     1u << 31, 0);
		expect_no_lie(pair);
	}
}

static void h11_a_peer_makes_up_sequence_numbers(void **state)
{
	static const uint32_t imms[][2] = {
		{ 0x00ffffff, 0 },	    /* far behind */
		{ 0x80004000, 0 },	    /* beyond the window */
		{ 0x40000000, 0 },	    /* an immediate, but not the last */
		{ 0x80000003, 0x80000003 }, /* twice */
		{ 0xc0000003, 0x00000003 + 0x80000000 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(imms); i++) {
		struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);

		post_notify(pair, 1, 1);
		evil(pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, imms[i][0], 8);
		evil(pair, 1, IBV_WR_RDMA_WRITE_WITH_IMM, imms[i][1], 8);
		if (imms[i][0] >> 30 == 3) /* and its raw immediate too late */
			evil(pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0);
		expect_no_lie(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_of_three_fragments),
		cmocka_unit_test(a_message_of_very_many_fragments),
		cmocka_unit_test(messages_take_turns_with_lanes),
		cmocka_unit_test(later_wrs_wait_for_earlier_ones),
		cmocka_unit_test(a_full_array_loses_nothing),
		cmocka_unit_test(a_spray_notification_follows_its_data),
		cmocka_unit_test(spray_notifications_wait_for_room),
		cmocka_unit_test(a_notification_waits_for_all_devices),
		cmocka_unit_test(the_second_of_two_writes_to_one_place),
		cmocka_unit_test(dqplb_messages_are_put_in_order),
		cmocka_unit_test(dqplb_receives_are_replenished),
		cmocka_unit_test(single_and_multi_lane_qps_share_a_cq),
		cmocka_unit_test(completions_are_handed_over),
		cmocka_unit_test(a_connected_qp_is_closed_first),
		cmocka_unit_test(numbers_are_unique_across_threads),
		cmocka_unit_test(lanes_are_dealt_over_devices),
		cmocka_unit_test(cards_that_do_not_fit_are_refused),
		cmocka_unit_test(h10_receives_do_not_pile_up),
		cmocka_unit_test(h11_notifications_without_receives_wait),
		cmocka_unit_test(h16_each_class_has_its_own_receives),
		cmocka_unit_test(h20_an_empty_notification),
		cmocka_unit_test(h21_immediates_and_lengths_arrive),
		cmocka_unit_test(h22_a_refused_receive_ends_in_a_completion),
		cmocka_unit_test(h23_receives_are_flushed_under_their_own_names),
		cmocka_unit_test(h16_a_peer_uses_the_wrong_lane),
		cmocka_unit_test(h11_a_peer_makes_up_sequence_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
