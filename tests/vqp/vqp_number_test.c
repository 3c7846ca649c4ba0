/* SPDX-License-Identifier: MIT */
/* Numbers of virtual QPs: 24 bits, and unique among those that live. */
#include "lib/vqp_kit.h"

#include "vqp/qp_num.h"

#define NUMBERS 0xffffff

static void a_number_in_use_is_passed_over(void **state)
{
	uint32_t kept, last = 0;

	(void)state;
	kept = snt__qp_num_take();
	assert_in_range(kept, 1, NUMBERS);
	for (uint32_t i = 0; i < NUMBERS; i++) {
		uint32_t num = snt__qp_num_take();

		if (num == kept || num == last || !num || num > NUMBERS)
			fail_msg("number %u after %u, with %u in use", num, last, kept);
		snt__qp_num_release(num);
		last = num;
	}
	snt__qp_num_release(kept);
}

static void numbers_run_out(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < NUMBERS; i++)
		if (!snt__qp_num_take())
			fail_msg("only %u numbers", i);
	assert_int_equal(snt__qp_num_take(), 0);
	snt__qp_num_release(4711);
	assert_int_equal(snt__qp_num_take(), 4711);
	for (uint32_t i = 1; i <= NUMBERS; i++)
		snt__qp_num_release(i);
}

/* One that was not made does not use one up. */
static void a_qp_gives_its_number_back(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct snt_qp_opts opts = { .size = sizeof(opts), .cq = pair->end[0].cq };
	uint32_t own = snt_qp_num(pair->end[0].qp);
	struct snt_qp *qp;

	(void)state;
	for (uint32_t i = 1; i <= NUMBERS - 2; i++)
		if (!snt__qp_num_take())
			fail_msg("only %u numbers", i);
	assert_int_equal(snt__qp_num_take(), 0);
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), ENOSPC, "numbers");
	snt__qp_num_release(own % NUMBERS + 3);
	opts.scheme = SNT_SCHEME_DQPLB;
	opts.flags = SNT_QP_NOTIFY_LENGTH;
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), EINVAL, "");
	opts.flags = 0;
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_qp_create(pair->end[0].ctx, &opts, &qp));
		assert_int_equal(snt_qp_num(qp), own % NUMBERS + 3);
		assert_success(snt_qp_destroy(qp));
	}
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_in_use_is_passed_over),
		cmocka_unit_test(numbers_run_out),
		cmocka_unit_test(a_qp_gives_its_number_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
