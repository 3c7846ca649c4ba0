/* SPDX-License-Identifier: MIT */
/*
 * What completions and refused posts say in words. That each failing call leaves a sentence
 * of its own is watched in all tests (lib/text_watch.h); here it is what the sentences say.
 */
#include "lib/vqp_kit.h"

#include <limits.h>

#include "util/err.h"

static void assert_phrase(const char *text, const char *phrase)
{
	if (strstr(text, phrase))
		return;
	print_error("\"%s\" is not in \"%s\"\n", phrase, text);
	fail();
}

static struct snt_device_info device_info(struct vqp_pair *pair, unsigned end,
					  unsigned device)
{
	struct snt_device_info info = { .size = sizeof(info) };

	assert_success(
		snt_device_query(snt_ctx_device(pair->end[end].ctx, device), &info));
	return info;
}

static void a_failed_completion_names_all_that_is_concerned(void **state)
{
	struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
	struct snt_lane_info lane = lane_info(pair, 0, 3);
	struct snt_device_info here = device_info(pair, 0, lane.device);
	struct snt_device_info there = device_info(pair, 1, lane.remote_device);
	char expected[160], address[64];
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	assert_int_equal(scripted_complete(lane.qp, IBV_WC_RETRY_EXC_ERR), 0);
	vqp_pair_run(pair, 1);
	wc = expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	/* "192.168.77.1 (RoCE v2, IPv4), ..." */
	assert_int_equal(sscanf(there.gid_reason, "%63s", address), 1);
	snprintf(expected, sizeof(expected), "QP %u: WRITE failed on lane 3 (%s to %s)",
		 snt_qp_num(pair->end[0].qp), here.name, address);
	assert_phrase(snt_wc_text(pair->end[0].cq, &wc), expected);
	assert_phrase(snt_wc_text(pair->end[0].cq, &wc), "RETRY_EXC_ERR (status 12");
	assert_phrase(snt_wc_text(pair->end[0].cq, &wc), "sennit ping");
	vqp_pair_close(pair);
}

/* What is posted to a QP that has failed is refused with what ended it. */
static void a_post_that_a_broken_qp_refuses(void **state)
{
	struct vqp_pair *pair = open_pair(2, 1, SNT_SCHEME_SPRAY);
	struct snt_lane_info lane = lane_info(pair, 0, 0);
	struct snt_device_info here = device_info(pair, 0, lane.device);
	struct snt_device_info there = device_info(pair, 1, lane.remote_device);
	char expected[200], address[64];

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 4);
	assert_int_equal(scripted_complete(lane.qp, IBV_WC_RETRY_EXC_ERR), 0);
	vqp_pair_run(pair, 1);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(sscanf(there.gid_reason, "%63s", address), 1);
	snprintf(expected, sizeof(expected),
		 "QP %u is broken: its first error was on lane 0 (%s to %s): ",
		 snt_qp_num(pair->end[0].qp), here.name, address);
	assert_error(try_send(pair, SNT_OP_WRITE, 2, 1), ESHUTDOWN, expected);
	assert_phrase(snt_err_text(), "(status 12");
	assert_phrase(snt_err_text(), "close it");
	vqp_pair_close(pair);
}

static void a_success_and_a_flush(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_cq *cq = pair->end[0].cq;
	struct snt_wc wc;

	(void)state;
	send_wr(pair, SNT_OP_READ, 1, 1);
	vqp_pair_run(pair, 1);
	wc = expect(pair, 0, 1, SNT_OP_READ, SNT_WC_SUCCESS);
	assert_phrase(snt_wc_text(cq, &wc), "READ succeeded");
	send_wr(pair, SNT_OP_WRITE, 2, 1);
	assert_success(snt_qp_close(pair->end[0].qp, 3));
	wc = expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_FLUSHED);
	assert_phrase(snt_wc_text(cq, &wc), "WRITE was flushed");
	assert_phrase(snt_wc_text(cq, &wc), "the QP was closed");
	wc.cause = SNT_WC_REM_OP_ERR;
	assert_phrase(snt_wc_text(cq, &wc),
		      "WRITE was flushed after a failure on lane");
	assert_phrase(snt_wc_text(cq, &wc), "REM_OP_ERR");
	vqp_pair_close(pair);
}

/* By then the program may have destroyed it, and the number is all that is left. */
static void text_of_a_destroyed_qp(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_wc wc = { .qp_num = 0xabcdef,
			     .status = SNT_WC_RNR_RETRY_EXC_ERR,
			     .opcode = SNT_OP_SEND,
			     .lane = 7 };

	(void)state;
	assert_phrase(snt_wc_text(pair->end[0].cq, &wc),
		      "QP 11259375: SEND failed on lane 7 with RNR_RETRY_EXC_ERR");
	vqp_pair_close(pair);
}

/* Numbers from a device, or from a program that made them up. */
static void texts_of_any_numbers(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_wc wc = { .qp_num = snt_qp_num(pair->end[0].qp),
			     .lane = UINT16_MAX };

	(void)state;
	for (unsigned status = 0; status <= UINT8_MAX; status++) {
		wc.status = status;
		wc.opcode = UINT8_MAX - status;
		assert_phrase(snt_wc_text(pair->end[0].cq, &wc), "QP ");
		assert_int_equal(!snt_status_name(status), !snt_status_help(status));
		assert_non_null(snt_status_text(status));
	}
	assert_null(snt_status_name(UINT_MAX));
	assert_string_equal(snt_status_name(SNT_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
	vqp_pair_close(pair);
}

static void a_full_queue(void **state)
{
	static const struct snt_qp_opts shapes[] = {
		{ .flags = SNT_QP_PASS_THROUGH },
		{ .lanes = 1 },
		{ .lanes = 2 },
		{ .lanes = 2, .scheme = SNT_SCHEME_DQPLB },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		struct snt_qp_opts opts = shapes[i];
		struct snt_recv_wr recv[3] = { 0 };
		struct vqp_pair *pair;
		struct snt_sge sge;
		struct snt_send_wr wr[4];

		opts.size = sizeof(opts);
		opts.send_depth = opts.lane_depth = 3;
		opts.recv_depth = 2;
		pair = vqp_pair_open(1, &opts);
		for (unsigned k = 0; k < ARRAY_SIZE(wr); k++)
			wr[k] = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 8);
		/* Taken in part: it says why the next was not. */
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 4), 3);
		assert_phrase(snt_err_text(), i ? "send_depth (3)" : "lane_depth (3)");
		assert_error(snt_qp_post_send(pair->end[0].qp, wr, 1), EAGAIN, "poll");
		assert_int_equal(snt_qp_post_recv(pair->end[0].qp, recv, 3), 2);
		assert_phrase(snt_err_text(), "recv_depth (2)");
		assert_error(snt_qp_post_send(pair->end[0].qp, wr, 0), EINVAL,
			     "no WRs");
		vqp_pair_close(pair);
	}
}

/* A pass-through lane fails with the chain or the receive that its device refuses; the rest
 * of the list is not taken. */
static void a_list_that_the_device_cuts_short(void **state)
{
	static const struct snt_qp_opts opts = { .size = sizeof(opts),
						 .flags = SNT_QP_PASS_THROUGH };
	struct vqp_pair *pair[2];
	struct snt_recv_wr recv[3] = { 0 };
	struct snt_send_wr wr[40];
	struct snt_sge sge;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pair); i++) {
		const struct scripted_post_fault fault = {
			.kind = i ? SCRIPTED_POST_RECV : SCRIPTED_POST_SEND,
			.error = ENOMEM,
			.mode = SCRIPTED_REFUSE_ALL,
		};

		pair[i] = vqp_pair_open(1, &opts);
		scripted_fail_post(pair[i]->end[0].device[0], &fault);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(wr); i++)
		wr[i] = vqp_wr(pair[0], 0, &sge, SNT_OP_WRITE, 0, 8);
	snt__fail(EINVAL, "of another call");
	assert_in_range(snt_qp_post_send(pair[0]->end[0].qp, wr, ARRAY_SIZE(wr)), 1,
			ARRAY_SIZE(wr) - 1);
	assert_phrase(snt_err_text(), "the device refused a post");
	snt__fail(EINVAL, "of another call");
	assert_int_equal(snt_qp_post_recv(pair[1]->end[0].qp, recv, 3), 1);
	assert_phrase(snt_err_text(), "the device refused a post");
	vqp_pair_close(pair[0]);
	vqp_pair_close(pair[1]);
}

static void text_is_not_spoilt_by_a_later_failure(void **state)
{
	struct snt__err_kept kept;

	(void)state;
	snt__fail_later(EAGAIN, "queue %u of %u", 3, 4);
	assert_string_equal(snt_err_text(), "queue 3 of 4");
	assert_string_equal(snt_err_text(), "queue 3 of 4");
	snt__fail_later(EAGAIN, "queue %u of %u", 5, 6);
	assert_int_equal(snt__fail(EIO, "now: %s", "this"), -EIO);
	assert_string_equal(snt_err_text(), "now: this");
	snt__fail_later(EAGAIN, "queue %u of %u", 7, 8);
	snt__err_keep(&kept);
	snt__fail(EIO, "while undoing");
	snt__err_restore(&kept);
	assert_string_equal(snt_err_text(), "queue 7 of 8");
	snt__fail_later(EAGAIN, "queue %u", 9, 0);
	snt__err_restore(&kept);
	assert_string_equal(snt_err_text(), "queue 7 of 8");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_completion_names_all_that_is_concerned),
		cmocka_unit_test(a_post_that_a_broken_qp_refuses),
		cmocka_unit_test(a_success_and_a_flush),
		cmocka_unit_test(text_of_a_destroyed_qp),
		cmocka_unit_test(texts_of_any_numbers),
		cmocka_unit_test(a_full_queue),
		cmocka_unit_test(a_list_that_the_device_cuts_short),
		cmocka_unit_test(text_is_not_spoilt_by_a_later_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
