/* SPDX-License-Identifier: MIT */
/* A single lane that passes WRs on, on a device that refuses without need or reports
 * what was not asked for. */
#include "lib/vqp_kit.h"

#define DEPTH 4

static const struct snt_qp_opts single = { .size = sizeof(single),
					   .flags = SNT_QP_PASS_THROUGH,
					   .lane_depth = DEPTH,
					   .recv_depth = DEPTH };

static struct snt_qp_info query(struct vqp_pair *pair, unsigned end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(pair->end[end].qp, &info));
	return info;
}

static void refuse(struct vqp_pair *pair, enum scripted_post_kind kind,
		   enum scripted_post_mode mode)
{
	const struct scripted_post_fault fault = { .qp = lane_qp(pair, 0, 0),
						   .kind = kind,
						   .error = ENOMEM,
						   .mode = mode,
						   .accept = 2 };

	scripted_fail_post(pair->end[0].device[0], &fault);
}

/* Posts WRs 1 to count, each adding 1 to the same counter. */
static int add_ones(struct vqp_pair *pair, unsigned count)
{
	struct snt_sge sge;
	struct snt_send_wr wr[DEPTH];

	for (unsigned i = 0; i < count; i++) {
		wr[i] = vqp_wr(pair, 0, &sge, SNT_OP_FETCH_ADD, 0, 8);
		wr[i].wr_id = 1 + i;
		wr[i].compare_add = 1;
	}
	return snt_qp_post_send(pair->end[0].qp, wr, count);
}

static uint64_t counter(const struct vqp_pair *pair)
{
	uint64_t value;

	memcpy(&value, pair->end[1].buffer, sizeof(value));
	return value;
}

/* Whether the device has them or not: they were taken, come back once each, and are
 * never sent again. */
static void a_post_that_fails_takes_the_lane_with_it(void **state)
{
	const enum scripted_post_mode modes[] = { SCRIPTED_REFUSE_ALL,
						  SCRIPTED_QUEUE_ALL_BAD_FIRST,
						  SCRIPTED_QUEUE_ALL_BAD_NULL };

	(void)state;
	for (unsigned mode = 0; mode < ARRAY_SIZE(modes); mode++) {
		for (unsigned early = 0; early < 2; early++) {
			struct vqp_pair *pair = vqp_pair_open(1, &single);
			unsigned succeeded = 0;

			scripted_eager(pair->fabric, early);
			refuse(pair, SCRIPTED_POST_SEND, modes[mode]);
			assert_int_equal(add_ones(pair, 3), 3);
			assert_int_equal(add_ones(pair, 1), -ESHUTDOWN);
			for (unsigned i = 0; i < 3; i++) {
				struct snt_wc wc = vqp_poll(pair, 0);

				assert_int_equal(wc.wr_id, 1 + i);
				assert_int_equal(wc.qp_num,
						 snt_qp_num(pair->end[0].qp));
				succeeded += wc.status == SNT_WC_SUCCESS;
			}
			vqp_expect_none(pair, 0);
			assert_true(counter(pair) >= succeeded);
			assert_int_equal(query(pair, 0).state, SNT_QP_BROKEN);
			vqp_pair_close(pair);
		}
	}
}

/* Some were taken, honestly: the rest follows, as if nothing had been. */
static void a_post_that_is_cut_short_goes_on(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);

	(void)state;
	refuse(pair, SCRIPTED_POST_SEND, SCRIPTED_ACCEPT_SOME);
	assert_int_equal(add_ones(pair, 4), 4);
	for (unsigned i = 0; i < 4; i++)
		expect(pair, 0, 1 + i, SNT_OP_FETCH_ADD, SNT_WC_SUCCESS);
	assert_int_equal(counter(pair), 4);
	assert_int_equal(query(pair, 0).under_way, 0);
	vqp_pair_close(pair);
}

/* What was under way before, and receives, come back by themselves. */
static void others_are_flushed_with_it(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	bool seen[4] = { false };

	(void)state;
	post_data(pair, 0, 0, 0, 64);
	assert_int_equal(add_ones(pair, 2), 2);
	refuse(pair, SCRIPTED_POST_SEND, SCRIPTED_REFUSE_ALL);
	send_wr(pair, SNT_OP_WRITE, 3, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(seen); i++) {
		struct snt_wc wc = vqp_poll(pair, 0);

		assert_in_range(wc.wr_id, 0, 3);
		assert_false(seen[wc.wr_id]);
		seen[wc.wr_id] = true;
	}
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

/* So many sends and receives, all with the same wr_id, the last of one kind refused.
 * How many were reported until SNT_OP_CLOSED, none of which may be a success. */
struct twins {
	unsigned sends, recvs;
	enum scripted_post_kind kind;
	enum scripted_post_mode mode;
	bool signalled;
};

static void post_twin_send(struct vqp_pair *pair, const struct twins *twins)
{
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 64);

	wr.wr_id = 1000;
	wr.flags = twins->signalled ? SNT_SEND_SIGNALED : 0;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
}

static unsigned count_twins(const struct twins *twins)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	bool refuses_send = twins->kind == SCRIPTED_POST_SEND;
	unsigned count = 0;
	struct snt_wc wc;

	for (unsigned i = 0; i < twins->sends; i++)
		post_twin_send(pair, twins);
	for (unsigned i = 0; i < twins->recvs; i++)
		post_notify(pair, 0, 1000);
	refuse(pair, twins->kind, twins->mode);
	if (refuses_send)
		post_twin_send(pair, twins);
	else
		post_notify(pair, 0, 1000);
	assert_success(snt_qp_close(pair->end[0].qp, 77));
	for (;; count++) {
		wc = vqp_poll(pair, 0);
		if (wc.opcode == SNT_OP_CLOSED)
			break;
		assert_int_equal(wc.wr_id, 1000);
		assert_int_equal(wc.status, SNT_WC_FLUSHED);
	}
	assert_int_equal(wc.wr_id, 77);
	assert_success(snt_qp_reset(pair->end[0].qp));
	vqp_pair_close(pair);
	return count;
}

/* Contract 1, also of a WR that the device refuses: of two sends and three receives
 * with one wr_id, the last refused, four were reported. */
static void wrs_with_one_wr_id_are_reported_once_each(void **state)
{
	static const enum scripted_post_mode modes[] = { SCRIPTED_REFUSE_ALL,
							 SCRIPTED_QUEUE_ALL_BAD_FIRST,
							 SCRIPTED_QUEUE_ALL_BAD_NULL };

	(void)state;
	for (unsigned i = 0; i < 3 * 3 * 2 * 2 * ARRAY_SIZE(modes); i++) {
		struct twins twins = { .sends = i % 3,
				       .recvs = i / 3 % 3,
				       .kind = i / 9 % 2 ? SCRIPTED_POST_SEND
							 : SCRIPTED_POST_RECV,
				       .signalled = i / 18 % 2,
				       .mode = modes[i / 36] };

		assert_int_equal(count_twins(&twins), twins.sends + twins.recvs + 1);
	}
}

/* Its lane has ended twice, once by itself and once by closing. */
static void reset_qp_has_no_old_completions(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);

	(void)state;
	refuse(pair, SCRIPTED_POST_SEND, SCRIPTED_REFUSE_ALL);
	assert_int_equal(add_ones(pair, 1), 1);
	for (unsigned i = 0; i < 2; i++) {
		struct snt_wc wc = { 0 };

		assert_success(snt_qp_close(pair->end[i].qp, 77));
		vqp_pair_run(pair, i);
		while (wc.opcode != SNT_OP_CLOSED)
			if (snt_cq_poll(pair->end[i].cq, &wc, 1) != 1)
				fail_msg("not closed");
		assert_success(snt_qp_reset(pair->end[i].qp));
	}
	vqp_pair_connect(pair);
	vqp_expect_none(pair, 0);
	assert_int_equal(add_ones(pair, 1), 1);
	expect(pair, 0, 1, SNT_OP_FETCH_ADD, SNT_WC_SUCCESS);
	assert_int_equal(counter(pair), 1);
	vqp_pair_close(pair);
}

static void a_receive_that_fails_takes_the_lane_with_it(void **state)
{
	const enum scripted_post_mode modes[] = { SCRIPTED_REFUSE_ALL,
						  SCRIPTED_QUEUE_ALL_BAD_FIRST };

	(void)state;
	for (unsigned mode = 0; mode < ARRAY_SIZE(modes); mode++) {
		struct vqp_pair *pair = vqp_pair_open(1, &single);
		struct snt_recv_wr recv = { .wr_id = 7 };

		post_data(pair, 0, 5, 0, 64);
		refuse(pair, SCRIPTED_POST_RECV, modes[mode]);
		post_data(pair, 0, 6, 64, 64);
		assert_int_equal(snt_qp_post_recv(pair->end[0].qp, &recv, 1),
				 -ESHUTDOWN);
		for (unsigned i = 0; i < 2; i++) {
			struct snt_wc wc = vqp_poll(pair, 0);

			assert_int_equal(wc.wr_id, 5 + i);
			assert_int_equal(wc.status, SNT_WC_FLUSHED);
		}
		vqp_expect_none(pair, 0);
		vqp_pair_close(pair);
	}
}

/* There is no lane to fail yet: all are forgotten, as when connecting fails. */
static void a_receive_that_fails_before_connecting(void **state)
{
	const struct snt_qp_opts *const opts[2] = { &single, &single };
	struct vqp_pair *pair = vqp_pair_make((const unsigned[]){ 1, 1 }, opts);
	struct snt_recv_wr recv = { .wr_id = 6 };

	(void)state;
	post_data(pair, 0, 5, 0, 64);
	refuse(pair, SCRIPTED_POST_RECV, SCRIPTED_QUEUE_ALL_BAD_FIRST);
	assert_error(snt_qp_post_recv(pair->end[0].qp, &recv, 1), ENOMEM,
		     "all that were posted before are forgotten");
	assert_int_equal(query(pair, 0).recvs, 0);
	vqp_pair_connect(pair);
	assert_int_equal(scripted_recv_pending(lane_qp(pair, 0, 0)), 0);
	vqp_pair_close(pair);
}

static void count_stray(void *arg, unsigned device, const struct ibv_wc *wc)
{
	(void)device;
	(void)wc;
	++*(unsigned *)arg;
}

/* The peer's message comes between our RTR and an RTS that fails. */
static void a_forgotten_receive_is_not_counted(void **state)
{
	const struct snt_qp_opts *const opts[2] = { &single, &single };
	struct vqp_pair *pair = vqp_pair_make((const unsigned[]){ 1, 1 }, opts);
	unsigned strays = 0;
	struct snt_card card[2];
	struct snt_sge sge;
	struct snt_send_wr wr;

	(void)state;
	snt_cq_set_stray_handler(pair->end[0].cq, count_stray, &strays);
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_card(pair->end[i].qp, &card[i]));
	scripted_eager(pair->fabric, true);
	post_data(pair, 0, 5, 0, 64);
	assert_success(snt_qp_connect(pair->end[1].qp, &card[0]));
	wr = vqp_wr(pair, 1, &sge, SNT_OP_SEND, 0, 64);
	assert_int_equal(snt_qp_post_send(pair->end[1].qp, &wr, 1), 1);
	scripted_fail_control(pair->end[0].device[0], 2, EIO);
	assert_error(snt_qp_connect(pair->end[0].qp, &card[1]), EIO, "RTS");
	vqp_expect_none(pair, 0);
	assert_int_equal(strays, 1);
	assert_int_equal(query(pair, 0).recvs, 0);
	for (unsigned i = 0; i < DEPTH; i++)
		post_data(pair, 0, 6 + i, 0, 64);
	vqp_pair_close(pair);
}

/* Nor is a send of the program's own hand. */
static void a_foreign_send_is_not_counted(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	struct ibv_send_wr wr = { .wr_id = 99,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	unsigned strays = 0;

	(void)state;
	snt_cq_set_stray_handler(pair->end[0].cq, count_stray, &strays);
	assert_int_equal(ibv_post_send(lane_qp(pair, 0, 0), &wr, &bad), 0);
	vqp_expect_none(pair, 0);
	assert_int_equal(strays, 1);
	assert_int_equal(query(pair, 0).under_way, 0);
	assert_int_equal(add_ones(pair, 4), 4);
	vqp_pair_close(pair);
}

/* The device refuses the end of the receives, and may have it all the same, until there
 * is no room for another. */
static void close_under(enum scripted_post_mode mode)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	bool seen[DEPTH] = { false };
	struct snt_wc wc;

	for (unsigned i = 0; i < DEPTH; i++)
		post_data(pair, 0, i, 0, 64);
	for (unsigned nth = 1; nth <= 3; nth++)
		scripted_fail_post(pair->end[0].device[0],
				   &(struct scripted_post_fault){
					   .kind = SCRIPTED_POST_RECV,
					   .mode = mode,
					   .nth = nth,
					   .error = ENOMEM,
				   });
	assert_success(snt_qp_close(pair->end[0].qp, 77));
	for (unsigned i = 0; i < DEPTH; i++) {
		wc = vqp_poll(pair, 0);
		assert_in_range(wc.wr_id, 0, DEPTH - 1);
		assert_int_equal(wc.status, SNT_WC_FLUSHED);
		assert_false(seen[wc.wr_id]);
		seen[wc.wr_id] = true;
	}
	expect(pair, 0, 77, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	assert_success(snt_qp_reset(pair->end[0].qp));
	vqp_pair_close(pair);
}

static void closing_does_not_need_room(void **state)
{
	(void)state;
	close_under(SCRIPTED_REFUSE_ALL);
	close_under(SCRIPTED_QUEUE_ALL_BAD_FIRST);
}

static void nothing_is_malformed(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	struct snt_send_wr wr = { 0 };
	struct snt_recv_wr recv = { 0 };

	(void)state;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 0), -EINVAL);
	assert_int_equal(snt_qp_post_recv(pair->end[0].qp, &recv, 0), -EINVAL);
	assert_int_equal(add_ones(pair, 4), 4);
	assert_int_equal(add_ones(pair, 1), -EAGAIN);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_post_that_fails_takes_the_lane_with_it),
		cmocka_unit_test(a_post_that_is_cut_short_goes_on),
		cmocka_unit_test(others_are_flushed_with_it),
		cmocka_unit_test(wrs_with_one_wr_id_are_reported_once_each),
		cmocka_unit_test(reset_qp_has_no_old_completions),
		cmocka_unit_test(a_receive_that_fails_takes_the_lane_with_it),
		cmocka_unit_test(a_receive_that_fails_before_connecting),
		cmocka_unit_test(a_forgotten_receive_is_not_counted),
		cmocka_unit_test(a_foreign_send_is_not_counted),
		cmocka_unit_test(closing_does_not_need_room),
		cmocka_unit_test(nothing_is_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
