/* SPDX-License-Identifier: MIT */
/* Completions that no sound device reports, handed over by the program. */
#include "lib/vqp_kit.h"

#include "vqp/qp.h"

/* It does not fit a completion's 8 bits, whose 0 is a success. */
static void an_unknown_status_is_a_failure(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct ibv_qp *lane = lane_qp(pair, 0, 0);
	struct scripted_send send;
	struct ibv_wc forged = { .qp_num = lane->qp_num };
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	assert_success(scripted_peek(lane, 0, &send));
	forged.wr_id = send.wr.wr_id;
	forged.status = 256;
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, &forged, 1, &wc, 1), 1);
	assert_int_equal(wc.status, SNT_WC_GENERAL_ERR);
	post_notify(pair, 1, 5);
	send_wr(pair, SNT_OP_WRITE_IMM, 2, 1);
	expect(pair, 0, 2, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

static void wr_ids_of_receives_and_pass_through_lanes_are_not_trusted(void **state)
{
	struct snt_qp_opts single = { .size = sizeof(single),
				      .flags = SNT_QP_PASS_THROUGH };
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct ibv_qp *lane = lane_qp(pair, 0, 2);
	struct scripted_recv recv;
	struct ibv_wc forged = { .qp_num = lane->qp_num, .status = 512 };
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 0, 5);
	assert_success(scripted_peek_recv(lane, 0, &recv));
	forged.wr_id = recv.wr.wr_id;
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, &forged, 1, &wc, 1), 1);
	assert_int_equal(wc.status, SNT_WC_GENERAL_ERR);
	vqp_pair_close(pair);

	pair = vqp_pair_open(1, &single);
	post_notify(pair, 0, 5);
	lane = lane_qp(pair, 0, 0);
	assert_success(scripted_peek_recv(lane, 0, &recv));
	forged.qp_num = lane->qp_num;
	forged.wr_id = recv.wr.wr_id;
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, &forged, 1, &wc, 1), 1);
	assert_int_equal(wc.status, SNT_WC_GENERAL_ERR);
	vqp_pair_close(pair);
}

/* Lanes run dry, because no receive is posted; then one more is said to have come. */
static void an_arrival_without_a_receive_is_a_stray(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .scheme = SNT_SCHEME_DQPLB,
				    .lanes = 2,
				    .lane_depth = 4,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_qp *qp = pair->end[1].qp;
	const struct snt__lane *lane = qp->lane;
	struct ibv_wc forged = { .qp_num = lane->qp->qp_num,
				 .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
				 .wc_flags = IBV_WC_WITH_IMM };
	struct snt_wc wc;

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		send_wr(pair, SNT_OP_WRITE_IMM, 0, 1);
	vqp_expect_none(pair, 1);
	assert_int_equal(lane->recv_retired, lane->recv_posted);
	forged.wr_id = (uint64_t)(lane->tag | SNT__TAG_RECV) << 32 | lane->recv_posted;
	assert_int_equal(snt_qp_complete(qp, 0, &forged, 1, &wc, 1), 0);
	assert_int_equal(lane->recv_retired, lane->recv_posted);
	assert_int_equal(snt_cq_stray_count(pair->end[1].cq), 1);
	vqp_pair_close(pair);
}

/* The CQE behind that of a lane is mostly of the lane after it, but not by its wr_id
 * alone: on another QP, or another device, that is not its own. */
static void forge_behind(unsigned devices)
{
	struct vqp_pair *pair = open_pair(devices, 2, SNT_SCHEME_SPRAY);
	struct ibv_wc forged[2] = { 0 };
	struct scripted_send send;
	struct snt_wc wc[2];

	send_wr(pair, SNT_OP_WRITE, 1, 1);
	send_wr(pair, SNT_OP_WRITE, 2, 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(scripted_peek(lane_qp(pair, 0, i), 0, &send));
		forged[i].wr_id = send.wr.wr_id;
		forged[i].qp_num = lane_qp(pair, 0, 0)->qp_num;
	}
	assert_int_equal(lane_qp(pair, 0, 0)->qp_num == lane_qp(pair, 0, 1)->qp_num,
			 devices == 2);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, forged, 2, wc, 2), 1);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(snt_cq_stray_count(pair->end[0].cq), 1);
	vqp_pair_close(pair);
}

static void the_wr_id_of_the_next_lane_is_not_enough(void **state)
{
	(void)state;
	forge_behind(1);
	forge_behind(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_status_is_a_failure),
		cmocka_unit_test(
			wr_ids_of_receives_and_pass_through_lanes_are_not_trusted),
		cmocka_unit_test(an_arrival_without_a_receive_is_a_stray),
		cmocka_unit_test(the_wr_id_of_the_next_lane_is_not_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
