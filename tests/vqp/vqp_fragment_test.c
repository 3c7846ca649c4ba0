/* SPDX-License-Identifier: MIT */
/* Fragments as small as they may be, and as many as that makes. */
#include "lib/vqp_kit.h"

#define HALF (VQP_BUFFER / 2)

static void fill(unsigned char *at, uint64_t length, unsigned salt)
{
	for (uint64_t i = 0; i < length; i++)
		at[i] = (i * 131 + i / 251 + salt) & 0xff;
}

/* From the first half of end 0's buffer to that of end 1's, notified; then back into the
 * second half. */
static void write_and_read(struct vqp_pair *pair, uint64_t length, uint64_t wr_id)
{
	struct vqp_end *from = &pair->end[0], *to = &pair->end[1];
	struct snt_sge sge;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, length);

	fill(from->buffer, length, wr_id);
	memset(to->buffer, 0, length + 1);
	memset(from->buffer + HALF, 0, length);
	post_notify(pair, 1, wr_id);
	wr.wr_id = wr_id;
	assert_int_equal(snt_qp_post_send(from->qp, &wr, 1), 1);
	expect(pair, 0, wr_id, SNT_OP_WRITE_IMM, SNT_WC_SUCCESS);
	expect(pair, 1, wr_id, SNT_OP_RECV_NOTIFY, SNT_WC_SUCCESS);
	assert_memory_equal(to->buffer, from->buffer, length);
	assert_int_equal(to->buffer[length], 0);
	wr.opcode = SNT_OP_READ;
	sge.addr = from->buffer + HALF;
	assert_int_equal(snt_qp_post_send(from->qp, &wr, 1), 1);
	expect(pair, 0, wr_id, SNT_OP_READ, SNT_WC_SUCCESS);
	assert_memory_equal(from->buffer + HALF, to->buffer, length);
}

static void cut_small(enum snt_scheme scheme)
{
	static const uint64_t lengths[] = { 1, 63, 64, 65, 127, 128, 129, 8191, 8192 };
	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 3, .scheme = scheme,
					   .fragment_size = SNT_FRAGMENT_SIZE_MIN,
					   .express_max = SNT_EXPRESS_OFF);
	struct vqp_pair *pair = vqp_pair_open(2, &opts);
	struct snt_qp_info info = SNT_INIT(info);

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t pieces = (lengths[i] + 63) / 64, before;

		assert_success(snt_qp_query(pair->end[0].qp, &info));
		before = info.fragments;
		write_and_read(pair, lengths[i], 1 + i);
		assert_success(snt_qp_query(pair->end[0].qp, &info));
		assert_int_equal(info.fragment_size, 64);
		assert_true(info.fragments - before >= 2 * pieces);
	}
	vqp_pair_close(pair);
}

static void fragments_of_64_bytes_arrive(void **state)
{
	(void)state;
	cut_small(SNT_SCHEME_SPRAY);
	cut_small(SNT_SCHEME_DQPLB);
}

/* Upstream's largest: 128 lanes, 1024 WRs on each, fragments of 128 bytes. */
static void fill_128_lanes(enum snt_scheme scheme)
{
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .depth = 65536);
	struct snt_qp_opts opts =
		SNT_INIT(opts, .lanes = 128, .scheme = scheme, .lane_depth = 1024,
			 .recv_depth = 1024, .fragment_size = 128);
	struct vqp_pair *pair;

	vqp_pair_cq(&cq_opts);
	pair = vqp_pair_open(1, &opts);
	vqp_pair_cq(NULL);
	assert_int_equal(snt_qp_lane_count(pair->end[0].qp), 128);
	write_and_read(pair, HALF - 1, 1);
	write_and_read(pair, 128 * 128, 2);
	for (unsigned i = 0; i < 128; i++)
		assert_true(lane_info(pair, 0, i).fragments > 0);
	vqp_pair_close(pair);
}

static void lanes_of_128_with_fragments_of_128_bytes(void **state)
{
	(void)state;
	fill_128_lanes(SNT_SCHEME_SPRAY);
	fill_128_lanes(SNT_SCHEME_DQPLB);
}

static void smaller_fragments_are_refused(void **state)
{
	struct vqp_pair *pair = vqp_pair_open(1, NULL);
	struct snt_qp_opts opts =
		SNT_INIT(opts, .cq = pair->end[0].cq, .lanes = 2, .fragment_size = 32);
	struct snt_qp *qp = NULL;

	(void)state;
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), EINVAL,
		     "fragment_size is 32; it must be from 64 to");
	opts.fragment_size = 96;
	assert_error(snt_qp_create(pair->end[0].ctx, &opts, &qp), EINVAL,
		     "fragment_size 96 is not a multiple of 64");
	vqp_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fragments_of_64_bytes_arrive),
		cmocka_unit_test(lanes_of_128_with_fragments_of_128_bytes),
		cmocka_unit_test(smaller_fragments_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
