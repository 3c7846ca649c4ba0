/* SPDX-License-Identifier: MIT */
/*
 * Completions: every way to poll, what they say, whose they are, and handing over
 * those that the program polled by itself.
 */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/vqp_kit.h"

/*
 * Ways to poll
 */

static void a_poll_for_no_completions_returns_0(void **state)
{
	(void)state;
	for (unsigned devices = 1; devices <= 2; devices++) {
		struct vqp_pair *pair = open_pair(devices, 2, SNT_SCHEME_SPRAY);
		struct snt_cq *cq = pair->end[0].cq;

		send_wr(pair, SNT_OP_WRITE, 1, 1);
		vqp_pair_run(pair, 1);
		for (int max = -1; max <= 0; max++) {
			assert_int_equal(snt_cq_poll(cq, NULL, max), 0);
			assert_int_equal(snt_cq_poll_index(cq, 0, NULL, max), 0);
			assert_int_equal(snt_cq_poll_each(cq, max, NULL, NULL), 0);
		}
		expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
		assert_error(snt_cq_poll_index(cq, devices, NULL, 1), EINVAL,
			     "no physical CQ");
		vqp_pair_close(pair);
	}
}

struct sink {
	struct vqp_pair *pair;
	unsigned count;
	unsigned more; /* to be posted from inside */
};

static void close_at_first(void *arg, const struct snt_wc *wc)
{
	struct sink *sink = arg;

	if (!sink->count++)
		assert_success(snt_qp_close(sink->pair->end[0].qp, 77));
	sink->more = wc->opcode == SNT_OP_CLOSED;
}

/* From inside, while more of its completions are at hand. */
static void a_function_may_close(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct sink sink = { pair, 0, 0 };

	(void)state;
	post_notify(pair, 0, 5);
	for (unsigned i = 0; i < 6; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	for (unsigned i = 0; !sink.more && i < 100; i++) {
		vqp_pair_run(pair, i);
		assert_success(
			snt_cq_poll_each(pair->end[0].cq, 32, close_at_first, &sink));
	}
	assert_int_equal(sink.more, 1);
	assert_int_equal(sink.count, 6 + 1 + 1);
	vqp_pair_close(pair);
}

static void count_one(void *arg, const struct snt_wc *wc)
{
	struct sink *sink = arg;

	assert_int_equal(wc->wr_id, sink->count++);
	assert_int_equal(wc->status, SNT_WC_SUCCESS);
	if (sink->more) {
		sink->more--;
		send_wr(sink->pair, SNT_OP_WRITE, 99 - sink->more, 1);
	}
}

/* More than a batch; each in order, no more than asked for; posting is allowed. */
static void a_function_gets_each_completion(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .lane_depth = 64,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct sink sink = { pair, 0, 20 };
	struct snt_cq *cq = pair->end[0].cq;

	(void)state;
	for (unsigned i = 0; i < 80; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	vqp_pair_run(pair, 1);
	assert_int_equal(snt_cq_poll_each(cq, 3, count_one, &sink), 3);
	assert_int_equal(sink.count, 3);
	assert_int_equal(snt_cq_poll_each(cq, 70, count_one, &sink), 70);
	assert_int_equal(snt_cq_poll_each(cq, 1000, count_one, &sink), 7);
	assert_int_equal(snt_cq_poll_each(cq, 1000, count_one, &sink), 0);
	vqp_pair_run(pair, 2);
	assert_int_equal(snt_cq_poll_each(cq, 1000, count_one, &sink), 20);
	assert_int_equal(sink.count, 100);
	vqp_pair_close(pair);
}

/* One device is served before another: nothing of the other is looked at. */
static void one_physical_cq_can_be_polled_alone(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_cq *cq = pair->end[0].cq;
	struct snt_wc wc[4];
	unsigned device;

	(void)state;
	assert_int_equal(snt_cq_count(cq), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_ptr_equal(snt_cq_physical(cq, i, &device),
				 lane_qp(pair, 0, i)->send_cq);
		assert_int_equal(device, i);
	}
	assert_null(snt_cq_physical(cq, 2, &device));
	/* On the devices in turn. */
	for (unsigned i = 0; i < 4; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	vqp_pair_run(pair, 1);
	assert_int_equal(snt_cq_poll_index(cq, 1, wc, 4), 0);
	assert_int_equal(lane_info(pair, 0, 0).under_way, 2);
	assert_int_equal(lane_info(pair, 0, 1).under_way, 0);
	/* Those of the other have only waited for these. */
	assert_int_equal(snt_cq_poll_index(cq, 0, wc, 1), 1);
	assert_int_equal(wc[0].wr_id, 0);
	assert_int_equal(snt_cq_poll_index(cq, 1, wc, 4), 1);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(snt_cq_poll_index(cq, 0, wc, 4), 2);
	assert_int_equal(wc[1].wr_id, 3);
	vqp_pair_close(pair);
}

/* Two QPs that pass on, each on a device of its own, with more than enough to report:
 * none has to wait for the other to run dry. */
static void a_busy_cq_does_not_starve_another(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .devices = 1 };
	struct vqp_pair *pair = vqp_pair_open(2, &opts);
	struct snt_qp *other[2];
	struct snt_card card[2];
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 8);
	unsigned count[2] = { 0, 0 };
	struct snt_wc wc;

	(void)state;
	opts.devices = 2;
	for (unsigned i = 0; i < 2; i++) {
		opts.cq = pair->end[i].cq;
		assert_success(snt_qp_create(pair->end[i].ctx, &opts, &other[i]));
		assert_success(snt_qp_card(other[i], &card[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(other[i], &card[!i]));
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		assert_int_equal(snt_qp_post_send(other[0], &wr, 1), 1);
	}
	vqp_pair_run(pair, 1);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(snt_cq_poll_one(pair->end[0].cq, &wc), 1);
		count[wc.qp_num == snt_qp_num(other[0])]++;
	}
	assert_int_equal(count[0], 10);
	assert_int_equal(count[1], 10);
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_qp_close(other[i], 7));
		do
			wc = vqp_poll(pair, i);
		while (wc.opcode != SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(other[i]));
	}
	vqp_pair_close(pair);
}

/* A device that cannot be polled says so, unless there is something to report; what
 * comes later comes all the same. */
static void a_failed_poll_is_reported_in_its_turn(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_cq *cq = pair->end[0].cq;
	struct sink sink = { pair, 0, 0 };
	struct snt_wc wc[8];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		scripted_fail_poll(snt_cq_physical(cq, i, NULL), 1);
		assert_error(snt_cq_poll_index(cq, i, wc, 8), EIO,
			     i ? "scripted1" : "scripted0");
		assert_int_equal(snt_cq_poll_index(cq, i, wc, 8), 0);
		scripted_fail_poll(snt_cq_physical(cq, i, NULL), 1);
		assert_error(snt_cq_poll_each(cq, 8, count_one, &sink), EIO, "");
		scripted_fail_poll(snt_cq_physical(cq, i, NULL), 1);
		assert_error(snt_cq_poll(cq, wc, 8), EIO, "cannot be polled");
	}
	/* The first succeeds, the second fails: with and without a function. */
	for (unsigned i = 0; i < 4; i++) {
		send_wr(pair, SNT_OP_WRITE, i, 1);
		vqp_pair_run(pair, 1);
		scripted_fail_poll(snt_cq_physical(cq, 1, NULL), i % 2 ? 2 : 1);
		for (unsigned tries = 0; sink.count == i && tries < 4; tries++) {
			int ret = snt_cq_poll_each(cq, 8, count_one, &sink);

			assert_true(ret == 1 || ret == 0 || ret == -EIO);
		}
		assert_int_equal(sink.count, i + 1);
		scripted_fail_poll(snt_cq_physical(cq, 1, NULL), 0);
	}
	vqp_pair_close(pair);
}

/* WRs from 0 on in one call, so that few CQEs stand for many of them. */
static void send_together(struct vqp_pair *pair, unsigned count)
{
	struct snt_send_wr wr[32];
	struct snt_sge sge[32];

	for (unsigned i = 0; i < count; i++) {
		wr[i] = vqp_wr(pair, 0, &sge[i], SNT_OP_WRITE, 0, 8);
		wr[i].wr_id = i;
	}
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, count), (int)count);
	vqp_pair_run(pair, 1);
}

/* What is known already is reported, and the failure next time. */
static void a_failed_poll_hides_nothing(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 1 };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_cq *cq = pair->end[0].cq;
	struct ibv_cq *physical = snt_cq_physical(cq, 0, NULL);
	struct sink sink = { pair, 0, 0 };
	struct snt_wc wc[8];

	(void)state;
	send_together(pair, 4);
	assert_int_equal(snt_cq_poll_one(cq, wc), 1);
	scripted_fail_poll(physical, 1);
	assert_int_equal(snt_cq_poll_index(cq, 0, wc, 8), 3);
	assert_int_equal(wc[2].wr_id, 3);
	send_together(pair, 32);
	scripted_fail_poll(physical, 2);
	assert_int_equal(snt_cq_poll_each(cq, 1000, count_one, &sink), 32);
	scripted_fail_poll(physical, 1);
	assert_error(snt_cq_poll_each(cq, 1000, count_one, &sink), EIO, "scripted0");
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

/*
 * What they say
 */

static void a_success_says_no_more_than_it_knows(void **state)
{
	(void)state;
	for (unsigned scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(2, 4, scheme);
		struct snt_wc wc, due;

		post_notify(pair, 1, 5);
		send_wr(pair, SNT_OP_WRITE_IMM, 7, 6);
		memset(&wc, 0xff, sizeof(wc));
		wc = vqp_poll(pair, 0);
		due = (struct snt_wc){ .wr_id = 7,
				       .length = 6 * FRAGMENT,
				       .qp_num = snt_qp_num(pair->end[0].qp),
				       .opcode = SNT_OP_WRITE_IMM };
		assert_memory_equal(&wc, &due, offsetof(struct snt_wc, status) + 1);
		wc = vqp_poll(pair, 1);
		due = (struct snt_wc){
			.wr_id = 5,
			.length = scheme == SNT_SCHEME_DQPLB ? 6 * FRAGMENT : 0,
			.qp_num = snt_qp_num(pair->end[1].qp),
			.imm = 7,
			.flags = SNT_WC_WITH_IMM |
				 (scheme == SNT_SCHEME_DQPLB ? 0
							     : SNT_WC_LENGTH_UNKNOWN),
			.opcode = SNT_OP_RECV_NOTIFY
		};
		assert_memory_equal(&wc, &due, offsetof(struct snt_wc, status) + 1);
		vqp_pair_close(pair);
	}
}

static void a_failure_names_its_lane_and_device(void **state)
{
	(void)state;
	for (unsigned lane = 0; lane < 4; lane++) {
		struct vqp_pair *pair = open_pair(2, 4, SNT_SCHEME_SPRAY);
		struct snt_wc wc;

		send_wr(pair, SNT_OP_WRITE, 7, 4);
		scripted_complete(lane_qp(pair, 0, lane), IBV_WC_REM_ACCESS_ERR);
		wc = expect(pair, 0, 7, SNT_OP_WRITE, SNT_WC_REM_ACCESS_ERR);
		assert_int_equal(wc.lane, lane);
		assert_int_equal(wc.device, lane % 2);
		assert_int_equal(wc.length, 4 * FRAGMENT);
		assert_int_equal(lane_info(pair, 0, lane).errors, 1);
		vqp_pair_close(pair);
	}
}

static void every_status_has_words(void **state)
{
	(void)state;
	for (unsigned status = 0; status < 300; status++) {
		assert_non_null(snt_status_text(status));
		assert_true(strlen(snt_status_text(status)) > 3);
	}
	assert_string_equal(snt_status_text(SNT_WC_SUCCESS), "success");
	assert_string_not_equal(snt_status_text(SNT_WC_FLUSHED),
				snt_status_text(SNT_WC_RETRY_EXC_ERR));
}

/*
 * Whose they are
 */

struct strays {
	unsigned count;
	unsigned device;
	struct ibv_wc last;
};

static void keep_stray(void *arg, unsigned device, const struct ibv_wc *wc)
{
	struct strays *strays = arg;

	strays->count++;
	strays->device = device;
	strays->last = *wc;
}

/* A plain WR on a lane, which the library knows nothing of. */
static void post_plain(struct vqp_pair *pair, unsigned lane, uint64_t wr_id)
{
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(lane_qp(pair, 0, lane), &wr, &bad), 0);
	vqp_pair_run(pair, 1);
}

static void completions_of_no_wr_are_strays(void **state)
{
	struct vqp_pair *pair = open_pair(2, 2, SNT_SCHEME_SPRAY);
	struct snt_cq *cq = pair->end[0].cq;
	struct strays strays = { 0 };

	(void)state;
	send_wr(pair, SNT_OP_WRITE, 1, 2);
	assert_int_equal(snt_cq_stray_count(cq), 0);
	post_plain(pair, 0, 77);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	assert_int_equal(snt_cq_stray_count(cq), 1);
	snt_cq_set_stray_handler(cq, keep_stray, &strays);
	assert_int_equal(strays.count, 0);
	/* Numbers near to ours: a sequence that was not sent, another kind. */
	for (unsigned i = 0; i < 8; i++) {
		static const uint64_t xors[] = { 1u << 31, UINT64_C(1) << 63,
						 UINT64_C(1) << 40, UINT64_C(1) << 32,
						 0 };
		struct scripted_send sent;

		send_wr(pair, SNT_OP_WRITE, 2, 2);
		assert_int_equal(scripted_peek(lane_qp(pair, 0, 1), 0, &sent), 0);
		post_plain(pair, 1, sent.wr.wr_id ^ xors[i % 5]);
		expect(pair, 0, 2, SNT_OP_WRITE, SNT_WC_SUCCESS);
		vqp_expect_none(pair, 0);
		assert_int_equal(strays.count, i + 1);
		assert_int_equal(strays.device, 1);
		assert_true(strays.last.wr_id == (sent.wr.wr_id ^ xors[i % 5]));
	}
	assert_int_equal(snt_cq_stray_count(cq), 9);
	vqp_pair_close(pair);
}

/* A QP of the program's own on a CQ of the virtual one. */
static void completions_of_other_qps_are_strays(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_adopted device = scripted_adopted(pair->end[0].device[0]);
	struct ibv_cq *cq = snt_cq_physical(pair->end[0].cq, 0, NULL);
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr recv = { .wr_id = 5 }, *bad;
	struct strays strays = { 0 };
	struct ibv_qp *qp;

	(void)state;
	assert_success(device.control->create_qp(device.pd, &attr, &qp));
	assert_success(device.control->modify_qp(qp, &init,
						 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
							 IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS));
	assert_int_equal(ibv_post_recv(qp, &recv, &bad), 0);
	assert_success(device.control->modify_qp(qp, &err, IBV_QP_STATE));
	snt_cq_set_stray_handler(pair->end[0].cq, keep_stray, &strays);
	vqp_expect_none(pair, 0);
	assert_int_equal(strays.count, 1);
	assert_int_equal(strays.last.qp_num, qp->qp_num);
	assert_success(device.control->destroy_qp(qp));
	vqp_pair_close(pair);
}

/*
 * Handing over
 */

static int poll_physical(struct vqp_pair *pair, unsigned end, unsigned index,
			 struct ibv_wc *wc, int max)
{
	return ibv_poll_cq(snt_cq_physical(pair->end[end].cq, index, NULL), max, wc);
}

/* All kinds of QPs, with nothing but handing over, also until closed. */
static void a_program_that_polls_by_itself(void **state)
{
	static const struct snt_qp_opts shapes[] = {
		{ .flags = SNT_QP_PASS_THROUGH },
		{ .lanes = 1 },
		{ .lanes = 4 },
		{ .lanes = 4, .scheme = SNT_SCHEME_DQPLB, .lane_depth = 8 },
	};

	(void)state;
	for (unsigned shape = 0; shape < ARRAY_SIZE(shapes); shape++) {
		struct snt_qp_opts opts = shapes[shape];
		unsigned sends = 0, recvs = 0, closed = 0;
		struct vqp_pair *pair;

		opts.size = sizeof(opts);
		pair = vqp_pair_open(2, &opts);
		for (unsigned i = 0; i < 8; i++)
			post_notify(pair, 1, i);
		for (unsigned i = 0; i < 8; i++)
			send_wr(pair, SNT_OP_WRITE_IMM, i, 2);
		for (unsigned round = 0; round < 400 && closed < 2; round++) {
			unsigned end = round % 2, index = round / 2 % 2;
			struct ibv_wc physical[4];
			struct snt_wc wc[4];
			int count = 0;

			if (index < snt_cq_count(pair->end[end].cq))
				count = poll_physical(pair, end, index, physical, 4);
			count = snt_qp_complete(pair->end[end].qp, index, physical,
						count, wc, 4);
			assert_success(count);
			for (int i = 0; i < count; i++) {
				assert_int_equal(wc[i].status, SNT_WC_SUCCESS);
				if (wc[i].opcode == SNT_OP_CLOSED)
					closed++;
				else
					assert_int_equal(wc[i].wr_id,
							 end ? recvs++ : sends++);
			}
			vqp_pair_run(pair, round);
			if (round == 200)
				for (unsigned i = 0; i < 2; i++)
					assert_success(
						snt_qp_close(pair->end[i].qp, 9));
		}
		assert_int_equal(sends, 8);
		assert_int_equal(recvs, 8);
		assert_int_equal(closed, 2);
		vqp_pair_close(pair);
	}
}

/* It keeps nothing, so what it is given must fit. */
static void a_passing_lane_needs_room_for_all(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct ibv_wc physical[4];
	struct snt_wc wc[4];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	vqp_pair_run(pair, 1);
	assert_int_equal(poll_physical(pair, 0, 0, physical, 4), 3);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, physical, 3, wc, 2),
			 -EINVAL);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, physical, 1, wc, 1), 1);
	assert_int_equal(wc[0].wr_id, 0);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, physical + 1, 2, wc, 4),
			 2);
	assert_int_equal(wc[1].wr_id, 2);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, NULL, 0, wc, 4), 0);
	vqp_pair_close(pair);
}

/* What was handed over and did not fit is not lost to an ordinary poll either; and a
 * CQE of a WR that is long gone is a stray there as well. */
static void handing_over_and_polling_mix(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct ibv_wc physical[8];
	struct snt_wc wc[8];
	int count;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		send_wr(pair, SNT_OP_WRITE, i, 1);
	vqp_pair_run(pair, 1);
	count = poll_physical(pair, 0, 0, physical, 8);
	assert_true(count >= 2);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, physical, count, wc, 1),
			 1);
	assert_int_equal(snt_cq_poll(pair->end[0].cq, wc, 2), 2);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, NULL, 0, wc, 2), 1);
	assert_int_equal(wc[0].wr_id, 3);
	assert_int_equal(snt_qp_complete(pair->end[0].qp, 0, physical, count, wc, 8),
			 0);
	assert_int_equal(snt_cq_stray_count(pair->end[0].cq), count);
	vqp_pair_close(pair);
}

/* A second QP at each end, which passes WRs on, on the CQs of the first. */
static void add_second_qps(struct vqp_pair *pair, struct snt_qp *second[2])
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH };
	struct snt_card card[2];

	for (unsigned i = 0; i < 2; i++) {
		opts.cq = pair->end[i].cq;
		assert_success(snt_qp_create(pair->end[i].ctx, &opts, &second[i]));
		assert_success(snt_qp_card(second[i], &card[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(second[i], &card[!i]));
}

static void post_on_both(struct vqp_pair *pair, struct snt_qp *second)
{
	for (unsigned i = 0; i < 3; i++) {
		struct snt_sge sge;
		struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 8);

		wr.wr_id = i;
		wr.flags = SNT_SEND_SIGNALED;
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		assert_int_equal(snt_qp_post_send(second, &wr, 1), 1);
	}
}

static void close_and_destroy(struct vqp_pair *pair, unsigned end, struct snt_qp *qp)
{
	struct ibv_wc physical[8];
	struct snt_wc wc[8];
	int count = 0;

	assert_success(snt_qp_close(qp, 77));
	for (unsigned round = 0; round < 100 && !count; round++) {
		vqp_pair_run(pair, round);
		count = poll_physical(pair, end, 0, physical, 8);
		count = snt_cq_complete(pair->end[end].cq, 0, physical, (unsigned)count,
					wc, 8);
	}
	assert_int_equal(count, 1);
	assert_int_equal(wc[0].opcode, SNT_OP_CLOSED);
	assert_int_equal(wc[0].wr_id, 77);
	assert_success(snt_qp_destroy(qp));
}

static void completions_of_several_qps(void **state)
{
	struct vqp_pair *pair = open_pair(1, 2, SNT_SCHEME_SPRAY);
	struct snt_cq *cq = pair->end[0].cq;
	unsigned reported[2] = { 0 }, singles = 0;
	struct ibv_wc physical[16], stray = { 0 };
	struct snt_qp *second[2], *owner;
	struct snt_wc wc[16];
	int count;

	(void)state;
	add_second_qps(pair, second);
	post_on_both(pair, second[0]);
	vqp_pair_run(pair, 1);
	count = poll_physical(pair, 0, 0, physical, 15);
	for (int i = 0; i < count; i++) {
		owner = snt_cq_find_qp(cq, 0, physical[i].qp_num);
		assert_true(owner == second[0] || owner == pair->end[0].qp);
		singles += owner == second[0];
	}
	assert_int_equal(singles, 3);
	assert_null(snt_cq_find_qp(cq, 1, physical[0].qp_num));
	assert_null(snt_cq_find_qp(cq, 0, 0xabcdef));
	assert_error(snt_cq_complete(cq, 0, physical, (unsigned)count, wc, 2), EINVAL,
		     "3 of the completions are of QPs that keep none");
	/* A stray is counted, as in polling; what does not fit comes the next time. */
	stray.qp_num = 0xabcdef;
	physical[count++] = stray;
	count = snt_cq_complete(cq, 0, physical, (unsigned)count, wc, 4);
	assert_int_equal(count, 4);
	assert_int_equal(snt_cq_stray_count(cq), 1);
	count += snt_cq_complete(cq, 0, NULL, 0, wc + 4, 12);
	assert_int_equal(count, 6);
	for (int i = 0; i < count; i++) {
		bool is_second = wc[i].qp_num == snt_qp_num(second[0]);

		assert_int_equal(wc[i].status, SNT_WC_SUCCESS);
		assert_int_equal(wc[i].wr_id, reported[is_second]++);
	}
	assert_int_equal(reported[1], 3);
	for (unsigned i = 0; i < 2; i++)
		close_and_destroy(pair, i, second[i]);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_poll_for_no_completions_returns_0),
		cmocka_unit_test(a_function_gets_each_completion),
		cmocka_unit_test(a_function_may_close),
		cmocka_unit_test(one_physical_cq_can_be_polled_alone),
		cmocka_unit_test(a_busy_cq_does_not_starve_another),
		cmocka_unit_test(a_failed_poll_is_reported_in_its_turn),
		cmocka_unit_test(a_failed_poll_hides_nothing),
		cmocka_unit_test(a_success_says_no_more_than_it_knows),
		cmocka_unit_test(a_failure_names_its_lane_and_device),
		cmocka_unit_test(every_status_has_words),
		cmocka_unit_test(completions_of_no_wr_are_strays),
		cmocka_unit_test(completions_of_other_qps_are_strays),
		cmocka_unit_test(a_program_that_polls_by_itself),
		cmocka_unit_test(a_passing_lane_needs_room_for_all),
		cmocka_unit_test(handing_over_and_polling_mix),
		cmocka_unit_test(completions_of_several_qps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
