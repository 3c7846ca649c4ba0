/* SPDX-License-Identifier: MIT */
/*
 * Messages that are not cut: SENDs, and everything on a lane that passes WRs on.
 * Their limit is the device's longest message, not the size of a fragment.
 */
#include "lib/vqp_kit.h"

#include <errno.h>
#include <sys/mman.h>

static struct vqp_pair *open_single(void)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .fragment_size = FRAGMENT };

	return vqp_pair_open(1, &opts);
}

static uint64_t message_max(struct vqp_pair *pair)
{
	struct snt_device_info info = { .size = sizeof(info) };

	assert_success(snt_device_query(snt_ctx_device(pair->end[0].ctx, 0), &info));
	return info.message_size_max;
}

static void fill(struct vqp_pair *pair, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		pair->end[0].buffer[i] = (unsigned char)(i * 7 + 1);
}

static void a_passed_on_write_may_be_longer_than_a_fragment(void **state)
{
	struct vqp_pair *pair = open_single();

	(void)state;
	fill(pair, 5 * FRAGMENT);
	send_wr(pair, SNT_OP_WRITE, 1, 5);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_memory_equal(pair->end[1].buffer, pair->end[0].buffer, 5 * FRAGMENT);
	vqp_pair_close(pair);
}

static void a_send_may_be_longer_than_a_fragment(void **state)
{
	struct vqp_pair *pair = open_pair(1, 4, SNT_SCHEME_SPRAY);

	(void)state;
	fill(pair, 5 * FRAGMENT);
	post_data(pair, 1, 7, 0, 5 * FRAGMENT);
	send_wr(pair, SNT_OP_SEND, 1, 5);
	expect(pair, 0, 1, SNT_OP_SEND, SNT_WC_SUCCESS);
	assert_int_equal(expect(pair, 1, 7, SNT_OP_RECV, SNT_WC_SUCCESS).length,
			 5 * FRAGMENT);
	assert_memory_equal(pair->end[1].buffer, pair->end[0].buffer, 5 * FRAGMENT);
	vqp_pair_close(pair);
}

/* Longer than the device can, from a buffer mapped as large as it takes. */
static void longer_than_the_device_can_is_refused(void **state)
{
	struct vqp_pair *pairs[] = { open_single(), open_pair(1, 4, SNT_SCHEME_SPRAY) };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct vqp_end *end = &pairs[i]->end[0];
		uint64_t length = message_max(pairs[i]) + 1;
		void *huge = mmap(NULL, length, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		struct snt_sge sge = { .addr = huge, .length = length };
		struct snt_send_wr wr = { .opcode = SNT_OP_SEND,
					  .sge = &sge,
					  .sge_count = 1 };
		struct snt_mem *mem;

		assert_ptr_not_equal(huge, MAP_FAILED);
		assert_success(snt_mem_register(end->ctx, huge, length, 0, &mem));
		sge.mem = mem;
		assert_int_equal(snt_qp_post_send(end->qp, &wr, 1), -EMSGSIZE);
		assert_success(snt_mem_release(mem));
		munmap(huge, length);
		vqp_pair_close(pairs[i]);
	}
}

/* Chains of pass-through: all kinds of WRs in one call, more than one chain. */
static void one_call_posts_any_mix_in_order(void **state)
{
	struct vqp_pair *pair = open_single();
	struct snt_send_wr wr[40];
	struct snt_sge sge[40];
	unsigned char *far = pair->end[1].buffer;

	(void)state;
	fill(pair, 64 * 40);
	for (unsigned i = 0; i < 40; i++) {
		wr[i] = vqp_wr(pair, 0, &sge[i],
			       i % 5 == 4 ? SNT_OP_READ : SNT_OP_WRITE, 64 * i, 64);
		wr[i].wr_id = i;
	}
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 40), 40);
	for (unsigned i = 0; i < 40; i++)
		expect(pair, 0, i, i % 5 == 4 ? SNT_OP_READ : SNT_OP_WRITE,
		       SNT_WC_SUCCESS);
	for (unsigned i = 0; i < 40; i++)
		assert_memory_equal(far + 64 * i, pair->end[0].buffer + 64 * i, 64);
	vqp_pair_close(pair);
}

static void the_first_bad_one_ends_a_chain(void **state)
{
	struct vqp_pair *pair = open_single();
	struct snt_send_wr wr[4];
	struct snt_sge sge[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		wr[i] = vqp_wr(pair, 0, &sge[i], SNT_OP_WRITE, 0, 64);
		wr[i].wr_id = i;
	}
	sge[2].length = 2 * VQP_BUFFER;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 4), 2);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr[2], 2), -ERANGE);
	expect(pair, 0, 0, SNT_OP_WRITE, SNT_WC_SUCCESS);
	expect(pair, 0, 1, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_expect_none(pair, 0);
	vqp_pair_close(pair);
}

/* The device is full in the middle of a chain: what it took counts. */
static void a_full_device_takes_part_of_a_chain(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .lane_depth = 8 };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_send_wr wr[16];
	struct snt_sge sge[16];
	int taken;

	(void)state;
	for (unsigned i = 0; i < 16; i++) {
		wr[i] = vqp_wr(pair, 0, &sge[i], SNT_OP_WRITE, 0, 64);
		wr[i].wr_id = i;
	}
	taken = snt_qp_post_send(pair->end[0].qp, wr, 16);
	assert_in_range(taken, 8, 15);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 1), -EAGAIN);
	for (int i = 0; i < taken; i++)
		expect(pair, 0, i, SNT_OP_WRITE, SNT_WC_SUCCESS);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 1), 1);
	expect(pair, 0, 0, SNT_OP_WRITE, SNT_WC_SUCCESS);
	vqp_pair_close(pair);
}

/* Closes end 1 and counts what comes before CLOSED, which must be the last. */
static unsigned flushed_by_close(struct vqp_pair *pair)
{
	struct vqp_end *end = &pair->end[1];
	unsigned flushed = 0;
	struct snt_wc wc;

	assert_success(snt_qp_close(end->qp, 77));
	while ((wc = vqp_poll(pair, 1)).opcode != SNT_OP_CLOSED) {
		assert_int_equal(wc.status, SNT_WC_FLUSHED);
		flushed++;
	}
	vqp_expect_none(pair, 1);
	return flushed;
}

static void f1_closing_reports_every_passed_on_receive_first(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .recv_depth = 5 };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_recv_wr recv = { 0 };

	(void)state;
	for (recv.wr_id = 0; recv.wr_id < 5; recv.wr_id++)
		assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), 1);
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), -EAGAIN);
	assert_int_equal(flushed_by_close(pair), 5);
	vqp_pair_close(pair);
}

/* As many as the device takes, which may be more than was asked for. */
static void f2_the_cq_has_room_for_all_that_the_device_takes(void **state)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .flags = SNT_QP_PASS_THROUGH,
				    .lane_depth = 9 };
	struct vqp_pair *pair = vqp_pair_open(1, &opts);
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 1, &sge, SNT_OP_WRITE, 0, 64);
	unsigned posted = 0;

	(void)state;
	while (snt_qp_post_send(pair->end[1].qp, &wr, 1) == 1)
		posted++;
	assert_in_range(posted, 9, 100);
	assert_int_equal(flushed_by_close(pair), posted);
	vqp_pair_close(pair);
}

/* RC has no life after an error, and says so. */
static void nothing_is_taken_after_an_error(void **state)
{
	struct vqp_pair *pair = open_single();
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 64);
	struct snt_recv_wr recv = { 0 };

	(void)state;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(scripted_complete(lane_qp(pair, 0, 0), IBV_WC_RETRY_EXC_ERR),
			 0);
	assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_RETRY_EXC_ERR);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -ESHUTDOWN);
	assert_int_equal(snt_qp_post_recv(pair->end[0].qp, &recv, 1), -ESHUTDOWN);
	vqp_pair_close(pair);
}

/* Nothing is at no address at all. */
static void an_empty_wr_needs_no_buffer(void **state)
{
	(void)state;
	for (uint32_t lanes = 1; lanes < 3; lanes++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .lanes = lanes,
					    .flags = lanes == 1 ? SNT_QP_PASS_THROUGH
								: 0 };
		struct vqp_pair *pair = vqp_pair_open(1, &opts);
		struct snt_sge none = { 0 };
		struct snt_send_wr wr = vqp_wr(pair, 0, &none, SNT_OP_WRITE_IMM, 0, 0);

		none = (struct snt_sge){ 0 };
		wr.flags |= SNT_SEND_INLINE;
		for (unsigned i = 0; i < 2; i++) {
			post_notify(pair, 1, 3);
			assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
			assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
			assert_int_equal(vqp_poll(pair, 1).status, SNT_WC_SUCCESS);
			wr.flags &= ~SNT_SEND_INLINE;
			wr.sge = NULL;
			wr.sge_count = 0;
		}
		vqp_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f1_closing_reports_every_passed_on_receive_first),
		cmocka_unit_test(f2_the_cq_has_room_for_all_that_the_device_takes),
		cmocka_unit_test(nothing_is_taken_after_an_error),
		cmocka_unit_test(a_passed_on_write_may_be_longer_than_a_fragment),
		cmocka_unit_test(a_send_may_be_longer_than_a_fragment),
		cmocka_unit_test(longer_than_the_device_can_is_refused),
		cmocka_unit_test(one_call_posts_any_mix_in_order),
		cmocka_unit_test(the_first_bad_one_ends_a_chain),
		cmocka_unit_test(a_full_device_takes_part_of_a_chain),
		cmocka_unit_test(an_empty_wr_needs_no_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
