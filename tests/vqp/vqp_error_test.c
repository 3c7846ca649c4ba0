/* SPDX-License-Identifier: MIT */
/*
 * What is known of an error: a WR's status is its first error that is not a flush, and
 * what ended a lane or a QP can be found out.
 */
#include "lib/vqp_kit.h"

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
		struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
		unsigned failed = flushed == 2 ? 3 : 2;
		struct ibv_qp *qp = lane_qp(pair, 1, failed);
		struct snt_wc wc;

		post_notify(pair, 1, 7);
		scripted_hold_cq(qp->recv_cq, true);
		put_to_error(pair, 1, flushed);
		assert_success(scripted_fail_recv(qp, IBV_WC_RETRY_EXC_ERR));
		vqp_expect_none(pair, 1);
		scripted_hold_cq(qp->recv_cq, false);
		wc = expect(pair, 1, 7, SNT_OP_RECV_NOTIFY, SNT_WC_RETRY_EXC_ERR);
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
	send_wr(pair, SNT_OP_WRITE, 1, 2);
	scripted_hold_cq(qp->recv_cq, true);
	assert_success(scripted_fail_recv(qp, IBV_WC_LOC_PROT_ERR));
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR);
	scripted_complete(lane_qp(pair, 0, 1), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	vqp_expect_none(pair, 0);
	scripted_hold_cq(qp->recv_cq, false);
	expect(pair, 0, 7, SNT_OP_RECV_NOTIFY, SNT_WC_LOC_PROT_ERR);
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
	expect(pair, 0, 7, SNT_OP_RECV_NOTIFY, SNT_WC_LOC_PROT_ERR);
	expect(pair, 0, 99, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/*
 * What ended a QP
 */

static char logged[4096];

static void take_line(void *arg, enum snt_log_level level, const char *text)
{
	(void)arg;
	if (level > SNT_LOG_WARN)
		return;
	assert_true(strlen(logged) + strlen(text) + 2 < sizeof(logged));
	strcat(strcat(logged, text), "\n");
}

static void assert_logged(const char *phrase)
{
	if (!strstr(logged, phrase))
		fail_msg("\"%s\" is not in the log: %s", phrase, logged);
}

static int start_log(void **state)
{
	(void)state;
	logged[0] = '\0';
	vqp_pair_log(take_line);
	return 0;
}

static int stop_log(void **state)
{
	(void)state;
	vqp_pair_log(NULL);
	return 0;
}

static struct snt_qp_info query(struct vqp_pair *pair, unsigned end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(pair->end[end].qp, &info));
	return info;
}

static void assert_cause(struct vqp_pair *pair, unsigned end, enum snt_cause cause,
			 unsigned status, unsigned lane, uint32_t vendor_err)
{
	struct snt_qp_info info = query(pair, end);
	struct snt_lane_info own = lane_info(pair, end, lane);

	assert_int_equal(info.cause, cause);
	assert_int_equal(info.cause_status, status);
	assert_int_equal(info.cause_lane, lane);
	assert_int_equal(info.cause_device, own.device);
	assert_int_equal(info.cause_vendor_err, vendor_err);
	assert_int_equal(own.cause, cause);
	assert_int_equal(own.cause_status, status);
	assert_int_equal(own.cause_vendor_err, vendor_err);
}

/* The receive is the library's own, so its status is in no completion. */
static void dqplb_tells_of_a_receive_that_failed(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_DQPLB);
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 1, 7);
	assert_success(scripted_fail_recv(lane_qp(pair, 1, 1), IBV_WC_LOC_PROT_ERR));
	wc = expect(pair, 1, 7, SNT_OP_RECV_NOTIFY, SNT_WC_FLUSHED);
	assert_int_equal(wc.cause, SNT_WC_LOC_PROT_ERR);
	assert_int_equal(wc.lane, 1);
	assert_int_equal(wc.device, 1);
	assert_int_equal(wc.vendor_err, 0x5c);
	assert_cause(pair, 1, SNT_CAUSE_STATUS, SNT_WC_LOC_PROT_ERR, 1, 0x5c);
	assert_int_equal(query(pair, 1).state, SNT_QP_BROKEN);
	assert_logged("lane 1 (QP ");
	assert_logged("failed: local protection error (status 4, vendor error 0x5c)");
	assert_logged("is broken: its first error was on lane 1 (scripted");
	vqp_pair_close(pair);
}

static void a_refused_post_is_told_with_its_errno(void **state)
{
	const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(schemes); i++) {
		struct vqp_pair *pair = open_pair(1, 2, schemes[i]);
		struct scripted_post_fault fault = { .qp = lane_qp(pair, 0, 0),
						     .error = ENOMEM };
		struct snt_wc wc;

		scripted_fail_post(pair->end[0].device[0], &fault);
		send_wr(pair, SNT_OP_WRITE, 1, 1);
		wc = expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_FLUSHED);
		assert_int_equal(wc.cause, SNT_WC_GENERAL_ERR);
		assert_cause(pair, 0, SNT_CAUSE_REFUSED, SNT_WC_GENERAL_ERR, 0, ENOMEM);
		assert_logged("the device refused a post: Cannot allocate memory");
		vqp_pair_close(pair);
	}
}

static void a_pass_through_lane_tells_of_its_error(void **state)
{
	struct snt_qp_opts single = { .size = sizeof(single),
				      .flags = SNT_QP_PASS_THROUGH };
	struct vqp_pair *pair = vqp_pair_open(1, &single);
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 0, 7);
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR);
	wc = vqp_poll(pair, 0);
	assert_int_equal(wc.status, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.cause, 0);
	wc = vqp_poll(pair, 0);
	assert_int_equal(wc.status, SNT_WC_FLUSHED);
	assert_int_equal(wc.cause, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.vendor_err, 0x5c);
	assert_cause(pair, 0, SNT_CAUSE_STATUS, SNT_WC_RETRY_EXC_ERR, 0, 0x5c);
	assert_logged("lane 0 (QP ");
	vqp_pair_close(pair);
}

/* The error of a lane that died long ago is not that of another. */
static void a_flush_is_told_with_the_error_of_its_own_lane(void **state)
{
	struct vqp_pair *pair = open_pair(1, 3, SNT_SCHEME_SPRAY);
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 1);
	scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	for (unsigned i = 2; i < 6; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	scripted_complete(lane_qp(pair, 0, 1), IBV_WC_REM_ACCESS_ERR);
	for (unsigned i = 2; i < 6; i++) {
		wc = vqp_poll(pair, 0);
		assert_int_equal(wc.wr_id, i);
		if (wc.status != SNT_WC_FLUSHED)
			continue;
		assert_int_equal(wc.cause, SNT_WC_REM_ACCESS_ERR);
		assert_int_equal(wc.lane, 1);
	}
	assert_cause(pair, 0, SNT_CAUSE_STATUS, SNT_WC_RETRY_EXC_ERR, 0, 0x5c);
	assert_int_equal(lane_info(pair, 0, 1).cause_status, SNT_WC_REM_ACCESS_ERR);
	vqp_pair_close(pair);
}

static void closing_is_no_cause(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);
	struct snt_wc wc;

	(void)state;
	post_notify(pair, 0, 7);
	assert_success(snt_qp_close(pair->end[0].qp, 99));
	wc = expect(pair, 0, 7, SNT_OP_RECV_NOTIFY, SNT_WC_FLUSHED);
	assert_int_equal(wc.cause, 0);
	expect(pair, 0, 99, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	assert_int_equal(query(pair, 0).cause, SNT_CAUSE_NONE);
	assert_string_equal(logged, "");
	vqp_pair_close(pair);
}

static void another_life_begins_without_a_cause(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);

	(void)state;
	assert_success(scripted_fail_recv(lane_qp(pair, 0, 1), IBV_WC_LOC_PROT_ERR));
	vqp_expect_none(pair, 0);
	assert_int_equal(query(pair, 0).cause, SNT_CAUSE_STATUS);
	assert_success(snt_qp_close(pair->end[0].qp, 99));
	expect(pair, 0, 99, SNT_OP_CLOSED, SNT_WC_SUCCESS);
	assert_success(snt_qp_reset(pair->end[0].qp));
	assert_int_equal(query(pair, 0).cause, SNT_CAUSE_NONE);
	assert_int_equal(lane_info(pair, 0, 1).cause, SNT_CAUSE_NONE);
	vqp_pair_close(pair);
}

/* They are on no lane: lane 0, which failed afterwards, has nothing to do with it. */
static void dqplb_receives_are_flushed_by_what_ended_the_qp(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_DQPLB);
	struct snt_wc wc[8];
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 1, &sge, SNT_OP_WRITE, 0, 64);
	int count;

	(void)state;
	post_notify(pair, 1, 7);
	post_data(pair, 1, 8, 0, 64);
	assert_int_equal(snt_qp_post_send(pair->end[1].qp, &wr, 1), 1);
	assert_success(scripted_fail_recv(lane_qp(pair, 1, 2), IBV_WC_LOC_PROT_ERR));
	assert_success(scripted_complete(lane_qp(pair, 1, 0), IBV_WC_RETRY_EXC_ERR));
	count = snt_cq_poll(pair->end[1].cq, wc, 8);
	for (int i = 0; i < count; i++)
		if (wc[i].opcode == SNT_OP_RECV_NOTIFY) {
			assert_int_equal(wc[i].wr_id, 7);
			assert_int_equal(wc[i].status, SNT_WC_FLUSHED);
			assert_int_equal(wc[i].cause, SNT_WC_LOC_PROT_ERR);
			assert_int_equal(wc[i].lane, 2);
			vqp_pair_close(pair);
			return;
		}
	fail_msg("no receive of %d completions was flushed", count);
}

#define LOGGED(test) cmocka_unit_test_setup_teardown(test, start_log, stop_log)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_flush_does_not_hide_the_error_of_another_notify_lane),
		cmocka_unit_test(the_end_of_a_qp_does_not_hide_the_error_of_a_receive),
		cmocka_unit_test(closing_does_not_hide_the_error_of_a_receive),
		LOGGED(dqplb_tells_of_a_receive_that_failed),
		LOGGED(a_refused_post_is_told_with_its_errno),
		LOGGED(a_pass_through_lane_tells_of_its_error),
		LOGGED(a_flush_is_told_with_the_error_of_its_own_lane),
		LOGGED(dqplb_receives_are_flushed_by_what_ended_the_qp),
		LOGGED(closing_is_no_cause),
		LOGGED(another_life_begins_without_a_cause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
