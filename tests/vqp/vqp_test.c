/* SPDX-License-Identifier: MIT */
/* Virtual QPs by example: every opcode, both schemes, one device and several. */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/devices/vqp_pair.h"

static const struct shape {
	unsigned devices;
	uint32_t lanes;
	enum snt_scheme scheme;
	uint32_t flags;
} shapes[] = {
	{ 1, 1, SNT_SCHEME_SPRAY, SNT_QP_PASS_THROUGH },
	{ 1, 1, SNT_SCHEME_SPRAY, 0 },
	{ 1, 1, SNT_SCHEME_DQPLB, 0 },
	{ 1, 4, SNT_SCHEME_SPRAY, 0 },
	{ 1, 4, SNT_SCHEME_DQPLB, 0 },
	{ 2, 2, SNT_SCHEME_SPRAY, 0 },
	{ 2, 4, SNT_SCHEME_DQPLB, 0 },
	{ 4, 16, SNT_SCHEME_SPRAY, 0 },
	{ 3, 7, SNT_SCHEME_DQPLB, 0 },
};

static struct vqp_pair *open_shape(const struct shape *shape, uint64_t fragment_size)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = shape->lanes,
				    .scheme = shape->scheme,
				    .flags = shape->flags,
				    .lane_depth = 8,
				    .fragment_size = fragment_size,
				    .inline_max = 64,
				    .send_sge_max = 4 };

	return vqp_pair_open(shape->devices, &opts);
}

static bool is_pass_through(const struct shape *shape)
{
	return shape->flags & SNT_QP_PASS_THROUGH;
}

static void fill(unsigned char *buffer, uint64_t length, unsigned salt)
{
	for (uint64_t i = 0; i < length; i++)
		buffer[i] = i * 31 + (i >> 8) + salt;
}

static void write_and_read(const struct shape *shape)
{
	static const uint64_t lengths[] = { 0, 1, 63, 4096, 4097, 100000 };
	struct vqp_pair *pair =
		open_shape(shape, is_pass_through(shape) ? 1 << 20 : 4096);
	struct snt_sge sge;

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct snt_send_wr wr =
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 64, lengths[i]);
		struct snt_wc wc;

		fill(pair->end[0].buffer + 64, lengths[i], i);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		wc = vqp_poll(pair, 0);
		assert_int_equal(wc.status, SNT_WC_SUCCESS);
		assert_int_equal(wc.opcode, SNT_OP_WRITE);
		assert_int_equal(wc.qp_num, snt_qp_num(pair->end[0].qp));
		assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer, 100064);

		memset(pair->end[0].buffer, 0, VQP_BUFFER);
		wr.opcode = SNT_OP_READ;
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		wc = vqp_poll(pair, 0);
		assert_int_equal(wc.status, SNT_WC_SUCCESS);
		assert_int_equal(wc.opcode, SNT_OP_READ);
		assert_memory_equal(pair->end[0].buffer + 64, pair->end[1].buffer + 64,
				    lengths[i]);
		memset(pair->end[0].buffer, 0, VQP_BUFFER);
		memset(pair->end[1].buffer, 0, VQP_BUFFER);
	}
	vqp_pair_close(pair);
}

static void notify(const struct shape *shape)
{
	static const uint64_t lengths[] = { 0, 1, 8192, 100000 };
	static const uint32_t imms[] = { 0, 1, 0xffffffff, 0xdeadbeef };
	struct vqp_pair *pair =
		open_shape(shape, is_pass_through(shape) ? 1 << 20 : 4096);
	struct snt_sge sge;

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct snt_send_wr wr =
			vqp_wr(pair, 0, &sge, SNT_OP_WRITE_IMM, 0, lengths[i]);
		struct snt_recv_wr recv = { .wr_id = 500 + i };
		struct snt_wc wc;

		wr.imm = imms[i];
		fill(pair->end[0].buffer, lengths[i], i);
		assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), 1);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
		wc = vqp_poll(pair, 0);
		assert_int_equal(wc.status, SNT_WC_SUCCESS);
		wc = vqp_poll(pair, 1);
		assert_int_equal(wc.status, SNT_WC_SUCCESS);
		assert_int_equal(wc.opcode, SNT_OP_RECV_NOTIFY);
		assert_int_equal(wc.wr_id, 500 + i);
		assert_true(wc.flags & SNT_WC_WITH_IMM);
		assert_int_equal(wc.imm, imms[i]);
		if (!(wc.flags & SNT_WC_LENGTH_UNKNOWN))
			assert_int_equal(wc.length, lengths[i]);
		assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer,
				    lengths[i]);
	}
	vqp_pair_close(pair);
}

static void messages_and_atomics(const struct shape *shape)
{
	struct vqp_pair *pair =
		open_shape(shape, is_pass_through(shape) ? 1 << 20 : 4096);
	uint64_t *here = (uint64_t *)pair->end[0].buffer;
	uint64_t *there = (uint64_t *)pair->end[1].buffer;
	struct snt_sge sge, into;
	struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_SEND_IMM, 0, 1000);
	struct snt_recv_wr recv = { .wr_id = 9, .sge = &into, .sge_count = 1 };
	struct snt_wc wc;

	into = (struct snt_sge){ pair->end[1].mem, pair->end[1].buffer + 4096, 4096 };
	fill(pair->end[0].buffer, 1000, 3);
	wr.imm = 0xabcd;
	assert_int_equal(snt_qp_post_recv(pair->end[1].qp, &recv, 1), 1);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	wc = vqp_poll(pair, 0);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	wc = vqp_poll(pair, 1);
	assert_int_equal(wc.opcode, SNT_OP_RECV);
	assert_int_equal(wc.length, 1000);
	assert_int_equal(wc.imm, 0xabcd);
	assert_memory_equal(pair->end[0].buffer, pair->end[1].buffer + 4096, 1000);

	there[1] = 40;
	wr = vqp_wr(pair, 0, &sge, SNT_OP_FETCH_ADD, 8, 8);
	wr.compare_add = 2;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
	assert_int_equal(here[1], 40);
	assert_int_equal(there[1], 42);
	wr.opcode = SNT_OP_CMP_SWAP;
	wr.compare_add = 42;
	wr.swap = 7;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
	assert_int_equal(here[1], 42);
	assert_int_equal(there[1], 7);
	vqp_pair_close(pair);
}

static void several_sges_and_inline(const struct shape *shape)
{
	struct vqp_pair *pair =
		open_shape(shape, is_pass_through(shape) ? 1 << 20 : 256);
	unsigned char *from = pair->end[0].buffer;
	struct snt_mem *mem = pair->end[0].mem;
	struct snt_sge sge[4] = { { mem, from, 100 },
				  { mem, from + 1000, 200 },
				  { mem, from + 5000, 0 },
				  { mem, from + 3000, 150 } };
	struct snt_sge plain;
	struct snt_send_wr wr = vqp_wr(pair, 0, &plain, SNT_OP_WRITE, 0, 1);
	unsigned char payload[50];

	fill(from, 4000, 5);
	wr.sge = sge;
	wr.sge_count = 4;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	assert_int_equal(vqp_poll(pair, 0).length, is_pass_through(shape) ? 0 : 450);
	assert_memory_equal(pair->end[1].buffer, from, 100);
	assert_memory_equal(pair->end[1].buffer + 100, from + 1000, 200);
	assert_memory_equal(pair->end[1].buffer + 300, from + 3000, 150);

	fill(payload, sizeof(payload), 6);
	plain = (struct snt_sge){ NULL, payload, sizeof(payload) };
	wr.sge = &plain;
	wr.sge_count = 1;
	wr.flags |= SNT_SEND_INLINE;
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	memset(payload, 0, sizeof(payload));
	assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
	fill(payload, sizeof(payload), 6);
	assert_memory_equal(pair->end[1].buffer, payload, sizeof(payload));
	vqp_pair_close(pair);
}

#define FOR_ALL_SHAPES(name)                                      \
	static void name##_in_all_shapes(void **state)            \
	{                                                         \
		(void)state;                                      \
		for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) \
			name(&shapes[i]);                         \
	}

FOR_ALL_SHAPES(write_and_read)
FOR_ALL_SHAPES(notify)
FOR_ALL_SHAPES(messages_and_atomics)
FOR_ALL_SHAPES(several_sges_and_inline)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_and_read_in_all_shapes),
		cmocka_unit_test(notify_in_all_shapes),
		cmocka_unit_test(messages_and_atomics_in_all_shapes),
		cmocka_unit_test(several_sges_and_inline_in_all_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
