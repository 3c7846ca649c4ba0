/* SPDX-License-Identifier: MIT */
/*
 * Devices that are not as usual: without a control table or with parts of one,
 * InfiniBand, without a GID; and whether options arrive at the device at all.
 */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/devices/vqp_pair.h"
#include "lib/rc.h"

#define BYTES 4096

static const unsigned access_all = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				   SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC;

/* One end on one device, with as much of a control table as is given. */
struct end {
	struct scripted_device *device;
	const struct snt_control *control; /* the whole one */
	struct snt_ctx *ctx;
	struct ibv_cq *own_cq;
	struct ibv_mr *own_mr;
	struct ibv_qp *own_qp[3];
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char bytes[BYTES];
};

static int no_random(void *arg, void *buffer, size_t size)
{
	unsigned *left = arg;

	memset(buffer, 5, size);
	return (*left)-- ? 0 : -ENOSYS;
}

static struct snt_ctx *open_ctx(struct scripted_device *device,
				const struct snt_control *control,
				unsigned *random_left)
{
	struct snt_adopted adopted = scripted_adopted(device);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1,
				     .random = random_left ? no_random : NULL,
				     .random_arg = random_left };
	struct snt_ctx *ctx;

	adopted.control = control;
	assert_success(snt_ctx_create(&opts, &ctx));
	return ctx;
}

/*
 * Without a table
 */

static void to_init(const struct end *end, unsigned lane)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	assert_success(end->control->modify_qp(end->own_qp[lane], &init,
					       rc_mask(IBV_QPS_INIT)));
}

/* CQ, memory and QPs by the program's own hand, QPs in INIT. */
static void make_own(struct end *end)
{
	struct snt_adopted device = scripted_adopted(end->device);
	struct ibv_qp_init_attr attr = { .cap = { 200, 200, 4, 4, 0 },
					 .qp_type = IBV_QPT_RC };

	end->control = device.control;
	assert_success(device.control->create_cq(device.context, 4000, NULL, NULL, 0,
						 &end->own_cq));
	assert_success(
		device.control->reg_mr(device.pd, end->bytes, BYTES,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				       &end->own_mr));
	attr.send_cq = attr.recv_cq = end->own_cq;
	for (unsigned i = 0; i < 3; i++) {
		assert_success(
			device.control->create_qp(device.pd, &attr, &end->own_qp[i]));
		to_init(end, i);
	}
}

static void free_own(struct end *end)
{
	for (unsigned i = 0; i < 3; i++)
		assert_success(end->control->destroy_qp(end->own_qp[i]));
	assert_success(end->control->destroy_cq(end->own_cq));
	assert_success(end->control->dereg_mr(end->own_mr));
}

static void what_needs_a_table_says_so(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct end end = { .device = scripted_device_create(fabric, NULL) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
	struct ibv_cq *none = NULL;
	struct snt_card card;

	(void)state;
	make_own(&end);
	end.ctx = open_ctx(end.device, NULL, NULL);
	assert_success(snt_cq_create(end.ctx, NULL, &end.cq));
	opts.cq = end.cq;
	assert_error(snt_qp_create(end.ctx, &opts, &end.qp), EOPNOTSUPP,
		     "give its CQ in snt_cq_opts.adopted");
	assert_success(snt_cq_destroy(end.cq));

	cq_opts.adopted = &none;
	assert_error(snt_cq_create(end.ctx, &cq_opts, &end.cq), EINVAL, "is NULL");
	cq_opts.adopted = &end.own_cq;
	assert_success(snt_cq_create(end.ctx, &cq_opts, &end.cq));
	opts.cq = end.cq;
	assert_error(snt_qp_create(end.ctx, &opts, &end.qp), EOPNOTSUPP, "adopt them");
	opts.adopted = end.own_qp;
	opts.adopted_devices = (const unsigned[]){ 0, 0, 0 };
	opts.adopted_count = 3;
	assert_success(snt_qp_create(end.ctx, &opts, &end.qp));
	assert_error(snt_qp_card(end.qp, &card), EOPNOTSUPP, "address is not known");
	assert_error(snt_qp_reset(end.qp), EOPNOTSUPP, "scripted0");
	assert_success(snt_qp_destroy(end.qp));
	assert_success(snt_cq_destroy(end.cq));
	assert_success(snt_ctx_destroy(end.ctx));
	free_own(&end);
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/* Each function that is missing alone is missed at once, and nothing stays behind. */
static void parts_of_a_table_are_missed_by_name(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device = scripted_device_create(fabric, NULL);

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct snt_control part = *scripted_adopted(device).control;
		struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
		struct snt_cq *cq = NULL;
		struct snt_qp *qp = NULL;
		struct snt_ctx *ctx;

		if (i == 0)
			part.create_qp = NULL;
		else if (i == 1)
			part.modify_qp = NULL;
		else
			part.create_cq = NULL;
		ctx = open_ctx(device, &part, NULL);
		assert_error(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp),
			     EOPNOTSUPP, "scripted0");
		assert_null(cq);
		assert_null(qp);
		assert_success(snt_ctx_destroy(ctx));
	}
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/*
 * Not as usual
 */

static void open_end(struct end *end, struct scripted_device *device,
		     const struct snt_qp_opts *given)
{
	struct snt_qp_opts opts = *given;

	end->device = device;
	end->control = scripted_adopted(device).control;
	end->ctx = open_ctx(device, end->control, NULL);
	assert_success(
		snt_mem_register(end->ctx, end->bytes, BYTES, access_all, &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	assert_success(snt_cq_create(end->ctx, NULL, &end->cq));
	opts.size = sizeof(opts);
	opts.cq = end->cq;
	assert_success(snt_qp_create(end->ctx, &opts, &end->qp));
}

static void poll_until(struct scripted_fabric *fabric, struct end *end, unsigned opcode)
{
	struct snt_wc wc = { 0 };

	for (unsigned i = 0; wc.opcode != opcode; i++) {
		assert_true(i < 1000);
		scripted_run(fabric, i);
		assert_success(snt_cq_poll(end->cq, &wc, 1));
		assert_true(!wc.status ||
			    (opcode == SNT_OP_CLOSED && wc.status == SNT_WC_FLUSHED));
	}
}

static void write_across(struct scripted_fabric *fabric, struct end *end)
{
	struct snt_sge sge = { end[0].mem, end[0].bytes, BYTES };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &end[1].token,
				  .remote_addr = end[1].token.addr };

	memset(end[0].bytes, 0x3c, BYTES);
	assert_int_equal(snt_qp_post_send(end[0].qp, &wr, 1), 1);
	poll_until(fabric, &end[0], SNT_OP_WRITE);
	assert_memory_equal(end[0].bytes, end[1].bytes, BYTES);
}

static void close_end(struct scripted_fabric *fabric, struct end *end)
{
	assert_success(snt_qp_close(end->qp, 1));
	poll_until(fabric, end, SNT_OP_CLOSED);
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_ctx_destroy(end->ctx));
}

static void close_both(struct scripted_fabric *fabric, struct end *end)
{
	close_end(fabric, &end[0]);
	close_end(fabric, &end[1]);
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void connect_both(struct end *end)
{
	struct snt_card card[2];

	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_card(end[i].qp, &card[i]));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_connect(end[i].qp, &card[!i]));
}

/* With a GID or without. */
static void infiniband_goes_by_lids(void **state)
{
	static const struct ibv_gid_entry none;
	struct scripted_device_opts device = { .link_layer =
						       IBV_LINK_LAYER_INFINIBAND };
	const struct snt_qp_opts opts = { .lanes = 3, .fragment_size = 256 };

	(void)state;
	for (unsigned gids = 0; gids < 2; gids++) {
		struct scripted_fabric *fabric = scripted_fabric_create(1);
		static struct end end[2];
		struct snt_card card;

		device.gids = gids ? NULL : &none;
		device.gid_count = !gids;
		for (unsigned i = 0; i < 2; i++)
			open_end(&end[i], scripted_device_create(fabric, &device),
				 &opts);
		assert_success(snt_qp_card(end[1].qp, &card));
		assert_int_equal(card.device[0].link, SNT_LINK_INFINIBAND);
		assert_int_not_equal(card.device[0].lid, 0);
		connect_both(end);
		write_across(fabric, end);
		close_both(fabric, end);
	}
}

struct seen {
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
};

static struct seen look(const struct end *end, unsigned lane)
{
	struct snt_lane_info info = { .size = sizeof(info) };
	struct seen seen;

	assert_success(snt_qp_query_lane(end->qp, lane, &info));
	assert_success(
		end->control->query_qp(info.qp, &seen.attr, 0x1fffff, &seen.init));
	return seen;
}

/* Every option, and the lesser of both ends where they are to agree. */
static void options_arrive_at_the_device(void **state)
{
	static const uint32_t labels[] = { 0x11111, 0xabcde };
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct snt_qp_opts opts = {
		.lanes = 2,
		.lane_depth = 17,
		.recv_depth = 23,
		.send_sge_max = 3,
		.recv_sge_max = 2,
		.inline_max = 48,
		.mtu = 1024,
		.traffic_class = 104,
		.service_level = 5,
		.hop_limit = 9,
		.timeout = 18,
		.retry_count = 3,
		.rnr_retry_count = 2,
		.rnr_timer = 20,
		.read_depth = 7,
		.flow_labels = labels,
	};
	static struct end end[2];

	(void)state;
	open_end(&end[0], scripted_device_create(fabric, NULL), &opts);
	opts.mtu = 2048;
	opts.read_depth = 4;
	open_end(&end[1], scripted_device_create(fabric, NULL), &opts);
	connect_both(end);
	for (unsigned lane = 0; lane < 3; lane++) {
		struct seen seen = look(&end[0], lane);
		const struct ibv_ah_attr *ah = &seen.attr.ah_attr;

		assert_in_range(seen.init.cap.max_send_wr, 17, 32);
		assert_in_range(seen.init.cap.max_recv_wr, 0, 32);
		assert_int_equal(seen.init.cap.max_send_sge, 3);
		assert_int_equal(seen.init.cap.max_recv_sge, 2);
		assert_true(seen.init.cap.max_inline_data >= 48);
		assert_int_equal(seen.init.sq_sig_all, 0);
		assert_int_equal(seen.attr.qp_state, IBV_QPS_RTS);
		assert_int_equal(seen.attr.path_mtu, IBV_MTU_1024);
		assert_int_equal(ah->grh.traffic_class, 104);
		assert_int_equal(ah->grh.hop_limit, 9);
		assert_int_equal(ah->grh.flow_label, labels[lane % 2]);
		assert_int_equal(ah->sl, 5);
		assert_int_equal(seen.attr.timeout, 18);
		assert_int_equal(seen.attr.retry_cnt, 3);
		assert_int_equal(seen.attr.rnr_retry, 2);
		assert_int_equal(seen.attr.min_rnr_timer, 20);
		assert_int_equal(seen.attr.max_rd_atomic, 4);
		assert_int_equal(seen.attr.max_dest_rd_atomic, 4);
	}
	write_across(fabric, end);
	close_both(fabric, end);
}

/* Each QP and each lane has its own where nothing is said. */
static void defaults_arrive_at_the_device(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	const struct snt_qp_opts opts = { .lanes = 4 };
	static struct end end[2];
	uint32_t labels[5];

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		open_end(&end[i], scripted_device_create(fabric, NULL), &opts);
	connect_both(end);
	for (unsigned lane = 0; lane < 5; lane++) {
		struct seen seen = look(&end[0], lane);

		assert_int_equal(seen.attr.path_mtu, IBV_MTU_4096);
		assert_int_equal(seen.attr.ah_attr.grh.hop_limit, 64);
		assert_int_equal(seen.attr.timeout, 14);
		assert_int_equal(seen.attr.retry_cnt, 7);
		assert_int_equal(seen.attr.rnr_retry, 7);
		assert_int_equal(seen.attr.min_rnr_timer, 12);
		assert_int_equal(seen.attr.max_rd_atomic, 16);
		labels[lane] = seen.attr.ah_attr.grh.flow_label;
		assert_in_range(labels[lane], 0, 0xfffff);
		for (unsigned i = 0; i < lane; i++)
			assert_int_not_equal(labels[i], labels[lane]);
	}
	close_both(fabric, end);
}

static void without_random_numbers_there_is_no_qp(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device = scripted_device_create(fabric, NULL);
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
	unsigned left, tries = 0;
	int ret;

	(void)state;
	do {
		unsigned allowed = left = tries++;
		struct snt_ctx *ctx =
			open_ctx(device, scripted_adopted(device).control, &left);
		struct snt_cq *cq = NULL;
		struct snt_qp *qp = NULL;

		ret = snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp);
		if (ret) {
			assert_error(ret, ENOSYS, "no random numbers");
			assert_null(qp);
		} else {
			assert_true(allowed > 1);
			assert_success(snt_qp_destroy(qp));
			assert_success(snt_cq_destroy(cq));
		}
		assert_success(snt_ctx_destroy(ctx));
		assert_int_equal(scripted_live(device, SCRIPTED_QP), 0);
	} while (ret && tries < 20);
	assert_success(ret);
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/* The device's longest message is the limit of what is not cut. */
static void a_message_is_as_long_as_the_device_can(void **state)
{
	const struct scripted_device_opts device = { .message_max = 1024 };
	const struct snt_qp_opts opts = { .flags = SNT_QP_PASS_THROUGH,
					  .fragment_size = 256 };
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	static struct end end[2];
	struct snt_sge sge;
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1 };

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		open_end(&end[i], scripted_device_create(fabric, &device), &opts);
	connect_both(end);
	wr.remote = &end[1].token;
	wr.remote_addr = end[1].token.addr;
	sge = (struct snt_sge){ end[0].mem, end[0].bytes, 1025 };
	assert_int_equal(snt_qp_post_send(end[0].qp, &wr, 1), -EMSGSIZE);
	sge.length = 1024;
	assert_int_equal(snt_qp_post_send(end[0].qp, &wr, 1), 1);
	poll_until(fabric, &end[0], SNT_OP_WRITE);
	close_both(fabric, end);
}

/* As many lanes as there can be, and one more. */
static void there_is_a_greatest_number_of_lanes(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device = scripted_device_create(fabric, NULL);
	struct snt_ctx *ctx = open_ctx(device, scripted_adopted(device).control, NULL);
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 128,
				    .lane_depth = 4,
				    .recv_depth = 4,
				    .notify_lanes = 32 };
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp));
	assert_int_equal(scripted_live(device, SCRIPTED_QP), SNT_LANES_MAX);
	assert_success(snt_qp_destroy(qp));
	opts.cq = cq;
	opts.notify_lanes = 33;
	assert_error(snt_qp_create(ctx, &opts, &qp), EINVAL, "");
	/* Too many that are adopted are not looked at. */
	opts = (struct snt_qp_opts){ .size = sizeof(opts),
				     .cq = cq,
				     .adopted = (struct ibv_qp *const[]){ NULL },
				     .adopted_devices = (const unsigned[]){ 0 },
				     .adopted_count = SNT_LANES_MAX + 1 };
	assert_error(snt_qp_create(ctx, &opts, &qp), EINVAL, "161 lanes are more");
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/* A CQ is made no deeper than the device can, unless it was asked for. */
static void a_default_depth_fits_the_device(void **state)
{
	const struct scripted_device_opts small = { .cqe_max = 300 };
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device = scripted_device_create(fabric, &small);
	struct snt_ctx *ctx = open_ctx(device, scripted_adopted(device).control, NULL);
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 2 };
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp));
	assert_in_range(snt_cq_physical(cq, 0, NULL)->cqe, 1, 300);
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/* Lanes that the program connects and, in the end, puts to ERR by itself. */
static void to_rts(const struct end *end, unsigned lane, const struct snt_card *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer->lane[lane].qp_num,
				    .rq_psn = peer->lane[lane].psn,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12 };

	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.hop_limit = 64;
	memcpy(attr.ah_attr.grh.dgid.raw, peer->device[0].gid, 16);
	assert_success(end->control->modify_qp(end->own_qp[lane], &attr,
					       rc_mask(IBV_QPS_RTR)));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = lane,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	assert_success(end->control->modify_qp(end->own_qp[lane], &attr,
					       rc_mask(IBV_QPS_RTS)));
}

/* The card that a program without a table makes: the peer's, with its own lanes. */
static struct snt_card make_card(const struct end *end, const struct snt_card *peer)
{
	struct snt_card card = *peer;
	struct ibv_gid_entry gid;

	assert_success(end->control->query_gid(scripted_adopted(end->device).context, 1,
					       0, &gid));
	memcpy(card.device[0].gid, gid.gid.raw, sizeof(gid.gid.raw));
	card.generation ^= 2;
	for (unsigned i = 0; i < 3; i++) {
		card.lane[i].qp_num = end->own_qp[i]->qp_num;
		card.lane[i].psn = i;
	}
	return card;
}

static void open_bare(struct end *end, struct scripted_device *device,
		      const struct snt_control *control,
		      const struct snt_qp_opts *given)
{
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_qp_opts opts = *given;

	end->device = device;
	make_own(end);
	end->ctx = open_ctx(device, control, NULL);
	cq_opts.adopted = &end->own_cq;
	assert_success(snt_cq_create(end->ctx, &cq_opts, &end->cq));
	assert_success(snt_mem_adopt(end->ctx, &end->own_mr, 1, (uintptr_t)end->bytes,
				     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				     &end->mem));
	opts.size = sizeof(opts);
	opts.cq = end->cq;
	opts.adopted = end->own_qp;
	opts.adopted_devices = (const unsigned[]){ 0, 0, 0 };
	opts.adopted_count = 3;
	assert_success(snt_qp_create(end->ctx, &opts, &end->qp));
}

/* A receive that is refused fails the connection, and lanes are RESET by hand. */
static void expect_undone(struct end *end, const struct snt_card *peer)
{
	struct scripted_post_fault fault = { .kind = SCRIPTED_POST_RECV, .error = EIO };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct snt_recv_wr recv = { .wr_id = 3 };

	assert_int_equal(snt_qp_post_recv(end->qp, &recv, 1), 1);
	scripted_fail_post(end->device, &fault);
	assert_error(snt_qp_connect_adopted(end->qp, peer), EIO,
		     "receives cannot be posted");
	for (unsigned i = 0; i < 3; i++) {
		assert_success(
			end->control->modify_qp(end->own_qp[i], &reset, IBV_QP_STATE));
		to_init(end, i);
	}
}

static void f6_a_qp_without_a_table_lives_and_ends(void **state)
{
	const struct snt_qp_opts opts = { .lanes = 2, .fragment_size = 256 };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };

	(void)state;
	for (unsigned order = 0; order < 2; order++) {
		struct scripted_fabric *fabric = scripted_fabric_create(1);
		struct scripted_device *device = scripted_device_create(fabric, NULL);
		struct snt_control part = *scripted_adopted(device).control;
		static struct end end[2];
		struct snt_card card[2];

		/* Or with one that cannot do this. */
		part.modify_qp = NULL;
		open_bare(&end[0], device, order ? &part : NULL, &opts);
		open_end(&end[1], scripted_device_create(fabric, NULL), &opts);
		assert_success(snt_qp_card(end[1].qp, &card[1]));
		card[0] = make_card(&end[0], &card[1]);
		assert_success(snt_qp_connect(end[1].qp, &card[0]));
		assert_error(snt_qp_connect(end[0].qp, &card[1]), EOPNOTSUPP,
			     "connect its lanes yourself");
		expect_undone(&end[0], &card[1]);
		assert_success(snt_qp_connect_adopted(end[0].qp, &card[1]));
		for (unsigned i = 0; i < 3; i++)
			to_rts(&end[0], i, &card[1]);
		write_across(fabric, end);
		/* Before the call, or after it. */
		for (unsigned i = 0; i < 3 && order; i++)
			assert_success(end[0].control->modify_qp(end[0].own_qp[i], &err,
								 IBV_QP_STATE));
		assert_success(snt_qp_close(end[0].qp, 1));
		for (unsigned i = 0; i < 3 && !order; i++)
			assert_success(end[0].control->modify_qp(end[0].own_qp[i], &err,
								 IBV_QP_STATE));
		poll_until(fabric, &end[0], SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(end[0].qp));
		assert_success(snt_cq_destroy(end[0].cq));
		assert_success(snt_mem_release(end[0].mem));
		assert_success(snt_ctx_destroy(end[0].ctx));
		free_own(&end[0]);
		close_end(fabric, &end[1]);
		assert_int_equal(scripted_fabric_destroy(fabric), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f6_a_qp_without_a_table_lives_and_ends),
		cmocka_unit_test(what_needs_a_table_says_so),
		cmocka_unit_test(parts_of_a_table_are_missed_by_name),
		cmocka_unit_test(infiniband_goes_by_lids),
		cmocka_unit_test(options_arrive_at_the_device),
		cmocka_unit_test(defaults_arrive_at_the_device),
		cmocka_unit_test(without_random_numbers_there_is_no_qp),
		cmocka_unit_test(a_message_is_as_long_as_the_device_can),
		cmocka_unit_test(there_is_a_greatest_number_of_lanes),
		cmocka_unit_test(a_default_depth_fits_the_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
