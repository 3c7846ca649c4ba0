/* SPDX-License-Identifier: MIT */
/* A device that answers nothing any more: what is on it can still be freed. */
#include "lib/vqp_kit.h"

static void finish_end(struct vqp_end *end)
{
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_ctx_destroy(end->ctx));
	free(end->buffer);
}

/* The rest of a pair whose end 0 has lost its QP already. */
static void finish(struct vqp_pair *pair)
{
	struct vqp_end *peer = &pair->end[1];
	struct snt_wc wc = { 0 };

	assert_success(snt_qp_close(peer->qp, 1));
	for (unsigned i = 0; wc.opcode != SNT_OP_CLOSED && i < 100; i++) {
		vqp_pair_run(pair, i);
		snt_cq_poll(peer->cq, &wc, 1);
	}
	assert_success(snt_qp_destroy(peer->qp));
	finish_end(&pair->end[0]);
	finish_end(peer);
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

static struct vqp_pair *open_busy(uint32_t lanes, uint32_t flags)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = lanes,
				    .flags = flags,
				    .fragment_size = FRAGMENT };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);

	post_data(pair, 0, 5, 0, 64);
	send_wr(pair, SNT_OP_WRITE, 1, lanes);
	return pair;
}

static void a_qp_that_cannot_be_closed_can_be_destroyed(void **state)
{
	(void)state;
	for (uint32_t lanes = 1; lanes < 3; lanes++) {
		struct vqp_pair *pair = open_busy(lanes, 0);
		struct snt_qp *qp = pair->end[0].qp;

		assert_error(snt_qp_destroy(qp), EBUSY, "close it");
		scripted_fail_control(pair->end[0].device[0], 1, EIO);
		assert_error(snt_qp_close(qp, 1), EIO, "cannot go to ERR");
		assert_success(snt_qp_destroy(qp));
		finish(pair);
	}
}

static void a_qp_that_cannot_be_polled_can_be_destroyed(void **state)
{
	(void)state;
	for (uint32_t lanes = 1; lanes < 3; lanes++) {
		struct vqp_pair *pair = open_busy(lanes, 0);
		struct snt_qp *qp = pair->end[0].qp;
		struct snt_wc wc;

		scripted_fail_poll(snt_cq_physical(pair->end[0].cq, 0, NULL), 1);
		assert_success(snt_qp_close(qp, 1));
		assert_error(snt_qp_destroy(qp), EBUSY, "SNT_OP_CLOSED");
		while (snt_cq_poll(pair->end[0].cq, &wc, 1) > 0)
			assert_int_not_equal(wc.opcode, SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(qp));
		finish(pair);
	}
}

/* Not before it was closed: a poll may fail for once. */
static void a_single_failed_poll_ends_nothing(void **state)
{
	struct vqp_pair *pair = open_busy(2, 0);
	struct snt_wc wc;

	(void)state;
	scripted_fail_poll(snt_cq_physical(pair->end[0].cq, 0, NULL), 1);
	assert_error(snt_cq_poll(pair->end[0].cq, &wc, 1), EIO, "polled");
	assert_error(snt_qp_destroy(pair->end[0].qp), EBUSY, "close it");
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_qp_that_cannot_be_closed_can_be_destroyed),
		cmocka_unit_test(a_qp_that_cannot_be_polled_can_be_destroyed),
		cmocka_unit_test(a_single_failed_poll_ends_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
