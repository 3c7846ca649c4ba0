/* SPDX-License-Identifier: MIT */
/*
 * Failover (failover.h): what arrived is not sent again, what did not is, what is in doubt is
 * told; calls and receipts in every state; each call of a recovery refused once.
 */
#include "lib/vqp_kit.h"

#include <errno.h>
#include <string.h>

#define LANES 2
#define LOG   64

/* What an end has reported, without its notices. */
struct log {
	struct snt_wc wc[LOG];
	unsigned count;
};

struct ends {
	struct vqp_pair *pair;
	struct log log[2];
	unsigned notices[2];
	bool deaf; /* receipts are not carried */
};

static struct snt_qp_opts options(uint32_t flags)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .lanes = LANES,
				     .flags = flags,
				     .lane_depth = 8,
				     .send_depth = 8,
				     .fragment_size = FRAGMENT,
				     .express_max = SNT_EXPRESS_OFF };
}

static struct ends open_ends(unsigned devices, uint32_t ours, uint32_t theirs)
{
	struct snt_qp_opts opts[2] = { options(ours), options(theirs) };
	struct ends ends = {
		.pair = vqp_pair_make((const unsigned[]){ devices, devices },
				      (const struct snt_qp_opts *const[]){ &opts[0],
									   &opts[1] }),
	};

	vqp_pair_connect(ends.pair);
	return ends;
}

static struct snt_qp_info info_of(const struct ends *ends, unsigned end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(ends->pair->end[end].qp, &info));
	return info;
}

static void poll_end(struct ends *ends, unsigned end)
{
	struct snt_wc wc;

	while (snt_cq_poll(ends->pair->end[end].cq, &wc, 1) > 0) {
		if (wc.opcode == SNT_OP_RECEIPT) {
			ends->notices[end]++;
			continue;
		}
		assert_true(ends->log[end].count < LOG);
		ends->log[end].wc[ends->log[end].count++] = wc;
	}
}

/* A call that was refused is made again. */
static void carry(struct ends *ends, unsigned from)
{
	char receipt[SNT_RECEIPT_PACKED_MAX];
	ssize_t length =
		snt_qp_receipt(ends->pair->end[from].qp, receipt, sizeof(receipt));

	ends->notices[from] = length < 0;
	if (length > 0)
		assert_success(
			snt_qp_resume(ends->pair->end[!from].qp, receipt, length));
}

/* Until nothing moves. */
static void run(struct ends *ends)
{
	for (unsigned round = 0; round < 24; round++) {
		vqp_pair_run(ends->pair, round);
		for (unsigned end = 0; end < 2; end++) {
			poll_end(ends, end);
			if (ends->notices[end] && !ends->deaf)
				carry(ends, end);
		}
	}
}

/* The WR that is oldest on a lane of end 0 is lost with its lane, or only its answer is. */
static void fail_lane(struct ends *ends, unsigned lane, bool landed)
{
	struct ibv_qp *qp = lane_qp(ends->pair, 0, lane);

	if (landed)
		assert_int_equal(scripted_land(qp), 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_RETRY_EXC_ERR), 0);
}

static void expect_log(const struct ends *ends, unsigned end, unsigned index,
		       unsigned opcode, unsigned status)
{
	assert_true(index < ends->log[end].count);
	assert_int_equal(ends->log[end].wc[index].opcode, opcode);
	assert_int_equal(ends->log[end].wc[index].status, status);
}

static void close_ends(struct ends *ends)
{
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_close(ends->pair->end[end].qp, 0));
	ends->deaf = true;
	run(ends);
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(info_of(ends, end).state, SNT_QP_CLOSED);
	vqp_pair_close(ends->pair);
}

static void fill(struct ends *ends, int value)
{
	memset(ends->pair->end[0].buffer, value, 8 * FRAGMENT);
}

static int byte_at_peer(const struct ends *ends, size_t at)
{
	return ends->pair->end[1].buffer[at];
}

static void a_write_survives_its_lanes(void **state)
{
	struct ends ends = open_ends(2, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	fill(&ends, 0x11);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 4);
	fail_lane(&ends, 1, false);
	run(&ends);
	assert_int_equal(ends.log[0].count, 1);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_int_equal(byte_at_peer(&ends, 4 * FRAGMENT - 1), 0x11);
	assert_int_equal(info_of(&ends, 0).state, SNT_QP_CONNECTED);
	assert_int_equal(info_of(&ends, 0).life, 2);
	assert_int_equal(info_of(&ends, 0).resent_bytes, 4 * FRAGMENT);
	assert_int_equal(lane_info(ends.pair, 0, 1).left_out, 1);
	assert_int_equal(lane_info(ends.pair, 0, 1).last_status, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(lane_info(ends.pair, 0, 0).lives, 2);
	/* The lane that was left out is taken in again. */
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	run(&ends);
	assert_int_equal(info_of(&ends, 0).life, 3);
	assert_int_equal(info_of(&ends, 0).lanes_alive, LANES);
	close_ends(&ends);
}

/* The peer was told of the write by the SEND behind it, and has used the memory since. */
static void what_a_send_announced_is_not_written_again(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	fill(&ends, 0x22);
	post_data(ends.pair, 1, 7, 16 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	send_wr(ends.pair, SNT_OP_SEND, 2, 0);
	assert_int_equal(scripted_land(lane_qp(ends.pair, 0, 0)), 0);
	fail_lane(&ends, 0, true);
	poll_end(&ends, 1);
	expect_log(&ends, 1, 0, SNT_OP_RECV, SNT_WC_SUCCESS);
	ends.pair->end[1].buffer[0] = 0x77;
	run(&ends);
	assert_int_equal(ends.log[0].count, 2);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect_log(&ends, 0, 1, SNT_OP_SEND, SNT_WC_SUCCESS);
	assert_int_equal(ends.log[1].count, 1);
	assert_int_equal(byte_at_peer(&ends, 0), 0x77);
	close_ends(&ends);
}

static void a_send_that_did_not_arrive_is_sent_again(void **state)
{
	struct ends ends = open_ends(2, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	post_data(ends.pair, 1, 7, 16 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_SEND, 1, 0);
	fail_lane(&ends, 0, false);
	run(&ends);
	assert_int_equal(ends.log[0].count, 1);
	expect_log(&ends, 0, 0, SNT_OP_SEND, SNT_WC_SUCCESS);
	/* By the lane of the other device. */
	expect_log(&ends, 1, 0, SNT_OP_RECV, SNT_WC_SUCCESS);
	assert_int_equal(ends.log[1].count, 1);
	close_ends(&ends);
}

/* It fired on the first notify lane only. */
static void half_a_notification_is_none(void **state)
{
	struct ends ends = open_ends(2, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	post_notify(ends.pair, 1, 7);
	send_wr(ends.pair, SNT_OP_WRITE_IMM, 5, 0);
	poll_end(&ends, 0);
	assert_int_equal(scripted_land(lane_qp(ends.pair, 0, LANES)), 0);
	fail_lane(&ends, LANES + 1, false);
	run(&ends);
	assert_int_equal(ends.log[1].count, 1);
	expect_log(&ends, 1, 0, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	assert_int_equal(ends.log[1].wc[0].imm, 5);
	expect_log(&ends, 0, 0, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	close_ends(&ends);
}

static void an_atomic_in_doubt_is_told_and_not_repeated(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(ends.pair, 0, &sge, SNT_OP_FETCH_ADD, 0, 8);
	uint64_t word;

	(void)state;
	memset(ends.pair->end[1].buffer, 0, sizeof(word));
	wr.compare_add = 5;
	assert_int_equal(snt_qp_post_send(ends.pair->end[0].qp, &wr, 1), 1);
	post_data(ends.pair, 1, 7, 16 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_SEND, 2, 0);
	fail_lane(&ends, 0, true);
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_FETCH_ADD, SNT_WC_INDETERMINATE);
	/* Behind it, and posted before that was known. */
	expect_log(&ends, 0, 1, SNT_OP_SEND, SNT_WC_FLUSHED);
	assert_int_equal(ends.log[1].count, 0);
	memcpy(&word, ends.pair->end[1].buffer, sizeof(word));
	assert_int_equal(word, 5);
	assert_int_equal(info_of(&ends, 0).indeterminate, 1);
	close_ends(&ends);
}

static void strict_writes_are_not_repeated(void **state)
{
	struct ends ends =
		open_ends(1, SNT_QP_FAILOVER | SNT_QP_STRICT, SNT_QP_FAILOVER);

	(void)state;
	fill(&ends, 0x33);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	fail_lane(&ends, 0, true);
	ends.pair->end[1].buffer[0] = 0x77;
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_INDETERMINATE);
	assert_int_equal(byte_at_peer(&ends, 0), 0x77);
	close_ends(&ends);
}

/* A remote access error would come again. */
static void a_wr_at_fault_is_not_repeated(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	send_wr(ends.pair, SNT_OP_WRITE, 2, 1);
	assert_int_equal(scripted_complete(lane_qp(ends.pair, 0, 0),
					   IBV_WC_REM_ACCESS_ERR),
			 0);
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_REM_ACCESS_ERR);
	expect_log(&ends, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_int_equal(lane_info(ends.pair, 0, 0).left_out, 0);
	close_ends(&ends);
}

static void it_is_off_unless_both_want_it(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, 0);

	(void)state;
	assert_int_equal(info_of(&ends, 0).failover, 0);
	assert_error(snt_qp_suspend(ends.pair->end[0].qp), EOPNOTSUPP, "both ends");
	send_wr(ends.pair, SNT_OP_WRITE, 1, 2);
	fail_lane(&ends, 1, false);
	ends.deaf = true;
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_RETRY_EXC_ERR);
	vqp_pair_close(ends.pair);
}

static void posts_wait_while_it_is_suspended(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	fill(&ends, 0x44);
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	for (unsigned i = 0; i < 8; i++)
		send_wr(ends.pair, SNT_OP_WRITE, i, 1);
	assert_int_equal(try_send(ends.pair, SNT_OP_WRITE, 8, 1), -EAGAIN);
	assert_int_equal(info_of(&ends, 0).state, SNT_QP_SUSPENDED);
	assert_int_equal(info_of(&ends, 0).sends_waiting, 8);
	run(&ends);
	assert_int_equal(ends.log[0].count, 8);
	assert_int_equal(byte_at_peer(&ends, 0), 0x44);
	close_ends(&ends);
}

/* With how much of a suspension done? */
static void close_after(unsigned rounds)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	post_data(ends.pair, 0, 1, 16 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	for (unsigned i = 0; i < rounds; i++) {
		vqp_pair_run(ends.pair, i);
		poll_end(&ends, i % 2);
		carry(&ends, i % 2);
	}
	close_ends(&ends);
}

static void it_can_be_closed_in_every_phase(void **state)
{
	(void)state;
	for (unsigned rounds = 0; rounds < 8; rounds++)
		close_after(rounds);
}

static void receipts_that_cannot_be_true_break_the_qp(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	char receipt[SNT_RECEIPT_PACKED_MAX];
	struct snt_qp *qp = ends.pair->end[0].qp;
	ssize_t length;

	(void)state;
	assert_success(snt_qp_suspend(qp));
	assert_success(snt_qp_suspend(ends.pair->end[1].qp));
	ends.deaf = true;
	run(&ends);
	assert_true(snt_qp_receipt(qp, receipt, sizeof(receipt)) > 0);
	length = snt_qp_receipt(ends.pair->end[1].qp, receipt, sizeof(receipt));
	assert_true(length > 0);
	receipt[27] = 1; /* a SEND that was never sent */
	assert_error(snt_qp_resume(qp, receipt, length), EPROTO, "1 SENDs were taken");
	assert_int_equal(info_of(&ends, 0).state, SNT_QP_BROKEN);
	assert_int_equal(info_of(&ends, 0).cause, SNT_CAUSE_PEER);
	assert_success(snt_qp_resume(qp, receipt, length));
	close_ends(&ends);
}

static void other_receipts_change_nothing(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	char receipt[SNT_RECEIPT_PACKED_MAX];
	struct snt_qp *qp = ends.pair->end[0].qp;
	ssize_t length = snt_qp_receipt(qp, receipt, sizeof(receipt));

	(void)state;
	assert_true(length > 0);
	assert_error(snt_qp_receipt(qp, receipt, 8), ENOSPC, "needs");
	assert_error(snt_qp_resume(qp, receipt, length), EINVAL, "another connection");
	assert_error(snt_qp_resume(qp, receipt, length - 1), EBADMSG, "wrong");
	receipt[0] = 2;
	assert_error(snt_qp_resume(qp, receipt, length), EPROTONOSUPPORT, "version 2");
	assert_int_equal(info_of(&ends, 0).state, SNT_QP_CONNECTED);
	close_ends(&ends);
}

/* The peer gives up while this end waits for it. */
static void a_peer_that_gives_up_ends_it(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	fail_lane(&ends, 0, false);
	poll_end(&ends, 0);
	assert_success(snt_qp_close(ends.pair->end[1].qp, 0));
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_FLUSHED);
	assert_int_equal(info_of(&ends, 0).state, SNT_QP_BROKEN);
	assert_success(snt_qp_close(ends.pair->end[0].qp, 0));
	ends.deaf = true;
	run(&ends);
	vqp_pair_close(ends.pair);
}

/* Of one end; false: there were not so many. */
static bool recover_with_failure(unsigned end, unsigned nth)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	struct scripted_device *device = ends.pair->end[end].device[0];
	bool failed;

	fill(&ends, 0x55);
	post_data(ends.pair, 1, 7, 16 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 2);
	fail_lane(&ends, 1, false);
	scripted_fail_control(device, nth, EIO);
	run(&ends);
	failed = scripted_failed_control(device);
	scripted_fail_control(device, 0, 0);
	/* Lanes that could not be made or connected are tried again. */
	for (unsigned i = 0; i < 2 && !ends.log[0].count; i++) {
		assert_success(snt_qp_suspend(ends.pair->end[0].qp));
		assert_success(snt_qp_suspend(ends.pair->end[1].qp));
		run(&ends);
	}
	assert_int_equal(ends.log[0].count, 1);
	expect_log(&ends, 0, 0, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_int_equal(byte_at_peer(&ends, 0), 0x55);
	close_ends(&ends);
	return failed;
}

static void each_call_of_a_recovery_may_fail(void **state)
{
	(void)state;
	for (unsigned end = 0; end < 2; end++) {
		unsigned nth = 1;

		while (recover_with_failure(end, nth))
			nth++;
		assert_true(nth > 10);
	}
}

/*
 * Faults that reviews found
 */

struct receipt {
	char bytes[SNT_RECEIPT_PACKED_MAX];
	ssize_t length;
};

static struct receipt receipt_of(const struct ends *ends, unsigned end)
{
	struct receipt receipt;

	receipt.length = snt_qp_receipt(ends->pair->end[end].qp, receipt.bytes,
					sizeof(receipt.bytes));
	assert_true(receipt.length > 0);
	return receipt;
}

static void tell(const struct ends *ends, unsigned end, const struct receipt *receipt)
{
	assert_success(snt_qp_resume(ends->pair->end[end].qp, receipt->bytes,
				     receipt->length));
}

/* Both are drained, and have heard nothing of each other. */
static void suspend_both(struct ends *ends)
{
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_suspend(ends->pair->end[end].qp));
	ends->deaf = true;
	run(ends);
	ends->deaf = false;
}

/* End 1 is armed, and so is end 0, which has not heard that. Returns what it is to hear. */
static struct receipt arm_both(struct ends *ends)
{
	struct receipt receipt[2];

	suspend_both(ends);
	for (unsigned end = 0; end < 2; end++)
		receipt[end] = receipt_of(ends, end);
	for (unsigned end = 0; end < 2; end++)
		tell(ends, end, &receipt[!end]);
	return receipt_of(ends, 1);
}

static struct ends open_single(void)
{
	struct snt_qp_opts opts = options(SNT_QP_FAILOVER);
	struct ends ends = { 0 };

	opts.lanes = 1;
	opts.lane_depth = opts.send_depth = opts.recv_depth = 64;
	opts.express_max = 0;
	ends.pair = vqp_pair_make((const unsigned[]){ 1, 1 },
				  (const struct snt_qp_opts *const[]){ &opts, &opts });
	vqp_pair_connect(ends.pair);
	return ends;
}

/* The device refuses the first post of the new life, with more behind it in the same turn. */
static void refuse_first_post(enum snt_opcode opcode)
{
	struct scripted_post_fault fault = { .kind = SCRIPTED_POST_SEND,
					     .nth = 1,
					     .error = EIO };
	struct ends ends = open_single();
	struct receipt ready;

	suspend_both(&ends);
	for (unsigned i = 0; i < 20; i++)
		post_notify(ends.pair, 1, i);
	post_data(ends.pair, 1, 99, 64 * FRAGMENT, FRAGMENT);
	for (unsigned i = 0; i < 20; i++)
		send_wr(ends.pair, opcode, i, 1);
	send_wr(ends.pair, SNT_OP_SEND, 50, 0);
	ready = arm_both(&ends);
	scripted_fail_post(ends.pair->end[0].device[0], &fault);
	tell(&ends, 0, &ready);
	poll_end(&ends, 0);
	ends.notices[0] = ends.notices[1] = 1;
	run(&ends);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_qp_suspend(ends.pair->end[0].qp));
		run(&ends);
	}
	assert_int_equal(ends.log[0].count, 21);
	for (unsigned i = 0; i < 20; i++)
		expect_log(&ends, 0, i, opcode, SNT_WC_SUCCESS);
	expect_log(&ends, 0, 20, SNT_OP_SEND, SNT_WC_SUCCESS);
	close_ends(&ends);
}

static void posts_behind_a_refused_one_wait(void **state)
{
	(void)state;
	refuse_first_post(SNT_OP_WRITE);
	refuse_first_post(SNT_OP_WRITE_IMM);
}

/* One end is up and owes nothing; the other repeats its own state, since it waits. */
static void a_lost_ready_is_said_again(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	struct receipt ready;

	(void)state;
	ready = arm_both(&ends);
	tell(&ends, 0, &ready);
	for (unsigned end = 0; end < 2; end++)
		poll_end(&ends, end);
	receipt_of(&ends, 0); /* is lost */
	ends.notices[0] = ends.notices[1] = 0;
	carry(&ends, 1);
	run(&ends);
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(info_of(&ends, end).state, SNT_QP_CONNECTED);
	close_ends(&ends);
}

static void reset_both(struct ends *ends)
{
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_close(ends->pair->end[end].qp, 0));
	ends->deaf = true;
	run(ends);
	ends->deaf = false;
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_qp_reset(ends->pair->end[end].qp));
		ends->log[end].count = 0;
	}
	vqp_pair_connect(ends->pair);
}

/* Only one end had begun the life in which SENDs had another lane. */
static void sends_find_their_lane_after_a_reset(void **state)
{
	struct ends ends = open_ends(2, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	struct receipt offer;

	(void)state;
	send_wr(ends.pair, SNT_OP_WRITE, 1, 1);
	fail_lane(&ends, 0, false);
	ends.deaf = true;
	poll_end(&ends, 0);
	assert_success(snt_qp_suspend(ends.pair->end[1].qp));
	run(&ends);
	receipt_of(&ends, 0);
	offer = receipt_of(&ends, 1);
	tell(&ends, 0, &offer);
	reset_both(&ends);
	post_data(ends.pair, 1, 99, 64 * FRAGMENT, FRAGMENT);
	send_wr(ends.pair, SNT_OP_SEND, 50, 0);
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_SEND, SNT_WC_SUCCESS);
	close_ends(&ends);
}

static bool reset_after_failure(unsigned nth)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);
	struct scripted_device *device = ends.pair->end[0].device[0];
	bool hit;

	send_wr(ends.pair, SNT_OP_WRITE, 1, 2);
	fail_lane(&ends, 1, false);
	scripted_fail_control(device, nth, EIO);
	run(&ends);
	hit = scripted_failed_control(device);
	scripted_fail_control(device, 0, 0);
	reset_both(&ends);
	post_data(ends.pair, 1, 99, 64 * FRAGMENT, FRAGMENT);
	post_notify(ends.pair, 1, 98);
	send_wr(ends.pair, SNT_OP_WRITE, 1, 2);
	send_wr(ends.pair, SNT_OP_SEND, 2, 0);
	send_wr(ends.pair, SNT_OP_WRITE_IMM, 3, 1);
	run(&ends);
	assert_int_equal(ends.log[0].count, 3);
	close_ends(&ends);
	return hit;
}

/* A QP that could not go to INIT had not joined its CQs. */
static void a_reset_repairs_what_a_recovery_left(void **state)
{
	unsigned nth = 1;

	(void)state;
	while (reset_after_failure(nth))
		nth++;
	assert_true(nth > 5);
}

/* Of a notification, and by the device itself: neither is a message that was taken. */
static void failed_receives_are_not_taken(void **state)
{
	struct ends ends = open_single();
	struct receipt receipt;

	(void)state;
	for (unsigned i = 1; i <= 2; i++)
		post_notify(ends.pair, 1, i);
	send_wr(ends.pair, SNT_OP_WRITE_IMM, 5, 1);
	assert_int_equal(scripted_fail_recv(lane_qp(ends.pair, 1, 1),
					    IBV_WC_REM_ACCESS_ERR),
			 0);
	assert_int_equal(scripted_complete(lane_qp(ends.pair, 0, 1),
					   IBV_WC_RETRY_EXC_ERR),
			 0);
	for (unsigned i = 0; i < 2; i++) {
		run(&ends);
		assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	}
	run(&ends);
	expect_log(&ends, 0, 0, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	expect_log(&ends, 1, 0, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	post_data(ends.pair, 1, 99, 64 * FRAGMENT, FRAGMENT);
	assert_int_equal(scripted_fail_recv(lane_qp(ends.pair, 1, 0), IBV_WC_FATAL_ERR),
			 0);
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	ends.deaf = true;
	run(&ends);
	receipt_of(&ends, 0);
	receipt = receipt_of(&ends, 1);
	tell(&ends, 0, &receipt);
	assert_int_not_equal(info_of(&ends, 0).state, SNT_QP_BROKEN);
	close_ends(&ends);
}

/* Whether the peer's offer has come already or not. */
static void a_suspension_offers_all_lanes_again(void **state)
{
	struct ends ends = open_ends(1, SNT_QP_FAILOVER, SNT_QP_FAILOVER);

	(void)state;
	ends.deaf = true;
	send_wr(ends.pair, SNT_OP_WRITE, 1, 2);
	fail_lane(&ends, 1, false);
	run(&ends);
	receipt_of(&ends, 0); /* offers all but one */
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	ends.deaf = false;
	ends.notices[0] = ends.notices[1] = 1;
	run(&ends);
	assert_int_equal(info_of(&ends, 0).lanes_alive, LANES);
	close_ends(&ends);
}

static struct snt_control scripted_control;
static bool device_refuses;

static int modify_or_refuse(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return device_refuses ? -EIO : scripted_control.modify_qp(qp, attr, mask);
}

/* Their end would never be reported. When the device stops them, the QP can be closed. */
static void closing_fails_while_lanes_cannot_be_stopped(void **state)
{
	struct ends ends = open_ends(1, 0, 0);
	struct snt_control control;

	(void)state;
	control = scripted_control =
		*scripted_adopted(ends.pair->end[0].device[0]).control;
	close_ends(&ends);
	control.modify_qp = modify_or_refuse;
	vqp_pair_control(&control);
	ends = open_single();
	vqp_pair_control(NULL);
	device_refuses = true;
	assert_success(snt_qp_suspend(ends.pair->end[0].qp));
	assert_error(snt_qp_close(ends.pair->end[0].qp, 0), EIO, "cannot go to ERR");
	device_refuses = false;
	close_ends(&ends);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_survives_its_lanes),
		cmocka_unit_test(what_a_send_announced_is_not_written_again),
		cmocka_unit_test(a_send_that_did_not_arrive_is_sent_again),
		cmocka_unit_test(half_a_notification_is_none),
		cmocka_unit_test(an_atomic_in_doubt_is_told_and_not_repeated),
		cmocka_unit_test(strict_writes_are_not_repeated),
		cmocka_unit_test(a_wr_at_fault_is_not_repeated),
		cmocka_unit_test(it_is_off_unless_both_want_it),
		cmocka_unit_test(posts_wait_while_it_is_suspended),
		cmocka_unit_test(it_can_be_closed_in_every_phase),
		cmocka_unit_test(receipts_that_cannot_be_true_break_the_qp),
		cmocka_unit_test(other_receipts_change_nothing),
		cmocka_unit_test(a_peer_that_gives_up_ends_it),
		cmocka_unit_test(each_call_of_a_recovery_may_fail),
		cmocka_unit_test(posts_behind_a_refused_one_wait),
		cmocka_unit_test(a_lost_ready_is_said_again),
		cmocka_unit_test(sends_find_their_lane_after_a_reset),
		cmocka_unit_test(a_reset_repairs_what_a_recovery_left),
		cmocka_unit_test(failed_receives_are_not_taken),
		cmocka_unit_test(a_suspension_offers_all_lanes_again),
		cmocka_unit_test(closing_fails_while_lanes_cannot_be_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
