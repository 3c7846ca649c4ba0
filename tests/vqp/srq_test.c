/* SPDX-License-Identifier: MIT */
/*
 * Shared receive queues: one stock of receives for QPs of one lane. End 0 sends on QPs of
 * its own; end 1 has one SRQ for all.
 */
#include "lib/test.h"

#include "lib/loop_kit.h"

#define QPS   3
#define DEPTH 8
#define BYTES 64

struct shared {
	struct loop_pair *pair;
	struct snt_cq *cq; /* of the SRQ */
	struct snt_srq *srq;
	struct snt_qp *qp[QPS][2];
};

struct shared_opts {
	bool ops;
	bool polled;   /* they are SNT_CQ_OPS_POLLED */
	bool other_cq; /* receives have a CQ of their own */
	unsigned devices;
};

static void connect_two(struct snt_qp *const qp[2])
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(qp[i], &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(qp[i], &card[!i]));
}

static void add_qp(struct shared *shared, unsigned index)
{
	struct loop_end *end = shared->pair->end;
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .cq = end[0].cq,
				    .flags = SNT_QP_PASS_THROUGH,
				    .devices = 1,
				    .rnr_retry_count = 7 };

	assert_success(snt_qp_create(end[0].ctx, &opts, &shared->qp[index][0]));
	opts = (struct snt_qp_opts){ .size = sizeof(opts),
				     .flags = SNT_QP_PASS_THROUGH,
				     .cq = end[1].cq,
				     .srq = shared->srq };
	assert_success(snt_qp_create(end[1].ctx, &opts, &shared->qp[index][1]));
	connect_two(shared->qp[index]);
}

static struct shared open_shared(struct shared_opts opts)
{
	struct loop_opts pair_opts = { .devices = opts.devices,
				       .ops = opts.polled ? SNT_CQ_OPS_POLLED
					      : opts.ops  ? SNT_CQ_OPS_EVENTS
							  : SNT_CQ_OPS_NONE,
				       .events = !opts.ops };
	struct shared shared = { .pair = loop_pair_open(&pair_opts) };
	struct loop_end *end = &shared.pair->end[1];
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = end->loop,
				       .ops = pair_opts.ops };
	struct snt_srq_opts srq_opts = { .size = sizeof(srq_opts),
					 .cq = end->cq,
					 .depth = DEPTH };

	if (opts.other_cq) {
		assert_success(snt_cq_create(end->ctx, &cq_opts, &shared.cq));
		srq_opts.cq = shared.cq;
	}
	assert_success(snt_srq_create(end->ctx, &srq_opts, &shared.srq));
	for (unsigned i = 0; i < QPS; i++)
		add_qp(&shared, i);
	return shared;
}

static struct snt_cq *recv_cq(const struct shared *shared)
{
	return shared->cq ? shared->cq : shared->pair->end[1].cq;
}

/* Until there is one completion, on any of the CQs of an end that receives. */
static struct snt_wc poll_cq(struct shared *shared, struct snt_cq *cq)
{
	struct snt_wc wc;

	for (int i = 0; i < 1000; i++) {
		int count = snt_cq_poll(cq, &wc, 1);

		assert_success(count);
		if (count)
			return wc;
		loop_pair_run(shared->pair);
	}
	fail_msg("no completion");
	return wc;
}

static bool has_none(struct shared *shared, struct snt_cq *cq)
{
	struct snt_wc wc;

	loop_pair_run(shared->pair);
	return snt_cq_poll(cq, &wc, 1) == 0;
}

static void close_one(struct shared *shared, unsigned index, unsigned end)
{
	struct snt_qp *qp = shared->qp[index][end];
	struct snt_wc wc = { 0 };

	assert_success(snt_qp_close(qp, 99));
	for (int i = 0; i < 1000 && wc.opcode != SNT_OP_CLOSED; i++) {
		loop_pair_run(shared->pair);
		if (end && shared->cq)
			assert_success(snt_cq_poll(shared->cq, &wc, 1));
		assert_success(snt_cq_poll(shared->pair->end[end].cq, &wc, 1));
	}
	assert_int_equal(wc.opcode, SNT_OP_CLOSED);
	assert_int_equal(wc.qp_num, snt_qp_num(qp));
	assert_success(snt_qp_destroy(qp));
	shared->qp[index][end] = NULL;
}

static void finish(struct shared *shared)
{
	assert_success(snt_srq_destroy(shared->srq));
	assert_success(snt_cq_destroy(shared->cq));
	loop_pair_close(shared->pair);
}

static void close_shared(struct shared *shared)
{
	for (unsigned i = 0; i < QPS; i++)
		for (int end = 0; end < 2; end++)
			if (shared->qp[i][end])
				close_one(shared, i, end);
	finish(shared);
}

static int post(struct shared *shared, uint64_t wr_id, uint64_t length)
{
	struct snt_sge sge = loop_sge(shared->pair, 1, BYTES * (wr_id % 256), length);
	struct snt_recv_wr wr = { .wr_id = wr_id,
				  .sge = &sge,
				  .sge_count = length > 0 };

	return snt_srq_post_recv(shared->srq, &wr, 1);
}

static void post_some(struct shared *shared, uint64_t first, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(post(shared, first + i, BYTES), 1);
}

static void send_on(struct shared *shared, unsigned index, uint8_t byte)
{
	struct snt_sge sge = loop_sge(shared->pair, 0, 0, BYTES);
	struct snt_send_wr wr = { .wr_id = 7,
				  .opcode = SNT_OP_SEND,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1 };

	memset(shared->pair->end[0].buffer, byte, BYTES);
	assert_int_equal(snt_qp_post_send(shared->qp[index][0], &wr, 1), 1);
	assert_int_equal(poll_cq(shared, shared->pair->end[0].cq).wr_id, 7);
}

static void expect_recv(struct shared *shared, unsigned index, uint64_t wr_id)
{
	struct snt_wc wc = poll_cq(shared, recv_cq(shared));

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.qp_num, snt_qp_num(shared->qp[index][1]));
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.opcode, SNT_OP_RECV);
	assert_int_equal(wc.length, BYTES);
}

static void receives_are_taken_in_order_of_arrival(void **state)
{
	static const unsigned order[] = { 2, 0, 0, 1, 2, 1, 0 };
	struct shared shared = open_shared((struct shared_opts){ 0 });

	(void)state;
	post_some(&shared, 100, ARRAY_SIZE(order));
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		send_on(&shared, order[i], 'a' + i);
		expect_recv(&shared, order[i], 100 + i);
		assert_int_equal(shared.pair->end[1].buffer[BYTES * (100 + i)],
				 'a' + i);
	}
	close_shared(&shared);
}

/* Room is that of receives which have not been polled, or CQs would overrun. */
static void depth_counts_what_is_not_polled(void **state)
{
	struct snt_srq_info info = { .size = sizeof(info) };
	struct shared shared = open_shared((struct shared_opts){ .other_cq = true });

	(void)state;
	post_some(&shared, 0, DEPTH);
	assert_int_equal(post(&shared, 55, BYTES), -EAGAIN);
	for (unsigned i = 0; i < DEPTH; i++)
		send_on(&shared, i % QPS, i);
	assert_int_equal(post(&shared, 55, BYTES), -EAGAIN);
	assert_success(snt_srq_query(shared.srq, &info));
	assert_int_equal(info.posted, DEPTH);
	assert_int_equal(info.depth, DEPTH);
	assert_int_equal(info.qps, QPS);
	for (unsigned i = 0; i < DEPTH; i++)
		expect_recv(&shared, i % QPS, i);
	post_some(&shared, 50, DEPTH);
	close_shared(&shared);
}

static void malformed_receives_are_refused(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ 0 });
	struct snt_sge sge[2] = { loop_sge(shared.pair, 1, 0, 8),
				  loop_sge(shared.pair, 1, 8, 8) };
	struct snt_recv_wr wr = { .wr_id = 1, .sge = sge, .sge_count = 2 };

	(void)state;
	assert_int_equal(snt_srq_post_recv(shared.srq, &wr, 0), -EINVAL);
	assert_int_equal(snt_srq_post_recv(shared.srq, &wr, 1), -EINVAL);
	wr.sge_count = 1;
	sge->length = LOOP_BUFFER + 1;
	assert_int_equal(snt_srq_post_recv(shared.srq, &wr, 1), -ERANGE);
	sge->length = UINT64_C(1) << 32;
	assert_int_equal(snt_srq_post_recv(shared.srq, &wr, 1), -EMSGSIZE);
	sge->mem = shared.pair->end[0].mem;
	assert_int_equal(snt_srq_post_recv(shared.srq, &wr, 1), -EINVAL);
	/* A QP of an SRQ has no receives of its own. */
	*sge = loop_sge(shared.pair, 1, 0, 8);
	assert_error(snt_qp_post_recv(shared.qp[0][1], &wr, 1), EINVAL,
		     "shared receive queue");
	close_shared(&shared);
}

static void only_single_lanes_of_its_device(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ .devices = 2 });
	struct loop_end *end = &shared.pair->end[1];
	const unsigned second[] = { 1 };
	const struct snt_qp_opts bad[] = {
		{ .flags = SNT_QP_PASS_THROUGH, .lanes = 2 },
		{ .flags = SNT_QP_PASS_THROUGH, .devices = 3 },
		{ .lanes = 1 },
	};
	struct snt_qp_opts opts;
	struct snt_qp *qp;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		opts = bad[i];
		opts.size = sizeof(opts);
		opts.cq = end->cq;
		opts.srq = shared.srq;
		assert_error(snt_qp_create(end->ctx, &opts, &qp), EINVAL,
			     "SNT_QP_PASS_THROUGH");
	}
	opts = (struct snt_qp_opts){ .size = sizeof(opts),
				     .cq = end->cq,
				     .srq = shared.srq,
				     .devices = 2,
				     .flags = SNT_QP_PASS_THROUGH };
	assert_error(snt_qp_create(end->ctx, &opts, &qp), EINVAL, "device 0");
	opts.devices = 0;
	opts.lane_devices = second;
	assert_error(snt_qp_create(end->ctx, &opts, &qp), EINVAL, "device 0");
	opts.lane_devices = NULL;
	opts.cq = shared.pair->end[0].cq;
	assert_error(snt_qp_create(shared.pair->end[0].ctx, &opts, &qp), EINVAL,
		     "another context");
	opts = (struct snt_qp_opts){ .size = sizeof(opts), .srq = shared.srq };
	assert_error(snt_qp_modify(shared.qp[0][1], &opts), EINVAL, "settled");
	close_shared(&shared);
}

static void its_cq_takes_all_receives(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ .other_cq = true });
	struct loop_end *end = &shared.pair->end[1];
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .cq = end->cq,
				    .recv_cq = end->cq,
				    .srq = shared.srq };
	struct snt_qp *qp;

	(void)state;
	assert_error(snt_qp_create(end->ctx, &opts, &qp), EINVAL, "recv_cq");
	assert_error(snt_cq_destroy(shared.cq), EBUSY, "report to this CQ");
	post_some(&shared, 1, 1);
	send_on(&shared, 1, 'x');
	assert_true(has_none(&shared, end->cq));
	expect_recv(&shared, 1, 1);
	close_shared(&shared);
}

static void creation_checks_its_options(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct loop_end *end = &pair->end[0];
	struct snt_srq_opts opts = { .size = sizeof(opts) };
	struct snt_srq *srq;

	(void)state;
	assert_error(snt_srq_create(end->ctx, &opts, &srq), EINVAL, "cq");
	opts.cq = pair->end[1].cq;
	assert_error(snt_srq_create(end->ctx, &opts, &srq), EINVAL, "cq");
	opts.cq = end->cq;
	opts.device = 1;
	assert_error(snt_srq_create(end->ctx, &opts, &srq), EINVAL, "device is 1");
	opts.device = 0;
	opts.depth = (1 << 20) + 1;
	assert_error(snt_srq_create(end->ctx, &opts, &srq), EINVAL, "depth");
	opts.depth = 1 << 16; /* of 4096 that the CQ has */
	assert_error(snt_srq_create(end->ctx, &opts, &srq), ENOSPC, "room");
	opts.depth = 4;
	opts.sge_max = SNT_SGES_MAX + 1;
	assert_error(snt_srq_create(end->ctx, &opts, &srq), EINVAL, "sge_max");
	opts.sge_max = 16;
	scripted_fail_control(end->device[0], 1, ENOMEM);
	assert_error(snt_srq_create(end->ctx, &opts, &srq), ENOMEM,
		     "no shared receive queue");
	assert_success(snt_srq_create(end->ctx, &opts, &srq));
	assert_error(snt_srq_arm(srq, 5), EINVAL, "limit of 5");
	scripted_fail_control(end->device[0], 1, EIO);
	assert_error(snt_srq_arm(srq, 4), EIO, "refused");
	scripted_fail_control(end->device[0], 1, EIO);
	assert_error(snt_srq_destroy(srq), EIO, "cannot be destroyed");
	assert_success(snt_srq_destroy(srq));
	assert_success(snt_srq_destroy(NULL));
	loop_pair_close(pair);
}

static const struct snt_control *without_srqs(const struct snt_adopted *adopted)
{
	static struct snt_control control;

	control = *adopted->control;
	control.create_srq = NULL;
	return &control;
}

static void a_device_without_them_says_so(void **state)
{
	struct loop_opts pair_opts = { .instrument = without_srqs };
	struct loop_pair *pair = loop_pair_open(&pair_opts);
	struct snt_srq_opts opts = { .size = sizeof(opts), .cq = pair->end[0].cq };
	struct snt_srq *srq;

	(void)state;
	assert_error(snt_srq_create(pair->end[0].ctx, &opts, &srq), EOPNOTSUPP,
		     "scripted0 cannot");
	loop_pair_close(pair);
}

static void srq_in_use_cannot_be_destroyed(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ 0 });

	(void)state;
	assert_error(snt_srq_destroy(shared.srq), EBUSY, "3 QPs use");
	close_one(&shared, 0, 1);
	close_one(&shared, 2, 1);
	assert_error(snt_srq_destroy(shared.srq), EBUSY, "1 QPs use");
	close_shared(&shared);
}

/* What a message had taken comes before the last word; the rest is not touched. */
static void closing_loses_nothing(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		struct shared shared =
			open_shared((struct shared_opts){ .other_cq = other });
		struct snt_srq_info info = { .size = sizeof(info) };
		struct snt_cq *cq = recv_cq(&shared), *send_cq = shared.pair->end[1].cq;
		struct snt_wc wc = { 0 };

		post_some(&shared, 10, 4);
		send_on(&shared, 1, 'a');
		send_on(&shared, 1, 'b');
		assert_success(snt_qp_close(shared.qp[1][1], 99));
		loop_pair_run(shared.pair);
		/* Not before its receives have been polled. */
		if (other)
			for (int i = 0; i < 10; i++)
				assert_int_equal(snt_cq_poll(send_cq, &wc, 1), 0);
		expect_recv(&shared, 1, 10);
		expect_recv(&shared, 1, 11);
		if (other)
			assert_int_equal(snt_cq_poll(cq, &wc, 1), 0);
		wc = poll_cq(&shared, send_cq);
		assert_int_equal(wc.opcode, SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(shared.qp[1][1]));
		shared.qp[1][1] = NULL;
		assert_success(snt_srq_query(shared.srq, &info));
		assert_int_equal(info.posted, 2);
		send_on(&shared, 2, 'c');
		expect_recv(&shared, 2, 12);
		assert_true(has_none(&shared, cq));
		close_shared(&shared);
	}
}

/* The QP fails, and no other; its receive is known by its wr_id, and free again. */
static void a_receive_that_is_too_short(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ 0 });
	struct snt_srq_info info = { .size = sizeof(info) };
	struct snt_sge sge = loop_sge(shared.pair, 0, 0, BYTES);
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1 };
	struct snt_wc wc;

	(void)state;
	assert_int_equal(post(&shared, 41, BYTES / 2), 1);
	post_some(&shared, 42, 1);
	assert_int_equal(snt_qp_post_send(shared.qp[0][0], &wr, 1), 1);
	wc = poll_cq(&shared, shared.pair->end[1].cq);
	assert_int_equal(wc.wr_id, 41);
	assert_int_equal(wc.status, SNT_WC_LOC_LEN_ERR);
	assert_int_equal(wc.qp_num, snt_qp_num(shared.qp[0][1]));
	assert_int_equal(poll_cq(&shared, shared.pair->end[0].cq).status,
			 SNT_WC_REM_INV_REQ_ERR);
	assert_int_equal(snt_qp_post_send(shared.qp[0][1], &wr, 1), -ESHUTDOWN);
	assert_success(snt_srq_query(shared.srq, &info));
	assert_int_equal(info.posted, 1);
	send_on(&shared, 1, 'd');
	expect_recv(&shared, 1, 42);
	close_shared(&shared);
}

/* Whether the device has it or not, nothing is told twice and nothing gets lost. */
static void a_refused_receive_counts(void **state)
{
	static const enum scripted_post_mode modes[] = { SCRIPTED_REFUSE_ALL,
							 SCRIPTED_QUEUE_ALL_BAD_FIRST };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		struct shared shared = open_shared((struct shared_opts){ 0 });
		struct scripted_post_fault fault = { .kind = SCRIPTED_POST_RECV,
						     .error = ENOMEM,
						     .mode = modes[i] };

		post_some(&shared, 1, 1);
		scripted_fail_post(shared.pair->end[1].device[0], &fault);
		assert_int_equal(post(&shared, 2, BYTES), 1);
		assert_int_equal(post(&shared, 3, BYTES), -ESHUTDOWN);
		send_on(&shared, 0, 'e');
		expect_recv(&shared, 0, 1);
		if (modes[i] == SCRIPTED_QUEUE_ALL_BAD_FIRST) {
			send_on(&shared, 0, 'f');
			expect_recv(&shared, 0, 2);
		}
		close_shared(&shared);
	}
}

/*
 * The limit
 */

static struct snt_event event;
static unsigned events;

static void note_event(void *arg, const struct snt_event *from)
{
	(void)arg;
	event = *from;
	events++;
}

static void the_limit_is_told_once(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ 0 });
	struct snt_loop *loop = shared.pair->end[1].loop;

	(void)state;
	events = 0;
	assert_success(snt_loop_set_event_handler(loop, note_event, NULL));
	post_some(&shared, 0, 4);
	assert_success(snt_srq_arm(shared.srq, 3));
	send_on(&shared, 0, 'a'); /* 3 are left */
	assert_success(snt_loop_dispatch(loop, 0));
	assert_int_equal(events, 0);
	for (int i = 0; i < 2; i++) {
		send_on(&shared, 1, 'b');
		assert_success(snt_loop_dispatch(loop, 0));
		assert_int_equal(events, 1);
	}
	assert_int_equal(event.type, SNT_EVENT_SRQ_LIMIT);
	assert_ptr_equal(event.srq, shared.srq);
	assert_int_equal(event.device, 0);
	assert_null(event.qp);
	for (int i = 0; i < 3; i++)
		poll_cq(&shared, recv_cq(&shared));
	post_some(&shared, 10, 3);
	assert_success(snt_srq_arm(shared.srq, 4));
	send_on(&shared, 2, 'c');
	assert_success(snt_loop_dispatch(loop, 0));
	assert_int_equal(events, 2);
	poll_cq(&shared, recv_cq(&shared));
	close_shared(&shared);
}

/*
 * Ops
 */

static void post_op(struct shared *shared, struct snt_op *op, uint64_t offset)
{
	struct snt_sge sge = loop_sge(shared->pair, 1, offset, BYTES);

	op->done = loop_done;
	assert_success(snt_op_post_srq_recv(shared->srq, op,
					    &(struct snt_recv_wr){ .sge = &sge,
								   .sge_count = 1 }));
}

static void send_op(struct shared *shared, unsigned index)
{
	struct snt_sge sge = loop_sge(shared->pair, 0, 0, BYTES);
	struct snt_op op = { 0 };

	assert_success(snt_op_send(shared->qp[index][0], &op, &sge));
	loop_pair_settle(shared->pair);
	assert_int_equal(snt_op_pending(&op), 0);
	assert_int_equal(op.result, 0);
}

static void close_ops(struct shared *shared)
{
	for (unsigned i = 0; i < QPS; i++)
		for (int end = 0; end < 2; end++) {
			struct snt_op op = { 0 };

			assert_success(snt_op_close(shared->qp[i][end], &op));
			loop_pair_settle(shared->pair);
			assert_int_equal(snt_op_pending(&op), 0);
			assert_success(snt_qp_destroy(shared->qp[i][end]));
		}
}

/* An SRQ is known by its loop, whatever kind of CQ it reports to. */
static void the_limit_of_ops_names_its_srq(void **state)
{
	(void)state;
	for (int polled = 0; polled < 2; polled++) {
		struct shared shared = open_shared(
			(struct shared_opts){ .ops = true, .polled = polled });
		struct snt_op op[2] = { { 0 } };

		events = 0;
		assert_success(snt_loop_set_event_handler(shared.pair->end[1].loop,
							  note_event, NULL));
		for (int i = 0; i < 2; i++)
			post_op(&shared, &op[i], 0);
		assert_success(snt_srq_arm(shared.srq, 2));
		for (int i = 0; i < 2; i++)
			send_op(&shared, 0);
		assert_int_equal(events, 1);
		assert_int_equal(event.type, SNT_EVENT_SRQ_LIMIT);
		assert_ptr_equal(event.srq, shared.srq);
		close_ops(&shared);
		finish(&shared);
	}
}

static void receives_as_ops(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		struct shared shared = open_shared(
			(struct shared_opts){ .ops = true, .other_cq = other });
		struct snt_op op[4] = { { 0 } };
		struct snt_sge sge = loop_sge(shared.pair, 1, 0, BYTES);
		struct snt_recv_wr wr = { .sge = &sge, .sge_count = 1 };

		assert_error(snt_srq_post_recv(shared.srq, &wr, 1), EINVAL, "ops");
		for (int i = 0; i < 4; i++)
			post_op(&shared, &op[i], BYTES * i);
		assert_error(snt_op_post_srq_recv(shared.srq, &op[0],
						  &(struct snt_recv_wr){ .sge = &sge,
									 .sge_count =
										 1 }),
			     EALREADY, "in use");
		send_op(&shared, 2);
		assert_int_equal(loop_done_count, 1);
		assert_ptr_equal(loop_done_log[0], &op[0]);
		assert_int_equal(op[0].result, 0);
		assert_int_equal(op[0].wc.qp_num, snt_qp_num(shared.qp[2][1]));
		assert_int_equal(op[0].wc.opcode, SNT_OP_RECV);
		/* Detached, it takes the next message with it. */
		assert_error(snt_op_cancel(&op[1], SNT_CANCEL_ABORT), EOPNOTSUPP,
			     "no QP");
		assert_success(snt_op_cancel(&op[1], SNT_CANCEL_DETACH));
		send_op(&shared, 0);
		assert_int_equal(op[1].result, -ECANCELED);
		assert_int_equal(op[1].wc.length, BYTES);
		assert_success(snt_op_timeout(&op[2], 1, SNT_CANCEL_ABORT));
		assert_int_equal(snt_op_wait(&op[2], 2000000), -ETIME);
		send_op(&shared, 1);
		assert_int_equal(op[2].result, -ETIMEDOUT);
		close_ops(&shared);
		assert_int_equal(snt_op_pending(&op[3]), 1);
		/* With the SRQ ends what is left in it. */
		assert_success(snt_srq_destroy(shared.srq));
		shared.srq = NULL;
		loop_done_reset();
		assert_int_equal(snt_loop_dispatch(shared.pair->end[1].loop, 0), 1);
		assert_int_equal(loop_done_count, 1);
		assert_int_equal(op[3].result, -ECANCELED);
		finish(&shared);
	}
}

static void ops_need_a_cq_with_ops(void **state)
{
	struct shared shared = open_shared((struct shared_opts){ 0 });
	struct snt_sge sge = loop_sge(shared.pair, 1, 0, BYTES);
	struct snt_op op = { 0 };

	(void)state;
	assert_error(snt_op_post_srq_recv(shared.srq, &op,
					  &(struct snt_recv_wr){ .sge = &sge,
								 .sge_count = 1 }),
		     EINVAL, "CQ with ops");
	close_shared(&shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receives_are_taken_in_order_of_arrival),
		cmocka_unit_test(depth_counts_what_is_not_polled),
		cmocka_unit_test(malformed_receives_are_refused),
		cmocka_unit_test(only_single_lanes_of_its_device),
		cmocka_unit_test(its_cq_takes_all_receives),
		cmocka_unit_test(creation_checks_its_options),
		cmocka_unit_test(a_device_without_them_says_so),
		cmocka_unit_test(srq_in_use_cannot_be_destroyed),
		cmocka_unit_test(closing_loses_nothing),
		cmocka_unit_test(a_receive_that_is_too_short),
		cmocka_unit_test(a_refused_receive_counts),
		cmocka_unit_test(the_limit_is_told_once),
		cmocka_unit_test(the_limit_of_ops_names_its_srq),
		cmocka_unit_test(receives_as_ops),
		cmocka_unit_test(ops_need_a_cq_with_ops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
