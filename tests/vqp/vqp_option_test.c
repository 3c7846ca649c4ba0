/* SPDX-License-Identifier: MIT */
/* Options that are too large, too long or too short. */
#include "lib/vqp_kit.h"

static int try_qp(struct vqp_pair *pair, struct snt_qp_opts opts, struct snt_qp **qp)
{
	*qp = NULL;
	opts.size = sizeof(opts);
	opts.cq = pair->end[0].cq;
	return snt_qp_create(pair->end[0].ctx, &opts, qp);
}

static void a_product_of_options_does_not_wrap(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(2, NULL);
	struct vqp_end *end = pair->end;
	struct ibv_cq *own[2] = { snt_cq_physical(end->cq, 0, NULL),
				  snt_cq_physical(end->cq, 1, NULL) };
	struct snt_cq_opts opts = { .size = sizeof(opts), .per_device = 1u << 31 };
	struct snt_cq *cq = NULL;

	(void)state;
	assert_error(snt_cq_create(end->ctx, &opts, &cq), EINVAL,
		     "snt_cq_opts.per_device is 2147483648; it must be at most 4096");
	opts.adopted = own;
	assert_error(snt_cq_create(end->ctx, &opts, &cq), EINVAL, "per_device");
	assert_null(cq);
	opts.per_device = 4096;
	assert_success(snt_cq_create(end->ctx, &opts, &cq));
	assert_success(snt_cq_destroy(cq));
	vqp_pair_close(pair);
}

/* Labels that the lanes of end 0 have at their device. */
static uint32_t label_of(struct vqp_pair *pair, unsigned lane)
{
	struct snt_adopted device = scripted_adopted(pair->end[0].device[0]);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_success(device.control->query_qp(lane_qp(pair, 0, lane), &attr,
						IBV_QP_AV, &init));
	return attr.ah_attr.grh.flow_label;
}

/* Of more lanes than these the caller does not know. */
static void flow_labels_are_as_many_as_data_lanes(void **state)
{
	uint32_t *labels = malloc(2 * sizeof(*labels));
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 2,
				    .flow_labels = labels };
	struct vqp_pair *pair;

	(void)state;
	labels[0] = 0xfffff;
	labels[1] = 7;
	pair = vqp_pair_open(1, &opts);
	free(labels);
	assert_int_equal(label_of(pair, 0), 0xfffff);
	assert_int_equal(label_of(pair, 1), 7);
	assert_int_equal(label_of(pair, 2), 0xfffff);
	vqp_pair_close(pair);
}

/* Also when the peer has fewer lanes, so that fewer are in use. */
static void weights_are_as_many_as_were_made(void **state)
{
	const struct snt_qp_opts many = { .size = sizeof(many), .lanes = 4 };
	const struct snt_qp_opts few = { .size = sizeof(few), .lanes = 2 };
	struct vqp_pair *pair =
		vqp_pair_make((const unsigned[]){ 1, 1 },
			      (const struct snt_qp_opts *const[]){ &many, &few });
	uint16_t weights[4] = { 1, 1, 1, 0 };
	struct snt_qp_opts change = { .size = sizeof(change), .weights = weights };

	(void)state;
	vqp_pair_connect(pair);
	assert_int_equal(snt_qp_lane_count(pair->end[0].qp), 2);
	assert_error(snt_qp_modify(pair->end[0].qp, &change), EINVAL,
		     "weights[3] is 0");
	weights[3] = 1;
	assert_success(snt_qp_modify(pair->end[0].qp, &change));
	vqp_pair_close(pair);
}

/* The i-th piece of a buffer that is used from its end to its beginning. */
static void scatter(struct vqp_end *end, uint64_t offset, struct snt_sge *sge)
{
	for (unsigned i = 0; i < SNT_SGES_MAX; i++)
		sge[i] = (struct snt_sge){
			end->mem, end->buffer + offset + 8 * (SNT_SGES_MAX - 1 - i), 8
		};
}

/* A write, and a message to a receive, of as many pieces as the header says. */
static void exchange_many_sges(uint32_t lanes)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = lanes,
				    .send_sge_max = SNT_SGES_MAX,
				    .recv_sge_max = SNT_SGES_MAX };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct vqp_end *from = &pair->end[0], *to = &pair->end[1];
	struct snt_sge sge[SNT_SGES_MAX], target[SNT_SGES_MAX];
	struct snt_send_wr wr = vqp_wr(pair, 0, sge, SNT_OP_WRITE, 0, 0);
	struct snt_recv_wr recv = { .wr_id = 3,
				    .sge = target,
				    .sge_count = SNT_SGES_MAX };

	for (unsigned i = 0; i < 8 * SNT_SGES_MAX; i++)
		from->buffer[i] = i;
	scatter(from, 0, sge);
	scatter(to, 4096, target);
	assert_int_equal(snt_qp_post_recv(to->qp, &recv, 1), 1);
	wr.sge_count = SNT_SGES_MAX;
	assert_int_equal(snt_qp_post_send(from->qp, &wr, 1), 1);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	wr.opcode = SNT_OP_SEND;
	assert_int_equal(snt_qp_post_send(from->qp, &wr, 1), 1);
	expect(pair, 0, 1, SNT_OP_SEND, SNT_WC_SUCCESS);
	expect(pair, 1, 3, SNT_OP_RECV, SNT_WC_SUCCESS);
	for (unsigned i = 0; i < SNT_SGES_MAX; i++)
		assert_memory_equal(to->buffer + 8 * i, sge[i].addr, 8);
	assert_memory_equal(to->buffer + 4096, from->buffer, 8 * SNT_SGES_MAX);
	vqp_pair_close(pair);
}

static void wrs_have_as_many_sges_as_the_header_says(void **state)
{
	(void)state;
	exchange_many_sges(1);
	exchange_many_sges(3);
}

/* The contract does not depend on how many lanes there are, unless the program says so. */
static void one_lane_is_tracked_by_default(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(2, NULL);
	struct snt_qp_info info = { .size = sizeof(info) };
	struct snt_qp *qp;

	(void)state;
	assert_success(try_qp(pair, (struct snt_qp_opts){ .lanes = 1 }, &qp));
	assert_success(snt_qp_query(qp, &info));
	assert_false(info.pass_through);
	assert_int_equal(info.lane_count, 2);
	assert_success(snt_qp_destroy(qp));
	assert_success(try_qp(pair,
			      (struct snt_qp_opts){ .flags = SNT_QP_PASS_THROUGH },
			      &qp));
	assert_success(snt_qp_query(qp, &info));
	assert_true(info.pass_through);
	assert_int_equal(info.lane_count, 1);
	assert_success(snt_qp_destroy(qp));
	vqp_pair_close(pair);
}

static void pass_through_refuses_options_of_many_lanes(void **state)
{
	static const struct {
		struct snt_qp_opts opts;
		const char *phrase;
	} cases[] = {
		{ { .lanes = 2 }, "has one lane" },
		{ { .scheme = SNT_SCHEME_DQPLB }, "needs no scheme" },
		{ { .notify_lanes = 1 }, "has no notify lanes" },
		{ { .flags = SNT_QP_NOTIFY_LENGTH }, "reports lengths" },
	};
	struct vqp_pair *pair = vqp_pair_open(2, NULL);
	struct snt_qp *qp;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snt_qp_opts opts = cases[i].opts;

		opts.flags |= SNT_QP_PASS_THROUGH;
		assert_error(try_qp(pair, opts, &qp), EINVAL, cases[i].phrase);
		assert_null(qp);
	}
	vqp_pair_close(pair);
}

static void what_no_packet_can_carry_is_refused(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	const uint32_t labels[2] = { 1, 0x100000 };
	struct snt_qp *qp;

	(void)state;
	assert_error(try_qp(pair, (struct snt_qp_opts){ .service_level = 16 }, &qp),
		     EINVAL, "service_level is 16; it must be from 0 to 15");
	assert_error(try_qp(pair,
			    (struct snt_qp_opts){ .lanes = 2, .flow_labels = labels },
			    &qp),
		     EINVAL, "flow_labels[1] is 0x100000, which is more than 20 bits");
	vqp_pair_close(pair);
}

static void what_no_device_can_do_is_refused(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct snt_qp *qp;

	(void)state;
	assert_error(try_qp(pair, (struct snt_qp_opts){ .read_depth = 17 }, &qp),
		     EINVAL, "read_depth 17 is beyond the device's limit of 16");
	assert_success(try_qp(pair, (struct snt_qp_opts){ .read_depth = 16 }, &qp));
	assert_success(snt_qp_destroy(qp));
	/* No device tells its limit of these. */
	assert_error(try_qp(pair, (struct snt_qp_opts){ .inline_max = 4096 }, &qp),
		     EINVAL, "4096 bytes inline");
	assert_non_null(strstr(snt_err_text(), "try a smaller inline_max"));
	vqp_pair_close(pair);
}

/* A device with several partitions and interrupts, in a context of its own. */
static struct snt_ctx *open_wide(struct scripted_fabric *fabric,
				 struct scripted_device **device_out)
{
	const struct scripted_device_opts wide = { .pkey_max = 3, .vector_max = 4 };
	struct snt_adopted adopted;
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };
	struct snt_ctx *ctx = NULL;

	*device_out = scripted_device_create(fabric, &wide);
	adopted = scripted_adopted(*device_out);
	assert_success(snt_ctx_create(&opts, &ctx));
	return ctx;
}

static uint16_t pkey_index_of(const struct snt_qp *qp,
			      const struct snt_control *control)
{
	struct snt_lane_info lane = SNT_INIT(lane);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_success(snt_qp_query_lane(qp, 0, &lane));
	assert_success(control->query_qp(lane.qp, &attr, IBV_QP_PKEY_INDEX, &init));
	return attr.pkey_index;
}

static void lanes_are_in_the_partition_that_was_asked_for(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device;
	struct snt_ctx *ctx = open_wide(fabric, &device);
	const struct snt_control *control = scripted_adopted(device).control;
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 2, .pkey_index = 2);
	struct snt_device_info info = SNT_INIT(info);
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_device_query(snt_ctx_device(ctx, 0), &info));
	assert_int_equal(info.pkey_count, 3);
	assert_success(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp));
	assert_int_equal(pkey_index_of(qp, control), 2);
	assert_success(snt_qp_reset(qp));
	assert_int_equal(pkey_index_of(qp, control), 2);
	assert_error(snt_qp_modify(qp, &(struct snt_qp_opts){ .size = sizeof(opts),
							      .pkey_index = 1 }),
		     EINVAL, "pkey_index is settled when a QP is made");
	assert_success(snt_qp_destroy(qp));
	opts.cq = cq;
	opts.pkey_index = 3;
	assert_error(snt_qp_create(ctx, &opts, &qp), EINVAL,
		     "pkey_index 3 is beyond the device's limit of 2");
	assert_success(snt_cq_destroy(cq));
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void cqs_use_the_vector_that_was_asked_for(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct scripted_device *device;
	struct snt_ctx *ctx = open_wide(fabric, &device);
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .comp_vector = 3);
	struct snt_qp_opts opts = SNT_INIT(opts);
	struct snt_device_info info = SNT_INIT(info);
	struct snt_cq *cq = NULL;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_device_query(snt_ctx_device(ctx, 0), &info));
	assert_int_equal(info.comp_vector_count, 4);
	assert_success(snt_qp_create_with_cq(ctx, &cq_opts, &opts, &cq, &qp));
	assert_int_equal(scripted_cq_vector(snt_cq_physical(cq, 0, NULL)), 3);
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq));
	cq_opts.comp_vector = 4;
	assert_error(snt_cq_create(ctx, &cq_opts, &cq), EINVAL,
		     "comp_vector is 4; the device has 4, numbered from 0");
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void virtual_cqs_have_numbers_of_their_own(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	uint32_t first = snt_cq_num(pair->end[0].cq);

	(void)state;
	assert_true(first >= 1);
	assert_int_equal(snt_cq_num(pair->end[1].cq), first + 1);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_product_of_options_does_not_wrap),
		cmocka_unit_test(flow_labels_are_as_many_as_data_lanes),
		cmocka_unit_test(weights_are_as_many_as_were_made),
		cmocka_unit_test(wrs_have_as_many_sges_as_the_header_says),
		cmocka_unit_test(one_lane_is_tracked_by_default),
		cmocka_unit_test(pass_through_refuses_options_of_many_lanes),
		cmocka_unit_test(what_no_packet_can_carry_is_refused),
		cmocka_unit_test(what_no_device_can_do_is_refused),
		cmocka_unit_test(lanes_are_in_the_partition_that_was_asked_for),
		cmocka_unit_test(cqs_use_the_vector_that_was_asked_for),
		cmocka_unit_test(virtual_cqs_have_numbers_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
