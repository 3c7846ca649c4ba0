/* SPDX-License-Identifier: MIT */
/* The mailbox of SNT_QP_NOTIFY_LENGTH comes and goes without a trace, whatever fails. */
#include "lib/qp_length_kit.h"

#include <stdbool.h>

#include "lib/fault.h"

int __real_posix_memalign(void **out, size_t align, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
	if (fault_now("posix_memalign"))
		return ENOMEM;
	return __real_posix_memalign(out, align, size);
}

static void the_card_tells_of_the_mailbox(void **state)
{
	static const uint32_t depths[][2] = { { 1, 2 }, { 2, 4 },     { 3, 4 },
					      { 4, 8 }, { 127, 128 }, { 128, 256 } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(depths); i++) {
		struct snt_qp_opts opts = options(ASKS);
		struct snt_card card[2];
		struct vqp_pair *pair;

		opts.recv_depth = depths[i][0];
		pair = make_pair(2, options(0), opts);
		for (unsigned end = 0; end < 2; end++)
			assert_success(snt_qp_card(pair->end[end].qp, &card[end]));
		assert_int_equal(card[0].flags, 0);
		assert_int_equal(card[0].mailbox_slots, 0);
		assert_int_equal(card[0].mailbox_addr, 0);
		assert_int_equal(card[1].flags, SNT_QP_NOTIFY_LENGTH);
		assert_int_equal(card[1].mailbox_slots, depths[i][1]);
		assert_int_not_equal(card[1].mailbox_addr, 0);
		assert_int_not_equal(card[1].device[0].mailbox_key, 0);
		assert_int_equal(card[1].device[1].mailbox_key, 0);
		vqp_pair_close(pair);
	}
}

static void others_tell_lengths_by_themselves(void **state)
{
	struct vqp_pair *pair = make_pair(1, options(0), options(0));
	struct snt_qp_opts opts = options(ASKS);
	struct snt_qp *qp = NULL;

	(void)state;
	opts.cq = pair->end[0].cq;
	opts.scheme = SNT_SCHEME_DQPLB;
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), EINVAL,
		     "SNT_QP_NOTIFY_LENGTH is for SPRAY; DQPLB tells");
	opts.scheme = SNT_SCHEME_SPRAY;
	opts.lanes = 1;
	opts.flags |= SNT_QP_PASS_THROUGH;
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), EINVAL,
		     "SNT_QP_PASS_THROUGH reports lengths as the device does");
	opts.flags &= ~SNT_QP_PASS_THROUGH;
	assert_success(snt_qp_create(pair->end[0].ctx, &opts, &qp));
	assert_error(snt_qp_modify(qp, &(struct snt_qp_opts){ .size = sizeof(opts),
							      .flags = ASKS }),
		     EINVAL, "flags is settled");
	assert_success(snt_qp_modify(qp, &(struct snt_qp_opts){ .size = sizeof(opts),
								.timeout = 3 }));
	assert_success(snt_qp_destroy(qp));
	vqp_pair_close(pair);
}

/* A context whose device has a control table without memory. */
struct bare {
	struct snt_control control;
	struct snt_ctx *ctx;
	struct snt_cq *cq;
};

static struct bare *open_bare(struct scripted_fabric *fabric)
{
	struct bare *bare = calloc(1, sizeof(*bare));
	struct snt_adopted adopted =
		scripted_adopted(scripted_device_create(fabric, NULL));
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };

	bare->control = *adopted.control;
	bare->control.reg_mr = NULL;
	adopted.control = &bare->control;
	assert_success(snt_ctx_create(&opts, &bare->ctx));
	assert_success(snt_cq_create(bare->ctx, NULL, &bare->cq));
	return bare;
}

static void close_bare(struct bare *bare)
{
	assert_success(snt_cq_destroy(bare->cq));
	assert_success(snt_ctx_destroy(bare->ctx));
	free(bare);
}

static void a_device_without_memory_cannot_have_a_mailbox(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct bare *bare = open_bare(fabric);
	struct snt_qp_opts opts = options(ASKS);
	struct snt_qp *qp = NULL;

	(void)state;
	opts.cq = bare->cq;
	assert_error(snt_qp_create(bare->ctx, &opts, &qp), EOPNOTSUPP,
		     "scripted0 has no control table to register the mailbox");
	assert_null(qp);
	close_bare(bare);
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void a_device_without_memory_tells_inline(void **state)
{
	struct vqp_pair *pair = make_pair(1, options(0), options(ASKS));
	struct bare *bare = open_bare(pair->fabric);
	struct snt_sge sge = { .addr = (char[5]){ 0 }, .length = 5 };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED | SNT_SEND_INLINE,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &pair->end[1].token,
				  .remote_addr = pair->end[1].token.addr };
	struct snt_qp_opts opts = options(0);
	struct snt_card card[2];
	struct snt_wc wc = { 0 };
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_qp_card(pair->end[1].qp, &card[1]));
	opts.cq = bare->cq;
	opts.inline_max = 7;
	assert_success(snt_qp_create(bare->ctx, &opts, &qp));
	assert_error(snt_qp_connect(qp, &card[1]), EOPNOTSUPP,
		     "create the QP with an inline_max of 8 or more");
	assert_error(snt_qp_connect_adopted(qp, &card[1]), EOPNOTSUPP, "inline_max");
	assert_success(snt_qp_destroy(qp));
	opts.inline_max = 8;
	assert_success(snt_qp_create(bare->ctx, &opts, &qp));
	assert_success(snt_qp_card(qp, &card[0]));
	assert_success(snt_qp_connect(qp, &card[1]));
	assert_success(snt_qp_connect(pair->end[1].qp, &card[0]));
	post_notify(pair, 1, 3);
	assert_int_equal(snt_qp_post_send(qp, &wr, 1), 1);
	for (unsigned i = 0; i < 10; i++) {
		vqp_pair_run(pair, i);
		assert_success(snt_cq_poll(bare->cq, &wc, 1));
	}
	expect_length(pair, 1, 3, 5);
	assert_success(snt_qp_close(qp, 1));
	for (unsigned i = 0; wc.opcode != SNT_OP_CLOSED && i < 100; i++) {
		vqp_pair_run(pair, i);
		assert_success(snt_cq_poll(bare->cq, &wc, 1));
	}
	assert_success(snt_qp_destroy(qp));
	close_bare(bare);
	vqp_pair_close(pair);
}

/* Every control call fails in turn, on each device. */
static void every_refusal_to_make_it_is_undone(void **state)
{
	(void)state;
	for (unsigned device = 0; device < 2; device++) {
		struct vqp_pair *pair = make_pair(2, options(0), options(0));
		struct scripted_device *failing = pair->end[0].device[device];
		struct snt_qp_opts opts = options(ASKS);
		bool met_registration = false;
		struct snt_qp *qp = NULL;

		opts.cq = pair->end[0].cq;
		for (unsigned nth = 1;; nth++) {
			int ret;

			scripted_fail_control(failing, nth, EMFILE);
			ret = snt_qp_create(pair->end[0].ctx, &opts, &qp);
			if (!scripted_failed_control(failing)) {
				assert_success(ret);
				break;
			}
			met_registration |=
				!strcmp(scripted_failed_control(failing), "reg_mr");
			assert_error(ret, EMFILE, device ? "scripted1" : "scripted0");
			assert_null(qp);
			for (unsigned i = 0; i < 2; i++) {
				assert_int_equal(scripted_live(pair->end[0].device[i],
							       SCRIPTED_MR),
						 1);
				assert_int_equal(scripted_live(pair->end[0].device[i],
							       SCRIPTED_QP),
						 3);
			}
		}
		scripted_fail_control(failing, 0, 0);
		/* The first notify lane is on the first device. */
		assert_int_equal(met_registration, !device);
		assert_success(snt_qp_destroy(qp));
		assert_int_equal(regions(pair, 0), 1);
		vqp_pair_close(pair);
	}
}

static void every_want_of_memory_is_undone(void **state)
{
	struct vqp_pair *pair = make_pair(1, options(0), options(0));
	struct snt_qp_opts opts = options(ASKS);
	unsigned nth, aligned = 0;
	struct snt_qp *qp = NULL;

	(void)state;
	opts.cq = pair->end[0].cq;
	for (nth = 1;; nth++) {
		int ret;

		fault_arm(nth);
		ret = snt_qp_create(pair->end[0].ctx, &opts, &qp);
		if (!fault_was_hit())
			break;
		aligned += !strcmp(fault_name(), "posix_memalign");
		fault_arm(0);
		assert_error(ret, ENOMEM, "");
		assert_null(qp);
		assert_int_equal(regions(pair, 0), 1);
	}
	fault_arm(0);
	/* The QP, its rings, the mailbox, and a larger table of lanes. */
	assert_int_equal(aligned, 4);
	assert_success(snt_qp_destroy(qp));
	vqp_pair_close(pair);
}

/* The peer asks, and we cannot: the connection is not made, and can be later. */
static void every_failure_to_tell_is_undone(void **state)
{
	struct vqp_pair *pair = make_pair(2, options(0), options(ASKS));
	struct scripted_device *failing = pair->end[0].device[1];
	struct snt_card card[2];
	unsigned aligned = 0;
	int ret;

	(void)state;
	for (unsigned end = 0; end < 2; end++)
		assert_success(snt_qp_card(pair->end[end].qp, &card[end]));
	for (unsigned nth = 1; nth < 4; nth++) { /* the last of them is of the keys */
		fault_arm(nth);
		ret = snt_qp_connect(pair->end[0].qp, &card[1]);
		assert_true(fault_was_hit());
		aligned += !strcmp(fault_name(), "posix_memalign");
		fault_arm(0);
		assert_error(ret, ENOMEM, "");
	}
	assert_int_equal(aligned, 2); /* the mailbox, and the keys */
	for (unsigned nth = 1;; nth++) {
		scripted_fail_control(failing, nth, EIO);
		ret = snt_qp_connect(pair->end[0].qp, &card[1]);
		if (!scripted_failed_control(failing))
			break;
		assert_error(ret, EIO, "scripted1");
	}
	scripted_fail_control(failing, 0, 0);
	assert_success(ret);
	assert_success(snt_qp_connect(pair->end[1].qp, &card[0]));
	post_notify(pair, 1, 1);
	write_from(pair, 0, 1, 17);
	expect_length(pair, 1, 1, 17);
	vqp_pair_close(pair);
}

static unsigned regions_of(const struct vqp_pair *pair, unsigned end, unsigned device)
{
	return scripted_live(pair->end[end].device[device], SCRIPTED_MR);
}

/* Nothing is registered where it is of no use: at either end the device of the first
 * notify lane is the only one. */
static void one_device_knows_of_the_lengths(void **state)
{
	(void)state;
	for (unsigned device = 0; device < 2; device++) {
		struct snt_qp_opts tells = options(0), asks = options(ASKS);
		struct vqp_pair *pair;

		tells.devices = asks.devices = 1u << device;
		tells.notify_lanes = asks.notify_lanes = 2;
		pair = make_pair(2, tells, asks);
		vqp_pair_connect(pair);
		for (unsigned end = 0; end < 2; end++) {
			assert_int_equal(regions_of(pair, end, device), 2);
			assert_int_equal(regions_of(pair, end, !device), 1);
		}
		post_notify(pair, 1, 1);
		write_from(pair, 0, 1, 17);
		expect_length(pair, 1, 1, 17);
		vqp_pair_close(pair);
	}
}

static void a_registration_to_tell_may_fail(void **state)
{
	(void)state;
	for (unsigned device = 0; device < 2; device++) {
		struct snt_qp_opts tells = options(0), asks = options(ASKS);
		struct scripted_device *failing;
		struct vqp_pair *pair;
		struct snt_card card;

		tells.devices = asks.devices = 1u << device;
		pair = make_pair(2, tells, asks);
		failing = pair->end[0].device[device];
		assert_success(snt_qp_card(pair->end[1].qp, &card));
		scripted_fail_control(failing, 1, ENOSPC);
		assert_error(snt_qp_connect(pair->end[0].qp, &card), ENOSPC,
			     device ? "scripted1" : "scripted0");
		assert_string_equal(scripted_failed_control(failing), "reg_mr");
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(regions_of(pair, 0, i), 1);
		vqp_pair_connect(pair);
		post_notify(pair, 1, 1);
		write_from(pair, 0, 1, 17);
		expect_length(pair, 1, 1, 17);
		vqp_pair_close(pair);
	}
}

/* A device that does not let go of memory is asked again. */
static void a_failed_release_can_be_repeated(void **state)
{
	struct vqp_pair *pair = make_pair(1, options(ASKS), options(ASKS));
	struct scripted_device *device = pair->end[0].device[0];

	(void)state;
	vqp_pair_connect(pair);
	assert_int_equal(regions(pair, 0), 3);
	assert_success(snt_qp_close(pair->end[0].qp, 77));
	while (vqp_poll(pair, 0).opcode != SNT_OP_CLOSED)
		;
	for (unsigned left = 3; left > 1; left--) {
		/* Behind the lanes, and behind the mailbox if that is gone. */
		scripted_fail_control(device,
				      scripted_live(device, SCRIPTED_QP) + 4 - left,
				      EBUSY);
		assert_error(snt_qp_destroy(pair->end[0].qp), EBUSY, "scripted0");
		assert_string_equal(scripted_failed_control(device), "dereg_mr");
		assert_int_equal(regions(pair, 0), left);
	}
	assert_success(snt_qp_destroy(pair->end[0].qp));
	assert_int_equal(regions(pair, 0), 1);
	pair->end[0].qp = NULL;
	assert_success(snt_qp_close(pair->end[1].qp, 77));
	while (vqp_poll(pair, 1).opcode != SNT_OP_CLOSED)
		;
	assert_success(snt_qp_destroy(pair->end[1].qp));
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_cq_destroy(pair->end[end].cq));
		assert_success(snt_mem_release(pair->end[end].mem));
		assert_success(snt_ctx_destroy(pair->end[end].ctx));
		free(pair->end[end].buffer);
	}
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_card_tells_of_the_mailbox),
		cmocka_unit_test(others_tell_lengths_by_themselves),
		cmocka_unit_test(a_device_without_memory_cannot_have_a_mailbox),
		cmocka_unit_test(a_device_without_memory_tells_inline),
		cmocka_unit_test(every_refusal_to_make_it_is_undone),
		cmocka_unit_test(every_want_of_memory_is_undone),
		cmocka_unit_test(every_failure_to_tell_is_undone),
		cmocka_unit_test(one_device_knows_of_the_lengths),
		cmocka_unit_test(a_registration_to_tell_may_fail),
		cmocka_unit_test(a_failed_release_can_be_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
