/* SPDX-License-Identifier: MIT */
/*
 * What is known of an error: a WR's status is its first error that is not a flush, and
 * what ended a lane or a QP can be found out.
 */
#include "vqp_kit.h"

static void put_to_error(struct vqp_pair *pair, unsigned end, unsigned lane)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	assert_success(scripted_adopted(pair->end[end].device[0])
			       .control->modify_qp(lane_qp(pair, end, lane), &attr,
						   IBV_QP_STATE));
}

/* Two devices, so two notify lanes, on both of which a notification receive lies. */
static void a_flush_does_not_hide_the_error_of_another_notify_lane(void **state)
{
	(void)state;
	for (unsigned flushed = 2; flushed < 4; flushed++) {
		struct vqp_pair *pair = open_pair(2, 2, SNT_SPRAY);
		unsigned failed = flushed == 2 ? 3 : 2;
		struct ibv_qp *qp = lane_qp(pair, 1, failed);
		struct snt_wc wc;

		post_notify(pair, 1, 7);
		scripted_hold_cq(qp->recv_cq, true);
		put_to_error(pair, 1, flushed);
		assert_success(scripted_fail_recv(qp, IBV_WC_RETRY_EXC_ERR));
		vqp_expect_none(pair, 1);
		scripted_hold_cq(qp->recv_cq, false);
		wc = expect(pair, 1, 7, SNT_RECV_NOTIFY, SNT_RETRY_EXC_ERR);
		assert_int_equal(wc.lane, failed);
		assert_int_equal(wc.vendor_err, 0x5c);
		vqp_pair_close(pair);
	}
}

/* All lanes are on the first device, but for the second notify lane. */
static struct vqp_pair *open_lopsided(void)
{
	static const unsigned devices[] = { 0, 0, 0, 1 };
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 2,
				    .notify_lanes = 2,
				    .lane_devices = devices,
				    .fragment_size = FRAGMENT };

	return vqp_pair_open(2, &opts);
}

/* The error is in a CQ, not yet polled, when the last data lane dies. */
static void the_end_of_a_qp_does_not_hide_the_error_of_a_receive(void **state)
{
	struct vqp_pair *pair = open_lopsided();
	struct ibv_qp *qp = lane_qp(pair, 0, 3);

	(void)state;
	post_notify(pair, 0, 7);
	send_wr(pair, SNT_WRITE, 1, 2);
	scripted_hold_cq(qp->recv_cq, true);
	assert_success(scripted_fail_recv(qp, IBV_WC_LOC_PROT_ERR));
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR);
	scripted_complete(lane_qp(pair, 0, 1), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_WRITE, SNT_RETRY_EXC_ERR);
	vqp_expect_none(pair, 0);
	scripted_hold_cq(qp->recv_cq, false);
	expect(pair, 0, 7, SNT_RECV_NOTIFY, SNT_LOC_PROT_ERR);
	vqp_pair_close(pair);
}

/* The same when the program closes. */
static void closing_does_not_hide_the_error_of_a_receive(void **state)
{
	struct vqp_pair *pair = open_lopsided();

	(void)state;
	post_notify(pair, 0, 7);
	assert_success(scripted_fail_recv(lane_qp(pair, 0, 3), IBV_WC_LOC_PROT_ERR));
	assert_success(snt_qp_close(pair->end[0].qp, 99));
	expect(pair, 0, 7, SNT_RECV_NOTIFY, SNT_LOC_PROT_ERR);
	expect(pair, 0, 99, SNT_CLOSED, SNT_SUCCESS);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_flush_does_not_hide_the_error_of_another_notify_lane),
		cmocka_unit_test(the_end_of_a_qp_does_not_hide_the_error_of_a_receive),
		cmocka_unit_test(closing_does_not_hide_the_error_of_a_receive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
